"""Scores and losses of rows that the multi-task SVM has not seen."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from .._client_scores import client_scores
from ..federation.contract import Cohort


def model_scores(cohort: Cohort, w: np.ndarray, v: Any, bias: float) -> np.ndarray:
    """Score the held-out rows (n, C) by w (C, length) and each client's own v_k."""
    K, rows = cohort.n_clients, cohort.held_out
    w, b, v, c = split_models(w, v, bias, K)
    model = SimpleNamespace(
        coef_=w,
        intercept_=b,
        client_coef_=v,
        client_intercept_=c,
        clients_=np.arange(K),
    )
    owners = np.repeat(np.arange(K), np.diff(rows.offsets))
    return client_scores(model, rows.X, owners)


def row_losses(
    loss: str, epsilon: float, scores: np.ndarray, target: np.ndarray
) -> np.ndarray:
    """Loss (n,) of rows, added over the one-vs-rest problems; math.md, section 1."""
    if loss.endswith("hinge"):
        classes = np.arange(scores.shape[1]) if scores.shape[1] > 1 else 1
        sign = np.where(target[:, None] == classes, 1, -1)
        short = 1 - sign * scores
    else:
        short = np.abs(scores - target[:, None]) - epsilon
    short = short.clip(0)
    return (short**2 if loss.startswith("squared") else short).sum(axis=1)


def split_models(
    w: np.ndarray, v: Any, bias: float, K: int
) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    """Split the constant column off w (C, length) and v, as intercepts."""
    C, d = len(w), w.shape[1] - bool(bias)
    if not bias:
        return w.copy(), np.zeros(C), v, np.zeros((K, C))
    if sparse.issparse(v):
        v, last = _without_last(v, d)
    else:
        v, last = v[:, :, :d].copy(), v[:, :, d]
    return w[:, :d].copy(), w[:, d] * bias, v, last.reshape(K, C) * bias


def _without_last(v: sparse.csr_array, d: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Take the constant column, the last entry of each row, off a CSR array."""
    ends = v.indptr[1:] - 1
    rest = np.ones(v.nnz, bool)
    rest[ends] = False
    indptr = v.indptr - np.arange(len(v.indptr), dtype=v.indptr.dtype)
    parts = (v.data[rest], v.indices[rest], indptr)
    return sparse.csr_array(parts, shape=(v.shape[0], d)), v.data[ends]
