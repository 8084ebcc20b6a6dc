"""The losses of models with scores: value, slope and curvature of one row's."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit, log_softmax

from ._estimators import check_classes

# The second derivative along any direction of the scores never exceeds this.
MOST_CURVATURE = {"squared": 1.0, "logistic": 0.25, "softmax": 0.5}


def agree_on_outputs(loss: str, hellos: list[dict]) -> dict[str, Any]:
    """Say how many scores a row has, and the classes of all hellos if there are any."""
    if loss == "squared":
        return {"n_outputs": 1}
    classes = np.unique(np.concatenate([hello["classes"] for hello in hellos]))
    check_classes(classes, loss)
    n_outputs = len(classes) if loss == "softmax" else 1
    return {"n_outputs": n_outputs, "classes": classes}


def values(loss: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Loss (n,) of rows with scores (n, C); y holds targets or codes."""
    if loss == "squared":
        return (scores[:, 0] - y) ** 2 / 2
    if loss == "logistic":
        return np.logaddexp(0, np.where(y > 0, -scores[:, 0], scores[:, 0]))
    return -log_softmax(scores, axis=1)[np.arange(len(y)), y]


def slopes(loss: str, scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Differentiate each row's loss by its scores: (n, C)."""
    if loss == "squared":
        return scores - y[:, None]
    if loss == "logistic":
        return expit(scores) - (y > 0)[:, None]
    slope = np.exp(log_softmax(scores, axis=1))
    slope[np.arange(len(y)), y] -= 1
    return slope
