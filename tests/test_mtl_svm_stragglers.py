"""The SVM when replies come late or never: what is kept, reached and certified."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.stats import expon

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine, Timing
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.mtl_svm import participant, protocol


@dataclass(frozen=True)
class Moment:
    """What was true after one exchange; b (n,) and s (K, length) as the clients keep.

    state : the coordinator's state
    who   : whose replies counted
    """

    state: dict
    who: np.ndarray
    b: np.ndarray
    s: np.ndarray


def watch(monkeypatch, moments):
    """Append a `Moment` to `moments` after every exchange of fits of two classes."""
    kept = {}
    SVMCohort, combine = participant.SVMCohort, protocol.MTLSVM.combine

    def keep(*args, **kwargs):
        kept.update(kwargs, offsets=args[0])
        return SVMCohort(*args, **kwargs)

    def observe(self, state, reply, who, key):
        state = combine(self, state, reply, who, key)
        K = len(who)
        step = state["step"][:, 0] if "step" in state else np.ones(K)
        length = len(kept["s"]) // K
        b, s = kept["b"].copy(), kept["s"].reshape(K, length).copy()
        if kept["b_before"] is not None:
            owner = np.repeat(np.arange(K), np.diff(kept["offsets"]))
            before = kept["b_before"], kept["s_before"].reshape(K, length)
            part, row = step < 1, step[owner] < 1
            b[row] = (before[0] + step[owner] * (b - before[0]))[row]
            s[part] = (before[1] + step[:, None] * (s - before[1]))[part]
        moments.append(Moment(dict(state), who.copy(), b, s))
        return state

    monkeypatch.setattr(participant, "SVMCohort", keep)
    monkeypatch.setattr(protocol.MTLSVM, "combine", observe)


def hinge_gap(X, y, owner, w, v, b, C1, C2):
    """Give the gap P(w, v) - D(b) of the hinge loss, and P, in plain numpy."""
    score = np.einsum("ij,ij->i", X, w + v[owner])
    primal = w @ w / 2 + C2 / 2 * (v**2).sum() + C1 * np.maximum(1 - y * score, 0).sum()
    s = np.zeros_like(v)
    np.add.at(s, owner, b[:, None] * X)
    total = s.sum(axis=0)
    dual = y @ b - total @ total / 2 - (s**2).sum() / (2 * C2)
    return primal - dual, primal


def late(wait=1.2, dropout=0.3, **settings):
    """Make an engine where three in ten replies are lost and as many come late."""
    cost = (0.0, 0.0, 0.2)  # 5 passes and a measure: a second or so
    timing = Timing(expon(), wait, 0.1, dropout, cost=cost, **settings)
    return LocalEngine(timing=timing)


@pytest.fixture(scope="module")
def federation():
    X, y, clients = make_mtl_classification(
        n_clients=12, n_samples=30, n_features=10, random_state=0
    )
    order = np.argsort(clients, kind="stable")
    return X[order], y[order], clients[order]


@pytest.fixture
def fit(federation, monkeypatch):
    """Fit and give the model, with what was true after each exchange."""
    X, y, clients = federation
    moments = []
    watch(monkeypatch, moments)

    def fit(C1=1.0, C2=1.0, **settings):
        model = FedMTLSVC(C1, C2, random_state=0, **settings)
        return model.fit(X, y, clients), moments

    return fit


def signed(federation):
    """Rows with the constant column, labels as signs, and owners."""
    X, y, clients = federation
    sign = np.where(y == y.max(), 1.0, -1.0)
    A = np.column_stack([X, np.ones(len(X))])
    return A, sign, np.unique(clients, return_inverse=True)[1]


@pytest.mark.parametrize("aggregation", ["line_search", "auto", "sequential"])
def test_they_reach_the_optimum_though_replies_are_missing(fit, aggregation):
    model, _ = fit(aggregation=aggregation, engine=late())
    assert model.dual_gap_ <= 1e-3
    history = model.history_
    missed = history["n_late"].sum() + history["n_dropped"].sum()
    assert missed > 0.3 * history["n_active"].sum()


@pytest.mark.parametrize("aggregation", ["line_search", "auto", "sequential"])
def test_w_is_the_sum_of_s_after_every_exchange(fit, federation, aggregation):
    _, moments = fit(aggregation=aggregation, engine=late())
    A, _, owner = signed(federation)
    checked = 0
    for moment in moments:
        if not moment.state.get("additive", True) or moment.state["measuring"].any():
            continue
        w, total = moment.state["w"][0], moment.s.sum(axis=0)
        assert np.linalg.norm(w - total) <= 1e-9 * np.linalg.norm(w)
        exact = np.zeros_like(moment.s)
        np.add.at(exact, owner, moment.b[:, None] * A)
        # While passes read float32 copies of the rows, so does s.
        assert_allclose(moment.s, exact, atol=1e-6 if moment.state["rough"] else 1e-9)
        checked += 1
    assert checked > 20


def test_a_silent_client_stays_as_it_was(fit):
    _, moments = fit(aggregation="line_search", engine=late())
    silent = 0
    for before, after in pairwise(moments):
        same = ~after.who
        # What it had is known up to the rounding of a step that is still to be taken.
        assert_allclose(after.s[same], before.s[same], atol=1e-14)
        silent += np.count_nonzero(same)
    assert silent > 50


@pytest.mark.parametrize("aggregation", ["line_search", "auto"])
@pytest.mark.parametrize(("C1", "C2"), [(1, 1), (1, 0.3), (1, 10), (10, 1), (0.1, 1)])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_bound_is_above_the_gap_and_near_it(fit, federation, aggregation, C1, C2):
    """Against the model it certifies: w the centre, each client's model as it was."""
    half = late(wait=1.2 * np.log(2), dropout=0.0)
    model, moments = fit(C1, C2, aggregation=aggregation, engine=half, max_rounds=60)
    heard = model.history_["n_active"].sum() / model.history_["n_exchanges"].sum() / 12
    assert 0.4 < heard < 0.75
    A, sign, owner = signed(federation)
    ratios = []
    for moment in moments:
        state = moment.state
        if not state["certify"] or not np.isfinite(state.get("bound", np.inf)).all():
            continue
        w = state["centre"][0]
        v = moment.s / C2 + state["contact_w"][state["contact"], 0] - w
        gap, primal = hinge_gap(A, sign, owner, w, v, moment.b, C1, C2)
        assert state["bound"][0] >= gap - 1e-12 * primal
        ratios.append(state["bound"][0] / gap)
    assert len(ratios) >= 20
    assert max(ratios) <= 3


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array])
def test_a_fit_that_stops_on_the_bound_returns_what_is_bounded(fit, federation, make):
    X, y, clients = federation
    model = FedMTLSVC(0.3, aggregation="line_search", engine=late(), random_state=0)
    model.fit(make(X), y, clients)
    assert model.dual_gap_kind_ == "bound"
    A, sign, owner = signed(federation)
    watched, moments = fit(0.3, aggregation="line_search", engine=late())
    b = moments[-1].b
    v = model.client_coef_
    v = v.toarray() if sparse.issparse(v) else v[:, 0]
    w = np.append(model.coef_[0], model.intercept_)
    v = np.column_stack([v, model.client_intercept_])
    gap, primal = hinge_gap(A, sign, owner, w, v, b, 0.3, 1.0)
    assert 0 < gap / primal <= model.dual_gap_ <= 1e-3
    assert primal <= model.objective_ * (1 + 1e-12)
    assert_allclose(watched.dual_gap_, model.dual_gap_, rtol=1e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_measured_gap_agrees_with_a_full_evaluation(fit, federation):
    model, moments = fit(aggregation="auto", engine=late(), max_rounds=20)
    assert model.dual_gap_kind_ == "measured"
    A, sign, owner = signed(federation)
    w = np.append(model.coef_[0], model.intercept_)
    v = np.column_stack([model.client_coef_[:, 0], model.client_intercept_])
    gap, primal = hinge_gap(A, sign, owner, w, v, moments[-1].b, 1.0, 1.0)
    assert_allclose(model.dual_gap_, gap / primal, rtol=1e-9)
    assert_allclose(model.objective_, primal, rtol=1e-12)


@pytest.mark.parametrize("aggregation", ["line_search", "auto", "sequential", "safe"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bits_do_not_depend_on_threads(federation, aggregation):
    models = [
        FedMTLSVC(
            aggregation=aggregation,
            engine=late(),
            max_rounds=30,
            n_jobs=n_jobs,
            random_state=0,
        ).fit(*federation)
        for n_jobs in (1, 2, 5)
    ]
    for model in models[1:]:
        assert_array_equal(model.coef_, models[0].coef_)
        assert_array_equal(model.client_coef_, models[0].client_coef_)
        for name in ("virtual_time", "n_late", "n_active", "passes"):
            assert_array_equal(model.history_[name], models[0].history_[name])


def test_auto_is_the_envelope_while_all_answer(federation):
    patient = LocalEngine(timing=Timing(expon(), wait=1e9))
    auto = FedMTLSVC(engine=patient, random_state=0).fit(*federation)
    envelope = FedMTLSVC(engine=LocalEngine(), random_state=0).fit(*federation)
    assert_array_equal(auto.coef_, envelope.coef_)
    assert_array_equal(auto.client_coef_, envelope.client_coef_)
    assert (np.diff(auto.history_["virtual_time"]) > 0).all()


def test_auto_goes_on_by_line_search_from_the_first_missing_reply(federation):
    def delay(sizes, d, key):
        return np.where(np.arange(len(sizes)) == 5, 1.0 + 9 * (key[1] == 3), 1.0)

    once = LocalEngine(timing=Timing(delay, wait=2.0))
    model = FedMTLSVC(engine=once, random_state=0).fit(*federation)
    history = model.history_
    assert_array_equal(np.flatnonzero(history["n_late"]), [2])
    assert history["n_exchanges"][2] == 3  # and two that need everybody
    gap = history["gap"]
    assert not np.isnan(gap[:3]).any()  # the envelope measures in every round
    assert np.isnan(gap[3:]).any()
    assert not np.isnan(history["gap_bound"]).any()


def test_a_bound_is_given_for_every_round(fit):
    model, _ = fit(aggregation="line_search", engine=late())
    assert (model.history_["gap_bound"] > 0).all()
    sampled, _ = fit(0.1, engine=LocalEngine(client_fraction=0.5))
    assert (sampled.history_["gap_bound"] > 0).all()
    assert sampled.dual_gap_ <= 1e-3


@pytest.mark.parametrize("C2", [np.inf, 1e12])
def test_where_the_bound_is_weak_the_gap_is_measured(fit, C2):
    model, _ = fit(0.01, C2, aggregation="line_search", engine=late())
    assert model.dual_gap_ <= 1e-3
    assert np.count_nonzero(~np.isnan(model.history_["gap"])) >= 2
    if C2 == np.inf:
        assert model.dual_gap_kind_ == "measured"
        assert "gap_bound" not in model.history_


@pytest.mark.parametrize("aggregation", ["line_search", "auto"])
@pytest.mark.parametrize("seed", range(3))
def test_the_gap_of_several_classes_is_that_of_the_worst(aggregation, seed):
    X, _, clients = make_mtl_classification(
        n_clients=8, n_samples=40, n_features=6, random_state=seed
    )
    label = np.argmax(X[:, :3] + [0, 0, 0.5], axis=1)
    settings = {"C1": 0.1, "C2": 0.3, "random_state": seed}
    model = FedMTLSVC(aggregation=aggregation, engine=late(), **settings)
    model.fit(X, label, clients)
    total = 0.0
    owner = np.searchsorted(model.clients_, clients)
    for c in range(3):
        sign = np.where(label == c, 1, -1)
        exact = FedMTLSVC(tol=1e-7, **settings).fit(X, sign, clients)
        w = np.append(model.coef_[c], model.intercept_[c])
        v = np.column_stack([model.client_coef_[:, c], model.client_intercept_[:, c]])
        A = np.column_stack([X, np.ones(len(X))])
        _, primal = hinge_gap(A, sign, owner, w, v, np.zeros(len(X)), 0.1, 0.3)
        assert primal - exact.objective_ <= model.dual_gap_ * primal
        total += primal
    assert total <= model.objective_ * (1 + 1e-12)
    assert model.dual_gap_ <= 1e-3


def test_regression_reaches_its_gap():
    Z, t, owners = make_mtl_regression(
        n_clients=8, n_samples=20, n_features=5, random_state=0
    )
    loss = "squared_epsilon_insensitive"
    regression = FedMTLSVR(loss=loss, engine=late(), random_state=0).fit(Z, t, owners)
    exact = FedMTLSVR(loss=loss, tol=1e-8, random_state=0).fit(Z, t, owners)
    assert regression.dual_gap_ <= 1e-3
    assert exact.objective_ <= regression.objective_ * (1 + 1e-8)
    assert regression.objective_ <= exact.objective_ / (1 - 1e-3)


@pytest.mark.parametrize("aggregation", ["sum", "safe"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_committed_when_sent_w_is_not_the_sum_of_s(fit, aggregation):
    timing = late().timing
    _, moments = fit(
        aggregation=aggregation,
        engine=LocalEngine(timing=timing, commit="sent"),
        max_rounds=5,
    )
    w, total = moments[-1].state["w"][0], moments[-1].s.sum(axis=0)
    assert np.linalg.norm(w - total) > 1e-3 * np.linalg.norm(w)


@pytest.mark.parametrize("aggregation", ["line_search", "auto", "envelope"])
def test_committing_when_sent_is_refused(federation, aggregation):
    engine = LocalEngine(timing=late().timing, commit="sent")
    model = FedMTLSVC(aggregation=aggregation, engine=engine)
    with pytest.raises(ValueError, match='only aggregation="sum" and "safe"'):
        model.fit(*federation)
    assert not hasattr(model, "coef_")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_starved_clients_are_named(federation):
    X, y, clients = federation
    names = np.array([f"site {k:02d}" for k in range(12)])[clients]

    def delay(sizes, d, key):
        return np.where(np.isin(np.arange(len(sizes)), [3, 8]), 9.0, 0.5)

    engine = LocalEngine(timing=Timing(delay, wait=1.0))
    model = FedMTLSVC(engine=engine, max_rounds=20, random_state=0)
    with pytest.warns(UserWarning, match=r"2 of 12 clients starved.*site 03 \(0 of"):
        model.fit(X, y, names)
    assert_array_equal(model.starved_, ["site 03", "site 08"])
    alright = FedMTLSVC(engine=LocalEngine(), random_state=0).fit(X, y, names)
    assert len(alright.starved_) == 0


def test_the_trace_speaks_of_clients_as_clients_does(federation):
    X, y, clients = federation
    backwards = np.argsort(-clients, kind="stable")  # cohort order is of first rows

    def delay(sizes, d, key):
        return np.where(np.arange(len(sizes)) == 0, 1.5, 0.5)

    engine = LocalEngine(timing=Timing(delay, wait=2.0, trace=True))
    model = FedMTLSVC(engine=engine, random_state=0)
    model.fit(X[backwards], y[backwards], clients[backwards])
    slow = model.trace_.arrived - model.trace_.sent > 1
    (who,) = np.unique(model.trace_.client[slow])
    assert model.clients_[who] == clients.max()
    assert len(model.trace_) == model.history_["n_active"].sum()
    model.set_params(engine=None).fit(X, y, clients)
    assert not hasattr(model, "trace_")
