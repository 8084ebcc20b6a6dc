"""One client of FedMTLSVC and FedMTLSVR: its part fitted later, its model taken out."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC, LinearSVR

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression

LOSSES = {
    "hinge": FedMTLSVC,
    "squared_hinge": FedMTLSVC,
    "epsilon_insensitive": FedMTLSVR,
    "squared_epsilon_insensitive": FedMTLSVR,
}
BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
EASY = {"C1": 0.02, "random_state": 0}
NAMES = np.array(["ann", "bob", "cy", "dee"])


def rows_for(estimator, n_classes=2):
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, owner = make(4, 20, 5, random_state=0)
    if estimator is FedMTLSVC and n_classes > 2:
        y = np.digitize(X[:, 0] + y, np.linspace(-1, 1, n_classes - 1))
    mixed = np.random.default_rng(0).permutation(len(y))
    return X[mixed], y[mixed], NAMES[owner[mixed]]


def personal(model, k):
    """Personal part of a client, (C, d)."""
    v, C = model.client_coef_, len(np.atleast_2d(model.coef_))
    if sparse.issparse(v):
        return v[k * C : (k + 1) * C].toarray()
    return v[k].reshape(C, -1)


def state_of(model):
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


# A newcomer.


@FORMS
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("loss", "n_classes"),
    [*((loss, 2) for loss in LOSSES), ("hinge", 3), ("squared_hinge", 3)],
)
def test_a_newcomer_gets_the_part_of_the_joint_optimum(loss, weighted, n_classes, form):
    estimator = LOSSES[loss]
    X, y, clients = rows_for(estimator, n_classes)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y)) if weighted else None
    options = {"loss": loss, "tol": 1e-14, "max_rounds": 3000} | EASY
    if weighted and estimator is FedMTLSVC:
        options["class_weight"] = "balanced"
    joint = estimator(C2=2.0, **options).fit(form(X), y, clients, weight)
    # The same shared model, as if one client had not come yet.
    late, C = 2, len(np.atleast_2d(joint.coef_))
    model = copy.deepcopy(joint)
    rest = np.delete(np.arange(4), late)
    model.clients_ = joint.clients_[rest]
    model.client_intercept_ = joint.client_intercept_[rest]
    if form is np.asarray:
        model.client_coef_ = joint.client_coef_[rest]
    else:
        model.client_coef_ = joint.client_coef_[
            (rest[:, None] * C + np.arange(C)).reshape(-1)
        ]
    shared, others = model.coef_.copy(), [personal(model, k) for k in range(3)]
    own = clients == "cy"
    own_weight = weight[own] if weighted else None
    assert model.fit_client(form(X[own]), y[own], "cy", own_weight) is model

    assert_array_equal(model.coef_, shared)
    assert model.clients_.tolist() == ["ann", "bob", "dee", "cy"]
    for k in range(3):
        assert_array_equal(personal(model, k), others[k])
    expected = personal(joint, late)
    size = np.linalg.norm(expected)
    assert_allclose(personal(model, 3), expected, rtol=0, atol=1e-6 * size)
    assert_allclose(
        np.ravel(model.client_intercept_[3]),
        np.ravel(joint.client_intercept_[late]),
        rtol=0,
        atol=1e-6 * size,
    )
    answer = getattr(model, "decision_function", model.predict)
    expected = getattr(joint, "decision_function", joint.predict)
    assert_allclose(answer(X, clients), expected(X, clients), rtol=0, atol=1e-5)


@BOTH
@FORMS
def test_a_client_that_is_there_is_renewed(estimator, form):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(form(X), y, clients)
    before = state_of(model)
    own = clients == "bob"
    model.fit_client(form(X[own][:7]), y[own][:7], "bob")
    assert_array_equal(model.clients_, before["clients_"])
    assert_array_equal(model.coef_, before["coef_"])
    again = estimator(**EASY).fit(form(X), y, clients)
    for k in range(4):
        same = np.array_equal(personal(model, k), personal(again, k))
        assert same == (k != 1)


@BOTH
def test_a_newcomer_has_no_part_where_all_share_one_model(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(C2=np.inf, **EASY).fit(X, y, clients)
    model.fit_client(X[:9], y[:9], "eve")
    assert not personal(model, 4).any() and not model.client_intercept_[4].any()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_class_that_the_newcomer_lacks_has_no_part(form):
    X, y, clients = rows_for(FedMTLSVC, 3)
    model = FedMTLSVC(**EASY).fit(form(X), y, clients)
    few = (clients == "ann") & (y != 1)
    model.fit_client(form(X[few]), y[few], "eve")
    has_part = personal(model, 4).any(axis=1)
    assert_array_equal(has_part, [True, False, True])


def test_the_names_of_newcomers_may_be_of_another_kind_and_longer():
    X, y, clients = rows_for(FedMTLSVC)
    model = FedMTLSVC(**EASY).fit(X, y, clients)
    for name in ("maximilian", 7, ("b", 1)):
        model.fit_client(X[:9], y[:9], name)
        assert model.predict(X[:2], [name, "ann"]).shape == (2,)
    assert model.clients_.tolist() == [*NAMES, "maximilian", 7, ("b", 1)]


@BOTH
def test_a_newcomer_may_be_named_by_its_column(estimator):
    X, y, clients = rows_for(estimator)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(who=clients)
    model = estimator(client_column="who", **EASY).fit(frame, y)
    plain = estimator(**EASY).fit(X, y, clients)
    model.fit_client(frame[:9].assign(who="eve"), y[:9])
    plain.fit_client(X[:9], y[:9], "eve")
    assert_array_equal(model.clients_, plain.clients_)
    assert_array_equal(model.client_coef_, plain.client_coef_)
    before = state_of(model)
    with pytest.raises(ValueError, match=r"client_column 'who' names the clients \["):
        model.fit_client(frame, y)
    with pytest.raises(ValueError, match=r"\['eve'\], expected 'ann' alone"):
        model.fit_client(frame[:9].assign(who="eve"), y[:9], "ann")
    assert_same_state(vars(model), before)


@BOTH
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda X, y: (X[:, :3], y, "eve"), "X has 3 features, but .* 5 features"),
        (lambda X, y: (X, y[:-1], "eve"), "inconsistent numbers of samples"),
        (lambda X, y: (X * np.nan, y, "eve"), "contains NaN"),
        (lambda X, y: (X, y, None), "client is None, expected an identifier"),
        (lambda X, y: (X, y, np.nan), "client has no identifier"),
        (lambda X, y: (X, y, "eve", -np.ones(9)), "sample_weight has a negative"),
    ],
)
def test_bad_rows_of_a_newcomer_change_nothing(estimator, spoil, words):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(X, y, clients)
    before = state_of(model)
    with pytest.raises(ValueError, match=words):
        model.fit_client(*spoil(X[:9], y[:9]))
    assert_same_state(vars(model), before)


def test_a_label_that_fit_did_not_see_is_refused():
    X, y, clients = rows_for(FedMTLSVC)
    model = FedMTLSVC(**EASY).fit(X, y, clients)
    labels = y[:9].copy()
    labels[4] = 5
    before = state_of(model)
    with pytest.raises(ValueError, match=r"y has 5.* in row 4, which is no label"):
        model.fit_client(X[:9], labels, "eve")
    assert_same_state(vars(model), before)


@BOTH
def test_an_unfitted_model_says_so(estimator):
    X, y, _ = rows_for(estimator)
    for call in (
        lambda model: model.fit_client(X, y, "eve"),
        lambda model: model.for_client("eve"),
    ):
        with pytest.raises(NotFittedError):
            call(estimator())


# A client's model on its own.


def answers(model, X, *clients):
    return getattr(model, "decision_function", model.predict)(X, *clients)


def assert_same_bits(model, X, clients):
    for name in np.unique(clients):
        own = clients == name
        plain = model.for_client(name)
        alone = np.repeat(name, own.sum())
        for rows in (X[own], X[own][:1]):
            expected = answers(model, rows, alone[: rows.shape[0]])
            assert_array_equal(answers(plain, rows), expected)
            assert_array_equal(
                plain.predict(rows), model.predict(rows, alone[: rows.shape[0]])
            )
        # Among the rows of others too.
        assert_array_equal(answers(plain, X[own]), answers(model, X, clients)[own])


@pytest.mark.parametrize("fitted_on", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("estimator", "n_classes"), [(FedMTLSVC, 2), (FedMTLSVC, 3), (FedMTLSVR, 0)]
)
def test_a_clients_own_model_has_the_same_bits(
    estimator, n_classes, fit_intercept, dtype, form, fitted_on
):
    X, y, clients = rows_for(estimator, n_classes)
    # Clients of different sizes, and some of the same.
    keep = np.delete(np.arange(len(y)), np.flatnonzero(clients == "bob")[:9])
    X, y, clients = X[keep].astype(dtype), y[keep], clients[keep]
    model = estimator(fit_intercept=fit_intercept, handle_unknown="shared", **EASY)
    model.fit(fitted_on(X), y, clients)
    assert_same_bits(model, form(X), np.where(clients == "cy", "eve", clients))


@BOTH
def test_a_clients_own_model_is_scikit_learns(estimator):
    X, y, clients = rows_for(estimator)
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.insert(2, "who", clients)
    model = estimator(C2=3.0, client_column="who", **EASY).fit(frame, y)
    plain = model.for_client("bob")
    assert type(plain) is {FedMTLSVC: LinearSVC, FedMTLSVR: LinearSVR}[estimator]
    fresh = type(plain)(C=0.02, loss=model.loss).fit(frame[list("abcde")], y)
    names = {name for name in vars(fresh) if name.endswith("_")}
    assert {name for name in vars(plain) if name.endswith("_")} == names
    for name in ("coef_", "intercept_", "classes_", "feature_names_in_"):
        if name in names:
            assert getattr(plain, name).shape == getattr(fresh, name).shape
    assert plain.n_features_in_ == 5
    rows = frame.drop(columns="who")
    # scikit-learn adds up a frame's columns in another order.
    seen, expected = plain.predict(rows), model.predict(frame.assign(who="bob"))
    assert_allclose(seen, expected, rtol=0, atol=1e-14)
    with pytest.raises(ValueError, match="feature names should match"):
        plain.predict(rows[list("edcba")])


WITHOUT_FEDCORE = """
import pickle, sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "fedcore":
            raise ImportError("fedcore is not here")

