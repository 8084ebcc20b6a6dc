"""Virtual time: who answers, what it costs, and that lost work never happened."""

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chi2, chisquare, expon, gamma, norm

from fedcore import LocalEngine, Timing
from fedcore.federation.contract import Cohort, Request, Sum
from fedcore.federation.run import run
from fedcore.federation.trace import OUTCOMES

K = 10


@dataclass(frozen=True)
class Counting:
    """A method that only counts: how often each client's work was kept."""

    n_rounds: int = 5
    everyone: bool = False
    may_commit_sent: bool = True

    def start(self, hellos, key):
        return {"round": 1, "done": False, "heard": np.zeros(K, int)}, {}

    def broadcast(self, state, key):
        return Request(all={}, reply={"one": Sum(())}, everyone=self.everyone)

    def combine(self, state, reply, who, key):
        assert reply["one"] == who.sum()
        state = {**state, "heard": state["heard"] + who, "who": who}
        last = state["round"] == self.n_rounds
        return state | {"round": state["round"] + (not last), "done": last}

    def close(self, state):
        return Request(all={}, reply={})

    def report(self, state):
        return {}

    def hello(self, cohort):
        return {"n_rows": np.diff(cohort.offsets)}

    def join(self, cohort, agreement):
        return np.zeros(cohort.n_clients, int)

    def update(self, cohort, cs, message, active, key):
        cs[active] += 1
        return {"one": float(len(active))}

    def personal(self, cohort, cs, message):
        return {"visits": cs}


@pytest.fixture
def cohort():
    offsets = np.concatenate([[0], np.cumsum(np.arange(1, K + 1))])
    return Cohort(np.ones((offsets[-1], 3)), np.zeros(offsets[-1]), None, offsets)


def count(cohort, timing, n_rounds=5, seed=0, n_jobs=1, everyone=False, **engine):
    engine = LocalEngine(timing=timing, **engine)
    return run(Counting(n_rounds, everyone), engine, cohort, seed=seed, n_jobs=n_jobs)


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_accepted_counts_are_binomial(cohort, dropout):
    # Means grow with the sizes, so that the clients differ.
    cost, R = (0.0, 0.05, 0.1), 2000
    timing = Timing(expon(), wait=0.5, dropout=dropout, cost=cost)
    heard = count(cohort, timing, n_rounds=R).state["heard"]
    mean = 0.05 * np.arange(1, K + 1) + 0.1
    p = (1 - np.exp(-0.5 / mean)) * (1 - dropout)
    z = (heard - R * p) ** 2 / (R * p * (1 - p))
    assert chi2.sf(z.sum(), K) > 0.001
    assert len(set(heard)) > 1


def test_rounds_are_independent(cohort):
    """Pairs of rounds in a row are as often accepted as chance alone has it."""
    trace = count(cohort, Timing(expon(), 0.5, cost=(0, 0, 1), trace=True), 600)
    accepted = trace.traffic.trace.outcome.reshape(600, K) == 0
    p = 1 - np.exp(-0.5)
    pairs = 2 * accepted[:-1:2] + accepted[1::2]
    seen = np.bincount(pairs.reshape(-1), minlength=4)
    q = 1 - p
    expected = np.array([q * q, q * p, p * q, p * p]) * seen.sum()
    assert chisquare(seen, expected).pvalue > 0.001


def test_what_does_not_count_was_never_done(cohort):
    outcome = count(cohort, Timing(expon(), 1.0, dropout=0.3, cost=(0, 0, 1)), 50)
    assert_array_equal(outcome.personal["visits"], outcome.state["heard"])
    assert 0 < outcome.state["heard"].min() <= outcome.state["heard"].max() < 50


def test_committed_when_sent_a_client_keeps_what_was_lost(cohort):
    timing = Timing(expon(), 1.0, 0.5, dropout=0.3, cost=(0, 0, 1), trace=True)
    outcome = count(cohort, timing, 50, commit="sent")
    trace = outcome.traffic.trace
    sent = trace.outcome != OUTCOMES.index("interrupted")
    kept = np.bincount(trace.client[sent], minlength=K)
    assert_array_equal(outcome.personal["visits"], kept)
    assert (kept >= outcome.state["heard"]).all()
    assert kept.sum() > outcome.state["heard"].sum()


