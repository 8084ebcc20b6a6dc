"""Choosing parameters by held-out rows that stay where they are."""

from .estimator import FederatedSearchCV

__all__ = ["FederatedSearchCV"]
