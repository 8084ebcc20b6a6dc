"""Searches and scalers that are taken apart and go on have the same bits."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline

from fedcore import (
    FedBestSubset,
    FederatedSearchCV,
    FedIterHT,
    FedMTLSVC,
    FedStandardScaler,
    LocalEngine,
)
from fedcore.federation.checkpoint import pack_state, unpack_state
from fedcore.federation.local import LocalRun
from fedcore.federation.run import run

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def around(state):
    return unpack_state(pack_state(state))


@dataclass(frozen=True)
class Forgetful:
    """A method whose state is bytes between exchanges, and never changed in place."""

    method: object

    def __getattr__(self, name):
        return getattr(self.method, name)

    def start(self, hellos, key):
        return map(around, self.method.start(hellos, key))

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
        kept = around(self._algorithm.dump(self._cohort, self._state))
        self._state = self._algorithm.restore(self._cohort, self.agreement, kept)
        return answer


class ForgetfulEngine(LocalEngine):
    def open(self, algorithm, cohort, seed, n_jobs):
        link = super().open(algorithm, cohort, seed, n_jobs)
        link.__class__ = ForgetfulRun
        return link


@pytest.fixture
def forgetful(monkeypatch):
    def forgetful_run(algorithm, *args, **options):
        return run(Forgetful(algorithm), *args, **options)

    for name in (
        "mtl_svm.base",
        "preprocessing.estimator",
        "model_selection.estimator",
    ):
        monkeypatch.setattr(f"fedcore.{name}.run", forgetful_run)
    return ForgetfulEngine()


def rows():
    rng = np.random.default_rng(0)
    clients = np.sort(rng.integers(4, size=90))
    X = rng.normal(size=(90, 5)) + clients[:, None]
    return X, (X[:, 0] > clients).astype(int), clients


SEARCHES = [
    (FedMTLSVC(random_state=0), {"C1": [0.1, 1.0], "C2": [1.0, 4.0]}),
    (FedMTLSVC(aggregation="safe", max_rounds=9, random_state=0), {"C1": [0.1, 1.0]}),
    (FedIterHT(loss="logistic", max_rounds=5, batch_size=4), {"step_size": [0.1, 1.0]}),
    (FedBestSubset(loss="softmax"), {"n_nonzero_coefs": [2, 4]}),
    *(
        (
            make_pipeline(
                FedStandardScaler(scope), FedMTLSVC(random_state=0, tol=1e-2)
            ),
            {"fedmtlsvc__C1": [0.1, 1.0]},
        )
        for scope in ("federation", "client")
    ),
]


def search_of(model, grid, engine=None, **options):
    last = model[-1] if hasattr(model, "steps") else model
    last.set_params(random_state=0)
    return FederatedSearchCV(
        model, grid, cv=2, engine=engine, random_state=1, **options
    )


def assert_same_search(one, other):
    assert_array_equal(one.client_scores_, other.client_scores_)
    assert one.best_index_ == other.best_index_
    for name in one.history_.keys() - {"time"}:
        assert_array_equal(one.history_[name], other.history_[name], err_msg=name)
    best = [s.best_estimator_ for s in (one, other)]
    last = [b[-1] if hasattr(b, "steps") else b for b in best]
    assert_array_equal(last[0].coef_, last[1].coef_)


@pytest.mark.parametrize(("model", "grid"), SEARCHES)
def test_interruptions_after_every_exchange_of_a_search(model, grid, forgetful):
    plain = search_of(model, grid, LocalEngine()).fit(*rows())
    assert_same_search(plain, search_of(model, grid, forgetful).fit(*rows()))


@pytest.mark.parametrize("scope", ["federation", "client"])
def test_interruptions_after_every_exchange_of_a_scaler(scope, forgetful):
    X, _, clients = rows()
    options = {"handle_unknown": "shared"}
    plain = FedStandardScaler(scope, **options).fit(X, clients=clients)
    other = FedStandardScaler(scope, engine=forgetful, **options)
    other.fit(X, clients=clients)
    assert_array_equal(plain.mean_, other.mean_)
    assert_array_equal(plain.scale_, other.scale_)
    if scope == "client":
        assert_array_equal(plain.client_scale_, other.client_scale_)


class StoppedRun(LocalRun):
    left = 0

    def exchange(self, request, key):
        StoppedRun.left -= 1
        if StoppedRun.left < 0:
            raise KeyboardInterrupt
        return super().exchange(request, key)


class StoppedEngine(LocalEngine):
    def open(self, algorithm, cohort, seed, n_jobs):
        link = super().open(algorithm, cohort, seed, n_jobs)
        link.__class__ = StoppedRun
        return link


@pytest.mark.parametrize("n_exchanges", [1, 7, 12, 30])
@pytest.mark.parametrize("place", [0, 4])
def test_a_search_goes_on_from_its_checkpoint(place, n_exchanges, tmp_path):
    model, grid = SEARCHES[place]
    plain = search_of(model, grid, LocalEngine()).fit(*rows())
    path = tmp_path / "search"
    engine = StoppedEngine(checkpoint=path, every=1)
    StoppedRun.left = n_exchanges
    with pytest.raises(KeyboardInterrupt):
        search_of(model, grid, engine).fit(*rows())
    assert path.exists()
    engine = LocalEngine(checkpoint=path, every=1, resume=True)
    search = search_of(model, grid, engine).fit(*rows())
    assert_same_search(plain, search)
    # And once more from the end, which the last fit has not written over.
    assert_same_search(plain, search.fit(*rows()))
