"""Simulated clients in planted groups: each group's models share a subspace."""

import math
from numbers import Integral

import numpy as np
from sklearn.utils import Bunch

from fedcore.datasets.check import check_count, check_real, generator


def make_gaussian_tasks(
    group_sizes=(4, 4),
    n_samples=60,
    n_features=20,
    *,
    n_components=2,
    noise=0.1,
    opposed=0.0,
    label_scales=(1.0, 1.0),
    truth=False,
    random_state=None,
):
    r"""Generate a linear task for each client, in groups on orthogonal subspaces.

    Client `i` of group `g` has

    .. math:: y = s_i \, (x \cdot U_g c_i + \sigma e), \quad x, e \sim N(0, I),

    where the `n_components` columns of :math:`U_g` are orthonormal, and orthogonal to
    those of all other groups, and :math:`c_i` is uniform on the unit sphere: so two
    clients of a group may well have models at right angles to each other.

    Parameters
    ----------
    group_sizes : array-like of shape (n_groups,), default=(4, 4)
        Clients of each group.
    n_samples : int or array-like of shape (n_clients,), default=60
        Rows of every client, or of each.
    n_features : int, default=20
        At least ``n_groups * n_components``.
    n_components : int, default=2
        Dimensions of each group's subspace.
    noise : float, default=0.1
        Standard deviation :math:`\sigma` of the noise; that of the signal is 1.
    opposed : float, default=0.0
        Probability that a client's targets are negated.
    label_scales : pair of floats, default=(1.0, 1.0)
        Range of :math:`|s_i|`, drawn log-uniformly.
    truth : bool, default=False
        Return the models and groups as well.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    X : ndarray of shape (sum of n_samples, n_features), float64
        The rows, sorted by client.
    y : ndarray of float64
    clients : ndarray of int64
        The client of each row, group after group.
    truth : Bunch
        Only if `truth`: ``groups`` (n_clients,), ``coef`` (n_clients, n_features),
        ``scales`` (n_clients,) with their signs, ``noise`` (n_clients,) in units of
        `y`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range.

    Examples
    --------
    >>> from fedcore.datasets import make_gaussian_tasks
    >>> X, y, clients = make_gaussian_tasks((3, 5), random_state=0)
    >>> X.shape
    (480, 20)
    """
    sizes = [check_count(size, "group_sizes") for size in group_sizes]
    if not sizes:
        raise ValueError("group_sizes is empty, expected a size for each group.")
    d = check_count(n_features, "n_features")
    r = check_count(n_components, "n_components")
    check_real(noise, "noise", 0)
    check_real(opposed, "opposed", 0, 1)
    low, high = label_scales
    check_real(low, "label_scales", 0, include="neither")
    check_real(high, "label_scales", low)
    K = sum(sizes)
    if len(sizes) * r > d:
        raise ValueError(
            f"n_features == {d}, expected at least {len(sizes) * r}: {len(sizes)} "
            f"groups have {r} dimensions each"
        )
    rows = _rows(n_samples, K)

    rng = generator(random_state)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    bases = np.linalg.qr(rng.standard_normal((d, len(sizes) * r)))[0]
    bases = bases.reshape(d, len(sizes), r)
    c = rng.standard_normal((K, r))
    c /= np.linalg.norm(c, axis=1, keepdims=True)
    scales = np.exp(rng.uniform(math.log(low), math.log(high), K))
    scales[rng.random(K) < opposed] *= -1
    coef = np.einsum("dkr,kr->kd", bases[:, groups], c) * scales[:, None]
    clients = np.repeat(np.arange(K), rows)
    X = rng.standard_normal((len(clients), d))
    y = np.einsum("ij,ij->i", X, coef[clients])
    y += noise * scales[clients] * rng.standard_normal(len(clients))
    if not truth:
        return X, y, clients
    facts = Bunch(groups=groups, coef=coef, scales=scales, noise=noise * np.abs(scales))
    return X, y, clients, facts


def _rows(n_samples, n_clients):
    """Return the number of rows of each client."""
    if isinstance(n_samples, Integral):
        return np.full(n_clients, check_count(n_samples, "n_samples"))
    rows = [check_count(n, "n_samples") for n in n_samples]
    if len(rows) != n_clients:
        raise ValueError(
            f"n_samples has {len(rows)} entries, expected {n_clients}: one a client"
        )
    return np.array(rows)
