"""Training and test rows, and means over runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.model_selection import train_test_split


def marked_rows(cells: np.ndarray, train_size: float, seed: int) -> np.ndarray:
    """Mark the training rows; each cell gives its share."""
    rows = np.arange(len(cells))
    train, _ = train_test_split(
        rows, train_size=train_size, stratify=cells, random_state=seed
    )
    marked = np.zeros(len(cells), bool)
    marked[train] = True
    return marked


def mean_and_spread(values: Sequence[float]) -> str:
    """Write mean and standard deviation over the runs."""
    if len(values) == 1:
        return f"{values[0]:.1f}"
    return f"{np.mean(values):.1f} +- {np.std(values, ddof=1):.1f}"
