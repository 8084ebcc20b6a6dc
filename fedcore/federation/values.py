"""Python values as JSON beside a row of plain arrays, for states and saved models.

JSON holds None, bools, whole numbers and dicts with names as they are; all else is a
list whose first entry says what it is. Arrays stand apart, in the order in which they
are met, so none can be named twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import numpy as np

from .message import MessageError

_PLAIN = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")
# Characters, bytes and times, which travel as bytes.
_VIEWED = re.compile(r"<U[1-9]\d{0,8}|\|S[1-9]\d{0,8}|<[mM]8\[\d{0,6}[A-Za-z]{1,2}\]")
_MAX_DEPTH = 20


def encode(value: Any, arrays: list[np.ndarray], name: str = "value") -> Any:
    """Turn a value into what JSON holds; append its arrays.

    Parameters
    ----------
    value : object
        None, numbers, strings, NumPy arrays and scalars, and tuples, lists and dicts
        of these. Arrays of objects may hold whatever is not an array.
    arrays : list
        Gets C-contiguous little-endian arrays of bool, integers or floats.
    name : str
        What errors call it.

    Raises
    ------
    MessageError
        Naming the value that is of another kind.
    """
    match value:
        case None | bool():
            return value
        case np.generic():
            return ["scalar", _encode_array(np.asarray(value), arrays, name)]
        case int() if type(value) is int:
            return value
        case float():
            return ["float", value.hex()]
        case str() if type(value) is str:
            return ["str", value]
        case np.ndarray():
            return _encode_array(value, arrays, name)
        case tuple() | list() if type(value) in (tuple, list):
            parts = [encode(part, arrays, name) for part in value]
            return [type(value).__name__, parts]
        case dict() if type(value) is dict:
            if all(type(key) is str for key in value):
                return {k: encode(v, arrays, f"{name}.{k}") for k, v in value.items()}
            return ["dict", encode(list(value.items()), arrays, name)]
    raise MessageError(
        f"{name} is a {type(value).__name__}, expected numbers, strings, arrays, or "
        f"tuples, lists and dicts of them"
    )


def decode(code: Any, arrays: Iterator[np.ndarray], depth: int = 0) -> Any:
    """Give back what `encode` was given; arrays and what holds them are new.

    Raises
    ------
    MessageError
        If `code` or an array is not as `encode` writes it.
    """
    if depth > _MAX_DEPTH:
        raise MessageError(f"values are nested more than {_MAX_DEPTH} deep")
    match code:
        case None | bool() | int():
            return code
        case dict():
            return {k: decode(v, arrays, depth + 1) for k, v in code.items()}
        case ["float", str(text)]:
            return _float(text)
        case ["str", str(text)]:
            return text
        case ["tuple" | "list", list(parts)]:
            decoded = [decode(part, arrays, depth + 1) for part in parts]
            return tuple(decoded) if code[0] == "tuple" else decoded
        case ["dict", parts]:
            try:
                return dict(decode(parts, arrays, depth + 1))
            except (TypeError, ValueError):
                raise MessageError("dict has no pairs of names and values") from None
        case ["scalar", part]:
            array = decode(part, arrays, depth + 1)
            if isinstance(array, np.ndarray) and array.ndim == 0:
                return array[()]
        case ["objects", list(parts)]:
            array = np.empty(len(parts), object)
            for place, part in enumerate(parts):
                array[place] = decode(part, arrays, depth + 1)
            return array
        case ["array"]:
            return _next(arrays).copy()
        case ["fortran"]:
            return _next(arrays).copy().T
        case ["view", str(dtype), list(shape)]:
            return _viewed(dtype, shape, _next(arrays))
        case ["strings"]:
            return _strings(_next(arrays), _next(arrays))
    raise MessageError(f"value is {code!r:.80}, which stands for nothing")


def _encode_array(value: np.ndarray, arrays: list[np.ndarray], name: str) -> Any:
    if value.dtype == object:
        return _encode_objects(value, arrays, name)
    dtype = value.dtype.newbyteorder("<")
    if dtype.kind == "U" and not dtype.itemsize:
        dtype = np.dtype("<U1")
    if dtype.str[1:] in _PLAIN:
        # The order of elements in memory decides the order of sums.
        turned = value.flags.f_contiguous and not value.flags.c_contiguous
        stored = value.T if turned else value
        arrays.append(np.asarray(stored, dtype, order="C"))
        return ["fortran"] if turned else ["array"]
    if not _VIEWED.fullmatch(dtype.str):
        raise MessageError(
            f"{name} is an array of {value.dtype}, expected numbers, strings or times"
        )
    flat = np.asarray(value, dtype, order="C").reshape(-1)
    arrays.append(flat.view(np.uint8))
    return ["view", dtype.str, list(value.shape)]


def _encode_objects(value: np.ndarray, arrays: list[np.ndarray], name: str) -> Any:
    if value.ndim != 1:
        raise MessageError(
            f"{name} is an array of objects of shape {value.shape}, expected a row"
        )
    objects = value.tolist()
    if objects and all(type(one) is str for one in objects):
        texts = [text.encode("utf-8", "surrogatepass") for text in objects]
        arrays.append(np.frombuffer(b"".join(texts), np.uint8))
        arrays.append(np.array([len(text) for text in texts], np.int64))
        return ["strings"]
    if any(isinstance(one, np.ndarray) for one in objects):
        raise MessageError(f"{name} is an array of arrays, expected numbers or strings")
    return ["objects", [encode(one, arrays, name) for one in objects]]


def _next(arrays: Iterator[np.ndarray]) -> np.ndarray:
    for array in arrays:
        return array
    raise MessageError("values need more arrays than there are")


def _float(text: str) -> float:
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        raise MessageError(f"{text!r:.40} is no float") from None


def _viewed(dtype: str, shape: list, data: np.ndarray) -> np.ndarray:
    if not _VIEWED.fullmatch(dtype) or data.dtype != np.uint8 or data.ndim != 1:
        raise MessageError(f"array of {dtype!r:.40} is not written as bytes")
    try:
        array = data.copy().view(dtype).reshape([int(n) for n in shape])
    except (TypeError, ValueError, OverflowError):
        raise MessageError(f"{len(data)} bytes are no array of {dtype}") from None
    if dtype[1] == "U" and data.size:
        # NumPy trusts characters to exist.
        if data.view("<u4").max() > 0x10FFFF:
            raise MessageError("characters beyond the last of Unicode")
    return array


def _strings(text: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    if not (text.dtype == np.uint8 and lengths.dtype == np.int64 and text.ndim == 1):
        raise MessageError("strings are not written as bytes and lengths")
    if lengths.ndim != 1 or (lengths < 0).any() or (lengths > len(text)).any():
        raise MessageError("strings are longer than their bytes")
    ends = np.cumsum(lengths)
    if len(ends) and (ends[-1] != len(text) or (np.diff(ends) < 0).any()):
        raise MessageError("strings are longer than their bytes")
    data, array = text.tobytes(), np.empty(len(lengths), object)
    try:
        for place, (end, length) in enumerate(zip(ends, lengths, strict=True)):
            piece = data[end - length : end]
            array[place] = piece.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        raise MessageError("strings are no UTF-8") from None
    return array
