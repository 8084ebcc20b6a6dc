"""A run that is taken apart and put together after every exchange has the same bits."""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.base import clone

from fedcore import (
    DistributedIHT,
    FedBestSubset,
    FedDaDiL,
    FedGraphMTL,
    FedHT,
    FedIterHT,
    FedMTLSVC,
    FedMTLSVR,
    LocalEngine,
    Timing,
)
from fedcore.federation.checkpoint import pack_state, unpack_state
from fedcore.federation.contract import Cohort
from fedcore.federation.local import LocalRun
from fedcore.federation.message import MessageError
from fedcore.federation.run import run
from fedcore.iht import newton
from fedcore.mtl_svm import participant
from fedcore.mtl_svm.protocol import MTLSVM

pytestmark = pytest.mark.filterwarnings("ignore")


def around(state):
    return unpack_state(pack_state(state))


@dataclass(frozen=True)
class Forgetful:
    """An algorithm whose coordinator writes its state down and reads it again."""

    method: object

    def __getattr__(self, name):
        return getattr(self.method, name)

    def start(self, hellos, key):
        state, agreement = self.method.start(hellos, key)
        return around(state), around(agreement)

    def broadcast(self, state, key):
        before = pack_state(state)
        request = self.method.broadcast(state, key)
        assert pack_state(state) == before
        return request

    def combine(self, state, reply, who, key):
        before = pack_state(state)
        after = self.method.combine(state, reply, who, key)
        assert pack_state(state) == before
        return around(after)


class ForgetfulRun(LocalRun):
    """Clients that are closed and opened again after every exchange."""

    def join(self, agreement):
        self.agreement = agreement
        super().join(agreement)

    def exchange(self, request, key):
        answer = super().exchange(request, key)
        kept = self._algorithm.dump(self._cohort, self._state)
        assert all(array.base is None for array in kept.values())
        self._state = self._algorithm.restore(
            self._cohort, self.agreement, around(kept)
        )
        return answer


class ForgetfulEngine(LocalEngine):
    def open(self, algorithm, cohort, seed, n_jobs):
        link = super().open(algorithm, cohort, seed, n_jobs)
        link.__class__ = ForgetfulRun
        return link


def forgetful(monkeypatch, **engine):
    """Give an engine; from now on all fits forget all but what they write down."""

    def forgetful_run(algorithm, *args, **options):
        return run(Forgetful(algorithm), *args, **options)

    monkeypatch.setattr("fedcore.mtl_svm.base.run", forgetful_run)
    monkeypatch.setattr("fedcore.iht._base.run", forgetful_run)
    monkeypatch.setattr("fedcore.graph_mtl.estimator.run", forgetful_run)
    monkeypatch.setattr("fedcore.dadil.estimator.run", forgetful_run)
    return ForgetfulEngine(**engine)


@pytest.fixture
def fit_both(monkeypatch, assert_same_fit):
    """Return a function that fits with and without interruptions, and compares."""

    def fit_both(model, X, y, clients, **engine):
        plain = clone(model).set_params(engine=LocalEngine(**engine))
        plain.fit(X, y, clients)
        model.set_params(engine=forgetful(monkeypatch, **engine)).fit(X, y, clients)
        assert_same_fit(plain, model)
        return model

    return fit_both


STRAGGLERS = {
    "timing": Timing(stats.gamma(2, scale=0.5), wait=4e-6, dropout=0.1, trace=True)
}
HALF = {"client_fraction": 0.5}
ENGINES = pytest.mark.parametrize(
    "engine", [{}, STRAGGLERS, HALF], ids=["all", "late", "half"]
)
RULES = ("auto", "sequential", "envelope", "line_search", "safe", "sum")


def classes(n_classes=2, kind="dense"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, 6))
    clients = np.sort(rng.integers(0, 7, 70))
    scores = (
        X @ rng.normal(size=(6, n_classes)) + rng.normal(size=(7, n_classes))[clients]
    )
    y = np.array(["ant", "bee", "cat", "dog"])[scores.argmax(axis=1)]
    if kind == "csr":
        X = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0))
    return X, y, clients


