"""FedHT, FedIterHT and DistributedIHT keep scikit-learn's contract and promises."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import DistributedIHT, FedHT, FedIterHT, LocalEngine

LOSSES = ("squared", "logistic", "softmax")
ALL = pytest.mark.parametrize("estimator", [FedIterHT, FedHT, DistributedIHT])
EACH_LOSS = pytest.mark.parametrize("loss", LOSSES)
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@QUIET
@parametrize_with_checks(
    [
        estimator(loss=loss, max_rounds=40, random_state=0)
        for estimator in (FedIterHT, FedHT, DistributedIHT)
        for loss in LOSSES
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def rows(loss, n=120, d=20, seed=0):
    """Rows of four clients that differ, with named labels for the classifiers."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)
    coef = np.zeros((d, 3))
    coef[rng.choice(d, 5, replace=False)] = 2 * rng.normal(size=(5, 3))
    clients = np.array(["ann", "bob", "cy", "dee"])[np.arange(n) * 4 // n]
    score = X @ coef + 0.3 * rng.normal(size=(n, 3)) + (clients == "bob")[:, None]
    if loss == "squared":
        return X, score[:, 0], clients
    if loss == "logistic":
        return X, np.where(score[:, 0] > 0, "yes", "no"), clients
    return X, np.array(["one", "three", "two"])[score.argmax(axis=1)], clients


@EACH_LOSS
def test_the_loss_tells_regressors_from_classifiers(loss):
    model = FedIterHT(loss=loss)
    assert is_regressor(model) == (loss == "squared")
    assert is_classifier(model) == (loss != "squared")
    for name in ("predict_proba", "decision_function"):
        assert hasattr(model, name) == (loss != "squared")


# What is fitted.


@QUIET
@ALL
@EACH_LOSS
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_fitted_shapes(estimator, loss, fit_intercept):
    X, y, clients = rows(loss)
    model = estimator(6, loss=loss, fit_intercept=fit_intercept, random_state=0)
    model.fit(X, y, clients)
    outputs = {"squared": (), "logistic": (1,), "softmax": (3,)}[loss]
    assert model.coef_.shape == (*outputs, 20)
    assert np.shape(model.intercept_) == outputs
    assert np.any(model.intercept_) == fit_intercept
    assert 0 < np.count_nonzero(model.coef_) <= 6
    used = np.atleast_2d(model.coef_).any(axis=0)
    assert_array_equal(model.support_, np.flatnonzero(used))
    assert_array_equal(model.clients_, ["ann", "bob", "cy", "dee"])
    assert model.n_rounds_ == model.history_["round"][-1]
    assert pd.DataFrame(model.history_).notna().all().all()
    if loss != "squared":
        assert_array_equal(model.classes_, np.unique(y))
        proba = model.predict_proba(X)
        assert_allclose(proba.sum(axis=1), 1)
        assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))


def objective(model, X, y, clients, share, l2):
    """Work out the objective by its formula, from predictions alone."""
    if model.loss == "squared":
        losses = (y - model.predict(X)) ** 2 / 2
    else:
        code = np.searchsorted(model.classes_, y)
        losses = -np.log(model.predict_proba(X)[np.arange(len(y)), code])
    means = [losses[clients == name].mean() for name in model.clients_]
    return np.average(means, weights=share) + l2 / 2 * np.sum(model.coef_**2)


@QUIET
@ALL
@EACH_LOSS
@pytest.mark.parametrize(
    ("weights", "share"),
    [
        ("samples", (50, 20, 30, 20)),
        ("uniform", (1, 1, 1, 1)),
        ((1, 2, 0, 4), (1, 2, 0, 4)),
    ],
)
def test_the_objective_is_that_of_the_returned_point(estimator, loss, weights, share):
    X, y, _ = rows(loss)
    clients = np.repeat([1, 0, 2, 3], (20, 50, 30, 20))
    options = {"loss": loss, "l2": 0.05, "weights": weights, "max_rounds": 15}
    model = estimator(6, random_state=0, **options).fit(X, y, clients)
    expected = objective(model, X, y, clients, share, 0.05)
    assert_allclose(model.objective_, expected, rtol=1e-10)
    assert_allclose(model.history_["objective"][-1], expected, rtol=1e-10)
    refitted = estimator(6, random_state=0, refit=True, **options).fit(X, y, clients)
    expected = objective(refitted, X, y, clients, share, 0.05)
    assert_allclose(refitted.objective_, expected, rtol=1e-10)
    assert refitted.objective_ <= model.objective_ * (1 + 1e-12)


