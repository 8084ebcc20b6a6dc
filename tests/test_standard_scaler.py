"""FedStandardScaler: the moments of pooled rows, from sums; each client's own."""

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import FedMTLSVC, FedStandardScaler, LocalEngine
from fedcore._clients import cohort_of, group_by_client
from fedcore.federation.contract import Refused
from fedcore.preprocessing.protocol import Moments

SCOPES = pytest.mark.parametrize("scope", ["federation", "client"])
FLAGS = pytest.mark.parametrize(
    ("with_mean", "with_std"), [(True, True), (True, False), (False, True)]
)


@parametrize_with_checks(
    [
        FedStandardScaler(),
        FedStandardScaler("client", with_mean=False, handle_unknown="shared"),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def rows(n=300, missing=True, dtype=np.float64):
    """Rows of seven clients with levels and units far apart, in mixed order."""
    rng = np.random.default_rng(0)
    clients = np.array(list("gfedcba"))[rng.integers(7, size=n)]
    X = rng.normal(size=(n, 5)) * [1, 100, 1e-3, 5, 0] + [0, 7, 2, -300, 3]
    X[:, 1] += 50 * (clients == "c")
    X[:, 3] *= 1 + (clients == "a")
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X.astype(dtype), clients


# The moments.


@FLAGS
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_federation_is_one_scaler_of_pooled_rows(
    with_mean, with_std, missing, weighted
):
    X, clients = rows(missing=missing)
    weight = np.random.default_rng(1).integers(0, 3, len(X)) if weighted else None
    options = {"with_mean": with_mean, "with_std": with_std}
    ours = FedStandardScaler(**options).fit(X, None, clients, weight)
    pooled = StandardScaler(**options).fit(X, sample_weight=weight)
    for name in ("mean_", "var_", "scale_"):
        expected = getattr(pooled, name)
        if expected is None:
            assert getattr(ours, name) is None
        else:
            assert_allclose(getattr(ours, name), expected, rtol=1e-12, atol=1e-14)
    assert_array_equal(ours.n_samples_seen_, pooled.n_samples_seen_)
    Z = ours.transform(X)
    assert_allclose(Z, pooled.transform(X), rtol=1e-11, atol=1e-11)
    assert_allclose(ours.inverse_transform(Z), X, rtol=1e-11, atol=1e-11)
    assert_array_equal(ours.clients_, list("abcdefg"))


@FLAGS
def test_each_client_is_a_scaler_of_its_own_rows(with_mean, with_std):
    X, clients = rows()
    options = {"with_mean": with_mean, "with_std": with_std}
    ours = FedStandardScaler("client", **options).fit(X, clients=clients)
    Z = ours.transform(X, clients)
    for k, name in enumerate(ours.clients_):
        own = clients == name
        alone = StandardScaler(**options).fit(X[own])
        assert_allclose(Z[own], alone.transform(X[own]), rtol=1e-11, atol=1e-11)
        if with_std:
            assert_allclose(ours.client_scale_[k], alone.scale_, rtol=1e-12)
        assert_allclose(ours.client_mean_[k], alone.mean_, rtol=1e-12, atol=1e-14)
    back = ours.inverse_transform(Z, clients)
    assert_allclose(back, X, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("scope", ["federation", "client"])
@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_rows_are_scaled_as_dense_ones(scope, weighted):
    X, clients = rows()
    X[np.random.default_rng(2).random(X.shape) < 0.6] = 0
    weight = np.random.default_rng(1).integers(0, 3, len(X)) if weighted else None
    options = {"with_mean": False, "handle_unknown": "shared"}
    dense, ours = (
        FedStandardScaler(scope, **options).fit(form(X), None, clients, weight)
        for form in (np.asarray, sparse.csr_array)
    )
    for name in ("mean_", "var_", "scale_"):
        seen, expected = getattr(ours, name), getattr(dense, name)
        assert_allclose(seen, expected, rtol=1e-12, atol=1e-14)
    if scope == "client":
        assert_allclose(ours.client_scale_, dense.client_scale_, rtol=1e-12)
    Z = ours.transform(sparse.csr_array(X), clients)
    assert sparse.issparse(Z)
    assert_allclose(Z.toarray(), dense.transform(X, clients), rtol=1e-11)
    Z = ours.inverse_transform(Z, clients)
    assert_allclose(Z.toarray(), X, rtol=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_means_far_from_0_cost_no_digits(dtype):
    rng = np.random.default_rng(0)
    far = 1e8 if dtype is np.float64 else 1e3
    X = (rng.normal(size=(20000, 3)) + far * np.array([1, -1, 0.5])).astype(dtype)
    clients = rng.integers(50, size=len(X))
    ours = FedStandardScaler().fit(X, clients=clients)
    exact = X.astype(np.longdouble)
    mean = exact.mean(axis=0)
    std = np.sqrt(((exact - mean) ** 2).mean(axis=0))
    assert_allclose(ours.mean_, mean.astype(float), rtol=4e-16)
    assert_allclose(ours.scale_, std.astype(float), rtol=1e-13)
    expected = ((exact - mean) / std).astype(float)
    Z = ours.transform(X)
    assert Z.dtype == dtype
    atol = 1e-7 if dtype is np.float64 else 1e-6  # what the digits of X leave
    assert_allclose(Z, expected, atol=atol, rtol=1e-6)


@settings(deadline=None, max_examples=60)
@given(
    arrays(float, (12, 2), elements=st.floats(-1000, 1000, width=16)),
    arrays(int, 12, elements=st.integers(0, 4)),
    st.floats(-1000, 1000, width=16),
)
def test_to_move_rows_moves_the_mean_alone(X, clients, by):
    here, there = (
        FedStandardScaler().fit(rows, clients=clients) for rows in (X, X + by)
    )
    assert_allclose(there.mean_, here.mean_ + by, atol=1e-10)
    assert_allclose(there.var_, here.var_, atol=1e-9, rtol=1e-10)


def test_a_column_without_values_has_no_moments():
    X, clients = rows()
    X[:, 2] = np.nan
    ours = FedStandardScaler().fit(X, clients=clients)
    assert np.isnan(ours.mean_[2]) and np.isnan(ours.var_[2])
    assert ours.n_samples_seen_[2] == 0
    assert_array_equal(ours.transform(X)[:, [2]], X[:, [2]])


# The federation.


@SCOPES
def test_neither_threads_nor_sampling_change_a_bit(scope):
    X, clients = rows()
    options = {"handle_unknown": "shared"}
    one = FedStandardScaler(scope, **options).fit(X, clients=clients)
    others = [
        FedStandardScaler(scope, n_jobs=3, **options),
        FedStandardScaler(scope, engine=LocalEngine(client_fraction=0.3), **options),
    ]
    for other in others:
        other.fit(X, clients=clients)
        assert_array_equal(one.mean_, other.mean_)
        assert_array_equal(one.scale_, other.scale_)
        if scope == "client":
            assert_array_equal(one.client_scale_, other.client_scale_)


def test_who_is_silent_in_one_round_does_no_harm_to_the_others():
    X, clients = rows()
    X[clients == "a"] += 5 * np.nanstd(X, axis=0)
    groups = group_by_client(np.sort(clients))
    X = X[np.argsort(clients, kind="stable")]
    cohort, method = cohort_of(X, np.zeros(len(X)), None, groups), Moments()
    state, agreement = method.start([method.hello(cohort)], (0, 0))
    cs = method.join(cohort, agreement)
    for active in ([0, 1, 4], [1, 2, 3, 5, 6]):
        request = method.broadcast(state, (0, 1))
        reply = method.update(cohort, cs, request.all, np.array(active), (0, 1))
        assert reply.keys() == request.reply.keys()
        state = method.combine(state, reply, np.isin(range(7), active), (0, 1))
    assert state["done"]
    mean, var, _ = method.result(state)
    answered = np.isin(np.sort(clients), list("bcdfg"))
    expected = StandardScaler().fit(X[answered])
    assert_allclose(mean, expected.mean_, rtol=1e-12, atol=1e-14)
    assert_allclose(var, expected.var_, rtol=1e-10)


def test_a_site_with_other_columns_is_refused_by_number():
    hellos = [
        {"n_rows": np.array([3, 4]), "n_features": 5},
        {"n_rows": np.array([2]), "n_features": 4},
    ]
    with pytest.raises(Refused, match="client 2 refused: its rows have n_features=4"):
        Moments().start(hellos, (0, 0))


def test_nothing_leaves_a_client_unless_the_federation_is_asked_for():
    X, clients = rows()
    own = FedStandardScaler("client").fit(X, clients=clients)
    assert own.n_rounds_ == 0 and own.history_["bytes_up"].sum() == 0
    assert own.mean_ is None and own.scale_ is None
    sums = FedStandardScaler().fit(X, clients=clients)
    assert sums.n_rounds_ == 2
    assert len(pd.DataFrame(sums.history_)) == 2


def test_unknown_clients_get_the_moments_of_the_federation_if_so_wished():
    X, clients = rows()
    own = FedStandardScaler("client").fit(X, clients=clients)
    with pytest.raises(ValueError, match="'zoe' in row 1, which was not there in fit"):
        own.transform(X[:2], ["a", "zoe"])
    shared = own.set_params(handle_unknown="shared").fit(X, clients=clients)
    all_rows = FedStandardScaler().fit(X, clients=clients)
    Z = shared.transform(X, np.where(clients == "a", "zoe", clients))
    assert_array_equal(Z[clients == "a"], all_rows.transform(X)[clients == "a"])


@pytest.mark.parametrize("clients", [list("ccaab"), list("cacba"), list("aabbc")])
def test_a_site_lays_its_clients_out_by_name(clients):
    X = np.arange(10.0).reshape(5, 2)
    cohort, names = FedStandardScaler()._deployed_cohort(X, None, clients)
    assert list(names) == list("abc")
    laid = X[np.argsort(clients, kind="stable")]
    assert_array_equal(cohort.X, laid)
    counts = [clients.count(name) for name in "abc"]
    assert_array_equal(np.diff(cohort.offsets), counts)


@SCOPES
def test_sites_apart_make_the_scaler_that_they_make_together(scope):
    X, clients = rows()
    scaler = FedStandardScaler(scope, handle_unknown="shared")
    together = clone(scaler).fit(X, clients=clients)
    method = scaler._deployed_algorithm(LocalEngine())
    sites = [np.isin(clients, list(names)) for names in ("fga", "b", "ecd")]
    cohorts = [scaler._deployed_cohort(X[s], None, clients[s]) for s in sites]
    hellos = [method.hello(cohort) for cohort, _ in cohorts]
    state, agreement = method.start(hellos, (0, 0))
    kept = [method.join(cohort, agreement) for cohort, _ in cohorts]
    while not state["done"]:
        request = method.broadcast(state, (0, 1))
        replies = [
            method.update(cohort, cs, request.all, np.arange(cohort.n_clients), (0, 1))
            for (cohort, _), cs in zip(cohorts, kept, strict=True)
        ]
        reply = {name: sum(r[name] for r in replies) for name in request.reply}
        state = method.combine(state, reply, np.ones(7, bool), (0, 1))

    def result(personal, names):
        return scaler._deployed_result(
            method, state, personal, names, {"round": [1]}, agreement
        )

    shared = result(None, together.clients_)
    assert_allclose(shared.mean_, together.mean_, rtol=1e-13, atol=1e-15)
    everywhere = FedStandardScaler().fit(X, clients=clients).transform(X)
    if scope == "client":
        Z = shared.transform(X, clients)
        assert_allclose(Z, everywhere, rtol=1e-10, atol=1e-12)
    for site, (cohort, names), cs in zip(sites, cohorts, kept, strict=True):
        assert list(names) == sorted(set(clients[site]))
        own = result(method.personal(cohort, cs, {}), names)
        Z, expected = (
            own.transform(X[site], clients[site]),
            together.transform(X, clients),
        )
        assert_allclose(Z, expected[site], rtol=1e-10, atol=1e-12)


# Manners.


@SCOPES
def test_identifiers_in_a_column_stay_as_they_are(scope):
    X, clients = rows()
    plain = FedStandardScaler(scope).fit(X, clients=clients)
    expected = plain.transform(X, clients)
    frame = pd.DataFrame(X, columns=list("vwxyz"), index=np.arange(len(X)) * 3)
    frame.insert(2, "owner", clients)
    scaler = FedStandardScaler(scope, client_column="owner").fit(frame)
    out = scaler.transform(frame)
    assert list(out.columns) == list(frame.columns) and out.index.equals(frame.index)
    assert_array_equal(out["owner"], clients)
    assert_array_equal(out.drop(columns="owner"), expected)
    assert scaler.n_features_in_ == 6
    back = scaler.inverse_transform(out)
    assert_allclose(back.drop(columns="owner"), X, rtol=1e-11, atol=1e-11)
    assert list(scaler.get_feature_names_out()) == list(frame.columns)

    mixed = np.insert(X.astype(object), 2, clients, axis=1)
    out = FedStandardScaler(scope, client_column=2).fit_transform(mixed)
    assert_array_equal(out[:, 2], clients)
    assert_array_equal(np.delete(out, 2, axis=1).astype(float), expected)

    codes = np.unique(clients, return_inverse=True)[1]
    numbers = np.insert(X, 0, codes, axis=1)
    out = FedStandardScaler(scope, client_column=0).fit_transform(numbers)
    assert out.dtype == float
    assert_array_equal(out, np.insert(expected, 0, codes, axis=1))

    options = {"client_column": 0, "with_mean": False}
    dense = FedStandardScaler(scope, **options).fit_transform(numbers)
    csr = FedStandardScaler(scope, **options).fit_transform(sparse.csr_array(numbers))
    assert_allclose(csr.toarray(), dense, rtol=1e-11)
    assert_array_equal(csr[:, [0]].toarray()[:, 0], codes)


def labelled(n=210):
    X, clients = rows(n, missing=False)
    y = (X[:, 0] + (X[:, 1] - 7) / 100 > 0).astype(int)
    return X, y, clients


@SCOPES
def test_first_step_before_a_model_with_a_column_of_identifiers(scope):
    X, y, clients = labelled()
    frame = pd.DataFrame(X, columns=list("vwxyz")).assign(owner=clients)
    pipe = make_pipeline(
        FedStandardScaler(scope, client_column="owner"),
        FedMTLSVC(client_column="owner", random_state=0),
    ).fit(frame, y)
    scaler = FedStandardScaler(scope)
    Z = scaler.fit_transform(X, clients=clients)
    model = FedMTLSVC(random_state=0).fit(Z, y, clients)
    assert_array_equal(pipe.predict(frame), model.predict(Z, clients))
    assert cross_val_score(pipe, frame, y, scoring="accuracy", cv=3).min() > 0.8
    grid = {"fedstandardscaler__with_mean": [True, False]}
    search = GridSearchCV(pipe, grid, scoring="roc_auc", cv=3).fit(frame, y)
    assert search.best_score_ > 0.9


@SCOPES
def test_routing_brings_the_clients_to_every_step(scope):
    X, y, clients = labelled()
    with config_context(enable_metadata_routing=True):
        pipe = make_pipeline(FedStandardScaler(scope), FedMTLSVC(random_state=0))
        pipe.fit(X, y, clients=clients)
        predicted = pipe.predict(X, clients=clients)
    Z = FedStandardScaler(scope).fit_transform(X, clients=clients)
    model = FedMTLSVC(random_state=0).fit(Z, y, clients)
    assert_array_equal(predicted, model.predict(Z, clients))


def test_set_output_gives_frames():
    X, clients = rows()
    scaler = FedStandardScaler().set_output(transform="pandas")
    out = scaler.fit_transform(pd.DataFrame(X, columns=list("vwxyz")), clients=clients)
    assert list(out.columns) == list("vwxyz")
    frame = pd.DataFrame(X, columns=list("vwxyz")).assign(owner=clients)
    scaler = FedStandardScaler(client_column="owner").set_output(transform="pandas")
    assert list(scaler.fit_transform(frame).columns) == [*"vwxyz", "owner"]


def test_rows_are_written_to_only_where_copy_is_false():
    X, clients = rows()
    kept, scaler = X.copy(), FedStandardScaler().fit(X, clients=clients)
    Z = scaler.transform(X)
    assert_array_equal(X, kept)
    again = scaler.set_params(copy=False).transform(X)
    assert again is X
    assert_array_equal(again, Z)
    kept.flags.writeable = False
    assert_array_equal(scaler.transform(kept), Z)


def test_pickle_and_clone_keep_what_they_should():
    X, clients = rows()
    scaler = FedStandardScaler("client").fit(X, clients=clients)
    Z = pickle.loads(pickle.dumps(scaler)).transform(X, clients)
    assert_array_equal(Z, scaler.transform(X, clients))
    assert clone(scaler).scope == "client" and not hasattr(clone(scaler), "clients_")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"scope": "site"}, "scope == 'site'"),
        ({"with_mean": "yes"}, "with_mean == 'yes'"),
        ({"with_std": None}, "with_std == None"),
        ({"copy": 2}, "copy == 2"),
        ({"client_column": 1.5}, "client_column == 1.5"),
        ({"handle_unknown": "skip"}, "handle_unknown == 'skip'"),
        ({"engine": LocalEngine}, "expected None or an engine"),
        ({"n_jobs": 0}, "n_jobs == 0"),
    ],
)
def test_bad_parameters_are_refused_by_name(options, words):
    X, clients = rows()
    scaler = FedStandardScaler().fit(X, clients=clients)
    before = vars(scaler).copy()
    with pytest.raises((TypeError, ValueError), match=words):
        scaler.set_params(**options).fit(X[:, :2], clients=clients)
    kept = {name for name in before if name.endswith("_")}
    assert all(vars(scaler)[name] is before[name] for name in kept)


def test_bad_rows_are_refused():
    X, clients = rows()
    with pytest.raises(ValueError, match="clients has 3 entries, X has 300 rows"):
        FedStandardScaler().fit(X, clients=clients[:3])
    with pytest.raises(ValueError, match="sparse and with_mean is True"):
        FedStandardScaler().fit(sparse.csr_array(X))
    with pytest.raises(ValueError, match="infinity"):
        FedStandardScaler().fit([[np.inf], [1.0]])
    for scope in ("federation", "client"):
        with pytest.raises(ValueError, match="too large to be squared"):
            FedStandardScaler(scope).fit([[1e300], [-1e300]])
    own = FedStandardScaler("client").fit(X, clients=clients)
    with pytest.raises(ValueError, match="was fitted on 7 clients: pass clients="):
        own.transform(X)
    with pytest.raises(ValueError, match="expected one of the two"):
        FedStandardScaler(client_column=0).fit(np.nan_to_num(X), clients=clients)
