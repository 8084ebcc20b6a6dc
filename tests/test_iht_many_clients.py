"""Work for many clients at once gives each what it would get alone."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedcore import _losses as losses
from fedcore.iht import second_order, smoothness
from fedcore.iht.second_order import Rows, client_gradients

SIZES = (3, 1, 7, 4)
D, C = 6, 3


def rows_of_all(form):
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(SIZES)), SIZES)
    X = rng.normal(size=(len(owner), D)) * (rng.random((len(owner), D)) < 0.6)
    y = rng.integers(C, size=len(owner))
    weight = rng.random(len(owner))
    weight /= np.bincount(owner, weight)[owner]
    return Rows(form(X), y, weight, owner, np.ones(len(SIZES)))


def rows_of_one(rows, k):
    mine = np.flatnonzero(rows.owner == k)
    owner = np.zeros(len(mine), int)
    return Rows(rows.X[mine], rows.y[mine], rows.weight[mine], owner, np.ones(1))


FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
FEATURES = ([0, 2, 5], [], [1], [0, 1, 2, 3, 4, 5])


@FORMS
@pytest.mark.parametrize("constant", [False, True])
@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_curvature_is_the_largest_eigenvalue_of_each_client(form, constant, loss):
    rows = rows_of_all(form)
    counts = np.array([len(f) for f in FEATURES])
    features = np.concatenate([np.array(f, int) for f in FEATURES])
    found = smoothness.smoothness(loss, rows, counts, features, constant)
    for k, mine in enumerate(FEATURES):
        one = rows_of_one(rows, k)
        alone = smoothness.smoothness(
            *(loss, one, counts[k : k + 1], np.array(mine, int), constant)
        )
        assert_array_equal(found[k], alone[0])
        A = one.X.toarray() if sparse.issparse(one.X) else one.X
        A = np.column_stack([A[:, mine], np.ones(len(A))][: 1 + constant])
        if not A.shape[1]:
            assert found[k] == 0
            continue
        largest = np.linalg.eigvalsh(A.T @ (A * one.weight[:, None]))[-1]
        bound = losses.MOST_CURVATURE[loss] * largest
        assert 0.8 * bound <= found[k] <= bound * (1 + 1e-12)


def test_a_large_client_is_not_copied_into_a_sparse_matrix(monkeypatch):
    rows = rows_of_one(rows_of_all(np.asarray), 2)
    all_columns = np.array([D]), np.arange(D)
    small = smoothness.smoothness("squared", rows, *all_columns, True)
    monkeypatch.setattr(smoothness, "CHUNK", 10)
    large = smoothness.smoothness("squared", rows, *all_columns, True)
    assert_allclose(large, small, rtol=1e-12)


@FORMS
def test_columns_met_are_those_that_are_not_empty(form):
    rows = rows_of_all(form)
    counts, features = smoothness.columns_met(rows)
    for k, mine in enumerate(np.split(features, np.cumsum(counts)[:-1])):
        one = rows_of_one(rows, k)
        if sparse.issparse(one.X):
            assert_array_equal(mine, np.unique(one.X.indices))
        else:
            assert_array_equal(mine, np.arange(D))


@FORMS
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_gradients_by_client_are_those_of_each_alone(form, loss, monkeypatch):
    rows = rows_of_all(form)
    n_outputs = C if loss == "softmax" else 1
    if loss == "logistic":
        rows = Rows(rows.X, rows.y % 2, rows.weight, rows.owner, rows.mass)
    rng = np.random.default_rng(1)
    index = np.sort(rng.choice(n_outputs * D, 4, replace=False))
    value, intercept = rng.normal(size=4), rng.normal(size=n_outputs)
    point = index, value, intercept
    total, own, free = client_gradients(loss, rows, *point)
    places = np.append(index, n_outputs * D + np.arange(n_outputs))
    whole = np.append(value, intercept)
    for k in range(len(SIZES)):
        one = rows_of_one(rows, k)
        alone = client_gradients(loss, one, *point)
        for found, expected in zip((total, own, free), alone, strict=True):
            assert_array_equal(found[k], expected[0])
        measured = second_order.measure(loss, one, places, whole, n_outputs)
        assert_allclose(total[k], measured["loss"])
        expected = np.append(own[k], free[k])
        assert_allclose(measured["gradient"][places], expected, atol=1e-14)
    monkeypatch.setattr(second_order, "CHUNK", 10)
    pieces = client_gradients(loss, rows_of_one(rows, 2), *point)
    assert_allclose(pieces[1][0], own[2], atol=1e-14)