@QUIET
@EACH_LOSS
def test_a_seed_makes_minibatches_reproducible(loss):
    X, y, clients = rows(loss)
    one, two, other = (
        FedIterHT(6, loss=loss, step_size=0.1, batch_size=5, random_state=seed)
        .fit(X, y, clients)
        .coef_
        for seed in (3, 3, 4)
    )
    assert_array_equal(one, two)
    assert not np.array_equal(one, other)


@QUIET
@ALL
@EACH_LOSS
def test_the_threads_do_not_change_a_bit(estimator, loss):
    X, y, clients = rows(loss, n=400)
    clients = np.arange(400) // 10
    options = {"loss": loss, "batch_size": 4, "step_size": 0.1, "max_rounds": 8}
    models = [
        estimator(6, n_jobs=n, random_state=0, refit=True, **options) for n in (1, 2, 5)
    ]
    if estimator is not DistributedIHT:
        models += [clone(m).set_params(control_variates=True) for m in models]
    for model in models:
        model.fit(X, y, clients)
    for model in models[:3]:
        assert_array_equal(model.coef_, models[0].coef_)
        assert_array_equal(model.intercept_, models[0].intercept_)
        assert_array_equal(model.history_["objective"], models[0].history_["objective"])
    for model in models[3:]:
        assert_array_equal(model.coef_, models[3].coef_)


@QUIET
@ALL
@EACH_LOSS
def test_the_order_of_rows_and_names_of_clients_do_not_matter(estimator, loss):
    X, y, clients = rows(loss)
    mixed = np.random.default_rng(0).permutation(len(y))
    model = estimator(6, loss=loss, max_rounds=20, random_state=0)
    expected = model.fit(X, y, clients).predict(X)
    names = {"ann": ("a", 1), "bob": 7, "cy": 2.5, "dee": "x"}
    again = clone(model).fit(X[mixed], y[mixed], [names[c] for c in clients[mixed]])
    assert len(again.clients_) == 4
    if loss == "squared":
        assert_allclose(again.predict(X), expected, rtol=1e-6)
    else:
        assert_array_equal(again.predict(X), expected)


@QUIET
@ALL
def test_weights_follow_the_sorted_names(estimator):
    X, y, clients = rows("squared")
    backwards = np.arange(len(y))[::-1]
    options = {"weights": (1.0, 2.0, 3.0, 4.0), "max_rounds": 10}
    one = estimator(6, **options).fit(X, y, clients)
    two = estimator(6, **options).fit(X[backwards], y[backwards], clients[backwards])
    assert_allclose(two.coef_, one.coef_, rtol=1e-8)
    assert_allclose(two.objective_, one.objective_, rtol=1e-10)


@QUIET
@ALL
def test_a_sample_of_clients_is_enough(estimator):
    X, y, clients = rows("squared", n=400)
    clients = np.arange(400) // 20
    engine = LocalEngine(client_fraction=0.5)
    model = estimator(6, engine=engine, random_state=0).fit(X, y, clients)
    expected = objective(model, X, y, clients, np.ones(20), 0)
    assert_allclose(model.objective_, expected, rtol=1e-10)
    assert model.objective_ < 0.2 * np.mean((y - y.mean()) ** 2) / 2


# A failed fit changes nothing.


@ALL
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_nonzero_coefs", -1),
        ("n_nonzero_coefs", 2.5),
        ("n_nonzero_coefs", "many"),
        ("loss", "hinge"),
        ("step_size", 0),
        ("step_size", -1.0),
        ("step_size", np.nan),
        ("step_size", "small"),
        ("batch_size", 0),
        ("batch_size", "all"),
        ("l2", -1),
        ("l2", np.inf),
        ("weights", "rows"),
        ("weights", (1.0, 2.0)),
        ("weights", (1.0, 2.0, -3.0, 1.0)),
        ("weights", (0.0, 0.0, 0.0, 0.0)),
        ("tol", -1),
        ("max_rounds", 0),
        ("engine", "x"),
        ("engine", LocalEngine),
    ],
)
def test_a_bad_parameter_is_refused_by_name(estimator, name, value):
    model = estimator(**{name: value})
    with pytest.raises((ValueError, TypeError), match=name):
        model.fit(*rows("squared"))
    assert vars(model).keys() == model.get_params().keys()


