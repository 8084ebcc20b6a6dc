"""Each domain in turn without labels: dictionaries, and what else could label it.

    python bench/experiments/domain_adaptation.py accuracy --data DIR [--sets NAME ...]
    python bench/experiments/domain_adaptation.py drift --data DIR
    python bench/experiments/domain_adaptation.py bytes --data DIR

Defaults everywhere; no arm sees a label of the target.
"""

import argparse
import sys
import warnings
from pathlib import Path
from time import perf_counter

import numpy as np
from adaptation_sets import SETS, load
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

sys.path.insert(0, str(Path(__file__).parents[1]))

from adaptation_rivals import RIVALS

from fedcore import DaDiL, FedDaDiL

RESNET_50 = 25_557_032 * 4  # bytes of its weights in float32
EPOCHS = (1, 5, 10)
DICTIONARIES = {"DaDiL": DaDiL(), "FedDaDiL": FedDaDiL()}


def dictionary(model, X, y, domain, target, seed=0):
    """Fit; give accuracy by R and E, agreement and source score, in per cent."""
    hidden = np.where(domain == target, -1, y)
    fitted = clone(model).set_params(random_state=seed).fit(X, hidden, domain)
    own = domain == target
    R = fitted.score(X[own], y[own])
    E = fitted.set_params(inference="ensemble").score(X[own], y[own])
    scores = fitted.agreement_, fitted.source_score_
    return 100 * np.array([R, E, *scores]), fitted


def rival(cls, X, y, domain, target):
    """Accuracy of a rival, and that on sources that did not train, in per cent."""
    hidden, own = np.where(domain == target, -1, y), domain == target
    fitted = cls().fit(X, hidden, domain)
    return 100 * np.mean(fitted.predict(X[own]) == y[own]), 100 * fitted.held_out


def accuracy(folder, names, seeds, arms):
    """Print a table a set: means over targets and, of the dictionaries, over seeds."""
    head = (
        f"{'arm':16}{'mean':>7}{'sd':>5}{'E':>7}{'agree':>7}{'sources':>9}  by target"
    )
    for name in names:
        X, y, domain = load(folder, name)
        targets = np.unique(domain)
        print(f"{name}, {len(targets)} targets\n{head}", flush=True)
        for label, cls in RIVALS.items():
            each = np.array([rival(cls, X, y, domain, t) for t in targets])
            mean, held_out = each.mean(axis=0)
            line(label, mean, each[:, 0], others=(np.nan, np.nan, held_out))
        for label, model in DICTIONARIES.items() if arms == "all" else ():
            runs = np.array(
                [
                    [dictionary(model, X, y, domain, t, s)[0] for t in targets]
                    for s in range(seeds)
                ]
            )
            R, *others = runs.mean(axis=(0, 1))
            line(label, R, runs[..., 0].mean(axis=0), runs[..., 0], others)


def line(label, mean, each, runs=None, others=(np.nan, np.nan, np.nan)):
    """Print an arm: mean over targets, its deviation over seeds, and each target."""
    several = runs is not None and len(runs) > 1
    sd = f"{runs.mean(axis=1).std(ddof=1):5.1f}" if several else " " * 5
    cells = [" " if np.isnan(x) else f"{x:.1f}" for x in others]
    scores = "".join(f"{x:>{w}}" for x, w in zip(cells, (7, 7, 9), strict=True))
    targets = " ".join(f"{x:5.1f}" for x in each)
    print(f"{label:16}{mean:7.1f}{sd}{scores:23}  {targets}", flush=True)


def drift(folder, names, rounds=40):
    """Print R by local epochs, and loss and drift as the rounds go by."""
    for name in names:
        X, y, domain = load(folder, name)
        target = int(domain.max())
        figures, central = dictionary(DaDiL(), X, y, domain, target)
        print(
            f"{name}, target {target}: centralised R {figures[0]:.1f}, objective "
            f"{central.objective_:.1f}"
        )
        for E in EPOCHS:
            model = FedDaDiL(local_epochs=E, max_rounds=rounds)
            figures, fitted = dictionary(model, X, y, domain, target)
            told = [f"E = {E:<3} R {figures[0]:5.1f}"]
            for column in ("objective", "drift"):
                values = fitted.history_[column]
                marks = [0, rounds // 4 - 1, rounds // 2 - 1, rounds - 1]
                shown = " ".join(f"{values[mark]:8.2f}" for mark in marks)
                told.append(f"{column} {shown}")
            print("   ".join(told), flush=True)


def sizes(folder, names):
    """Print what a client sends in a round against its data and a network."""
    print(f"{'set':22}{'round kB':>10}{'data kB':>10}{'ResNet-50 kB':>14}")
    for name in names:
        X, y, domain = load(folder, name)
        model = FedDaDiL(max_rounds=2, random_state=0)
        history = model.fit(X, y, domain).history_
        n = len(model.clients_)
        print(
            f"{name:22}{history['bytes_up'][1] / n / 1e3:10.0f}"
            f"{8 * X.size / n / 1e3:10.0f}{RESNET_50 / 1e3:14.0f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=("accuracy", "drift", "bytes"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--arms", choices=("all", "rivals"), default="all")
    args = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    begun = perf_counter()
    if args.what == "accuracy":
        accuracy(args.data, args.sets, args.seeds, args.arms)
    elif args.what == "drift":
        drift(args.data, args.sets)
    else:
        sizes(args.data, args.sets)
    print(f"{perf_counter() - begun:.0f} s")


if __name__ == "__main__":
    main()
