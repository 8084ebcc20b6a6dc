"""FederatedSearchCV equals a hand-written loop, and says what it cannot do."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.metrics import r2_score
from sklearn.model_selection import ParameterGrid, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import (
    DistributedIHT,
    FedBestSubset,
    FederatedSearchCV,
    FedHT,
    FedIterHT,
    FedMTLSVC,
    FedMTLSVR,
    FedStandardScaler,
    LocalEngine,
)
from fedcore._clients import cohort_of, group_by_client
from fedcore._estimators import seed_of
from fedcore.federation.local import LocalRun
from fedcore.model_selection.folds import cut

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


NO_SPLITS = "clients cut their own folds: cv takes no list of rows"


@parametrize_with_checks(
    [
        FederatedSearchCV(
            FedMTLSVC(max_rounds=20, random_state=0),
            {"C1": [0.1, 1.0]},
            cv=2,
            random_state=0,
        )
    ],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": NO_SPLITS,
        "check_sample_weight_equivalence_on_sparse_data": NO_SPLITS,
    },
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def rows(kind="classes", n=180, d=8, seed=0):
    """Rows of five clients of different sizes, in mixed order."""
    rng = np.random.default_rng(seed)
    clients = np.array(list("edcba"))[np.minimum(rng.geometric(0.3, n) - 1, 4)]
    X = rng.normal(size=(n, d)) + 3
    coef = rng.normal(size=(d, 3)) + (clients == "c")[:, None, None]
    value = np.einsum("ij,ijc->ic", X - 3, coef) + rng.normal(size=(n, 3))
    if kind == "numbers":
        return X, value[:, 0] + 1e5, clients
    if kind == "classes":
        return X, np.where(value[:, 0] > 0, "yes", "no"), clients
    return X, value.argmax(axis=1), clients


def folds_of(X, y, clients, cv, seed, regression=False):
    """Folds by row, as the search cuts them."""
    classes, code = np.unique(y, return_inverse=True)
    groups = group_by_client(clients)
    y, classes = (y, None) if regression else (code.astype(np.int32), classes)
    fold = np.empty(len(y), int)
    place = slice(None) if groups.order is None else groups.order
    cohort = cohort_of(X, y, None, groups, classes)
    fold[place] = cut(cohort, cv, seed_of(seed))
    return fold


# Folds.


@pytest.mark.parametrize("cv", [2, 3, 7, 0.1, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(4))
def test_each_fold_has_its_share_of_each_client_and_label(cv, seed):
    rng = np.random.default_rng(seed)
    clients = np.repeat(np.arange(40), rng.integers(1, 50, 40))
    y = rng.integers(3, size=len(clients))
    X = rng.normal(size=(len(y), 2))
    fold = folds_of(X, y, clients, cv, seed)
    assert_array_equal(fold, folds_of(X, y, clients, cv, seed))
    n_folds, share = (cv, 1 / cv) if isinstance(cv, int) else (1, cv)
    assert fold.min() >= -1 and fold.max() < n_folds
    for k in range(40):
        own = clients == k
        for f in range(n_folds):
            n_labels = len(np.unique(y[own]))
            assert abs((own & (fold == f)).sum() - share * own.sum()) < 1 + n_labels
            for label in np.unique(y[own]):
                cell = own & (y == label)
                held = (cell & (fold == f)).sum()
                assert held < cell.sum()
                assert abs(held - share * cell.sum()) < 2
                if isinstance(cv, int) and cell.sum() > 1:
                    assert (fold[cell] >= 0).all()


def test_a_client_cuts_the_same_folds_alone_as_among_others():
    X, y, clients = rows()
    y = np.unique(y, return_inverse=True)[1].astype(np.int32)
    whole = cohort_of(X, y, None, group_by_client(clients), np.array([0, 1]))
    fold = cut(whole, 4, 17)
    for k in range(whole.n_clients):
        own = slice(whole.offsets[k], whole.offsets[k + 1])
        alone = type(whole)(
            *(whole.X[own], whole.y[own] + np.int32(3), None),
            *(whole.offsets[k : k + 2] - own.start, np.arange(5)),
            first=k + 5,
        )
        assert_array_equal(cut(alone, 4, 17), fold[own])


# The scores.

CASES = [
    (FedMTLSVC(random_state=0), {"C1": [0.01, 0.3], "C2": [1.0, 9.0]}, "classes"),
    (FedMTLSVC(loss="squared_hinge", random_state=0), {"C1": [0.01, 1.0]}, "three"),
    (
        FedMTLSVC(aggregation="line_search", tol=0.03, random_state=0),
        {"C1": [0.01, 0.3]},
        "classes",
    ),
    (
        FedMTLSVC(aggregation="sequential", personal_features="intercept", tol=0.03),
        {"C1": [0.01, 0.3]},
        "classes",
    ),
    (FedMTLSVR(random_state=0), {"epsilon": [0.1, 1.0]}, "numbers"),
    (FedIterHT(max_rounds=9, random_state=0), {"n_nonzero_coefs": [2, 5]}, "numbers"),
    (
        FedHT(loss="logistic", batch_size=4, step_size=0.1, max_rounds=9),
        {"n_nonzero_coefs": [2, 5]},
        "classes",
    ),
    (
        DistributedIHT(loss="softmax", max_rounds=9, refit=True),
        {"n_nonzero_coefs": [3, 9]},
        "three",
    ),
    (FedBestSubset(loss="softmax"), {"n_nonzero_coefs": [3, 9]}, "three"),
    (FedBestSubset(), [{"l2": [0.0, 0.1]}, {"n_nonzero_coefs": [2]}], "numbers"),
]


def of_clients(model, clients):
    """Give what a model's methods want to know besides the rows."""
    return (clients,) if isinstance(model, FedMTLSVC | FedMTLSVR) else ()


