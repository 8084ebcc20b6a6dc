"""Simulated clients for sparse learning: one support, models and rows that differ."""

import math

import numpy as np

from fedcore.datasets.check import check_count, check_real, generator

N_INFORMATIVE = 100
DECAY = 1.2
# (alpha and beta, rows a client) as published
DEFAULTS = {1: (0.1, 100), 2: (1.0, 1000)}


def make_iht_simulation(
    which,
    *,
    alpha=None,
    beta=None,
    n_clients=100,
    n_samples=None,
    n_features=1000,
    coef=False,
    random_state=None,
):
    r"""Generate Simulation I (regression) or II (two classes) of sparse learning.

    Client `k` draws its model and its rows as

    .. math::
        x_{kj} \sim N(u_k, 1) \text{ for } j \le 100, \text{ else } 0, \quad
        b_k \sim N(u_k, 1), \quad u_k \sim N(0, \alpha), \\
        z \sim N(v_k, \operatorname{diag}(j^{-1.2})), \quad
        v_{kj} \sim N(B_k, 1), \quad B_k \sim N(0, \beta),

    with all second arguments variances, and scores a row by :math:`z \cdot x_k + b_k`.
    Simulation I returns the scores as they are; in II the largest tenth of a client's
    scores has label 1 and the rest 0 [1]_.

    Parameters
    ----------
    which : {1, 2}
        The simulation.
    alpha : float, default=None
        How much the clients' models differ; None is 0.1 for I, 1 for II.
    beta : float, default=None
        How much the clients' rows differ; None is 0.1 for I, 1 for II.
    n_clients : int, default=100
        Number of clients, `K`.
    n_samples : int, default=None
        Rows of every client; None is 100 for I, 1000 for II.
    n_features : int, default=1000
        Number of columns, `d`; with fewer than 100 all are informative.
    coef : bool, default=False
        Return the models and intercepts as well.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    X : ndarray of shape (n_clients * n_samples, n_features), float64
        The rows, sorted by client.
    y : ndarray of float64 or int64
        The targets (I) or labels 0 and 1 (II).
    clients : ndarray of int64
        The client of each row, 0 to ``n_clients - 1``.
    coef : ndarray of shape (n_clients, n_features + 1)
        Only if `coef`: the models :math:`x_k`, and :math:`b_k` in the last column.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range.

    References
    ----------
    .. [1] Q. Tong, G. Liang, J. Ding, T. Zhu, M. Pan, J. Bi, "Federated optimization
       of l0-norm regularized sparse learning", Algorithms 15(9), 2022.

    Examples
    --------
    >>> from fedcore.datasets import make_iht_simulation
    >>> X, y, clients = make_iht_simulation(1, n_clients=5, random_state=0)
    >>> X.shape
    (500, 1000)
    """
    if which not in DEFAULTS:
        raise ValueError(f"which == {which!r}, expected 1 or 2.")
    spread, rows = DEFAULTS[which]
    alpha = check_real(spread if alpha is None else alpha, "alpha", 0)
    beta = check_real(spread if beta is None else beta, "beta", 0)
    K = check_count(n_clients, "n_clients")
    n = check_count(rows if n_samples is None else n_samples, "n_samples")
    d = check_count(n_features, "n_features")
    m = min(N_INFORMATIVE, d)

    rng = generator(random_state)
    scale = np.arange(1, d + 1) ** (-DECAY / 2)
    X = np.empty((K * n, d))
    score = np.empty(K * n)
    models = np.zeros((K, d + 1))
    for k in range(K):
        Z = X[k * n : (k + 1) * n]
        u = math.sqrt(alpha) * rng.standard_normal()
        models[k, :m] = u + rng.standard_normal(m)
        models[k, d] = u + rng.standard_normal()
        v = math.sqrt(beta) * rng.standard_normal() + rng.standard_normal(d)
        rng.standard_normal(out=Z)
        Z *= scale
        Z += v
        # einsum, not BLAS: the same bits everywhere
        score[k * n : (k + 1) * n] = np.einsum("ij,j->i", Z[:, :m], models[k, :m])
        score[k * n : (k + 1) * n] += models[k, d]
    clients = np.repeat(np.arange(K), n)
    y = score if which == 1 else _largest_tenth(score.reshape(K, n))
    return (X, y, clients, models) if coef else (X, y, clients)


def _largest_tenth(score):
    """Label the largest tenth of each row of `score` 1, at least one, else 0."""
    n = score.shape[1]
    y = np.zeros(score.shape, np.int64)
    top = np.argsort(-score, axis=1, kind="stable")[:, : max(1, round(n / 10))]
    np.put_along_axis(y, top, 1, axis=1)
    return y.reshape(-1)
