"""Top-tau selection against a full sort, ties included; hard_threshold on top of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcore import hard_threshold
from fedcore._kernels._select import top_f32, top_f64
from fedcore.iht.reference import top as reference_top
from fedcore.iht.threshold import top, top_pairs

KINDS = ("normal", "coarse", "mostly zero", "wide", "last bits", "denormal")


def vector(seed, n, kind, dtype):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(n)
    if kind == "coarse":
        x = np.round(2 * x)
    elif kind == "mostly zero":
        x[rng.random(n) < 0.95] = 0
    elif kind == "wide":
        x = np.clip(x * np.exp(20 * rng.standard_normal(n)), -1e38, 1e38)
    elif kind == "last bits":
        x = 1 + np.round(4 * x) * 2**-50
    elif kind == "denormal":
        x = np.round(4 * x) * 5e-324
    return x.astype(dtype)


@settings(deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 2, 33, 1000, 4096, 4097, 9001]),
    st.sampled_from(KINDS),
    st.sampled_from([np.float64, np.float32]),
    st.floats(0, 1.1),
    st.integers(0, 2**31 - 1),
    st.booleans(),
)
def test_the_largest_win_and_then_the_first(seed, n, kind, dtype, part, hint, placed):
    x, tau = vector(seed, n, kind, dtype), int(part * n)
    place = np.random.default_rng(seed).permutation(n).astype(np.int32)
    place = place if placed else None
    expected = reference_top(x.tolist(), tau, place)
    out = np.full(tau, -9, np.int32)
    m = (top_f64 if dtype is np.float64 else top_f32)(x, tau, out, hint, place)
    assert_array_equal(out[:m], expected)
    assert_array_equal(top(x, tau, place), expected)


def test_ties_at_the_cut_fall_to_the_lowest_index():
    assert_array_equal(hard_threshold([1, 1, 1, 0], 2), [1, 1, 0, 0])
    x = np.repeat([1.0, -2.0, 1.0], 5000)
    kept = hard_threshold(x, 7000)
    assert_array_equal(np.flatnonzero(kept), [*range(2000), *range(5000, 10000)])


def test_threshold_keeps_shape_type_and_the_given_array():
    x = np.array([[1, -5, 2], [0, 3, -4]], np.float32)
    x.flags.writeable = False
    kept = hard_threshold(x, 3)
    assert kept.dtype == np.float32
    assert_array_equal(kept, [[0, -5, 0], [0, 3, -4]])
    assert_array_equal(hard_threshold(np.asfortranarray(x), 3), kept)
    assert_array_equal(hard_threshold(x, 0), np.zeros((2, 3)))
    assert_array_equal(hard_threshold(x, 99), x)
    assert hard_threshold(np.empty(0), 2).shape == (0,)


def test_pairs_keep_their_places():
    index, value = np.array([4, 9, 11], np.int32), np.array([1.0, -1.0, 0.5])
    index, value = top_pairs(index, value, 1)
    assert (index.tolist(), value.tolist()) == ([4], [1.0])


@pytest.mark.parametrize("n_nonzero", [-1, 2.0, "3", None])
def test_no_number_of_entries_is_refused(n_nonzero):
    with pytest.raises((TypeError, ValueError), match="n_nonzero"):
        hard_threshold(np.ones(3), n_nonzero)


def test_nan_is_refused():
    with pytest.raises(ValueError, match="x contains NaN"):
        hard_threshold([1.0, np.nan], 1)


def test_wrong_lengths_are_refused():
    x, short = np.ones(5), np.empty(2, np.int32)
    with pytest.raises(ValueError, match="top: array lengths disagree"):
        top_f64(x, 3, short)
    with pytest.raises(ValueError, match="top: array lengths disagree"):
        top_f64(x, 2, short, 0, np.arange(4, dtype=np.int32))
