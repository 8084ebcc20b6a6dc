"""Kernel passes and whole fits of the multi-task SVM, side by side with rivals."""

import mtl_svm_rivals as rivals
import numpy as np
import problems
import pytest
from sklearn.preprocessing import normalize

from fedcore import FedMTLSVC
from fedcore.datasets import make_mtl_classification

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.mark.parametrize("rule", ["sequential", "envelope", "line_search", "safe"])
def bench_fit_by_rule(benchmark, rule):
    X, y, clients = make_mtl_classification(**problems.SMALL, random_state=0)
    benchmark.group = "mtl-svm fit, 30 x 100 x 50, gap 1e-3"
    model = FedMTLSVC(aggregation=rule, random_state=0)
    benchmark(model.fit, normalize(X), y, clients)
    benchmark.extra_info["rounds"] = model.n_rounds_
    assert model.dual_gap_ <= model.tol


@pytest.mark.parametrize("problem", ["dense-unit", "sparse-unit"])
@pytest.mark.parametrize("who", ["ours", "liblinear"])
def bench_raw_rows_to_models(benchmark, problem, who):
    X, y, clients = problems.classification(problem)
    benchmark.group = f"mtl-svm, {problem}, raw rows to w and v_k"
    model = FedMTLSVC(fit_intercept=False, random_state=0).fit(X, y, clients)
    if who == "ours":
        benchmark.pedantic(model.fit, (X, y, clients), rounds=5)
        return
    n_clients = len(np.unique(clients))
    A = rivals.augment(X, clients, n_clients, 1.0)
    tol = rivals.loosest_tolerance(A, y, 1.0, model.objective_)
    benchmark.extra_info["tol"] = tol

    def augment_and_fit():
        A = rivals.augment(X, clients, n_clients, 1.0)
        return rivals.liblinear(A, y, 1.0, tol)

    benchmark.pedantic(augment_and_fit, rounds=3)
