"""The rivals that the dictionaries are measured against are honest ones."""

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

FOLDER = Path(__file__).parents[1] / "bench"
if not FOLDER.exists():
    pytest.skip("bench is not beside the tests", allow_module_level=True)
sys.path.insert(0, str(FOLDER))

from adaptation_rivals import RIVALS, FedAvg, SourceOnly, pooled_rows, scaled_rows  # noqa: E402


@pytest.fixture(scope="module")
def moved():
    """Two sources that lie apart, and a target that was moved and stretched."""
    rng = np.random.default_rng(0)
    y = np.tile([0, 1, 2], 60)
    clients = np.repeat([0, 1, 2], 60)
    X = np.array([[0, 4], [4, 0], [-3, -1]])[y] + rng.normal(size=(180, 2))
    X[clients == 1] += [-6, 5]  # so that they choose a scale without levels
    X[clients == 2] = 2 * X[clients == 2] + [9, -4]
    return X, np.where(clients == 2, -1, y), clients, y[clients == 2]


@pytest.mark.parametrize("name", RIVALS)
def test_it_labels_a_target_that_was_moved_and_stretched(name, moved):
    X, y, clients, truth = moved
    model = RIVALS[name]().fit(X, y, clients)
    assert np.mean(model.predict(X[clients == 2]) == truth) > 0.9


def test_averaging_reaches_the_pooled_optimum(moved):
    X, y, clients, _ = moved
    model = FedAvg()
    model.n_rounds = 2000
    model.fit(X, y, clients)
    source = SourceOnly().fit(X, y, clients)
    assert (source.scaler, source.C) == (model.scaler, model.C)
    parts = [(X[clients == k], y[clients == k]) for k in (0, 1)]
    Z, z = pooled_rows([(scaled_rows(A, model.scaler), b) for A, b in parts])
    pooled = LogisticRegression(C=model.C, tol=1e-8, max_iter=5000).fit(Z, z)
    margins = pooled.coef_ - pooled.coef_.mean(axis=0)
    ours = model._W[:-1].T - model._W[:-1].T.mean(axis=0)
    assert_allclose(ours, margins, atol=0.05 * np.abs(margins).max())
