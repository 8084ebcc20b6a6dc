"""A run that is saved goes on where it was, or says in a sentence why it cannot."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse, stats
from sklearn.model_selection import GridSearchCV, KFold

from fedcore import (
    DistributedIHT,
    FedBestSubset,
    FedGraphMTL,
    FedHT,
    FedIterHT,
    FedMTLSVC,
    FedMTLSVR,
    LocalEngine,
    Timing,
)
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.federation.checkpoint_file import CheckpointError, CheckpointFile
from fedcore.federation.local import LocalRun

pytestmark = pytest.mark.filterwarnings("ignore")

LATE = Timing(stats.gamma(2, scale=0.5), wait=4e-6, dropout=0.1, trace=True)
SIZES = {"n_clients": 6, "n_samples": 15, "n_features": 8, "random_state": 0}
SVM = {"tol": 1e-9, "random_state": 0}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.ckpt"


@pytest.fixture(scope="module")
def classes():
    return make_mtl_classification(**SIZES)


@pytest.fixture(scope="module")
def numbers():
    return make_mtl_regression(**SIZES)


def svm(rounds=10, **options):
    return FedMTLSVC(**{**SVM, "max_rounds": rounds, **options})


def saved(path, **options):
    return LocalEngine(checkpoint=path, resume=True, **options)


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize(
    "engine",
    [{}, {"timing": LATE}, {"client_fraction": 0.5}],
    ids=["all", "late", "half"],
)
@pytest.mark.parametrize(
    "model",
    [
        svm(aggregation="sequential"),
        svm(aggregation="auto"),
        svm(aggregation="line_search", early_stopping=True),
        FedMTLSVR(**SVM, aggregation="safe"),
        FedIterHT(3, tol=0, control_variates=True, random_state=0),
        FedHT(3, tol=0, step_size=0.05, batch_size=4, random_state=0),
        DistributedIHT(3, tol=0, random_state=0),
        FedGraphMTL(n_components=3, tol=0, regroup_every=4, random_state=0),
        FedBestSubset(3, loss="logistic", l2=0.01, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'aggregation', '')}",
)
def test_ten_rounds_are_five_and_five(
    model, engine, every, path, classes, numbers, assert_same_fit
):
    is_classifier = model.__sklearn_tags__().estimator_type == "classifier"
    table = classes if is_classifier else numbers

    def fit(rounds, engine):
        other = type(model)(**model.get_params(deep=False))
        return other.set_params(max_rounds=rounds, engine=engine).fit(*table)

    whole = fit(10, LocalEngine(**engine))
    fit(5, saved(path, every=every, **engine))
    rest = fit(10, saved(path, every=every, **engine))
    assert_same_fit(whole, rest)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_threads_do_not_matter(path, classes, n_jobs, assert_same_fit):
    whole = svm().fit(*classes)
    svm(5, engine=saved(path), n_jobs=n_jobs).fit(*classes)
    rest = svm(engine=saved(path), n_jobs=4 - n_jobs, verbose=1)
    assert_same_fit(whole, rest.fit(*classes))


def count_exchanges(monkeypatch):
    """Return a list that gets an entry an exchange."""
    seen, exchange = [], LocalRun.exchange

    def counted(self, request, key):
        seen.append(key)
        return exchange(self, request, key)

    monkeypatch.setattr(LocalRun, "exchange", counted)
    return seen


def test_a_run_that_has_ended_is_not_run_again(
    path, classes, monkeypatch, assert_same_fit
):
    first = svm(engine=saved(path)).fit(*classes)
    seen = count_exchanges(monkeypatch)
    assert_same_fit(first, svm(engine=saved(path)).fit(*classes))
    assert not seen


def test_every_says_how_many_rounds_may_be_lost(path, classes, monkeypatch):
    class Stop(Exception):
        pass

    offer, rounds = CheckpointFile.offer, []

    def watched(self, progress, extra, **options):
        if offer(self, progress, extra, **options):
            rounds.append(progress.state["round"])
        if progress.state["round"] == 9:
            raise Stop
        return True

    monkeypatch.setattr(CheckpointFile, "offer", watched)
    engine = LocalEngine(checkpoint=path, every=3)
    with pytest.raises(Stop):
        svm(aggregation="line_search", engine=engine).fit(*classes)
    assert rounds == [4, 7]
    assert os.listdir(path.parent) == [path.name]


def test_without_resume_it_is_overwritten(path, classes, numbers):
    FedMTLSVR(**SVM, max_rounds=3, engine=saved(path)).fit(*numbers)
    model = svm(engine=LocalEngine(checkpoint=path)).fit(*classes)
    assert_array_equal(model.coef_, svm().fit(*classes).coef_)


def test_a_seed_that_nobody_gave_is_that_of_the_checkpoint(path, classes):
    first = svm(5, random_state=None, engine=saved(path)).fit(*classes)
    again = svm(5, random_state=None, engine=saved(path)).fit(*classes)
    assert_array_equal(first.coef_, again.coef_)
    with pytest.raises(CheckpointError, match="the seed from random_state was"):
        svm(5, random_state=1, engine=saved(path)).fit(*classes)


def test_fewer_rounds_than_were_run_are_refused(path, classes):
    svm(8, engine=saved(path)).fit(*classes)
    with pytest.raises(CheckpointError, match=r"come to round 8 under max_rounds=8"):
        svm(5, engine=saved(path)).fit(*classes)


def other_rows(X, y, clients):
    X = X.copy()
    X[3, 2] += 1e-12
    return X, y, clients


def other_labels(X, y, clients):
    return X, np.roll(y, 1), clients


def other_clients(X, y, clients):
    return X, y, clients[::-1] // 2


def other_form(X, y, clients):
    return sparse.csr_array(X), y, clients


@pytest.mark.parametrize(
    "change, match",
    [
        ({"C1": 2.0}, "C1 was 1.0, is 2.0$"),
        ({"tol": 1e-3}, "tol was 1e-09, is 0.001"),
        ({"loss": "squared_hinge"}, "loss was 'hinge', is 'squared_hinge'$"),
        ({"class_weight": {1: 2.0}}, r"class_weight was None, is \(\(1, 2.0\),\)"),
        ({"client_fraction": 0.5}, "client_fraction was 1.0, is 0.5"),
        ({"timing": LATE}, "timing was None, is "),
        (other_rows, "data was [0-9a-f]{32}, is [0-9a-f]{32}$"),
        (other_labels, "data was"),
        (other_clients, "clients was 6, is 3; data was"),
        (other_form, "data was"),
    ],
)
def test_another_run_is_refused_and_told_apart(path, classes, change, match):
    svm(4, aggregation="sequential", engine=saved(path)).fit(*classes)
    before = path.read_bytes()
    model, table = svm(4, aggregation="sequential"), classes
    engine = {}
    if callable(change):
        table = change(*classes)
    elif change.keys() <= {"timing", "client_fraction"}:
        engine = change
    else:
        model.set_params(**change)
    model.set_params(engine=saved(path, **engine))
    with pytest.raises(CheckpointError, match=f"of another run: .*{match}"):
        model.fit(*table)
    assert path.read_bytes() == before
    assert not hasattr(model, "coef_")
    model.set_params(engine=LocalEngine(checkpoint=path, **engine)).fit(*table)


def test_a_broken_file_is_refused_in_a_sentence(path, classes):
    svm(3, engine=saved(path)).fit(*classes)
    good = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in [0, 7, 8, 39, 40, len(good) - 1, *rng.integers(0, len(good), 30)]:
        bad = bytearray(good)
        bad[place] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        with pytest.raises(CheckpointError, match="checkpoint"):
            svm(3, engine=saved(path)).fit(*classes)
    for length in [0, 7, 20, 40, 1000, len(good) - 1]:
        path.write_bytes(good[:length])
        with pytest.raises(CheckpointError, match="checkpoint"):
            svm(3, engine=saved(path)).fit(*classes)
    path.write_bytes(good + b"\0")
    with pytest.raises(CheckpointError, match="is damaged"):
        svm(3, engine=saved(path)).fit(*classes)
    path.write_bytes(good)
    svm(3, engine=saved(path)).fit(*classes)


def test_two_fits_do_not_share_a_file(path, classes):
    first = CheckpointFile(path, every=1, told={}, seed=0)
    with pytest.raises(CheckpointError, match="in use by another fit"):
        svm(engine=saved(path)).fit(*classes)
    first.close()
    svm(engine=saved(path)).fit(*classes)


def test_a_folder_holds_the_runs_of_a_grid(tmp_path, classes, monkeypatch):
    X, y, clients = classes
    table = np.column_stack([X, clients]), y
    grid, rows = {"C2": [0.5, 1.0, 2.0]}, KFold(2, shuffle=True, random_state=0)

    def search(**engine):
        model = svm(5, client_column=8, engine=LocalEngine(**engine))
        return GridSearchCV(model, grid, cv=rows, error_score="raise").fit(*table)

    plain = search()
    first = search(checkpoint=tmp_path, resume=True)
    assert len(os.listdir(tmp_path)) == 7
    seen = count_exchanges(monkeypatch)
    again = search(checkpoint=tmp_path, resume=True)
    assert not seen
    for name in ("mean_test_score", "rank_test_score"):
        assert_array_equal(plain.cv_results_[name], first.cv_results_[name])
        assert_array_equal(plain.cv_results_[name], again.cv_results_[name])


def test_a_write_that_fails_leaves_the_last_one_whole(path, classes, monkeypatch):
    svm(4, engine=saved(path)).fit(*classes)
    before = path.read_bytes()

    def full(file):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        svm(9, engine=saved(path)).fit(*classes)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    "options, match",
    [
        ({"checkpoint": 3}, "checkpoint is 3, expected None or a path"),
        ({"resume": True}, "resume is True, checkpoint is None: expected a path"),
        ({"checkpoint": "x", "resume": 1}, "resume is 1, expected True or False"),
        ({"checkpoint": "x", "every": 0}, "every == 0, must be >= 1"),
        ({"checkpoint": "/no/such/folder/x"}, "/no/such/folder"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    options, match, classes, monkeypatch
):
    seen = count_exchanges(monkeypatch)
    with pytest.raises((ValueError, OSError), match=match):
        svm(engine=LocalEngine(**options)).fit(*classes)
    assert not seen


def test_labels_of_objects_are_saved(path, classes, assert_same_fit):
    X, y, clients = classes
    names = np.array([("ward", 1), "b", 3, "d", 5, 6], object)
    table = X, np.where(y > 0, "yes", "no").astype(object), list(names[clients])
    whole = svm().fit(*table)
    svm(5, engine=saved(path)).fit(*table)
    assert_same_fit(whole, svm(engine=saved(path)).fit(*table))


KILL = Path(__file__).parents[1] / "bench" / "experiments" / "kill_resume.py"


@pytest.mark.skipif(not KILL.exists(), reason="bench is not beside the tests")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_kill_at_any_moment_and_resume():
    cycles = os.environ.get("FEDCORE_KILLS", "8")
    command = [sys.executable, KILL, "--cycles", cycles]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert f"{cycles} of {cycles} final models are identical" in done.stdout, done


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_local_solve_of_many_seconds_is_broken_off(n_jobs):
    class Alarm(BaseException):
        pass

    rang = []

    def ring(*_):
        rang.append(time.process_time())
        raise Alarm

    table = make_mtl_classification(2, 20000, 300, flip_y=0.1, random_state=0)
    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(Alarm):
            svm(aggregation="envelope", n_jobs=n_jobs).fit(*table)
        # Of the processor: others may use the machine too.
        assert time.process_time() - rang[0] < 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


SLOW_FIT = """
import sys
from fedcore import FedMTLSVC, LocalEngine
from fedcore.datasets import make_mtl_classification
table = make_mtl_classification(30, 300, 100, random_state=0)
engine = LocalEngine(checkpoint=sys.argv[1], every=1)
print("begun", flush=True)
FedMTLSVC(tol=0, max_rounds=10**6, engine=engine, n_jobs=int(sys.argv[2]),
          aggregation="sequential", random_state=0).fit(*table)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT")
@pytest.mark.parametrize("n_jobs", ["1", "2"])
def test_an_interrupt_ends_a_fit_at_once(path, n_jobs):
    command = [sys.executable, "-c", SLOW_FIT, path, n_jobs]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as child:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=60)
        took = time.monotonic() - begun
    assert "KeyboardInterrupt" in errors
    assert took < 10  # a second, on a machine that others use too
    assert os.listdir(path.parent) == [path.name]
    kept = CheckpointFile(path, every=1, told={}, seed=None)
    with pytest.raises(CheckpointError, match="of another run"):
        kept.load()
    kept.close()
