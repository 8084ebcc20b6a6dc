"""Whole runs on a real SuperLink and three SuperNodes, on this machine."""

import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import fedcore
from fedcore import LocalEngine, demo
from fedcore.federation.record import Record

from .deployment import wait_for

EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_hospitals"
APP = Path(__file__).parent / "app"
RUN = 1200.0  # seconds: a run that takes 100 on an idle machine
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def module_of(path):
    """Import a module of an app, which lives outside any package."""
    spec = importlib.util.spec_from_file_location(f"loopback_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def finish(deployment, run):
    status = deployment.wait_until_finished(run, RUN)
    assert status == "finished:completed", deployment.log("superlink")[-5000:]


def assert_same_bits(local, shared, personal):
    """Compare a fit in one process with what coordinator and sites saved."""
    assert np.array_equal(local.coef_, shared.coef_)
    assert np.array_equal(local.intercept_, shared.intercept_)
    for own in personal:
        place = np.searchsorted(local.clients_, own.clients_)
        assert np.array_equal(local.clients_[place], own.clients_)
        assert np.array_equal(local.coef_, own.coef_)
        assert np.array_equal(local.client_coef_[place], own.client_coef_)
        assert np.array_equal(local.client_intercept_[place], own.client_intercept_)


def test_the_example_is_the_demo_with_hospitals_apart(plain):
    if not EXAMPLE.exists():
        pytest.skip("examples are not beside the tests")
    for hospital in range(3):
        plain.start_supernode(
            f"hospital-{hospital}",
            partition_id=hospital,
            num_partitions=3,
            folder=str(plain.folder / f"hospital-{hospital}"),
        )
    finish(plain, plain.submit(EXAMPLE, split=1, out=str(plain.folder / "server")))

    hospitals = module_of(EXAMPLE / "hospitals.py")
    train, test = (
        [np.concatenate(part) for part in zip(*both, strict=True)]
        for both in zip(*(hospitals.rows(h, 3, 1) for h in range(3)), strict=True)
    )
    server = plain.folder / "server" / "split-1"
    shared = fedcore.load(server / "model.npz")
    record = Record.load(server / "record.json")
    assert all(answered == [0, 1, 2] for answered in record.answered)
    engine = LocalEngine(replay=record)  # sums are added site by site
    local = hospitals.estimator().set_params(engine=engine).fit(*train)
    personal = [
        fedcore.load(plain.folder / f"{name}" / "split-1" / f"{name}.npz")
        for name in (f"hospital-{hospital}" for hospital in range(3))
    ]
    assert_same_bits(local, shared, personal)
    assert shared.dual_gap_ == local.dual_gap_ <= shared.tol

    sys.modules["hospitals"] = hospitals
    told = module_of(EXAMPLE / "score.py").account(plain.folder, 1)
    local = hospitals.estimator().set_params(engine=LocalEngine()).fit(*train)
    fitted = demo.Fitted({None: local}, 0.0).account(demo.MULTI, *test)
    assert told.error == fitted.error and told.rounds == fitted.rounds
    assert np.array_equal(told.by_person, fitted.by_person)


def test_strangers_are_kept_out_and_faults_cost_rounds_alone(secure, node_key):
    names = [f"site-{place}" for place in range(3)]
    keys = {name: node_key(name) for name in [*names, "stranger"]}

    def start(name):
        place = names.index(name) if name in names else 0
        secure.start_supernode(name, key=keys[name], partition_id=place)

    begun = time.monotonic()
    for name in names:
        secure.flwr("supernode", "register", f"{keys[name]}.pub", "loopback")
    # Some 8 s on an idle machine; a full one gets more time.
    deadline = max(25.0, 3 * (time.monotonic() - begun))
    for name in keys:
        start(name)
    folder = secure.folder / "run"
    folder.mkdir()
    run = secure.submit(
        APP,
        folder=str(folder),
        deadline=deadline,
        # The first round has two messages, the start has one.
        late=f"site-1 4 {deadline:g}",
        held="site-2 4 1000",
    )
    wait_for((folder / "site-2-4").exists, "the second round", RUN)
    secure.kill_supernode("site-2")
    finish(secure, run)

    assert secure.has_ended("stranger")
    assert "Failed to activate SuperNode" in secure.log("stranger")
    assert not list(folder.glob("stranger*"))
    shared = fedcore.load(folder / "server" / "model.npz")
    personal = [fedcore.load(folder / f"{name}.npz") for name in names[:2]]
    record = Record.load(folder / "server" / "record.json")
    assert record.sites == names
    answered = record.answered
    assert [0, 1, 2] in answered and [0] in answered and answered[-1] == [0, 1]
    seen = set(zip(shared.faults_["site"], shared.faults_["fault"], strict=True))
    assert {("site-1", "silent"), ("site-1", "late"), ("site-2", "silent")} <= seen

    federation = module_of(APP / "federation.py")
    local = federation.estimator().set_params(engine=LocalEngine(replay=record))
    assert_same_bits(local.fit(*federation.rows()), shared, personal)
