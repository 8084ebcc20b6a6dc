"""Fits that start from the one before: the same optimum, by a shorter way."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.mtl_svm import mtl_svm_path

LOSSES = {
    "hinge": FedMTLSVC,
    "squared_hinge": FedMTLSVC,
    "epsilon_insensitive": FedMTLSVR,
    "squared_epsilon_insensitive": FedMTLSVR,
}
CONVERGENT = ["sequential", "envelope", "line_search", "safe"]
BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
EASY = {"C1": 0.05, "random_state": 0}


def rows_for(estimator, n_features=8):
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, clients = make(5, 20, n_features, random_state=0)
    mixed = np.random.default_rng(0).permutation(len(y))
    return X[mixed], y[mixed], clients[mixed]


def dual_bounds(model, y, weight=1.0):
    """Lower and upper bounds of the multipliers; of two classes, or regression."""
    upper = model.C1 * weight * np.ones(len(y))
    if model.loss.startswith("squared"):
        upper[:] = np.inf
    if isinstance(model, FedMTLSVR):
        return -upper, upper
    return np.where(y > 0, 0, -upper), np.where(y > 0, upper, 0)


def weighted_rows(model, X, clients):
    """Sum over a client's rows of b x, as (K, d + 1)."""
    wide = np.column_stack([X, np.ones(len(X))])
    own = clients == model.clients_[:, None]
    return (own * model.dual_coef_[0]) @ wide


@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_multipliers_belong_to_the_rows_as_they_came(loss, aggregation):
    estimator = LOSSES[loss]
    X, y, clients = rows_for(estimator)
    options = {"loss": loss, "aggregation": aggregation, "tol": 1e-10} | EASY
    model = estimator(C2=3.0, warm_start=True, max_rounds=5000, **options)
    model.fit(X, y, clients)
    lower, upper = dual_bounds(model, y)
    b = model.dual_coef_
    assert b.shape == (1, len(y)) and np.all((lower <= b) & (b <= upper))
    s = weighted_rows(model, X, clients)
    size = np.linalg.norm(model.coef_)
    coef = model.client_coef_.reshape(5, -1)
    assert_allclose(s[:, :-1] / 3.0, coef, rtol=0, atol=1e-4 * size)
    assert_allclose(s.sum(axis=0)[:-1], np.ravel(model.coef_), rtol=0, atol=1e-4 * size)


CHANGES = [{}, {"C2": 0.5}, {"C2": 10.0}, {"C1": 0.02}, {"C1": 0.06}]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("aggregation", "form"),
    [*((rule, np.asarray) for rule in CONVERGENT), ("sequential", sparse.csr_array)],
)
def test_a_warm_fit_has_the_optimum_of_a_cold_one(loss, aggregation, form):
    X, y, clients = rows_for(LOSSES[loss])
    options = {"loss": loss, "aggregation": aggregation, "max_rounds": 5000}
    warm = LOSSES[loss](**(EASY | options), warm_start=True).fit(form(X), y, clients)
    for change in CHANGES:
        warm.set_params(**change).fit(form(X), y, clients)
        cold = copy.copy(warm).set_params(warm_start=False).fit(form(X), y, clients)
        assert max(warm.dual_gap_, cold.dual_gap_) <= warm.tol
        assert_allclose(warm.objective_, cold.objective_, rtol=2 * warm.tol)


def test_the_published_rule_starts_at_0_where_the_start_is_worse():
    X, y, clients = rows_for(FedMTLSVC)
    options = {"aggregation": "sum", "random_state": 0}
    warm = FedMTLSVC(0.02, 100.0, warm_start=True, **options | {"aggregation": "safe"})
    warm.fit(X, y, clients).set_params(C2=0.02, aggregation="sum")
    warm.fit(X, y, clients)
    cold = FedMTLSVC(0.02, 0.02, **options).fit(X, y, clients)
    assert_allclose(warm.objective_, cold.objective_, rtol=2e-3)


@pytest.mark.parametrize("aggregation", ["sequential", "line_search", "safe"])
@BOTH
def test_a_fit_that_is_done_takes_no_pass(estimator, aggregation):
    X, y, clients = rows_for(estimator)
    options = {"aggregation": aggregation, "max_rounds": 5000} | EASY
    model = estimator(warm_start=True, **options).fit(X, y, clients)
    coef, gap = model.coef_, model.dual_gap_
    model.fit(X, y, clients)
    assert model.history_["passes"].tolist() == [0.0] and model.n_rounds_ == 1
    assert_allclose(model.coef_, coef, rtol=1e-6)
    # w is added up anew: its last digits move a gap of 1e-3 by more than themselves.
    assert_allclose(model.dual_gap_, gap, rtol=1e-2)


