"""Client identifiers that travel as a column of X: found, taken off and put back."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

from ._rows import check_places


def check_client_column(column: Any) -> None:
    """Raise TypeError unless `column` is None, a name or an index."""
    is_index = isinstance(column, Integral) and not isinstance(column, bool | np.bool_)
    if not (column is None or isinstance(column, str) or is_index):
        raise TypeError(
            f"client_column == {column!r}, expected None, the name of a column of X, "
            f"or its index"
        )


def take_client_column(X: Any, column: Any, names: Any = None) -> tuple[Any, Any]:
    """Take the column of client identifiers off X, before anything asks for numbers.

    Parameters
    ----------
    X : {array-like, sparse matrix, data frame} of shape (n_rows, n_features)
        Is only read.
    column : str or int
        Name of the column, if X is a data frame, or its index.
    names : array-like of shape (n_features,), default=None
        Names under which an X without any was fitted.

    Returns
    -------
    rows : as X, of shape (n_rows, n_features - 1)
    ids : array-like of shape (n_rows,)

    Raises
    ------
    ValueError
        If there is no such column, or several.
    """
    is_frame = hasattr(X, "columns") and hasattr(X, "shape")
    if not (is_frame or sparse.issparse(X)):
        if not hasattr(X, "shape"):  # lists: what is not a number must stay what it is
            X = np.asarray(X, dtype=object)
        if X.ndim != 2:
            check_array(X, dtype=None)  # says it in scikit-learn's words
    place = column_place(X, column, names)
    others = np.delete(np.arange(X.shape[1]), place)
    if hasattr(X, "iloc"):
        return X.iloc[:, others], X.iloc[:, place]
    if is_frame:
        labels = list(X.columns)
        return X.drop([labels[place]]), X[labels[place]]
    if sparse.issparse(X):
        X = X.tocsr()
        check_places(X)
        return X[:, others], X[:, [place]].toarray()[:, 0]
    return X[:, others], X[:, place]


def put_client_column(rows: Any, X: Any, column: Any, names: Any = None) -> Any:
    """Put the column of identifiers of X, as it is, beside rows made of the others.

    Parameters
    ----------
    rows : ndarray or CSR of shape (n_rows, n_features - 1)
    X, column, names
        As `take_client_column` got them.

    Returns
    -------
    table : as X, of shape (n_rows, n_features)
        A data frame if X is one; else of the kind of `rows`, or an array of objects
        if that cannot hold the identifiers.
    """
    if not hasattr(X, "shape"):
        X = np.asarray(X, dtype=object)
    place = column_place(X, column, names)
    _, ids = take_client_column(X, column, names)
    if hasattr(X, "columns"):
        others = np.delete(np.asarray(X.columns, dtype=object), place).tolist()
        if hasattr(X, "iloc"):
            table = type(X)(rows, index=X.index, columns=others)
            table.insert(place, X.columns[place], ids)
            return table
        columns = {name: rows[:, j] for j, name in enumerate(others)}
        columns[X.columns[place]] = ids
        return type(X)(columns).select(list(X.columns))
    if sparse.issparse(rows):
        own = type(rows)(np.asarray(ids, rows.dtype)[:, None])
        table = sparse.hstack([rows[:, :place], own, rows[:, place:]], format="csr")
        return type(rows)(table)
    try:
        own = np.asarray(ids).astype(rows.dtype)
        fits = bool((own == ids).all())
    except (TypeError, ValueError):
        fits = False
    if not fits:
        own = np.asarray(ids, dtype=object)
    return np.insert(rows.astype(own.dtype, copy=False), place, own, axis=1)


def column_place(X: Any, column: Any, names: Any = None) -> int:
    """Find the index of the column of identifiers in X, or among names alone."""
    d = len(names) if X is None else X.shape[1]
    if not isinstance(column, str):
        if not -d <= column < d:
            raise ValueError(f"client_column == {column}, X has {d} columns")
        return int(column) % d
    if hasattr(X, "columns"):
        names = X.columns
    elif names is None:
        raise ValueError(
            f"client_column == {column!r}, but X has no column names: expected a data "
            f"frame, or the index of the column"
        )
    places = [j for j, name in enumerate(names) if name == column]
    if len(places) != 1:
        raise ValueError(
            f"client_column == {column!r}, which {len(places)} columns of X have as "
            f"their name, expected one"
        )
    return places[0]
