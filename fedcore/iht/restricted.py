"""What a participant computes on the columns of a support alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..federation.contract import Cohort
from . import losses

POWER_STEPS = 20  # of the power iteration; the growth of the step makes up for the rest


@dataclass(frozen=True, slots=True)
class Restricted:
    """Rows of some clients, cut down to the columns that a support uses.

    A       : (n, m) those columns, dense or CSR
    y       : (n,) targets, or codes
    weight  : (n,) of each row; those of a client add up to its share
    offsets : (n_active + 1,) rows of each client
    output  : (s,) the output that each place of the support belongs to
    column  : (s,) its column of A
    """

    A: Any
    y: np.ndarray
    weight: np.ndarray
    offsets: np.ndarray
    output: np.ndarray
    column: np.ndarray


def restrict(
    cohort: Cohort,
    y: np.ndarray,
    active: np.ndarray,
    share: np.ndarray,
    index: np.ndarray,
) -> Restricted:
    """Cut the active clients' rows down to the support `index`, places in (C, d)."""
    d = cohort.X.shape[1]
    output, feature = np.divmod(index, d)
    features, column = np.unique(feature, return_inverse=True)
    starts, ends = cohort.offsets[active], cohort.offsets[active + 1]
    lengths = ends - starts
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows: Any = slice(int(starts[0]), int(ends[-1]))
    if offsets[-1] != ends[-1] - starts[0]:
        rows = np.concatenate(
            [np.arange(a, b) for a, b in zip(starts, ends, strict=True)]
        )
    A = cohort.X[rows][:, features]
    if cohort.sample_weight is None:
        weight = np.ones(offsets[-1])
    else:
        weight = cohort.sample_weight[rows]
    # Rows of weight 0 are dropped before, so no client's mass is 0.
    mass = np.add.reduceat(weight, offsets[:-1])
    weight = weight * np.repeat(share / mass, lengths)
    return Restricted(A.astype(float), y[rows], weight, offsets, output, column)


def scores(rows: Restricted, value: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Scores (n, C) by the coefficients `value` on the support."""
    coef = np.zeros((rows.A.shape[1], len(intercept)))
    coef[rows.column, rows.output] = value
    return rows.A @ coef + intercept


def objective(
    loss: str, rows: Restricted, value: np.ndarray, intercept: np.ndarray
) -> float:
    """Weighted sum of the rows' losses."""
    return float(
        rows.weight @ losses.values(loss, scores(rows, value, intercept), rows.y)
    )


def gradient(
    loss: str, rows: Restricted, value: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient on the support (s,) and by the intercepts (C,)."""
    slope = losses.slopes(loss, scores(rows, value, intercept), rows.y)
    slope *= rows.weight[:, None]
    return (rows.A.T @ slope)[rows.column, rows.output], slope.sum(axis=0)


def hessian(
    loss: str,
    rows: Restricted,
    value: np.ndarray,
    intercept: np.ndarray,
    fit_intercept: bool,
) -> np.ndarray:
    """Hessian by the coefficients on the support, then the intercepts if there are."""
    z = scores(rows, value, intercept)
    C, s = len(intercept), len(rows.column)
    full = np.zeros((s + C, s + C))
    members = [np.flatnonzero(rows.output == c) for c in range(C)]
    for a in range(C):
        left = rows.A[:, rows.column[members[a]]]
        for b in range(a + 1):
            weight = rows.weight * losses.curvature(loss, z, a, b)
            right = rows.A[:, rows.column[members[b]]]
            weighted = _scale_rows(right, weight)
            block = left.T @ weighted
            block = block.toarray() if sparse.issparse(block) else block
            full[np.ix_(members[a], members[b])] = block
            full[np.ix_(members[b], members[a])] = block.T
            to_b = np.asarray(weighted.sum(axis=0)).reshape(-1)
            to_a = left.T @ weight
            full[s + a, members[b]] = full[members[b], s + a] = to_b
            full[s + b, members[a]] = full[members[a], s + b] = to_a
            full[s + a, s + b] = full[s + b, s + a] = weight.sum()
    return full if fit_intercept else full[:s, :s]


def smoothness(loss: str, rows: Restricted, fit_intercept: bool) -> float:
    """Bound the curvature of one client's mean loss on these columns.

    The largest eigenvalue of the second moments of the columns and the constant, by
    power iteration, times the most that the loss can bend.
    """
    A, weight = rows.A, rows.weight / rows.weight.sum()
    v = np.ones(A.shape[1] + fit_intercept)
    value = 0.0
    for _ in range(POWER_STEPS):
        largest = np.abs(v).max(initial=0)
        if largest == 0:
            break
        v /= largest  # whose squares neither overflow nor vanish
        v /= np.linalg.norm(v)
        z = A @ v[: A.shape[1]]
        if fit_intercept:
            z = z + v[-1]
        value = float(weight @ z**2)
        z *= weight
        v = A.T @ z
        if fit_intercept:
            v = np.append(v, z.sum())
    return losses.MOST_CURVATURE[loss] * value


def _scale_rows(A: Any, weight: np.ndarray) -> Any:
    if sparse.issparse(A):
        return sparse.diags_array(weight) @ A
    return A * weight[:, None]
