"""Tune each method on the training rows, test it on the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice, product
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from ...datasets import load_clients, load_watch, make_mtl_classification
from ...federation import LocalEngine
from ...mtl_svm import FedMTLSVC
from ..chapter import FAILS, HOLDS, Chapter, Claim, MissingSet, Options, Table
from ..splits import marked_rows, mean_and_spread
from . import methods
from .losses import GRADIENTS

RATES = (0.3, 1.0, 3.0, 10.0)
PULLS = (0.01, 0.1, 1.0)
CS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
EVERY, MOST_ROUNDS = 10, 200  # the number of rounds is tuned too
SETS = {"wisdm": ("graph_wisdm.npz", "WISDM 1.1 of the WISDM laboratory")}
OURS = "multi-task SVM"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a fitted method predicts with, and what it sent."""

    predict: Callable[[np.ndarray, np.ndarray], np.ndarray]
    rounds: int
    kb_up: float  # of one client


@dataclass(frozen=True, slots=True)
class Method:
    """A name, its grid, and from a setting to outcomes as rounds go on."""

    name: str
    grid: dict[str, tuple]
    fit: Callable[..., Iterator[Outcome]]


def measurements(options: Options) -> dict[str, Callable[[], Any]]:
    """Name what is measured."""
    splits = range(2 if options.quick else 5)
    sets: dict[str, Callable] = {"watch": load_watch, "simulated": _simulated}
    for name, (file, _) in SETS.items():
        path = options.file(file)
        if path is not None and not options.quick:
            sets[name] = partial(_whole_rows, path)
    return {
        f"{name} {loss} {method.name} {split}": partial(
            measure, load, loss, method, split
        )
        for name, load in sets.items()
        for loss in GRADIENTS
        for method in all_methods(loss)
        for split in splits
    }


def _simulated():
    return make_mtl_classification(20, 120, 30, flip_y=0.05, random_state=0)


def _whole_rows(path):
    X, y, clients = load_clients(path)
    whole = ~np.isnan(X).any(axis=1)
    return X[whole], y[whole], clients[whole]


def all_methods(loss: str) -> list[Method]:
    """List the methods for a loss."""
    steps = {
        "FedProx": (methods.fedprox, {"rate": RATES, "mu": PULLS}),
        "SCAFFOLD": (methods.scaffold, {"rate": RATES}),
        "Ditto": (methods.ditto, {"rate": RATES, "pull": PULLS}),
        "MR-MTL": (methods.mr_mtl, {"rate": RATES, "pull": PULLS}),
        "L2GD": (methods.l2gd, {"rate": RATES, "pull": PULLS}),
    }
    listed = [
        Method("global", {"C": CS}, partial(_pooled, loss)),
        Method("local", {"C": CS}, partial(_alone, loss)),
        *(
            Method(name, grid, partial(_stepwise, rounds, loss))
            for name, (rounds, grid) in steps.items()
        ),
    ]
    if loss == "hinge":
        listed += [
            Method("CoCoA+", {"C": CS}, _cocoa),
            Method(OURS, {"C": CS[1::3], "C2": (0.3, 1, 3)}, _multi_task),
        ]
    return listed


def measure(load, loss: str, method: Method, split: int) -> dict[str, Any]:
    """Tune and test one method in one split."""
    X, y, clients = load()
    classes, y = np.unique(y, return_inverse=True)
    owner = np.unique(clients, return_inverse=True)[1]
    cells = owner * len(classes) + y
    cells = np.where(np.bincount(cells)[cells] < 4, -1, cells)  # too few to be dealt
    train = marked_rows(cells, 0.25, split)
    inner = np.zeros(len(y), bool)
    rows = np.flatnonzero(train)
    inner[rows[marked_rows(owner[rows], 0.67, split)]] = True
    X = _scaled(X, train)
    data = X, y, owner
    best, tried = (-1.0, {}, 0), 0
    for setting in _settings(method.grid):
        tried += 1
        fitted = method.fit(*(part[inner] for part in data), **setting)
        for outcome in fitted:
            score = _accuracy(outcome, data, train & ~inner)
            best = max(best, (score, setting, outcome.rounds), key=lambda b: b[0])
    _, setting, rounds = best
    for outcome in method.fit(*(part[train] for part in data), **setting):
        if outcome.rounds >= rounds:
            break  # the others have ended by themselves
    return {
        "accuracy": 100 * _accuracy(outcome, data, ~train),
        "rounds": outcome.rounds,
        "kb": outcome.kb_up,
        "tuned": ", ".join(method.grid) + (", rounds" if outcome.kb_up else ""),
        "tried": tried,
    }


def _settings(grid: dict[str, tuple]) -> Iterator[dict]:
    for values in product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _scaled(X, train):
    """Standardise by the training rows, and add a constant; rows of norm near 1."""
    X = np.asarray(X, float)
    spread = X[train].std(axis=0)
    X = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return np.column_stack([X, np.ones(len(X))]) / np.sqrt(X.shape[1] + 1)


def _accuracy(outcome: Outcome, data, rows) -> float:
    X, y, owner = (part[rows] for part in data)
    return float(np.mean(outcome.predict(X, owner) == y))


