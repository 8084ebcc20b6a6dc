"""Messages: their one form, their size, and what is refused."""

import json
import random
import re
import struct
import tracemalloc

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcore.federation.check import check_reply
from fedcore.federation.contract import Choose, Chosen, Each, Entries, Request, Sum
from fedcore.federation.message import (
    MessageError,
    down_size,
    pack,
    packed_size,
    unpack,
    up_size,
)

DTYPES = "? i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 >i2 >i4 >u8 >f4 >f8".split()
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,63}", fullmatch=True)
ARRAYS = st.sampled_from(DTYPES).flatmap(
    lambda dtype: hnp.arrays(
        dtype, hnp.array_shapes(min_dims=0, max_dims=4, min_side=0)
    )
)
MESSAGES = st.dictionaries(NAMES, st.one_of(ARRAYS, ARRAYS.map(np.transpose)))
ROUNDS = st.integers(0, 2**63 - 1)

EXAMPLE = pack(
    {
        "w": np.arange(6.0).reshape(2, 3),
        "on": np.array([True, False, True]),
        "index": np.arange(3, dtype=np.int32),
        "none": np.zeros((0, 4)),
        "step": 0.5,
    },
    round=7,
)


def bare(header, body=b"", *, magic=b"fedmsg", version=1):
    """Write a message with any header."""
    if not isinstance(header, bytes):
        header = json.dumps(header).encode()
    return struct.pack("<6sHQ", magic, version, len(header)) + header + body


def array_header(*entries):
    return {"round": 1, "arrays": list(entries)}


# Laws of the form


@given(MESSAGES, ROUNDS)
def test_unpack_gives_back_what_was_packed(arrays, round):
    data = pack(arrays, round=round)
    back, fields = unpack(data)
    assert fields == {"round": round}
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype.newbyteorder("<")
        assert_array_equal(back[name], array, strict=array.dtype.isnative)
    assert pack(back, round=round) == data


@given(MESSAGES, ROUNDS)
def test_packed_size_is_the_length(arrays, round):
    specs = {name: (array.shape, array.dtype) for name, array in arrays.items()}
    assert packed_size(specs) == len(pack(arrays, round=round))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (True, "bool"),
        (-3, "int64"),
        (2.5, "float64"),
        (np.float32(2.5), "float32"),
        ([[1, 2]], "int64"),
    ],
)
def test_numbers_and_lists_travel_as_arrays(value, dtype):
    back = unpack(pack({"x": value}))[0]["x"]
    assert back.dtype == dtype
    assert back.tolist() == value


def test_size_does_not_depend_on_values():
    small, big = {"n": 0, "x": 0.0}, {"n": 2**63 - 1, "x": 1e-300}
    assert len(pack(small)) == len(pack(big, round=2**63 - 1))


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview, np.frombuffer])
def test_unpacked_arrays_are_aligned_read_only_views(kind):
    data = np.frombuffer(EXAMPLE, np.uint8) if kind is np.frombuffer else kind(EXAMPLE)
    whole = np.frombuffer(data, np.uint8)
    for array in unpack(data)[0].values():
        assert not array.flags.writeable
        assert array.flags.c_contiguous
        if array.size:
            assert np.shares_memory(array, whole)
            assert (array.ctypes.data - whole.ctypes.data) % 8 == 0


def test_special_values_keep_their_bits():
    bits = np.array([0x7FF8000000000123, 0xFFF0000000000000, 1 << 63], np.uint64)
    back = unpack(pack({"x": bits.view(np.float64)}))[0]["x"]
    assert_array_equal(back.view(np.uint64), bits)


# What one client gets and sends


def test_down_size_is_that_of_all_and_one_row():
    rows, table, index = np.ones((5, 3)), np.ones((2, 4), np.int32), np.zeros(5, int)
    shared = {"w": np.ones((2, 3), order="F"), "step": 0.5, "last": False}
    request = Request(all=shared, reply={}, each={"s": rows, "z": (table, index)})
    one = shared | {"s": rows[2], "z": table[index[2]]}
    assert down_size(request) == len(pack(one))


