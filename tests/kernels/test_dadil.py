"""Gradients through permutations, and Adam, as in plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from fedcore._kernels._dadil import adam, scatter
from fedcore.dadil import reference
from fedcore.dadil.steps import Stepper

sizes = st.tuples(st.integers(1, 4), st.integers(1, 20), st.integers(1, 19))


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), sizes)
def test_the_gradient_is_scattered_through_the_permutations(seed, size):
    K, n, d = size
    rng = np.random.default_rng(seed)
    X, B, Q = rng.normal(size=(K, n, d)), *rng.normal(size=(2, n, d))
    alpha, p = rng.dirichlet(np.ones(K)), rng.permutation(n).astype(np.int32)
    s = np.array([rng.permutation(n) for _ in range(K)], np.int32)
    dX, dalpha = rng.normal(size=(K, n, d)), rng.normal(size=K)
    G = 0.7 * (B - Q[p])
    expected, slopes = dX.copy(), dalpha.copy()
    for k in range(K):
        expected[k, s[k]] += alpha[k] * G
        slopes[k] += (G * X[k, s[k]]).sum()
    scatter(0.7, X, B, Q, alpha, s, p, np.empty(d), dX, dalpha)
    assert_allclose(dX, expected, atol=1e-13)
    assert_allclose(dalpha, slopes, atol=1e-12)


@pytest.mark.parametrize("t", [1, 2, 500])
def test_adam_is_that_of_plain_numpy(t):
    rng = np.random.default_rng(t)
    x, g, first, second = rng.normal(size=(4, 37))
    second = np.abs(second)
    own = [z.copy() for z in (x, first, second)]
    reference.adam(own[0], g, own[1:], t, 0.05)
    adam(g, x, first, second, 0.05, t)
    for z, expected in zip((x, first, second), own, strict=True):
        assert_allclose(z, expected, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("label_weight", ["auto", 0.0, 3.0])
@pytest.mark.parametrize("size", [(3, 16, 5, 4, 3), (2, 7, 1, 2, 1), (1, 9, 3, 2, 2)])
def test_a_step_is_that_of_the_reference(size, label_weight):
    K, n, d, c, N = size
    rng = np.random.default_rng(0)
    X, logits = rng.normal(size=(K, n, d)), rng.normal(size=(K, n, c))
    alphas = rng.dirichlet(np.ones(K), N)
    batches = [
        (rng.normal(size=(n, d)), np.eye(c)[rng.integers(c, size=n)] if k else None)
        for k in range(N)
    ]
    ours = [X.copy(), logits.copy(), alphas.copy()]
    theirs = [X.copy(), logits.copy(), alphas.copy()]
    moments = [[(np.zeros_like(Z), np.zeros_like(Z)) for Z in ours] for _ in range(2)]
    stepper = Stepper(K, n, d, c, label_weight=label_weight)
    for t in (1, 2, 3):
        seen = stepper.step(*ours, batches, moments[0], t, 0.05)
        expected = reference.step(
            *theirs, batches, moments[1], t, 0.05, label_weight=label_weight
        )
        assert_allclose(seen, expected, rtol=1e-7)
        for z, other in zip(ours, theirs, strict=True):
            assert_allclose(z, other, atol=1e-7)


@pytest.mark.parametrize(
    "call",
    [
        lambda i: adam(np.ones(2), np.ones(3), np.ones(3), np.ones(3), 0.1, 1),
        lambda i: scatter(
            *(1.0, np.ones((2, 3, 4)), np.ones((3, 4)), np.ones((3, 4)), np.ones(2)),
            *(i((2, 3)), i(4), np.ones(4), np.ones((2, 3, 4)), np.ones(2)),
        ),
    ],
)
def test_arrays_that_disagree_are_refused(call):
    with pytest.raises(ValueError, match="array lengths disagree"):
        call(lambda shape: np.zeros(shape, np.int32))
