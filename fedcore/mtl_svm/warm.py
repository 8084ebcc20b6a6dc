"""Dual variables of an earlier fit, from which the next one may start."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..federation.contract import Cohort


def places(offsets: np.ndarray, n_classes: int) -> np.ndarray:
    """Where the multipliers (C, n) stand in the one long array of the kernel."""
    sizes = np.diff(offsets)
    first = np.repeat(offsets[:-1], sizes)
    row = np.arange(offsets[-1]) - first + n_classes * first
    return row + np.arange(n_classes)[:, None] * np.repeat(sizes, sizes)


def feasible(
    cohort: Cohort, svm: Any, code: np.ndarray | None, class_weight: np.ndarray | None
) -> np.ndarray:
    """Bring the cohort's multipliers into the bounds of this problem; in one array."""
    b = cohort.warm
    C, n = b.shape
    upper = np.full((C, n), svm.C1)
    if cohort.sample_weight is not None:
        upper *= cohort.sample_weight
    lower = -upper
    if code is not None:
        inside = code == (np.arange(C)[:, None] if C > 1 else 1)
        if class_weight is not None:
            upper *= np.where(inside, class_weight[:, 1:], class_weight[:, :1])
        lower = np.where(inside, 0, -upper)
        upper = np.where(inside, upper, 0)
    if svm.loss.startswith("squared"):
        lower, upper = np.where(lower, -np.inf, 0), np.where(upper, np.inf, 0)
    flat = np.empty(C * n)
    flat[places(cohort.offsets, C)] = np.clip(b, lower, upper)
    return flat
