"""Rounds, local passes and time to a relative gap of 1e-3, by aggregation rule.

python bench/rounds_mtl_svm.py [--task svc svr] [--rules all]

30 clients x 100 rows x 50 features. For "safe" and "line_search" the best of
local_epochs in {1, 5, 20, 100}, each stopped after 300 rounds.
"""

import argparse
import itertools
import warnings
from time import perf_counter

import problems
from sklearn.exceptions import ConvergenceWarning

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression

C1S, C2S = (0.1, 1.0, 10.0), (0.3, 1.0, 10.0, 100.0, 1000.0)
EPOCHS = (1, 5, 20, 100)
MOST = 300


def fit(task, rule, C1, C2, local_epochs="auto", max_rounds=MOST):
    """Fit one setting; return rounds (None: not reached), passes and seconds."""
    make = make_mtl_classification if task == "svc" else make_mtl_regression
    estimator = FedMTLSVC if task == "svc" else FedMTLSVR
    X, y, clients = make(**problems.SMALL, random_state=0)
    model = estimator(
        C1,
        C2,
        aggregation=rule,
        local_epochs=local_epochs,
        max_rounds=max_rounds,
        random_state=0,
    )
    start = perf_counter()
    model.fit(X, y, clients)
    seconds = perf_counter() - start
    reached = model.dual_gap_ <= model.tol
    return (model.n_rounds_ if reached else None), model.history_["passes"][-1], seconds


def best(task, rule, C1, C2):
    """Give the fewest rounds over local_epochs; rounds, passes, seconds, epochs."""
    results, most = [], MOST
    for epochs in EPOCHS:
        rounds, passes, seconds = fit(task, rule, C1, C2, epochs, most)
        if rounds is not None:
            results.append((rounds, passes, seconds, epochs))
            most = min(most, rounds)
    return min(results, default=(None, float("nan"), float("nan"), None))


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", nargs="+", default=["svc", "svr"])
    parser.add_argument("--rules", default="all", choices=["all", "envelope"])
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    rules = ["envelope"]
    if arguments.rules == "all":
        rules += ["sequential", "line_search", "safe", "sum"]
    print("task  C1     C2      " + "".join(f"{rule:<26}" for rule in rules))
    for task, C1, C2 in itertools.product(arguments.task, C1S, C2S):
        cells = []
        for rule in rules:
            if rule in ("line_search", "safe"):
                rounds, passes, seconds, epochs = best(task, rule, C1, C2)
                extra = f" e{epochs}"
            else:
                rounds, passes, seconds = fit(task, rule, C1, C2)
                extra = ""
            shown = f">{MOST}" if rounds is None else str(rounds)
            cells.append(f"{shown} ({passes:.0f} p, {1e3 * seconds:.0f} ms{extra})")
        print(f"{task:5} {C1:<6g} {C2:<7g} " + "".join(f"{c:<26}" for c in cells))


if __name__ == "__main__":
    main()
