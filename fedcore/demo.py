"""The demo: one model for all, one for each, or both, on real people's data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from . import (
    demo_adaptation,
    demo_graph,
    demo_sparse,
    demo_stragglers,
    demo_summary,
)
from .datasets import WATCH_EXERCISES, load_watch
from .federation import LocalEngine
from .mtl_svm import FedMTLSVC

ARMS = GLOBAL, LOCAL, MULTI = "global only", "local only", "multi-task"
BY_TURNS = "multi-task by turns"
HEAD = (
    "arm            error %      worst person %  rounds  kB up  kB down"
    "  relative gap  time s"
)
N_PARTS = 5  # the first chooses C1 and C2, each other one trains once
N_FOLDS = 3

# (C1, C2): nine for each arm, so that none is chosen from more than another.
ONE_WEIGHT = [(c, np.inf) for c in (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)]
CANDIDATES = {
    GLOBAL: ONE_WEIGHT,
    LOCAL: ONE_WEIGHT,
    MULTI: list(product((0.1, 0.3, 1), (0.3, 1, 3))),
}

# Turns on one machine; visits are long because a person has some twenty rows only.
TURNS = {"aggregation": "sequential", "local_epochs": 10}
ROUGH = {**TURNS, "tol": 1e-2}  # enough to choose by
EXACT = {"tol": 1e-3, "max_rounds": 5000}
HOW = {
    # With C2 = inf there is nothing smooth for "envelope" to work on.
    GLOBAL: {"aggregation": "sequential"},
    LOCAL: TURNS,
    MULTI: {"engine": LocalEngine()},
    BY_TURNS: TURNS,
}


@dataclass(frozen=True, slots=True)
class Account:
    """What one arm did in one split, or on average.

    error, by_person : test errors in per cent, of all rows and of each person's
    kb_up, kb_down : what one client sent and received, in kB
    seconds : time of the fit
    """

    arm: str
    error: float
    by_person: np.ndarray
    rounds: float
    kb_up: float
    kb_down: float
    gap: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Fitted:
    """The models of one arm: a single one under None, or one a person."""

    models: dict[Any, FedMTLSVC]
    seconds: float

    def predict(self, X: np.ndarray, clients: np.ndarray) -> np.ndarray:
        if None in self.models:
            model = self.models[None]
            return model.predict(X, clients if len(model.clients_) > 1 else None)
        labels = np.empty(len(X), np.int64)
        for client in np.unique(clients):
            own = clients == client
            labels[own] = self.models[client].predict(X[own])
        return labels

    def account(self, arm, X, y, clients) -> Account:
        """Test the models; those of single persons cost no message."""
        wrong = self.predict(X, clients) != y
        names, owner = np.unique(clients, return_inverse=True)
        model = self.models.get(None)
        up, down = (
            0 if model is None else model.history_[way].sum() / len(names) / 1e3
            for way in ("bytes_up", "bytes_down")
        )
        return Account(
            arm=arm,
            error=100 * wrong.mean(),
            by_person=100 * np.bincount(owner, wrong) / np.bincount(owner),
            rounds=0 if model is None else model.n_rounds_,
            kb_up=up,
            kb_down=down,
            gap=max(model.dual_gap_ for model in self.models.values()),
            seconds=self.seconds,
        )


def run(
    *,
    n_splits: int = N_PARTS - 1,
    n_jobs: int | None = None,
    seed: int = 0,
    report_file: Path | None = None,
    say: Callable[[str], None] = print,
) -> list[list[Account]]:
    """Show the four methods on bundled data, and print what was seen.

    The multi-task SVM comes first, and at length.

    Parameters
    ----------
    n_splits : int, default=4
        Splits into training and test rows, 2 to 4.
    n_jobs : int, optional
        Threads, as in joblib.
    seed : int, default=0
        Draws the splits and orders the rows in the fits.
    report_file : Path, optional
        For the last table, as HTML.
    say : callable, default=print
        Takes each line as it comes.

    Returns
    -------
    list of list of Account
        One list a split: global only, local only, multi-task, and multi-task again
        by turns on one machine.
    """
    X, y, clients = load_watch()
    rng = np.random.default_rng(seed)
    settings = {"n_jobs": n_jobs, "random_state": seed}
    cells = clients * len(WATCH_EXERCISES) + y
    part = spread_evenly(cells, N_PARTS, rng)
    first = part == 0
    say(
        f"{len(np.unique(clients))} people (the clients) do "
        f"{len(WATCH_EXERCISES)} exercises: {len(X)} rows of smart-watch data, "
        f"{X.shape[1]} features."
    )
    say(
        f"A fifth of the rows ({first.sum()}) chooses C1 and C2, by {N_FOLDS}-fold "
        f"cross-validation:"
    )
    folds = spread_evenly(cells[first], N_FOLDS, rng)
    chosen = {
        arm: choose(arm, X[first], y[first], clients[first], folds, settings, say)
        for arm in ARMS
    }
    say("Each of the other fifths trains once, and the rest tests:")
    splits = [
        compare(X, y, clients, part, split, chosen, settings, say)
        for split in range(1, n_splits + 1)
    ]
    for line in report(splits):
        say(line)
    train = part == 1
    model = FedMTLSVC(*chosen[MULTI], **EXACT, **settings)
    say(demo_stragglers.line(model, X[train], y[train], clients[train]))
    rest = {"n_jobs": n_jobs, "seed": seed, "say": say}
    sparse = demo_sparse.run(n_splits=n_splits, **rest)
    rows = demo_summary.rows(
        splits, sparse, demo_adaptation.run(**rest), demo_graph.run(**rest)
    )
    for line in demo_summary.table(rows):
        say(line)
    if report_file is not None:
        demo_summary.write_report(report_file, rows)
        say(f"The same table is in {report_file}.")
    return splits


def spread_evenly(
    cells: np.ndarray, n_parts: int, rng: np.random.Generator
) -> np.ndarray:
    """Deal the rows of each cell out to parts 0 .. n_parts - 1, in random order."""
    order = rng.permutation(len(cells))
    order = order[np.argsort(cells[order], kind="stable")]
    counts = np.bincount(cells)
    place = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)
    # Cells begin anywhere, or part 0 would get every remainder.
    place += np.repeat(rng.integers(n_parts, size=len(counts)), counts)
    part = np.empty(len(cells), np.int64)
    part[order] = place % n_parts
    return part


def choose(arm, X, y, clients, folds, settings, say) -> tuple[float, float]:
    """Find the (C1, C2) of least error in cross-validation; ties go to the first."""
    begun = perf_counter()
    errors = []
    for candidate in CANDIDATES[arm]:
        wrong = 0
        for fold in range(N_FOLDS):
            train, test = folds != fold, folds == fold
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                fitted = fit(
                    arm,
                    candidate,
                    X[train],
                    y[train],
                    clients[train],
                    pooled=True,
                    **ROUGH,
                    **settings,
                )
            predicted = fitted.predict(X[test], clients[test])
            wrong += np.count_nonzero(predicted != y[test])
        errors.append(wrong / len(y))
    best = int(np.argmin(errors))
    C1, C2 = CANDIDATES[arm][best]
    text = f"C1={C1:g}" + (f", C2={C2:g}" if arm == MULTI else "")
    say(
        f"  {arm:11}  {text:12}  error {100 * errors[best]:4.1f} %, best of "
        f"{len(errors)} ({perf_counter() - begun:.1f} s)"
    )
    return C1, C2


def fit(arm, candidate, X, y, clients, *, pooled=False, **settings) -> Fitted:
    """Fit one arm.

    `pooled` puts everybody's rows in one place where all share one model: the same
    optimum as the federation's, sooner.
    """
    estimator = FedMTLSVC(*candidate, **settings)
    begun = perf_counter()
    if arm == LOCAL:
        models = {
            client: clone(estimator).fit(X[clients == client], y[clients == client])
            for client in np.unique(clients)
        }
    else:
        together = None if pooled and arm == GLOBAL else clients
        models = {None: estimator.fit(X, y, together)}
    return Fitted(models, perf_counter() - begun)


def compare(X, y, clients, part, split, chosen, settings, say) -> list[Account]:
    """Fit all arms in one split and test them on the same rows."""
    begun = perf_counter()
    train, test = part == split, (part != split) & (part != 0)
    accounts = []
    for arm in (*ARMS, BY_TURNS):
        model = MULTI if arm == BY_TURNS else arm
        fitted = fit(
            model,
            chosen[model],
            X[train],
            y[train],
            clients[train],
            **HOW[arm],
            **EXACT,
            **settings,
        )
        accounts.append(fitted.account(arm, X[test], y[test], clients[test]))
    errors = ", ".join(f"{a.arm} {a.error:.1f} %" for a in accounts[: len(ARMS)])
    say(
        f"  split {split}: {train.sum()} rows train, {test.sum()} test; {errors} "
        f"({perf_counter() - begun:.1f} s)"
    )
    return accounts


def mean(accounts: Sequence[Account]) -> Account:
    """Average the splits of one arm; of the gaps, keep the worst."""
    means = {
        field: np.mean([getattr(a, field) for a in accounts], axis=0)
        for field in ("error", "by_person", "rounds", "kb_up", "kb_down", "seconds")
    }
    return Account(accounts[0].arm, gap=max(a.gap for a in accounts), **means)


def row(accounts: Sequence[Account]) -> str:
    """Write one arm's line of the table."""
    m, spread = mean(accounts), np.std([a.error for a in accounts], ddof=1)
    return (
        f"{m.arm:11}  {m.error:5.1f} +- {spread:<4.1f}  {m.by_person.max():14.1f}  "
        f"{m.rounds:6.0f}  {m.kb_up:5.0f}  {m.kb_down:7.0f}  {m.gap:12.1e}  "
        f"{m.seconds:6.2f}"
    )


