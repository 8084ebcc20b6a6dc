"""Figures of fitted estimators, as scikit-learn's Displays; they need matplotlib."""

from .atoms import AtomsDisplay
from .coefficients import CoefficientsDisplay
from .convergence import ConvergenceDisplay
from .graph import ClientGraphDisplay
from .messages import MessageSequenceDisplay

__all__ = [
    "AtomsDisplay",
    "ClientGraphDisplay",
    "CoefficientsDisplay",
    "ConvergenceDisplay",
    "MessageSequenceDisplay",
]
