"""What a client tells of its held-out rows, and the scores that follow from it."""

from __future__ import annotations

import numpy as np

from ..federation.contract import Cohort

N_FIGURES = 5
WEIGHT, LOSS, VALUE, MEAN, SPREAD = range(N_FIGURES)

SCORINGS = ("accuracy", "r2", "neg_loss")


def client_figures(
    held: Cohort, scores: np.ndarray, target: np.ndarray, losses: np.ndarray
) -> np.ndarray:
    """Sum up the rows of each client.

    Parameters
    ----------
    held : Cohort
    scores : (n, C) of the rows
    target : (n,) float64, or codes into the classes of all clients
    losses : (n,)

    Returns
    -------
    figures : (K, 5)
        Weight of the rows; weighted sums of losses and of right answers or squared
        errors; mean of the targets and weighted squares about it (0 for classes).
    """
    K = held.n_clients
    owner = np.repeat(np.arange(K), np.diff(held.offsets))
    weight = np.ones(len(owner)) if held.sample_weight is None else held.sample_weight
    figures = np.zeros((K, N_FIGURES))

    def add(column: int, values: np.ndarray) -> None:
        figures[:, column] = np.bincount(owner, weight * values, K)

    add(WEIGHT, np.ones(len(owner)))
    add(LOSS, losses)
    if held.classes is None:
        add(VALUE, (scores[:, 0] - target) ** 2)
        add(MEAN, target)
        figures[:, MEAN] /= np.where(figures[:, WEIGHT] > 0, figures[:, WEIGHT], 1)
        add(SPREAD, (target - figures[owner, MEAN]) ** 2)
    else:
        binary = scores.shape[1] == 1
        told = scores[:, 0] > 0 if binary else scores.argmax(axis=1)
        add(VALUE, told == target)
    return figures


def merge(figures: np.ndarray, axis: int) -> np.ndarray:
    """Bring the figures of clients, or folds, together along an axis."""
    weight = figures[..., WEIGHT]
    merged = figures.sum(axis=axis)
    mass = merged[..., WEIGHT]
    mean = (weight * figures[..., MEAN]).sum(axis=axis) / np.where(mass > 0, mass, 1)
    apart = figures[..., MEAN] - np.expand_dims(mean, axis)
    merged[..., MEAN] = mean
    merged[..., SPREAD] += (weight * apart**2).sum(axis=axis)
    return merged


def score(figures: np.ndarray, scoring: str) -> np.ndarray:
    """Score figures (..., 5), more is better; NaN where no row was held out."""
    weight, value = figures[..., WEIGHT], figures[..., VALUE]
    with np.errstate(divide="ignore", invalid="ignore"):
        if scoring == "neg_loss":
            return -figures[..., LOSS] / weight
        if scoring == "accuracy":
            return value / weight
        spread = figures[..., SPREAD]
        # As scikit-learn's r2_score: no error is perfect even where nothing varies.
        flat = np.where(value > 0, 0.0, 1.0)
        known = np.where(spread > 0, 1 - value / spread, flat)
    return np.where(weight > 0, known, np.nan)
