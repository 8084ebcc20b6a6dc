"""Sums over columns by client, moments and scaled rows, in double precision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

CHUNK = 2**20  # entries that are widened to double at a time


def chunks(n_rows: int, n_columns: int) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces of about a million entries."""
    size = max(1, CHUNK // max(n_columns, 1))
    for begin in range(0, n_rows, size):
        yield begin, min(begin + size, n_rows)


def client_sums(
    X: Any, weight: np.ndarray | None, offsets: np.ndarray, shift: np.ndarray
) -> np.ndarray:
    """Add up what is known of each column less its shift, for each client.

    Parameters
    ----------
    X : C-contiguous array or CSR of shape (n, d)
        NaN is no value; what a CSR matrix does not store is 0.
    weight : (n,) float64 or None
    offsets : (K + 1,) rows of client k are offsets[k]:offsets[k + 1], from 0 to n
    shift : (d,) or (K, d)
        Near the means: then squares lose no digits.

    Returns
    -------
    sums : (3, K, d)
        Weights, shifted values and their squares.
    """
    (n, d), K = X.shape, len(offsets) - 1
    if weight is None:
        weight = np.ones(n)
    owner = np.repeat(np.arange(K), np.diff(offsets))
    sums = np.zeros((3, K, d))
    # What overflows is told by whoever reads the sums.
    with np.errstate(over="ignore", invalid="ignore"):
        if sparse.issparse(X):
            _add_stored(sums, X, weight, owner, shift)
        else:
            _add_values(sums, X, weight, offsets, owner, shift)
    return sums


def _add_values(sums, X, weight, offsets, owner, shift) -> None:
    """Go over the rows of an array, a piece at a time."""
    for begin, end in chunks(*X.shape):
        k = owner[begin:end]
        first, last = k[0], k[-1] + 1
        own = shift if shift.ndim == 1 else shift[k]
        values = X[begin:end] - own  # float64, for the shift is
        known = ~np.isnan(values)
        values[~known] = 0
        cuts = (offsets[first : last + 1] - begin).clip(0, end - begin)
        at = sparse.csr_array(
            (weight[begin:end], np.arange(end - begin), cuts),
            shape=(last - first, end - begin),
        )
        for total, term in zip(sums, (known, values, values * values), strict=True):
            total[first:last] += at @ term.astype(float, copy=False)


def _add_stored(sums, X, weight, owner, shift) -> None:
    """Go over the entries of a CSR matrix, then over the zeros that it leaves out."""
    K, d = sums.shape[1:]
    row = np.repeat(np.arange(len(owner)), np.diff(X.indptr))
    place = owner[row] * d + X.indices
    own = shift[X.indices] if shift.ndim == 1 else shift.reshape(-1)[place]
    values = X.data - own
    known = ~np.isnan(values)
    values[~known] = 0
    stored = np.bincount(place, weight[row], K * d).reshape(K, d)
    for total, term in zip(sums, (known, values, values * values), strict=True):
        total += np.bincount(place, weight[row] * term, K * d).reshape(K, d)
    mass = np.bincount(owner, weight, K)
    # Rounding of large weights must not leave less than nothing.
    zeros = (mass[:, None] - stored).clip(0)
    sums[0] += zeros
    sums[1] -= zeros * shift
    sums[2] += zeros * shift * shift


def mean_and_variance(
    shift: np.ndarray, count: np.ndarray, total: np.ndarray, square: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Turn sums about a shift into moments; NaN where nothing was counted."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        rest = total / count
        return shift + rest, (square / count - rest * rest).clip(0)


def scale_of(mean: np.ndarray, var: np.ndarray, count: np.ndarray) -> np.ndarray:
    """Give standard deviations, 1 where a column cannot be told from a constant.

    The bound is that of scikit-learn's StandardScaler: the error of a variance in two
    passes, after Chan, Golub and LeVeque, "Algorithms for computing the sample
    variance", 1983.
    """
    eps = np.finfo(np.float64).eps
    bound = count * eps * var + (count * mean * eps) ** 2
    return np.where(var <= bound, 1.0, np.sqrt(var))


def scale_rows(
    X: Any,
    owners: np.ndarray | None,
    mean: np.ndarray | None,
    scale: np.ndarray | None,
    inverse: bool = False,
    in_place: bool = False,
) -> Any:
    """Subtract means and divide by scales, or the inverse, in double precision.

    Parameters
    ----------
    X : C-contiguous array or CSR of shape (n, d)
    owners : (n,) or None
        Which row of `mean` and `scale` is for a row of X, if these are tables.
    mean, scale : (d,) or (K, d), or None for none
        A CSR matrix takes no mean.
    """
    if sparse.issparse(X):
        out = X if in_place else X.copy()
        if scale is None:
            return out
        factor = scale if inverse else 1 / scale
        if owners is None:
            out.data *= factor[out.indices]
        else:
            owner = np.repeat(owners, np.diff(out.indptr))
            out.data *= factor[owner, out.indices]
        return out
    out = X if in_place and X.flags.writeable else np.empty_like(X)
    for begin, end in chunks(*X.shape):
        values = X[begin:end].astype(np.float64)
        m, q = (
            table if table is None or owners is None else table[owners[begin:end]]
            for table in (mean, scale)
        )
        if inverse and q is not None:
            values *= q
        if m is not None:
            values += m if inverse else -m
        if not inverse and q is not None:
            values /= q
        out[begin:end] = values
    return out
