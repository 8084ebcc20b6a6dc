"""Deal the rows of one table out to clients: each function returns one id a row."""

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from fedcore.datasets.check import check_count, check_real, generator


def partition_by_column(X, column):
    """Make every distinct value of a column, or of several together, a client.

    Parameters
    ----------
    X : array-like, sparse or DataFrame of shape (n, d)
        The table. It is not changed: drop the column yourself if the models should
        not see it (inside a client it is constant).
    column : int, str or list of them
        A position, or a name in a DataFrame. A list makes every distinct combination
        a client; so one-hot columns can be given as they are.

    Returns
    -------
    clients : ndarray of shape (n,), int64
        0 to ``K - 1`` in the order of the sorted values.

    Raises
    ------
    ValueError
        If a value is missing, or the table has no such column.

    Examples
    --------
    >>> from fedcore.datasets import partition_by_column
    >>> partition_by_column([[0.5, 7], [0.1, 3], [0.2, 7]], 1)
    array([1, 0, 1])
    """
    columns = column if isinstance(column, list) else [column]
    if not columns:
        raise ValueError("column is an empty list, expected at least one column.")
    if not (issparse(X) or hasattr(X, "iloc")):
        X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X has {X.ndim} dimensions, expected 2.")

    codes = np.column_stack([_codes(_values(X, c), c) for c in columns])
    return np.unique(codes, axis=0, return_inverse=True)[1].reshape(-1)


def partition_dirichlet(y, n_clients, *, alpha, min_rows=1, random_state=None):
    r"""Deal rows out so that clients differ in their shares of the labels.

    For each label `c` separately the shares of the clients are drawn,
    :math:`p_c \sim \operatorname{Dirichlet}(\alpha, \ldots, \alpha)`, and its rows are
    dealt out at random in these proportions [1]_. Clients that end up with fewer than
    `min_rows` are filled up with randomly chosen rows that others can spare.

    Parameters
    ----------
    y : array-like of shape (n,)
        The labels.
    n_clients : int
        Number of clients.
    alpha : float
        Small values give clients of few labels, large values give all clients the same
        mix.
    min_rows : int, default=1
        The smallest number of rows of a client; 0 keeps the law exact and may leave
        clients without rows.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    clients : ndarray of shape (n,), int64
        The client of each row, 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If there are fewer than ``n_clients * min_rows`` rows, or `y` is continuous.

    References
    ----------
    .. [1] T.-M. H. Hsu, H. Qi, M. Brown, "Measuring the effects of non-identical data
       distribution for federated visual classification", arXiv:1909.06335, 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore.datasets import partition_dirichlet
    >>> clients = partition_dirichlet([0, 1] * 50, 4, alpha=0.5, random_state=0)
    >>> np.unique(clients).tolist()
    [0, 1, 2, 3]
    """
    y = column_or_1d(y)
    check_classification_targets(y)
    _check_dealing(y.size, n_clients, alpha, min_rows)
    rng = generator(random_state)

    labels, code = np.unique(y, return_inverse=True)
    clients = np.empty(y.size, dtype=np.int64)
    for c in range(labels.size):
        rows = rng.permutation(np.flatnonzero(code == c))
        sizes = _split(rows.size, rng.dirichlet(np.full(n_clients, float(alpha))))
        clients[rows] = np.repeat(np.arange(n_clients), sizes)

    missing = np.maximum(min_rows - np.bincount(clients, minlength=n_clients), 0)
    if missing.any():
        spare = _spare_rows(rng, clients, n_clients, min_rows)
        moved = rng.choice(spare, missing.sum(), replace=False)
        clients[moved] = np.repeat(np.arange(n_clients), missing)
    return clients


def partition_quantity(n_rows, n_clients, *, alpha, min_rows=1, random_state=None):
    r"""Deal rows out at random so that clients differ in their number of rows.

    Each client gets `min_rows`; the rest is divided in proportions drawn from
    :math:`\operatorname{Dirichlet}(\alpha, \ldots, \alpha)`.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    n_clients : int
        Number of clients.
    alpha : float
        Small values give a few large clients, large values equal ones.
    min_rows : int, default=1
        The smallest number of rows of a client.
    random_state : int, RandomState instance or None, default=None
        An int makes the output reproducible.

    Returns
    -------
    clients : ndarray of shape (n_rows,), int64
        The client of each row, 0 to ``n_clients - 1``.

    Raises
    ------
    ValueError
        If there are fewer than ``n_clients * min_rows`` rows.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore.datasets import partition_quantity
    >>> clients = partition_quantity(1000, 5, alpha=1.0, min_rows=20, random_state=0)
    >>> bool(np.bincount(clients).min() >= 20)
    True
    """
    check_count(n_rows, "n_rows", 0)
    _check_dealing(n_rows, n_clients, alpha, min_rows)
    rng = generator(random_state)
    shares = rng.dirichlet(np.full(n_clients, float(alpha)))
    sizes = min_rows + _split(n_rows - n_clients * min_rows, shares)
    return rng.permutation(np.repeat(np.arange(n_clients), sizes))


def _check_dealing(n_rows, n_clients, alpha, min_rows):
    check_count(n_clients, "n_clients")
    check_real(alpha, "alpha", 0, include="neither")
    check_count(min_rows, "min_rows", 0)
    if n_rows < n_clients * min_rows:
        raise ValueError(
            f"{n_rows} rows are too few for {n_clients} clients of at least "
            f"{min_rows} rows: lower n_clients or min_rows."
        )


def _split(n, shares):
    """Divide n into whole parts: rounded cumulative shares, so that they add up."""
    ends = np.rint(np.cumsum(shares) * n).astype(np.int64)
    ends[-1] = n
    return np.diff(ends, prepend=0)


def _spare_rows(rng, clients, n_clients, min_rows):
    """Return the rows left when each client keeps `min_rows` random ones of its own."""
    order = rng.permutation(clients.size)
    order = order[np.argsort(clients[order], kind="stable")]
    sizes = np.bincount(clients, minlength=n_clients)
    first = np.cumsum(sizes) - sizes
    return order[np.arange(clients.size) - first[clients[order]] >= min_rows]


def _values(X, column):
    """Return a column as an array, None where a DataFrame says that it is missing."""
    if isinstance(column, str):
        if not hasattr(X, "iloc"):
            raise ValueError(f"column {column!r} is a name, but X is not a DataFrame.")
        if column not in X.columns:
            raise ValueError(f"X has no column {column!r}.")
        picked = X[column]
    else:
        check_count(column, "column", -X.shape[1])
        if column >= X.shape[1]:
            raise ValueError(f"column is {column}, X has {X.shape[1]} columns.")
        if issparse(X):
            return X.tocsc()[:, [column]].toarray().ravel()
        picked = X.iloc[:, column] if hasattr(X, "iloc") else X[:, column]
    if hasattr(picked, "isna"):
        return picked.astype(object).where(picked.notna(), None).to_numpy()
    return picked


def _codes(values, column):
    """Return the place of each value among the sorted distinct ones."""
    # None and NaN alike; NaN is the one value that differs from itself.
    missing = np.array([v is None or v != v for v in values.tolist()], dtype=bool)
    if missing.any():
        raise ValueError(
            f"column {column!r} has {missing.sum()} missing values, the first in row "
            f"{missing.argmax()}: every row needs a client."
        )
    try:
        return np.unique(values, return_inverse=True)[1]
    except TypeError as error:
        raise ValueError(f"column {column!r} mixes types: {error}.") from error
