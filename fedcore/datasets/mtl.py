"""Simulated clients whose linear tasks are alike to a chosen degree."""

import math
from numbers import Integral

import numpy as np
from scipy.sparse import csr_array

from fedcore.datasets.check import check_count, check_real, generator


def make_mtl_classification(
    n_clients=30,
    n_samples=100,
    n_features=50,
    *,
    heterogeneity=1.0,
    n_informative=None,
    noise=0.1,
    flip_y=0.0,
    density=1.0,
    coef=False,
    random_state=None,
):
    r"""Generate a linear two-class problem for each of many related clients.

    Client `k` has the model

    .. math:: u_k = (w + h v_k) / (|w + h v_k| \sqrt{q})

    with :math:`w, v_1, \ldots, v_K` standard normal on the informative columns and zero
    elsewhere, `h` the heterogeneity and `q` the density. Its rows and labels are

    .. math:: y = \operatorname{sign}(u_k \cdot x + \sigma e), \quad e \sim N(0, 1),

    where each row `x` has :math:`m = \operatorname{round}(q d)` standard normal entries
    in random columns, so that the score :math:`u_k \cdot x` has variance 1. A label is
    then replaced by a fair coin with probability `flip_y`.

    Parameters
    ----------
    n_clients : int, default=30
        Number of clients, `K`.
    n_samples : int or array-like of shape (n_clients,), default=100
        Rows of every client, or of each.
    n_features : int, default=50
        Number of columns, `d`.
    heterogeneity : float, default=1.0
        How much the clients differ: 0 makes all models the same; the cosine between
        two clients' models is about :math:`1 / (1 + h^2)`.
    n_informative : int, default=None
        Number of columns, randomly chosen, that the models use; None is all.
    noise : float, default=0.1
        Standard deviation of the noise added to the score. On dense rows even the true
        models are then wrong on :math:`\arctan(\sigma) / \pi` of the labels: 3.2 % at
        0.1.
    flip_y : float, default=0.0
        Fraction of the labels that are assigned at random; half of them are wrong.
    density : float, default=1.0
        Fraction of non-zero entries. Below 1 the rows are a CSR array with exactly
        ``round(density * n_features)`` entries in each, columns ascending.
    coef : bool, default=False
        Return the models as well: a dense array, whatever the density.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    X : ndarray or csr_array of shape (sum of n_samples, n_features), float64
        The rows, sorted by client.
    y : ndarray of int64
        The labels, -1 and 1.
    clients : ndarray of int64
        The client of each row, 0 to ``n_clients - 1``.
    coef : ndarray of shape (n_clients, n_features)
        Only if `coef`: the models :math:`u_k`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range.

    See Also
    --------
    make_mtl_regression : The same with real targets.

    Examples
    --------
    >>> from fedcore.datasets import make_mtl_classification
    >>> X, y, clients = make_mtl_classification(random_state=0)
    >>> X.shape
    (3000, 50)
    """
    check_real(flip_y, "flip_y", 0, 1)
    rng = generator(random_state)
    X, score, clients, models = _scores(
        rng,
        n_clients,
        n_samples,
        n_features,
        heterogeneity,
        n_informative,
        noise,
        density,
        coef,
    )
    y = np.where(score > 0, 1, -1)
    coin = rng.random(y.size) < flip_y
    y[coin] = rng.choice([-1, 1], size=np.count_nonzero(coin))
    return (X, y, clients, models) if coef else (X, y, clients)


def make_mtl_regression(
    n_clients=30,
    n_samples=100,
    n_features=50,
    *,
    heterogeneity=1.0,
    n_informative=None,
    noise=0.1,
    density=1.0,
    coef=False,
    random_state=None,
):
    r"""Generate a linear regression problem for each of many related clients.

    The rows and the models :math:`u_k` are those of `make_mtl_classification`, and

    .. math:: y = u_k \cdot x + \sigma e, \quad e \sim N(0, 1).

    The score :math:`u_k \cdot x` has variance 1, so the best possible
    :math:`R^2` is :math:`1 / (1 + \sigma^2)`.

    Parameters
    ----------
    n_clients : int, default=30
        Number of clients, `K`.
    n_samples : int or array-like of shape (n_clients,), default=100
        Rows of every client, or of each.
    n_features : int, default=50
        Number of columns, `d`.
    heterogeneity : float, default=1.0
        How much the clients differ: 0 makes all models the same; the cosine between
        two clients' models is about :math:`1 / (1 + h^2)`.
    n_informative : int, default=None
        Number of columns, randomly chosen, that the models use; None is all.
    noise : float, default=0.1
        Standard deviation of the noise added to the score.
    density : float, default=1.0
        Fraction of non-zero entries. Below 1 the rows are a CSR array with exactly
        ``round(density * n_features)`` entries in each, columns ascending.
    coef : bool, default=False
        Return the models as well: a dense array, whatever the density.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    X : ndarray or csr_array of shape (sum of n_samples, n_features), float64
        The rows, sorted by client.
    y : ndarray of float64
        The targets.
    clients : ndarray of int64
        The client of each row, 0 to ``n_clients - 1``.
    coef : ndarray of shape (n_clients, n_features)
        Only if `coef`: the models :math:`u_k`.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or is out of range.

    See Also
    --------
    make_mtl_classification : The same with two classes.

    Examples
    --------
    >>> from fedcore.datasets import make_mtl_regression
    >>> X, y, clients = make_mtl_regression(n_clients=3, random_state=0)
    >>> X.shape
    (300, 50)
    """
    X, y, clients, models = _scores(
        generator(random_state),
        n_clients,
        n_samples,
        n_features,
        heterogeneity,
        n_informative,
        noise,
        density,
        coef,
    )
    return (X, y, clients, models) if coef else (X, y, clients)


