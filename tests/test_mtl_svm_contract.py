"""FedMTLSVC and FedMTLSVR keep scikit-learn's contract and their own promises."""

import copy
import io
import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import (
    GridSearchCV,
    LeaveOneGroupOut,
    StratifiedKFold,
    cross_validate,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine
from fedcore.datasets import make_mtl_classification, make_mtl_regression

AGGREGATIONS = ["auto", "sequential", "envelope", "line_search", "safe", "sum"]
BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])

# The checks of sample weights compare models, so the optimum has to be met closely.
TIGHT = {"tol": 1e-14, "local_epochs": 10, "max_rounds": 200, "random_state": 0}

# A small C1 makes a small problem quick to solve.
EASY = {"C1": 0.02, "random_state": 0}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        estimator(aggregation=aggregation, **TIGHT)
        for estimator in (FedMTLSVC, FedMTLSVR)
        for aggregation in AGGREGATIONS
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def federations():
    """Rows of four clients with names, for each of the two estimators."""
    size = {"n_clients": 4, "n_samples": 20, "n_features": 5, "random_state": 0}
    made = {}
    for estimator, make in (
        (FedMTLSVC, make_mtl_classification),
        (FedMTLSVR, make_mtl_regression),
    ):
        X, y, clients = make(**size)
        made[estimator] = X, y, np.array(["ann", "bob", "cy", "dee"])[clients]
    return made


def fitted_state(model):
    """Everything a model holds, by value."""
    return copy.deepcopy(vars(model))


def assert_same_state(seen, expected):
    assert seen.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_same_state(seen[name], value)
        elif sparse.issparse(value):
            assert_array_equal(seen[name].toarray(), value.toarray(), err_msg=name)
        else:
            assert_array_equal(seen[name], value, err_msg=name)


# A failed fit changes nothing.


def spoil_clients(X, y, clients):
    return X, y, clients[:-1]


def spoil_width_and_clients(X, y, clients):
    return X[:, :2], y, clients[:3]


def spoil_rows(X, y, clients):
    X = X.copy()
    X[7, 1] = np.inf
    return X, y, clients


def spoil_labels(X, y, clients):
    return X, np.full(len(y), np.nan), clients


def spoil_weights(X, y, clients):
    return X, y, clients, -np.ones(len(y))


@BOTH
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_clients, "clients has 79 entries, X has 80 rows"),
        (spoil_width_and_clients, "clients has 3 entries, X has 80 rows"),
        (spoil_rows, "Input X contains infinity"),
        (spoil_labels, "Input y contains NaN"),
        (spoil_weights, "sample_weight has a negative entry"),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_a_failed_fit_changes_nothing(federations, estimator, spoil, words):
    data = federations[estimator]
    model = estimator(**EASY).fit(*data)
    before = fitted_state(model)
    with pytest.raises(ValueError, match=words):
        model.fit(*spoil(*data))
    assert_same_state(vars(model), before)


@BOTH
def test_a_warning_that_is_an_error_changes_nothing(federations, estimator):
    X, y, clients = federations[estimator]
    model = estimator(**EASY).fit(X, y, clients)
    model.set_params(max_rounds=1, tol=1e-9)
    before = fitted_state(model)
    with pytest.raises(ConvergenceWarning):
        model.fit(X[:, :3], y)
    assert_same_state(vars(model), before)


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("C1", 0),
        ("C1", np.inf),
        ("C1", np.nan),
        ("C1", "1"),
        ("C2", 0),
        ("C2", -1.0),
        ("C2", np.nan),
        ("tol", -1e-3),
        ("tol", np.nan),
        ("max_rounds", 0),
        ("max_rounds", 1.5),
        ("intercept_scaling", 0),
        ("intercept_scaling", np.nan),
        ("intercept_scaling", np.inf),
        ("local_epochs", 0),
        ("local_epochs", "many"),
        ("loss", "log"),
        ("aggregation", "mean"),
        ("handle_unknown", "ignore"),
        ("C1", 10**400),
        ("C2", 10**400),
        ("n_jobs", 1.5),
        ("n_jobs", "2"),
        ("n_jobs", 0),
        ("fit_intercept", "no"),
        ("fit_intercept", 1),
        ("warm_start", "yes"),
        ("verbose", "loud"),
        ("loss", np.array(["hinge", "squared_hinge"])),
    ],
)
def test_a_bad_parameter_is_refused_by_name(federations, estimator, name, value):
    model = estimator(**{name: value})
    with pytest.raises((ValueError, TypeError), match=name):
        model.fit(*federations[estimator])
    assert vars(model).keys() == model.get_params().keys()
    assert getattr(model, name) is value


