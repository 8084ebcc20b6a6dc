"""One local step of the dictionary: barycenters, losses, gradients, Adam."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from .._kernels._assign import assign
from .._kernels._dadil import adam, scatter
from ..ot.barycenter import barycenter_of, lower_gram
from ..ot.batch import squared_distances
from .reference import project


class Stepper:
    """Take steps over batches of one size.

    Parameters
    ----------
    n_atoms, n, d, c : int
        Atoms, points of a batch, features, classes.
    label_weight, max_iter, tol
        As for `fedcore.ot.labelled_barycenter`.
    """

    def __init__(self, n_atoms, n, d, c, *, label_weight="auto", max_iter=10, tol=1e-9):
        self.shape = n_atoms, n, d, c
        self.label_weight = label_weight
        self.options = {"label_weight": label_weight, "max_iter": max_iter, "tol": tol}

    def step(self, X, logits, alphas, batches, moments, t, rate=0.1):
        """Do what `reference.step` does; return each domain's loss.

        Atoms, coordinates and moments are C-contiguous float64, and change in place.
        """
        Y = softmax(logits, axis=-1)
        dX, dY = np.zeros_like(X), np.zeros_like(logits)
        dalphas, losses = np.zeros_like(alphas), []
        gram = lower_gram(X)  # once for all domains
        for domain, (X_Q, Y_Q) in enumerate(batches):
            loss = self._gradient(
                gram.copy(), X, Y, alphas[domain], X_Q, Y_Q, dX, dY, dalphas[domain]
            )
            losses.append(loss)
        dlogits = Y * (dY - (dY * Y).sum(-1, keepdims=True))
        for x, gradient, traces in zip(
            (X, logits, alphas), (dX, dlogits, dalphas), moments, strict=True
        ):
            first, second = (trace.reshape(-1) for trace in traces)
            adam(gradient.reshape(-1), x.reshape(-1), first, second, rate, t)
        for domain, alpha in enumerate(alphas):
            alphas[domain] = project(alpha)
        return losses

    def _gradient(self, gram, X, Y, alpha, X_Q, Y_Q, dX, dY, dalpha):
        """Add one domain's gradients; return its loss."""
        n = len(X_Q)
        found = barycenter_of(gram, X, Y, alpha / alpha.sum(), **self.options)
        C = squared_distances(found.X[None], X_Q[None])
        beta = 0.0
        if Y_Q is not None:
            beta = C.max() if self.label_weight == "auto" else self.label_weight
            C += beta * squared_distances(found.Y[None], Y_Q[None])
        p, s = np.empty((1, n), np.int32), found.assignments
        prices, figures = np.empty((2, 1, n)), np.empty((2, 1))
        if assign(C, False, p, *prices, *figures) >= 0:
            raise ValueError(
                "the points of a batch are so far away that costs overflow"
            )
        cost, p = float(figures[0, 0]), p[0]
        through = alpha, s, p, np.empty(max(X.shape[2], Y.shape[2]))
        self._scatter(2 / n, X, found.X, X_Q, *through, dX, dalpha)
        if Y_Q is not None:
            self._scatter(2 * beta / n, Y, found.Y, Y_Q, *through, dY, dalpha)
        return cost

    @staticmethod
    def _scatter(scale, X, B, Q, alpha, s, p, room, dX, dalpha):
        scatter(scale, X, B, Q, alpha, s, p, room[: X.shape[2]], dX, dalpha)
