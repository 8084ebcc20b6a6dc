"""Which columns have a personal part: names, indices or a mask, brought to one form."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

WORDS = ("all", "intercept")
KINDS = '"all", "intercept", names or indices of columns of X, or a boolean mask'


def check_personal_features(features: Any) -> None:
    """Raise unless `features` may name columns, whatever X is."""
    if isinstance(features, str):
        if features not in WORDS:
            raise ValueError(
                f"personal_features == {features!r}, expected {KINDS}; a single column "
                f"is [{features!r}]"
            )
        return
    _as_list(features)


def personal_columns(
    features: Any, names: Any, n_columns: int, taken: int | None
) -> tuple[int, ...] | None:
    """Find the columns that have a personal part.

    Parameters
    ----------
    features : str or list
        As checked by `check_personal_features`.
    names : sequence of length n_columns, or None
        Names of the columns of X.
    n_columns : int
        Of X as the user gave it.
    taken : int or None
        The column of identifiers among them, which has no weights.

    Returns
    -------
    columns : tuple of int, or None
        Indices, in order, among the columns that have weights; None: all of them.

    Raises
    ------
    ValueError
        If there is no such column, or it is the one of identifiers, or named twice.
    """
    if isinstance(features, str):
        if features == "all":
            return None
        return ()
    places = _places(_as_list(features), names, n_columns)
    if len(set(places)) < len(places):
        twice = next(j for j in places if places.count(j) > 1)
        raise ValueError(f"personal_features names column {twice} of X more than once")
    if taken in places:
        raise ValueError(
            f"personal_features has column {taken} of X, which client_column says is "
            f"that of the identifiers"
        )
    if taken is not None:
        places = [j - (j > taken) for j in places]
    if len(places) == n_columns - (taken is not None):
        return None
    return tuple(sorted(places))


def _as_list(features: Any) -> list:
    if isinstance(features, np.ndarray):
        if features.ndim != 1:
            raise ValueError(
                f"personal_features has shape {features.shape}, expected {KINDS}"
            )
        return features.tolist()
    if isinstance(features, list | tuple):
        return list(features)
    if hasattr(features, "to_numpy"):  # an index or a column of pandas or polars
        return _as_list(features.to_numpy())
    raise TypeError(f"personal_features == {features!r}, expected {KINDS}")


def _places(features: list, names: Any, n_columns: int) -> list[int]:
    if all(isinstance(item, bool | np.bool_) for item in features):
        if features and len(features) != n_columns:
            raise ValueError(
                f"personal_features is a mask of {len(features)} entries, X has "
                f"{n_columns} columns"
            )
        return [j for j, is_personal in enumerate(features) if is_personal]
    if all(isinstance(item, str) for item in features):
        return [_place_of_name(name, names) for name in features]
    for item in features:
        if not isinstance(item, Integral) or isinstance(item, bool | np.bool_):
            raise TypeError(
                f"personal_features has {item!r}, expected names alone, indices alone, "
                f"or a boolean mask"
            )
        if not -n_columns <= item < n_columns:
            raise ValueError(
                f"personal_features has column {item}, X has {n_columns} columns"
            )
    return [int(item) % n_columns for item in features]


def _place_of_name(name: str, names: Any) -> int:
    if names is None:
        raise ValueError(
            f"personal_features has {name!r}, but X has no column names: expected a "
            f"data frame, or indices of columns"
        )
    places = [j for j, other in enumerate(names) if other == name]
    if len(places) != 1:
        raise ValueError(
            f"personal_features has {name!r}, which {len(places)} columns of X have as "
            f"their name, expected one"
        )
    return places[0]
