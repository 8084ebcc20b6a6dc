"""What a participant of splicing computes: values, slopes and second derivatives.

An entry is a place in the (C, d) coefficients, counted along the rows; the C places
behind them are the intercepts, entries of a column of ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import expit, log_softmax

from .. import _losses as losses
from ..federation.contract import Cohort

CHUNK = 2**20  # numbers of a float64 copy of some rows, which then fits the cache


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of some clients.

    X      : (n, d) array or CSR
    y      : (n,) targets, or codes
    weight : (n,) of each row; those of a client add up to its share
    owner  : (n,) place of the client of each row among the clients
    mass   : (n_active,) what the weights of a client add up to
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    owner: np.ndarray
    mass: np.ndarray


def rows_of(cohort: Cohort, y: np.ndarray, active: np.ndarray, share: Any) -> Rows:
    """Take the active clients' rows."""
    starts, ends = cohort.offsets[active], cohort.offsets[active + 1]
    lengths = ends - starts
    rows: Any = slice(int(starts[0]), int(ends[-1]))
    if lengths.sum() != ends[-1] - starts[0]:
        pieces = [np.arange(a, b) for a, b in zip(starts, ends, strict=True)]
        rows = np.concatenate(pieces)
    owner = np.repeat(np.arange(len(active)), lengths)
    weight = np.ones(len(owner))
    if cohort.sample_weight is not None:
        weight = cohort.sample_weight[rows]
    mass = np.bincount(owner, weight, minlength=len(active))
    weight = weight * (share / mass)[owner]
    return Rows(cohort.X[rows], y[rows], weight, owner, np.asarray(share, float))


