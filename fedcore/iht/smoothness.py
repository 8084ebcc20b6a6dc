"""How much the loss of one client bends along some columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _losses as losses
from .second_order import Rows

POWER_STEPS = 20  # of the power iteration; the growth of the step makes up for the rest


def smoothness(loss: str, rows: Rows, features: np.ndarray, constant: bool) -> float:
    """Bound the curvature of a client's mean loss on these columns.

    The largest eigenvalue of the second moments of the columns (and a constant one), by
    power iteration, times the most that the loss can bend.
    """
    A: Any = rows.X[:, features].astype(float)
    v = np.ones(len(features) + constant)
    value = 0.0
    for _ in range(POWER_STEPS):
        largest = np.abs(v).max(initial=0)
        if largest == 0:
            break
        v /= largest  # whose squares neither overflow nor vanish
        v /= np.linalg.norm(v)
        z = A @ v[: len(features)]
        if constant:
            z = z + v[-1]
        value = float(rows.weight @ z**2)
        z *= rows.weight
        v = A.T @ z
        if constant:
            v = np.append(v, z.sum())
    return losses.MOST_CURVATURE[loss] * value
