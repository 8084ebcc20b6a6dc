"""Replies as values that a message can hold, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .contract import Choose, Chosen, Each, Entries, Kind, Sum
from .message import MessageError

_SLACK = 2**16  # for headers and names


def plain_reply(reply: Mapping[str, Any]) -> dict[str, Any]:
    """Turn what `update` returned into plain arrays and numbers."""
    plain: dict[str, Any] = {}
    for name, value in reply.items():
        if isinstance(value, Entries):
            parts = {"index": value.index, "rows": value.rows, "counts": value.counts}
            plain[name] = parts
        elif isinstance(value, Chosen):
            plain[name] = {
                "key": float(value.key),
                "client": int(value.client),
                "value": value.value,
            }
        else:
            plain[name] = value
    return plain


def read_reply(kinds: Mapping[str, Kind], plain: Any) -> dict[str, Any]:
    """Undo `plain_reply`; whatever is not of its kind is left to `check_reply`."""
    if not isinstance(plain, dict):
        raise MessageError(f"reply is of type {type(plain).__name__}, expected a dict")
    reply = dict(plain)
    for name, kind in kinds.items():
        parts = plain.get(name)
        if not isinstance(parts, dict):
            continue
        if isinstance(kind, Choose) and parts.keys() == {"key", "client", "value"}:
            reply[name] = Chosen(**parts)
        elif (
            isinstance(kind, Sum)
            and kind.sparse
            and parts.keys() == {"index", "rows", "counts"}
        ):
            reply[name] = Entries(**parts)
    return reply


def most_bytes(kinds: Mapping[str, Kind], n_active: int) -> int:
    """Bound the length of an honest reply."""
    most = _SLACK
    for kind in kinds.values():
        size = 8 * math.prod(kind.shape)
        if isinstance(kind, Each):
            size *= n_active
        elif isinstance(kind, Sum) and kind.sparse:
            size += 8 * kind.shape[0]  # places
        most += size + 8 * n_active
    return most
