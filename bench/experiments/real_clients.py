"""Global, local, multi-task and Ditto on the data of real clients.

python bench/experiments/real_clients.py --data DIR --out results.json

Rows of each client (in classification of each client and class) are dealt out into
five parts; each part tests once what the other four have trained. Each arm chooses its
own setting by three-fold cross-validation inside the training rows (choose.py), by the
figure that is reported. Finished fits are kept in the results file: run again, go on.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from time import perf_counter

import arms
import numpy as np
from choose import search
from real_sets import SETS, RealSet
from threadpoolctl import threadpool_limits

from fedcore.demo import spread_evenly

N_PARTS, N_FOLDS = 5, 3
# A fit of six classes takes seconds: choose by one of the folds, leave out large C.
TRIED_FOLDS = {"wisdm": 1}
MOST_C = {"wisdm": 3.0}


def run_split(data: RealSet, arm: str, part: np.ndarray, split: int, limits) -> dict:
    """Choose a setting on the training rows, fit it there, test it on the rest."""
    begun = perf_counter()
    train = part != split
    chosen, cv, n_tried = choose(data, arm, train, split, limits)
    score, gap = fit(data, arm, chosen, train, arms.EXACT)
    value = measure(data, score, ~train)
    return {
        "value": value,
        "cv": cv,
        "setting": chosen,
        "n_tried": n_tried,
        "gap": gap,
        "seconds": perf_counter() - begun,
    }


def choose(data: RealSet, arm: str, train: np.ndarray, split: int, limits):
    """Find the arm's setting by cross-validation over the rows in the mask `train`."""
    rows = np.flatnonzero(train)
    rng = np.random.default_rng([split, N_FOLDS])
    folds = np.full(len(train), -1)
    folds[rows] = spread_evenly(data.cells[rows], N_FOLDS, rng)

    def mean_score(setting):
        values = []
        for fold in range(TRIED_FOLDS.get(data.name, N_FOLDS)):
            score, _ = fit(data, arm, setting, train & (folds != fold), arms.ROUGH)
            values.append(measure(data, score, folds == fold))
        return data.metric.sign * float(np.mean(values))

    axes = axes_of(data, arm)
    first = arms.first_setting(arm, data.regression)
    if limits:
        axes = {name: limits.get(name, values) for name, values in axes.items()}
        first = {name: values[0] for name, values in axes.items()}
    chosen, best, n_tried = search(axes, first, mean_score)
    return chosen, data.metric.sign * best, n_tried


def axes_of(data: RealSet, arm: str) -> dict[str, tuple]:
    """Name what the arm chooses on this set, and from which values."""
    most = MOST_C.get(data.name, np.inf)
    return {
        name: tuple(v for v in values if v <= most)
        if name in ("C", "C_own")
        else values
        for name, values in arms.axes(arm, data.regression).items()
    }


def fit(data: RealSet, arm: str, setting: dict, rows: np.ndarray, tol: float):
    """Fit an arm to the rows in a mask."""
    parts = data.X[rows], data.y[rows], data.clients[rows]
    return arms.fit(arm, setting, *parts, regression=data.regression, tol=tol)


def measure(data: RealSet, score, rows: np.ndarray) -> float:
    """Score the rows in a mask, by the metric of the set."""
    scores = score(data.X[rows], data.clients[rows])
    return float(data.metric.measure(data.y[rows], scores, data.clients[rows]))


def report(data: RealSet, results: dict[str, list[dict]]):
    """Write the table of one set and what it says."""
    n_clients = len(np.unique(data.clients))
    yield f"{data.name}: {len(data.y)} rows, {n_clients} clients; {data.metric.name}"
    values = {arm: np.array([r["value"] for r in results[arm]]) for arm in results}
    multi = values[arms.MULTI]
    yield "arm         mean +- sd          multi-task ahead by +- se   worst gap  tried"
    for arm, v in values.items():
        ahead = ""
        if arm != arms.MULTI:
            mean, se = paired(data.metric.sign * (multi - v))
            ahead = f"{mean:+.3f} +- {se:.3f}"
        gap = max(r["gap"] for r in results[arm])
        tried = np.mean([r["n_tried"] for r in results[arm]])
        yield (
            f"{arm:10}  {v.mean():7.3f} +- {spread(v):<6.3f}  {ahead:>26}  "
            f"{gap:9.1e}  {tried:5.0f}"
        )
    yield verdict(data, values)
    yield ""


