"""A state as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from .message import MAX_BYTES, MessageError, pack, unpack
from .values import decode, encode

_MAX_JSON = 2**16  # a state is arrays and a few numbers


def pack_state(state: Mapping[str, Any]) -> bytes:
    """Write a state, or what a cohort keeps, as one message.

    Parameters
    ----------
    state : mapping of str to object
        Arrays, numbers, strings, None, and tuples, lists and dicts of these.

    Returns
    -------
    bytes

    Raises
    ------
    MessageError
        Naming the value that has no place in a state.
    """
    arrays: list[np.ndarray] = []
    code = {name: encode(value, arrays, name) for name, value in state.items()}
    text = json.dumps(code, allow_nan=False, separators=(",", ":")).encode("ascii")
    if len(text) > _MAX_JSON:
        raise MessageError(
            f"state has {len(text)} bytes beside its arrays, at most {_MAX_JSON} fit"
        )
    content = {"json": np.frombuffer(text, np.uint8)}
    content |= {f"a{place}": array for place, array in enumerate(arrays)}
    return pack(content)


def unpack_state(
    data: bytes | memoryview, *, max_bytes: int = MAX_BYTES
) -> dict[str, Any]:
    """Read what `pack_state` wrote: the same bits, in arrays of their own.

    Parameters
    ----------
    data : bytes or memoryview
    max_bytes : int, default=2**30
        The longest state to accept.

    Returns
    -------
    dict

    Raises
    ------
    MessageError
        If `data` is anything else.
    """
    content, _ = unpack(data, max_bytes=max_bytes)
    text = content.pop("json", None)
    if text is None or text.dtype != np.uint8 or not text.size <= _MAX_JSON:
        raise MessageError("message is no state: it lacks its values")
    if list(content) != [f"a{place}" for place in range(len(content))]:
        raise MessageError("message is no state: its arrays have other names")
    try:
        code = json.loads(text.tobytes().decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"state is not JSON: {error!s:.80}") from None
    if not isinstance(code, dict):
        raise MessageError("message is no state: expected named values")
    arrays = iter(content.values())
    state = decode(code, arrays)
    if next(arrays, None) is not None:
        raise MessageError("message has more arrays than its state names")
    return state
