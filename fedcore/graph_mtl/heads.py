"""Personal heads of many clients: their scores, steps and exact solutions."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit, softmax

from .. import _losses as losses
from .._kernels import _heads

LOSSES = ("squared", "logistic", "softmax")  # in the order of fc_head_loss

MOST_NEWTON_STEPS = 25
NEWTON_TOL = 1e-10
FREE_RIDGE = 1e-6  # of intercepts of classifiers, which separable rows leave unbounded


def scores(
    H: np.ndarray, A: np.ndarray, c: np.ndarray, starts: np.ndarray
) -> np.ndarray:
    """Score rows (n, r), those of head i from starts[i] on: (n, C)."""
    F = np.empty((len(H), A.shape[2]))
    for i in range(len(A)):
        rows = slice(starts[i], starts[i + 1])
        F[rows] = H[rows] @ A[i] + c[i]
    return F


def step_heads(
    loss: str,
    H: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    starts: np.ndarray,
    l2: np.ndarray,
    A: np.ndarray,
    c: np.ndarray,
    n_steps: int,
) -> None:
    """Take gradient steps of each head in place, as long as its curvature allows.

    Weights sum to 1 over the rows of each head.
    """
    rows = np.ascontiguousarray(H), y.astype(float, copy=False), weight
    _heads.steps(LOSSES.index(loss), starts, *rows, l2, A, c, n_steps)


def solve_heads(
    loss: str,
    H: np.ndarray,
    y: np.ndarray,
    weight: np.ndarray,
    starts: np.ndarray,
    l2: np.ndarray,
    A: np.ndarray,
    c: np.ndarray,
) -> None:
    """Minimise each head's mean loss plus l2/2 |A|^2 in place; intercepts are free."""
    if loss == "squared":
        _heads.ridge(starts, np.ascontiguousarray(H), y, weight, l2, A, c)
        return
    for i in range(len(A)):
        rows = slice(starts[i], starts[i + 1])
        _newton(loss, H[rows], y[rows], weight[rows], l2[i], A[i], c[i])


def _newton(loss, H, y, weight, l2, A, c):
    """Newton steps with halving, from where the head is."""
    n, r = H.shape
    C = A.shape[1]
    Hc = np.column_stack([H, np.ones(n)])
    light = 1e-12 * (weight @ (H**2).sum(axis=1)) + np.finfo(float).tiny
    ridge = np.full((r + 1, C), max(l2, light))
    ridge[r] = FREE_RIDGE
    B = np.vstack([A, c])

    def value(B):
        return weight @ losses.values(loss, Hc @ B, y) + (ridge * B**2).sum() / 2

    now = value(B)
    for _ in range(MOST_NEWTON_STEPS):
        F = Hc @ B
        gradient = Hc.T @ (weight[:, None] * losses.slopes(loss, F, y)) + ridge * B
        G = _hessian(loss, Hc, F, weight)
        G[np.diag_indices_from(G)] += ridge.reshape(-1)
        step = cho_solve(cho_factor(G), gradient.reshape(-1)).reshape(B.shape)
        expected, length = (gradient * step).sum(), 1.0
        if not expected > NEWTON_TOL * (abs(now) + NEWTON_TOL):
            break
        trial = value(B - step)
        while trial > now - 1e-4 * length * expected and length > 1e-6:
            length /= 2
            trial = value(B - length * step)
        if trial > now:
            break
        B, now = B - length * step, trial
    A[:], c[:] = B[:r], B[r]


def _hessian(loss, Hc, F, weight):
    """Second derivatives by B (r + 1, C), places in the order of B.reshape(-1)."""
    if loss == "logistic":
        p = expit(F[:, 0])
        return (Hc * (weight * p * (1 - p))[:, None]).T @ Hc
    P = softmax(F, axis=1)
    n, C = P.shape
    curvature = -P[:, :, None] * P[:, None, :]
    curvature[:, np.arange(C), np.arange(C)] += P
    curvature *= weight[:, None, None]
    m = Hc.shape[1]
    outer = (Hc[:, :, None] * Hc[:, None, :]).reshape(n, m * m)
    G = (outer.T @ curvature.reshape(n, C * C)).reshape(m, m, C, C)
    return G.transpose(0, 2, 1, 3).reshape(m * C, m * C)
