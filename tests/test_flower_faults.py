"""Faults at the sites: named, counted, left out, and the model as if masked."""

import logging
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

pytest.importorskip("flwr")

from fake_grid import FakeGrid
from flwr.app import Context, Error, Message, RecordDict

from fedcore import FedMTLSVC, LocalEngine, load
from fedcore.datasets import make_mtl_classification
from fedcore.federation import site
from fedcore.federation.checkpoint import pack_state, unpack_state
from fedcore.federation.contract import TooFewClients
from fedcore.federation.flower import _bytes, _record, client_app, server_app

# Eight rounds are too few for the gap; that the coordinator warns is tested elsewhere.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X, Y, CLIENTS = make_mtl_classification(
    n_clients=4, n_samples=20, n_features=5, random_state=0
)
SITES = [0, 1, 2, 3]


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Leave out what costs most and is not tested here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)
        # The coordinator, which is in the same process, limits BLAS already.
        patch.setattr(site, "threadpool_limits", lambda *a, **k: nullcontext())
        yield


def estimator(**changes):
    options = {"C2": 4.0, "random_state": 0, "max_rounds": 8} | changes
    return FedMTLSVC(**options)


def node(place, folder, model=None, name=None):
    mine = CLIENTS == place
    model = estimator() if model is None else model
    app = client_app(model, lambda c: (X[mine], Y[mine]), state_dir=folder)
    return app, {"name": f"s{place}" if name is None else name}


def nodes(folder, model=None):
    return {100 + place: node(place, folder, model) for place in SITES}


def serve(grid, model=None, **options):
    options = {"sites": 4, "deadline": 0.2, "patience": 0.3} | options
    app = server_app(estimator() if model is None else model, **options)
    app(grid, Context(1, 0, {}, RecordDict(), {}))
    return app.fitted


def repeat(fitted, model=None, rows=slice(None)):
    model = estimator() if model is None else model
    model.set_params(engine=LocalEngine(replay=fitted.record_))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X[rows], Y[rows], CLIENTS[rows])


def assert_same(fitted, folder, rows=slice(None), model=None):
    """Compare with the masked run, personal parts and all, bit by bit."""
    local = repeat(fitted, model, rows)
    assert_array_equal(fitted.coef_, local.coef_)
    assert_array_equal(fitted.intercept_, local.intercept_)
    for place, clients in enumerate(fitted.record_.clients):
        path = folder / f"{fitted.record_.sites[place]}.npz"
        if not path.exists():
            continue
        own = load(path)
        assert own.clients_.tolist() == clients
        assert_array_equal(own.client_coef_[0], local.client_coef_[place])
        assert_array_equal(own.client_intercept_[0], local.client_intercept_[place])


def spoil(change):
    """Turn a change of the answer's content into one of the Flower message."""

    def spoiled(message, answer):
        content = unpack_state(_bytes(answer().content))
        return [Message(_record(change(content)), reply_to=message)]

    return spoiled


def changed_sum(change):
    def spoiled(content):
        reply = content.get("reply", {})
        for name in reply.keys() - {"figures", "gaps"}:
            reply[name] = change(reply[name])
        return pack_state(content)

    return spoil(spoiled)


def infected(value):
    def change(rows):
        rows = rows.copy()
        rows[0, 0] = value
        return rows

    return changed_sum(change)


def version_2(message, answer):
    data = bytearray(_bytes(answer().content))
    data[6] = 2
    return [Message(_record(bytes(data)), reply_to=message)]


def killed(message, answer):
    return [Message(Error(5, "Node Unavailable"), reply_to=message)]


def crashed(message, answer):
    answer()  # its work is done, and lost
    return [Message(Error(8, "ClientApp stopped responding"), reply_to=message)]


def silent(message, answer):
    answer()
    return []


def twice(message, answer):
    return [answer(), answer()]


def other_run(content):
    return pack_state(content | {"run": "another"})


