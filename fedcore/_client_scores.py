"""Scores of many rows, each by the model of its own client."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

CHUNK_BYTES = 2**26  # of models and rows laid side by side at a time


def client_scores(model: Any, X: Any, owners: np.ndarray) -> np.ndarray:
    """Compute x . (w + v_k) + (intercept + intercept_k), as (n_rows, n_problems).

    The sums are those of a `LinearSVC` that holds ``w + v_k`` and sees the rows of
    client `k` alone, operation by operation, so the bits are the same.

    Parameters
    ----------
    model : fitted estimator
        With coef_, intercept_, client_coef_ and client_intercept_.
    X : C-contiguous array or CSR of shape (n_rows, n_features)
    owners : ndarray of shape (n_rows,)
        Place of the client of each row, -1 for the shared model alone.
    """
    score = _sparse_scores if sparse.issparse(X) else _dense_scores
    return score(model, X, owners) + total_intercept(model)[owners]


def total_intercept(model: Any) -> np.ndarray:
    """Add up the intercepts, as (n_clients + 1, n_problems); the last row is w's."""
    shared = np.atleast_1d(model.intercept_)
    own = model.client_intercept_.reshape(-1, len(shared))
    return np.vstack([shared + own, shared])


def total_coef(model: Any, k: np.ndarray) -> np.ndarray:
    """Add up w + v_k of clients `k`, as (len(k), n_problems, n_features); w for -1."""
    return np.atleast_2d(model.coef_) + personal_coef(model, k)


def personal_coef(model: Any, k: np.ndarray) -> np.ndarray:
    """Give v_k of clients `k`, as (len(k), n_problems, n_features); 0 for -1."""
    C, d = np.atleast_2d(model.coef_).shape
    v = model.client_coef_
    known = k >= 0
    if not known.any():  # there may be no client at all
        return np.zeros((len(k), C, d))
    if sparse.issparse(v):
        rows = (np.where(known, k, 0)[:, None] * C + np.arange(C)).reshape(-1)
        own = v[rows].toarray().reshape(-1, C, d)
    else:
        own = v.reshape(-1, C, d)[k]
    if not known.all():
        own[~known] = 0
    return own


def _dense_scores(model: Any, X: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """Multiply clients with as many rows together: one product each, no loop over."""
    n, d = X.shape
    C = len(np.atleast_2d(model.coef_))
    out = np.empty((n, C))
    order = np.argsort(owners, kind="stable")
    sorted_owners = owners[order]
    starts = np.flatnonzero(np.diff(sorted_owners, prepend=-2))
    counts = np.diff(starts, append=n)
    for count in np.unique(counts):
        firsts = starts[counts == count]
        size = max(1, CHUNK_BYTES // (8 * max(d, 1) * int(count + C)))
        for begin in range(0, len(firsts), size):
            first = firsts[begin : begin + size]
            rows = order[first[:, None] + np.arange(count)]
            total = total_coef(model, sorted_owners[first])
            out[rows] = X[rows] @ total.swapaxes(1, 2)
    return out


def _sparse_scores(model: Any, X: Any, owners: np.ndarray) -> np.ndarray:
    """Fetch only those weights that meet an entry of X, one to each entry."""
    w = np.atleast_2d(model.coef_)
    C, d = w.shape
    out = np.empty((X.shape[0], C))
    cuts = _cuts(X.indptr, C)
    for begin, end in pairwise(cuts):
        part = slice(X.indptr[begin], X.indptr[end])
        indptr = X.indptr[begin : end + 1] - X.indptr[begin]
        columns = X.indices[part]
        weights = w.T[columns]
        own = np.repeat(owners[begin:end], np.diff(indptr))
        known = np.flatnonzero(own >= 0)
        weights[known] += _entries(model.client_coef_, own[known], columns[known], C, d)
        m = len(columns)
        rows = sparse.csr_array(
            (X.data[part], np.arange(m), indptr), shape=(end - begin, m)
        )
        out[begin:end] = rows @ weights
    return out


def _cuts(indptr: np.ndarray, C: int) -> np.ndarray:
    """Cut rows where the weights for their entries fill a chunk."""
    n, entries = len(indptr) - 1, CHUNK_BYTES // (16 * C)
    inner = np.searchsorted(indptr, np.arange(entries, indptr[-1], entries))
    return np.unique(np.concatenate([[0], inner, [n]]).clip(0, n))


def _entries(v: Any, k: np.ndarray, columns: np.ndarray, C: int, d: int) -> np.ndarray:
    """Look up v[k, :, column], as (n_entries, C)."""
    if not sparse.issparse(v):
        return v.reshape(-1, C, d)[k, :, columns]
    found = np.zeros((len(k), C))
    key = np.repeat(np.arange(v.shape[0]), np.diff(v.indptr)) * d + v.indices
    if not len(key):
        return found
    order = None if (np.diff(key) > 0).all() else np.argsort(key)
    key = key if order is None else key[order]
    for c in range(C):
        asked = (k * C + c) * d + columns.astype(np.int64)
        at = np.searchsorted(key, asked).clip(max=len(key) - 1)
        there = key[at] == asked
        at = at[there] if order is None else order[at[there]]
        found[there, c] = v.data[at]
    return found
