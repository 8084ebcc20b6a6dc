"""Barycenters and distances: against plain NumPy, laws, what users of POT met."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fedcore.dadil import reference
from fedcore.ot import emd_batch, labelled_barycenter, wasserstein_batch


def atoms(seed, K=3, n=20, d=4, c=3):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((K, n, d)) + rng.standard_normal((K, 1, d))
    return X, rng.dirichlet(np.ones(c), (K, n)), rng.dirichlet(np.ones(K)), rng


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from([2, 3, 4]),
    st.sampled_from([1, 2, 17]),
    st.sampled_from([1, 2, 30]),
    st.sampled_from(["auto", 0.0, 0.7]),
)
def test_the_barycenter_is_that_of_plain_numpy(seed, K, n, d, label_weight):
    X, Y, alpha, _ = atoms(seed, K, n, d)
    ours = labelled_barycenter(X, Y, alpha, label_weight=label_weight)
    X_B, Y_B, s, objective, beta = reference.barycenter(X, Y, alpha, label_weight)
    assert_allclose(ours.objective, objective, rtol=1e-9, atol=1e-12)
    assert_allclose(ours.label_weight, beta, rtol=1e-12)
    assert_array_equal(ours.assignments, s)
    assert_allclose(ours.X, X_B, atol=1e-12)
    assert_allclose(ours.Y, Y_B, atol=1e-12)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e3, 1e6]))
def test_the_objective_never_rises_wherever_the_origin_is(seed, origin):
    X, Y, alpha, _ = atoms(seed, n=30)
    here = labelled_barycenter(X, Y, alpha)
    assert (np.diff(here.objective) <= 1e-12 * here.objective[0]).all()
    there = labelled_barycenter(X + origin, Y, alpha)
    assert_allclose(there.X - origin, here.X, atol=1e-15 * origin + 1e-12)


def test_a_barycenter_of_one_atom_is_that_atom():
    X, Y, _, _ = atoms(0)
    for k, alpha in enumerate(np.eye(3)):
        B = labelled_barycenter(X, Y, alpha)
        assert_array_equal(B.X, X[k])
        assert_array_equal(B.Y, Y[k])
        assert_allclose(B.objective, 0, atol=1e-12)


def test_float32_and_lists_are_near_float64():
    X, Y, alpha, _ = atoms(3)
    full = labelled_barycenter(X, Y, alpha)
    single = labelled_barycenter(X.astype("f4"), Y.astype("f4"), alpha.astype("f4"))
    assert_allclose(single.X, full.X, atol=1e-5)
    lists = labelled_barycenter(X.tolist(), Y.tolist(), alpha.tolist())
    assert_array_equal(lists.X, full.X)
    turned = labelled_barycenter(np.asfortranarray(X), Y[:, ::1], alpha)
    assert_array_equal(turned.X, full.X)


def test_weights_are_rounded_or_refused():
    """POT 342 and 12."""
    X, Y, _, _ = atoms(4)
    third = labelled_barycenter(X, Y, np.full(3, 1 / 3, "f4"))
    assert_allclose(third.X, labelled_barycenter(X, Y, np.full(3, 1 / 3)).X, atol=1e-12)
    with pytest.raises(ValueError, match=r"weights sums to 2.0, expected 1"):
        labelled_barycenter(X, Y, [1, 0.5, 0.5])
    with pytest.raises(ValueError, match="weights has a negative entry"):
        labelled_barycenter(X, Y, [1.5, -0.5, 0])
    with pytest.raises(ValueError, match=r"weights.shape == \(2,\)"):
        labelled_barycenter(X, Y, [0.5, 0.5])
    with pytest.raises(ValueError, match="Y_weights sums to 2"):
        wasserstein_batch(X, X, Y_weights=np.full(20, 0.1))


def test_uniform_weights_of_float32_solve_as_none():
    """POT 342."""
    X, _, _, rng = atoms(5)
    Y = rng.standard_normal(X.shape)
    w = np.full(20, 1 / 20, np.float32)
    assert_allclose(
        wasserstein_batch(X, Y, X_weights=w, Y_weights=w).cost,
        wasserstein_batch(X, Y).cost,
        rtol=1e-12,
    )


def test_sets_of_different_sizes_go_to_pot():
    X, _, _, _ = atoms(6)
    Y = np.repeat(X + 1, 2, axis=1)
    solved = wasserstein_batch(X, Y)
    assert_allclose(solved.cost, wasserstein_batch(X, X + 1).cost, rtol=1e-12)
    assert_allclose(solved.plan.sum(2), 1 / 20, atol=1e-12)
    C = ((X[:, :, None] - Y[:, None]) ** 2).sum(-1)
    assert (solved.u[:, :, None] + solved.v[:, None] <= C + 1e-9).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_set_is_at_no_distance_of_itself(dtype):
    """POT 695 and 667."""
    X = np.random.default_rng(7).standard_normal((2, 50, 3)).astype(dtype) + 1000
    X[:, 1] = X[:, 0]
    cost = wasserstein_batch(X, X.copy()).cost
    assert (cost >= 0).all()
    assert_allclose(cost, 0, atol=1e-12)
    _, dX, dlogits, dalpha, _ = reference.loss_and_gradient(
        X, np.zeros((2, 50, 2)), np.array([0.5, 0.5]), X[0]
    )
    assert all(np.isfinite(g).all() for g in (dX, dlogits, dalpha))


def test_integer_points_are_not_truncated():
    X, Y = np.array([[[0], [3]]]), np.array([[[1], [5]]])
    assert_allclose(wasserstein_batch(X, Y).cost, [2.5])


@pytest.mark.parametrize("shape", [(0, 3, 2), (2, 0, 2), (2, 3, 0)])
def test_empty_arrays_are_refused(shape):
    """POT 0.9.7 crashed."""
    X = np.empty(shape)
    for call in (
        lambda: wasserstein_batch(X, X),
        lambda: labelled_barycenter(X, X, [0.5, 0.5]),
        lambda: wasserstein_batch(np.ones((1, 2, 2)), X),
    ):
        with pytest.raises(ValueError, match="expected no empty dimension"):
            call()


def test_what_is_not_finite_or_disagrees_is_refused():
    X, Y, alpha, _ = atoms(8)
    X[1, 2, 3] = np.nan
    with pytest.raises(ValueError, match="X contains NaN"):
        labelled_barycenter(X, Y, alpha)
    with pytest.raises(ValueError, match="X contains NaN"):
        wasserstein_batch(X, X)
    X[1, 2, 3] = 1e200
    with pytest.raises(ValueError, match="squared distances overflow"):
        labelled_barycenter(X, Y, alpha)
    X[1, 2, 3] = 0
    with pytest.raises(ValueError, match=r"Y.shape == \(3, 19, 3\)"):
        labelled_barycenter(X, Y[:, 1:], alpha)
    with pytest.raises(ValueError, match="as many columns in both"):
        wasserstein_batch(X, X[:, :, 1:])
    with pytest.raises(ValueError, match="label_weight"):
        labelled_barycenter(X, Y, alpha, label_weight=-1.0)
    with pytest.raises(ValueError, match="max_iter"):
        labelled_barycenter(X, Y, alpha, max_iter=0)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_gradient_is_that_of_differences_at_fixed_plans(labelled):
    X, Y, alpha, rng = atoms(9, n=6)
    logits, X_Q = np.log(Y), rng.standard_normal(X[0].shape)
    Y_Q = np.eye(3)[rng.integers(0, 3, 6)] if labelled else None
    loss, *gradients, (s, p, beta) = reference.loss_and_gradient(
        X, logits, alpha, X_Q, Y_Q
    )
    point = [X, logits, alpha]
    assert_allclose(reference.loss_at(*point, s, X_Q, Y_Q, p, beta), loss, rtol=1e-12)
    for which, gradient in enumerate(gradients):
        for place in np.ndindex(gradient.shape):
            ends = []
            for h in (1e-5, -1e-5):
                moved = [z.copy() for z in point]
                moved[which][place] += h
                ends.append(reference.loss_at(*moved, s, X_Q, Y_Q, p, beta))
            assert abs((ends[0] - ends[1]) / 2e-5 - gradient[place]) < 1e-7


def test_steps_lower_the_loss_and_keep_the_simplex():
    X, Y, _, rng = atoms(10, K=2, n=12)
    logits = np.log(Y)
    batches = [(rng.standard_normal((12, 4)) + k, None) for k in range(2)]
    alphas = np.full((2, 2), 0.5)
    moments = [(np.zeros_like(z), np.zeros_like(z)) for z in (X, logits, alphas)]
    losses = [
        reference.step(X, logits, alphas, batches, moments, t) for t in range(1, 40)
    ]
    assert sum(losses[-1]) < 0.2 * sum(losses[0])
    assert_allclose(alphas.sum(1), 1)
    assert (alphas >= 0).all()


def test_public_assignment_solves_the_reference():
    rng = np.random.default_rng(11)
    C = rng.random((4, 15, 15))
    assert_array_equal(
        emd_batch(C).assignment, [reference.assignment(C_k) for C_k in C]
    )