@pytest.mark.parametrize("cv", [3, 0.3])
@pytest.mark.parametrize(("estimator", "grid", "kind"), CASES)
def test_scores_are_those_of_a_hand_written_loop(estimator, grid, kind, cv):
    X, y, clients = rows(kind)
    if estimator.random_state is None:
        estimator = clone(estimator).set_params(random_state=3)
    search = FederatedSearchCV(estimator, grid, cv=cv, random_state=1)
    search.fit(X, y, clients)
    fold = folds_of(X, y, clients, cv, 1, kind == "numbers")
    mean = []
    for place, params in enumerate(ParameterGrid(grid)):
        scores, weights, told = [], [], np.full(len(y), None)
        for f in range(search.n_splits_):
            held = fold == f
            model = clone(estimator).set_params(engine=LocalEngine(), **params)
            model.fit(X[~held], y[~held], clients[~held])
            own = of_clients(model, clients[held])
            expected = model.score(X[held], y[held], *own)
            seen = search.cv_results_[f"split{f}_test_score"][place]
            if kind == "numbers":  # R^2 of targets that are far from 0
                assert_allclose(seen, expected, rtol=1e-9)
            else:
                assert seen == expected
            told[held] = model.predict(X[held], *own)
            scores.append(seen)
            weights.append(held.sum())
        mean.append(np.average(scores, weights=weights))
        assert_allclose(search.cv_results_["mean_test_score"][place], mean[-1])
        for k, name in enumerate("abcde"):
            own = (clients == name) & (fold >= 0)
            if kind == "numbers":
                seen = r2_score(y[own], told[own].astype(float))
                assert_allclose(search.client_scores_[place, k], seen, rtol=1e-7)
            else:
                assert search.client_scores_[place, k] == np.mean(told[own] == y[own])
    assert search.best_index_ == int(np.argmax(search.cv_results_["mean_test_score"]))
    whole = clone(estimator).set_params(engine=LocalEngine(), **search.best_params_)
    whole.fit(X, y, clients)
    assert_array_equal(search.best_estimator_.coef_, whole.coef_)


@pytest.mark.parametrize("scope", ["federation", "client"])
@pytest.mark.parametrize("where", ["column", "argument"])
def test_a_scaler_sees_what_a_fold_leaves_and_no_more(scope, where):
    X, y, clients = rows()
    X = X * np.arange(1, 9) + 5 * (clients == "b")[:, None]
    X[::17] *= 8  # outliers, which tell whose moments were used
    column = None if where == "argument" else "owner"
    pipe = make_pipeline(
        FedStandardScaler(scope, client_column=column),
        FedMTLSVC(0.3, client_column=column, random_state=0),
    )
    grid = {"fedmtlsvc__C2": [0.3, 9.0], "fedstandardscaler__with_mean": [True, False]}
    search = FederatedSearchCV(pipe, grid, cv=3, random_state=1)
    if where == "column":
        frame = pd.DataFrame(X, columns=list("pqrstuvw"))
        frame.insert(3, "owner", clients)
        search.fit(frame, y)
        predicted = search.predict(frame)
    else:
        search.fit(X, y, clients)
        predicted = search.predict(X, clients)
    fold = folds_of(X, y, clients, 3, 1)
    for place, params in enumerate(search.cv_results_["params"]):
        scaler = FedStandardScaler(
            scope, with_mean=params["fedstandardscaler__with_mean"]
        )
        C2 = params["fedmtlsvc__C2"]
        model = FedMTLSVC(0.3, C2, random_state=0, engine=LocalEngine())
        for f in range(3):
            held = fold == f
            Z = scaler.fit_transform(X[~held], clients=clients[~held])
            model.fit(Z, y[~held], clients[~held])
            Z = scaler.transform(X[held], clients[held])
            expected = model.score(Z, y[held], clients[held])
            assert search.cv_results_[f"split{f}_test_score"][place] == expected
    best = search.best_params_
    scaler = FedStandardScaler(scope, with_mean=best["fedstandardscaler__with_mean"])
    Z = scaler.fit_transform(X, clients=clients)
    model = FedMTLSVC(0.3, best["fedmtlsvc__C2"], random_state=0, engine=LocalEngine())
    assert_array_equal(predicted, model.fit(Z, y, clients).predict(Z, clients))
    known = {} if where == "column" else {"clients": clients}
    table = frame if where == "column" else X
    assert search.score(table, y, **known) == np.mean(predicted == y)


