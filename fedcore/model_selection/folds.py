"""Folds that each client cuts from its own rows."""

from __future__ import annotations

from numbers import Integral
from zlib import crc32

import numpy as np
from scipy import sparse

from .._kernels import _rng
from ..federation.contract import Cohort


def cut(cohort: Cohort, cv: int | float, seed: int) -> np.ndarray:
    """Give each row (n,) the fold that holds it out, -1 for none.

    A client deals its rows out label by label, so each fold has its share of all; rows
    of one label stand in random order, and the first fold is drawn, so that small
    clients do not fill the same ones. A row that is the only one of its client with
    its label is never held out.

    Parameters
    ----------
    cohort : Cohort
    cv : int or float
        Number of folds; or the share of each client's rows that the only fold has.
    seed : int
        With it, a client gets the same folds whoever else there is: what it draws is
        named by its own rows, not by its place among the clients.
    """
    K, sizes = cohort.n_clients, np.diff(cohort.offsets)
    n = int(cohort.offsets[-1])
    owner = np.repeat(np.arange(K), sizes)
    label = np.zeros(n, np.int32) if cohort.classes is None else cohort.y
    draw, begin = np.empty(n, np.int32), np.empty(K)
    for k in range(K):
        rows = slice(cohort.offsets[k], cohort.offsets[k + 1])
        number = _number(cohort, rows)
        _rng.permutation(seed, 0, _rng.FOLDS, number, draw[rows])
        _rng.uniform(seed, 1, _rng.FOLDS, number, begin[k : k + 1])

    order = np.lexsort((draw, label, owner))
    place = np.arange(n) - cohort.offsets[owner]
    if isinstance(cv, Integral):
        dealt = (place + np.floor(begin * cv).astype(np.int64)[owner]) % cv
    else:
        # Evenly spaced, so that all labels give their share.
        quota = np.floor(cv * sizes + 0.5)[owner]
        shift = (begin * sizes)[owner]
        steps = np.floor((np.array([[0], [1]]) + place + shift) * quota / sizes[owner])
        dealt = np.where(steps[1] > steps[0], 0, -1)
    fold = np.empty(n, np.int64)
    fold[order] = dealt
    # A label that would lose its last row keeps the first.
    _, cell = np.unique(np.column_stack([owner, label]), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    _, first = np.unique(cell, return_index=True)
    alone = np.bincount(cell, fold != fold[first][cell]) == 0
    fold[first[alone]] = -1
    return fold


def _number(cohort: Cohort, rows: slice) -> int:
    """Name a client by its targets and its first row, dense or sparse, in 31 bits."""
    y = cohort.y[rows]
    if cohort.classes is not None:  # codes depend on the labels of others
        y = np.unique(y, return_inverse=True)[1].astype(np.int32)
    row = cohort.X[[rows.start]]
    row = row.toarray() if sparse.issparse(row) else row
    row = row[0].astype(np.float64) + 0.0  # -0.0 is 0.0
    return crc32(row, crc32(np.ascontiguousarray(y))) & 0x7FFFFFFF
