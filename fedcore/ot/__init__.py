"""Exact optimal transport in batches, and barycenters of labelled point sets."""

from .barycenter import Barycenter, labelled_barycenter
from .batch import EMDBatch, PlanBatch, emd_batch, wasserstein_batch

__all__ = [
    "Barycenter",
    "EMDBatch",
    "PlanBatch",
    "emd_batch",
    "labelled_barycenter",
    "wasserstein_batch",
]
