"""Preparing the rows of a federation without bringing them together."""

from .estimator import FedStandardScaler

__all__ = ["FedStandardScaler"]