@ALL
def test_a_failed_fit_changes_nothing(estimator):
    X, y, clients = rows("squared")
    model = estimator(6, tol=1e-2).fit(X, y, clients)
    before = copy.deepcopy(vars(model))
    with pytest.raises(ValueError, match="clients has 3 entries, X has 120 rows"):
        model.fit(X[:, :3], y, clients[:3])
    model.set_params(max_rounds=1)
    with pytest.raises(ConvergenceWarning):
        model.fit(X[:, :3], y)
    model.set_params(max_rounds=200)
    for name, column in before.pop("history_").items():
        assert_array_equal(model.history_[name], column)
    for name, value in before.items():
        assert_array_equal(getattr(model, name), value)


def test_three_classes_need_softmax():
    X, y, clients = rows("softmax")
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        FedIterHT(loss="logistic").fit(X, y, clients)


@pytest.mark.parametrize("estimator", [FedHT, FedIterHT])
@pytest.mark.parametrize("value", [0, 1.5])
def test_a_bad_number_of_local_steps_is_refused_by_name(estimator, value):
    with pytest.raises((ValueError, TypeError), match="local_steps"):
        estimator(local_steps=value).fit(*rows("squared"))


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_one_class_is_refused(loss):
    with pytest.raises(ValueError, match="1 class"):
        FedIterHT(loss=loss).fit(np.eye(4), ["a"] * 4)


# scikit-learn's machinery.


@QUIET
def test_grid_search_over_a_pipeline_routes_the_clients():
    X, y, clients = rows("logistic")
    pipeline = make_pipeline(StandardScaler(), FedIterHT(loss="logistic", tol=1e-2))
    grid = {"fediterht__n_nonzero_coefs": [2, 6]}
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipeline, grid, cv=3, scoring="roc_auc")
        search.fit(X, y, clients=clients)
    assert_array_equal(search.best_estimator_[-1].clients_, np.unique(clients))
    assert search.best_score_ > 0.8


@QUIET
@pytest.mark.parametrize("scoring", [None, "r2", "neg_mean_absolute_error"])
def test_cross_validate_needs_no_clients_to_score(scoring):
    X, y, clients = rows("squared")
    scores = cross_validate(
        FedIterHT(6), X, y, params={"clients": clients}, scoring=scoring, cv=3
    )
    assert np.isfinite(scores["test_score"]).all()


@QUIET
@ALL
@EACH_LOSS
def test_a_round_trip_keeps_every_bit(estimator, loss):
    X, y, clients = rows(loss)
    model = estimator(6, loss=loss, max_rounds=5).fit(X, y, clients)
    again = pickle.loads(pickle.dumps(model))
    assert_array_equal(again.predict(X), model.predict(X))
    assert vars(clone(model)).keys() == model.get_params().keys()


@QUIET
def test_verbose_prints_a_line_a_round(capsys):
    X, y, clients = rows("squared")
    model = FedIterHT(6, max_rounds=5, verbose=1).fit(X, y, clients)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_rounds_
    assert lines[-1] == f"[fedcore] round 5, objective {model.objective_:.6g}"


@pytest.mark.parametrize("place", [77, -1])
def test_a_corrupt_sparse_matrix_is_refused(place):
    X, y, clients = rows("squared")
    model = FedIterHT(6, tol=1e-2).fit(sparse.csr_array(X), y, clients)
    corrupt = sparse.csr_array(X)
    corrupt.indices[3] = place
    with pytest.raises(ValueError, match="X is no valid CSR matrix"):
        model.fit(corrupt, y, clients)
    with pytest.raises(ValueError, match="X is no valid CSR matrix"):
        model.predict(corrupt)
