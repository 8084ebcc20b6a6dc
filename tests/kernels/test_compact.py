"""Renumbered columns against np.unique of each client's own."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse

from fedcore._kernels._compact import compact


def arguments(offsets, indptr, indices, n_columns, constant):
    """All that `compact` takes; results are filled with nonsense."""
    K, nnz = len(offsets) - 1, len(indices)
    return {
        "offsets": np.array(offsets, np.int64),
        "indptr": np.array(indptr, np.int32),
        "indices": np.array(indices, np.int32),
        "n_columns": n_columns,
        "constant": constant,
        "place": np.full(n_columns, 77, np.int32),
        "bits": np.zeros(n_columns // 64 + 1, np.uint64),
        "local": np.full(nnz, -9, np.int32),
        "columns": np.full(nnz + constant * K, -9, np.int32),
        "starts": np.full(K + 1, -9, np.int64),
    }


def check(given):
    """Compare with np.unique, client by client."""
    length = compact(*given.values())
    starts, columns, local = given["starts"], given["columns"], given["local"]
    assert length == starts[-1]
    assert starts[0] == 0
    for k in range(len(starts) - 1):
        ends = given["indptr"][given["offsets"][k : k + 2]]
        used, places = np.unique(given["indices"][slice(*ends)], return_inverse=True)
        if given["constant"]:
            used = np.append(used, given["n_columns"])
        assert_array_equal(columns[starts[k] : starts[k + 1]], used)
        assert_array_equal(local[slice(*ends)], places)
    assert not given["bits"].any()


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 5), max_size=6),
    # From 64 on words of the bit map are skipped, from 512 on short lists sorted.
    st.sampled_from([1, 2, 63, 64, 65, 500, 512, 5000]),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.booleans(),
    st.integers(0, 2**32),
)
def test_lists_are_the_columns_of_each_client(sizes, d, density, constant, seed):
    rng = np.random.default_rng(seed)
    X = sparse.csr_array(rng.random((sum(sizes), d)) < density * rng.random())
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    check(arguments(offsets, X.indptr, X.indices, d, constant))


@pytest.mark.parametrize("constant", [False, True])
def test_unsorted_and_repeated_columns(constant):
    indices = [5, 1, 5, 0, 9, 9, 3]
    check(arguments([0, 1, 3], [0, 3, 4, 7], indices, 10, constant))
    check(arguments([0, 1, 3], [0, 3, 4, 7], indices, 100_000, constant))


def test_no_clients_rows_or_columns():
    for constant in (False, True):
        for d in (0, 3, 1000):
            check(arguments([0], [0], [], d, constant))
            check(arguments([0, 0, 2, 2], [0, 0, 0], [], d, constant))


def test_the_last_column_of_a_wide_matrix():
    given = arguments([0, 2], [0, 1, 3], [2**20 - 1, 0, 2**20 - 1], 2**20, True)
    check(given)
    assert_array_equal(given["columns"][:3], [0, 2**20 - 1, 2**20])


def test_read_only_input_is_enough():
    given = arguments([0, 1], [0, 2], [4, 2], 5, True)
    for name in ("offsets", "indptr", "indices"):
        given[name].flags.writeable = False
    check(given)


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("offsets", 0),
        ("offsets", 2),
        ("offsets", 4),
        ("indptr", 0),
        ("indptr", 3),
        ("indptr", 5),
        ("indices", 6),
        ("indices", 8),
        ("local", 6),
        ("local", 8),
        ("place", 9),
        ("bits", 0),
        ("columns", 8),
        ("starts", 2),
        ("starts", 4),
    ],
)
def test_wrong_lengths_are_refused(name, length):
    given = arguments([0, 1, 3], [0, 3, 4, 7], [5, 1, 5, 0, 9, 9, 3], 10, True)
    given[name] = np.resize(given[name], length)
    with pytest.raises(ValueError, match="compact: array lengths disagree"):
        compact(*given.values())
