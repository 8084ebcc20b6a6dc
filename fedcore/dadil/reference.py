"""Barycenter, loss, gradient and step in plain NumPy: the oracle of the kernels."""

from __future__ import annotations

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.special import softmax


def assignment(C):
    """Column of each row in the cheapest assignment."""
    return linear_sum_assignment(C)[1]


def barycenter(X, Y, alpha, label_weight="auto", max_iter=10, tol=1e-9):
    """Labelled barycenter of atoms X (K, n, d), Y (K, n, c); start at the heaviest.

    Returns X_B (n, d), Y_B (n, c), permutations s (K, n), the objective of each turn,
    and beta.
    """
    X, Y = np.asarray(X, float), np.asarray(Y, float)
    heaviest = int(np.argmax(alpha))
    X_B, Y_B, objective, beta = X[heaviest], Y[heaviest], [], label_weight
    if label_weight == "auto":
        beta = max(cdist(X_B, X_k, "sqeuclidean").max() for X_k in X)
    for _ in range(max_iter):
        C = [
            cdist(X_B, X_k, "sqeuclidean") + beta * cdist(Y_B, Y_k, "sqeuclidean")
            for X_k, Y_k in zip(X, Y, strict=True)
        ]
        s = np.array([assignment(C_k) for C_k in C])
        costs = [
            np.take_along_axis(C_k, s_k[:, None], 1).mean()
            for C_k, s_k in zip(C, s, strict=True)
        ]
        objective.append(float(np.dot(alpha, costs)))
        X_B = sum(a * X_k[s_k] for a, X_k, s_k in zip(alpha, X, s, strict=True))
        Y_B = sum(a * Y_k[s_k] for a, Y_k, s_k in zip(alpha, Y, s, strict=True))
        if (
            len(objective) > 1
            and abs(objective[-2] - objective[-1]) <= tol * objective[0]
        ):
            break
    return X_B, Y_B, s, np.array(objective), beta


def loss_at(X, logits, alpha, s, X_Q, Y_Q, p, beta):
    """Loss with all plans given: what `loss_and_gradient` differentiates."""
    Y = softmax(logits, axis=-1)
    X_B = sum(a * X_k[s_k] for a, X_k, s_k in zip(alpha, X, s, strict=True))
    loss = ((X_B - X_Q[p]) ** 2).sum() / len(p)
    if Y_Q is not None:
        Y_B = sum(a * Y_k[s_k] for a, Y_k, s_k in zip(alpha, Y, s, strict=True))
        loss += beta * ((Y_B - Y_Q[p]) ** 2).sum() / len(p)
    return float(loss)


def loss_and_gradient(X, logits, alpha, X_Q, Y_Q=None, **options):
    """Loss of one domain's batch Q (n points; Y_Q one-hot, None for a target).

    Returns the loss, its gradients by X (K, n, d), logits (K, n, c) and alpha (K,) with
    the plans fixed, and those plans: s (K, n), p (n,) and the loss's beta. `options` go
    to `barycenter`.
    """
    X, X_Q = np.asarray(X, float), np.asarray(X_Q, float)
    Y, n = softmax(logits, axis=-1), X.shape[1]
    X_B, Y_B, s, _, _ = barycenter(X, Y, alpha, **options)
    C = cdist(X_B, X_Q, "sqeuclidean")
    beta = 0.0
    if Y_Q is not None:
        label_weight = options.get("label_weight", "auto")
        beta = C.max() if label_weight == "auto" else label_weight
        C = C + beta * cdist(Y_B, Y_Q, "sqeuclidean")
    p = assignment(C)
    G, H = (2 / n) * (X_B - X_Q[p]), np.zeros_like(Y_B)
    if Y_Q is not None:
        H = (2 * beta / n) * (Y_B - Y_Q[p])
    dX, dY, dalpha = np.zeros_like(X), np.zeros_like(Y), np.zeros(len(X))
    for k, s_k in enumerate(s):
        dX[k, s_k] = alpha[k] * G
        dY[k, s_k] = alpha[k] * H
        dalpha[k] = (G * X[k, s_k]).sum() + (H * Y[k, s_k]).sum()
    dlogits = Y * (dY - (dY * Y).sum(-1, keepdims=True))
    return float(C[np.arange(n), p].mean()), dX, dlogits, dalpha, (s, p, beta)


def project(alpha):
    """Nearest point of the simplex."""
    ordered = np.sort(alpha)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(alpha) + 1)
    return np.maximum(alpha - excess[np.flatnonzero(ordered > excess)[-1]], 0)


def adam(x, gradient, moments, t, rate=0.1, decay=(0.9, 0.999), floor=1e-8):
    """Step number t >= 1 of Adam, in place; moments: two arrays, in place."""
    first, second = moments
    first += (1 - decay[0]) * (gradient - first)
    second += (1 - decay[1]) * (gradient**2 - second)
    m, v = first / (1 - decay[0] ** t), second / (1 - decay[1] ** t)
    x -= rate * m / (np.sqrt(v) + floor)


def step(X, logits, alphas, batches, moments, t, rate=0.1, **options):
    """One step over all domains, in place; returns each domain's loss.

    X (K, n, d), logits (K, n, c), alphas (N, K); batches: a pair (X_Q, Y_Q or None) a
    domain; moments: (first, second) for X, for logits and for alphas; t >= 1: number of
    the step.
    """
    total_X, total_logits = np.zeros_like(X), np.zeros_like(logits)
    dalphas, losses = np.zeros_like(alphas), []
    for domain, (X_Q, Y_Q) in enumerate(batches):
        loss, dX, dlogits, dalphas[domain], _ = loss_and_gradient(
            X, logits, alphas[domain], X_Q, Y_Q, **options
        )
        total_X += dX
        total_logits += dlogits
        losses.append(loss)
    adam(X, total_X, moments[0], t, rate)
    adam(logits, total_logits, moments[1], t, rate)
    adam(alphas, dalphas, moments[2], t, rate)
    for domain, alpha in enumerate(alphas):
        alphas[domain] = project(alpha)
    return losses
