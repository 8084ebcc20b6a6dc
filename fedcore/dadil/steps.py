"""One local step of the dictionary: barycenters, losses, gradients, Adam."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax

from ..ot import emd_batch
from ..ot.barycenter import barycenter_of, lower_gram
from ..ot.batch import squared_distances
from .reference import adam, project


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
        """Do what `reference.step` does; return each domain's loss."""
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
        adam(X, dX, moments[0], t, rate)
        adam(logits, dlogits, moments[1], t, rate)
        adam(alphas, dalphas, moments[2], t, rate)
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
        plan = emd_batch(C)
        p, s = plan.assignment[0], found.assignments
        G = (2 / n) * (found.X - X_Q[p])
        H = None if Y_Q is None else (2 * beta / n) * (found.Y - Y_Q[p])
        for k, s_k in enumerate(s):
            dX[k, s_k] += alpha[k] * G
            dalpha[k] = np.vdot(G, X[k, s_k])
            if H is not None:
                dY[k, s_k] += alpha[k] * H
                dalpha[k] += np.vdot(H, Y[k, s_k])
        return float(plan.cost[0])