# fault: what is done to one answer of s2, what the log says of it, rounds lost
FAULTS = {
    "killed": (killed, "failed: Node Unavailable (Flower's code 5)", 1),
    "crashed": (crashed, "failed: ClientApp stopped responding (Flower's code 8)", 1),
    "silent": (silent, "silent: no answer within", 1),
    "twice": (twice, "twice: message 4: the first counts", 0),
    "shape": (changed_sum(lambda a: a[1:]), "float64 of shape (5, 1), expected", 1),
    "nan": (infected(np.nan), "has 1 values that are not finite, expected none", 1),
    "infinity": (infected(np.inf), "has 1 values that are not finite", 1),
    "norm": (changed_sum(lambda a: 1e9 * a), "more than 1000 times", 1),
    "name": (
        spoil(lambda c: pack_state(c | {"site": "s1"})),
        "refused: it bears the name of site s1, expected s2",
        1,
    ),
    "version": (version_2, "refused: message has version 2, expected 1", 1),
    "run": (spoil(other_run), "refused: it belongs to another run", 1),
    "no_message": (lambda m, a: [Message(_record(b"x"), reply_to=m)], "has 1 bytes", 1),
}
AT = 4  # the push that is hit: a greeting and two rounds go before


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named_and_costs_its_round(fault, tmp_path, caplog):
    hit, sentence, lost = FAULTS[fault]
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        if push == AT and node == 102:
            return hit(message, answer)
        return [answer()]

    grid.tamper = tamper
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(grid)
    assert "site s2 " in caplog.text
    assert sentence in caplog.text
    missed = [2 not in answered for answered in fitted.record_.answered]
    assert sum(missed) == lost
    history = fitted.history_
    refused = fitted.faults_["fault"].tolist() == ["refused"]
    assert history["n_refused"].sum() == (lost if refused else 0)
    assert history["n_dropped"].sum() == (0 if refused else lost)
    assert_same(fitted, tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_table_of_the_docs_says_what_the_log_says(fault):
    _, sentence, lost = FAULTS[fault]
    table = Path(__file__).parents[1].joinpath("docs", "faults.md").read_text("utf-8")
    rows = [row.split(" | ") for row in table.splitlines() if f"| `{fault}` |" in row]
    assert [row[2:4] for row in rows] == [[sentence, str(lost)]]


def tells_something(schedule):
    """Leave a sane answer in each push, and two beside an absurd norm for its rule."""
    for push in {push for push, _ in schedule}:
        faults = [fault for (p, _), fault in schedule.items() if p == push]
        n_sane = len(SITES) - sum(fault != "twice" for fault in faults)
        if n_sane < (2 if "norm" in faults else 1) or faults.count("norm") > 1:
            return False
    return True


@settings(max_examples=8, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.integers(2, 9), st.sampled_from([100, 101, 102, 103])),
        st.sampled_from(sorted(FAULTS.keys() - {"silent"})),
        max_size=8,
    ).filter(tells_something),
    st.sampled_from(["auto", "line_search", "safe", "sum"]),
)
def test_any_schedule_of_faults_is_repeated_bit_by_bit(schedule, aggregation):
    model = estimator(aggregation=aggregation, max_rounds=6)
    with TemporaryDirectory() as folder:
        grid = FakeGrid(nodes(folder, model), seed=len(schedule))

        def tamper(node, push, message, answer):
            fault = schedule.get((push, node))
            return [answer()] if fault is None else FAULTS[fault][0](message, answer)

        grid.tamper = tamper
        fitted = serve(grid, model)
        assert_same(fitted, Path(folder), model=clone(model))


def test_a_late_answer_is_dropped_and_counted(tmp_path, caplog):
    grid = FakeGrid(nodes(tmp_path))
    late = []

    def tamper(node, push, message, answer):
        if push == AT and node == 102:
            late.append((message.metadata.message_id, answer()))
            return []
        if push > AT and late:
            name, reply = late.pop()
            grid.waiting[name] = [reply]
        return [answer()]

    grid.tamper = tamper
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(grid)
    assert fitted.faults_["fault"].tolist() == ["silent", "late"]
    assert "its answer to message 4 came after message 5 was sent" in caplog.text
    assert fitted.history_["n_late"].sum() == 1
    assert_same(fitted, tmp_path)


def test_a_dead_site_is_left_out_to_the_end(tmp_path):
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        if push == AT and node == 102:
            del grid.apps[102]
            return killed(message, answer)
        return [answer()]

    grid.tamper = tamper
    fitted = serve(grid)
    assert all(2 not in answered for answered in fitted.record_.answered[2:])
    assert_same(fitted, tmp_path)