def _scores(
    rng,
    n_clients,
    n_samples,
    n_features,
    heterogeneity,
    n_informative,
    noise,
    density,
    keep_models,
):
    """Draw rows and noisy scores; return (X, scores, clients, models or None)."""
    check_count(n_clients, "n_clients")
    sizes = _sizes(n_samples, n_clients)
    d = check_count(n_features, "n_features")
    check_real(heterogeneity, "heterogeneity", 0)
    if n_informative is None:
        n_informative = d
    elif check_count(n_informative, "n_informative") > d:
        raise ValueError(f"n_informative == {n_informative}, n_features is {d}.")
    check_real(noise, "noise", 0)
    check_real(density, "density", 0, 1, include="right")
    n_stored = round(density * d)
    if n_stored == 0:
        raise ValueError(
            f"density == {density} leaves none of {d} features in a row, "
            f"must be above {0.5 / d}."
        )

    n = int(sizes.sum())
    informative: slice | np.ndarray
    if n_informative == d:
        informative = slice(None)
    else:
        informative = np.sort(rng.choice(d, n_informative, replace=False))
    columns = None if density == 1 else _distinct_columns(rng, n, d, n_stored)
    values = rng.standard_normal((n, n_stored))

    # A cosine and a sine: any finite heterogeneity stays within the range of floats.
    length = math.hypot(1, heterogeneity)
    shared = rng.standard_normal(n_informative) / length
    models = np.zeros((n_clients, d)) if keep_models else None
    model = np.zeros(d)
    score = np.empty(n)
    stop = np.cumsum(sizes)
    for k in range(n_clients):
        task = shared + rng.standard_normal(n_informative) * (heterogeneity / length)
        # einsum, not BLAS: the same bits everywhere, and no threads for tiny products
        norm = math.sqrt(np.einsum("j,j->", task, task) * n_stored / d)
        model[informative] = task / norm
        rows = slice(stop[k] - sizes[k], stop[k])
        if columns is None:
            score[rows] = np.einsum("ij,j->i", values[rows], model)
        else:
            score[rows] = np.einsum("ij,ij->i", values[rows], model[columns[rows]])
        if models is not None:
            models[k] = model
    score += noise * rng.standard_normal(n)

    clients = np.repeat(np.arange(n_clients), sizes)
    X = values if columns is None else _csr(values, columns, d)
    return X, score, clients, models


def _sizes(n_samples, n_clients):
    """Return the number of rows of each client."""
    if isinstance(n_samples, Integral):
        return np.full(n_clients, check_count(n_samples, "n_samples"))
    sizes = np.asarray(n_samples)
    if sizes.shape != (n_clients,) or sizes.dtype.kind not in "iu":
        raise ValueError(
            "n_samples must be an integer or one integer for each of "
            f"{n_clients} clients, got {sizes.dtype} of shape {sizes.shape}."
        )
    if sizes.min() < 1:
        raise ValueError(
            f"n_samples of client {sizes.argmin()} is {sizes.min()}, must be >= 1."
        )
    return sizes.astype(np.int64)


def _distinct_columns(rng, n, d, m):
    """Return (n, m) columns: in each row a uniform m-subset of range(d), ascending."""
    if 2 * m > d:
        # Choosing the absent ones keeps repeats rare.
        present = np.ones((n, d), dtype=bool)
        np.put_along_axis(present, _distinct_columns(rng, n, d, d - m), False, axis=1)
        return np.nonzero(present)[1].astype(np.int32).reshape(n, m)

    columns = np.sort(rng.integers(d, size=(n, m), dtype=np.int32), axis=1)
    rows = np.arange(n)
    while True:
        # Draw the repeats anew until there are none, in the rows that had some.
        found = columns[rows]
        repeat = np.zeros(found.shape, dtype=bool)
        repeat[:, 1:] = found[:, 1:] == found[:, :-1]
        again = repeat.any(axis=1)
        if not again.any():
            return columns
        rows, found, repeat = rows[again], found[again], repeat[again]
        found[repeat] = rng.integers(d, size=np.count_nonzero(repeat), dtype=np.int32)
        columns[rows] = np.sort(found, axis=1)


def _csr(values, columns, d):
    """Return the CSR array whose rows all have the same number of entries."""
    n, m = values.shape
    # 32-bit offsets wherever they suffice: what compiled solvers take
    offset = np.int32 if n * m <= np.iinfo(np.int32).max else np.int64
    indptr = np.arange(n + 1, dtype=offset) * offset(m)
    X = csr_array((values.ravel(), columns.ravel(), indptr), shape=(n, d))
    X.has_canonical_format = True
    return X
