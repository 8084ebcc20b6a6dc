"""Client identifiers as a column of X: scikit-learn's tools see whose rows they are."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.model_selection import (
    GridSearchCV,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression

BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
EASY = {"C1": 0.02, "random_state": 0}
NAMES = np.array(["ann", "bob", "cy", "dee"])


def rows_of(estimator, n_samples=50, n_features=3):
    """Rows of four clients in mixed order."""
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, owner = make(4, n_samples, n_features, random_state=0)
    mixed = np.random.default_rng(0).permutation(len(y))
    return X[mixed], y[mixed], owner[mixed]


@pytest.fixture(scope="module")
def problem():
    """Make rows as a data frame with a column of names, and apart."""
    X, y, owner = rows_of(FedMTLSVC)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.insert(1, "who", NAMES[owner])
    return frame, X, y, NAMES[owner]


def folds_of(y, clients, n=3):
    cells = [f"{c} {label}" for c, label in zip(clients, y, strict=True)]
    folds = StratifiedKFold(n, shuffle=True, random_state=0)
    return list(folds.split(cells, cells))


def answers(model, X, *clients):
    return getattr(model, "decision_function", model.predict)(X, *clients)


# Every form of X, every place of the column.


def as_frame(X, ids, place):
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    frame.insert(place, "who", ids)
    return frame


def as_objects(X, ids, place):
    return np.insert(X.astype(object), place, ids, axis=1)


def as_lists(X, ids, place):
    return as_objects(X, ids, place).tolist()


def as_array(X, ids, place):
    return np.insert(X, place, ids, axis=1)


def as_csr(X, ids, place):
    return sparse.csr_array(as_array(X, ids, place))


def as_csc_matrix(X, ids, place):
    return sparse.csc_matrix(as_array(X, ids, place))


WORDS = [str, "category", "string", object]


@BOTH
@pytest.mark.parametrize("place", [0, 2, 3])
@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *((as_frame, kind) for kind in [*WORDS, "Int16", "datetime64[ns]", float]),
        *((form, object) for form in (as_objects, as_lists)),
        *((form, float) for form in (as_array, as_csr, as_csc_matrix)),
    ],
)
def test_a_column_says_what_clients_says(estimator, form, kind, place):
    X, y, owner = rows_of(estimator, n_samples=12)
    ids = pd.Series(NAMES[owner] if kind in WORDS else owner).astype(kind)
    wide = form(X, np.asarray(ids) if form is not as_frame else ids, place)
    columns = [place, place - 4] + ["who"] * (form is as_frame)
    plain = sparse.csr_array(X) if sparse.issparse(wide) else X
    expected = estimator(**EASY).fit(plain, y, owner)
    for column in columns:
        model = estimator(client_column=column, **EASY).fit(wide, y)
        assert model.n_features_in_ == 4
        assert model.coef_.shape == expected.coef_.shape
        assert len(model.clients_) == 4
        assert_array_equal(model.coef_, expected.coef_)
        assert_array_equal(answers(model, wide), answers(expected, plain, owner))
        assert model.score(wide, y) == expected.score(plain, y, owner)
    if form is as_frame:
        assert_array_equal(model.feature_names_in_, wide.columns)


@BOTH
def test_rows_that_mixed_kinds_of_columns_hold_are_left_as_they_were(estimator):
    X, y, owner = rows_of(estimator, n_samples=12)
    frame = as_frame(X, NAMES[owner], 1)
    kept = frame.copy()
    estimator(client_column="who", **EASY).fit(frame, y).predict(frame)
    pd.testing.assert_frame_equal(frame, kept)


def test_a_column_without_numbers_is_no_business_of_numeric_validation(problem):
    frame, _, y, clients = problem
    model = FedMTLSVC(client_column="who", **EASY).fit(frame, y)
    for label, message in (("a", "could not convert string"), ("who", None)):
        spoilt = frame.copy()
        spoilt[label] = "cy"
        if message is None:
            expected = model.predict(frame[clients == "cy"])
            assert_array_equal(model.predict(spoilt)[clients == "cy"], expected)
        else:
            with pytest.raises(ValueError, match=message):
                model.predict(spoilt)


class PolarsLike:
    """The part of a polars data frame that scikit-learn and we ask for."""

    def __init__(self, columns):
        self._columns = columns

    columns = property(lambda self: list(self._columns))
    shape = property(lambda self: (len(next(iter(self._columns.values()))), len(self)))

    def __len__(self):
        return len(self._columns)

    def __getitem__(self, name):
        return self._columns[name]

    def drop(self, names):
        rest = {n: c for n, c in self._columns.items() if n not in names}
        return PolarsLike(rest)

    def __array__(self, dtype=None, copy=None):
        return np.column_stack(list(self._columns.values())).astype(dtype)


def test_data_frames_of_other_libraries_are_taken_by_their_names(problem):
    frame, X, y, clients = problem
    other = PolarsLike({name: frame[name].to_numpy() for name in frame.columns})
    model = FedMTLSVC(client_column="who", **EASY).fit(other, y)
    expected = FedMTLSVC(**EASY).fit(X, y, clients)
    assert_array_equal(model.predict(other), expected.predict(X, clients))


def test_rows_without_names_are_read_by_the_names_of_fit(problem):
    frame, _, y, _ = problem
    model = FedMTLSVC(client_column="who", **EASY).fit(frame, y)
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        seen = model.predict(frame.to_numpy())
    assert_array_equal(seen, model.predict(frame))


def test_unknown_clients_in_the_column_may_take_the_shared_model(problem):
    frame, X, y, _ = problem
    strange = frame.assign(who="eve")
    model = FedMTLSVC(client_column="who", handle_unknown="shared", **EASY)
    model.fit(frame, y)
    shared = X @ model.coef_[0] + model.intercept_
    assert_allclose(model.decision_function(strange), shared, rtol=1e-12)
    model.set_params(handle_unknown="error")
    with pytest.raises(ValueError, match=r"client_column 'who' has 'eve' in row 0"):
        model.predict(strange)


# What scikit-learn's tools give is what a loop by hand gives.


def by_hand(problem, folds, score, C2=1.0):
    """Score each fold: score(model, X, y, clients) of its test rows."""
    _, X, y, clients = problem
    scores = []
    for train, test in folds:
        model = FedMTLSVC(C2=C2, **EASY).fit(X[train], y[train], clients[train])
        scores.append(score(model, X[test], y[test], clients[test]))
    return scores


def auc(model, X, y, clients):
    return roc_auc_score(y, model.decision_function(X, clients))


def accuracy(model, X, y, clients):
    return accuracy_score(y, model.predict(X, clients))


def with_column(**options):
    return FedMTLSVC(client_column="who", **EASY, **options)


def test_grid_search_by_auc(problem):
    frame, _, y, clients = problem
    folds = folds_of(y, clients)
    grid = {"C2": [0.01, 1.0, 100.0]}
    search = GridSearchCV(with_column(), grid, scoring="roc_auc", cv=folds)
    search.fit(frame, y)
    expected = [np.mean(by_hand(problem, folds, auc, C2)) for C2 in grid["C2"]]
    assert_array_equal(search.cv_results_["mean_test_score"], expected)
    assert search.best_params_["C2"] == grid["C2"][np.argmax(expected)]
    assert search.score(frame, y) == auc(search.best_estimator_, frame, y, None)


def test_cross_validate_by_accuracy(problem):
    frame, _, y, clients = problem
    folds = folds_of(y, clients)
    seen = cross_validate(with_column(), frame, y, scoring="accuracy", cv=folds)
    assert_array_equal(seen["test_score"], by_hand(problem, folds, accuracy))
    assert len(set(seen["test_score"])) > 1


@pytest.mark.parametrize("method", ["predict", "decision_function"])
def test_cross_val_predict(problem, method):
    frame, _, y, clients = problem
    folds = folds_of(y, clients)
    seen = cross_val_predict(with_column(), frame, y, cv=folds, method=method)

    def answer(model, X, y, clients):
        return getattr(model, method)(X, clients)

    for (_, test), expected in zip(folds, by_hand(problem, folds, answer), strict=True):
        assert_array_equal(seen[test], expected)


def test_calibrated_classifier(problem):
    frame, X, y, clients = problem
    folds = folds_of(y, clients)
    model = CalibratedClassifierCV(with_column(), cv=folds).fit(frame, y)
    seen = model.predict_proba(frame)
    # The same tool over scores that a loop by hand made, a fold at a time.
    expected = np.zeros_like(seen)
    for train, test in folds:
        inner = FedMTLSVC(**EASY).fit(X[train], y[train], clients[train])
        scores = inner.decision_function(X, clients)[:, None]
        given = CalibratedClassifierCV(GivenScores(), cv=[(train, test)])
        expected += given.fit(scores, y).predict_proba(scores) / len(folds)
    assert_allclose(seen, expected, rtol=1e-12)


class GivenScores(LogisticRegression):
    """A classifier whose score is its only column."""

    def decision_function(self, X):
        return np.asarray(X)[:, 0]


def test_stacking_classifier(problem):
    frame, X, y, clients = problem
    folds = folds_of(y, clients)
    stack = StackingClassifier(
        [("svm", with_column())], LogisticRegression(), cv=folds
    ).fit(frame, y)

    def scores(model, X, y, clients):
        return model.decision_function(X, clients)

    column = np.empty(len(y))
    for (_, test), part in zip(folds, by_hand(problem, folds, scores), strict=True):
        column[test] = part
    final = LogisticRegression().fit(column[:, None], y)
    whole = FedMTLSVC(**EASY).fit(X, y, clients).decision_function(X, clients)
    assert_array_equal(stack.predict_proba(frame), final.predict_proba(whole[:, None]))


def test_permutation_importance(problem):
    frame, X, y, clients = problem
    model = with_column().fit(frame, y)
    seen = permutation_importance(model, frame, y, n_repeats=2, random_state=0)
    plain = FedMTLSVC(**EASY).fit(X, y, clients)
    whole = accuracy(plain, X, y, clients)
    seed = np.random.RandomState(0).randint(np.iinfo(np.int32).max + 1)
    for j, name in enumerate(frame.columns):
        order, state = np.arange(len(y)), np.random.RandomState(seed)
        shuffled = frame.copy()
        for repeat in range(2):
            state.shuffle(order)
            shuffled[name] = shuffled[name].to_numpy()[order]
            rows, ids = shuffled.drop(columns="who"), shuffled["who"]
            drop = whole - accuracy(plain, rows.to_numpy(), y, ids)
            assert seen["importances"][j, repeat] == drop
    assert seen["importances_mean"][1] > 0  # whose rows they are matters


def test_regression_is_scored_by_scikit_learn_too():
    X, y, owner = rows_of(FedMTLSVR)
    frame = as_frame(X, NAMES[owner], 0)
    folds = folds_of(owner, owner)
    model = FedMTLSVR(client_column="who", **EASY)
    seen = cross_validate(model, frame, y, scoring="r2", cv=folds)["test_score"]
    for score, (train, test) in zip(seen, folds, strict=True):
        plain = FedMTLSVR(**EASY).fit(X[train], y[train], owner[train])
        assert score == plain.score(X[test], y[test], owner[test])


# Complaints.


@BOTH
@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("whom", "client_column == 'whom', which 0 columns of X have"),
        (4, "client_column == 4, X has 4 columns"),
        (-5, "client_column == -5, X has 4 columns"),
    ],
)
def test_a_column_that_is_not_there_is_named(estimator, column, words):
    X, y, owner = rows_of(estimator, n_samples=12)
    with pytest.raises(ValueError, match=words):
        estimator(client_column=column).fit(as_frame(X, owner, 0), y)


@BOTH
@pytest.mark.parametrize("column", [1.0, True, ["who"], b"who"])
def test_a_column_is_a_name_or_an_index(estimator, column):
    X, y, owner = rows_of(estimator, n_samples=12)
    with pytest.raises(TypeError, match="client_column == "):
        estimator(client_column=column).fit(as_array(X, owner, 0), y)


def test_a_name_needs_a_data_frame(problem):
    _, X, y, _ = problem
    with pytest.raises(ValueError, match="but X has no column names"):
        FedMTLSVC(client_column="who").fit(X, y)


def test_a_name_that_two_columns_have_is_refused(problem):
    frame, _, y, _ = problem
    twice = pd.concat([frame, frame[["who"]]], axis=1)
    with pytest.raises(ValueError, match="which 2 columns of X have"):
        FedMTLSVC(client_column="who").fit(twice, y)


@BOTH
def test_clients_twice_are_refused(estimator):
    X, y, owner = rows_of(estimator, n_samples=12)
    frame = as_frame(X, owner, 0)
    model = estimator(client_column="who", **EASY).fit(frame, y)
    calls = [
        lambda: model.fit(frame, y, owner),
        lambda: model.predict(frame, owner),
        lambda: model.score(frame, y, owner),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"clients= was passed, but client_column"):
            call()


@BOTH
def test_rows_without_a_client_in_the_column_are_named(estimator):
    X, y, owner = rows_of(estimator, n_samples=12)
    frame = as_frame(X, NAMES[owner], 0)
    frame.loc[[3, 7], "who"] = None
    words = r"client_column 'who' has no identifier in 2 rows \(3, 7\)"
    with pytest.raises(ValueError, match=words):
        estimator(client_column="who", **EASY).fit(frame, y)


@BOTH
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: f.drop(columns="f0"), "feature names"),
        (lambda f: f.drop(columns="who"), "feature names"),
        (lambda f: f[["f0", "who", "f2", "f1"]], "feature names"),
        (lambda f: f.assign(f1=np.nan), "contains NaN"),
    ],
)
def test_other_columns_than_those_of_fit_are_refused(estimator, spoil, words):
    X, y, owner = rows_of(estimator, n_samples=12)
    frame = as_frame(X, NAMES[owner], 0)
    model = estimator(client_column="who", **EASY).fit(frame, y)
    with pytest.raises(ValueError, match=words):
        model.predict(spoil(frame))


@pytest.mark.parametrize("rows", [[1.0, 2.0], 3.0, [[1.0], [2.0, 3.0]]])
def test_rows_that_are_no_table_are_refused_as_scikit_learn_does(rows):
    with pytest.raises(ValueError, match="2D array"):
        FedMTLSVC(client_column=0).fit(rows, [0, 1])


def test_a_lone_column_of_clients_leaves_nothing_to_learn_from():
    with pytest.raises(ValueError, match="0 feature"):
        FedMTLSVC(client_column=0).fit([["ann"], ["bob"]], [0, 1])
