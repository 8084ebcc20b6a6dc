"""What has gone wrong elsewhere under an l0 constraint does not go wrong here."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression

from fedcore import DistributedIHT, FedHT, FedIterHT

LOSSES = ("squared", "logistic", "softmax")
ALL = pytest.mark.parametrize("estimator", [FedIterHT, FedHT, DistributedIHT])
EACH_LOSS = pytest.mark.parametrize("loss", LOSSES)
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows(loss, n=120, d=12, seed=0):
    """Make rows of three clients with an informative first half."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    coef = np.zeros((d, 3))
    coef[: d // 2] = rng.normal(size=(d // 2, 3))
    score = X @ coef + 0.5 * rng.normal(size=(n, 3)) + 0.5
    y = {
        "squared": score[:, 0],
        "logistic": (score[:, 0] > 0).astype(int),
        "softmax": score.argmax(axis=1),
    }[loss]
    return X, y, np.arange(n) % 3


# flower PR 4398


@ALL
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ties_go_to_the_first_columns(estimator, form, n_jobs):
    # The first gradient is the same on columns 0, 1, 2 and less on 3.
    X = np.zeros((8, 4))
    X[np.arange(8), np.arange(8) % 4] = 1
    y = np.array([1.0, 1.0, 1.0, 0.1] * 2)
    model = estimator(
        2, step_size=0.5, max_rounds=1, fit_intercept=False, n_jobs=n_jobs
    ).fit(form(X), y, np.arange(8) // 4)
    assert_array_equal(model.support_, [0, 1])
    assert np.count_nonzero(model.coef_) == 2


# scikit-learn 33454, abess


@ALL
@EACH_LOSS
@pytest.mark.parametrize("tau", [36, 37, 10_000])
def test_more_coefficients_than_there_are_is_a_dense_fit(estimator, loss, tau):
    X, y, clients = rows(loss)
    model = estimator(tau, loss=loss, l2=0.01, tol=1e-12, refit=True)
    model.fit(X, y, clients)
    # the sum of losses under 1 / C against their mean under l2
    if loss == "squared":
        centred = X - X.mean(axis=0)
        gram = centred.T @ centred / len(y) + 0.01 * np.eye(12)
        coef = np.linalg.solve(gram, centred.T @ y / len(y))
    else:
        C = 1 / (0.01 * len(y))
        coef = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(X, y).coef_
    assert_allclose(model.coef_, coef, atol=1e-5)


# abess PR 520


@ALL
@EACH_LOSS
def test_no_coefficients_leave_the_intercept(estimator, loss):
    X, y, clients = rows(loss)
    model = estimator(0, loss=loss, refit=True).fit(X, y, clients)
    assert not model.coef_.any()
    if loss == "squared":
        assert_allclose(model.intercept_, y.mean(), rtol=1e-8)
        assert_allclose(model.objective_, y.var() / 2, rtol=1e-8)
    else:
        share = np.bincount(y) / len(y)
        assert_allclose(model.predict_proba(X[:1])[0], share, rtol=1e-6)
        assert_allclose(model.objective_, -share @ np.log(share), rtol=1e-8)
    bare = estimator(0, loss=loss, fit_intercept=False).fit(X, y, clients)
    assert not (np.any(bare.coef_) or np.any(bare.intercept_))
    start = {"squared": np.mean(y**2) / 2, "logistic": np.log(2)}
    assert_allclose(bare.objective_, start.get(loss, np.log(3)), rtol=1e-12)


@ALL
@pytest.mark.parametrize("tau", [-1, 1.5, "3"])
def test_no_such_number_is_refused(estimator, tau):
    with pytest.raises((ValueError, TypeError), match="n_nonzero_coefs"):
        estimator(tau).fit(*rows("squared"))


# abess 314


@ALL
@EACH_LOSS
@pytest.mark.parametrize("refit", [False, True])
def test_an_empty_column_is_never_selected(estimator, loss, refit):
    X, y, clients = rows(loss)
    X[:, [0, 7]] = 0
    X[:, 3] = 5.0  # like the intercept
    model = estimator(36, loss=loss, refit=refit).fit(X, y, clients)
    assert np.isfinite(model.coef_).all()
    assert not set(model.support_) & {0, 7}
    nothing = estimator(3, loss=loss, refit=refit).fit(np.zeros_like(X), y, clients)
    assert not nothing.coef_.any()
    assert np.isfinite(nothing.objective_)


# scikit-learn 17925, 10517


@ALL
@EACH_LOSS
def test_a_step_too_long_is_told_and_the_best_point_kept(estimator, loss):
    X, y, clients = rows(loss)
    model = estimator(5, loss=loss, step_size=0.1, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"step_size=0\.1.*scale the columns"):
        model.fit(1e4 * X, y, clients)
    assert np.isfinite(model.coef_).all()
    start = {"squared": np.mean(y**2) / 2, "logistic": np.log(2)}
    assert model.objective_ <= start.get(loss, np.log(3)) * (1 + 1e-12)


@ALL
def test_golub_unscaled_is_told(estimator, data_path):
    with np.load(data_path("iht_golub.npz")) as file:
        X, y = file["X"].astype(float), file["y"]
    model = estimator(10, loss="logistic", step_size=0.1)
    with pytest.warns(ConvergenceWarning, match=r"step_size=0\.1.*scale the columns"):
        model.fit(X, y, np.arange(len(y)) % 3)
    assert np.isfinite(model.coef_).all()
    assert model.objective_ <= np.log(2) * (1 + 1e-12)


@ALL
@EACH_LOSS
@pytest.mark.parametrize("scale", [1e-6, 1e4, 1e100])
def test_automatic_steps_go_down_at_any_scale(estimator, loss, scale):
    X, y, clients = rows(loss)
    model = estimator(5, loss=loss, max_rounds=30).fit(scale * X, y, clients)
    start = {"squared": np.mean(y**2) / 2, "logistic": np.log(2)}
    assert np.isfinite(model.coef_).all()
    assert model.objective_ <= start.get(loss, np.log(3))
    if scale > 1:
        assert model.objective_ < 0.9 * start.get(loss, np.log(3))


def test_targets_too_large_are_refused():
    X, y, clients = rows("squared")
    with pytest.raises(ValueError, match="scale y"):
        FedIterHT(5).fit(X, 1e200 * y, clients)


# celer 19, scikit-learn 13460


@ALL
@EACH_LOSS
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("batch_size", ["auto", 5])
def test_sparse_rows_give_the_dense_answer(estimator, loss, form, batch_size):
    X, y, clients = rows(loss)
    weight = np.random.default_rng(1).integers(0, 3, len(y))
    model = estimator(
        8,
        loss=loss,
        l2=0.01,
        step_size="auto" if batch_size == "auto" else 0.05,
        batch_size=batch_size,
        max_rounds=15,
        refit=True,
        random_state=0,
    )
    dense = model.fit(X, y, clients, weight)
    coef, intercept, objective = dense.coef_, dense.intercept_, dense.objective_
    model.fit(form(X), y, clients, weight)
    assert_allclose(model.coef_, coef, rtol=1e-10, atol=1e-10)
    assert_allclose(model.intercept_, intercept, rtol=1e-10, atol=1e-10)
    assert_allclose(model.objective_, objective, rtol=1e-10)


@EACH_LOSS
def test_control_variates_are_the_same_on_sparse_rows(loss):
    X, y, clients = rows(loss)
    model = FedIterHT(8, loss=loss, l2=0.01, control_variates=True, max_rounds=15)
    coef = model.fit(X, y, clients).coef_
    assert_allclose(model.fit(sparse.csr_array(X), y, clients).coef_, coef, atol=1e-10)


@ALL
@EACH_LOSS
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_single_precision_is_near_double(estimator, loss, form):
    X, y, clients = rows(loss)
    X = np.round(X, 2)
    model = estimator(8, loss=loss, l2=0.01, max_rounds=15, refit=True)
    objective = model.fit(form(X), y, clients).objective_
    single = form(X.astype(np.float32))
    assert_allclose(model.fit(single, y, clients).objective_, objective, rtol=1e-4)


# skglm PR 258


@ALL
@EACH_LOSS
def test_weights_drop_and_repeat_rows(estimator, loss):
    X, y, clients = rows(loss)
    weight = np.random.default_rng(1).integers(0, 3, len(y)).astype(float)
    weight[clients == 2] = 0
    model = estimator(8, loss=loss, l2=0.01, max_rounds=15, refit=True)
    weighted = model.fit(X, y, clients, weight)
    coef, objective, known = weighted.coef_, weighted.objective_, weighted.clients_
    again = np.repeat(np.arange(len(y)), weight.astype(int))
    model.fit(X[again], y[again], clients[again])
    assert_allclose(model.coef_, coef, rtol=1e-7, atol=1e-9)
    assert_allclose(model.objective_, objective, rtol=1e-10)
    assert_array_equal(known, [0, 1])


@ALL
@EACH_LOSS
def test_stored_zeros_change_nothing(estimator, loss):
    X, y, clients = rows(loss)
    clean = sparse.csr_array(X)
    stored = clean.copy()
    stored.data[::3] = 0
    clean = sparse.csr_array(stored.toarray())
    model = estimator(8, loss=loss, max_rounds=15)
    expected = model.fit(clean, y, clients).coef_
    assert_allclose(model.fit(stored, y, clients).coef_, expected, rtol=1e-12)


# LabeliaLabs/distributed-learning-contributivity 257


@ALL
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_clients_of_one_class_learn_all_classes(estimator, loss):
    X, y, _ = rows(loss, n=240)
    names = np.array(["amber", "blue", "cyan"])[y]
    model = estimator(12, loss=loss, refit=True).fit(X, names, clients=names)
    assert_array_equal(model.classes_, np.unique(names))
    assert model.score(X, names) > 0.75


# benchopt 568


@ALL
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
@pytest.mark.parametrize("refit", [False, True])
def test_separable_labels_end_finite(estimator, loss, refit):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 4))
    X[:, 0] = np.arange(90) % 3 - 1.0
    y = np.arange(90) % 3 if loss == "softmax" else (X[:, 0] > 0).astype(int)
    model = estimator(3, loss=loss, refit=refit).fit(X, y, np.arange(90) // 30)
    assert np.isfinite(model.coef_).all()
    assert np.isfinite(model.objective_)
    assert model.score(X, y) > (0.9 if loss == "logistic" else 0.6)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_huge_scores_do_not_overflow(loss):
    X = np.repeat([[-1e4], [1e4]], 20, axis=0)
    y = np.repeat([0, 1], 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = DistributedIHT(2, loss=loss, refit=True).fit(X, y)
        proba = model.predict_proba(1e4 * X)
    assert np.isfinite(proba).all()
    assert model.score(X, y) == 1


# The refit is the optimum on its support.


@ALL
def test_the_refit_is_least_squares_on_the_support(estimator):
    X, y, clients = rows("squared")
    model = estimator(5, refit=True).fit(X, y, clients)
    oracle = LinearRegression().fit(X[:, model.support_], y)
    assert_allclose(model.coef_[model.support_], oracle.coef_, rtol=1e-7)
    assert_allclose(model.intercept_, oracle.intercept_, rtol=1e-7)


@ALL
def test_the_refit_is_logistic_regression_on_the_support(estimator):
    X, y, clients = rows("logistic")
    model = estimator(5, loss="logistic", refit=True, l2=0.01).fit(X, y, clients)
    oracle = LogisticRegression(C=1 / (0.01 * len(y)), tol=1e-10, max_iter=1000)
    oracle.fit(X[:, model.support_], y)
    assert_allclose(model.coef_[:, model.support_], oracle.coef_, rtol=1e-4)


def test_a_long_support_is_refitted_without_a_hessian(monkeypatch):
    X, y, clients = rows("logistic")
    model = DistributedIHT(5, loss="logistic", refit=True, l2=0.01)
    expected = model.fit(X, y, clients)
    coef, up = expected.coef_, expected.history_["bytes_up"][-1]
    monkeypatch.setattr("fedcore.iht.newton.MOST_PLACES", 4)
    model.fit(X, y, clients)
    assert_allclose(model.coef_, coef, atol=1e-4)
    assert model.history_["bytes_up"][-1] < up