def test_a_site_that_was_started_again_goes_on(tmp_path):
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        if push == AT and node == 102:
            del grid.apps[102]
            grid.apps[777] = globals()["node"](2, tmp_path)
            return killed(message, answer)
        return [answer()]

    grid.tamper = tamper
    fitted = serve(grid)
    assert 2 in fitted.record_.answered[-1]
    assert_same(fitted, tmp_path)


def test_a_site_without_its_state_is_frozen(tmp_path, caplog):
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        if push == AT and node == 102:
            (tmp_path / "s2.site").unlink()
        return [answer()]

    grid.tamper = tamper
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(grid)
    assert "site s2 frozen: it has lost its state" in caplog.text
    assert all(2 not in answered for answered in fitted.record_.answered[2:])
    assert_same(fitted, tmp_path)


def test_a_site_that_disagrees_is_refused_by_name(tmp_path, caplog):
    apps = nodes(tmp_path)
    apps[102] = node(2, tmp_path, estimator(C1=2.0))
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(FakeGrid(apps))
    assert "site s2 refused: C1 is 2.0, here 1.0" in caplog.text
    assert fitted.record_.sites == ["s0", "s1", "s3"]
    assert_same(fitted, tmp_path, rows=CLIENTS != 2)


def test_a_site_with_other_columns_is_refused(tmp_path, caplog):
    apps = nodes(tmp_path)
    mine = CLIENTS == 0
    app = client_app(estimator(), lambda c: (X[mine, :3], Y[mine]), state_dir=tmp_path)
    apps[100] = app, {"name": "s0"}
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(FakeGrid(apps))
    assert "site s0 refused: its rows have n_features=3" in caplog.text
    assert fitted.record_.sites == ["s1", "s2", "s3"]


def test_a_second_site_of_one_name_is_refused(tmp_path, caplog):
    apps = nodes(tmp_path)
    apps[102] = node(2, tmp_path, name="s1")
    with caplog.at_level(logging.WARNING, "fedcore"):
        fitted = serve(FakeGrid(apps))
    assert "another site has the name s1 already" in caplog.text
    assert fitted.record_.sites == ["s0", "s1", "s3"]


def test_too_few_clients_stop_the_run_which_can_go_on(tmp_path):
    grid = FakeGrid(nodes(tmp_path))
    path = tmp_path / "run.ckpt"

    def tamper(node, push, message, answer):
        if push == AT and node in (101, 102):
            return killed(message, answer)
        return [answer()]

    grid.tamper = tamper
    options = {"min_clients": 3, "checkpoint": path, "every": 100}
    with pytest.raises(TooFewClients, match="2 clients answered in round"):
        serve(grid, **options)
    assert path.exists()
    grid.tamper = None
    fitted = serve(grid, resume=True, **options)
    whole = serve(FakeGrid(nodes(tmp_path / "whole")))
    assert_array_equal(fitted.coef_, whole.coef_)


@pytest.mark.parametrize("at", [3, 4, 5, 6])
def test_a_server_that_died_goes_on_with_the_same_bits(at, tmp_path):
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        if push == at and node == 102:
            raise KeyboardInterrupt
        return [answer()]

    grid.tamper = tamper
    options = {"checkpoint": tmp_path / "run.ckpt", "every": 2}
    with pytest.raises(KeyboardInterrupt):
        serve(grid, **options)
    grid.tamper = None
    fitted = serve(grid, resume=True, **options)
    whole = serve(FakeGrid(nodes(tmp_path / "whole")))
    assert_array_equal(fitted.coef_, whole.coef_)
    assert_same(fitted, tmp_path)


def test_who_left_a_message_unanswered_is_not_waited_for_again(tmp_path):
    grid = FakeGrid(nodes(tmp_path))

    def tamper(node, push, message, answer):
        return [] if node == 102 and push >= AT else [answer()]

    grid.tamper = tamper
    begun = time.monotonic()
    fitted = serve(grid, deadline=0.05, patience=2.0)
    waits = [
        reason for reason in fitted.faults_["reason"] if "no answer within" in reason
    ]
    assert waits.count("no answer within 2 s") <= 1
    assert waits.count("no answer within 0.05 s") >= len(waits) - 1 > 1
    assert time.monotonic() - begun < 6
    assert_same(fitted, tmp_path)
