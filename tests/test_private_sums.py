"""Masks hide every reply and none of the sum, whoever is lost on the way."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats

from fedcore import DistributedIHT, FedHT, FedIterHT, FedMTLSVC, LocalEngine, Timing
from fedcore.datasets import make_iht_simulation, make_mtl_classification
from fedcore.federation import GaussianNoise, PrivateSums, fixed_point, shamir
from fedcore.federation.contract import Choose, Cohort, Each, Request, Sum
from fedcore.federation.message import MessageError, pack, unpack
from fedcore.federation.run import run

pytest.importorskip("cryptography")

from fedcore.federation import masks

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*starved:UserWarning"
)

# shares of a secret


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.data())
def test_any_threshold_of_shares_tells_the_secret(secret, data):
    n = data.draw(st.integers(1, 9))
    t = data.draw(st.integers(1, n))
    coefficients = data.draw(st.binary(min_size=48 * (t - 1), max_size=48 * (t - 1)))
    shares = dict(enumerate(shamir.split(secret, coefficients, range(1, n + 1)), 1))
    chosen = data.draw(st.permutations(list(shares)))[:t]
    assert shamir.join({x: shares[x] for x in chosen}) == secret


@settings(deadline=None)
@given(st.binary(min_size=32, max_size=32), st.binary(min_size=32, max_size=32))
def test_fewer_shares_fit_every_secret(secret, other):
    """For two shares of three there is a polynomial through any secret at all."""
    shares = shamir.split(secret, b"k" * 96, [1, 2])
    through = {0: other + b"", 1: shares[0], 2: shares[1]}
    points = {x: int.from_bytes(s, "big") for x, s in through.items()}
    # Lagrange's polynomial, at the place of the third share.
    third = 0
    for x, value in points.items():
        for z in points:
            if z != x:
                value = value * (3 - z) * pow(x - z, -1, shamir.PRIME) % shamir.PRIME
        third += value
    third = (third % shamir.PRIME).to_bytes(shamir.SHARE_BYTES, "big")
    assert shamir.join({1: shares[0], 2: shares[1], 3: third}) == other


def test_shares_of_different_secrets_are_not_joined_silently():
    one, two = (shamir.split(bytes([k] * 32), b"k" * 48, [1, 2]) for k in (200, 7))
    joined = []
    for share in (one[1], two[1]):
        try:
            joined.append(shamir.join({1: one[0], 2: share}))
        except ValueError:
            joined.append(None)
    assert joined[0] == bytes([200] * 32) != joined[1]


# the protocol


def travel(arrays):
    return unpack(pack(arrays))[0]


class Talk:
    """A private sum in which some are lost before each step."""

    def __init__(self, n=6, threshold=4, lost_at=None, secret=b"s" * 32, exchange=1):
        about = b"run", exchange
        self.lost_at = lost_at or {}
        self.people = {
            k: masks.MaskedParticipant(k, threshold, secret + bytes([k]), *about)
            for k in range(n)
        }
        self.sum = masks.MaskedSum(threshold, *about)

    def alive(self, step):
        return [k for k in self.people if self.lost_at.get(k, 9) > step]

    def begin(self):
        keys = {k: travel(self.people[k].keys()) for k in self.alive(0)}
        told = travel(self.sum.directory(keys))
        shared = {k: travel(self.people[k].share(told)) for k in self.alive(1)}
        self.boxes = {k: travel(m) for k, m in self.sum.boxes(shared).items()}
        return self

    def mask(self, k, values):
        return travel(self.people[k].mask(values, self.boxes[k]))

    def collect(self, values):
        self.masked = {k: self.mask(k, values[k]) for k in self.alive(2)}
        self.told = travel(self.sum.answered(self.masked, values.shape[1]))
        return self

    def open(self):
        revealed = {k: travel(self.people[k].reveal(self.told)) for k in self.alive(3)}
        return self.sum.open(revealed)


@pytest.fixture
def values():
    return np.random.default_rng(0).integers(0, 2**64, (6, 5), np.uint64)


@settings(deadline=None, max_examples=20)
@given(st.lists(st.integers(0, 5), max_size=2, unique=True), st.data())
def test_the_sum_of_those_who_answered_is_exact(lost, data):
    """Two of six vanish before any step; of four all must be heard to the end."""
    lost_at = {k: data.draw(st.integers(0, 3)) for k in lost}
    values = np.random.default_rng(0).integers(0, 2**64, (6, 5), np.uint64)
    talk = Talk(lost_at=lost_at).begin().collect(values)
    assert_array_equal(talk.open(), values[talk.alive(2)].sum(axis=0))


def test_a_late_reply_stays_hidden(values):
    """The masks of one that was given up are known; its own seed still hides it."""
    talk = Talk(lost_at={2: 2}).begin().collect(values)
    talk.open()
    late = talk.mask(2, values[2])["masked"]
    known = np.zeros(5, np.uint64)  # what the coordinator takes off the others' sum
    talk.sum._take_off(known, 2, talk.people[2]._mask_key)
    own = masks._numbers(talk.people[2]._seed, 5)
    assert_array_equal(late - known, values[2] + own)


def test_a_masked_reply_is_not_the_reply(values):
    talk = Talk().begin()
    twin = Talk(secret=b"t" * 32).begin()
    zero = np.zeros(5, np.uint64)
    seen = [t.mask(0, v)["masked"] for t in (talk, twin) for v in (zero,)]
    assert (seen[0] != 0).all() and (seen[0] != seen[1]).all()


def test_each_exchange_has_masks_of_its_own():
    zero = np.zeros(5, np.uint64)
    first, second = (Talk(exchange=e).begin().mask(0, zero) for e in (1, 2))
    assert (first["masked"] != second["masked"]).all()


def test_a_step_that_is_done_twice_gives_the_same_bits(values):
    first, again = (Talk().begin().collect(values).masked for _ in range(2))
    for k in first:
        assert_array_equal(first[k]["masked"], again[k]["masked"])


def test_nobody_reveals_twice(values):
    """Both shares of one client would unmask it."""
    talk = Talk().begin().collect(values)
    talk.open()
    other = {"members": talk.told["members"][1:]}
    with pytest.raises(MessageError, match="answered came twice"):
        talk.people[5].reveal(other)


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([0, 1, 2], "names 3 participants, expected at least 4"),
        ([1, 2, 3, 4], r"expected distinct ones, with 0"),
        ([0, 1, 1, 2, 3], "expected distinct ones"),
        ([0, 1, 2, 3, 17], "members that sent no box"),
    ],
)
def test_a_participant_refuses_what_would_give_a_reply_away(values, members, text):
    talk = Talk().begin().collect(values)
    with pytest.raises(MessageError, match=text):
        talk.people[0].reveal({"members": np.array(members)})


def test_a_box_that_was_changed_is_named(values):
    talk = Talk().begin()
    boxes = {name: a.copy() for name, a in talk.boxes[1].items()}
    boxes["boxes"][3, 10] ^= 1
    with pytest.raises(MessageError, match="box of participant 3 is broken"):
        talk.people[1].mask(values[1], boxes)


def test_another_key_in_my_name_is_noticed():
    talk = Talk()
    told = talk.sum.directory({k: p.keys() for k, p in talk.people.items()})
    told["public"][0] = told["public"][1]
    with pytest.raises(MessageError, match="another key for this participant"):
        talk.people[0].share(told)


def test_a_key_of_low_order_is_refused():
    talk = Talk()
    told = talk.sum.directory({k: p.keys() for k, p in talk.people.items()})
    told["public"][1] = 0
    with pytest.raises(MessageError, match="low order"):
        talk.people[0].share(told)


@pytest.mark.parametrize("step", [0, 1, 2, 3])
def test_too_few_leave_the_sum_hidden(values, step):
    talk = Talk(lost_at=dict.fromkeys([1, 3, 5], step))
    with pytest.raises(masks.TooFew, match=r"3 participants sent .* at least 4"):
        talk.begin().collect(values).open()


def test_the_stream_is_chacha20():
    """RFC 8439, appendix A.1, test vector 1."""
    expected = "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    assert masks.stream(bytes(32), 32).hex() == expected


def test_labels_of_derived_keys_do_not_run_together():
    keys = [masks.derive(b"s" * 32, *labels) for labels in (("a", "bc"), ("ab", "c"))]
    assert keys[0] != keys[1]


# fixed point

KINDS = {"w": Sum((3,)), "n": Sum(())}


@given(arrays(float, (7, 4), elements=st.floats(-1e6, 1e6)))
def test_encoded_sums_are_near_the_sums(rows):
    coded = [fixed_point.encode(KINDS, row, 2.0**-20, 7) for row in rows]
    total = fixed_point.decode(np.sum(coded, axis=0, dtype=np.uint64), 2.0**-20)
    assert_allclose(total, rows.sum(axis=0), atol=7 * 2.0**-21 + 1e-8)


def test_an_overflow_is_named():
    flat = np.array([1.0, 2.0, 3.0, -1e12])
    with pytest.raises(
        MessageError, match=r"reply n reaches 1e\+12, .* 7 participants"
    ):
        fixed_point.encode(KINDS, flat, 2.0**-30, 7)


def test_the_widest_numbers_do_not_wrap_around():
    limit = (2.0**63 / 7 - 1024) * 0.5
    flat = np.array([limit, -limit, 0, 0])
    total = 7 * fixed_point.encode(KINDS, flat, 0.5, 7)
    assert_allclose(fixed_point.decode(total, 0.5), 7 * flat, rtol=1e-15)


def test_flatten_and_back():
    reply = {"w": np.arange(3.0), "n": np.asarray(7.0)}
    back = fixed_point.unflatten(KINDS, fixed_point.flatten(KINDS, reply))
    assert back.keys() == reply.keys()
    for name, value in reply.items():
        assert_array_equal(back[name], value)


# the engine


def fit(model, data, **engine):
    return model.set_params(engine=LocalEngine(**engine)).fit(*data)


@pytest.fixture(scope="module")
def tasks():
    return make_mtl_classification(8, 20, 6, random_state=0)[:3]


@pytest.mark.parametrize("aggregation", ["envelope", "line_search", "safe"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_the_svm_is_the_same_within_the_resolution(tasks, aggregation, form):
    X, y, clients = tasks
    options = {"aggregation": aggregation, "max_rounds": 8, "random_state": 0}
    data = form(X), y, clients
    plain = fit(FedMTLSVC(**options), data)
    private = fit(FedMTLSVC(**options), data, privacy=PrivateSums())
    assert_allclose(private.coef_, plain.coef_, atol=1e-6)
    assert_allclose(
        private.decision_function(X, clients),
        plain.decision_function(X, clients),
        atol=1e-6,
    )
    assert private.n_rounds_ == plain.n_rounds_


@pytest.mark.parametrize("method", [FedHT, FedIterHT, DistributedIHT])
def test_hard_thresholding_is_the_same_within_the_resolution(method):
    data = make_iht_simulation(
        1, n_clients=6, n_samples=20, n_features=60, random_state=0
    )
    options = {"n_nonzero_coefs": 10, "max_rounds": 6, "random_state": 0}
    plain = fit(method(**options), data)
    private = fit(method(**options), data, privacy=PrivateSums())
    assert_allclose(private.coef_, plain.coef_, atol=1e-5)


def test_dropouts_after_the_keys_change_nothing_but_who_counts(tasks):
    timing = Timing(stats.expon(scale=0.2), 1.0, dropout=0.05)
    options = {"aggregation": "safe", "max_rounds": 12, "random_state": 0}
    plain = fit(FedMTLSVC(**options), tasks, timing=timing)
    privacy = PrivateSums(threshold=0.5)
    private = fit(FedMTLSVC(**options), tasks, timing=timing, privacy=privacy)
    assert plain.history_["n_dropped"].sum() > 0
    assert_array_equal(private.history_["n_active"], plain.history_["n_active"])
    assert_allclose(private.coef_, plain.coef_, atol=1e-6)


def test_a_sum_of_too_few_counts_for_nobody(tasks):
    timing = Timing(stats.expon(scale=0.2), 1.0, dropout=0.5)
    options = {"aggregation": "safe", "max_rounds": 6, "random_state": 0}
    model = FedMTLSVC(**options)
    model = fit(model, tasks, timing=timing, privacy=PrivateSums(threshold=0.9))
    # 8 of 8 are heard where all must be, and nobody where one was lost.
    assert set(model.history_["n_active"] % 8) == {0}


def test_private_sums_are_repeatable(tasks):
    options = {"aggregation": "envelope", "max_rounds": 3, "random_state": 0}
    first, again = (
        fit(FedMTLSVC(**options, n_jobs=n), tasks, privacy=PrivateSums())
        for n in (1, 2)
    )
    assert_array_equal(first.coef_, again.coef_)


def test_a_coarse_resolution_is_coarse(tasks):
    options = {"aggregation": "envelope", "max_rounds": 3, "random_state": 0}
    plain = fit(FedMTLSVC(**options), tasks)
    coarse = fit(FedMTLSVC(**options), tasks, privacy=PrivateSums(resolution=0.5))
    assert abs(coarse.coef_ - plain.coef_).max() > 1e-3


@dataclass(frozen=True)
class Asks:
    """A method that asks once, for this kind."""

    kind: object
    lanes: object = None

    def hello(self, cohort):
        return {}

    def start(self, hellos, key):
        return {"round": 1, "done": False}, {}

    def join(self, cohort, agreement):
        return {}

    def broadcast(self, state, key):
        return Request(all={}, reply={"x": self.kind}, lanes=self.lanes)


@pytest.mark.parametrize(
    ("asks", "K", "text"),
    [
        (Asks(Choose((2,))), 9, "reply x is Choose, expected Sum"),
        (Asks(Each((2,))), 9, "reply x is Each, expected Sum"),
        (Asks(Sum((2**23,))), 9, "8388608 numbers, expected at most 4194304"),
        (Asks(Sum(()), np.array([0, 9])), 9, "one after another"),
        (Asks(Sum(())), 2, "2 participants are asked, expected at least 3"),
    ],
)
def test_what_cannot_be_private_is_refused(asks, K, text):
    cohort = Cohort(np.zeros((K, 1)), np.zeros(K), None, np.arange(K + 1))
    with pytest.raises(ValueError, match=text):
        run(asks, LocalEngine(privacy=PrivateSums()), cohort, seed=0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"privacy": "masks"}, "privacy is 'masks', expected None or a PrivateSums"),
        ({"privacy": PrivateSums(resolution=0.0)}, "resolution == 0.0"),
        ({"privacy": PrivateSums(resolution=np.inf)}, "resolution == inf"),
        ({"privacy": PrivateSums(threshold=0.4)}, "threshold == 0.4"),
        ({"privacy": PrivateSums(), "commit": "sent"}, "expected 'accepted'"),
    ],
)
def test_privacy_is_checked_before_any_work(tasks, options, text):
    with pytest.raises(ValueError, match=text):
        fit(FedMTLSVC(aggregation="safe"), tasks, **options)


def test_the_sequential_rule_is_refused_with_a_reason(tasks):
    with pytest.raises(ValueError, match="see each other's work"):
        fit(FedMTLSVC(aggregation="sequential"), tasks, privacy=PrivateSums())


def test_a_resumed_run_has_the_same_bits(tasks, tmp_path):
    options = {"aggregation": "line_search", "random_state": 0}
    engine = {"privacy": PrivateSums(resolution=2.0**-10)}
    whole = fit(FedMTLSVC(**options, max_rounds=6), tasks, **engine)
    engine |= {"checkpoint": tmp_path / "run", "every": 1}
    fit(FedMTLSVC(**options, max_rounds=3), tasks, **engine)
    resumed = fit(FedMTLSVC(**options, max_rounds=6), tasks, **engine, resume=True)
    assert_array_equal(resumed.coef_, whole.coef_)


def test_noise_is_not_drawn_anew_from_a_checkpoint(tasks, tmp_path):
    privacy = PrivateSums(noise=GaussianNoise(clip=1.0, multiplier=1.0))
    with pytest.raises(ValueError, match="answered twice"):
        fit(FedMTLSVC(), tasks, privacy=privacy, checkpoint=tmp_path / "run")


SPOILT = {
    "nothing": lambda message, name: {},
    "a list": lambda message, name: {name: message[name].tolist()},
    "another type": lambda message, name: {name: message[name].astype(np.float32)},
    "cut": lambda message, name: {name: message[name][:-1]},
    "flat": lambda message, name: {name: message[name].reshape(1, -1)},
}


@pytest.mark.parametrize("kind", SPOILT)
@pytest.mark.parametrize("step", ["public", "boxes", "masked", "shares"])
def test_who_sends_what_cannot_be_read_is_refused_by_name(step, kind, values):
    """The sum of the others comes out, as if the one had sent nothing."""

    def spoil(messages, at):
        if at != step:
            return messages
        return messages | {2: SPOILT[kind](messages[2], at)}

    talk = Talk()
    people, told = talk.people, talk.sum
    directory = told.directory(
        spoil({k: p.keys() for k, p in people.items()}, "public")
    )
    people = {k: people[k] for k in directory["members"].tolist()}
    shared = {k: p.share(directory) for k, p in people.items()}
    boxes = told.boxes(spoil(shared, "boxes"))
    masked = {k: people[k].mask(values[k], box) for k, box in boxes.items()}
    answered = told.answered(spoil(masked, "masked"), 5)
    heard = answered["members"].tolist()
    revealed = {k: people[k].reveal(answered) for k in heard}
    total = told.open(spoil(revealed, "shares"))
    assert heard == ([0, 1, 2, 3, 4, 5] if step == "shares" else [0, 1, 3, 4, 5])
    assert_array_equal(total, values[heard].sum(axis=0))
    assert list(told.refused) == [2]
    assert told.refused[2].startswith(step)


def test_who_comes_without_what_goes_before_is_refused(values):
    talk = Talk(lost_at={2: 1}).begin()
    masked = {k: talk.mask(k, values[k]) for k in talk.alive(2)}
    answered = talk.sum.answered(masked | {2: {"masked": values[2]}}, 5)
    assert 2 not in answered["members"]
    assert talk.sum.refused == {2: "masked came without what goes before"}