def paired(differences: np.ndarray) -> tuple[float, float]:
    """Mean of paired differences and its standard error."""
    return differences.mean(), spread(differences) / np.sqrt(len(differences))


def spread(values: np.ndarray) -> float:
    """Give the standard deviation; 0 of a single value."""
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def verdict(data: RealSet, values: dict[str, np.ndarray]) -> str:
    """Say where multi-task stands to the best other arm."""
    sign, multi = data.metric.sign, values[arms.MULTI]
    others = {arm: v for arm, v in values.items() if arm != arms.MULTI}
    best = max(others, key=lambda arm: sign * others[arm].mean())
    mean, se = paired(sign * (multi - others[best]))
    if mean > 2 * se:
        word = f"ahead of the best other arm ({best}) by more than two standard errors"
    elif mean >= -se:
        word = f"not below the best other arm ({best}) by more than a standard error"
    else:
        word = f"below the best other arm ({best}) by more than a standard error"
    return f"Seen: multi-task is {word} ({mean:+.3f} +- {se:.3f})."


def edges(data: RealSet, results: dict[str, list[dict]]):
    """Name choices that lie at the end of their axis: the best may be beyond."""
    for arm, splits in results.items():
        for name, values in axes_of(data, arm).items():
            ends = {values[0], values[-1]} if len(values) > 3 else set()
            hits = sum(r["setting"][name] in ends for r in splits)
            if hits:
                yield f"  {data.name}, {arm}: {name} at an end in {hits} splits"


QUICK = {"C": (0.1, 1.0), "C2": (1.0, 10.0), "C_own": (0.01, 0.1)}
QUICK |= {"intercept_scaling": (1.0,), "class_weight": (None,), "epsilon": (0.1,)}


def main(argv=None):
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    folder = os.environ.get("FEDCORE_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(folder), metavar="DIR")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--arms", nargs="+", choices=arms.ARMS, default=arms.ARMS)
    parser.add_argument("--splits", type=int, default=N_PARTS, choices=range(1, 6))
    parser.add_argument("--out", type=Path, help="results file (JSON), kept up to date")
    parser.add_argument("--quick", action="store_true", help="few candidates")
    arguments = parser.parse_args(argv)
    limits = QUICK if arguments.quick else {}
    results = {}
    if arguments.out and arguments.out.exists():
        results = json.loads(arguments.out.read_text())
    for name in arguments.sets:
        data = SETS[name](arguments.data)
        part = spread_evenly(data.cells, N_PARTS, np.random.default_rng(0))
        done = results.setdefault(name, {})
        for split in range(arguments.splits):
            for arm in arguments.arms:
                of_arm = done.setdefault(arm, [])
                if len(of_arm) > split:
                    continue
                with threadpool_limits(1):
                    of_arm.append(run_split(data, arm, part, split, limits))
                print(progress(name, split, arm, of_arm[-1]), flush=True)
                if arguments.out:
                    arguments.out.write_text(json.dumps(results, indent=1))
    for name in arguments.sets:
        if set(arguments.arms) == set(arms.ARMS):
            data = SETS[name](arguments.data)
            shown = {arm: results[name][arm] for arm in arms.ARMS}
            print("\n".join(report(data, shown)))
            print("\n".join(edges(data, shown)))


def progress(name: str, split: int, arm: str, result: dict) -> str:
    """Describe one finished fit in a line."""
    setting = ", ".join(f"{k}={v}" for k, v in result["setting"].items())
    return (
        f"{name} {split} {arm:10} {result['value']:.3f} (cv {result['cv']:.3f}, "
        f"{result['n_tried']} tried, gap {result['gap']:.0e}, "
        f"{result['seconds']:.0f} s): {setting}"
    )


if __name__ == "__main__":
    main()
