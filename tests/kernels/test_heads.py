"""Heads in C against heads in NumPy."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedcore._kernels import _heads
from fedcore.graph_mtl import reference

LOSSES = ("squared", "logistic", "softmax")


def problem(loss, r=5):
    rng = np.random.default_rng(0)
    sizes = np.array([1, 2, 7, 16, 33, 60])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    n, K, C = starts[-1], len(sizes), 3 if loss == "softmax" else 1
    H = 3 * rng.standard_normal((n, r))
    y = rng.integers(C if C > 1 else 2, size=n).astype(float)
    if loss == "squared":
        y = rng.standard_normal(n)
    owner = np.repeat(np.arange(K), sizes)
    weight = rng.random(n)
    weight /= np.bincount(owner, weight)[owner]
    A, c = rng.standard_normal((K, r, C)), rng.standard_normal((K, C))
    return starts, H, y, weight, rng.random(K), A, c


@pytest.mark.parametrize("n_steps", [1, 2, 30])
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_are_those_of_the_reference(loss, n_steps):
    starts, H, y, weight, l2, A, c = problem(loss)
    expected, shift = A.copy(), c.copy()
    labels = y if loss == "squared" else y.astype(int)
    reference.steps(loss, starts, H, labels, weight, l2, expected, shift, n_steps)
    _heads.steps(LOSSES.index(loss), starts, H, y, weight, l2, A, c, n_steps)
    assert_allclose(A, expected, rtol=1e-10, atol=1e-13)
    assert_allclose(c, shift, rtol=1e-10, atol=1e-13)


def test_ridge_is_that_of_the_reference():
    starts, H, y, weight, l2, A, c = problem("squared")
    expected, shift = A.copy(), c.copy()
    reference.ridge(starts, H, y, weight, l2, expected, shift)
    assert _heads.ridge(starts, H, y, weight, l2, A, c) == 0
    assert_allclose(A, expected, rtol=1e-9, atol=1e-12)
    assert_allclose(c, shift, rtol=1e-9, atol=1e-12)


def test_codes_that_are_all_the_same_get_the_mean():
    H, y, weight = np.ones((4, 2)), np.arange(4.0), np.full(4, 0.25)
    A, c = np.ones((1, 2, 1)), np.ones((1, 1))
    _heads.ridge(np.array([0, 4]), H, y, weight, np.zeros(1), A, c)
    assert_allclose(A, 0)
    assert_allclose(c, 1.5)


def test_scores_beyond_the_floats_stay_probabilities():
    starts, H, y, weight, l2, A, c = problem("logistic")
    A *= 1e4
    _heads.steps(1, starts, H, y, weight, l2, A, c, 1)
    assert np.isfinite(A).all()


def test_lengths_that_disagree_are_refused():
    starts, H, y, weight, l2, A, c = problem("squared")
    with pytest.raises(ValueError, match="lengths disagree"):
        _heads.steps(0, starts, H, y[1:], weight, l2, A, c, 1)
    with pytest.raises(ValueError, match="starts fall"):
        _heads.steps(0, starts[[0, 2, 1, 3, 4, 5, 6]], H, y, weight, l2, A, c, 1)
