"""Replies as integers modulo 2**64, which masks can hide."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from .contract import Entries, Kind, Sum
from .message import MessageError

MOST_NUMBERS = 2**22  # of one reply, sparse ones written out


def length(kinds: Mapping[str, Kind]) -> int:
    """Count the numbers of a reply, sparse ones written out.

    Raises
    ------
    ValueError
        If a reply is no `Sum`, or they are too long.
    """
    for name, kind in kinds.items():
        if not isinstance(kind, Sum):
            raise ValueError(
                f"reply {name} is {type(kind).__name__}, expected Sum: private sums "
                "hide a client's reply by adding it to the others'"
            )
    total = sum(math.prod(kind.shape) for kind in kinds.values())
    if total > MOST_NUMBERS:
        names = ", ".join(kinds)
        raise ValueError(
            f"reply ({names}) has {total} numbers, expected at most {MOST_NUMBERS}: "
            "under masks a sparse Sum is sent whole"
        )
    return total


def flatten(kinds: Mapping[str, Kind], reply: Mapping[str, Any]) -> np.ndarray:
    """Write checked `Sum`s as one float64 vector, in the order of `kinds`."""
    flat = np.zeros(length(kinds))
    start = 0
    for name, kind in kinds.items():
        stop = start + math.prod(kind.shape)
        part, value = flat[start:stop].reshape(kind.shape), reply[name]
        if not isinstance(value, Entries):
            part[...] = value
        elif value.index is None:
            part[...] = value.rows
        else:
            part[value.index] = value.rows
        start = stop
    return flat


def unflatten(kinds: Mapping[str, Kind], flat: np.ndarray) -> dict[str, np.ndarray]:
    """Give a vector the names and shapes of `kinds`."""
    reply, start = {}, 0
    for name, kind in kinds.items():
        stop = start + math.prod(kind.shape)
        reply[name] = flat[start:stop].reshape(kind.shape)
        start = stop
    return reply


def encode(
    kinds: Mapping[str, Kind], flat: np.ndarray, resolution: float, n: int
) -> np.ndarray:
    """Round a vector to multiples of `resolution`.

    Parameters
    ----------
    kinds : mapping of str to Kind
        Whose names an error tells.
    flat : (m,) float64
    resolution : float
    n : int
        Participants whose vectors may be added: their sum must stay below 2**63.

    Returns
    -------
    (m,) uint64
        Two's complement.

    Raises
    ------
    MessageError
        Naming the reply that is too large.
    """
    limit = 2.0**63 / n - 1024  # at which float64 has steps of 1024
    scaled = flat / resolution
    if not np.abs(scaled).max(initial=0) <= limit:
        for name, part in unflatten(kinds, scaled).items():
            worst = np.abs(part).max(initial=0)
            if not worst <= limit:
                raise MessageError(
                    f"reply {name} reaches {worst * resolution:.3g}, expected at most "
                    f"{limit * resolution:.3g} among {n} participants: raise "
                    f"resolution above {resolution:.3g}"
                )
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def decode(total: np.ndarray, resolution: float) -> np.ndarray:
    """Read a sum of encoded vectors: (m,) float64."""
    return total.view(np.int64) * resolution