@pytest.mark.parametrize("epsilon", [-0.1, np.nan, np.inf])
def test_a_bad_epsilon_is_refused_by_name(federations, epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        FedMTLSVR(epsilon=epsilon).fit(*federations[FedMTLSVR])


@pytest.mark.parametrize("class_weight", ["even", {1: -1.0}, {1: np.nan}, {7: 2.0}])
def test_a_bad_class_weight_is_refused_by_name(federations, class_weight):
    with pytest.raises(ValueError, match="class_weight"):
        FedMTLSVC(class_weight=class_weight).fit(*federations[FedMTLSVC])


@pytest.mark.parametrize(
    ("odd", "words"),
    [(1, "int, str"), (None, "NoneType, str"), (np.nan, "float, str")],
)
@pytest.mark.parametrize(
    "form", [list, lambda y: np.array(y, object), lambda y: pd.Series(y, dtype=object)]
)
def test_labels_of_mixed_types_are_refused(federations, odd, words, form):
    X, y, clients = federations[FedMTLSVC]
    labels = form(["yes" if label > 0 else odd for label in y])
    with pytest.raises(ValueError, match=f"y has labels of types {words}, expected"):
        FedMTLSVC().fit(X, labels, clients)


@BOTH
def test_a_sample_weight_beyond_the_floats_is_refused(federations, estimator):
    X, y, clients = federations[estimator]
    with pytest.raises(ValueError, match="sample_weight is a whole number beyond"):
        estimator().fit(X, y, clients, 10**400)


# Copies.


@BOTH
def test_a_clone_has_the_parameters_and_nothing_learned(federations, estimator):
    engine = LocalEngine(client_fraction=0.5)
    model = estimator(C1=0.5, C2=np.inf, max_rounds=500, engine=engine, random_state=3)
    copied = clone(model.fit(*federations[estimator]))
    assert copied.get_params() == model.get_params()
    assert copied.engine is engine
    assert vars(copied).keys() == model.get_params().keys()


def by_pickle(model):
    return pickle.loads(pickle.dumps(model))


def by_joblib(model):
    file = io.BytesIO()
    joblib.dump(model, file)
    file.seek(0)
    return joblib.load(file)


@BOTH
@pytest.mark.parametrize("copied", [by_pickle, by_joblib])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_round_trip_keeps_every_bit(federations, estimator, copied, form):
    X, y, clients = federations[estimator]
    model = estimator(**EASY).fit(form(X), y, clients)
    again = copied(model)
    assert_same_state(vars(again), vars(model))
    assert_array_equal(again.predict(X, clients), model.predict(X, clients))


@BOTH
def test_a_seed_makes_the_fit_reproducible(federations, estimator):
    X, y, clients = federations[estimator]
    one, two, other = (
        estimator(C1=0.02, random_state=seed).fit(X, y, clients) for seed in (5, 5, 6)
    )
    assert_array_equal(one.client_coef_, two.client_coef_)
    assert not np.array_equal(one.client_coef_, other.client_coef_)


# Whose rows these are.


@BOTH
def test_predict_without_clients_raises_when_several_were_fitted(
    federations, estimator
):
    X, y, clients = federations[estimator]
    model = estimator(**EASY).fit(X, y, clients)
    with pytest.raises(ValueError, match=r"fitted on 4 clients: pass clients="):
        model.predict(X)
    with pytest.raises(ValueError, match=r"fitted on 4 clients: pass clients="):
        model.score(X, y)


@BOTH
def test_predict_without_clients_serves_the_only_one(federations, estimator):
    X, y, clients = federations[estimator]
    alone = clients == "cy"
    model = estimator(**EASY).fit(X[alone], y[alone], clients[alone])
    assert_array_equal(model.predict(X[alone]), model.predict(X[alone], clients[alone]))


@BOTH
def test_an_unknown_client_is_an_error_that_names_it(federations, estimator):
    X, y, clients = federations[estimator]
    model = estimator(**EASY).fit(X, y, clients)
    asked = clients.copy()
    asked[[3, 9]] = "eve"
    with pytest.raises(ValueError, match=r"clients has 'eve' in row 3, .*2 such rows"):
        model.predict(X, asked)


@BOTH
def test_an_unknown_client_may_take_the_shared_model(federations, estimator):
    X, y, clients = federations[estimator]
    model = estimator(handle_unknown="shared", **EASY).fit(X, y, clients)
    asked = clients.copy()
    asked[[3, 9]] = "eve"
    score = getattr(model, "decision_function", model.predict)
    expected = score(X, clients)
    shared = X @ np.ravel(model.coef_) + model.intercept_
    assert not np.isclose(expected[[3, 9]], shared[[3, 9]]).any()
    expected[[3, 9]] = shared[[3, 9]]
    assert_allclose(score(X, asked), expected, rtol=1e-12)


@BOTH
@pytest.mark.parametrize("length", [79, 81])
def test_predict_wants_one_client_a_row(federations, estimator, length):
    X, y, clients = federations[estimator]
    model = estimator(**EASY).fit(X, y, clients)
    with pytest.raises(ValueError, match=f"clients has {length} entries"):
        model.predict(X, np.resize(clients, length))


@BOTH
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([7, -3, 100, 12], id="int"),
        pytest.param([1.5, -2.0, 0.0, 9.25], id="float"),
        pytest.param([("a", 1), ("a", 2), ("b", 1), ("b", 2)], id="tuple"),
        pytest.param(["x", 3, ("b", 1), 2.5], id="mixed"),
        pytest.param(list(pd.to_datetime(["2020", "2019", "2022", "2021"])), id="time"),
    ],
)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_any_hashable_names_a_client(federations, estimator, names, form):
    X, y, clients = federations[estimator]
    X = form(X)
    plain = estimator(**EASY).fit(X, y, clients)
    owner = np.unique(clients, return_inverse=True)[1]
    named = [names[k] for k in owner]
    model = estimator(**EASY).fit(X, y, named)
    assert len(model.clients_) == 4
    assert_array_equal(model.predict(X, named), plain.predict(X, clients))