def test_weights_count_in_fits_and_scores():
    X, y, clients = rows()
    weight = np.random.default_rng(2).integers(1, 4, len(y)).astype(float)
    model = FedMTLSVC(random_state=0, engine=LocalEngine())
    search = FederatedSearchCV(model, {"C1": [0.01, 0.3]}, cv=2, random_state=1)
    search.fit(X, y, clients, weight)
    fold = folds_of(X, y, clients, 2, 1)
    for place, C1 in enumerate([0.01, 0.3]):
        for f in range(2):
            held = fold == f
            plain = clone(model).set_params(C1=C1)
            plain.fit(X[~held], y[~held], clients[~held], weight[~held])
            seen = search.cv_results_[f"split{f}_test_score"][place]
            own = X[held], y[held], clients[held], weight[held]
            assert_allclose(seen, plain.score(*own), rtol=1e-14)


def test_the_loss_is_that_of_the_estimator():
    X, y, clients = rows()
    grid = {"n_nonzero_coefs": [2, 6]}
    model = FedIterHT(loss="logistic", max_rounds=9, random_state=0)
    search = FederatedSearchCV(model, grid, cv=2, scoring="neg_loss", random_state=1)
    search.fit(X, y, clients)
    fold = folds_of(X, y, clients, 2, 1)
    for place, tau in enumerate(grid["n_nonzero_coefs"]):
        for f in range(2):
            held = fold == f
            plain = clone(model).set_params(n_nonzero_coefs=tau)
            plain.fit(X[~held], y[~held], clients[~held])
            p = plain.predict_proba(X[held])
            p = p[np.arange(len(p)), np.searchsorted(plain.classes_, y[held])]
            seen = search.cv_results_[f"split{f}_test_score"][place]
            assert_allclose(seen, np.log(p).mean(), rtol=1e-10)

    hinge = FederatedSearchCV(
        FedMTLSVC(0.1, random_state=0), {}, cv=0.5, scoring="neg_loss", random_state=1
    ).fit(X, y, clients)
    held = folds_of(X, y, clients, 0.5, 1) == 0
    plain = FedMTLSVC(0.1, random_state=0, engine=LocalEngine())
    plain.fit(X[~held], y[~held], clients[~held])
    margin = plain.decision_function(X[held], clients[held])
    margin *= np.where(y[held] == "yes", 1, -1)
    assert_allclose(hinge.best_score_, -np.maximum(0, 1 - margin).mean(), rtol=1e-10)


@pytest.mark.parametrize("form", [sparse.csr_array, pd.DataFrame])
def test_other_forms_of_rows_give_the_same(form):
    X, y, clients = rows()
    model = FedMTLSVC(random_state=0)
    dense, other = (
        FederatedSearchCV(model, {"C1": [0.01, 0.3]}, cv=3, random_state=1)
        .fit(make(X), y, clients)
        .cv_results_["mean_test_score"]
        for make in (np.asarray, form)
    )
    assert_array_equal(dense, other)


# Manners.


def test_neither_threads_nor_runs_change_a_bit():
    X, y, clients = rows()
    clients = np.char.add(clients, (np.arange(len(y)) % 5).astype(str))
    pipe = make_pipeline(FedStandardScaler("client"), FedMTLSVC(random_state=0))
    one, three = (
        FederatedSearchCV(
            pipe, {"fedmtlsvc__C1": [0.01, 0.3]}, n_jobs=n_jobs, random_state=1
        ).fit(X, y, clients)
        for n_jobs in (1, 3)
    )
    assert_array_equal(one.client_scores_, three.client_scores_)
    seen, expected = (s.best_estimator_[-1].client_coef_ for s in (one, three))
    assert_array_equal(seen, expected)


