"""The envelope coordinator: few rounds, and bounds that hold."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.mtl_svm.envelope import _best_weights

GRID = list(itertools.product((0.1, 1.0, 10.0), (0.3, 1.0, 10.0, 100.0, 1000.0)))


@pytest.mark.parametrize(("C1", "C2"), GRID)
@pytest.mark.parametrize(
    ("estimator", "make"),
    [(FedMTLSVC, make_mtl_classification), (FedMTLSVR, make_mtl_regression)],
)
def test_an_envelope_needs_at_most_30_rounds(estimator, make, C1, C2):
    X, y, clients = make(n_clients=30, n_samples=100, n_features=50, random_state=0)
    model = estimator(C1, C2, engine=LocalEngine(), max_rounds=30, random_state=0)
    model.fit(X, y, clients)  # not to converge would warn, and warnings are errors
    assert model.dual_gap_ <= 1e-3
    assert (model.history_["n_active"] == 30).all()


def test_the_dual_bound_of_an_envelope_stays_below_the_optimum():
    X, y, clients = make_mtl_classification(
        n_clients=5, n_samples=30, n_features=8, random_state=1
    )
    exact = FedMTLSVC(engine=LocalEngine(), tol=1e-10, random_state=0)
    optimum = exact.fit(X, y, clients).objective_
    history = exact.history_
    bounds = history["objective"] * (1 - history["gap"])
    assert (bounds <= optimum * (1 + 1e-12)).all()
    assert (np.diff(history["objective"]) <= 1e-12 * optimum).all()  # the best so far


@pytest.mark.parametrize("seed", range(20))
def test_plane_weights_minimise_over_the_simplex(seed):
    rng = np.random.default_rng(seed)
    slopes = rng.normal(size=(rng.integers(1, 9), 4))
    slopes[-1] = slopes[0]  # planes come again
    below, gram = rng.exponential(size=len(slopes)), slopes @ slopes.T

    def model(weights):
        return weights @ below + weights @ gram @ weights / 2

    weights = _best_weights(gram, below)
    assert weights.min() >= 0
    assert_allclose(weights.sum(), 1)
    oracle = minimize(
        model,
        np.full(len(below), 1 / len(below)),
        bounds=[(0, 1)] * len(below),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert model(weights) <= oracle.fun + 1e-7 * (1 + abs(oracle.fun))
