"""The methods, each as its paper has it, in plain NumPy.

Each is a generator: after every round it yields the model of each client, (K, d, c),
one for all where the method has a single one. `clients` is a list of (X, sign) pairs,
`gradient` one of losses.py. A round has `STEPS` full-batch steps of length `rate`.
"""

from __future__ import annotations

import numpy as np

STEPS = 5
L2 = 1e-3  # weight of |W|^2 / 2 in every client's objective


def zeros(clients):
    """Begin at 0."""
    X, sign = clients[0]
    return np.zeros((X.shape[1], sign.shape[1]))


def shares(clients):
    """Give each client its part of the rows."""
    sizes = np.array([len(X) for X, _ in clients], float)
    return sizes / sizes.sum()


def descend(W, client, gradient, rate, *, centre=None, pull=0.0, shift=0.0):
    """Take a client's steps on its loss, drawn towards `centre`, slopes shifted."""
    for _ in range(STEPS):
        slope = gradient(W, *client) + L2 * W + shift
        if centre is not None:
            slope = slope + pull * (W - centre)
        W = W - rate * slope
    return W


def for_all(W, clients):
    """Give every client the same model, without copies."""
    return np.broadcast_to(W, (len(clients), *W.shape))


def fedprox(clients, gradient, *, rate, mu):
    """T. Li et al., 2020: local steps with a proximal term, then the mean."""
    W, p = zeros(clients), shares(clients)
    while True:
        local = [
            descend(W, client, gradient, rate, centre=W, pull=mu) for client in clients
        ]
        W = np.tensordot(p, local, 1)
        yield for_all(W, clients)


def scaffold(clients, gradient, *, rate):
    """S. P. Karimireddy et al., 2020: local steps with control variates, option II."""
    W, p = zeros(clients), shares(clients)
    control = np.zeros(W.shape)
    own = np.zeros((len(clients), *W.shape))
    while True:
        local = np.array(
            [
                descend(W, client, gradient, rate, shift=control - c)
                for client, c in zip(clients, own, strict=True)
            ]
        )
        fresh = own - control + (W - local) / (STEPS * rate)
        control = control + np.tensordot(p, fresh - own, 1)
        own, W = fresh, np.tensordot(p, local, 1)
        yield for_all(W, clients)


def ditto(clients, gradient, *, rate, pull):
    """T. Li et al., 2021: the mean of local steps, and own models drawn towards it."""
    W, p = zeros(clients), shares(clients)
    own = np.zeros((len(clients), *W.shape))
    while True:
        own = np.array(
            [
                descend(V, client, gradient, rate, centre=W, pull=pull)
                for V, client in zip(own, clients, strict=True)
            ]
        )
        local = [descend(W, client, gradient, rate) for client in clients]
        W = np.tensordot(p, local, 1)
        yield own


def mr_mtl(clients, gradient, *, rate, pull):
    """Z. Liu et al., 2022 (as in T. Dinh et al., 2020): own models near their mean."""
    p = shares(clients)
    own = np.zeros((len(clients), *zeros(clients).shape))
    while True:
        mean = np.tensordot(p, own, 1)
        own = np.array(
            [
                descend(V, client, gradient, rate, centre=mean, pull=pull)
                for V, client in zip(own, clients, strict=True)
            ]
        )
        yield own


def l2gd(clients, gradient, *, rate, pull, seed=0):
    """F. Hanzely, P. Richtarik, 2020: a coin decides on a local step or the mean's.

    With probability ``1 / (1 + STEPS)`` towards the mean. A round ends with each such
    step that follows a local one.
    """
    rng = np.random.default_rng(seed)
    own = np.zeros((len(clients), *zeros(clients).shape))
    p, moved = 1 / (1 + STEPS), False
    while True:
        if rng.random() < p:
            # A step beyond the mean would diverge.
            length = min(rate * pull / p, 1.0)
            own = own + length * (own.mean(axis=0) - own)
            if moved:
                yield own
            moved = False
        else:
            slopes = [
                gradient(V, *client) + L2 * V
                for V, client in zip(own, clients, strict=True)
            ]
            own = own - rate / (1 - p) * np.array(slopes)
            moved = True
