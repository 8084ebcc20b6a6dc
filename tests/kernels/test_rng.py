"""The Philox kernel against the same functions in plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from fedcore._kernels import _rng

WORD = 2**32
NAMES = (
    st.integers(0, 2**64 - 1),
    st.integers(0, _rng.MAX_ROUND),
    st.integers(0, 255),
    st.integers(0, 2**31 - 50),
)


def philox(counter, key):
    """Philox-4x32-10, as in Salmon et al. (2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c0, WORD)
        high1, low1 = divmod(0xCD9E8D57 * c2, WORD)
        c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
    return c0, c1, c2, c3


def words(seed, round, purpose, client):
    """Yield the words of one stream."""
    for block in range(WORD):
        counter = block, client, purpose * 2**24 + round, 0
        yield from philox(counter, (seed % WORD, seed // WORD))


def below(stream, n):
    """Draw one of 0 .. n - 1, leaving out the words that would favour some."""
    while (product := next(stream) * n) % WORD < WORD % n:
        pass
    return product // WORD


def test_reference_gives_the_published_vectors():
    # Random123's known answers; the last input is the digits of pi.
    ones = WORD - 1
    counter = 0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344
    assert philox((0,) * 4, (0,) * 2) == (
        *(0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8),
    )
    assert philox((ones,) * 4, (ones,) * 2) == (
        *(0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD),
    )
    assert philox(counter, (0xA4093822, 0x299F31D0)) == (
        *(0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    )


@settings(deadline=None)
@given(*NAMES, st.integers(0, 9))
def test_uniform_is_the_first_double_of_each_client(seed, round, purpose, first, n):
    out = np.empty(n)
    _rng.uniform(seed, round, purpose, first, out)
    for i in range(n):
        stream = words(seed, round, purpose, first + i)
        high, low = next(stream), next(stream)
        assert out[i] == (high * 2**21 + low // 2**11) / 2**53


@settings(deadline=None)
@given(*NAMES, st.integers(0, 40))
def test_permutation_is_a_fisher_yates_shuffle(seed, round, purpose, client, n):
    out = np.empty(n, np.int32)
    _rng.permutation(seed, round, purpose, client, out)
    stream, order = words(seed, round, purpose, client), list(range(n))
    for k in range(n):
        j = k + below(stream, n - k)
        order[k], order[j] = order[j], order[k]
    assert_array_equal(out, order)


def test_draws_do_not_depend_on_how_clients_are_cut():
    whole, parts = np.empty(100), np.empty(100)
    _rng.uniform(1, 2, _rng.SAMPLING, 0, whole)
    for start, stop in [(60, 100), (0, 7), (7, 60)]:
        _rng.uniform(1, 2, _rng.SAMPLING, start, parts[start:stop])
    assert_array_equal(parts, whole)


@pytest.mark.parametrize("draw", [_rng.uniform, _rng.permutation])
def test_limits_are_refused(draw):
    out = np.empty(3, np.int32 if draw is _rng.permutation else float)
    with pytest.raises(ValueError, match="round is 16777216, must be at most 16777215"):
        draw(0, _rng.MAX_ROUND + 1, 0, 0, out)
    with pytest.raises(ValueError, match="purpose is 256, must be at most 255"):
        draw(0, 0, 256, 0, out)
    with pytest.raises(OverflowError):
        draw(2**64, 0, 0, 0, out)


def test_clients_beyond_the_last_are_refused():
    _rng.uniform(0, 0, 0, 2**31 - 3, np.empty(3))
    with pytest.raises(ValueError, match="out ends at number 2147483649"):
        _rng.uniform(0, 0, 0, 2**31 - 2, np.empty(3))
