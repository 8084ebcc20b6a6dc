"""What users of linear SVMs met elsewhere, and must not meet here.

Each test names where it was first reported.
"""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_validate

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression

CONVERGENT = ["sequential", "envelope", "line_search", "safe"]
AGGREGATIONS = [*CONVERGENT, "sum"]
LOSSES = {
    "hinge": FedMTLSVC,
    "squared_hinge": FedMTLSVC,
    "epsilon_insensitive": FedMTLSVR,
    "squared_epsilon_insensitive": FedMTLSVR,
}
BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
EACH_LOSS = pytest.mark.parametrize("loss", LOSSES)
EACH_AGGREGATION = pytest.mark.parametrize("aggregation", CONVERGENT)
quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def rows_for(estimator, n_clients=3, n_samples=12, n_features=6, **options):
    """Rows, targets and clients in mixed order."""
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, clients = make(n_clients, n_samples, n_features, random_state=0, **options)
    mixed = np.random.default_rng(0).permutation(len(y))
    return X[mixed], y[mixed], clients[mixed]


def models_of(model):
    """Give w (C, d), v (K C, d) and both intercepts."""
    v = model.client_coef_
    v = v.toarray() if sparse.issparse(v) else v.reshape(-1, v.shape[-1])
    return (
        np.atleast_2d(model.coef_),
        v,
        np.ravel(model.intercept_),
        np.ravel(model.client_intercept_),
    )


def assert_same_bits(one, other):
    for mine, theirs in zip(models_of(one), models_of(other), strict=True):
        assert_array_equal(mine, theirs)
    assert one.dual_gap_ == other.dual_gap_


def assert_same_model(one, other, tol=2e-5):
    size = np.linalg.norm(one.coef_)
    for mine, theirs in zip(models_of(one), models_of(other), strict=True):
        assert_allclose(mine, theirs, rtol=0, atol=tol * size)


def score(model, X, clients):
    return getattr(model, "decision_function", model.predict)(X, clients)


# 1. scikit-learn 9545 and 19660: sparse indices of 64 bits.


def with_int64(X):
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
    return X


def with_int32(X):
    X = sparse.csr_array(X)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


@BOTH
def test_int64_indices_that_fit_give_the_model_of_int32(estimator):
    X, y, clients = rows_for(estimator)
    long, short = with_int64(X), with_int32(X)
    assert long.indices.dtype == long.indptr.dtype == np.int64
    models = [estimator(C1=0.02, random_state=0) for _ in range(2)]
    for model, rows in zip(models, (long, short), strict=True):
        model.fit(rows, y, clients)
    assert_same_bits(*models)
    assert_array_equal(
        score(models[0], long, clients), score(models[0], short, clients)
    )
    assert long.indices.dtype == long.indptr.dtype == np.int64


@BOTH
def test_int64_indices_that_do_not_fit_are_refused_in_one_sentence(estimator):
    wide = sparse.csr_array(
        (np.ones(3), np.array([0, 5, 2**31 + 1]), np.array([0, 1, 2, 3])),
        shape=(3, 2**31 + 2),
    )
    with pytest.raises(ValueError, match=r"X has .* 2147483650 columns, .* 32 bits"):
        estimator().fit(wide, [0, 1, 1])


# 2. scikit-learn 31722 and pull request 1587: entries out of order and entries twice.