def test_up_size_is_that_of_the_reply_as_sent():
    kinds = {"ds": Sum((4, 3)), "gap": Each((2,)), "best": Choose((5,))}
    assert up_size(kinds) == len(
        pack(
            {
                "ds": np.zeros((4, 3)),
                "gap": np.zeros(2),
                "best.key": 0.0,
                "best.value": np.zeros(5),
            }
        )
    )


@pytest.mark.parametrize(
    ("length", "index"), [(2**31 - 1, np.int32), (2**31, np.int64)]
)
def test_up_size_of_entries_follows_their_counts(length, index):
    kinds = {"g": Sum((length, 2), sparse=True), "n": Sum(())}
    sizes = [
        len(pack({"g.index": np.zeros(m, index), "g.rows": np.zeros((m, 2)), "n": 1.0}))
        for m in range(6)
    ]
    assert_array_equal(up_size(kinds, {"g": np.arange(6)}), sizes)
    assert [up_size(kinds, {"g": m}) for m in range(6)] == sizes


# What is not a message


def accepted(data):
    """Tell whether `data` is read; if so it must be what `pack` writes."""
    try:
        arrays, fields = unpack(data)
    except MessageError as error:
        assert len(str(error)) < 400
        return False
    assert pack(arrays, **fields) == bytes(data)
    return True


def test_every_shortened_or_extended_message_is_refused():
    assert accepted(EXAMPLE)
    assert not any(accepted(EXAMPLE[:n]) for n in range(len(EXAMPLE)))
    assert not any(accepted(EXAMPLE + bytes(n)) for n in range(1, 20))


def test_every_flipped_byte_is_refused_or_a_message_of_its_own():
    data = bytearray(EXAMPLE)
    rng = np.random.default_rng(0)
    for place, right in enumerate(EXAMPLE):
        for wrong in rng.choice(256, 24, replace=False):
            data[place] = wrong
            accepted(data)
        data[place] = right


@settings(max_examples=1000, deadline=None)
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes_are_refused(noise, started):
    assert not accepted(bare(noise) if started else noise)


def some_json(rng, depth=3):
    """Draw a value that a hostile header may have in any place."""
    if depth and rng.random() < 0.5:
        inner = [some_json(rng, depth - 1) for _ in range(rng.randrange(4))]
        keys = rng.sample(["round", "arrays", "", "w"], len(inner))
        return inner if rng.random() < 0.7 else dict(zip(keys, inner, strict=True))
    plain = [None, True, -1, 0, 3, 2**31, 2**63, 10**400, 0.5, np.inf, "w", "f8", "O"]
    return rng.choice(plain)


def test_headers_of_any_json_are_refused():
    rng = random.Random(0)
    for _ in range(2000):
        value, array, shape = (some_json(rng) for _ in range(3))
        for header in [
            value,
            {"round": value, "arrays": array},
            array_header(value, array),
            array_header([value, "f8", shape], ["w", array, [2]]),
            array_header(["w", "f8", [value, shape]]),
        ]:
            assert not accepted(bare(header, bytes(16)))


