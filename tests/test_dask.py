"""On the workers of a cluster the bits are those of one process, whoever is killed."""

import os
import signal
import threading
from time import sleep

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone

from fedcore import FedHT, FedIterHT, FedMTLSVC, LocalEngine
from fedcore.datasets import make_iht_simulation, make_mtl_classification
from fedcore.federation import dask as engines
from fedcore.federation.contract import Cohort

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # Sockets and processes of the cluster, some of them killed here.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:(distributed|tornado)"),
]


@pytest.fixture(scope="module")
def cluster():
    """Two workers, each a process, on loopback."""
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        distributed.LocalCluster(**options, host="127.0.0.1") as cluster,
        distributed.Client(cluster, timeout=30) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def tasks():
    return make_mtl_classification(12, 15, 6, random_state=0)[:3]


def same(model, data, engine, local=None):
    there = clone(model).set_params(engine=engine).fit(*data)
    here = clone(model).set_params(engine=local or LocalEngine()).fit(*data)
    assert_array_equal(there.coef_, here.coef_)
    for name in ("n_active", "bytes_up", "bytes_down"):
        assert_array_equal(there.history_[name], here.history_[name])
    return there, here


@pytest.mark.parametrize("aggregation", ["envelope", "line_search", "safe"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_svm_has_the_bits_of_one_process(cluster, tasks, aggregation, form):
    X, y, clients = tasks
    model = FedMTLSVC(aggregation=aggregation, max_rounds=5, random_state=0)
    data = form(X), y, clients
    there, here = same(model, data, engines.DaskEngine(cluster))
    v, w = there.client_coef_, here.client_coef_
    assert_array_equal(*(p.toarray() if sparse.issparse(p) else p for p in (v, w)))


@pytest.mark.parametrize("method", [FedHT, FedIterHT])
def test_hard_thresholding_has_the_bits_of_one_process(cluster, method):
    data = make_iht_simulation(
        1, n_clients=7, n_samples=10, n_features=30, random_state=0
    )
    same(method(5, max_rounds=4, random_state=0), data, engines.DaskEngine(cluster))


def test_early_stopping_scores_on_the_workers(cluster, tasks):
    model = FedMTLSVC(
        aggregation="line_search", max_rounds=5, random_state=0, early_stopping=True
    )
    there, here = same(model, tasks, engines.DaskEngine(cluster))
    assert there.best_validation_score_ == here.best_validation_score_


def test_a_fraction_of_the_clients_is_the_same_one(cluster, tasks):
    model = FedMTLSVC(aggregation="line_search", max_rounds=5, random_state=0)
    engine = engines.DaskEngine(cluster, client_fraction=0.4)
    same(model, tasks, engine, LocalEngine(client_fraction=0.4))


@pytest.mark.parametrize("every", [2, 100])
def test_a_killed_worker_changes_no_bit(cluster, tasks, every):
    """It is killed between two exchanges, or with work on its hands."""
    model = FedMTLSVC(aggregation="line_search", max_rounds=9, random_state=0, tol=0)
    killed = []
    cluster.wait_for_workers(2, timeout=60)

    class Killing(engines.DaskEngine):
        def open(self, *args):
            run = super().open(*args)
            plain, count = run.exchange, iter(range(100))

            def exchange(request, key):
                if next(count) == 5:
                    address = run._sites[1].address
                    pid = cluster.run(os.getpid, workers=[address])[address]
                    killed.append(address)
                    threading.Timer(0.002, os.kill, (pid, signal.SIGKILL)).start()
                return plain(request, key)

            run.exchange = exchange
            return run

    same(model, tasks, Killing(cluster, every=every, timeout=20))
    assert len(killed) == 1 and killed[0] not in cluster.nthreads()


def test_nothing_is_left_on_the_workers(cluster, tasks):
    engine = engines.DaskEngine(cluster)
    FedMTLSVC(aggregation="safe", max_rounds=2, engine=engine).fit(*tasks)
    for _ in range(100):  # the scheduler tells the workers in its own time
        actors = cluster.run(lambda dask_worker: len(dask_worker.state.actors))
        if not any(actors.values()):
            break
        sleep(0.1)
    assert not any(actors.values())


def test_an_engine_is_shared_by_clones(cluster):
    engine = engines.DaskEngine(cluster)
    assert clone(FedMTLSVC(engine=engine)).engine is engine


def test_turns_across_workers_are_refused(cluster, tasks):
    model = FedMTLSVC(aggregation="sequential", engine=engines.DaskEngine(cluster))
    with pytest.raises(ValueError, match="one after another, on one machine"):
        model.fit(*tasks)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"client_fraction": 0.0}, "client_fraction == 0.0"),
        ({"every": 0}, "every == 0"),
        ({"timeout": 0.0}, "timeout == 0.0"),
        ({"retries": -1}, "retries == -1"),
    ],
)
def test_options_are_checked(options, text):
    cohort = Cohort(np.zeros((2, 1)), np.zeros(2), None, np.arange(3))
    with pytest.raises(ValueError, match=text):
        engines.DaskEngine(None, **options).open(None, cohort, 0, 1)