def _chunks(n: int, width: int) -> Iterator[slice]:
    step = max(CHUNK // max(width, 1), 1)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _columns(X: Any, rows: slice, features: np.ndarray, *, ones: bool) -> np.ndarray:
    """Copy some columns of some rows, with a column of ones behind if asked for."""
    part = X[rows]
    A = part[:, features].toarray() if sparse.issparse(X) else part.take(features, 1)
    if ones:
        A = np.column_stack([A, np.ones(len(A), A.dtype)])
    return A.astype(float, copy=False)


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries as classes and features.

    output   : (s,) row of the coefficients
    features : (m,) distinct columns of X
    column   : (s,) place among the features, m for the column of ones
    """

    output: np.ndarray
    features: np.ndarray
    column: np.ndarray


def split(index: np.ndarray, C: int, d: int) -> Entries:
    """Split entries up."""
    constant = index >= C * d
    output = np.where(constant, index - C * d, index // d)
    features, place = np.unique(index[~constant] % d, return_inverse=True)
    column = np.full(len(index), len(features))
    column[~constant] = place
    return Entries(output, features, column)


def measure(
    loss: str, rows: Rows, index: np.ndarray, value: np.ndarray, C: int
) -> dict[str, np.ndarray]:
    """Loss and gradient (C d + C) at a sparse point, intercepts included."""
    n, d = rows.X.shape
    entries = split(index, C, d)
    coef = np.zeros((len(entries.features) + 1, C))
    coef[entries.column, entries.output] = value
    total, gradient, free = 0.0, np.zeros((d, C)), np.zeros(C)
    width = len(entries.features) + 1 if sparse.issparse(rows.X) else d
    for part in _chunks(n, width):
        z = _columns(rows.X, part, entries.features, ones=True) @ coef
        total += rows.weight[part] @ losses.values(loss, z, rows.y[part])
        slope = losses.slopes(loss, z, rows.y[part]) * rows.weight[part, None]
        gradient += rows.X[part].astype(float, copy=False).T @ slope
        free += slope.sum(axis=0)
    return {
        "loss": np.asarray(total),
        "gradient": np.concatenate([gradient.T.reshape(-1), free]),
    }


def client_gradients(
    loss: str,
    rows: Rows,
    index: np.ndarray,
    value: np.ndarray,
    intercept: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Loss (K,), gradient on the entries (K, s) and the intercepts (K, C) by client.

    Every sum runs over one client's rows in order, so what a client gets does not
    depend on the others, as long as one with more than CHUNK numbers comes alone.
    """
    n, d = rows.X.shape
    K, C = len(rows.mass), len(intercept)
    entries = split(index, C, d)
    total, own, free = np.zeros(K), np.zeros((K, len(index))), np.zeros((K, C))
    width = len(entries.features) + 1
    for part in _chunks(n, width) if K == 1 else [slice(0, n)]:
        A = _columns(rows.X, part, entries.features, ones=False)
        owner, weight = rows.owner[part], rows.weight[part]
        z = np.empty((len(A), C))
        coef = np.zeros((C, len(entries.features)))
        coef[entries.output, entries.column] = value
        for c in range(C):
            z[:, c] = np.einsum("ij,j->i", A, coef[c]) + intercept[c]
        total += np.bincount(owner, weight * losses.values(loss, z, rows.y[part]), K)
        slope = losses.slopes(loss, z, rows.y[part]) * weight[:, None]
        for c in range(C):
            mine = np.flatnonzero(entries.output == c)
            places = (owner, np.arange(len(A)))
            to_clients = sparse.csr_array((slope[:, c], places), shape=(K, len(A)))
            own[:, mine] += to_clients @ A[:, entries.column[mine]]
            free[:, c] += np.bincount(owner, slope[:, c], K)
    return total, own, free


def moments(rows: Rows) -> dict[str, np.ndarray]:
    """Weighted means and mean squares of the columns, and variances inside clients."""
    n, d = rows.X.shape
    is_sparse = sparse.issparse(rows.X)
    K = len(rows.mass)
    square = np.zeros(d)
    by_client: Any = 0
    for part in _chunks(n, 1 if is_sparse else d):
        A = rows.X[part].astype(float, copy=False)
        weight = rows.weight[part]
        square += weight @ (A.multiply(A) if is_sparse else A * A)
        places = (rows.owner[part], np.arange(len(weight)))
        to_clients = sparse.csr_array((weight, places), shape=(K, len(weight)))
        by_client = to_clients @ A + by_client
    mean, between = by_client.sum(axis=0), by_client**2
    # A client of share 0 has no variance to add.
    inverse = np.divide(1, rows.mass, where=rows.mass > 0, out=np.zeros(K))
    within = np.maximum(square - inverse @ between, 0)
    return {"square": square, "mean": mean, "within": within}


def second_derivatives(
    loss: str,
    rows: Rows,
    index: np.ndarray,
    value: np.ndarray,
    C: int,
    known: np.ndarray,
    new: np.ndarray,
) -> np.ndarray:
    """Hessian at a sparse point: rows of new entries against all known and new.

    First those against the known, then the lower triangle of the new among themselves.
    """
    n, d = rows.X.shape
    q = len(new)
    point = split(index, C, d)
    coef = np.zeros((len(point.features) + 1, C))
    coef[point.column, point.output] = value
    across, among = np.zeros((q, len(known))), np.zeros((q, q))
    entries = split(new, C, d)
    for part in _chunks(n, q + len(known)):
        weight = rows.weight[part]
        if loss != "squared":
            z = _columns(rows.X, part, point.features, ones=True) @ coef
            if loss == "softmax":
                A = _columns(rows.X, part, entries.features, ones=True)
                among += _softmax_hessian(A, weight, z, entries)
                continue
            weight = weight * (expit(z) * expit(-z))[:, 0]
        A = _entries(rows.X, part, new)
        A *= np.sqrt(weight)[:, None]
        among += A.T @ A
        if len(known):
            A *= np.sqrt(weight)[:, None]
            across += A.T @ _entries(rows.X, part, known)
    return np.concatenate([across.reshape(-1), among[np.tril_indices(q)]])


def _entries(X: Any, rows: slice, index: np.ndarray) -> np.ndarray:
    """Columns of sorted entries of a single output."""
    d = X.shape[1]
    constant = len(index) > 0 and index[-1] == d
    return _columns(X, rows, index[:-1] if constant else index, ones=constant)


def _softmax_hessian(
    A: np.ndarray, weight: np.ndarray, z: np.ndarray, entries: Entries
) -> np.ndarray:
    """Hessian of the cross entropy of some rows with scores z."""
    p = np.exp(log_softmax(z, axis=1))
    A = A * np.sqrt(weight)[:, None]
    V = A[:, entries.column] * p[:, entries.output]
    H = -(V.T @ V)
    for c in np.unique(entries.output):
        mine = np.flatnonzero(entries.output == c)
        B = A[:, entries.column[mine]] * np.sqrt(p[:, c])[:, None]
        H[np.ix_(mine, mine)] += B.T @ B
    return H
