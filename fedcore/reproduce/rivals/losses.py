"""Mean losses of linear scores and their gradients; a column of W is a class."""

from __future__ import annotations

from scipy.special import softmax


def hinge_gradient(W, X, sign):
    """Subgradient of one-vs-rest hinge losses; sign (n, c) is +1 for the own class."""
    short = sign * (X @ W) < 1
    return -X.T @ (sign * short) / len(X)


def logistic_gradient(W, X, sign):
    """Gradient of the cross entropy."""
    return X.T @ (softmax(X @ W, axis=1) - (sign > 0)) / len(X)


GRADIENTS = {"hinge": hinge_gradient, "logistic": logistic_gradient}