def test_tables_are_for_pandas_and_add_up():
    X, y, clients = rows()
    grid = [{"C1": [0.01, 0.3]}, {"C2": [3.0]}]
    search = FederatedSearchCV(
        FedMTLSVC(random_state=0), grid, cv=3, refit=False, random_state=1
    ).fit(X, y, clients)
    table, history = pd.DataFrame(search.cv_results_), pd.DataFrame(search.history_)
    assert len(table) == 3 and len(history) == search.n_rounds_
    assert list(search.cv_results_["param_C1"].mask) == [False, False, True]
    assert search.cv_results_["rank_test_score"].min() == 1
    for name in ("bytes_up", "bytes_down"):
        by_candidate = history.groupby("candidate")[name].sum()
        assert_array_equal(table[name], by_candidate)
    assert_array_equal(table["worst_client_test_score"], search.client_scores_.min(1))
    assert_array_equal(history["fold"], np.sort(history["fold"]))
    with pytest.raises(AttributeError, match="expected refit=True"):
        search.predict(X)
    assert not hasattr(search, "best_estimator_")


def test_personal_parts_and_rows_stay():
    X, y, clients = rows()
    grid = {"C1": [0.01, 0.3]}
    model = FedMTLSVC(random_state=0, engine=LocalEngine())
    search = FederatedSearchCV(model, grid, cv=2, refit=False, random_state=1)
    search.fit(X, y, clients)
    # What a client sends of its held-out rows does not grow with them.
    twice = [np.concatenate([part, part]) for part in (X, y, clients)]
    again = clone(search).fit(*twice)
    per_round = [s.history_["bytes_up"].max() for s in (search, again)]
    assert per_round[0] == per_round[1]


def test_search_inside_of_scikit_learn():
    X, y, clients = rows()
    frame = pd.DataFrame(X, columns=list("pqrstuvw")).assign(owner=clients)
    model = FedMTLSVC(client_column="owner", random_state=0)
    search = FederatedSearchCV(model, {"C1": [0.01, 0.1]}, cv=2, random_state=0)
    scores = cross_val_score(search, frame, y, scoring="accuracy", cv=3)
    assert scores.min() > 0.6
    with config_context(enable_metadata_routing=True):
        search = FederatedSearchCV(FedMTLSVC(random_state=0), {"C1": [0.1]}, cv=2)
        pipe = make_pipeline(FedStandardScaler(), search)
        pipe.fit(X, y, clients=clients)
        assert pipe.predict(X, clients=clients).shape == y.shape


def test_one_model_for_all_need_not_be_told_whose_rows_it_sees():
    X, y, clients = rows()
    model = FedBestSubset(3, loss="logistic")
    search = FederatedSearchCV(model, {"l2": [0.1]}, cv=2).fit(X, y, clients)
    assert_array_equal(search.predict(X, clients), search.predict(X))
    assert search.score(X, y, clients) == search.score(X, y)
    assert search.predict_proba(X).shape == (len(y), 2)
    pipe = make_pipeline(FedStandardScaler("client"), model)
    search = FederatedSearchCV(pipe, {"fedbestsubset__l2": [0.1]}, cv=2)
    search.fit(X, y, clients)
    assert search.score(X, y, clients) > 0.6
    assert not hasattr(FederatedSearchCV(FedMTLSVC(), {}), "predict_proba")


def test_an_engine_that_samples_still_scores_everybody():
    X, y, clients = rows()
    model = FedMTLSVC(aggregation="line_search", max_rounds=8, random_state=0)
    engine = LocalEngine(client_fraction=0.4)
    search = FederatedSearchCV(model, {"C1": [0.1]}, cv=2, engine=engine)
    search.fit(X, y, clients)
    assert search.best_estimator_.engine is engine
    assert np.isfinite(search.client_scores_).all()
    assert search.history_["n_active"].min() == 2
    assert (search.history_["n_exchanges"] >= 1).all()


class Silent(LocalRun):
    """The first client never tells what it held out."""

    def exchange(self, request, key):
        answer = super().exchange(request, key)
        if request.evaluate:
            answer.reply["figures"][0] = np.nan
            answer.who[0] = False
        return answer


class SilentEngine(LocalEngine):
    def open(self, algorithm, cohort, seed, n_jobs):
        link = super().open(algorithm, cohort, seed, n_jobs)
        link.__class__ = Silent
        return link


