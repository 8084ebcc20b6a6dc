"""The rivals that the dictionaries are measured against are honest ones."""

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LogisticRegression

from fedcore import DaDiL, FedDaDiL

FOLDER = Path(__file__).parents[1] / "bench"
if not FOLDER.exists():
    pytest.skip("bench is not beside the tests", allow_module_level=True)
sys.path.insert(0, str(FOLDER))
sys.path.insert(0, str(FOLDER / "experiments"))

import domain_adaptation as experiment  # noqa: E402
from adaptation_rivals import RIVALS, FedAvg, SourceOnly, pooled_rows, scaled_rows  # noqa: E402
from adaptation_sets import load  # noqa: E402


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


def test_the_experiment_prints_every_arm(moved, monkeypatch, capsys):
    X, y, clients, truth = moved
    y = np.append(y[clients != 2], truth)
    monkeypatch.setattr(experiment, "load", lambda folder, name: (X, y, clients))
    short = {"DaDiL": DaDiL(max_iter=3), "FedDaDiL": FedDaDiL(max_rounds=3)}
    monkeypatch.setattr(experiment, "DICTIONARIES", short)
    experiment.accuracy(None, ["moved"], 2, "all")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:]] == [*RIVALS, "DaDiL", "FedDaDiL"]
    assert all(len(line.split()) == 1 + 5 + 3 for line in lines[-2:])


def test_real_digits_gain_from_the_dictionary(data_path):
    X, y, domain = load(data_path("dadil_digits3_64.npz").parent, "digits3_64")
    hidden, own = np.where(domain == 2, -1, y), domain == 2
    plain = SourceOnly().fit(X, hidden, domain)
    model = DaDiL(random_state=0).fit(X, hidden, domain)
    gain = model.score(X[own], y[own]) - np.mean(plain.predict(X[own]) == y[own])
    assert gain > 0.08  # 68.9 against 54.7 per cent were seen
