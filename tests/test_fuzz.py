"""Whatever bytes arrive, a decoder gives values or its own error, in little memory.

FEDCORE_FUZZ=20000 pytest tests/test_fuzz.py
"""

import json
import os
import struct
import tracemalloc

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcore.federation.checkpoint import pack_state, unpack_state
from fedcore.federation.message import MessageError, pack, unpack

LIMIT = 2**24  # declared; examples are far shorter, and claim far more
STRETCH = 8  # a text of few letters takes so many times its bytes
HEADER = 2**22  # what is made of a header, or of the values of a state, at most
FUZZ = settings(
    deadline=None,
    max_examples=int(os.environ.get("FEDCORE_FUZZ", 300)),
    suppress_health_check=list(HealthCheck),
)
START = struct.Struct("<6sHQ")
CODES = ["b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"]


def survives(decode, data):
    """Decode, and measure; give what was decoded, or None if it was refused."""
    tracemalloc.start()
    try:
        decoded = decode(data, max_bytes=LIMIT)
    except MessageError as error:
        assert 0 < len(str(error)) < 1000
        decoded = None
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    most = STRETCH * len(data) if decode is unpack_state else 0
    assert peak <= HEADER + most < LIMIT
    return decoded


names = st.text("abcxyz_.09", min_size=1, max_size=8)
shapes = st.lists(st.integers(0, 3), max_size=3)


@st.composite
def arrays(draw):
    dtype, shape = draw(st.sampled_from(CODES)), draw(shapes)
    size = int(np.prod(shape))
    if dtype == "b1":
        return np.resize([True, False], size).reshape(shape)
    data = draw(st.binary(min_size=8 * size, max_size=8 * size))
    return np.frombuffer(data, f"<{dtype}")[:size].reshape(shape).copy()


@st.composite
def messages(draw):
    named = draw(
        st.dictionaries(st.text("abc_.9", max_size=5).map("x{}".format), arrays())
    )
    return pack(named, round=draw(st.integers(0, 2**62)))


texts = st.text(max_size=5)
leaves = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.floats(), texts, arrays()),
    st.floats().map(np.float64),
    st.lists(texts, max_size=3).map(lambda row: np.array(row, object)),
    st.lists(texts, min_size=1, max_size=3).map(np.array),
)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(texts, inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=3),
    ),
    max_leaves=6,
)
states = st.dictionaries(texts, values, max_size=4)


