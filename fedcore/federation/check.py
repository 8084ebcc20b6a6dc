"""What arrives is checked before the coordinator adds it up."""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np

from .contract import Choose, Chosen, Each, Entries, Kind
from .message import MessageError


def check_reply(
    kinds: Mapping[str, Kind], reply: dict[str, Any], n_active: int
) -> None:
    """Verify that what an `update` returned is what its `Request` asked for.

    Parameters
    ----------
    kinds : mapping of str to Kind
        The `reply` of the `Request`.
    reply : dict
        For each name: a float64 array for a `Sum` or an `Each` (one row an active
        client), `Entries` for a sparse `Sum`, `Chosen` for a `Choose`.
    n_active : int
        Number of clients that worked in this call.

    Raises
    ------
    MessageError
        Naming the reply, what was seen and what was expected.
    """
    if not isinstance(reply, dict):
        raise MessageError(f"reply is {_form(reply)}, expected a dict")
    if reply.keys() != kinds.keys():
        raise MessageError(
            f"reply has {sorted(map(str, reply))}, expected {sorted(kinds)}"
        )
    for name, kind in kinds.items():
        value = reply[name]
        if isinstance(kind, Choose):
            _check_chosen(name, kind.shape, value)
        elif isinstance(kind, Each):
            _check_real(name, (n_active, *kind.shape), value)
        elif kind.sparse:
            _check_entries(name, kind.shape, value, n_active)
        else:
            _check_real(name, kind.shape, value)


def check_kept(own: Mapping[str, np.ndarray], kept: Mapping[str, np.ndarray]) -> None:
    """Verify that what is to be restored has the names and forms of what is there.

    Raises
    ------
    MessageError
        Naming the array, what was seen and what was expected.
    """
    if kept.keys() != own.keys():
        raise MessageError(f"kept has {sorted(kept)}, expected {sorted(own)}")
    for name, array in own.items():
        value = kept[name]
        if not isinstance(value, np.ndarray) or value.dtype != array.dtype:
            raise MessageError(f"kept {name} is {_form(value)}, expected {array.dtype}")
        if value.shape != array.shape:
            raise MessageError(
                f"kept {name} has shape {value.shape}, expected {array.shape}"
            )


def _check_chosen(name: str, shape: tuple[int, ...], value: Any) -> None:
    if not isinstance(value, Chosen):
        raise MessageError(f"reply {name} is {_form(value)}, expected Chosen")
    if not isinstance(value.key, Real) or value.key != value.key:
        raise MessageError(f"reply {name} has key {value.key}, expected a number")
    if not isinstance(value.client, Integral) or value.client < 0:
        raise MessageError(
            f"reply {name} has client {value.client}, expected a number from 0"
        )
    _check_real(name, shape, value.value)


def _check_entries(name: str, shape: tuple[int, ...], value: Any, n: int) -> None:
    if not isinstance(value, Entries):
        raise MessageError(f"reply {name} is {_form(value)}, expected Entries")
    _check_places(f"{name}.counts", shape[0], value.counts)
    if len(value.counts) != n:
        raise MessageError(
            f"reply {name}.counts has {len(value.counts)} entries, expected {n}"
        )
    if value.index is None:
        _check_real(f"{name}.rows", shape, value.rows)
        return
    index = value.index
    _check_places(f"{name}.index", shape[0] - 1, index)
    # Most are sorted; only others pay for sorting.
    if not (index[1:] > index[:-1]).all() and len(np.unique(index)) < len(index):
        raise MessageError(f"reply {name}.index has repeated places, expected distinct")
    _check_real(f"{name}.rows", (len(index), *shape[1:]), value.rows)


def _check_places(name: str, highest: int, value: Any) -> None:
    """Check a row of integers from 0 to `highest`."""
    if not isinstance(value, np.ndarray) or value.ndim != 1 or value.dtype.kind != "i":
        raise MessageError(f"reply {name} is {_form(value)}, expected a row of int")
    if len(value) and not 0 <= value.min() <= value.max() <= highest:
        raise MessageError(
            f"reply {name} goes from {value.min()} to {value.max()}, "
            f"expected 0 to {highest}"
        )


def _check_real(name: str, shape: tuple[int, ...], value: Any) -> None:
    if isinstance(value, float):
        value = np.asarray(value)
    if (
        not isinstance(value, np.ndarray)
        or value.shape != shape
        or value.dtype != np.float64
    ):
        raise MessageError(
            f"reply {name} is {_form(value)}, expected float64 of shape {shape}"
        )
    # A finite sum of squares is proof, and cheap; an infinite one may be overflow.
    if not math.isfinite(np.vdot(value, value)):
        wrong = value.size - np.count_nonzero(np.isfinite(value))
        if wrong:
            raise MessageError(
                f"reply {name} has {wrong} values that are not finite, expected none"
            )


def _form(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} of shape {value.shape}"
    return f"of type {type(value).__name__}"