def entry(name="w", dtype="f8", shape=(2,)):
    return bare(array_header([name, dtype, list(shape)]), bytes(16))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "message has 0 bytes, expected 16 to"),
        (EXAMPLE[::-1], "message starts with"),
        (memoryview(EXAMPLE)[::2], "message is not a row of bytes"),
        (b"fedmsg" + b"\2" + bytes(20), "message has version 2, expected 1"),
        (bare(b"")[:8] + b"\xff" * 8, "header has 18446744073709551615 bytes"),
        (bare(bytes(2**16 + 8)), "header has 65544 bytes, expected at most 65536"),
        (bare(b"\xff"), "header is not JSON"),
        (bare(b"{"), "header is not JSON"),
        (bare(b"[" * 60000), "header is not JSON"),
        (bare(b"9" * 60000), "header is not JSON"),
        (bare(b"[" * 900 + b"]" * 900), "expected round and arrays"),
        (bare({"arrays": []}), "expected round and arrays"),
        (bare(array_header(["w", "f8"])), "expected name, dtype and shape"),
        (entry(shape=[2.0]), "expected name, dtype and shape"),
        (entry(shape=[True]), "expected name, dtype and shape"),
        (bare({"round": -1, "arrays": []}), "round is -1, expected 0 to"),
        (bare({"round": 2**63, "arrays": []}), "round is 9223372036854775808"),
        (entry(name=""), "name '', expected at most 64"),
        (entry(name="w" * 65), "name 'wwww"),
        (entry(name='w"'), "expected at most 64 letters"),
        (entry(dtype="O"), "w has dtype O, expected one of b1, i1"),
        (entry(dtype="U3"), "w has dtype U3"),
        (entry(dtype="f2"), "w has dtype f2"),
        (entry(shape=[1] * 9), "w has 9 dimensions, expected at most 8"),
        (entry(shape=[-1, -2]), "expected lengths of at least 0"),
        (entry(shape=[2**32, 2**31]), "and less than 2**63 bytes"),
        (entry(shape=[0, 2**62, 2**62]), "and less than 2**63 bytes"),
        (bare(array_header(*[["w", "f8", [0]]] * 2)), "name w twice, expected once"),
        (bare(array_header()), "header is not written as `pack` writes it"),
        (EXAMPLE[:-8], r"its header tells"),
        (EXAMPLE + bytes(8), r"its header tells"),
        (pack({"on": [True]})[:-8] + b"\2" + bytes(7), "on has bools other than 0"),
        (pack({"on": [True]})[:-1] + b"\1", "on is followed by padding"),
    ],
)
def test_what_is_malformed_is_named(data, complaint):
    with pytest.raises(MessageError, match=re.escape(complaint)):
        unpack(data)


def test_a_message_longer_than_the_limit_is_refused():
    unpack(EXAMPLE, max_bytes=len(EXAMPLE))
    with pytest.raises(MessageError, match=f"expected 16 to {len(EXAMPLE) - 1}"):
        unpack(EXAMPLE, max_bytes=len(EXAMPLE) - 1)


def test_nothing_is_allocated_on_the_word_of_a_header():
    there = EXAMPLE.index(b"[                  2") + 1
    data = EXAMPLE[:there] + b"%19d" % 10**15 + EXAMPLE[there + 19 :]
    tracemalloc.start()
    try:
        with pytest.raises(MessageError, match="its header tells 2400000"):
            unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 10**5
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"a b": 1}, "name 'a b', expected"),
        ({3: 1}, "name 3, expected"),
        ({"x": 2**63}, "x is no array"),
        ({"x": [[1], [1, 2]]}, "x is no array"),
        ({"x": "text"}, "x has dtype U4, expected one of"),
        ({"x": None}, "x has dtype O, expected one of"),
        ({"x": 1j}, "x has dtype c16, expected one of"),
        ({"x": np.zeros((1,) * 9)}, "x has 9 dimensions"),
        ({f"x{i}": 0 for i in range(9999)}, "at most 65536 fit"),
    ],
)
def test_what_cannot_be_sent_is_named(arrays, complaint):
    with pytest.raises(MessageError, match=complaint):
        pack(arrays)


def test_sizes_that_cannot_be_told_are_named():
    with pytest.raises(MessageError, match=r"\['w'\] in both all and each"):
        down_size(Request(all={"w": 1}, reply={}, each={"w": np.zeros(3)}))
    with pytest.raises(MessageError, match="entries_counts lacks g, a sparse Sum"):
        up_size({"g": Sum((3,), sparse=True)}, {})
    with pytest.raises(MessageError, match="x has dtype c16"):
        packed_size({"x": ((), complex)})