@st.composite
def flipped(draw, whole):
    """Change some bytes of a good one, cut it, or add to it."""
    data = bytearray(draw(whole))
    for _ in range(draw(st.integers(0, 4))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    start, end = draw(st.integers(0, 4)), draw(st.integers(0, len(data)))
    cut = draw(st.sampled_from(["no", "no", "start", "end", "more"]))
    if cut == "start":
        data = data[start:]
    elif cut == "end":
        data = data[:end]
    elif cut == "more":
        data += draw(st.binary(max_size=9))
    return bytes(data)


@st.composite
def forged(draw):
    """Write a header that claims anything, with the right frame around it."""
    lengths = st.one_of(st.integers(-1, 3), st.integers(), st.booleans(), texts)
    entry = st.one_of(
        st.tuples(names, st.sampled_from(CODES), st.lists(lengths, max_size=9)),
        st.lists(st.one_of(names, lengths), max_size=4),
    )
    claimed = {
        "round": draw(lengths),
        "arrays": draw(st.lists(entry, max_size=3)),
    }
    text = draw(
        st.one_of(
            st.just(json.dumps(claimed)),
            st.binary(max_size=60).map(lambda raw: raw.decode("latin-1")),
            st.integers(1, 30000).map(lambda n: "[" * n),
            st.integers(1, 20000).map(lambda n: "[" + "[]," * n + "[]]"),
        )
    ).encode("latin-1")
    text = text.ljust(len(text) + -len(text) % 8)
    length = draw(st.one_of(st.just(len(text)), st.integers(0, 2**64 - 1)))
    return START.pack(b"fedmsg", 1, length) + text + draw(st.binary(max_size=40))


def exact_header(dtype, shape):
    """Write the header of one array as `pack` would, whatever its length."""
    lengths = ",".join(f"{n:19d}" for n in shape)
    text = f'{{"round":{0:19d},"arrays":[["x","{dtype}",[{lengths}]]]}}'.encode()
    text = text.ljust(len(text) + -len(text) % 8)
    return START.pack(b"fedmsg", 1, len(text)) + text


@FUZZ
@given(st.one_of(st.binary(max_size=200), flipped(messages()), forged()))
def test_messages(data):
    decoded = survives(unpack, data)
    if decoded is not None:
        named, fields = decoded
        assert pack(named, **fields) == data


@FUZZ
@given(
    st.sampled_from(CODES),
    st.lists(st.integers(0, 2**62), min_size=1, max_size=8),
    st.binary(max_size=64),
)
def test_claims_of_huge_arrays(dtype, shape, rest):
    decoded = survives(unpack, exact_header(dtype, shape) + rest)
    assert decoded is None or decoded[0]["x"].nbytes == len(rest) - len(rest) % 8


def same(one, other):
    assert type(one) is type(other)
    if isinstance(one, dict):
        assert list(one) == list(other)
        return all(same(a, b) for a, b in zip(one.values(), other.values(), strict=1))
    if isinstance(one, tuple | list):
        return all(same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, np.ndarray):
        assert one.dtype == other.dtype and other.flags.writeable
        assert_array_equal(one, other, strict=True)
        return True
    return one == other or (one != one and other != other)


@FUZZ
@given(states)
def test_states_come_back(state):
    assert same(state, unpack_state(pack_state(state)))


@st.composite
def coded(draw):
    """Write a state whose values are any JSON, with any arrays beside them."""
    words = ["array", "fortran", "view", "strings", "objects", "scalar", "tuple"]
    words += ["list", "dict", "str", "float", "<U1", "<U999999999", "|S1", "<M8[ns]"]
    bits = st.recursive(
        st.one_of(st.sampled_from(words), st.integers(), st.none(), st.floats(), texts),
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=2)
        ),
        max_leaves=8,
    )
    tagged = st.tuples(st.sampled_from(words), bits) | st.tuples(
        st.sampled_from(words), bits, bits
    )
    code = draw(st.dictionaries(texts, bits | tagged, max_size=4))
    text = json.dumps(code).encode("latin-1")
    content = {"json": np.frombuffer(text, np.uint8)}
    rows = draw(st.lists(arrays(), max_size=3))
    return pack(content | {f"a{place}": row for place, row in enumerate(rows)})


@FUZZ
@given(st.one_of(flipped(states.map(pack_state)), coded(), flipped(coded())))
def test_forged_states(data):
    survives(unpack_state, data)


def test_the_declared_limit_is_kept():
    data = pack({"x": np.zeros(1000)})
    with pytest.raises(MessageError, match=f"message has {len(data)} bytes, expected"):
        unpack(data, max_bytes=len(data) - 1)
    with pytest.raises(MessageError, match="expected 16 to 100"):
        unpack_state(pack_state({"x": np.zeros(1000)}), max_bytes=100)


@pytest.mark.parametrize("deep", [10, 25, 10**4])
def test_values_are_not_nested_without_end(deep):
    text = b'{"x":' + b'["tuple",[' * deep + b"]]" * deep + b"}"
    if deep < 20:
        assert survives(unpack_state, pack({"json": np.frombuffer(text, np.uint8)}))
    else:
        assert not survives(unpack_state, pack({"json": np.frombuffer(text, np.uint8)}))


@pytest.mark.parametrize(
    "value, match",
    [
        (object(), "x is a object, expected numbers"),
        ({"y": {1, 2}}, r"x.y is a set, expected"),
        (np.array([1j]), "x is an array of complex128, expected numbers, strings or"),
        (np.array([[None]]), r"x is an array of objects of shape \(1, 1\), expected a"),
        (list(range(10**5)), "state has [0-9]+ bytes beside its arrays, at most 65536"),
    ],
    ids=str,
)
def test_what_no_state_holds_is_named(value, match):
    with pytest.raises(MessageError, match=match):
        pack_state({"x": value})