def test_committing_when_sent_is_refused_where_it_breaks_the_method(cohort):
    method = Counting(may_commit_sent=False)
    with pytest.raises(ValueError, match="commit is 'sent', expected 'accepted'"):
        run(method, LocalEngine(commit="sent"), cohort, seed=0)


def test_the_trace_has_a_line_for_each_request(cohort):
    timing = Timing(gamma(2), 2.0, 0.5, 0.2, cost=(0, 0, 1), latency=0.1, trace=True)
    outcome = count(cohort, timing, 30)
    trace, history = outcome.traffic.trace, outcome.history
    assert len(trace) == 30 * K
    assert_array_equal(np.bincount(trace.exchange)[1:], np.full(30, K))
    counts = np.bincount(trace.outcome, minlength=4)
    assert (counts > 0).all()
    assert counts[0] == history["n_active"].sum()
    assert counts[1] + counts[2] == history["n_late"].sum()
    assert counts[3] == history["n_dropped"].sum()
    wait, after = trace.arrived - trace.sent, trace.computed - trace.sent
    accepted, interrupted, discarded, dropped = (trace.outcome == i for i in range(4))
    assert (wait[accepted] <= 2).all()
    assert (wait[discarded] > 2).all()
    assert (after[discarded] <= 2.6).all()
    assert_allclose(wait[accepted] - after[accepted], 0.1)
    assert np.isnan(trace.computed[interrupted]).all()
    assert np.isnan(trace.arrived[dropped | interrupted]).all()
    assert not np.isnan(trace.computed[dropped]).any()


def test_without_a_trace_none_is_kept(cohort):
    assert count(cohort, Timing(gamma(2), 1.0)).traffic.trace is None


def test_a_round_ends_with_its_deadline_or_the_last_reply(cohort):
    def delay(sizes, d, key):
        return np.where(np.arange(len(sizes)) < key[1], 3.0, 1.0)

    timing = Timing(delay, wait=lambda exchange: 2.0 if exchange < 3 else 5.0)
    clock = count(cohort, timing, 3).history["virtual_time"]
    assert_allclose(clock, [2, 4, 7])
    late = count(cohort, timing, 3).history["n_late"]
    assert_array_equal(late, [1, 2, 0])


def test_a_round_for_everyone_waits_for_the_slowest(cohort):
    timing = Timing(lambda sizes, d, key: 1.0 * sizes, wait=2.0, sum_time=0.5)
    outcome = count(cohort, timing, 2, everyone=True)
    assert_allclose(outcome.history["virtual_time"], [K + 0.5, 2 * K + 1])
    assert (outcome.state["heard"] == 2).all()
    assert (outcome.traffic.asked == 0).all()  # it had no deadline


def test_messages_take_their_time(cohort):
    from fedcore.federation.message import pack

    n_bytes = len(pack({})) + len(pack({"one": 0.0}))
    speed = np.full(K, 1e3)
    speed[4] = 1.0
    timing = Timing(lambda sizes, d, key: np.zeros(K), 1.0, bandwidth=speed)
    outcome = count(cohort, timing, 1)
    assert_array_equal(np.flatnonzero(~outcome.state["who"]), [4])
    patient = count(cohort, Timing(timing.delay, np.inf, bandwidth=speed), 1)
    assert_allclose(patient.history["virtual_time"], n_bytes)


def test_bytes_are_counted_for_what_was_sent(cohort):
    from fedcore.federation.message import pack

    timing = Timing(gamma(2), 2.0, 0.5, 0.2, cost=(0, 0, 1), trace=True)
    outcome = count(cohort, timing, 10)
    sent = np.count_nonzero(outcome.traffic.trace.outcome != 1)
    assert outcome.history["bytes_down"].sum() == 10 * K * len(pack({}))
    assert outcome.history["bytes_up"].sum() == sent * len(pack({"one": 0.0}))