@BOTH
@pytest.mark.parametrize("form", [sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_unsorted_and_repeated_entries_add_up_and_stay_as_they_were(
    estimator, form, dtype
):
    X, y, clients = rows_for(estimator)
    X = X.astype(dtype)
    data, columns, ends = [], [], [0]
    for row in X:
        for j in (3, 0, 5, 1, 4, 2, 0):  # column 0 comes twice, half of it each time
            data.append(row[j] / 2 if j == 0 else row[j])
            columns.append(j)
        ends.append(len(data))
    parts = np.array(data, dtype), np.array(columns, np.int32), np.array(ends, np.int32)
    untidy = form(tuple(part.copy() for part in parts), shape=X.shape)
    model, tidy = (estimator(C1=0.02, random_state=0) for _ in range(2))
    model.fit(untidy, y, clients)
    seen = score(model, untidy, clients)
    for given, part in zip(
        (untidy.data, untidy.indices, untidy.indptr), parts, strict=True
    ):
        assert given.dtype == part.dtype
        assert_array_equal(given, part)
    tidy.fit(sparse.csr_array(X), y, clients)
    assert_same_bits(model, tidy)
    assert_allclose(seen, score(tidy, X, clients), rtol=0, atol=1e-5)


# 3. scikit-learn 10667 and 6614: rows that cannot be written.


def on_disk(folder, name, array):
    path = folder / f"{name}.npy"
    np.save(path, array)
    return np.load(path, mmap_mode="r")


def locked(_folder, _name, array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("keep", [on_disk, locked])
@pytest.mark.parametrize("grouped", [True, False])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@EACH_LOSS
def test_rows_that_cannot_be_written_are_only_read(
    tmp_path, loss, keep, grouped, dtype
):
    X, y, clients = rows_for(LOSSES[loss])
    if grouped:
        order = np.argsort(clients, kind="stable")
        X, y, clients = X[order], y[order], clients[order]
    weight = np.linspace(0.5, 2, len(y))
    arrays = {"X": X.astype(dtype), "y": y, "clients": clients, "weight": weight}
    kept = [keep(tmp_path, name, array) for name, array in arrays.items()]
    assert not any(array.flags.writeable for array in kept)
    models = [LOSSES[loss](C1=0.02, loss=loss, random_state=0) for _ in range(2)]
    models[0].fit(*kept)
    models[1].fit(*arrays.values())
    assert_same_bits(*models)
    score(models[0], kept[0], kept[2])
    for array, (name, original) in zip(kept, arrays.items(), strict=True):
        assert_array_equal(array, original, err_msg=name)


@BOTH
def test_sparse_rows_that_cannot_be_written_are_only_read(estimator):
    X, y, clients = rows_for(estimator)
    X = with_int32(X)
    for part in (X.data, X.indices, X.indptr):
        part.flags.writeable = False
    models = [estimator(C1=0.02, random_state=0) for _ in range(2)]
    models[0].fit(X, y, clients)
    models[1].fit(X.copy(), y, clients)
    assert_same_bits(*models)


# 4. scikit-learn 10873 and 30056: weights are repetitions.


WEIGHTED = [(loss, {}) for loss in LOSSES]
WEIGHTED += [(loss, {"class_weight": "balanced"}) for loss in list(LOSSES)[:2]]


@EACH_AGGREGATION
@pytest.mark.parametrize(("loss", "options"), WEIGHTED, ids=str)
def test_weights_0_1_2_are_rows_dropped_kept_repeated(loss, options, aggregation):
    vertex = not loss.startswith("squared") and aggregation != "envelope"
    tol = 1e-9 if vertex else 1e-12
    options = options | {"C1": 0.02, "loss": loss, "aggregation": aggregation}
    options |= {"tol": tol, "max_rounds": 2000, "random_state": 0}
    X, y, clients = rows_for(LOSSES[loss])
    weight = np.random.default_rng(1).integers(3, size=len(y))
    weighted = LOSSES[loss](**options).fit(X, y, clients, sample_weight=weight)
    again = np.repeat(np.arange(len(y)), weight)
    repeated = LOSSES[loss](**options).fit(X[again], y[again], clients[again])
    assert_same_model(weighted, repeated)


@EACH_AGGREGATION
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_class_that_a_client_has_at_weight_0_alone_is_absent_there(
    aggregation, class_weight
):
    X, _, clients = rows_for(FedMTLSVC, n_samples=18)
    y = np.resize([0, 1, 2, 1], len(clients))
    weight = np.where((clients == 1) & (y == 2), 0, 1 + (y == 0))
    again = np.repeat(np.arange(len(y)), weight)
    options = {"C1": 0.02, "loss": "squared_hinge", "class_weight": class_weight}
    options |= {"tol": 1e-12, "max_rounds": 2000, "aggregation": aggregation}
    weighted, repeated = (FedMTLSVC(random_state=0, **options) for _ in range(2))
    weighted.fit(X, y, clients, weight)
    repeated.fit(X[again], y[again], clients[again])
    assert not weighted.client_coef_[1, 2].any()
    assert not repeated.client_coef_[1, 2].any()
    assert_same_model(weighted, repeated)


# 5. scikit-learn 22283 and 26331: a tolerance out of reach, or one round.


@EACH_AGGREGATION
@EACH_LOSS
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_tolerance_out_of_reach_never_crashes(loss, aggregation, dtype):
    X, y, clients = rows_for(LOSSES[loss])
    X = (X * np.logspace(-3, 3, X.shape[1])).astype(dtype)
    options = {"aggregation": aggregation, "tol": 1e-12, "max_rounds": 50}
    model = LOSSES[loss](loss=loss, random_state=0, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, clients)
    assert_gap_is_told(model, caught)


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@EACH_LOSS
def test_one_round_never_crashes(loss, aggregation):
    X, y, clients = rows_for(LOSSES[loss])
    options = {"aggregation": aggregation, "tol": 1e-9, "max_rounds": 1}
    model = LOSSES[loss](loss=loss, random_state=0, **options)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(X, y, clients)
    assert model.n_rounds_ == 1
    assert_gap_is_told(model, caught)


def assert_gap_is_told(model, caught):
    """Check that the only warning names a gap above tol, and the model is finite."""
    assert all(np.isfinite(part).all() for part in models_of(model))
    assert model.dual_gap_ >= 0
    if model.dual_gap_ <= model.tol:
        assert not len(caught)
    else:
        (warning,) = caught
        assert warning.category is ConvergenceWarning
        (told,) = re.findall(r"gap of (\S+\d)", str(warning.message))
        assert told == f"{model.dual_gap_:.1e}"


# 6. scikit-learn 13001, sparkit-learn 49: a client with labels of one class.


@EACH_AGGREGATION
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_client_with_one_class_is_trained_like_the_others(loss, aggregation):
    X, y, clients = rows_for(FedMTLSVC)
    keep = (clients != 1) | (y == 1)
    X, y, clients = X[keep], y[keep], clients[keep]
    options = {"loss": loss, "tol": 1e-10, "max_rounds": 2000}
    model = FedMTLSVC(0.02, aggregation=aggregation, random_state=0, **options)
    model.fit(X, y, clients)
    assert model.client_coef_[1].any()
    # The same rows under labels that all clients share: the sign of a row's x y counts.
    flip = np.where(clients == 1, np.resize([1, -1], len(y)), 1)
    columns = np.hstack([X, np.ones((len(y), 1))])
    twin = FedMTLSVC(
        0.02, aggregation=aggregation, fit_intercept=False, random_state=0, **options
    )
    twin.fit(flip[:, None] * columns, flip * y, clients)
    assert set(twin.classes_) == {-1, 1} == set((flip * y)[clients == 1].tolist())
    size = np.linalg.norm(model.coef_)
    assert_allclose(model.coef_, twin.coef_[:, :-1], rtol=0, atol=2e-5 * size)
    assert_allclose(
        model.client_coef_, twin.client_coef_[..., :-1], rtol=0, atol=2e-5 * size
    )


@pytest.mark.parametrize("label", [0, "yes"])
def test_one_class_over_all_clients_is_refused(label):
    X, y, clients = rows_for(FedMTLSVC)
    words = rf"y has 1 class \({label!r}\), expected at least 2 classes"
    with pytest.raises(ValueError, match=words):
        FedMTLSVC().fit(X, np.full(len(y), label), clients)


# 7. flower 7645, FedML 175: a client without a row that counts.


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@EACH_AGGREGATION
@EACH_LOSS
def test_a_client_of_weight_0_has_no_personal_part(loss, aggregation, form):
    estimator = LOSSES[loss]
    X, y, clients = rows_for(estimator)
    weight = np.where(clients == 1, 0.0, 1.0)
    options = {"loss": loss, "aggregation": aggregation, "random_state": 0}
    options |= {"C1": 0.02, "tol": 1e-10, "max_rounds": 2000}
    model = estimator(**options).fit(form(X), y, clients, weight)
    assert_array_equal(model.clients_, [0, 1, 2])
    v = models_of(model)[1]
    assert not v[1].any() and not model.client_intercept_[1].any()
    counts = clients != 1
    others = estimator(**options).fit(form(X[counts]), y[counts], clients[counts])
    size = np.linalg.norm(others.coef_)
    assert_allclose(model.coef_, others.coef_, rtol=0, atol=2e-5 * size)
    assert_allclose(v[[0, 2]], models_of(others)[1], rtol=0, atol=2e-5 * size)
    shared = X @ np.ravel(model.coef_) + model.intercept_
    assert_allclose(score(model, X, clients)[clients == 1], shared[clients == 1])


# 8. cocoa 3: a negative duality gap.


@quietly
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@EACH_LOSS
def test_no_round_has_a_negative_gap(loss, aggregation, dtype):
    X, y, clients = rows_for(LOSSES[loss])
    X = (X * np.logspace(-2, 2, X.shape[1])).astype(dtype)
    for n_rounds in (1, 2, 3, 5, 8, 13, 34):
        options = {"aggregation": aggregation, "max_rounds": n_rounds, "tol": 0}
        model = LOSSES[loss](0.1, loss=loss, random_state=0, **options)
        model.fit(X, y, clients)
        gaps = model.history_["gap"]
        assert gaps[-1] == model.dual_gap_
        assert gaps[~np.isnan(gaps)].min() >= -1e-12  # relative to the primal


# 9. scikit-learn 4374 and 11715: what the intercept changes.


@BOTH
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_intercept_does_not_change_the_shape_of_coef(estimator, form):
    X, y, clients = rows_for(estimator)
    with_it, without = (
        estimator(C1=0.02, fit_intercept=fit_intercept, random_state=0)
        for fit_intercept in (True, False)
    )
    with_it.fit(form(X), y, clients)
    without.fit(form(X), y, clients)
    assert with_it.coef_.shape == without.coef_.shape
    assert with_it.client_coef_.shape == without.client_coef_.shape
    assert np.shape(with_it.intercept_) == np.shape(without.intercept_)
    assert with_it.client_intercept_.shape == without.client_intercept_.shape
    assert np.all(with_it.intercept_ != 0) and np.all(without.intercept_ == 0)


def test_the_intercept_is_penalised_as_the_documentation_says():
    told = " ".join(FedMTLSVC.__doc__.split())
    assert "Its weights, shared and personal, are penalised like all others" in told
    X, y, clients = rows_for(FedMTLSVC)
    model = FedMTLSVC(0.1, 2.0, random_state=0).fit(X, y, clients)
    w, b = model.coef_[0], model.intercept_[0]
    v, c = model.client_coef_[:, 0], model.client_intercept_[:, 0]
    margin = 1 - y * model.decision_function(X, clients)
    penalty = w @ w / 2 + b * b / 2 + np.sum(v * v) + np.sum(c * c)
    expected = penalty + 0.1 * np.maximum(0, margin).sum()
    assert_allclose(model.objective_, expected, rtol=1e-9)


# 10. rsmtool 351: regression on columns that were never scaled.


def assert_ends_with_its_true_gap(X, y, clients, **options):
    primals, duals = [], []
    for aggregation in CONVERGENT:
        model = FedMTLSVR(aggregation=aggregation, random_state=0, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X, y, clients)
        assert model.n_rounds_ <= model.max_rounds
        assert_gap_is_told(model, caught)
        w, b = model.coef_, model.intercept_
        v, c = model.client_coef_, model.client_intercept_
        off = abs(y - model.predict(X, clients)) - model.epsilon
        penalty = (w @ w + b * b + model.C2 * (np.sum(v * v) + np.sum(c * c))) / 2
        primal = penalty + model.C1 * np.maximum(0, off).sum()
        assert_allclose(model.objective_, primal, rtol=1e-9)
        primals.append(primal)
        duals.append(primal * (1 - model.dual_gap_))
    # A dual above anyone's primal would be a gap told too small.
    assert max(duals) <= min(primals) * (1 + 1e-9)


def test_unscaled_columns_end_in_time_with_their_true_gap():
    X, y, clients = rows_for(FedMTLSVR)
    X = X * np.logspace(-3, 5, X.shape[1])
    assert_ends_with_its_true_gap(X, y, clients, max_rounds=60)


def test_raw_parkinsons_ends_in_time_with_its_true_gap(data_path):
    with np.load(data_path("graph_parkinsons.npz")) as stored:
        X, y, clients = stored["X"], stored["y"][:, 1], stored["client"]
    few = np.isin(clients, np.unique(clients)[:12])
    X, y, clients = X[few], y[few], clients[few]
    assert_ends_with_its_true_gap(X, y, clients, max_rounds=10)


# 11. WISDM: clients in any order and from any number, missing values.


def test_wisdm_keeps_its_clients_and_tells_of_its_missing_values(data_path):
    with np.load(data_path("graph_wisdm.npz")) as stored:
        X, y, clients = stored["X"], stored["y"], stored["client"]
    assert np.isnan(X).any() and (np.diff(clients) < 0).any() and clients.min() > 0
    model = FedMTLSVC(C2=10.0, tol=0.5, random_state=0)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        model.fit(X, y, clients)
    assert not hasattr(model, "clients_")
    X = X[:, ~np.isnan(X).any(axis=0)]
    X = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-12)
    few = np.isin(clients, np.unique(clients)[-8:])
    X, y, clients = X[few], y[few], clients[few]
    model.fit(X, y, clients)
    assert_array_equal(model.clients_, np.unique(clients))
    order = np.argsort(clients, kind="stable")
    expected = model.decision_function(X, clients)
    # Rows go with their clients, in whatever order they come.
    assert_allclose(
        model.decision_function(X[order], clients[order]), expected[order], rtol=1e-9
    )
    last = model.clients_[-1]
    own = model.coef_ + model.client_coef_[-1]
    intercept = model.intercept_ + model.client_intercept_[-1]
    assert_allclose(
        expected[clients == last], X[clients == last] @ own.T + intercept, atol=1e-9
    )


# 13. scikit-learn 32748: clients that lack a class.


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@EACH_AGGREGATION
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_iris_in_file_order_serves_clients_that_hold_two_classes_each(
    loss, aggregation, form
):
    X, y = load_iris(return_X_y=True)
    X = X - X.mean(axis=0)
    assert (np.diff(y) >= 0).all()
    clients = np.repeat(["a", "b", "c"], 50)  # halves of classes 0 1, 1 2, 0 2
    clients[:25], clients[25:50] = "a", "c"
    clients[50:75], clients[75:100] = "a", "b"
    clients[100:125], clients[125:150] = "b", "c"
    model = FedMTLSVC(0.1, loss=loss, aggregation=aggregation, random_state=0)
    model.fit(form(X), y, clients)
    v = models_of(model)[1].reshape(3, 3, 4)
    absent = np.array([[0, 0, 1], [1, 0, 0], [0, 1, 0]], bool)  # by client and class
    assert not v[absent].any() and v[~absent].any(axis=1).all()
    assert not model.client_intercept_[absent].any()
    for name in "abc":
        scores = model.decision_function(form(X), np.repeat(name, len(y)))
        assert scores.shape == (150, 3)
    shared = X @ model.coef_.T + model.intercept_
    scores = model.decision_function(form(X), clients)
    for k, c in zip(*np.nonzero(absent), strict=True):
        mine = clients == model.clients_[k]
        assert_allclose(scores[mine, c], shared[mine, c], rtol=1e-12)
    assert set(model.predict(form(X), clients)) == {0, 1, 2}


# 14. scikit-learn 24486: rows without a client.


@BOTH
@pytest.mark.parametrize(
    "hole",
    [
        pytest.param(lambda c: pd.Series(c).astype("Int16"), id="Int16"),
        pytest.param(lambda c: pd.array(c, dtype="Int16"), id="Int16 array"),
        pytest.param(lambda c: pd.Series(c.astype(str), dtype="string"), id="string"),
        pytest.param(
            lambda c: pd.Series(c.astype(str), dtype="category"), id="category"
        ),
        pytest.param(lambda c: pd.Series(pd.to_datetime(c)), id="datetime"),
        pytest.param(lambda c: c.astype(object), id="object"),
        pytest.param(lambda c: c.astype(float), id="float"),
        pytest.param(lambda c: c.tolist(), id="list"),
    ],
)
def test_rows_without_a_client_are_named(estimator, hole):
    X, y, clients = rows_for(estimator)
    whole = hole(clients)
    model = estimator(C1=0.02, random_state=0).fit(X, y, whole)
    assert len(model.clients_) == 3
    for row in (2, 31):
        whole[row] = None
    with pytest.raises(ValueError, match=r"clients has no .* 2 rows \(2, 31\)"):
        model.fit(X, y, whole)
    with pytest.raises(ValueError, match=r"clients has no .* 2 rows \(2, 31\)"):
        model.predict(X, whole)


# 12. scikit-learn 27977: scorers that never see whose rows they score.


def four_clients():
    X, y, clients = make_mtl_classification(4, 50, 3, random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    return X, y, clients, list(folds.split(X, 2 * clients + y))


def test_auc_with_a_client_column_is_that_of_a_loop_by_hand():
    X, y, clients, folds = four_clients()
    assert X.shape == (200, 3)
    grid = {"C2": [0.1, 10.0]}
    wide = np.column_stack([clients, X])
    search = GridSearchCV(
        FedMTLSVC(C1=0.02, client_column=0, random_state=0),
        grid,
        scoring="roc_auc",
        cv=folds,
    ).fit(wide, y)
    for C2, mean in zip(grid["C2"], search.cv_results_["mean_test_score"], strict=True):
        expected = []
        for train, test in folds:
            model = FedMTLSVC(C1=0.02, C2=C2, random_state=0)
            model.fit(X[train], y[train], clients[train])
            scores = model.decision_function(X[test], clients[test])
            expected.append(roc_auc_score(y[test], scores))
        assert mean == np.mean(expected)


@pytest.mark.parametrize("scoring", ["roc_auc", "accuracy"])
@pytest.mark.parametrize("routing", [False, True])
def test_clients_that_a_scorer_drops_give_nan_and_a_way_out(scoring, routing):
    X, y, clients, folds = four_clients()
    model = FedMTLSVC(C1=0.02, random_state=0)
    with (
        config_context(enable_metadata_routing=routing),
        pytest.warns(UserWarning, match="set client_column="),
    ):
        seen = cross_validate(
            model, X, y, scoring=scoring, cv=folds, params={"clients": clients}
        )
    assert np.isnan(seen["test_score"]).all()