def numbers(kind="dense"):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(80, 10))
    clients = np.repeat(list("abcdefgh"), 10)
    y = X @ (rng.normal(size=10) * (np.arange(10) < 4)) + rng.normal(size=80)
    if kind == "csr":
        X = sparse.csr_array(np.where(np.abs(X) > 0.7, X, 0))
    return X, y, clients


@pytest.mark.parametrize("kind", ["dense", "csr"])
@ENGINES
@pytest.mark.parametrize("aggregation", RULES)
def test_rules_of_the_svm(fit_both, aggregation, engine, kind):
    model = FedMTLSVC(aggregation=aggregation, tol=1e-4, max_rounds=12, random_state=0)
    if aggregation == "envelope" and engine:
        engine = {}
    model = fit_both(model, *classes(kind=kind), **engine)
    if engine is STRAGGLERS:
        assert model.history_["n_late"].sum() > 0


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("aggregation", ["sequential", "envelope", "line_search"])
def test_several_classes(fit_both, aggregation, loss):
    model = FedMTLSVC(
        aggregation=aggregation, loss=loss, class_weight="balanced", random_state=0
    )
    fit_both(model.set_params(max_rounds=15), *classes(4))


@pytest.mark.parametrize("loss", ["epsilon_insensitive", "squared_epsilon_insensitive"])
@pytest.mark.parametrize("aggregation", ["sequential", "envelope", "safe"])
def test_regression(fit_both, aggregation, loss):
    model = FedMTLSVR(aggregation=aggregation, loss=loss, max_rounds=10, random_state=0)
    fit_both(model, *numbers())


@ENGINES
@pytest.mark.parametrize("aggregation", ["sequential", "envelope", "line_search"])
def test_early_stopping(fit_both, aggregation, engine):
    model = FedMTLSVC(aggregation=aggregation, early_stopping=True, random_state=0)
    if aggregation == "envelope" and engine:
        engine = {}
    model.set_params(n_iter_no_change=3, max_rounds=15, tol=1e-9)
    fit_both(model, *classes(3), **engine)


@pytest.mark.parametrize("aggregation", RULES[1:])
def test_kinks_where_personal_parts_are_free(fit_both, aggregation):
    model = FedMTLSVC(C2=1e12, aggregation=aggregation, max_rounds=10, random_state=0)
    fit_both(model, *classes())


def test_columns_that_come_once_are_set_apart(monkeypatch, fit_both):
    rng = np.random.default_rng(2)
    X = sparse.random_array((60, 2000), density=0.01, format="csr", rng=rng)
    y, clients = rng.integers(0, 2, 60), np.repeat(np.arange(6), 10)
    model = FedMTLSVC(aggregation="sequential", tol=1e-3, random_state=0)
    with_mirror = []
    set_apart = participant._set_lone_apart
    monkeypatch.setattr(
        participant,
        "_set_lone_apart",
        lambda *args: with_mirror.append(set_apart(*args)),
    )
    fit_both(model, X, y, clients)
    assert with_mirror


@pytest.mark.parametrize("features", ["intercept", [0, 2]])
def test_some_columns_personal(fit_both, features):
    model = FedMTLSVC(personal_features=features, max_rounds=10, random_state=0)
    fit_both(model, *classes())


def test_float32(fit_both):
    X, y, clients = classes()
    model = FedMTLSVC(aggregation="sequential", tol=1e-6, random_state=0)
    fit_both(model, X.astype(np.float32), y, clients)


@pytest.mark.parametrize("aggregation", ["sequential", "envelope"])
def test_a_warm_start(monkeypatch, assert_same_fit, aggregation):
    X, y, clients = classes(3)
    model = FedMTLSVC(C2=2.0, aggregation=aggregation, warm_start=True, random_state=0)
    model.fit(X, y, clients).set_params(C2=1.0)
    plain = deepcopy(model).set_params(engine=LocalEngine()).fit(X, y, clients)
    model.set_params(engine=forgetful(monkeypatch)).fit(X, y, clients)
    assert_same_fit(plain, model)


