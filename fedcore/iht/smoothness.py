"""How much the losses of clients bend along some columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from .. import _losses as losses
from .second_order import CHUNK, Rows

POWER_STEPS = 20  # of the power iteration; the growth of the step makes up for the rest


def smoothness(
    loss: str, rows: Rows, counts: np.ndarray, features: np.ndarray, constant: bool
) -> np.ndarray:
    """Bound the curvature of each client's mean loss on columns of its own.

    The largest eigenvalue of the second moments of the columns (and a constant one), by
    power iteration for all clients at once, times the most that the loss can bend. What
    a client gets does not depend on the others.

    counts   : (K,) columns of each client
    features : (sum of counts,) these columns, ascending within a client
    """
    K, owner = len(counts), rows.owner
    A, client = _own_columns(rows, counts, features)
    v, free = np.ones(len(client)), np.full(K, float(constant))
    value = np.zeros(K)
    for _ in range(POWER_STEPS):
        largest = np.abs(free)
        np.maximum.at(largest, client, np.abs(v))
        # Divided by it first, so that squares neither overflow nor vanish.
        for scale in (largest, None):
            if scale is None:
                scale = np.sqrt(np.bincount(client, v * v, K) + free * free)
            scale[scale == 0] = 1
            v, free = v / scale[client], free / scale
        z = A @ v + free[owner]
        value = np.bincount(owner, rows.weight * z**2, K)
        z *= rows.weight
        v = A.T @ z
        if constant:
            free = np.bincount(owner, z, K)
    return losses.MOST_CURVATURE[loss] * value


def columns_met(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    """Count and list each client's columns, of sparse rows those that are not empty."""
    K, d = len(rows.mass), rows.X.shape[1]
    if not sparse.issparse(rows.X):
        return np.full(K, d), np.tile(np.arange(d), K)
    whose = np.repeat(rows.owner, np.diff(rows.X.indptr))
    columns = np.unique(whose * d + rows.X.indices)
    return np.bincount(columns // d, minlength=K), columns % d


def _own_columns(
    rows: Rows, counts: np.ndarray, features: np.ndarray
) -> tuple[Any, np.ndarray]:
    """Lay each client's columns beside those of the others; tell whose they are."""
    X, owner = rows.X, rows.owner
    n, d = X.shape
    client = np.repeat(np.arange(len(counts)), counts)
    if sparse.issparse(X):
        whose = np.repeat(owner, np.diff(X.indptr))
        known, asked = client * d + features, whose * d + X.indices
        place = np.searchsorted(known, asked)
        there = np.append(known, -1)[place] == asked
        value, place = X.data[there], place[there]
        indptr = np.append(0, np.cumsum(there))[X.indptr]
    elif len(counts) == 1 and n * len(features) > CHUNK:
        return X.take(features, axis=1).astype(float), client
    else:
        width = counts[owner]
        indptr = np.append(0, np.cumsum(width))
        shift = np.append(0, np.cumsum(counts))[owner] - indptr[:-1]
        place = np.arange(indptr[-1]) + np.repeat(shift, width)
        value = X[np.repeat(np.arange(n), width), features[place]]
    shape = (n, len(features))
    return sparse.csr_array((value.astype(float), place, indptr), shape=shape), client
