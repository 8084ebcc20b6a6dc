"""Personal heads in plain NumPy, one after another: what csrc/fc_heads.c computes.

Oracle of the tests and baseline of the benchmarks. Names are those of math.md, section
4. Sums are taken in another order than in C, so the last digits differ.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .. import _losses as losses


def steps(loss, starts, H, y, weight, l2, A, c, n_steps):
    """Take gradient steps of each head in place."""
    for i in range(len(A)):
        rows = slice(starts[i], starts[i + 1])
        Hi, yi, wi = H[rows], y[rows], weight[rows, None]
        most = losses.MOST_CURVATURE[loss]
        step = 1 / (most * (1 + (wi * Hi**2).sum()) + l2[i])
        for _ in range(n_steps):
            E = wi * losses.slopes(loss, Hi @ A[i] + c[i], yi)
            A[i] -= step * (Hi.T @ E + l2[i] * A[i])
            c[i] -= step * E.sum(axis=0)


def ridge(starts, H, y, weight, l2, A, c):
    """Minimise each head's squared loss in place."""
    for i in range(len(A)):
        rows = slice(starts[i], starts[i + 1])
        Hi, yi, wi = H[rows], y[rows], weight[rows]
        mean, centre = wi @ Hi, wi @ yi
        Hc = Hi - mean
        G = (Hc * wi[:, None]).T @ Hc
        least = max(l2[i], 1e-12 * np.trace(G) / len(G), np.finfo(float).tiny)
        G[np.diag_indices_from(G)] += least
        A[i, :, 0] = cho_solve(cho_factor(G), Hc.T @ (wi * (yi - centre)))
        c[i, 0] = centre - mean @ A[i, :, 0]
