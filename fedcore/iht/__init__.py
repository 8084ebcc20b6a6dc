"""Sparse linear models of a federation under a limit on their non-zeros."""

from .best_subset import FedBestSubset
from .estimator import DistributedIHT, FedHT, FedIterHT
from .threshold import hard_threshold

__all__ = ["DistributedIHT", "FedBestSubset", "FedHT", "FedIterHT", "hard_threshold"]
