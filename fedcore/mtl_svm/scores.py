"""Scores of many rows, each by the model of its own client."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

CHUNK_BYTES = 2**26  # of gathered personal models at a time


def scores(model: Any, X: Any, owners: np.ndarray) -> np.ndarray:
    """Compute (w + v_k) . x + intercepts, as (n_rows, n_problems).

    Parameters
    ----------
    model : fitted estimator
        With coef_, intercept_, client_coef_ and client_intercept_.
    X : ndarray or CSR of shape (n_rows, n_features)
    owners : ndarray of shape (n_rows,)
        Place of the client of each row, -1 for the shared model alone.
    """
    K, d = len(model.clients_), X.shape[1]
    w = np.atleast_2d(model.coef_)
    C = len(w)
    out = X @ w.T + model.intercept_
    known = np.flatnonzero(owners >= 0)
    out[known] += model.client_intercept_.reshape(K, C)[owners[known]]
    v = model.client_coef_
    if not sparse.issparse(v):
        v = v.reshape(K, C, d)
    size = max(1, CHUNK_BYTES // (8 * max(d, 1) * C))
    for first in range(0, len(known), size):
        rows = known[first : first + size]
        out[rows] += _personal(X[rows], v, owners[rows], C)
    return out


def _personal(X: Any, v: Any, owners: np.ndarray, C: int) -> np.ndarray:
    if sparse.issparse(v):
        columns = [(v[owners * C + c].multiply(X)).sum(axis=1) for c in range(C)]
        return np.stack([np.asarray(c).reshape(-1) for c in columns], axis=1)
    if not sparse.issparse(X):
        return np.einsum("nd,ncd->nc", X, v[owners])
    columns = [X.multiply(v[owners, c]).sum(axis=1) for c in range(C)]
    return np.stack([np.asarray(c).reshape(-1) for c in columns], axis=1)
