"""The floor carries methods it never heard of: each one here is whole in its class."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedcore import LocalEngine
from fedcore.federation.contract import (
    Choose,
    Chosen,
    Cohort,
    Each,
    Entries,
    Refused,
    Request,
    Sum,
)
from fedcore.federation.message import MessageError
from fedcore.federation.run import run


@dataclass(frozen=True)
class Toy:
    """What the toy methods share: one round, in which everybody is asked once."""

    everyone: bool = True

    def start(self, hellos, key):
        return {"round": 1, "done": False, "d": hellos[0]["n_features"]}, {}

    def hello(self, cohort):
        return {"n_rows": np.diff(cohort.offsets), "n_features": cohort.X.shape[1]}

    def join(self, cohort, agreement):
        return {"visits": np.zeros(cohort.n_clients)}

    def combine(self, state, reply, who, key):
        return {**state, "reply": reply, "who": who, "done": True}

    def close(self, state):
        return Request(all={}, reply={})

    def report(self, state):
        return {}

    def personal(self, cohort, cs, message):
        return {"visits": cs["visits"]}


class FederatedMean(Toy):
    """The mean of all rows, by `Sum`."""

    def broadcast(self, state, key):
        reply = {"total": Sum((state["d"],)), "count": Sum(())}
        return Request(all={}, reply=reply, everyone=self.everyone)

    def update(self, cohort, cs, message, active, key):
        cs["visits"][active] += 1
        total, count = np.zeros(cohort.X.shape[1]), 0.0
        for k in active:
            rows = cohort.X[cohort.offsets[k] : cohort.offsets[k + 1]]
            total += rows.sum(axis=0)
            count += len(rows)
        return {"total": total, "count": count}

    def combine(self, state, reply, who, key):
        state = super().combine(state, reply, who, key)
        return state | {"mean": reply["total"] / reply["count"]}


class FederatedArgmin(Toy):
    """The row nearest to a point, and its client, by `Choose`."""

    def broadcast(self, state, key):
        reply = {"row": Choose((state["d"],))}
        return Request(all={"point": np.zeros(state["d"])}, reply=reply, everyone=True)

    def update(self, cohort, cs, message, active, key):
        best = []
        for k in active:
            rows = cohort.X[cohort.offsets[k] : cohort.offsets[k + 1]]
            if len(rows):
                distance = ((rows - message["point"]) ** 2).sum(axis=1)
                nearest = distance.argmin()
                best.append((distance[nearest], cohort.first + k, rows[nearest]))
        distance, client, row = min(best, key=lambda b: b[:2])
        return {"row": Chosen(float(distance), int(client), row)}


class EachTheirOwn(Toy):
    """A client's own row of a table goes down, twice that comes up, by `Each`."""

    def broadcast(self, state, key):
        table, index = np.arange(6.0).reshape(3, 2), np.arange(100) % 3
        each = {"own": np.arange(100.0), "shared": (table, index)}
        reply = {"own": Each(()), "shared": Each((2,))}
        return Request(all={}, each=each, reply=reply, everyone=True)

    def update(self, cohort, cs, message, active, key):
        return {"own": 2 * message["own"], "shared": 2 * message["shared"]}


class SparseMean(FederatedMean):
    """The sum of the rows, sent column by column where it is not zero."""

    def broadcast(self, state, key):
        return Request(all={}, reply={"total": Sum((state["d"],), sparse=True)})

    def update(self, cohort, cs, message, active, key):
        total, counts = np.zeros(cohort.X.shape[1]), []
        for k in active:
            rows = cohort.X[cohort.offsets[k] : cohort.offsets[k + 1]].sum(axis=0)
            total += rows
            counts.append(np.count_nonzero(rows))
        index = np.flatnonzero(total).astype(np.int32)
        return {"total": Entries(index, total[index], np.array(counts))}

    combine = Toy.combine


@pytest.fixture
def cohort():
    rng = np.random.default_rng(0)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 9, 100))])
    X = rng.normal(size=(offsets[-1], 5)) * 10.0 ** rng.integers(
        -8, 8, (offsets[-1], 1)
    )
    return Cohort(X, np.zeros(len(X)), None, offsets)


def test_federated_mean_by_sum(cohort):
    outcome = run(FederatedMean(), LocalEngine(), cohort, seed=0)
    assert_allclose(outcome.state["mean"], cohort.X.mean(axis=0), rtol=1e-12)
    assert_array_equal(outcome.personal["visits"], np.ones(100))


def test_federated_argmin_by_choose(cohort):
    outcome = run(FederatedArgmin(), LocalEngine(), cohort, seed=0)
    nearest = (cohort.X**2).sum(axis=1).argmin()
    chosen = outcome.state["reply"]["row"]
    assert_array_equal(chosen.value, cohort.X[nearest])
    assert cohort.offsets[chosen.client] <= nearest < cohort.offsets[chosen.client + 1]