@BOTH
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_order_of_rows_does_not_matter_to_predict(federations, estimator, form):
    X, y, clients = federations[estimator]
    mixed = np.random.default_rng(0).permutation(len(y))
    model = estimator(**EASY).fit(form(X[mixed]), y[mixed], clients[mixed])
    assert_array_equal(model.clients_, ["ann", "bob", "cy", "dee"])
    expected = model.predict(form(X), clients)
    seen = model.predict(form(X[mixed]), clients[mixed])
    assert_allclose(seen, expected[mixed], rtol=1e-12)


# Metadata routing.


def test_grid_search_over_a_pipeline_routes_the_clients(federations):
    X, y, clients = federations[FedMTLSVC]
    pipeline = make_pipeline(StandardScaler(), FedMTLSVC(**EASY))
    grid = {"fedmtlsvc__C2": [0.1, 10.0]}
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, clients))
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipeline, grid, cv=folds).fit(X, y, clients=clients)
        best = search.best_estimator_.predict(X, clients=clients)

    def score(C2, train, test):
        scaler = StandardScaler().fit(X[train])
        model = FedMTLSVC(C2=C2, **EASY)
        model.fit(scaler.transform(X[train]), y[train], clients[train])
        return model.score(scaler.transform(X[test]), y[test], clients[test])

    by_hand = [[score(C2, *fold) for fold in folds] for C2 in grid["fedmtlsvc__C2"]]
    assert_array_equal(search.cv_results_["mean_test_score"], np.mean(by_hand, axis=1))
    scaled = StandardScaler().fit_transform(X)
    expected = clone(search.best_estimator_[-1]).fit(scaled, y, clients)
    assert_array_equal(best, expected.predict(scaled, clients))


@BOTH
def test_cross_validate_routes_the_clients(federations, estimator):
    X, y, clients = federations[estimator]
    with config_context(enable_metadata_routing=True):
        scores = cross_validate(
            estimator(handle_unknown="shared", **EASY),
            X,
            y,
            cv=LeaveOneGroupOut(),
            params={"clients": clients, "groups": clients},
        )["test_score"]
    for name, score in zip(np.unique(clients), scores, strict=True):
        out = clients == name
        model = estimator(handle_unknown="shared", **EASY)
        model.fit(X[~out], y[~out], clients[~out])
        assert score == model.score(X[out], y[out], clients[out])


@BOTH
def test_without_routing_cross_validate_is_loud(federations, estimator):
    X, y, clients = federations[estimator]
    with pytest.raises(ValueError, match="pass clients="):
        cross_validate(
            estimator(**EASY),
            X,
            y,
            cv=StratifiedKFold(2).split(X, clients),
            params={"clients": clients},
            error_score="raise",
        )


@BOTH
def test_a_pipeline_takes_the_clients_without_routing(federations, estimator):
    X, y, clients = federations[estimator]
    name = estimator.__name__.lower()
    pipeline = make_pipeline(StandardScaler(), estimator(**EASY))
    pipeline.fit(X, y, **{f"{name}__clients": clients})
    scaled = StandardScaler().fit_transform(X)
    expected = estimator(**EASY).fit(scaled, y, clients)
    assert_array_equal(
        pipeline.predict(X, clients=clients), expected.predict(scaled, clients)
    )


