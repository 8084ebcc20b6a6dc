"""Early stopping of FedMTLSVC and FedMTLSVR on held-out rows of each client."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.metrics import r2_score
from sklearn.utils import check_random_state

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.mtl_svm import stopping
from fedcore.mtl_svm.stopping import hold_out

BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
RULES = ["sequential", "envelope", "line_search", "safe"]
OPTIONS = {"C1": 0.05, "C2": 10.0, "tol": 1e-5}
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows_for(estimator, n_classes=2):
    """Rows of five clients, client after client."""
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, clients = make(5, 40, 30, random_state=0)
    if estimator is FedMTLSVC and n_classes > 2:
        y = np.digitize(X[:, 0] + y, np.linspace(-1, 1, n_classes - 1))
    return X, y, clients


def label_of(estimator, y):
    if estimator is FedMTLSVR:
        return np.zeros(len(y), int)
    return np.unique(y, return_inverse=True)[1]


@pytest.mark.parametrize("fraction", [0.01, 0.1, 0.3, 0.5, 0.97])
@pytest.mark.parametrize("seed", range(5))
def test_rows_are_held_out_of_all_clients_and_labels_alike(fraction, seed):
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(30), rng.integers(1, 60, 30))
    label = rng.integers(3, size=len(owner))
    held = hold_out(owner, label, fraction, np.random.RandomState(seed))
    again = hold_out(owner, label, fraction, np.random.RandomState(seed))
    assert_array_equal(held, again)
    for k in range(30):
        own = owner == k
        wanted = np.floor(fraction * own.sum() + 0.5)
        n_labels = len(np.unique(label[own]))
        assert wanted - n_labels <= held[own].sum() <= wanted
        for c in np.unique(label[own]):
            cell = own & (label == c)
            assert not held[cell].all()
            assert abs(held[cell].sum() - fraction * cell.sum()) < 2


@quietly
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("estimator", "n_classes"), [(FedMTLSVC, 2), (FedMTLSVC, 3), (FedMTLSVR, 0)]
)
def test_the_model_is_that_of_the_best_round(estimator, n_classes, rule, form):
    X, y, clients = rows_for(estimator, n_classes)
    options = {"aggregation": rule, "local_epochs": 1} | OPTIONS
    model = estimator(
        early_stopping=True, validation_fraction=0.2, random_state=0, **options
    ).fit(form(X), y, clients)
    scores = model.history_["validation_score"]
    best = int(np.argmax(scores))
    assert model.best_validation_score_ == scores[best]
    assert model.n_rounds_ in (best + 6, model.max_rounds) or model.dual_gap_ <= 1e-5

    # The same rows held out by hand, and no more rounds than to the best one.
    random = check_random_state(0)
    held = hold_out(clients, label_of(estimator, y), 0.2, random)
    plain = estimator(max_rounds=best + 1, random_state=random, **options)
    plain.fit(form(X[~held]), y[~held], clients[~held])
    score = plain.score(form(X[held]), y[held], clients[held])
    if rule != "envelope":  # which returns the lowest primal, not the last
        assert_allclose(score, scores[best], rtol=1e-12)
        assert_array_equal(model.coef_, plain.coef_)
        v, expected = model.client_coef_, plain.client_coef_
        if form is not np.asarray:
            v, expected = v.toarray(), expected.toarray()
        assert_allclose(v, expected, rtol=1e-12, atol=1e-15)
    seen = model.score(form(X[held]), y[held], clients[held])
    assert_allclose(seen, scores[best], rtol=1e-12)


@quietly
@BOTH
def test_weights_count_in_the_score(estimator):
    X, y, clients = rows_for(estimator)
    weight = np.random.default_rng(0).uniform(0, 2, len(y))
    model = estimator(early_stopping=True, random_state=0, **OPTIONS)
    model.fit(X, y, clients, weight)
    held = hold_out(clients, label_of(estimator, y), 0.1, check_random_state(0))
    score = model.score(X[held], y[held], clients[held], weight[held])
    assert_allclose(model.best_validation_score_, score, rtol=1e-12)


@quietly
@BOTH
def test_the_loss_of_held_out_rows_is_told_too(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(early_stopping=True, random_state=0, **OPTIONS)
    model.fit(X, y, clients)
    held = hold_out(clients, label_of(estimator, y), 0.1, check_random_state(0))
    if estimator is FedMTLSVC:
        sign = np.where(y[held] == model.classes_[1], 1, -1)
        scores = model.decision_function(X[held], clients[held])
        losses = np.maximum(0, 1 - sign * scores)
    else:
        off = np.abs(y[held] - model.predict(X[held], clients[held]))
        losses = np.maximum(0, off - model.epsilon)
    best = np.argmax(model.history_["validation_score"])
    assert_allclose(model.history_["validation_loss"][best], losses.mean(), rtol=1e-10)


def test_targets_far_from_0_cost_the_score_no_digits_once_their_mean_is_known():
    rng = np.random.default_rng(0)
    y = 1e9 + rng.normal(size=50)
    predicted = y + 0.1 * rng.normal(size=50)
    state = stopping.start({"w": np.zeros((1, 2)), "round": 1, "done": False})
    for _ in range(2):
        about = y - state["centre"]
        figures = [((y - predicted) ** 2).sum(), 50, about.sum(), about @ about, 7]
        state = stopping.judge(state, np.array(figures), 5, regression=True)
    assert_allclose(state["score"], r2_score(y, predicted), rtol=1e-12)
    assert state["loss"] == 7 / 50


@quietly
@BOTH
@pytest.mark.parametrize("rule", RULES)
def test_threads_do_not_matter(estimator, rule):
    X, y, clients = rows_for(estimator)
    options = OPTIONS | {"aggregation": rule, "random_state": 0}
    one, three = (
        estimator(early_stopping=True, n_jobs=n_jobs, **options).fit(X, y, clients)
        for n_jobs in (1, 3)
    )
    assert_array_equal(one.client_coef_, three.client_coef_)
    seen, expected = (m.history_["validation_score"] for m in (one, three))
    assert_array_equal(seen, expected)


@BOTH
def test_a_gap_is_told_only_of_a_model_that_was_measured(estimator):
    X, y, clients = rows_for(estimator)
    options = {"aggregation": "sequential", "random_state": 0} | OPTIONS
    stopped = estimator(early_stopping=True, n_iter_no_change=1, **options)
    stopped.fit(X, y, clients)
    assert np.isnan(stopped.dual_gap_) and np.isnan(stopped.objective_)
    # Patience without end, and a score that the last round has.
    to_the_end = estimator(early_stopping=True, n_iter_no_change=10**6, **options)
    to_the_end.fit(X, y, clients)
    assert to_the_end.history_["gap"][-1] <= 1e-5
    best = np.argmax(to_the_end.history_["validation_score"]) + 1
    is_last = best == to_the_end.n_rounds_
    assert np.isnan(to_the_end.dual_gap_) == (not is_last)


@BOTH
def test_the_score_is_kept_for_early_stopping_alone(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(early_stopping=True, random_state=0, **OPTIONS)
    model.fit(X, y, clients).set_params(early_stopping=False).fit(X, y, clients)
    assert not hasattr(model, "best_validation_score_")
    assert "validation_score" not in model.history_
    plain = estimator(random_state=0, **OPTIONS).fit(X, y, clients)
    assert_array_equal(model.coef_, plain.coef_)


@BOTH
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"early_stopping": "yes"}, "early_stopping == 'yes'"),
        ({"validation_fraction": 0}, "validation_fraction == 0"),
        ({"validation_fraction": 1.0}, "validation_fraction == 1"),
        ({"validation_fraction": np.nan}, "validation_fraction == nan"),
        ({"validation_fraction": "a tenth"}, "validation_fraction must be"),
        ({"n_iter_no_change": 0}, "n_iter_no_change == 0"),
        ({"n_iter_no_change": 1.5}, "n_iter_no_change must be"),
        ({"early_stopping": True, "warm_start": True}, "are both True"),
        (
            {"early_stopping": True, "validation_fraction": 1e-4},
            "validation_fraction == 0.0001 leaves no row",
        ),
    ],
)
def test_bad_parameters_are_refused_by_name(estimator, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        estimator(**options).fit(*rows_for(estimator))