def test_equal_keys_choose_the_first_client():
    rows = np.ones((4, 2))
    cohort = Cohort(rows, np.zeros(4), None, np.arange(5))
    outcome = run(FederatedArgmin(), LocalEngine(), cohort, seed=0, n_jobs=2)
    assert outcome.state["reply"]["row"].client == 0


def test_each_client_gets_and_gives_its_own_row(cohort):
    reply = run(EachTheirOwn(), LocalEngine(), cohort, seed=0).state["reply"]
    assert_array_equal(reply["own"], 2 * np.arange(100.0))
    table = 2 * np.arange(6.0).reshape(3, 2)
    assert_array_equal(reply["shared"], table[np.arange(100) % 3])


def test_a_sparse_sum_is_added_where_it_says(cohort):
    X = cohort.X.copy()
    X[:, [1, 3]] = 0
    thin = Cohort(X, cohort.y, None, cohort.offsets)
    dense = run(FederatedMean(), LocalEngine(), thin, seed=0)
    outcome = run(SparseMean(), LocalEngine(), thin, seed=0)
    assert_array_equal(outcome.state["reply"]["total"], dense.state["reply"]["total"])
    # Three columns of five: 8 bytes a value and 4 an index instead of 8 a value.
    assert outcome.history["bytes_up"][0] > 0


@pytest.mark.parametrize("method", [FederatedMean, FederatedArgmin, EachTheirOwn])
def test_bits_do_not_depend_on_threads(cohort, method):
    replies = [
        run(method(), LocalEngine(), cohort, seed=0, n_jobs=n).state["reply"]
        for n in (1, 2, 5)
    ]
    for reply in replies[1:]:
        for name, value in reply.items():
            if isinstance(value, Chosen):
                value, first = value.value, replies[0][name].value
            else:
                first = replies[0][name]
            assert_array_equal(value, first)


def test_a_fraction_of_the_clients_is_drawn_anew_by_each_seed(cohort):
    engine = LocalEngine(client_fraction=0.3)
    asked = [
        run(FederatedMean(everyone=False), engine, cohort, seed=seed).state["who"]
        for seed in (0, 0, 1)
    ]
    assert [who.sum() for who in asked] == [30, 30, 30]
    assert_array_equal(asked[0], asked[1])
    assert (asked[0] != asked[2]).any()


def test_a_round_for_everyone_is_not_sampled(cohort):
    engine = LocalEngine(client_fraction=0.3)
    outcome = run(FederatedMean(), engine, cohort, seed=0)
    assert outcome.state["who"].all()


def test_bytes_are_those_of_the_packed_messages(cohort):
    from fedcore.federation.message import pack

    history = run(FederatedMean(), LocalEngine(), cohort, seed=0).history
    up = pack({"total": np.zeros(5), "count": 0.0})
    assert history["bytes_up"][0] == 100 * len(up)
    assert history["bytes_down"][0] == 100 * len(pack({}))


class WrongShape(FederatedMean):
    def update(self, cohort, cs, message, active, key):
        return {"total": np.zeros(3), "count": 1.0}


class NotFinite(FederatedMean):
    def update(self, cohort, cs, message, active, key):
        return {"total": np.full(5, np.nan), "count": 1.0}


class Stranger(FederatedMean):
    def update(self, cohort, cs, message, active, key):
        return {"sum": np.zeros(5), "count": 1.0}


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (WrongShape, r"total is float64 of shape \(3,\), expected .*\(5,\)"),
        (NotFinite, "total has 5 values that are not finite"),
        (Stranger, "expected .*'count', 'total'"),
    ],
)
def test_a_wrong_reply_is_refused_by_name(cohort, method, text):
    with pytest.raises(MessageError, match=text):
        run(method(), LocalEngine(), cohort, seed=0)


class Choosy(FederatedMean):
    def start(self, hellos, key):
        raise Refused(7, "its rows have 4 columns")


def test_a_refused_client_is_named(cohort):
    with pytest.raises(Refused, match="client 7 refused: its rows have 4 columns"):
        run(Choosy(), LocalEngine(), cohort, seed=0)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("client_fraction", 0.0), ("client_fraction", 1.5), ("min_clients", 0)],
)
def test_engine_arguments_are_checked(cohort, argument, value):
    with pytest.raises(ValueError, match=argument):
        run(FederatedMean(), LocalEngine(**{argument: value}), cohort, seed=0)


def test_an_engine_is_shared_by_clones():
    from copy import deepcopy

    engine = LocalEngine()
    assert deepcopy(engine) is engine