@BOTH
def test_a_data_frame_gives_names_to_the_columns(federations, estimator):
    X, y, clients = federations[estimator]
    frame = pd.DataFrame(X, columns=list("abcde"))
    model = estimator(**EASY).fit(frame, y, pd.Series(clients))
    assert_array_equal(model.feature_names_in_, list("abcde"))
    expected = estimator(**EASY).fit(X, y, clients).predict(X, clients)
    assert_array_equal(model.predict(frame, pd.Series(clients)), expected)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[list("edcba")], clients)


# What is fitted.


@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize(
    ("estimator", "n_classes", "problems"),
    [(FedMTLSVC, 2, (1,)), (FedMTLSVC, 3, (3,)), (FedMTLSVR, 0, ())],
    ids=["two classes", "three classes", "regression"],
)
def test_fitted_shapes(
    federations, estimator, n_classes, problems, form, fit_intercept
):
    X, y, clients = federations[estimator]
    if n_classes:
        y = np.resize(np.arange(n_classes), len(y))
    model = estimator(fit_intercept=fit_intercept, **EASY)
    model.fit(form(X), y, clients)
    assert model.coef_.shape == (*problems, 5)
    assert np.shape(model.intercept_) == problems
    assert model.client_intercept_.shape == (4, *problems)
    if form is np.asarray:
        assert model.client_coef_.shape == (4, *problems, 5)
    else:
        assert isinstance(model.client_coef_, sparse.csr_array)
        assert model.client_coef_.shape == (4 * max(1, *problems, 1), 5)
    if not fit_intercept:
        assert not np.any(model.intercept_) and not model.client_intercept_.any()
    score = getattr(model, "decision_function", model.predict)(form(X), clients)
    assert score.shape == ((80,) if n_classes < 3 else (80, 3))


@BOTH
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_history_is_a_table(federations, estimator, aggregation):
    X, y, _ = federations[estimator]
    model = estimator(aggregation=aggregation, **EASY).fit(X, y)
    assert type(model.history_) is dict
    table = pd.DataFrame(model.history_)
    assert {"round", "time", "bytes_up", "bytes_down", "n_active", "passes"} < set(
        table
    )
    assert {column.shape for column in model.history_.values()} == {(len(table),)}
    assert_array_equal(table["round"], np.arange(1, model.n_rounds_ + 1))
    assert table["gap"].iloc[-1] == model.dual_gap_ <= model.tol
    assert table["objective"].iloc[-1] == model.objective_
    assert (table[["bytes_up", "bytes_down", "n_active"]] > 0).all(axis=None)
    assert (table["time"].diff().dropna() > 0).all()


@BOTH
def test_verbose_prints_a_line_a_round(federations, estimator, capsys):
    model = estimator(verbose=1, **EASY).fit(*federations[estimator])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == model.n_rounds_
    assert lines[0].startswith("[fedcore] round 1, ")
    assert lines[-1].endswith(f"relative duality gap {model.dual_gap_:.2e}")


@pytest.mark.parametrize("place", [77, -1])
def test_a_corrupt_sparse_matrix_is_refused(place):
    rng = np.random.default_rng(0)
    X, y, clients = rng.normal(size=(40, 6)), np.arange(40) % 2, np.arange(40) // 10
    model = FedMTLSVC(random_state=0).fit(sparse.csr_array(X), y, clients)
    corrupt = sparse.csr_array(X)
    corrupt.indices[3] = place
    with pytest.raises(ValueError, match="X is no valid CSR matrix"):
        model.fit(corrupt, y, clients)
    with pytest.raises(ValueError, match="X is no valid CSR matrix"):
        model.predict(corrupt, clients)


@pytest.mark.parametrize("engine", ["x", LocalEngine])
def test_a_bad_engine_is_refused_by_name(engine):
    X, y = np.eye(4), np.arange(4) % 2
    with pytest.raises(ValueError, match="engine == "):
        FedMTLSVC(engine=engine).fit(X, y)


def test_an_overflow_is_told_in_the_users_words():
    X, y = np.eye(4), np.arange(4) % 2
    with pytest.raises(ValueError, match=r"the fit overflowed.*scale the columns"):
        FedMTLSVC(C1=1e200, aggregation="envelope").fit(1e200 * X, y)


@pytest.mark.parametrize(
    "clients",
    [
        [(i % 2, float("nan")) for i in range(4)],
        np.ma.masked_equal([0, 1, 2, 1], 2),
    ],
)
def test_clients_that_are_missing_inside_are_refused(clients):
    with pytest.raises(ValueError, match="clients has no identifier in"):
        FedMTLSVC().fit(np.eye(4), np.arange(4) % 2, clients)
