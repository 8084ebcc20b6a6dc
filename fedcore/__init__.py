"""Federated learning as scikit-learn estimators over compiled kernels."""

from .federation import LocalEngine, Timing
from .iht import DistributedIHT, FedBestSubset, FedHT, FedIterHT, hard_threshold
from .mtl_svm import FedMTLSVC, FedMTLSVR
from .persist import load, save

__version__ = "0.1.0"

__all__ = [
    "DistributedIHT",
    "FedBestSubset",
    "FedHT",
    "FedIterHT",
    "FedMTLSVC",
    "FedMTLSVR",
    "LocalEngine",
    "Timing",
    "hard_threshold",
    "load",
    "save",
]
