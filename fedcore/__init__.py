"""Federated learning as scikit-learn estimators over compiled kernels."""

from .federation import LocalEngine, Timing
from .mtl_svm import FedMTLSVC, FedMTLSVR

__version__ = "0.1.0"

__all__ = ["FedMTLSVC", "FedMTLSVR", "LocalEngine", "Timing"]
