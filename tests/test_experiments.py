"""The experiments on real clients: right optima, and no look at the test rows."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.svm import LinearSVC, LinearSVR

from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.demo import spread_evenly

FOLDER = Path(__file__).parents[1] / "bench" / "experiments"
if not FOLDER.exists():
    pytest.skip("bench is not beside the tests", allow_module_level=True)
sys.path.insert(0, str(FOLDER))

import arms  # noqa: E402
import real_clients  # noqa: E402
import real_sets  # noqa: E402
from choose import search  # noqa: E402
from ditto import personal_parts  # noqa: E402

SIZES = {"n_clients": 3, "n_samples": 30, "n_features": 5, "random_state": 0}


@pytest.fixture
def classes():
    X, y, clients = make_mtl_classification(**SIZES)
    return X, (y > 0).astype(int), clients


@pytest.fixture
def few_rows(classes):
    """Give a set small enough to run everything on."""
    return real_sets.RealSet("few", *classes, real_sets.ACCURACY)


def dual_optimum(X, sign, offset, C):
    """Solve min_v |v|^2 / 2 + C sum max(0, 1 - sign (offset + X v)) by its dual."""
    rows, margin = sign[:, None] * X, 1 - sign * offset

    def minus_dual(alpha):
        v = alpha @ rows
        return v @ v / 2 - margin @ alpha, rows @ v - margin

    found = minimize(
        minus_dual,
        np.zeros(len(X)),
        jac=True,
        bounds=[(0, C)] * len(X),
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    )
    return found.x @ rows


def test_ditto_of_classes_is_the_optimum_of_each_client(classes):
    X, y, clients = classes
    w = np.random.default_rng(1).normal(size=(1, X.shape[1] + 1))
    names, v, gap = personal_parts(
        w, X, y, clients, C=0.3, loss="hinge", bias=2.0, tol=1e-10
    )
    assert gap <= 1e-10
    rows = np.column_stack([X, np.full(len(X), 2.0)])
    for name, own_v in zip(names, v, strict=True):
        own = clients == name
        expected = dual_optimum(rows[own], 2.0 * y[own] - 1, rows[own] @ w[0], 0.3)
        assert_allclose(own_v[0], expected, rtol=1e-4, atol=1e-5)


def test_ditto_of_targets_is_liblinear_on_residuals():
    X, y, clients = make_mtl_regression(**SIZES)
    y = y / y.std()
    w = np.random.default_rng(1).normal(size=(1, X.shape[1]))
    names, v, _ = personal_parts(
        *(w, X, y, clients),
        **{"C": 0.2, "loss": "epsilon_insensitive", "epsilon": 0.1, "tol": 1e-10},
    )
    for name, own_v in zip(names, v, strict=True):
        own = clients == name
        oracle = LinearSVR(
            C=0.2, epsilon=0.1, fit_intercept=False, tol=1e-8, max_iter=10**6
        ).fit(X[own], y[own] - X[own] @ w[0])
        assert_allclose(own_v[0], oracle.coef_, rtol=1e-4, atol=1e-5)


def test_global_and_local_are_liblinear(classes):
    X, y, clients = classes
    setting = {"C": 0.5, "intercept_scaling": 3.0, "class_weight": "balanced"}
    oracle = LinearSVC(
        C=0.5,
        loss="hinge",
        intercept_scaling=3.0,
        class_weight="balanced",
        tol=1e-8,
        max_iter=10**6,
    )
    weights, _ = arms.one_svm(0.5, setting, X, y, False, 1e-9)
    oracle.fit(X, y)
    assert_allclose(weights[0, :-1], oracle.coef_[0], rtol=1e-4, atol=1e-5)
    assert_allclose(weights[0, -1], oracle.intercept_[0], rtol=1e-4, atol=1e-5)

    setting["class_weight"] = None
    oracle.set_params(class_weight=None)
    score, _ = arms.fit_local(setting, X, y, clients, False, 1e-9)
    for client in np.unique(clients):
        own = clients == client
        expected = oracle.fit(X[own], y[own]).decision_function(X[own])
        assert_allclose(score(X[own], clients[own]), expected, rtol=1e-4, atol=1e-4)


def test_of_a_single_client_all_arms_but_ditto_make_the_same(classes):
    X, y, _ = classes
    clients = np.zeros(len(X), int)
    setting = {"C": 0.5, "C2": 7.0, "intercept_scaling": 1.0, "class_weight": None}
    scores = [
        arms.FITS[arm](setting, X, y, clients, False, 1e-9)[0](X, clients)
        for arm in (arms.GLOBAL, arms.LOCAL, arms.MULTI)
    ]
    assert_allclose(scores[1], scores[0], rtol=1e-3, atol=1e-3)
    assert_allclose(scores[2], scores[0], rtol=1e-3, atol=1e-3)


def test_a_class_that_a_client_never_saw_is_never_its_local_answer():
    rng = np.random.default_rng(0)
    X, y, clients = rng.normal(size=(60, 4)), np.arange(60) % 3, np.repeat([5, 9], 30)
    y[(clients == 9) & (y == 2)] = 0
    setting = {"C": 1.0, "intercept_scaling": 1.0, "class_weight": None}
    score, _ = arms.fit_local(setting, X, y, clients, False, 1e-3)
    answers = real_sets.labels(score(X, clients))
    assert 2 in answers[clients == 5]
    assert 2 not in answers[clients == 9]


@pytest.mark.parametrize("arm", arms.ARMS)
def test_rows_of_a_test_part_touch_nothing_but_the_score(few_rows, arm):
    part = spread_evenly(few_rows.cells, real_clients.N_PARTS, np.random.default_rng(0))
    test = part == 0
    other_y = np.where(test, 1 - few_rows.y, few_rows.y)
    other_X = np.where(test[:, None], 1e3, few_rows.X)
    results = [
        real_clients.run_split(data, arm, part, 0, real_clients.QUICK)
        for data in (
            few_rows,
            replace(few_rows, y=other_y),
            replace(few_rows, X=other_X),
        )
    ]
    kept = [{k: r[k] for k in ("cv", "setting", "n_tried", "gap")} for r in results]
    assert kept[0] == kept[1] == kept[2]
    assert_allclose(results[1]["value"], 100 - results[0]["value"])


def test_search_climbs_a_hill_and_tries_nothing_twice():
    tried = []

    def score(setting):
        tried.append(tuple(setting.values()))
        return -((setting["a"] - 3) ** 2) - (setting["b"] - setting["a"]) ** 2

    axes = {"a": tuple(range(6)), "b": tuple(range(6))}
    setting, best, n_tried = search(axes, {"a": 0, "b": 3}, score)
    assert (setting, best) == ({"a": 3, "b": 3}, 0)
    assert len(tried) == len(set(tried)) == n_tried < 36


def test_quick_run_on_the_bundled_set_resumes_from_its_file(
    tmp_path, capsys, monkeypatch
):
    out = tmp_path / "results.json"
    command = ["--sets", "watch", "--splits", "1", "--quick", "--out", str(out)]
    real_clients.main(command)
    printed = capsys.readouterr().out
    results = json.loads(out.read_text())["watch"]
    assert set(results) == set(arms.ARMS)
    assert all(len(splits) == 1 for splits in results.values())
    for arm in arms.ARMS:
        assert f"{results[arm][0]['value']:.3f}" in printed
    assert "Seen: multi-task is" in printed

    monkeypatch.setattr(real_clients, "run_split", None)  # would raise if called
    real_clients.main(command)
    assert "Seen: multi-task is" in capsys.readouterr().out


def test_delays_say_what_they_saw(capsys):
    import delays

    delays.main(["--clients", "3", "--waits", "1", "--seeds", "1"])
    _, row, *verdict = capsys.readouterr().out.splitlines()
    K, wait, multi, *_, central, _, time, central_time, ratio, _, _, reached = (
        row.split()
    )
    assert (K, wait, reached) == ("3", "1", "1/1")
    assert_allclose(float(time) / float(central_time), float(ratio), rtol=0.1)
    near = abs(float(multi) - float(central)) <= delays.NEAR
    assert verdict[0].endswith(f"in {int(near)} of 1 lines.")
