"""Local steps and gradients of a cohort: room for the results, one kernel call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from scipy import sparse

from .._kernels._compact import compact
from .._kernels._iht import IHTCohort, add_pairs
from ..federation.contract import Cohort, Key

LOSSES = ("squared", "logistic", "softmax")  # in the order of fc_iht_loss

Correction: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]
"""Added to the gradient: offsets (n_active + 1,) int64 into places and values, then
places int32 (ascending within a client), values, intercepts (n_active, C)."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The iterates of the active clients, one after another.

    index, value : (sum of counts,) places c d + j, ascending within a client
    counts       : (n_active,) pairs of each client
    intercepts   : (n_active, C)
    """

    index: np.ndarray
    value: np.ndarray
    counts: np.ndarray
    intercepts: np.ndarray


def bind(
    cohort: Cohort,
    *,
    loss: str,
    n_outputs: int = 1,
    target: np.ndarray | None = None,
    code: np.ndarray | None = None,
    fit_intercept: bool = True,
) -> IHTCohort:
    """Bind rows and labels; a row of weight 0 is neither drawn nor counted."""
    X, offsets = cohort.X, cohort.offsets
    d = X.shape[1]
    if sparse.issparse(X):
        starts, columns, ascending, feature, indices = _features(X, offsets)
        rows = starts, columns, ascending, feature, X.indptr, indices, X.data
    else:
        rows = None, None, None, None, None, None, X.reshape(-1)
    weight, kept, kept_offsets = _weights(cohort)
    return IHTCohort(
        *(offsets, *rows, d),
        loss=LOSSES.index(loss),
        n_outputs=n_outputs,
        intercept=fit_intercept,
        code=code,
        target=target,
        weight=weight,
        kept=kept,
        kept_offsets=kept_offsets,
    )


def _features(X: sparse.csr_array, offsets: np.ndarray):
    """Give columns numbers, client by client, in the order in which rows meet them.

    Sorted, they would be scattered over the local vectors: every entry of a row would
    miss the cache.
    """
    d = X.shape[1]
    starts = np.empty(len(offsets), np.int64)
    local, ascending = np.empty(X.nnz, np.int32), np.empty(X.nnz, np.int32)
    place, bits = np.empty(d, np.int32), np.zeros(d // 64 + 1, np.uint64)
    n_places = compact(
        *(offsets, X.indptr, X.indices, d, False),
        *(place, bits, local, ascending, starts),
    )
    ascending = ascending[:n_places].copy()
    at = np.repeat(starts[:-1], np.diff(X.indptr[offsets]))  # of each entry's client
    local += at.astype(np.int32)  # n_places is at most nnz, which fits
    met = np.empty(n_places, np.int64)
    met[local[::-1]] = np.arange(X.nnz - 1, -1, -1)
    order = np.argsort(met)
    feature = np.empty(n_places, np.int32)
    feature[order] = np.arange(n_places)
    indices = (feature[local] - at).astype(np.int32)
    feature -= np.repeat(starts[:-1], np.diff(starts)).astype(np.int32)
    return starts, ascending[order], ascending, feature, indices


def _weights(cohort: Cohort):
    """Weights of mean 1 within each client, and the rows that have any."""
    weight, offsets = cohort.sample_weight, cohort.offsets
    if weight is None:
        return None, None, None
    owner = np.repeat(np.arange(cohort.n_clients), np.diff(offsets))
    there = weight > 0
    count = np.bincount(owner[there], minlength=cohort.n_clients)
    total = np.bincount(owner, weight, cohort.n_clients)
    weight = weight * (count / np.where(total > 0, total, 1))[owner]
    if there.all():
        return weight, None, None
    kept = (np.arange(len(owner)) - offsets[owner])[there].astype(np.int32)
    return weight, kept, np.concatenate([[0], np.cumsum(count)]).astype(np.int64)


def local_steps(
    kernel: IHTCohort,
    active: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
    intercept: np.ndarray,
    *,
    step: np.ndarray,
    n_steps: int,
    batch_size: int,
    n_nonzero: int,
    l2: float,
    key: Key,
    first_client: int,
    correction: Correction | None = None,
) -> Pairs:
    """Run steps with a threshold after each (FedIterHT)."""
    tau, n_active = min(n_nonzero, kernel.n_outputs * kernel.n_columns), len(active)
    out_index, out_value = np.empty(n_active * tau, np.int32), np.empty(n_active * tau)
    counts = np.zeros(n_active, np.int64)
    intercepts = np.empty((n_active, kernel.n_outputs))
    kernel.iterate(
        *(active, index, value, intercept, step),
        *(out_index, out_value, counts, intercepts),
        n_steps=n_steps,
        batch=batch_size,
        tau=tau,
        l2=l2,
        seed=key[0],
        exchange=key[1],
        first_client=first_client,
        correction=correction,
    )
    n_pairs = counts.sum()
    return Pairs(out_index[:n_pairs], out_value[:n_pairs], counts, intercepts)


def local_steps_dense(
    kernel: IHTCohort,
    active: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
    intercept: np.ndarray,
    share: np.ndarray,
    *,
    step: np.ndarray,
    n_steps: int,
    batch_size: int,
    l2: float,
    key: Key,
    first_client: int,
    correction: Correction | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Run steps without thresholds (FedHT); return sum share_k x_k and intercepts."""
    total = np.zeros(kernel.n_outputs * kernel.n_columns)
    intercepts = np.empty((len(active), kernel.n_outputs))
    kernel.descend(
        *(active, index, value, intercept, step, share, total, intercepts),
        n_steps=n_steps,
        batch=batch_size,
        l2=l2,
        seed=key[0],
        exchange=key[1],
        first_client=first_client,
        correction=correction,
    )
    return total, intercepts


def weighted_sum(
    pairs: Pairs, share: np.ndarray, limit: int = 2**31 - 1
) -> tuple[np.ndarray, np.ndarray]:
    """Add up share_k x_k, clients in order: distinct ascending places, and values."""
    index = pairs.index.copy()
    value = pairs.value * np.repeat(share, pairs.counts)
    n = add_pairs(index, value, np.empty_like(index), np.empty_like(value), limit)
    return index[:n], value[:n]


def gradient(
    kernel: IHTCohort,
    active: np.ndarray,
    index: np.ndarray,
    value: np.ndarray,
    intercept: np.ndarray,
    share: np.ndarray,
    *,
    batch_size: int = 0,
    key: Key = (0, 0),
    first_client: int = 0,
    want_gradient: bool = True,
) -> tuple[np.ndarray | None, np.ndarray, np.ndarray]:
    """Add up share_k g_k of the data term; also its intercepts, and each mean loss."""
    C, total = kernel.n_outputs, None
    if want_gradient:
        total = np.zeros(C * kernel.n_columns)
    of_intercept, losses = np.zeros(C), np.empty(len(active))
    kernel.gradient(
        *(active, index, value, intercept, share, total, of_intercept, losses),
        batch=batch_size,
        seed=key[0],
        exchange=key[1],
        first_client=first_client,
    )
    return total, of_intercept, losses