def test_starved_clients_are_found(cohort):
    timing = Timing(lambda sizes, d, key: 1.0 * (sizes > K - 2), wait=0.5)
    assert_array_equal(count(cohort, timing, 10).traffic.starved, [K - 2, K - 1])
    assert len(count(cohort, timing, 9).traffic.starved) == 0  # too early to say


def test_draws_depend_on_seed_and_round_alone(cohort):
    timing = Timing(gamma(2), 2.0, dropout=0.2, cost=(0, 0, 1))
    first, *others = (
        count(cohort, timing, 20, seed, n_jobs).state["heard"]
        for seed, n_jobs in ((0, 1), (0, 2), (0, 5), (1, 1))
    )
    assert_array_equal(others[0], first)
    assert_array_equal(others[1], first)
    assert (others[2] != first).any()


def test_the_chart_shows_each_client_once(cohort):
    def delay(sizes, d, key):
        return np.array([1.0, 2.5, 9.0] + [0.5] * (K - 3))

    timing = Timing(delay, wait=2.0, sum_time=1.0, trace=True)
    trace = count(cohort, timing, 2).traffic.trace
    header, axis, *rows, _legend = trace.chart(clients=[0, 1, 2]).splitlines()
    assert axis.count("w") == 2
    assert [row.split("|")[0].split() for row in rows] == [
        ["client", "0"],
        ["client", "1"],
        ["client", "2"],
    ]
    marks = [set(row.split("|")[1]) - set(" =-") for row in rows]
    assert marks == [{">"}, {"!"}, {"x"}]
    assert max(map(len, (header, axis, *rows))) <= 14 + 72
    assert trace.chart(exchanges=[7]) == "no messages"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"delay": 3.0}, "delay is 3.0, expected a frozen distribution"),
        ({"delay": norm()}, "delay begins at -inf"),
        ({"wait": 0}, "wait is 0, expected seconds"),
        ({"wait": np.inf, "dropout": 0.1}, "expected a finite wait"),
        ({"dropout": 1.0}, "dropout == 1.0"),
        ({"sum_time": -1.0}, "sum_time == -1.0"),
        ({"latency": -1.0}, "latency is -1.0"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0"),
        ({"cost": (1.0, 2.0)}, "cost is"),
    ],
)
def test_arguments_of_timing_are_checked(arguments, text):
    with pytest.raises(ValueError, match=text):
        Timing(**{"delay": gamma(2), "wait": 1.0} | arguments)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"delay": lambda sizes, d, key: np.ones(3)}, r"shape \(3,\), expected"),
        ({"delay": lambda sizes, d, key: -1.0 * sizes}, "-1.0 seconds for client 0"),
        ({"latency": np.ones(3)}, "latency has 3 entries, the federation has 10"),
        ({"wait": lambda exchange: "soon"}, "wait is 'soon', expected seconds"),
    ],
)
def test_what_a_run_needs_of_timing_is_checked(cohort, arguments, text):
    timing = Timing(**{"delay": gamma(2), "wait": 1.0} | arguments)
    with pytest.raises(ValueError, match=text):
        count(cohort, timing)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [({"timing": 3.0}, "timing is 3.0"), ({"commit": "never"}, "commit is 'never'")],
)
def test_arguments_of_the_engine_are_checked(cohort, arguments, text):
    with pytest.raises(ValueError, match=text):
        run(Counting(), LocalEngine(**arguments), cohort, seed=0)


def test_timing_shows_itself_as_it_was_written():
    timing = Timing(gamma(2, scale=0.5), 1.0, dropout=0.1)
    assert repr(timing) == "Timing(delay=gamma(2, scale=0.5), wait=1.0, dropout=0.1)"
    engine = LocalEngine(timing=timing, commit="sent")
    assert repr(timing) in repr(engine)
    assert "commit='sent'" in repr(engine)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("sum_time", np.nan),
        ("sum_time", np.inf),
        ("dropout", np.nan),
        ("latency", np.inf),
        ("latency", [0.0, np.nan]),
        ("bandwidth", np.nan),
    ],
)
def test_numbers_that_are_none_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} is "):
        Timing(lambda sizes, d, key: sizes * 1e-3, 1.0, **{name: value})
