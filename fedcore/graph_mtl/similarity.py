"""How alike the clients' tasks are, measured at points that are common to all."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import norm

MOST_COLUMNS = 500  # up to which clients send the covariance of their local model
RIDGE = 1e-2
FALSE_EDGES = (
    0.5  # expected number of links between clients that have nothing in common
)


def local_model(
    X: Any, y: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Fit a client's own linear model; give it (d,) and its covariance (d, d).

    Least squares with a free intercept and a light ridge, a heavier one where rows are
    fewer than columns. Weights have mean 1.
    """
    n, d = X.shape
    X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, float)
    centred = X - np.average(X, axis=0, weights=weight)
    target = y - np.average(y, weights=weight)
    A = (centred * weight[:, None]).T @ centred
    factor = cho_factor(_regular(A, few=n <= d + 2))
    theta = cho_solve(factor, centred.T @ (weight * target))
    free = n - 1 - np.trace(cho_solve(factor, A))
    rest = weight @ (target - centred @ theta) ** 2
    inner = cho_solve(factor, cho_solve(factor, A).T)
    return theta, inner * (rest / max(free, 1.0))


def _regular(A: np.ndarray, few: bool) -> np.ndarray:
    d = len(A)
    mean = np.trace(A) / d
    share = RIDGE if few else 1e-10
    return A + np.eye(d) * max(share * mean, np.finfo(float).tiny)


def pack(V: np.ndarray) -> np.ndarray:
    """Lower triangle of symmetric matrices (..., d, d) as one row each."""
    rows, columns = np.tril_indices(V.shape[-1])
    return V[..., rows, columns]


def unpack(packed: np.ndarray, d: int) -> np.ndarray:
    """Undo `pack`: (N, d (d + 1) / 2) to (N, d, d)."""
    rows, columns = np.tril_indices(d)
    V = np.empty((len(packed), d, d))
    V[:, rows, columns] = packed
    V[:, columns, rows] = packed
    return V


def model_affinity(theta: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Link clients whose local models are surely not at right angles.

    `theta` (N, d) and `V` (N, d, d) as `local_model` gives them. The product of two
    models that have nothing in common varies as their covariances say.
    """
    N, d = theta.shape
    flat = V.reshape(N, d * d)
    outer = (theta[:, :, None] * theta[:, None, :]).reshape(N, d * d)
    q = outer @ flat.T
    q += q.T
    t = flat @ flat.T
    product = theta @ theta.T
    length = np.sqrt(np.maximum(product.diagonal(), 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.abs(product) / np.sqrt(np.maximum(q - t, q / 4))
        cosine = np.abs(product) / length / length[:, None]
    limit = norm.ppf(1 - FALSE_EDGES / (N * max(N - 1, 1)))
    P = np.where(np.isfinite(cosine) & (z > limit), np.sqrt(cosine), 0.0)
    np.fill_diagonal(P, 0)
    return np.maximum(P, P.T)
