"""The one binary form of a message: what crosses the network and what it weighs.

    6 bytes   magic
    2         version
    8         length of the header
    header    JSON in ASCII, with spaces up to a multiple of 8 bytes
    arrays    raw, little-endian, C order, each with zeros up to a multiple of 8 bytes

Numbers in the header have a fixed width, so the size of a message follows from the
names, dtypes and shapes in it, never from a value. The form is unique: what `unpack`
accepts, `pack` gives back bit by bit.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Mapping
from functools import lru_cache
from reprlib import Repr
from typing import Any, TypeAlias

import numpy as np

from .contract import Choose, Kind, Request, Sum

MAX_BYTES = 2**30

Spec: TypeAlias = tuple[tuple[Any, ...], Any]
"""The shape and dtype of an array."""

_START = struct.Struct("<6sHQ")
_MAGIC, _VERSION = b"fedmsg", 1
_MAX_HEADER = 2**16
_MAX_NDIM = 8
_TOO_BIG = 2**63
_NAME = re.compile(r"[A-Za-z_][\w.]{0,63}", re.ASCII)  # needs no escape in JSON
_DTYPES = {
    code: np.dtype(f"<{code}")
    for code in ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
}
_REPR = Repr()  # the plain one may be long, or nest too deep
_REPR.maxlevel = 1


class MessageError(ValueError):
    """A message, or a reply, that is not what was agreed."""


def pack(arrays: Mapping[str, Any], *, round: int = 0) -> bytes:
    """Write named arrays as one message.

    Parameters
    ----------
    arrays : mapping of str to array-like
        Arrays of bool, integers, float32 or float64, at most 8 dimensions. Python
        numbers travel as 0-d arrays of bool, int64 or float64.
    round : int, default=0
        Number of the round.

    Returns
    -------
    bytes
        As many as `packed_size` says.

    Raises
    ------
    MessageError
        If a name or an array has no place in a message.
    """
    ready = {name: _as_array(name, value) for name, value in arrays.items()}
    header = _header(round, [(n, _code(a.dtype), a.shape) for n, a in ready.items()])
    pieces: list[Any] = [_START.pack(_MAGIC, _VERSION, len(header)), header]
    for array in ready.values():
        pieces += array, bytes(-array.nbytes % 8)
    return b"".join(pieces)


def unpack(
    data: bytes | memoryview, *, max_bytes: int = MAX_BYTES
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
    """Read a message without copying its arrays.

    Parameters
    ----------
    data : bytes or memoryview
        One whole message.
    max_bytes : int, default=2**30
        The longest message to accept.

    Returns
    -------
    arrays : dict of str to ndarray
        Read-only views of `data`, aligned if `data` is.
    fields : dict of str to int
        The other fields of the header: `round`.

    Raises
    ------
    MessageError
        If `data` is anything but a message as `pack` writes it. Nothing is allocated
        on the word of a header.
    """
    try:
        view = memoryview(data).toreadonly().cast("B")
    except TypeError as error:
        raise MessageError(f"message is not a row of bytes: {error}") from None
    if not _START.size <= len(view) <= max_bytes:
        raise MessageError(
            f"message has {len(view)} bytes, expected {_START.size} to {max_bytes}"
        )
    magic, version, length = _START.unpack_from(view)
    if magic != _MAGIC:
        raise MessageError(f"message starts with {magic!r}, expected {_MAGIC!r}")
    if version != _VERSION:
        raise MessageError(f"message has version {version}, expected {_VERSION}")
    start = _START.size + length
    if length > _MAX_HEADER or start > len(view):
        room = min(_MAX_HEADER, len(view) - _START.size)
        raise MessageError(f"header has {length} bytes, expected at most {room}")
    round, specs = _read_header(bytes(view[_START.size : start]))

    sizes = [_DTYPES[dtype].itemsize * math.prod(shape) for _, dtype, shape in specs]
    total = start + sum(map(_padded, sizes))
    if total != len(view):
        raise MessageError(f"message has {len(view)} bytes, its header tells {total}")
    arrays = {}
    for (name, dtype, shape), size in zip(specs, sizes, strict=True):
        array = np.ndarray(shape, _DTYPES[dtype], view, start)
        # NumPy trusts a bool to be 0 or 1.
        if dtype == "b1" and array.view(np.uint8).max(initial=0) > 1:
            raise MessageError(f"{name} has bools other than 0 and 1")
        if any(view[start + size : start + _padded(size)]):
            raise MessageError(f"{name} is followed by padding other than zeros")
        arrays[name] = array
        start += _padded(size)
    return arrays, {"round": round}


def packed_size(specs: Mapping[str, Spec]) -> Any:
    """Give the length of a message without writing it.

    Parameters
    ----------
    specs : mapping of str to (shape, dtype)
        The arrays of the message. A length in a shape may itself be an int64 array,
        one number a message: the messages of many clients are weighed at once.

    Returns
    -------
    int, or ndarray of int64
        Bytes, as many as `len(pack(...))`.

    Raises
    ------
    MessageError
        If a name, a dtype or a number of dimensions has no place in a message.
    """
    structure = []
    size = _START.size
    for name, (shape, dtype) in specs.items():
        structure.append((name, dtype, len(shape)))
        size = size + _padded(np.dtype(dtype).itemsize * math.prod(shape))
    return size + _header_size(tuple(structure))


def down_size(request: Request) -> int:
    """Give the length of the message that one client gets: `all` and its row of `each`.

    Raises
    ------
    MessageError
        If `all` and `each` share a name, or a value has no place in a message.
    """
    shared = request.all.keys() & request.each.keys()
    if shared:
        raise MessageError(f"{sorted(shared)} in both all and each, expected in one")
    arrays = {name: _as_array(name, value) for name, value in request.all.items()}
    specs: dict[str, Spec] = {n: (a.shape, a.dtype) for n, a in arrays.items()}
    for name, rows in request.each.items():
        table = rows[0] if isinstance(rows, tuple) else rows
        specs[name] = (table.shape[1:], table.dtype)
    return int(packed_size(specs))


def up_size(
    kinds: Mapping[str, Kind], entries_counts: Mapping[str, Any] | None = None
) -> Any:
    """Give the length of the message that one client sends back.

    All values are float64. A sparse `Sum` travels as `name.index` (int32 if that can
    hold it) and `name.rows`, a `Choose` as `name.key` and `name.value`.

    Parameters
    ----------
    kinds : mapping of str to Kind
        The `reply` of a `Request`.
    entries_counts : mapping of str to int or array of int, optional
        For each sparse `Sum`, the entries that a client sends, or one such number a
        client.

    Returns
    -------
    int, or ndarray of int64
        Bytes of a message, or of each client's.

    Raises
    ------
    MessageError
        If the count of a sparse `Sum` is missing.
    """
    specs: dict[str, Spec] = {}
    for name, kind in kinds.items():
        if isinstance(kind, Sum) and kind.sparse:
            if entries_counts is None or name not in entries_counts:
                raise MessageError(f"entries_counts lacks {name}, a sparse Sum")
            count = entries_counts[name]
            count = np.asarray(count, np.int64) if np.ndim(count) else int(count)
            index = np.int32 if kind.shape[0] < 2**31 else np.int64
            specs[f"{name}.index"] = (count,), index
            specs[f"{name}.rows"] = (count, *kind.shape[1:]), np.float64
        elif isinstance(kind, Choose):
            specs[f"{name}.key"] = (), np.float64
            specs[f"{name}.value"] = kind.shape, np.float64
        else:
            specs[name] = kind.shape, np.float64
    return packed_size(specs)


def _code(dtype: np.dtype) -> str:
    return dtype.str[1:]


def _padded(size: Any) -> Any:
    return size + -size % 8


def _as_array(name: str, value: Any) -> np.ndarray:
    try:
        dtype = np.int64 if type(value) is int else None
        array = np.asarray(value, dtype, order="C")
    except (ValueError, TypeError, OverflowError) as error:
        raise MessageError(f"{name} is no array: {error}") from error
    # An unknown dtype is left to the header, which names it.
    return array.astype(_DTYPES.get(_code(array.dtype), array.dtype), copy=False)


def _header(round: int, specs: Iterable[tuple[str, str, Any]]) -> bytes:
    """Write the header of arrays (name, dtype, shape); everything in it is checked."""
    if not 0 <= round < _TOO_BIG:
        raise MessageError(f"round is {_REPR.repr(round)}, expected 0 to 2**63 - 1")
    entries: dict[str, str] = {}
    for name, dtype, shape in specs:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise MessageError(
                f"name {name!r:.80}, expected at most 64 letters, digits, '_' and '.'"
            )
        if name in entries:
            raise MessageError(f"name {name} twice, expected once")
        if dtype not in _DTYPES:
            raise MessageError(
                f"{name} has dtype {dtype:.20}, expected one of {', '.join(_DTYPES)}"
            )
        if len(shape) > _MAX_NDIM:
            raise MessageError(
                f"{name} has {len(shape)} dimensions, expected at most {_MAX_NDIM}"
            )
        # NumPy wants the product to fit even if another length is zero.
        volume = math.prod(n for n in shape if n) * _DTYPES[dtype].itemsize
        if any(n < 0 for n in shape) or volume >= _TOO_BIG:
            raise MessageError(
                f"{name} has shape {_REPR.repr(shape)}, expected lengths of at least "
                "0 and less than 2**63 bytes"
            )
        lengths = ",".join([f"{n:19d}" for n in shape])
        entries[name] = f'["{name}","{dtype}",[{lengths}]]'
    text = f'{{"round":{round:19d},"arrays":[{",".join(entries.values())}]}}'
    header = text.encode("ascii").ljust(_padded(len(text)))
    if len(header) > _MAX_HEADER:
        raise MessageError(f"header has {len(header)} bytes, at most {_MAX_HEADER} fit")
    return header


@lru_cache(maxsize=256)
def _header_size(structure: tuple[tuple[str, Any, int], ...]) -> int:
    """Give the length of the header of arrays (name, dtype, number of dimensions)."""
    specs = [(name, _code(np.dtype(dtype)), (0,) * n) for name, dtype, n in structure]
    return len(_header(0, specs))


def _read_header(header: bytes) -> tuple[int, list[tuple[str, str, list[int]]]]:
    try:
        content = json.loads(header.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise MessageError(f"header is not JSON: {error!s:.80}") from None
    match content:
        case {"round": int(round), "arrays": list(entries)}:
            specs = [_read_entry(entry) for entry in entries]
        case _:
            raise MessageError(
                f"header is {_REPR.repr(content)}, expected round and arrays"
            )
    # Whatever else JSON allows (other fields, spaces, `true` for 1) ends here.
    if _header(round, specs) != header:
        raise MessageError("header is not written as `pack` writes it")
    return round, specs


def _read_entry(entry: Any) -> tuple[str, str, list[int]]:
    match entry:
        case [str(name), str(dtype), list(shape)]:
            if all(type(n) is int for n in shape):
                return name, dtype, shape
    raise MessageError(f"array is {_REPR.repr(entry)}, expected name, dtype and shape")
