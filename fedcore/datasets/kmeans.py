"""Deal a real table out to clients that each see two of its clusters."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.utils import check_array, column_or_1d
from threadpoolctl import threadpool_limits

from fedcore.datasets.check import check_count, generator

PARTS_PER_CLIENT = 2


def partition_kmeans(
    X, n_clients=100, *, n_clusters=10, labels=None, random_state=None
):
    """Cut clusters into equal parts; each client takes parts of two random clusters.

    The clusters together are cut into ``2 * n_clients`` parts, each cluster into as
    many as any other or one more, and at random: with the defaults each of 10 clusters
    into 20 parts. A client gets one part from each of two different clusters, so all
    rows are dealt out [1]_.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n, d)
        The table.
    n_clients : int, default=100
        Number of clients.
    n_clusters : int, default=10
        Number of clusters that k-means looks for, at least 2.
    labels : array-like of shape (n,), default=None
        Clusters to use in place of k-means, such as the digits of MNIST; `n_clusters`
        then has no effect.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    clients : ndarray of shape (n,), int64
        The client of each row, 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If there are fewer than two clusters, more than two for each client, or a
        cluster has fewer rows than parts.

    References
    ----------
    .. [1] Q. Tong, G. Liang, J. Ding, T. Zhu, M. Pan, J. Bi, "Federated optimization
       of l0-norm regularized sparse learning", Algorithms 15(9), 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_digits
    >>> from fedcore.datasets import partition_kmeans
    >>> X, y = load_digits(return_X_y=True)
    >>> clients = partition_kmeans(X, 20, labels=y, random_state=0)
    >>> {len(np.unique(y[clients == k])) for k in range(20)}
    {2}
    """
    check_count(n_clients, "n_clients")
    rng = generator(random_state)
    seed = int(rng.integers(2**31))
    if labels is None:
        check_count(n_clusters, "n_clusters", 2)
        X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        # More threads would add up in an order that varies.
        with threadpool_limits(1):
            labels = KMeans(n_clusters, n_init=1, random_state=seed).fit_predict(X)
    elif len(labels := column_or_1d(labels)) != (rows := np.shape(X)[0]):
        raise ValueError(f"labels has {len(labels)} entries, X has {rows} rows.")

    names, code = np.unique(labels, return_inverse=True)
    if len(names) < 2:
        raise ValueError(f"the rows are of {len(names)} cluster, expected at least 2.")
    if PARTS_PER_CLIENT * n_clients < len(names):
        raise ValueError(
            f"n_clients == {n_clients}, expected at least {-(-len(names) // 2)} "
            f"for {len(names)} clusters: all rows are dealt out."
        )
    n_parts = np.diff(
        np.arange(len(names) + 1) * PARTS_PER_CLIENT * n_clients // len(names)
    )
    sizes = np.bincount(code)
    short = np.flatnonzero(sizes < n_parts)
    if len(short):
        raise ValueError(
            f"cluster {names[short[0]]} has {sizes[short[0]]} rows, too few for "
            f"{n_parts[short[0]]} parts: lower n_clients or n_clusters."
        )

    takers = _takers(rng, n_parts, n_clients)
    clients = np.empty(len(code), np.int64)
    for c, taker in enumerate(takers):
        rows = rng.permutation(np.flatnonzero(code == c))
        clients[rows] = taker[np.arange(len(rows)) * len(taker) // len(rows)]
    return clients


def _takers(rng, n_parts, n_clients):
    """Draw, for each cluster, the distinct clients that take one of its parts."""
    hands = rng.permutation(np.repeat(np.arange(len(n_parts)), n_parts))
    hands = hands.reshape(n_clients, PARTS_PER_CLIENT)
    for hand in hands:
        # No cluster has more parts than there are clients, so someone lacks this one.
        if hand[0] == hand[1]:
            other = rng.choice(np.flatnonzero((hands != hand[0]).all(axis=1)))
            hand[1], hands[other, 1] = hands[other, 1], hand[1]
    return [rng.permutation(np.nonzero(hands == c)[0]) for c in range(len(n_parts))]
