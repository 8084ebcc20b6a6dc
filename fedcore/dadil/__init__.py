"""Dataset dictionary learning."""

from .estimator import DaDiL, FedDaDiL

__all__ = ["DaDiL", "FedDaDiL"]