def _stepwise(rounds, loss, X, y, owner, **setting) -> Iterator[Outcome]:
    n_classes = int(y.max()) + 1
    sign = np.where(np.eye(n_classes, dtype=bool)[y], 1.0, -1.0)
    parts = [np.flatnonzero(owner == k) for k in range(owner.max() + 1)]
    clients = [(X[part], sign[part]) for part in parts]
    sent = 8e-3 * X.shape[1] * n_classes * (2 if rounds is methods.scaffold else 1)
    course = rounds(clients, GRADIENTS[loss], **setting)
    with np.errstate(over="ignore", invalid="ignore"):  # too long a step diverges
        for n, models in enumerate(islice(course, MOST_ROUNDS), start=1):
            if not np.isfinite(models).all():
                return
            if n % EVERY == 0:
                yield Outcome(partial(_predict, models), n, n * sent)


def _predict(models, X, owner):
    return np.einsum("nd,ndc->nc", X, models[owner]).argmax(axis=1)


def _classifier(loss, C):
    # In scikit-learn's objective C multiplies a sum; the rows' norms are near 1.
    if loss == "hinge":
        return LinearSVC(C=10 * C, loss="hinge", fit_intercept=False, max_iter=10_000)
    return LogisticRegression(C=100 * C, fit_intercept=False, max_iter=2000)


def _pooled(loss, X, y, owner, C) -> Iterator[Outcome]:
    model = _classifier(loss, C).fit(X, y)
    yield Outcome(lambda X, owner: model.predict(X), 0, 0.0)


def _alone(loss, X, y, owner, C) -> Iterator[Outcome]:
    own: dict[int, Any] = {}
    for k in np.unique(owner):
        rows = owner == k
        one_class = len(np.unique(y[rows])) == 1
        own[k] = (
            int(y[rows][0]) if one_class else _classifier(loss, C).fit(X[rows], y[rows])
        )

    def predict(X, owner):
        label = np.empty(len(X), int)
        for k, model in own.items():
            rows = owner == k
            if rows.any():
                label[rows] = (
                    model if isinstance(model, int) else model.predict(X[rows])
                )
        return label

    yield Outcome(predict, 0, 0.0)


def _fedcore_svm(X, y, owner, **how) -> Outcome:
    model = FedMTLSVC(
        engine=LocalEngine(), fit_intercept=False, random_state=0, **how
    ).fit(X, y, owner)
    sent = model.history_["bytes_up"].sum() / len(model.clients_) / 1e3
    return Outcome(model.predict, model.n_rounds_, sent)


def _cocoa(X, y, owner, C) -> Iterator[Outcome]:
    yield _fedcore_svm(
        *(X, y, owner), C1=10 * C, C2=np.inf, aggregation="safe", local_epochs=20
    )


def _multi_task(X, y, owner, C, C2) -> Iterator[Outcome]:
    yield _fedcore_svm(X, y, owner, C1=10 * C, C2=C2)


def chapter(found: dict[str, Any], options: Options) -> Chapter:
    """Lay the methods side by side."""
    tables = _grouped(found)
    return Chapter(
        title="Rivals",
        paper=(
            "Methods of other papers on the same rows, each tuned on the training rows "
            "alone, the number of rounds included."
        ),
        claims=[
            _ahead(name, runs)
            for (name, loss), runs in tables.items()
            if loss == "hinge"
        ],
        tables=[
            Table(
                f"{name}, {loss} loss",
                ("method", "accuracy %", "rounds", "kB up a client", "tuned", "tried"),
                [
                    (
                        method,
                        mean_and_spread([run["accuracy"] for run in of_method]),
                        float(np.mean([run["rounds"] for run in of_method])),
                        float(np.mean([run["kb"] for run in of_method])),
                        of_method[0]["tuned"],
                        of_method[0]["tried"],
                    )
                    for method, of_method in runs.items()
                ],
                "A quarter of the rows trains. Global and local send nothing here: "
                "they are solved where the rows are pooled, or stay.",
            )
            for (name, loss), runs in tables.items()
        ],
        missing=[
            MissingSet(name, how)
            for name, (_, how) in SETS.items()
            if not any(key.startswith(name) for key in found)
        ],
    )


def _grouped(found):
    tables: dict[tuple[str, str], dict[str, list[dict]]] = {}
    for key, run in found.items():
        name, loss, method = key.rsplit(" ", 1)[0].split(" ", 2)
        tables.setdefault((name, loss), {}).setdefault(method, []).append(run)
    return tables


def _ahead(name, runs):
    means = {m: np.mean([run["accuracy"] for run in of]) for m, of in runs.items()}
    ours = means.pop(OURS)
    best = max(means, key=means.get)
    return Claim(
        f"fedcore's own: on {name} the multi-task SVM is as accurate as the best rival "
        f"of the same loss",
        "no paper's",
        f"{ours:.1f} % against {means[best]:.1f} % ({best})",
        HOLDS if ours >= means[best] - 0.5 else FAILS,
        ours / means[best],
    )
