"""Barycenter kernel: products, spread and turns as in plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

from fedcore._kernels._barycenter import barycenter, complete, gathered_mean, spread
from fedcore.dadil import reference

sizes = st.tuples(
    st.integers(1, 5), st.integers(1, 70), st.integers(1, 4), st.integers(1, 3)
)


def atoms(seed, K, n, d, c):
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (K, n, d)) + 0.5 * rng.standard_normal((K, n, d))
    Y = np.eye(c)[rng.integers(c, size=(K, n))]
    weights = rng.dirichlet(np.ones(K))
    return X, Y, weights / weights.sum()


def lower(X):
    flat = X.reshape(-1, X.shape[2])
    return np.tril(flat @ flat.T)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), sizes, st.floats(0, 9))
def test_the_gram_matrix_is_completed_with_labels(seed, size, weight):
    X, Y, _ = atoms(seed, *size)
    gram, flat = lower(X), Y.reshape(-1, Y.shape[2])
    expected = X.reshape(-1, X.shape[2]) @ X.reshape(-1, X.shape[2]).T
    complete(gram, np.ascontiguousarray(flat.T), weight)
    assert_allclose(gram, expected + weight * flat @ flat.T, atol=1e-12)
    assert_array_equal(gram, gram.T)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), sizes, st.data())
def test_the_spread_is_the_largest_distance_of_the_first_atom(seed, size, data):
    X, _, _ = atoms(seed, *size)
    first = data.draw(st.integers(0, len(X) - 1))
    expected = max(cdist(X[first], X_k, "sqeuclidean").max() for X_k in X)
    assert_allclose(spread(lower(X), len(X), first), expected, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), sizes)
def test_turns_are_those_of_plain_numpy(seed, size):
    X, Y, weights = atoms(seed, *size)
    K, n, _, _ = size
    gram = lower(X)
    complete(gram, np.ascontiguousarray(Y.reshape(K * n, -1).T), 2.0)
    s, objective = np.empty((K, n), np.int32), np.empty(10)
    first = int(np.argmax(weights))
    turns = barycenter(gram, weights, first, 1e-9, s, objective)
    *_, expected, _ = reference.barycenter(X, Y, weights, 2.0)
    assert_allclose(objective[0], expected[0], rtol=1e-9, atol=1e-11)
    assert (np.diff(objective[:turns]) <= 1e-9 * (1 + objective[0])).all()
    assert all(sorted(row) == list(range(n)) for row in s.tolist())
    points = np.empty((n, X.shape[2]))
    gathered_mean(X, weights, s, points)
    own = sum(w * X_k[s_k] for w, X_k, s_k in zip(weights, X, s, strict=True))
    assert_allclose(points, own, atol=1e-13)
    gathered_mean(X.astype(np.float32), weights, s, points)
    assert_allclose(points, own, atol=1e-5)


def test_rows_a_page_long_are_solved_too():
    X, Y, weights = atoms(0, 2, 512, 2, 2)
    gram = lower(X)
    complete(gram, np.ascontiguousarray(Y.reshape(1024, -1).T), 1.0)
    s, objective = np.empty((2, 512), np.int32), np.empty(1)
    assert barycenter(gram, weights, int(np.argmax(weights)), 0.0, s, objective) == 1
    *_, expected, _ = reference.barycenter(X, Y, weights, 1.0, max_iter=1)
    assert_allclose(objective[0], expected[0], rtol=1e-9)


def test_what_is_not_finite_is_told():
    gram = np.full((4, 4), np.inf)
    s, objective = np.empty((2, 2), np.int32), np.empty(3)
    assert barycenter(gram, np.array([0.5, 0.5]), 0, 1e-9, s, objective) == -1


@pytest.mark.parametrize(
    "call",
    [
        lambda: spread(np.ones((4, 4)), 3, 0),
        lambda: spread(np.ones((4, 4)), 2, 2),
        lambda: complete(np.ones((4, 4)), np.ones((1, 3)), 1.0),
        lambda: barycenter(
            np.ones((4, 4)), np.ones(3), 0, 0.0, np.ones((2, 2), np.int32), np.ones(2)
        ),
        lambda: gathered_mean(
            np.ones((2, 2, 1)), np.ones(2), np.ones((2, 3), np.int32), np.ones((2, 1))
        ),
    ],
)
def test_arrays_that_disagree_are_refused(call):
    with pytest.raises(ValueError, match="array lengths disagree"):
        call()
