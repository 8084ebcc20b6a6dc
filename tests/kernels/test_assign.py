"""Batched assignments against SciPy; certificates; what must be refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import linear_sum_assignment

from fedcore._kernels._assign import assign
from fedcore.ot import emd_batch

KINDS = ("plane", "line", "wide", "uniform", "integers", "duplicates", "ties", "signed")


def costs(rng, b, n, kind):
    if kind in ("plane", "line", "wide", "duplicates"):
        d = {"plane": 2, "line": 1, "wide": 64, "duplicates": 3}[kind]
        X, Y = rng.standard_normal((2, b, n, d))
        if kind == "duplicates":
            X, Y = X[:, rng.integers(0, n, n)], Y[:, rng.integers(0, n, n)]
        return ((X[:, :, None] - Y[:, None]) ** 2).sum(-1)
    if kind == "integers":
        return rng.integers(0, 12, (b, n, n)).astype(float)
    if kind == "ties":
        return np.repeat(rng.random((b, 1, n)), n, 1)
    return rng.random((b, n, n)) - (kind == "signed")


def check(C, solved):
    """Optimal, a permutation, and certified by its prices."""
    n = C.shape[1]
    C = C.astype(float)
    assert_array_equal(np.sort(solved.assignment), np.tile(np.arange(n), (len(C), 1)))
    used = np.take_along_axis(C, solved.assignment[:, :, None].astype(int), 2)[..., 0]
    assert_allclose(solved.cost, used.mean(1), rtol=1e-14, atol=1e-15)
    optimum = [c[linear_sum_assignment(c)].mean() for c in C]
    scale = np.abs(used).mean()
    assert_allclose(solved.cost, optimum, rtol=1e-12, atol=1e-12 * scale)
    over = solved.u[:, :, None] + solved.v[:, None] - C
    rounding = 4 * np.finfo(float).eps * (np.abs(C).max() + np.abs(solved.v).max())
    assert over.max() <= solved.slack.max() + rounding
    assert solved.slack.max() <= rounding
    at = np.take_along_axis(over, solved.assignment[:, :, None].astype(int), 2)
    assert_allclose(at, 0, atol=rounding)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 3, 7, 8, 9, 24, 65]),
    st.sampled_from(KINDS),
    st.sampled_from([np.float64, np.float32]),
)
def test_the_optimum_is_scipys_and_certified(seed, n, kind, dtype):
    C = costs(np.random.default_rng(seed), 3, n, kind).astype(dtype)
    check(C, emd_batch(C))


@pytest.mark.parametrize("kind", KINDS)
def test_large_problems(kind):
    C = costs(np.random.default_rng(1), 2, 256, kind)
    check(C, emd_batch(C))


@settings(deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from(KINDS), st.sampled_from([0, 1e-2, 1, 1e9])
)
def test_any_prices_lead_to_the_optimum(seed, kind, noise):
    rng = np.random.default_rng(seed)
    C = costs(rng, 2, 20, kind)
    v = emd_batch(C).v + noise * rng.standard_normal((2, 20))
    solved = emd_batch(C, prices=v)
    optimum = [c[linear_sum_assignment(c)].mean() for c in C]
    assert_allclose(solved.cost, optimum, rtol=1e-12, atol=1e-12 * np.abs(C).mean())


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("large", [1e10, 1e32])
@pytest.mark.parametrize("share", [0.02, 0.6])
def test_huge_entries_leave_the_others_optimal(dtype, large, share):
    """POT 229."""
    rng = np.random.default_rng(5)
    C = rng.random((6, 40, 40)).astype(dtype)
    C[rng.random(C.shape) < share] = large
    C[:, np.arange(40), np.arange(40)] = 1
    expected = [np.minimum(c, 100).astype(float) for c in C]
    expected = [c[linear_sum_assignment(c)].mean() for c in expected]
    assert_allclose(emd_batch(C).cost, expected, rtol=1e-12)


def test_threads_change_no_bit():
    C = costs(np.random.default_rng(2), 11, 33, "plane")
    alone = emd_batch(C)
    for n_jobs in (2, 5):
        together = emd_batch(C, n_jobs=n_jobs)
        assert_array_equal(together.assignment, alone.assignment)
        assert_array_equal(together.v, alone.v)
        assert_array_equal(together.cost, alone.cost)


def test_integers_lists_and_layouts():
    """POT 12, 345 and 40."""
    C = np.random.default_rng(3).integers(0, 9, (3, 6, 6))
    expected = emd_batch(C.astype(float))
    assert expected.cost.dtype == float
    wide = np.zeros((3, 6, 12))
    wide[:, :, ::2] = C
    read_only = C.astype(float)
    read_only.flags.writeable = False
    for same in (C, C.tolist(), np.asfortranarray(C), wide[:, :, ::2], read_only):
        solved = emd_batch(same)
        assert_array_equal(solved.cost, expected.cost)
        assert_array_equal(solved.assignment, expected.assignment)
    assert_array_equal(emd_batch(C[1]).cost, expected.cost[1:2])
    assert_array_equal(expected.plan.sum(1), expected.plan.sum(2))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_no_plan_of_what_is_not_finite(bad, dtype):
    """POT 469 and 869, SciPy 14545."""
    C = np.ones((3, 9, 9), dtype)
    C[1, 2, 8] = bad
    for prices in (None, np.zeros((3, 9))):
        with pytest.raises(ValueError, match=rf"C\[1, 2, 8\] is {bad}"):
            emd_batch(C, prices=prices)
    with pytest.raises(ValueError, match="prices contains NaN"):
        emd_batch(np.ones((1, 2, 2)), prices=[[0, np.nan]])


@pytest.mark.parametrize("shape", [(0, 3, 3), (2, 0, 0), (0, 0)])
def test_empty_arrays_are_refused(shape):
    with pytest.raises(ValueError, match="expected no empty dimension"):
        emd_batch(np.empty(shape))


def test_wrong_shapes_are_refused():
    with pytest.raises(ValueError, match="expected square matrices"):
        emd_batch(np.ones((2, 3, 4)))
    with pytest.raises(ValueError, match="expected three dimensions"):
        emd_batch(np.ones(3))
    with pytest.raises(ValueError, match=r"prices.shape == \(1, 3\)"):
        emd_batch(np.ones((2, 3, 3)), prices=np.ones((1, 3)))
    with pytest.raises(ValueError, match="sums of such costs overflow"):
        emd_batch(np.diag([1e308, -1e308, 1e308]))
    with pytest.raises(ValueError, match="n_jobs == 0"):
        emd_batch(np.ones((2, 3, 3)), n_jobs=0)
    u = np.empty((1, 3))
    with pytest.raises(ValueError, match="assign: array lengths disagree"):
        assign(np.ones((1, 3, 3)), False, np.empty((1, 2), np.int32), u, u, u[0], u[0])