sys.meta_path.insert(0, Blocker())
models, X = pickle.load(sys.stdin.buffer)
answers = []
for model in models:
    try:
        model.predict(X[:, :2])
    except ValueError as error:
        words = str(error)
    scores = getattr(model, "decision_function", model.predict)(X)
    answers.append((scores, model.predict(X), words))
assert "fedcore" not in sys.modules
sys.stdout.buffer.write(pickle.dumps(answers))
"""


def test_clients_own_models_predict_where_fedcore_is_not_installed():
    models = {}
    for estimator in (FedMTLSVC, FedMTLSVR):
        X, y, clients = rows_for(estimator)
        models[estimator] = estimator(**EASY).fit(X, y, clients)
    plain = [model.for_client("dee") for model in models.values()]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FEDCORE],
        input=pickle.dumps((plain, X)),
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    dee = np.repeat("dee", len(y))
    for model, answer in zip(models.values(), pickle.loads(done.stdout), strict=True):
        scores, predicted, words = answer
        assert_array_equal(scores, answers(model, X, dee))
        assert_array_equal(predicted, model.predict(X, dee))
        kind = type(model.for_client("dee")).__name__
        expected = f"X has 2 features, but {kind} is expecting 5 features as input."
        assert words == expected


@BOTH
def test_an_unknown_clients_own_model_is_refused_or_the_shared_one(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(X, y, clients)
    with pytest.raises(ValueError, match="client == 'eve', which was not there"):
        model.for_client("eve")
    with pytest.raises(ValueError, match="fitted on 4 clients: say which"):
        model.for_client()
    model.set_params(handle_unknown="shared")
    assert_array_equal(model.for_client("eve").coef_, model.coef_)
    alone = estimator(**EASY).fit(X, y)
    assert_array_equal(alone.for_client().predict(X), alone.predict(X))


def test_a_newcomer_beyond_the_floats_is_refused_and_changes_nothing():
    X, y, clients = make_mtl_classification(n_clients=3, random_state=0)
    model = FedMTLSVC(random_state=0).fit(X, y, clients)
    before = model.client_coef_.copy()
    with (
        pytest.raises(ValueError, match="the fit of this client overflowed"),
        np.errstate(all="ignore"),
    ):
        model.fit_client(X * 1e200, y, "new")
    assert_array_equal(model.client_coef_, before)
    assert len(model.clients_) == 3


def test_identifiers_without_an_order_are_told_apart():
    X, y, clients = make_mtl_classification(n_clients=3, random_state=0)
    shuffled = np.random.default_rng(0).permutation(len(y))
    X, y, clients = X[shuffled], y[shuffled], clients[shuffled]
    sets = [frozenset([int(k)]) for k in clients]
    model = FedMTLSVC(random_state=0).fit(X, y, sets)
    assert set(model.clients_) == set(sets)
    assert len(model.clients_) == 3
