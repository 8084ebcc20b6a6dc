"""What a run is about, in few words: so that another run's checkpoint is told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from scipy import sparse

from .contract import Algorithm, Cohort

_LONG = 80  # of longer values only a digest is kept


def fingerprint(
    algorithm: Algorithm, cohort: Cohort, options: Mapping[str, Any]
) -> dict[str, str]:
    """Describe method, engine and data.

    The rows are read once: a second for about 1 GB.

    Parameters
    ----------
    algorithm : Algorithm
        All its fields count but `max_rounds`.
    cohort : Cohort
    options : mapping of str to object
        Those of the engine that change the run.

    Returns
    -------
    dict of str to str
    """
    n, d = cohort.X.shape
    told = {"method": type(algorithm).__name__}
    told |= _fields(algorithm)
    told.pop("max_rounds", None)
    for name, value in options.items():
        told |= {name: describe(value)}
    told |= {"rows": str(n), "columns": str(d), "clients": str(cohort.n_clients)}
    return told | {"data": digest(cohort)}


def describe(value: Any) -> str:
    """Say what a parameter is; functions are known by their names alone."""
    if is_dataclass(value) and not isinstance(value, type):
        text = f"{type(value).__name__}({_fields(value)})"
    elif isinstance(value, np.ndarray):
        text = repr(value.tolist())
    elif hasattr(value, "dist") and hasattr(value, "args"):  # frozen, of scipy.stats
        text = f"{value.dist.name}{value.args}{value.kwds}"
    elif callable(value):
        named = value if hasattr(value, "__qualname__") else type(value)
        text = f"{named.__module__}.{named.__qualname__}"
    else:
        text = repr(value)
    if len(text) > _LONG:
        return blake2b(text.encode(), digest_size=16).hexdigest()
    return text


def digest(cohort: Cohort) -> str:
    """Give a hash of all that a cohort holds."""
    sums = blake2b(digest_size=16)
    _feed(sums, cohort)
    return sums.hexdigest()


def _fields(record: Any) -> dict[str, str]:
    return {f.name: describe(getattr(record, f.name)) for f in fields(record)}


def _feed(sums: Any, value: Any) -> None:
    """Add a value to a hash, with its form, so that no two values look alike."""
    if isinstance(value, Cohort):
        for f in fields(value):
            _feed(sums, getattr(value, f.name))
    elif sparse.issparse(value):
        for part in (value.shape, value.data, value.indices, value.indptr):
            _feed(sums, part)
    elif isinstance(value, np.ndarray) and value.dtype != object:
        sums.update(f"{value.dtype.str}{value.shape}".encode())
        sums.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
    else:
        text = repr(value.tolist() if isinstance(value, np.ndarray) else value)
        sums.update(f"{len(text)} {text}".encode())
