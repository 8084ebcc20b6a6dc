"""Clipping bounds what a client adds; the noise is Gaussian; the account is right."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy import optimize, stats

from fedcore import FedHT, FedStandardScaler, LocalEngine
from fedcore.federation import GaussianNoise, PrivateSums
from fedcore.federation.contract import Cohort, Request, Sum
from fedcore.federation.noise import discrete_gaussian
from fedcore.federation.run import run

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")

from fedcore.federation import masks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@given(arrays(float, 5, elements=st.floats(-1e300, 1e300)), st.floats(1e-3, 1e3))
def test_clipped_replies_are_never_longer(flat, clip):
    noise = GaussianNoise(clip=clip, multiplier=1.0)
    assert np.linalg.norm(noise.clipped(flat, 2.0**-30)) <= clip


def test_short_replies_are_left_on_the_grid():
    flat = np.array([0.25, -0.5, 0.125])
    clipped = GaussianNoise(clip=1.0, multiplier=1.0).clipped(flat, 2.0**-20)
    assert (clipped == flat).all()


def stream(n_bytes):
    return masks.stream(b"n" * 32, n_bytes)


@pytest.mark.parametrize("sigma", [0.7, 3.0])
def test_the_noise_is_a_discrete_gaussian(sigma):
    drawn = discrete_gaussian(sigma, 20_000, stream)
    k = np.arange(-20, 21)
    mass = np.exp(-(k**2) / (2 * sigma**2))
    mass /= mass.sum()
    seen = np.array([(drawn == j).sum() for j in k])
    often = mass * len(drawn) > 20
    counts = [*seen[often], seen[~often].sum()]
    expected = [*(mass[often] * len(drawn)), mass[~often].sum() * len(drawn)]
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_wide_noise_is_gaussian():
    drawn = discrete_gaussian(2.0**40, 20_000, stream)
    assert stats.kstest(drawn / 2.0**40, "norm").pvalue > 1e-3


def test_any_threshold_of_shares_adds_up_to_the_noise():
    noise, t, resolution = GaussianNoise(clip=2.0, multiplier=1.5), 7, 2.0**-30
    sigma = noise.sigma(resolution, t) * resolution
    assert_allclose(sigma * t**0.5, 3.0)


def test_epsilon_is_near_the_exact_curve():
    """Balle and Wang 2018: the exact delta of Gaussian mechanisms, one after another.

    The accountant's is an upper bound, and no loose one.
    """
    noise = GaussianNoise(clip=1.0, multiplier=4.0, delta=1e-5)
    mu = 20**0.5 / 4.0

    def excess(eps):
        first = stats.norm.cdf(mu / 2 - eps / mu)
        return first - np.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu) - 1e-5

    exact = optimize.brentq(excess, 0.01, 50)
    assert exact <= noise.epsilon(20) <= 1.15 * exact


def test_epsilon_grows_with_the_exchanges_and_falls_with_noise():
    quiet, loud = (GaussianNoise(clip=1.0, multiplier=m) for m in (1.0, 2.0))
    assert quiet.epsilon(0) == 0 < quiet.epsilon(1) < quiet.epsilon(2)
    assert loud.epsilon(2) < quiet.epsilon(2)


@dataclass(frozen=True)
class NoisyMean:
    """Ask four times for the sum of the clients' first rows."""

    bears_noise: bool = True

    def hello(self, cohort):
        return {}

    def start(self, hellos, key):
        return {"round": 1, "done": False, "seen": []}, {}

    def join(self, cohort, agreement):
        return {}

    def broadcast(self, state, key):
        return Request(all={}, reply={"x": Sum((3,))})

    def update(self, cohort, cs, message, active, key):
        return {"x": cohort.X[active].sum(axis=0)}

    def combine(self, state, reply, who, key):
        seen = [*state["seen"], reply["x"]]
        return {"round": state["round"] + 1, "done": len(seen) == 4, "seen": seen}

    def report(self, state):
        return {}

    def close(self, state):
        return Request(all={}, reply={})

    def personal(self, cohort, cs, message):
        return {}


K = 8


def ask(multiplier, seed=0, clip=5.0, **engine):
    cohort = Cohort(np.ones((K, 3)), np.zeros(K), None, np.arange(K + 1))
    noise = GaussianNoise(clip=clip, multiplier=multiplier)
    engine = LocalEngine(privacy=PrivateSums(noise=noise), **engine)
    return run(NoisyMean(), engine, cohort, seed=seed)


