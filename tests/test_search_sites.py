"""A search over sites that share no process is the search in one."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from fedcore import (
    FedBestSubset,
    FederatedSearchCV,
    FedIterHT,
    FedMTLSVC,
    FedMTLSVR,
    FedStandardScaler,
    LocalEngine,
)
from fedcore._estimators import seed_of
from fedcore.federation.contract import Each
from fedcore.federation.run import run
from fedcore.model_selection.figures import merge, score
from fedcore.model_selection.plan import plan
from fedcore.model_selection.protocol import Search

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
SITES = (["a", "b", "c"], ["d"], ["e", "f"])


class Sites:
    """An engine and its link: cohorts that only exchange what a network would carry."""

    def __init__(self, cohorts):
        self._cohorts = cohorts
        self._firsts = np.cumsum([0, *(c.n_clients for c in cohorts)])

    def open(self, algorithm, cohort, seed, n_jobs):
        self._algorithm = algorithm
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def hellos(self):
        # A site does not know its place yet.
        return [self._algorithm.hello(cohort) for cohort in self._cohorts]

    def join(self, agreement):
        self.agreement = agreement
        firsts = self._firsts[:-1].tolist()
        self._cohorts = [
            replace(cohort, first=first)
            for cohort, first in zip(self._cohorts, firsts, strict=True)
        ]
        self._states = [self._algorithm.join(c, agreement) for c in self._cohorts]

    def _message(self, request, active):
        message = dict(request.all)
        for name, rows in request.each.items():
            if isinstance(rows, tuple):
                rows = rows[0][rows[1]]
            message[name] = np.ascontiguousarray(rows[active])
        return message

    def exchange(self, request, key):
        replies = []
        for cohort, cs in zip(self._cohorts, self._states, strict=True):
            active = np.arange(cohort.n_clients, dtype=np.int32)
            message = self._message(request, active + cohort.first)
            if request.evaluate:
                reply = self._algorithm.evaluate(cohort, cs, message, active)
            else:
                reply = self._algorithm.update(cohort, cs, message, active, key)
            assert reply.keys() == request.reply.keys()
            replies.append(reply)
        folded = {
            name: np.concatenate([r[name] for r in replies])
            if isinstance(kind, Each)
            else sum(_dense(r[name], kind.shape) for r in replies)
            for name, kind in request.reply.items()
        }
        who = np.ones(self._firsts[-1], bool)
        return SimpleNamespace(
            reply=folded, who=who, bytes_down=0, bytes_up=0, n_late=0
        )

    def close(self, request):
        self.personal = [
            self._algorithm.personal(
                cohort,
                cs,
                self._message(request, np.arange(cohort.n_clients) + cohort.first),
            )
            for cohort, cs in zip(self._cohorts, self._states, strict=True)
        ]
        return {}


def _dense(value, shape):
    if not hasattr(value, "index"):
        return value
    total = np.zeros(shape)
    total[slice(None) if value.index is None else value.index] += value.rows
    return total


def rows(regression):
    rng = np.random.default_rng(0)
    clients = np.sort(rng.choice(list("abcdef"), 150))
    X = rng.normal(size=(150, 5)) * [1, 2, 3, 4, 5] + (clients == "b")[:, None]
    value = X @ rng.normal(size=5) + rng.normal(size=150)
    return X, value if regression else np.where(value > 0, "yes", "no"), clients


CASES = [
    (FedMTLSVC(), "C1", [0.1, 1.0]),
    (FedMTLSVC(loss="squared_hinge", aggregation="line_search"), "C2", [0.5, 5.0]),
    (FedMTLSVR(aggregation="safe", max_rounds=20), "C1", [0.1, 1.0]),
    (FedIterHT(loss="logistic", batch_size=5, max_rounds=6), "n_nonzero_coefs", [2, 4]),
    (FedBestSubset(), "n_nonzero_coefs", [2, 4]),
]


@pytest.mark.parametrize("scope", [None, "federation", "client"])
@pytest.mark.parametrize(("model", "name", "values"), CASES)
def test_sites_apart_find_what_they_find_together(model, name, values, scope):
    regression = not hasattr(model, "decision_function")
    X, y, clients = rows(regression)
    model.set_params(random_state=0)
    if scope is not None:
        name = f"{type(model).__name__.lower()}__{name}"
        model = make_pipeline(FedStandardScaler(scope), model)
    together = FederatedSearchCV(model, {name: values}, cv=3, random_state=2)
    together.fit(X, y, clients)

    cohorts, methods = [], []
    for value in values:
        model.set_params(**{name: value})
        for site in SITES:
            own = np.isin(clients, site)
            method, cohort, names = plan(
                model, LocalEngine(), X[own], y[own], clients[own], None
            )
            assert_array_equal(names, site)
            cohorts.append(cohort)
        methods.append(method)
    engine = Sites(cohorts[: len(SITES)])
    scoring = "r2" if regression else "accuracy"
    search = Search(tuple(methods), 3, scoring, True, seed_of(2), seed_of(0))
    outcome = run(search, engine, cohorts[0], seed=1)

    assert len(outcome.history["round"]) == outcome.state["round"]
    assert outcome.state["candidate"] == together.best_index_
    own = score(merge(outcome.state["figures"], axis=1), scoring)
    assert_allclose(own, together.client_scores_, rtol=1e-6)
    # The last fit is the best candidate's, to all rows.
    best = together.best_estimator_
    best = best if scope is None else best[-1]
    inner = outcome.state["inner"]
    final = methods[together.best_index_].final(inner)
    if "w" in final:
        w = final["w"][:, :-1].reshape(best.coef_.shape)
        assert_allclose(w, best.coef_, rtol=1e-5, atol=1e-7)
        v = np.concatenate([personal["v"] for personal in engine.personal])
        v = v[:, :, :-1].reshape(best.client_coef_.shape)
        assert_allclose(v, best.client_coef_, rtol=1e-5, atol=1e-7)
    else:
        assert_array_equal(final["index"], best.coef_.reshape(-1).nonzero()[0])
        seen = best.coef_.reshape(-1)[final["index"]]
        assert_allclose(final["value"], seen, rtol=1e-6)


class Deployed(FedMTLSVC):
    """A model with what sites need of it, as short as can be."""

    def _deployed_algorithm(self, engine):
        return self._plan(engine, *rows(False))[0]

    def _deployed_cohort(self, X, y, clients):
        return self._plan(LocalEngine(), X, y, clients)[1:]

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        fitted = clone(self)
        w = found["w"]
        v = np.empty((0, *w.shape)) if personal is None else personal["v"]
        fitted.clients_ = names if personal is not None else names[:0]
        fitted.classes_ = agreement["classes"]
        fitted.n_features_in_ = w.shape[1] - 1
        fitted._set_models(w, v, None, algorithm.bias)
        fitted.history_ = history
        return fitted


@pytest.mark.parametrize("scope", [None, "federation", "client"])
def test_coordinator_and_sites_get_their_parts_of_the_best(scope):
    X, y, clients = rows(False)
    model = Deployed(random_state=0, handle_unknown="shared")
    grid = {"C1": [0.01, 0.1]}
    if scope is not None:
        scaler = FedStandardScaler(scope, handle_unknown="shared")
        model = make_pipeline(scaler, model)
        grid = {"deployed__C1": [0.01, 0.1]}
    search = FederatedSearchCV(model, grid, cv=3, random_state=2)
    together = clone(search).fit(X, y, clients)
    masks = [np.isin(clients, site) for site in SITES]
    found = [search._deployed_cohort(X[m], y[m], clients[m]) for m in masks]
    cohorts = [cohort for cohort, _ in found]
    assert [list(names) for _, names in found] == list(SITES)
    engine = Sites(cohorts)
    method = search._deployed_algorithm(LocalEngine())
    outcome = run(method, engine, cohorts[0], seed=1)
    found_by_all = method.findings(outcome.state)
    shared = method, outcome.state | found_by_all
    rest = outcome.history, engine.agreement

    coordinator = search._deployed_result(*shared, None, together.clients_, *rest)
    assert_allclose(coordinator.client_scores_, together.client_scores_)
    for name, column in together.cv_results_.items():
        if name.endswith("_score"):
            assert_allclose(coordinator.cv_results_[name], column)
    assert coordinator.best_params_ == together.best_params_
    assert coordinator.n_rounds_ == together.n_rounds_
    last = coordinator.best_estimator_
    last = last if scope is None else last[-1]
    assert last.history_["round"][0] == 1
    unknown = np.full(len(y), "zoe")
    seen, expected = (s.predict(X, unknown) for s in (coordinator, together))
    assert np.mean(seen == expected) > 0.99

    for mask, personal, (_, names) in zip(masks, engine.personal, found, strict=True):
        site = search._deployed_result(method, found_by_all, personal, names, *rest)
        seen = site.decision_function(X[mask], clients[mask])
        expected = together.decision_function(X[mask], clients[mask])
        assert_allclose(seen, expected, rtol=1e-4, atol=1e-5)
        assert not hasattr(site, "client_scores_")
    assert not hasattr(search, "cv_results_")


def test_a_scaler_is_deployed_only_where_rows_can_be_centred():
    pipe = make_pipeline(FedStandardScaler(), Deployed())
    X, y, clients = rows(False)
    with pytest.raises(ValueError, match="sparse and with_mean is True"):
        FederatedSearchCV(pipe, {})._deployed_cohort(sparse.csr_array(X), y, clients)
