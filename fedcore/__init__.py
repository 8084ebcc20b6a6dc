"""Federated learning as scikit-learn estimators over compiled kernels."""

from .dadil import DaDiL, FedDaDiL
from .federation import LocalEngine, Timing
from .graph_mtl import FedGraphMTL
from .iht import DistributedIHT, FedBestSubset, FedHT, FedIterHT, hard_threshold
from .model_selection import FederatedSearchCV
from .mtl_svm import FedMTLSVC, FedMTLSVR
from .persist import load, save
from .preprocessing import FedStandardScaler

__version__ = "0.1.0"

__all__ = [
    "DaDiL",
    "DistributedIHT",
    "FedBestSubset",
    "FedDaDiL",
    "FedGraphMTL",
    "FedHT",
    "FedIterHT",
    "FedMTLSVC",
    "FedMTLSVR",
    "FedStandardScaler",
    "FederatedSearchCV",
    "LocalEngine",
    "Timing",
    "hard_threshold",
    "load",
    "save",
]