def test_noisy_sums_have_the_deviation_that_was_asked_for():
    """All 8 answer where 6 must: a little more noise than is accounted for."""
    draws = [ask(2.0, seed).state["seen"] for seed in range(30)]
    off = (np.array(draws) - K) / (2.0 * 5.0 * (8 / 6) ** 0.5)
    assert stats.kstest(off.ravel(), "norm").pvalue > 1e-3


def test_noisy_sums_are_of_clipped_replies():
    sums = ask(1e-6, clip=0.5).state["seen"]
    assert_allclose(sums, 0.5 * K / 3**0.5, rtol=1e-4)


def test_history_tells_the_epsilon_that_is_spent():
    noise = GaussianNoise(clip=5.0, multiplier=1.0)
    spent = [noise.epsilon(n) for n in (1, 2, 3, 4)]
    assert_allclose(ask(1.0).history["epsilon"], spent)


def test_epsilon_is_that_of_the_client_that_was_asked_most_often():
    history = ask(1.0, client_fraction=0.5).history
    assert history["n_active"].tolist() == [4] * 4
    noise = GaussianNoise(clip=5.0, multiplier=1.0)
    assert history["epsilon"][-1] in [noise.epsilon(n) for n in (2, 3, 4)]


def test_noise_is_repeatable_and_each_time_another():
    one, again, other = ask(1.0), ask(1.0), ask(1.0, seed=1)
    assert_array_equal(one.state["seen"], again.state["seen"])
    assert (one.state["seen"][0] != other.state["seen"][0]).all()
    assert (one.state["seen"][0] != one.state["seen"][1]).all()


def test_methods_that_need_exact_figures_are_refused():
    noise = GaussianNoise(clip=1.0, multiplier=1.0)
    engine = LocalEngine(privacy=PrivateSums(noise=noise))
    with pytest.raises(ValueError, match="IHT steers by exact figures"):
        FedHT(2, engine=engine).fit(np.eye(8), np.arange(8.0), np.arange(8))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"clip": 0.0}, "clip == 0.0"),
        ({"clip": np.inf}, "clip == inf"),
        ({"multiplier": -1.0}, "multiplier == -1.0"),
        ({"delta": 1.0}, "delta == 1.0"),
        ({"clip": 1e-12}, "resolution == 9.31e-10 does not suit noise"),
        ({"clip": 1e9}, "does not suit noise"),
    ],
)
def test_noise_is_checked(options, text):
    noise = GaussianNoise(**({"clip": 1.0, "multiplier": 1.0} | options))
    cohort = Cohort(np.ones((K, 3)), np.zeros(K), None, np.arange(K + 1))
    with pytest.raises(ValueError, match=text):
        run(NoisyMean(), LocalEngine(privacy=PrivateSums(noise=noise)), cohort, seed=0)


def scaled(multiplier, *, n_clients=20, seed=0, **scaler):
    X = np.random.default_rng(seed).uniform(-1, 1, (50 * n_clients, 3))
    noise = GaussianNoise(clip=150.0, multiplier=multiplier, delta=1e-4)
    privacy = PrivateSums(noise=noise, resolution=1e-6)
    model = FedStandardScaler(
        engine=LocalEngine(privacy=privacy), random_state=seed, **scaler
    )
    return X, noise, model.fit(X, clients=np.arange(len(X)) // 50)


def test_a_scaler_with_hardly_any_noise_finds_the_moments():
    X, noise, scaler = scaled(1e-5)
    assert_allclose(scaler.mean_, X.mean(axis=0), atol=1e-4)
    assert_allclose(scaler.scale_, X.std(axis=0), rtol=1e-3)
    assert scaler.history_["epsilon"][-1] == noise.epsilon(2)


def test_a_scaler_stays_near_the_moments_under_noise():
    """Deviation 150 of sums over 20 clients with 1000 rows: of a mean about 0.15."""
    X, _, scaler = scaled(1.0, n_clients=100)
    assert 0 < np.abs(scaler.mean_ - X.mean(axis=0)).max() < 0.2
    assert np.abs(scaler.scale_ - X.std(axis=0)).max() < 0.2
    assert scaler.history_["epsilon"][-1] < 8


def test_noise_that_drowns_the_counts_is_named():
    with pytest.raises(ValueError, match="the noise is larger than the counts of"):
        scaled(100.0, n_clients=3, seed=1)
