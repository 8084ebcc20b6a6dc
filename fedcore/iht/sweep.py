"""Best subsets of a quadratic model: forward, backward and swap moves by sweeps."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, solve_triangular
from scipy.linalg.blas import dger

# A column of which so little is left beside those chosen counts as their combination.
DEPENDENT = 1e-10
LEAST_GAIN = 1e-12  # of a move, as a part of all that was gained


class Sweep:
    """The tableau of a quadratic ``1/2 x'Gx - c'x`` swept on a support S.

    Symmetric of order p + 1, of which the last row belongs to c. With A the inverse of
    ``G_SS`` and N all others::

        S, S: -A    S, N: A G_SN                       S, last: x_S
                    N, N: G_NN - G_NS A G_SN           N, last: c_N - G_NS x_S
                                                    last, last: -c_S . x_S

    So the effect of every single move on the minimum is read off it, and a move costs
    one rank-one update.
    """

    def __init__(
        self, G: np.ndarray, c: np.ndarray, inside: np.ndarray, free: np.ndarray
    ):
        p = len(c)
        self.inside = np.zeros(p, bool)
        self.first = np.diag(G).copy()
        self.M = np.empty((p + 1, p + 1), order="F")
        self.M[:p, :p] = G
        self.M[:p, p] = self.M[p, :p] = c
        self.M[p, p] = 0
        self._enter(inside, free)

    def _enter(self, inside: np.ndarray, free: np.ndarray) -> None:
        """Sweep on many at once, or one by one, free ones first, if dependent."""
        S = np.flatnonzero(inside)
        try:
            factor = np.linalg.cholesky(self.M[np.ix_(S, S)])
        except np.linalg.LinAlgError:
            factor = np.zeros((len(S), len(S)))
        if (np.diag(factor) ** 2 <= DEPENDENT * self.first[S]).any():
            for j in S[np.argsort(~free[S], kind="stable")]:
                if self.M[j, j] > DEPENDENT * self.first[j]:
                    self.move(j)
            return
        rest = np.append(~inside, True)
        half = solve_triangular(factor, self.M[np.ix_(S, rest)], lower=True)
        inverse = solve_triangular(factor, np.eye(len(S)), lower=True)
        M = np.empty_like(self.M)
        M[np.ix_(rest, rest)] = self.M[np.ix_(rest, rest)] - half.T @ half
        M[np.ix_(S, rest)] = B = inverse.T @ half
        M[np.ix_(rest, S)] = B.T
        M[np.ix_(S, S)] = -(inverse.T @ inverse)
        self.M, self.inside = M, inside.copy()

    @property
    def gained(self) -> float:
        """How far the minimum over the support lies below 0."""
        return -self.M[-1, -1] / 2

    @property
    def diagonal(self) -> np.ndarray:
        """What is left of each column outside, minus the inverse's entry inside."""
        return np.diag(self.M)[:-1]

    def move(self, j: int) -> None:
        """Take j into the support, or out of it."""
        v = self.M[:, j].copy()
        d = v[j]
        self.M = dger(-1 / d, v, v, a=self.M, overwrite_a=True)
        v /= -d if self.inside[j] else d
        self.M[:, j] = self.M[j, :] = v
        self.M[j, j] = -1 / d
        self.inside[j] ^= True

    def _outside(self) -> np.ndarray:
        return np.flatnonzero(~self.inside & (self.diagonal > DEPENDENT * self.first))

    def add(self) -> bool:
        """Take in the one that gains most, the first of several; say if there is."""
        N = self._outside()
        if not len(N):
            return False
        gain = self.M[N, -1] ** 2 / self.diagonal[N]
        best = gain.argmax()
        if not gain[best] > LEAST_GAIN * 2 * self.gained:
            return False
        self.move(N[best])
        return True

    def drop(self, fixed: np.ndarray) -> None:
        """Take out the one that costs least, the last of several."""
        S = np.flatnonzero(self.inside & ~fixed)
        cost = self.M[S, -1] ** 2 / -self.diagonal[S]
        self.move(S[len(S) - 1 - cost[::-1].argmin()])

    def swap(self, fixed: np.ndarray) -> bool:
        """Make the exchange of a pair that gains most; say if there is one."""
        S, N = np.flatnonzero(self.inside & ~fixed), self._outside()
        if not len(S) or not len(N):
            return False
        a, x = -self.diagonal[S, None], self.M[S, -1][:, None]
        B = self.M[np.ix_(S, N)]
        left = B * B
        left /= a
        left += self.diagonal[N]
        B *= x / a
        B += self.M[N, -1]
        B *= B
        B /= left
        B -= x * x / a
        best = B.argmax()
        if not B.flat[best] > LEAST_GAIN * 2 * self.gained:
            return False
        leaves, comes = divmod(int(best), len(N))
        self.move(S[leaves])
        self.move(N[comes])
        return True


def best_subset(
    G: np.ndarray,
    c: np.ndarray,
    *,
    start: np.ndarray,
    fixed: np.ndarray,
    free: np.ndarray,
    n_nonzero: int,
    n_beyond: int,
    max_swaps: int,
) -> tuple[np.ndarray, float]:
    """Minimise ``1/2 x'Gx - c'x`` over `x` with at most `n_nonzero` non-zeros.

    Parameters
    ----------
    G : ndarray of shape (p, p)
        Symmetric, positive semidefinite.
    c : ndarray of shape (p,)
    start : ndarray of shape (p,), bool
        The support to begin with.
    fixed : ndarray of shape (p,), bool
        Those that are in the support whatever they gain, unless they depend on others.
    free : ndarray of shape (p,), bool
        Those of the fixed that do not count.
    n_nonzero : int
    n_beyond : int
        How far the support grows beyond `n_nonzero` before it shrinks again.
    max_swaps : int

    Returns
    -------
    x : ndarray of shape (p,)
        Exactly 0 outside of the support.
    value : float
        The minimum, at most 0.
    """
    tableau = Sweep(G, c, start | fixed, free)
    limit = n_nonzero + np.count_nonzero(tableau.inside & free)
    is_full = np.count_nonzero(tableau.inside) == limit
    before = tableau.gained, tableau.M.copy("F"), tableau.inside.copy()
    while np.count_nonzero(tableau.inside) < limit + n_beyond and tableau.add():
        pass
    while np.count_nonzero(tableau.inside) > limit:
        tableau.drop(fixed)
    if is_full and tableau.gained < before[0]:  # a detour that did not pay
        _, tableau.M, tableau.inside = before
    for _ in range(max_swaps):
        if not tableau.swap(fixed):
            break
    x = np.zeros(len(c))
    S = np.flatnonzero(tableau.inside)
    # Many rank-one updates leave their rounding in the tableau, none in this.
    x[S] = _solve(G[np.ix_(S, S)], c[S], tableau.M[S, -1])
    return x, float(x @ (G @ x) / 2 - c @ x)


def _solve(G: np.ndarray, c: np.ndarray, otherwise: np.ndarray) -> np.ndarray:
    try:
        return cho_solve(cho_factor(G), c)
    except np.linalg.LinAlgError:
        return otherwise