def report(splits: list[list[Account]]) -> Iterator[str]:
    """Write the table, and in words what its figures say."""
    yield ""
    yield HEAD
    *arms, by_turns = zip(*splits, strict=True)
    for arm in arms:
        yield row(arm)
    m = mean(by_turns)
    yield ""
    yield (
        f"Mean +- standard deviation over {len(splits)} splits. kB: of one client, in "
        f"all rounds. Gap: the worst."
    )
    yield (
        f'Global only trains by turns ("sequential"), multi-task by "envelope"; by '
        f"turns on one machine multi-task takes {m.seconds:.2f} s (gap {m.gap:.1e}, "
        f"error {m.error:.1f} %)."
    )
    yield verdict([split[: len(ARMS)] for split in splits])


def verdict(splits: list[list[Account]]) -> str:
    """Say which arm erred least, and how surely."""
    arms = [mean(arm) for arm in zip(*splits, strict=True)]
    best, *others = sorted(arms, key=lambda a: a.error)
    against = " and ".join(f"{a.error:.1f} % ({a.arm})" for a in others)
    if best.error == others[0].error:
        return (
            f"Seen: no arm alone is best; {best.error:.1f} % ({best.arm}), {against}."
        )
    place = [a.arm for a in arms].index(best.arm)
    wins = sum(
        all(split[place].error < a.error for a in split if a.arm != best.arm)
        for split in splits
    )
    sentence = (
        f"Seen: {best.arm} errs least, {best.error:.1f} % of the test rows against "
        f"{against}; it is ahead of both in {wins} of {len(splits)} splits."
    )
    if best.arm != MULTI:
        return f"{sentence} Here multi-task learning did not help."
    return sentence
