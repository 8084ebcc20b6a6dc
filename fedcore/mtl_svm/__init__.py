"""Multi-task linear SVMs: one shared and one personal part for each client."""

from .estimator import FedMTLSVC, FedMTLSVR
from .path import MTLSVMPath, mtl_svm_path

__all__ = ["FedMTLSVC", "FedMTLSVR", "MTLSVMPath", "mtl_svm_path"]