def test_work_kept_though_it_came_too_late(fit_both):
    model = FedMTLSVC(aggregation="safe", max_rounds=10, random_state=0)
    fit_both(model, *classes(), commit="sent", **STRAGGLERS)


@ENGINES
@pytest.mark.parametrize("options", [{}, {"batch_size": 4, "step_size": 0.05}], ids=str)
@pytest.mark.parametrize("rule", [FedIterHT, FedHT, DistributedIHT])
def test_hard_thresholding(fit_both, rule, options, engine):
    model = rule(4, refit=True, max_rounds=15, random_state=0, **options)
    fit_both(model, *numbers(), **engine)


@pytest.mark.parametrize("kind", ["dense", "csr"])
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize("rule", [FedIterHT, FedHT])
def test_control_variates(fit_both, rule, loss, kind):
    model = rule(4, loss=loss, control_variates=True, refit=True, l2=0.01)
    n_classes = 4 if loss == "softmax" else 2
    table = numbers(kind) if loss == "squared" else classes(n_classes, kind)
    fit_both(model.set_params(max_rounds=15, random_state=0), *table)


def test_refit_of_many_places(monkeypatch, fit_both):
    monkeypatch.setattr(newton, "MOST_PLACES", 2)
    model = FedIterHT(4, loss="logistic", refit=True, l2=0.1, max_rounds=10)
    fit_both(model.set_params(random_state=0), *classes())


@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
def test_best_subset(fit_both, loss):
    model = FedBestSubset(4, loss=loss, pool_size=6, l2=0.01, always_select=[1])
    n_classes = 4 if loss == "softmax" else 2
    table = numbers() if loss == "squared" else classes(n_classes)
    fit_both(model, *table)


@ENGINES
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"step_size": 0.05, "mixing_steps": 2},
        {"encoder": "relu", "n_probes": 3},
        {"grouping": "paper", "regroup_every": 2},
        {"transference": "exact", "n_probes": 2, "head_steps": 3},
        {"topology": "none"},
        {"topology": np.full((8, 8), 1 / 8)},
    ],
    ids=["models", "steps", "probes", "paper", "exact", "none", "given"],
)
def test_graphs(fit_both, options, engine):
    model = FedGraphMTL(n_components=3, max_rounds=7, random_state=0, **options)
    fit_both(model, *numbers(), **engine)


@ENGINES
@pytest.mark.parametrize("options", [{}, {"server": "random", "keep_moments": False}])
def test_dictionaries(fit_both, options, engine):
    model = FedDaDiL(2, 24, batch_size=12, max_rounds=6, random_state=0, **options)
    fit_both(model.set_params(target=[3]), *classes(3), **engine)


def test_what_was_kept_elsewhere_is_refused():
    method = MTLSVM("hinge", 1.0, 1.0, 0.0, 1.0, "sequential", 1, 1e-3, 5)
    X = numbers()[0]
    cohort = Cohort(X, np.zeros(80, np.int32), None, np.array([0, 80]), np.arange(2))
    agreement = {"n_classes": 1, "class_weight": None, "classes": np.arange(2)}
    kept = method.dump(cohort, method.join(cohort, agreement))
    for wrong, match in (
        ({**kept, "b": kept["b"][1:]}, r"kept b has shape \(79,\), expected \(80,\)"),
        ({**kept, "b": kept["b"].astype("f4")}, "kept b is float32 of shape"),
        ({**kept, "more": kept["b"]}, "kept has .*'more'.*, expected"),
        ({k: v for k, v in kept.items() if k != "s"}, "kept has .*, expected .*'s'"),
    ):
        with pytest.raises(MessageError, match=match):
            method.restore(cohort, agreement, wrong)
