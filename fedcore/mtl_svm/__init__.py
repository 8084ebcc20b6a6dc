"""Multi-task linear SVMs: one shared and one personal part for each client."""

from .estimator import FedMTLSVC, FedMTLSVR

__all__ = ["FedMTLSVC", "FedMTLSVR"]
