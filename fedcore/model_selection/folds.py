"""Folds that each client cuts from its own rows."""

from __future__ import annotations

from itertools import pairwise
from numbers import Integral
from typing import Any
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
    K, starts, sizes = cohort.n_clients, cohort.offsets[:-1], np.diff(cohort.offsets)
    n = int(cohort.offsets[-1])
    owner = np.repeat(np.arange(K), sizes)
    label = np.zeros(n, np.int32) if cohort.classes is None else cohort.y
    # Rows of one client with one label, numbered in the order of both.
    pair = owner * (int(label.max(initial=0)) + 1) + label
    _, head, cell = np.unique(pair, return_index=True, return_inverse=True)
    target = cohort.y
    if cohort.classes is not None:  # codes depend on the labels of others
        target = cell - np.repeat(np.minimum.reduceat(cell, starts), sizes)
    draw, begin = np.empty(n, np.int32), np.empty(K)
    for k, (first, last) in enumerate(pairwise(cohort.offsets.tolist())):
        number = _number(target[first:last], cohort.X, first)
        _rng.permutation(seed, 0, _rng.FOLDS, number, draw[first:last])
        _rng.uniform(seed, 1, _rng.FOLDS, number, begin[k : k + 1])

    order = np.lexsort((draw, label, owner))
    place = np.arange(n) - starts[owner]
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
    alone = np.bincount(cell, fold != fold[head][cell]) == 0
    fold[head[alone]] = -1
    return fold


def _number(target: np.ndarray, X: Any, first: int) -> int:
    """Name a client by its targets and its first row, dense or sparse, in 31 bits."""
    if sparse.issparse(X):
        stored = slice(X.indptr[first], X.indptr[first + 1])
        index, value = X.indices[stored], X.data[stored]
        index, value = index[value != 0], value[value != 0]
    else:
        index = np.flatnonzero(X[first])
        value = X[first][index]
    number = crc32(np.ascontiguousarray(target))
    number = crc32(index.astype(np.int64), number)
    return crc32(value.astype(np.float64), number) & 0x7FFFFFFF
