"""Federated learning as scikit-learn estimators over compiled kernels."""

__version__ = "0.1.0"