@BOTH
def test_whatever_else_changes_the_start_is_feasible(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(warm_start=True, **EASY).fit(X, y, clients)
    rng = np.random.default_rng(1)
    weight = rng.integers(3, size=len(y)) * 1.0
    other = np.where(rng.random(len(y)) < 0.3, -y, y)
    for args in ((X, y, clients, weight), (X, other, clients), (X[:, :3], y, clients)):
        model.fit(*args)
        cold = copy.copy(model).set_params(warm_start=False).fit(*args)
        assert_allclose(model.objective_, cold.objective_, rtol=2e-3)
        scale = args[3] if len(args) > 3 else 1.0
        lower, upper = dual_bounds(model, args[1], scale)
        assert np.all((lower <= model.dual_coef_) & (model.dual_coef_ <= upper))


def test_several_classes_start_from_their_own_multipliers():
    X, y, clients = rows_for(FedMTLSVC)
    y = np.digitize(X[:, 0] + y, [-0.7, 0.7])
    for aggregation in ("sequential", "envelope"):
        model = FedMTLSVC(warm_start=True, aggregation=aggregation, **EASY)
        model.set_params(class_weight="balanced", max_rounds=3000).fit(X, y, clients)
        assert model.dual_coef_.shape == (3, len(y))
        first = model.history_["passes"][-1]
        model.set_params(C2=1.2).fit(X, y, clients)
        assert model.dual_gap_ <= model.tol
        assert model.history_["passes"][-1] < first
        cold = copy.copy(model).set_params(warm_start=False).fit(X, y, clients)
        assert_allclose(model.objective_, cold.objective_, rtol=2e-3)


@BOTH
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_engine_and_threads_do_not_matter_to_a_warm_fit(estimator, n_jobs):
    X, y, clients = rows_for(estimator)
    models = []
    for jobs in (1, n_jobs):
        options = {"engine": LocalEngine(), "n_jobs": jobs, "warm_start": True} | EASY
        model = estimator(**options).fit(X, y, clients)
        models.append(model.set_params(C2=2.0).fit(X, y, clients))
    assert_array_equal(models[0].client_coef_, models[1].client_coef_)
    assert_array_equal(models[0].dual_coef_, models[1].dual_coef_)


@BOTH
@pytest.mark.parametrize(
    "change",
    [
        lambda X, y, clients: (X[:-1], y[:-1], clients[:-1]),
        lambda X, y, clients: (X, y, clients + 1),
        lambda X, y, clients: (X, y, clients[::-1]),
    ],
)
def test_other_rows_or_clients_start_anew(estimator, change):
    X, y, clients = rows_for(estimator)
    model = estimator(warm_start=True, **EASY).fit(X, y, clients)
    model.fit(*change(X, y, clients))
    cold = estimator(**EASY).fit(*change(X, y, clients))
    assert_array_equal(model.coef_, cold.coef_)
    assert model.n_rounds_ == cold.n_rounds_


@BOTH
def test_multipliers_are_kept_for_warm_starts_alone(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(X, y, clients)
    assert not hasattr(model, "dual_coef_")
    model.set_params(warm_start=True).fit(X, y, clients)
    again = pickle.loads(pickle.dumps(model)).set_params(C2=2.0).fit(X, y, clients)
    model.set_params(C2=2.0).fit(X, y, clients)
    assert_array_equal(again.dual_coef_, model.dual_coef_)
    assert not hasattr(model.set_params(warm_start=False).fit(X, y), "dual_coef_")


# The path.


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@BOTH
def test_a_path_takes_fewer_passes_than_cold_fits(estimator, form):
    X, y, clients = rows_for(estimator, n_features=30)
    grid = np.geomspace(30.0, 0.3, 7)
    model = estimator(aggregation="sequential", **EASY)
    path = mtl_svm_path(model, form(X), y, clients, C2=grid)
    assert not hasattr(model, "coef_") and model.C2 == 1.0
    assert_array_equal(path.C2, grid)
    assert path.coefs.shape[0] == len(path.client_coefs) == len(path.rounds) == 7
    passes = 0.0
    for k, C2 in enumerate(grid):
        cold = copy.copy(model).set_params(C2=C2).fit(form(X), y, clients)
        passes += cold.history_["passes"][-1]
        assert path.gaps[k] <= model.tol
        size = np.linalg.norm(cold.coef_)
        assert np.linalg.norm(path.coefs[k] - cold.coef_) < 0.1 * size
        assert path.client_coefs[k].shape == cold.client_coef_.shape
        assert path.client_intercepts[k].shape == cold.client_intercept_.shape
    assert path.passes.sum() < passes


def test_a_path_wants_an_estimator_and_values():
    X, y, clients = rows_for(FedMTLSVC)
    with pytest.raises(TypeError, match="estimator is a str, expected a FedMTLSVC"):
        mtl_svm_path("svm", X, y, clients)
    with pytest.raises(ValueError, match=r"C2 has shape \(0,\)"):
        mtl_svm_path(FedMTLSVC(), X, y, clients, C2=[])
    with pytest.raises(ValueError, match="C2 == -1"):
        mtl_svm_path(FedMTLSVC(**EASY), X, y, clients, C2=[1.0, -1.0])
