"""Figures of fitted estimators, as scikit-learn's Displays; they need matplotlib."""

from .coefficients import CoefficientsDisplay
from .convergence import ConvergenceDisplay
from .graph import ClientGraphDisplay
from .messages import MessageSequenceDisplay

__all__ = [
    "ClientGraphDisplay",
    "CoefficientsDisplay",
    "ConvergenceDisplay",
    "MessageSequenceDisplay",
]
