"""Validation of stacks of point sets and of their weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array


def check_stack(X: Any, name: str, *, finite: bool = True) -> np.ndarray:
    """Return a C-contiguous stack of matrices, float64 or float32; one is a stack.

    Raises
    ------
    ValueError
        If it is empty, has another number of dimensions, or holds NaN or infinity.
    """
    X = check_array(
        X,
        dtype=[np.float64, np.float32],
        order="C",
        allow_nd=True,
        ensure_2d=False,
        ensure_all_finite=finite,
        ensure_min_samples=0,
        ensure_min_features=0,
        input_name=name,
    )
    if X.ndim == 2:
        X = X[None]
    if X.ndim != 3:
        raise ValueError(f"{name}.shape == {X.shape}, expected three dimensions")
    if X.size == 0:
        raise ValueError(f"{name}.shape == {X.shape}, expected no empty dimension")
    return X


def check_weights(weights: Any, size: int, name: str) -> np.ndarray:
    """Return weights as float64 that add up to 1.

    Raises
    ------
    ValueError
        If there are not `size` of them, one is negative, or their sum is not 1 up to
        the rounding of float32.
    """
    weights = check_array(weights, dtype=np.float64, ensure_2d=False, input_name=name)
    if weights.shape != (size,):
        raise ValueError(f"{name}.shape == {weights.shape}, expected ({size},)")
    if weights.min() < 0:
        raise ValueError(f"{name} has a negative entry ({weights.min()})")
    total = weights.sum()
    if abs(total - 1) > 1e-5:
        raise ValueError(f"{name} sums to {total}, expected 1")
    return weights / total
