"""Each domain's own scale, which takes level and spread of its columns away."""

from __future__ import annotations

import numpy as np

SCALERS = ("overall", "isotropic", "standard", "none")
LEAST = 1e-6  # of the largest spread: a column with less holds rounding alone


def moments_of(X: np.ndarray, scaler: str) -> tuple[np.ndarray, np.ndarray]:
    """Give mean and scale (d,) of a domain's rows.

    "overall": of all entries together. "isotropic": the mean of each column, and one
    scale for all, so that directions keep their proportions. "standard": of each
    column. "none": zeros and ones.
    """
    d = X.shape[1]
    if scaler == "overall":
        spread = X.std()
        spread = spread if spread > 1e-12 * np.abs(X).max() else 1.0
        return np.full(d, X.mean()), np.full(d, spread)
    if scaler == "none":
        return np.zeros(d), np.ones(d)
    mean = X.mean(axis=0)
    spread = np.sqrt(((X - mean) ** 2).mean(axis=0))
    if scaler == "isotropic":
        spread = np.full(d, np.sqrt((spread**2).mean()))
    # Rounding of the mean alone must not be blown up to variance 1.
    floor = np.maximum(LEAST * spread.max(), 1e-12 * np.abs(mean))
    return mean, np.where(spread > floor, spread, 1.0)