def test_silent_clients_have_no_say():
    X, y, clients = rows()
    grid, options = {"C1": [0.01, 0.3]}, {"cv": 2, "random_state": 0, "refit": False}
    model = FedMTLSVC(random_state=0)
    whole, other = (
        FederatedSearchCV(model, grid, engine=engine, **options).fit(X, y, clients)
        for engine in (LocalEngine(), SilentEngine())
    )
    assert np.isnan(other.client_scores_[:, 0]).all()
    assert_array_equal(other.client_scores_[:, 1:], whole.client_scores_[:, 1:])
    table = pd.DataFrame(other.cv_results_)
    assert table["mean_test_score"].between(0.5, 1).all()
    assert not table["mean_test_score"].equals(whole.cv_results_["mean_test_score"])


def test_verbose_prints_a_line_a_fit(capsys):
    X, y, clients = rows()
    model = FedMTLSVC(random_state=0)
    FederatedSearchCV(model, {"C1": [0.01, 0.1]}, cv=2, verbose=1).fit(X, y, clients)
    assert len(capsys.readouterr().out.splitlines()) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"estimator": LinearSVC()}, "estimator is a LinearSVC, expected"),
        (
            {"estimator": make_pipeline(PCA(), FedMTLSVC())},
            "step 'pca', a PCA, which needs the rows of all clients",
        ),
        (
            {"estimator": make_pipeline(FedStandardScaler(), LinearSVC())},
            "estimator is a LinearSVC, expected",
        ),
        (
            {
                "estimator": make_pipeline(
                    FedStandardScaler(client_column=0), FedMTLSVC()
                ),
                "param_grid": {},
            },
            "FedStandardScaler has client_column=0, the model has",
        ),
        ({"estimator": FedMTLSVC(early_stopping=True)}, "early_stopping is True"),
        ({"estimator": FedMTLSVC(warm_start=True)}, "warm_start is True"),
        ({"param_grid": {"C3": [1.0]}}, "Invalid parameter 'C3'"),
        ({"param_grid": {"C1": 1.0}}, "C1"),
        ({"param_grid": {"C1": []}}, "C1"),
        ({"param_grid": []}, "param_grid is empty"),
        ({"param_grid": {"C1": [1.0, -1.0]}}, "C1 == -1"),
        ({"param_grid": {"engine": [None]}}, "param_grid has 'engine'"),
        ({"cv": 1}, "cv == 1"),
        ({"cv": 1.5}, "cv == 1.5"),
        ({"cv": "all"}, "cv must be"),
        ({"cv": True}, "cv"),
        ({"cv": 1e-6}, "cv == 1e-06 leaves no row to hold out"),
        ({"scoring": "roc_auc"}, "scoring == 'roc_auc'"),
        ({"scoring": "r2"}, "scoring == 'r2'"),
        ({"engine": "local"}, "engine == 'local'"),
        ({"refit": "C1"}, "refit == 'C1'"),
        ({"n_jobs": 0}, "n_jobs == 0"),
        ({"verbose": -1}, "verbose == -1"),
    ],
)
def test_bad_parameters_are_refused_by_name(options, words):
    given = {"estimator": FedMTLSVC(), "param_grid": {"C1": [0.1]}, "cv": 2} | options
    with pytest.raises((TypeError, ValueError), match=words):
        FederatedSearchCV(**given).fit(*rows())


def test_classifiers_and_regressors_do_not_mix():
    X, y, clients = rows()
    grid = {"loss": ["squared", "logistic"]}
    with pytest.raises(ValueError, match="classifiers and regressors"):
        FederatedSearchCV(FedIterHT(), grid).fit(X, y == "yes", clients)


def test_a_failed_search_changes_nothing():
    X, y, clients = rows()
    search = FederatedSearchCV(FedMTLSVC(random_state=0), {"C1": [0.1]}, cv=2)
    search.fit(X, y, clients)
    before = vars(search).copy()
    with pytest.raises(ValueError, match="clients has 3 entries"):
        search.fit(X, y, clients[:3])
    assert all(vars(search)[name] is value for name, value in before.items())


def test_clients_with_few_rows_give_none():
    X, y, clients = rows()
    clients[:2], y[:2] = ["x", "z"], ["no", "yes"]
    search = FederatedSearchCV(
        FedMTLSVC(random_state=0), {"C1": [0.1]}, cv=3, random_state=0
    ).fit(X, y, clients)
    assert_array_equal(search.clients_, list("abcdexz"))
    assert np.isnan(search.client_scores_[0, 5:]).all()
    assert np.isfinite(search.best_score_)
    single = np.arange(len(y))
    with pytest.raises(ValueError, match="leaves no row to hold out in 3 of 3 folds"):
        FederatedSearchCV(FedMTLSVC(), {}, cv=3).fit(X, y, single)
