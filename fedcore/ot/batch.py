"""Exact optimal transport of many problems in one call."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from joblib import effective_n_jobs

from .._kernels._assign import assign
from .._rows import check_n_jobs
from ._check import check_stack, check_weights


@dataclass(frozen=True, slots=True, eq=False)
class EMDBatch:
    """Optimal assignments of a batch of problems.

    Attributes
    ----------
    assignment : ndarray of int32, shape (b, n)
        Column of each row.
    cost : ndarray of shape (b,)
        Mean of C at the assignment: the cost of the plan of mass 1.
    u, v : ndarray of shape (b, n)
        Prices of rows and columns: ``u_i + v_j <= C_ij``, equal at the assignment.
    slack : ndarray of shape (b,)
        The certificate: by how much that is violated at most, by rounding. `cost` is
        at most `slack` above the optimum, up to rounding of `u` and `v`.
    """

    assignment: np.ndarray
    cost: np.ndarray
    u: np.ndarray
    v: np.ndarray
    slack: np.ndarray

    @property
    def plan(self) -> np.ndarray:
        """The transport plans as dense matrices, shape (b, n, n)."""
        b, n = self.assignment.shape
        plan = np.zeros((b, n, n))
        np.put_along_axis(plan, self.assignment[:, :, None].astype(np.intp), 1 / n, 2)
        return plan


@dataclass(frozen=True, slots=True, eq=False)
class PlanBatch:
    """Optimal plans between sets of different sizes or weights.

    Attributes
    ----------
    plan : ndarray of shape (b, n, m)
    cost : ndarray of shape (b,)
    u, v : ndarray of shape (b, n) and (b, m)
        Prices, ``u_i + v_j <= C_ij``.
    """

    plan: np.ndarray
    cost: np.ndarray
    u: np.ndarray
    v: np.ndarray


def emd_batch(C, *, prices=None, n_jobs=None):
    """Solve optimal transport between uniform sets of equal size, exactly.

    Every problem is an assignment; shortest augmenting paths with dual prices [1]_
    solve it, after rough prices were found by rising bids.

    Parameters
    ----------
    C : array-like of shape (b, n, n) or (n, n)
        Costs, one matrix a problem; a single matrix is a batch of one. float32 is read
        as it is, all else as float64.
    prices : array-like of shape (b, n), default=None
        Where to start: `v` of a similar batch makes it several times faster. The
        optimum does not depend on it.
    n_jobs : int, default=None
        Threads; the result does not depend on it.

    Returns
    -------
    EMDBatch

    Raises
    ------
    ValueError
        If an array is empty, has the wrong shape, or holds NaN or infinity.

    References
    ----------
    .. [1] R. Jonker, A. Volgenant, "A shortest augmenting path algorithm for dense and
       sparse linear assignment problems", Computing 38, 1987.

    Examples
    --------
    >>> from fedcore.ot import emd_batch
    >>> solved = emd_batch([[[4, 1, 3], [2, 0, 5], [3, 2, 2]]])
    >>> solved.assignment
    array([[1, 0, 2]], dtype=int32)
    >>> float(3 * solved.cost[0])
    5.0
    """
    check_n_jobs(n_jobs)
    C = check_stack(C, "C", finite=False)  # the kernel looks, while it reads
    if C.shape[1] != C.shape[2]:
        raise ValueError(
            f"C.shape == {C.shape}, expected square matrices (POT solves others)"
        )
    b, n = C.shape[:2]
    if prices is None:
        v = np.empty((b, n))
    else:
        v = np.array(check_stack(prices, "prices")[0], np.float64)
        if v.shape != (b, n):
            raise ValueError(f"prices.shape == {v.shape}, expected ({b}, {n})")
    s, u = np.empty((b, n), np.int32), np.empty((b, n))
    cost, slack = np.empty(b), np.empty(b)

    def solve(part):
        arrays = (array[part] for array in (s, u, v, cost, slack))
        bad = assign(C[part], prices is not None, *arrays)
        if bad >= 0:
            _refuse(C[part][bad], part.start + bad)

    workers = min(effective_n_jobs(n_jobs), b)
    if workers == 1:
        solve(slice(0, b))
    else:
        # A few ranges for each thread, for problems differ in difficulty.
        ends = np.linspace(0, b, min(4 * workers, b) + 1).astype(int).tolist()
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(solve, map(slice, ends[:-1], ends[1:])))
    return EMDBatch(s, cost, u, v, slack)


def _refuse(C: np.ndarray, k: int) -> None:
    """Say why the kernel could not solve problem k."""
    if np.isfinite(C).all():
        raise ValueError(
            f"C[{k}] has an entry of {np.abs(C).max():.1e}: sums of such costs overflow"
        )
    i, j = np.argwhere(~np.isfinite(C))[0]
    raise ValueError(f"C[{k}, {i}, {j}] is {C[i, j]}, expected finite costs")


def squared_distances(X: np.ndarray, Y: np.ndarray) -> np.ndarray:
    """Squared Euclidean distances (b, n, m) of two stacks (b, n, d), (b, m, d)."""
    X, Y = (Z.astype(np.float64, copy=False) for Z in (X, Y))
    center = X.mean(1, keepdims=True)  # or far from 0 digits are lost
    X, Y = X - center, Y - center
    C = X @ (-2 * Y.transpose(0, 2, 1))
    C += np.einsum("bid,bid->bi", X, X)[:, :, None]
    C += np.einsum("bid,bid->bi", Y, Y)[:, None]
    return np.maximum(C, 0, out=C)


def wasserstein_batch(X, Y, *, X_weights=None, Y_weights=None, n_jobs=None):
    """Transport one point set to another at squared Euclidean cost, problem by problem.

    Parameters
    ----------
    X : array-like of shape (b, n, d) or (n, d)
    Y : array-like of shape (b, m, d) or (m, d)
    X_weights, Y_weights : array-like of shape (n,) and (m,), default=None
        The same for all problems, summing to 1; None: uniform.
    n_jobs : int, default=None
        Threads, for equal sizes and uniform weights.

    Returns
    -------
    EMDBatch or PlanBatch
        `cost` holds the squared 2-Wasserstein distances (no root). EMDBatch when sizes
        are equal and weights uniform, else the PlanBatch of POT's network simplex.

    Raises
    ------
    ValueError
        If an array is empty, shapes disagree, an entry is NaN or infinite, or weights
        are negative or do not sum to 1.

    Examples
    --------
    >>> from fedcore.ot import wasserstein_batch
    >>> wasserstein_batch([[[0.0], [1.0]]], [[[1.5], [0.0]]]).cost
    array([0.125])
    """
    X, Y = check_stack(X, "X"), check_stack(Y, "Y")
    if len(X) != len(Y) or X.shape[2] != Y.shape[2]:
        raise ValueError(
            f"X.shape == {X.shape}, Y.shape == {Y.shape}: expected as many problems "
            "and as many columns in both"
        )
    b, n, m = len(X), X.shape[1], Y.shape[1]
    if n == m and X_weights is None and Y_weights is None:
        return emd_batch(squared_distances(X, Y), n_jobs=n_jobs)
    check_n_jobs(n_jobs)
    p, q = (
        np.full(size, 1 / size) if w is None else check_weights(w, size, name)
        for w, size, name in ((X_weights, n, "X_weights"), (Y_weights, m, "Y_weights"))
    )
    from ot import emd  # slow to import, and seldom needed

    C = squared_distances(X, Y)
    plan, cost = np.empty((b, n, m)), np.empty(b)
    u, v = np.empty((b, n)), np.empty((b, m))
    for k in range(b):
        plan[k], log = emd(p, q, C[k], numItermax=10_000_000, log=True)
        cost[k], u[k], v[k] = log["cost"], log["u"], log["v"]
    return PlanBatch(plan, cost, u, v)