# Replies

KINDS = {
    "ds": Sum((2, 3)),
    "g": Sum((9, 2), sparse=True),
    "gap": Each((2,)),
    "best": Choose((4,)),
    "n": Sum(()),
}


def entries(index=(7, 1, 4), rows=None, counts=(2, 0, 3, 1)):
    rows = np.ones((len(index), 2)) if rows is None else rows
    return Entries(np.array(index), rows, np.array(counts))


def reply(**changes):
    right = {
        "ds": np.ones((2, 3)),
        "g": entries(),
        "gap": np.ones((4, 2)),
        "best": Chosen(0.5, 3, np.ones(4)),
        "n": 2.0,
    }
    return right | changes


def test_right_replies_pass():
    check_reply(KINDS, reply(), 4)
    check_reply(KINDS, reply(g=entries(index=np.zeros(0, np.int32))), 4)
    check_reply(KINDS, reply(ds=np.full((2, 3), -1e308), n=np.array(2.0)), 4)
    check_reply(KINDS, reply(best=Chosen(np.inf, np.int64(0), np.ones(4))), 4)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (None, "reply is of type NoneType, expected a dict"),
        ({"ds": 1.0}, "reply has ['ds'], expected ['best', 'ds', 'g', 'gap', 'n']"),
        (reply(more=1.0), "reply has ['best', 'ds', 'g', 'gap', 'more', 'n']"),
        (
            reply(ds=np.ones((3, 2))),
            "reply ds is float64 of shape (3, 2), expected float64 of shape (2, 3)",
        ),
        (reply(ds=np.ones((2, 3), int)), "reply ds is int64 of shape (2, 3)"),
        (reply(ds=[[1.0]]), "reply ds is of type list, expected float64"),
        (reply(ds=np.full((2, 3), np.nan)), "reply ds has 6 values that are not"),
        (reply(n=np.inf), "reply n has 1 values that are not finite, expected none"),
        (reply(n=3), "reply n is of type int, expected float64 of shape ()"),
        (reply(gap=np.ones((3, 2))), "reply gap is float64 of shape (3, 2), expected"),
        (reply(g=np.ones((9, 2))), "reply g is float64 of shape (9, 2), expected Ent"),
        (reply(g=entries(index=[[1]])), "reply g.index is int64 of shape (1, 1)"),
        (reply(g=entries(index=[0.0])), "reply g.index is float64 of shape (1,)"),
        (reply(g=entries(index=[9, 1])), "reply g.index goes from 1 to 9, expected 0"),
        (reply(g=entries(index=[-1])), "reply g.index goes from -1 to -1, expected 0"),
        (reply(g=entries(index=[2, 5, 2])), "reply g.index has repeated places"),
        (reply(g=entries(rows=np.ones(3))), "reply g.rows is float64 of shape (3,)"),
        (reply(g=entries(rows=np.full((3, 2), np.inf))), "reply g.rows has 6 values"),
        (reply(g=entries(counts=[1])), "reply g.counts has 1 entries, expected 4"),
        (reply(g=entries(counts=[0, 0, 0, 10])), "reply g.counts goes from 0 to 10"),
        (reply(best=1.0), "reply best is of type float, expected Chosen"),
        (reply(best=Chosen(np.nan, 0, np.ones(4))), "reply best has key nan, expected"),
        (reply(best=Chosen("a", 0, np.ones(4))), "reply best has key a, expected"),
        (reply(best=Chosen(0.0, -1, np.ones(4))), "reply best has client -1, expected"),
        (reply(best=Chosen(0.0, 0, np.ones(3))), "reply best is float64 of shape (3,)"),
    ],
)
def test_a_wrong_reply_is_named(wrong, complaint):
    with pytest.raises(MessageError, match=re.escape(complaint)):
        check_reply(KINDS, wrong, 4)
