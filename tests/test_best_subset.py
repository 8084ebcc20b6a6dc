"""FedBestSubset finds good subsets, refits them exactly and keeps its promises."""

import copy
from itertools import product

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge, orthogonal_mp_gram
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import LocalEngine
from fedcore.datasets import make_iht_simulation
from fedcore.iht.best_subset import FedBestSubset

LOSSES = ["squared", "logistic", "softmax"]
ALL = pytest.mark.parametrize("loss", LOSSES)


# A ridge makes the optimum of the small separable sets of softmax one, and finite.
@parametrize_with_checks(
    [FedBestSubset(loss=s, l2=1e-3 * (s == "softmax")) for s in LOSSES]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def problem(loss, n=120, d=12, seed=0, l2=True):
    """Rows of four clients, whose targets need three columns."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + rng.normal(size=d)
    z = X @ np.concatenate([[2.0, -1.5, 1.0], np.zeros(d - 3)])
    z += rng.normal(size=n)
    y = {
        "squared": z,
        "logistic": np.where(z > np.median(z), "yes", "no"),
        "softmax": np.digitize(z, np.quantile(z, [0.3, 0.7])),
    }[loss]
    return X, y, rng.integers(4, size=n)


def objective(model, X, y, weight=None):
    """Compute the objective of a fitted model on pooled rows."""
    if model.loss == "squared":
        losses = (y - model.predict(X)) ** 2 / 2
    else:
        p = model.predict_proba(X)
        losses = -np.log(p[np.arange(len(y)), np.searchsorted(model.classes_, y)])
    return np.average(losses, weights=weight) + model.l2 * np.sum(model.coef_**2) / 2


# The optimum


@ALL
def test_objective_is_that_of_the_pooled_rows(loss):
    X, y, clients = problem(loss)
    model = FedBestSubset(4, loss=loss, l2=1e-2).fit(X, y, clients)
    assert_allclose(model.objective_, objective(model, X, y), rtol=1e-12)
    assert np.count_nonzero(model.coef_) == 4


def test_coefficients_are_those_of_ridge_on_the_support():
    X, y, clients = problem("squared")
    model = FedBestSubset(4, l2=0.1).fit(X, y, clients)
    oracle = Ridge(alpha=0.1 * len(y)).fit(X[:, model.support_], y)
    assert_allclose(model.coef_[model.support_], oracle.coef_, rtol=1e-9)
    assert_allclose(model.intercept_, oracle.intercept_, rtol=1e-9)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_coefficients_are_those_of_logistic_regression_on_the_support(loss):
    X, y, clients = problem(loss)
    model = FedBestSubset(12 if loss == "logistic" else 36, loss=loss, l2=1e-2)
    model.set_params(tol=1e-12).fit(X, y, clients)
    oracle = LogisticRegression(C=1 / (1e-2 * len(y)), tol=1e-12, max_iter=10_000)
    oracle.fit(X, y)
    assert_allclose(model.predict_proba(X), oracle.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_no_exchange_of_a_pair_improves(seed):
    X, y, clients = problem("squared", seed=seed)
    y = y + np.random.default_rng(seed).normal(size=len(y)) * 3
    model = FedBestSubset(5, tol=0.0).fit(X, y, clients)

    def refit(columns):
        A = np.column_stack([X[:, sorted(columns)], np.ones(len(y))])
        return np.mean((y - A @ np.linalg.lstsq(A, y)[0]) ** 2) / 2

    support = set(model.support_.tolist())
    assert_allclose(model.objective_, refit(support), rtol=1e-9)
    others = set(range(X.shape[1])) - support
    best = min(refit(support - {i} | {j}) for i, j in product(support, others))
    assert model.objective_ <= best * (1 + 1e-9)


def test_simulation_is_below_orthogonal_matching_pursuit_by_the_second_round():
    X, y, clients = make_iht_simulation(1, n_clients=30, random_state=0)
    n, tau = len(y), 60
    x = orthogonal_mp_gram(X.T @ X, X.T @ y, n_nonzero_coefs=tau)
    omp = np.mean((y - X @ x) ** 2) / 2
    model = FedBestSubset(tau, fit_intercept=False).fit(X, y, clients)
    assert (model.history_["objective"][1:] <= omp).all()
    assert model.objective_ <= 0.97 * omp
    # and a whole Gram matrix would have cost more
    sent = model.history_["bytes_up"].sum() / 30
    assert sent < 8 * 1000 * 1001 / 2 / 4
    assert n == 3000


def test_planted_support_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 400))
    x = np.zeros(400)
    x[[3, 77, 200, 399]] = [1, -1, 2, -2]
    z = X @ x + 3
    model = FedBestSubset(4, tol=1e-8).fit(X, z)
    assert_array_equal(model.support_, [3, 77, 200, 399])
    assert_allclose(model.coef_, x, atol=1e-9)
    assert_allclose(model.intercept_, 3, atol=1e-9)
    labels = z + rng.logistic(size=300) > 3
    model = FedBestSubset(4, loss="logistic").fit(X, labels)
    assert_array_equal(model.support_, [3, 77, 200, 399])


def test_objective_never_rises_from_round_to_round():
    X, y = load_breast_cancer(return_X_y=True)
    model = FedBestSubset(5, loss="logistic", l2=1e-3).fit(X, y)
    assert (np.diff(model.history_["objective"]) <= 0).all()


def test_wide_softmax_is_near_the_dense_model():
    X, y = load_digits(return_X_y=True)
    model = FedBestSubset(120, loss="softmax", l2=1e-3).fit(X / 16, y)
    assert np.count_nonzero(model.coef_) <= 120
    assert model.score(X / 16, y) > 0.93


# Sameness


@ALL
def test_dense_and_sparse_rows_agree(loss):
    X, y, clients = problem(loss)
    X[np.abs(X) < 0.7] = 0
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    fits = [
        FedBestSubset(4, loss=loss, l2=1e-3).fit(form(X), y, clients, weight)
        for form in (np.asarray, sparse.csr_array, sparse.csc_matrix, np.asfortranarray)
    ]
    for other in fits[1:]:
        assert_allclose(other.coef_, fits[0].coef_, atol=1e-10, rtol=0)
        assert_allclose(other.intercept_, fits[0].intercept_, atol=1e-10, rtol=0)


@ALL
def test_float32_rows_are_near(loss):
    X, y, clients = problem(loss)
    X = X.astype(np.float32)
    model = FedBestSubset(3, loss=loss, l2=1e-3)
    exact = copy.deepcopy(model).fit(X.astype(float), y, clients)
    for form in (np.asarray, sparse.csr_array):
        assert_allclose(model.fit(form(X), y, clients).coef_, exact.coef_, atol=1e-9)


@ALL
def test_bits_do_not_depend_on_the_number_of_threads(loss):
    X, y, clients = problem(loss)
    one, two, five = (
        FedBestSubset(4, loss=loss, l2=1e-3, n_jobs=n).fit(X, y, clients)
        for n in (1, 2, 5)
    )
    for other in (two, five):
        assert_array_equal(one.coef_, other.coef_)
        assert_array_equal(one.intercept_, other.intercept_)
        assert_array_equal(one.history_["objective"], other.history_["objective"])


@ALL
def test_one_client_is_as_good_as_many(loss):
    X, y, clients = problem(loss)
    many = FedBestSubset(3, loss=loss, l2=1e-3, tol=1e-10).fit(X, y, clients)
    one = FedBestSubset(3, loss=loss, l2=1e-3, tol=1e-10).fit(X, y)
    assert_allclose(one.objective_, many.objective_, rtol=1e-8)
    sampling = FedBestSubset(3, loss=loss, l2=1e-3, tol=1e-10)
    sampling.set_params(engine=LocalEngine(client_fraction=0.5))
    assert_allclose(sampling.fit(X, y, clients).coef_, many.coef_)


def test_rows_and_labels_may_be_read_only():
    X, y, clients = problem("squared")
    expected = FedBestSubset(3).fit(X, y, clients).coef_
    for array in (X, y, clients):
        array.flags.writeable = False
    assert_array_equal(FedBestSubset(3).fit(X, y, clients).coef_, expected)


@ALL
@pytest.mark.parametrize("weights", ["uniform", "array"])
def test_weights_of_clients_are_weights_of_rows(loss, weights):
    X, y, clients = problem(loss)
    share = np.ones(4) if weights == "uniform" else np.array([1.0, 0.0, 3.0, 2.0])
    given = weights if weights == "uniform" else share
    model = FedBestSubset(3, loss=loss, l2=1e-3, weights=given, tol=1e-10)
    model.fit(X, y, clients)
    rows = (share / np.bincount(clients))[clients]
    pooled = FedBestSubset(3, loss=loss, l2=1e-3, tol=1e-10)
    pooled.fit(X, y, sample_weight=rows)
    assert_allclose(model.objective_, pooled.objective_, rtol=1e-8)
    assert_allclose(model.objective_, objective(model, X, y, rows), rtol=1e-10)


# What is always selected


@ALL
def test_always_selected_columns_are_selected(loss):
    X, y, clients = problem(loss)
    tau = 9 if loss == "softmax" else 3
    model = FedBestSubset(tau, loss=loss, always_select=[7, 10], l2=1e-3)
    model.fit(X, y, clients)
    assert {7, 10} <= set(model.support_.tolist())
    assert np.count_nonzero(model.coef_) <= tau
    names = [f"c{j}" for j in range(12)]
    model.set_params(always_select=["c7", "c10"])
    by_name = copy.deepcopy(model).fit(pd.DataFrame(X, columns=names), y, clients)
    assert_array_equal(by_name.coef_, model.coef_)


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(n_nonzero_coefs=-1), ValueError, "n_nonzero_coefs == -1"),
        (dict(n_nonzero_coefs=1.5), TypeError, "n_nonzero_coefs must be an instance"),
        (dict(always_select=[12]), ValueError, "always_select has 12, X has 12 col"),
        (dict(always_select=[-1]), ValueError, "always_select == -1"),
        (dict(always_select=["a"]), ValueError, "always_select has 'a', which is no"),
        (dict(always_select=range(5)), ValueError, "5 columns with 5 coefficients, n_"),
        (dict(pool_size=3), ValueError, "pool_size == 3, expected at least the 4"),
        (dict(pool_size="all"), TypeError, "pool_size must be an instance of int"),
        (dict(max_swaps=-1), ValueError, "max_swaps == -1"),
        (dict(l2=-1.0), ValueError, "l2 == -1.0"),
        (dict(max_rounds=0), ValueError, "max_rounds == 0"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named_and_change_nothing(wrong, error, message):
    X, y, clients = problem("squared")
    model = FedBestSubset(4).fit(X, y, clients)
    before = model.coef_
    with pytest.raises(error, match=message):
        model.set_params(**wrong).fit(X, y, clients)
    assert model.coef_ is before


def test_a_pool_too_large_for_a_message_is_refused():
    X = sparse.csr_array(([1.0], ([0], [0])), shape=(3, 300_000))
    with pytest.raises(ValueError, match=r"pool of 54000 coef.*lower n_nonzero_coefs"):
        FedBestSubset().fit(X, [0.0, 1.0, 2.0])


def test_stopping_short_is_told():
    X, y, clients = problem("logistic")
    model = FedBestSubset(3, loss="logistic", max_rounds=1)
    with pytest.warns(ConvergenceWarning, match="stopped after max_rounds=1 rounds at"):
        model.fit(X, y, clients)


def test_verbose_prints_a_line_a_round(capsys):
    X, y, clients = problem("squared")
    model = FedBestSubset(3, verbose=1).fit(X, y, clients)
    assert len(capsys.readouterr().out.splitlines()) == model.n_rounds_
