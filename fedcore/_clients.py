"""Who owns which row: client identifiers, and rows grouped by client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ._estimators import sorted_names
from .federation.contract import Cohort


def client_ids(clients: Any, n_rows: int, name: str = "clients") -> np.ndarray:
    """Return one identifier a row as an array.

    Parameters
    ----------
    clients : array-like of shape (n_rows,) or None
        Identifiers of any hashable type; None stands for one client.
    n_rows : int
    name : str
        How messages call them.

    Raises
    ------
    ValueError
        If the length is wrong, or an identifier is missing (None, NaN, NA, NaT).
    """
    if clients is None:
        return np.zeros(n_rows, np.int8)
    if sparse.issparse(clients):
        raise ValueError(f"{name} is a sparse matrix, expected one identifier a row")
    if isinstance(clients, np.ma.MaskedArray):
        masked = np.ma.getmaskarray(clients)
        clients = clients.data.astype(object)
        clients[masked] = None
    ids = _objects(clients) if _is_mixed(clients) else np.asarray(clients)
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1:
        raise ValueError(
            f"{name} has shape {ids.shape}, expected one identifier a row: ({n_rows},)"
        )
    if len(ids) != n_rows:
        raise ValueError(f"{name} has {len(ids)} entries, X has {n_rows} rows")
    absent = np.flatnonzero(missing(ids))
    if len(absent):
        some = ", ".join(map(str, absent[:5])) + (", ..." if len(absent) > 5 else "")
        raise ValueError(
            f"{name} has no identifier in {len(absent)} rows ({some}), "
            f"expected one in each"
        )
    return ids


def _is_mixed(clients: Any) -> bool:
    """Tell lists of which NumPy would make rows, or strings of what are numbers."""
    if not isinstance(clients, list):
        return False
    kinds = set(map(type, clients))
    return tuple in kinds or (str in kinds and len(kinds) > 1)


def _objects(values: list) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array


def missing(ids: np.ndarray) -> np.ndarray:
    """Tell which entries are None, NaN, NA or NaT."""
    if ids.dtype.kind == "f":
        return np.isnan(ids)
    if ids.dtype.kind in "mM":
        return np.isnat(ids)
    if ids.dtype.kind == "O":
        return np.fromiter(map(_is_missing, ids), bool, len(ids))
    return np.zeros(len(ids), bool)


def _is_missing(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, tuple):
        return any(map(_is_missing, value))
    equal = value == value  # for pandas.NA this is NA, which has no truth
    return not (isinstance(equal, bool | np.bool_) and equal)


@dataclass(frozen=True, slots=True)
class Groups:
    """Distinct clients, and which rows are theirs.

    names   : (K,) identifiers, in the order in which their rows are stored
    offsets : (K + 1,) rows of client k once the rows are in `order`
    order   : (n,) rows by client, None when they already stand so
    """

    names: np.ndarray
    offsets: np.ndarray
    order: np.ndarray | None

    def take(self, rows: Any) -> Any:
        """Put an array of rows in the order of the clients; no copy when it is."""
        return rows if rows is None or self.order is None else rows[self.order]


def group_by_client(ids: np.ndarray) -> Groups:
    """Find the clients and an order of rows in which each one's stand together."""
    n = len(ids)
    starts = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
    names = ids[starts]
    if len(distinct(names)[0]) == len(names):  # grouped as they came
        return Groups(names, np.append(starts, n).astype(np.int64), None)
    names, owner = distinct(ids)
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(names))
    return Groups(names, np.concatenate([[0], np.cumsum(counts)]), order)


def by_name(groups: Groups) -> Groups:
    """Bring the clients into the order of their sorted names, if these can be."""
    names, order = sorted_names(groups.names)
    if order is None:
        return groups
    sizes = np.diff(groups.offsets)[order]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    rows = np.arange(offsets[-1]) + np.repeat(
        groups.offsets[:-1][order] - offsets[:-1], sizes
    )
    return Groups(names, offsets, rows if groups.order is None else groups.order[rows])


def distinct(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return distinct identifiers, sorted if they can be, and each row's place."""
    try:
        names, owner = np.unique(ids, return_inverse=True)
        # Sets compare, but have no order to be sorted by.
        if ids.dtype.kind != "O" or len(names) == len(set(ids.tolist())):
            return names, owner
    except TypeError:  # of kinds that do not compare
        pass
    places = {name: place for place, name in enumerate(dict.fromkeys(ids))}
    owner = np.fromiter((places[i] for i in ids), np.int64, len(ids))
    return _objects(list(places)), owner


def find_clients(ids: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Place of each row's client among the known ones, -1 where it is not there."""
    names, owner = distinct(ids)
    places = {name: place for place, name in enumerate(known.tolist())}
    found = [places.get(name, -1) for name in names.tolist()]
    return np.array(found, np.int64)[owner]


def with_client(names: np.ndarray, client: Any) -> np.ndarray:
    """Append an identifier; those that were there keep their type."""
    new = client_ids([client], 1)
    if new.dtype.kind == names.dtype.kind:
        return np.concatenate([names, new])
    return _objects([*names.tolist(), *new.tolist()])


def codes_of(cohort: Cohort, classes: np.ndarray) -> np.ndarray:
    """Labels of a cohort as int32 codes into the classes of the whole federation."""
    if np.array_equal(cohort.classes, classes):
        return cohort.y
    return np.searchsorted(classes, cohort.classes).astype(np.int32)[cohort.y]


def cohort_of(
    X: Any,
    y: np.ndarray,
    sample_weight: np.ndarray | None,
    groups: Groups,
    classes: np.ndarray | None = None,
    warm: np.ndarray | None = None,
) -> Cohort:
    """Lay validated rows out as the kernels read them."""
    return Cohort(
        groups.take(X),
        groups.take(y),
        groups.take(sample_weight),
        groups.offsets,
        classes,
        warm=None if warm is None else groups.take(warm.T).T,
    )
