"""Cases in which other solvers of the l0 problem failed, for FedBestSubset."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedcore.iht.best_subset import FedBestSubset

LOSSES = ["squared", "logistic", "softmax"]
ALL = pytest.mark.parametrize("loss", LOSSES)
FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])


def targets(loss, z):
    """Targets of scores z: themselves, two classes, or three."""
    if loss == "squared":
        return z
    cuts = [0.5] if loss == "logistic" else [0.3, 0.7]
    return np.digitize(z, np.quantile(z, cuts))


def rows(n=90, d=8, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=n), rng.integers(3, size=n)


@FORMS
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_of_equal_gains_the_first_are_taken(form, n_jobs):
    X, y = np.eye(8)[:, :6], np.array([1.0, 1, 1, 0, 1, 1, 0, 0])
    clients = [0, 0, 1, 1, 2, 2, 3, 3]
    model = FedBestSubset(2, fit_intercept=False, n_jobs=n_jobs)
    assert_array_equal(model.fit(form(X), y, clients).support_, [0, 1])


def test_of_equal_columns_the_first_is_taken():
    X, z, clients = rows()
    X[:, 5] = X[:, 0]
    model = FedBestSubset(3).fit(X, z, clients)
    assert 0 in model.support_ and 5 not in model.support_


@ALL
@FORMS
def test_more_coefficients_than_columns_are_a_dense_fit(loss, form):
    X, z, clients = rows()
    y = targets(loss, z)
    more = FedBestSubset(1000, loss=loss, l2=1e-2).fit(form(X), y, clients)
    exact = FedBestSubset(24 if loss == "softmax" else 8, loss=loss, l2=1e-2)
    assert_array_equal(more.coef_, exact.fit(form(X), y, clients).coef_)
    assert (more.coef_ != 0).all()


@ALL
@FORMS
def test_no_coefficients_leave_the_intercept_and_its_objective(loss, form):
    X, z, clients = rows()
    y = targets(loss, z)
    model = FedBestSubset(0, loss=loss, tol=1e-12).fit(form(X), y, clients)
    assert not model.coef_.any() and len(model.support_) == 0
    if loss == "squared":
        assert_allclose(model.intercept_, y.mean())
        assert_allclose(model.objective_, y.var() / 2)
    else:
        share = np.bincount(y) / len(y)
        expected = np.broadcast_to(share, (len(y), len(share)))
        assert_allclose(model.predict_proba(X), expected, atol=1e-7)
        assert_allclose(model.objective_, -(share * np.log(share)).sum())
    nothing = FedBestSubset(0, loss=loss, fit_intercept=False).fit(X, y, clients)
    assert not nothing.coef_.any() and not np.any(nothing.intercept_)
    at_zero = {"squared": np.mean(z**2) / 2, "logistic": np.log(2)}
    assert_allclose(nothing.objective_, at_zero.get(loss, np.log(3)))


@ALL
@FORMS
def test_zero_and_constant_columns_are_never_selected(loss, form):
    X, z, clients = rows()
    X[:, 3], X[:, 6] = 0, 5
    y = targets(loss, z)
    model = FedBestSubset(24, loss=loss, l2=1e-3).fit(form(X), y, clients)
    assert np.isfinite(model.coef_).all()
    assert not model.coef_[..., [3, 6]].any()
    model.set_params(n_nonzero_coefs=6, always_select=[3, 6], l2=0.0)
    if loss == "squared":
        assert not model.fit(form(X), y, clients).coef_[..., [3, 6]].any()


@ALL
@pytest.mark.parametrize("scale", [1e-4, 1e4])
def test_the_scale_of_the_columns_does_not_matter(loss, scale):
    X, z, clients = rows()
    y = targets(loss, z)
    tau = 6 if loss == "softmax" else 3
    plain = FedBestSubset(tau, loss=loss, tol=1e-9).fit(X, y, clients)
    scaled = FedBestSubset(tau, loss=loss, tol=1e-9).fit(X * scale, y, clients)
    assert_allclose(scaled.objective_, plain.objective_, rtol=1e-6)
    assert_array_equal(scaled.support_, plain.support_)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_unscaled_gene_expression_is_fitted(data_path, loss):
    with np.load(data_path("iht_golub.npz")) as file:
        X, y = file["X"].astype(float), file["y"]
    model = FedBestSubset(5, loss=loss, l2=1e-3 if loss == "logistic" else 0.0)
    model.fit(X, y)
    assert np.isfinite(model.coef_).all() and 0 <= model.objective_ < 0.1


@ALL
def test_sparse_and_dense_agree_with_intercept_and_weights(loss):
    X, z, clients = rows()
    X[np.abs(X) < 0.5] = 0
    y, weight = targets(loss, z + 5), np.linspace(0.1, 3, len(z))
    dense = FedBestSubset(4, loss=loss, l2=1e-3).fit(X, y, clients, weight)
    csr = FedBestSubset(4, loss=loss, l2=1e-3)
    csr.fit(sparse.csr_array(X), y, clients, weight)
    assert_allclose(csr.coef_, dense.coef_, atol=1e-10, rtol=0)
    assert_allclose(csr.intercept_, dense.intercept_, atol=1e-10, rtol=0)


@ALL
def test_weight_0_drops_a_row_and_weight_2_repeats_it(loss):
    X, z, clients = rows()
    y, weight = targets(loss, z), np.random.default_rng(0).integers(0, 3, len(z))
    model = FedBestSubset(4, loss=loss, l2=1e-3).fit(X, y, clients, weight)
    again = np.repeat(np.arange(len(y)), weight)
    other = FedBestSubset(4, loss=loss, l2=1e-3)
    other.fit(X[again], y[again], clients[again])
    assert_allclose(model.coef_, other.coef_, atol=1e-10)
    assert_allclose(model.intercept_, other.intercept_, atol=1e-10)


@ALL
def test_stored_zeros_change_nothing(loss):
    X, z, clients = rows()
    X[np.abs(X) < 0.5] = 0
    y = targets(loss, z)
    stored = sparse.csr_array(np.where(X == 0, 1.0, X))
    stored.data[(X == 0).reshape(-1)] = 0
    assert stored.nnz == X.size
    fits = [
        FedBestSubset(4, loss=loss, l2=1e-3).fit(rows, y, clients)
        for rows in (stored, sparse.csr_array(X))
    ]
    assert_allclose(fits[0].coef_, fits[1].coef_, atol=1e-12)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_clients_of_one_class_share_the_classes_of_all(loss):
    X, z, _ = rows()
    y = np.array(["high", "low", "mid"])[targets("softmax", z)]
    if loss == "logistic":
        y[y == "mid"] = "low"
    model = FedBestSubset(4, loss=loss, l2=1e-2, tol=1e-10).fit(X, y, y)
    assert_array_equal(model.classes_, np.unique(y))
    pooled = FedBestSubset(4, loss=loss, l2=1e-2, tol=1e-10).fit(X, y)
    assert_allclose(model.objective_, pooled.objective_, rtol=1e-6)
    assert set(model.predict(X)) <= set(model.classes_)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_separable_rows_without_ridge_stop_finite(loss):
    X, _, clients = rows()
    y = targets(loss, X[:, 0])
    model = FedBestSubset(2, loss=loss).fit(X, y, clients)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.objective_)
    assert model.n_rounds_ < model.max_rounds
    if loss == "logistic":
        assert model.objective_ < 1e-3
        with np.errstate(over="raise"):
            assert np.isfinite(model.predict_proba(1e4 * X)).all()


def test_fewer_rows_than_coefficients_interpolate():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 100)), rng.normal(size=20)
    model = FedBestSubset(50).fit(X, y)
    assert model.objective_ < 1e-12
    assert np.count_nonzero(model.coef_) <= 20
