"""The demo's section on sparse models: few coefficients, few bytes, what error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from .datasets import partition_dirichlet
from .iht import DistributedIHT, FedBestSubset, FedHT, FedIterHT
from .preprocessing import FedStandardScaler

N_CLIENTS = 10
SKEW = 0.3  # Dirichlet's: most clients have most of their rows from few classes
DENSE = "dense, pooled"
HEAD = "model           error %      non-zeros  rounds    kB up  kB down  time s"


@dataclass(frozen=True, slots=True)
class Task:
    """A set of scikit-learn's, and how many coefficients a model of it may have."""

    name: str
    load: Callable[..., Any]
    loss: str
    n_nonzero: int
    l2: float


TASKS = (
    Task("breast cancer", load_breast_cancer, "logistic", 6, 1e-3),
    Task("digits", load_digits, "softmax", 150, 1e-3),
)


@dataclass(frozen=True, slots=True)
class Line:
    """What one model did in one split.

    error : test error in per cent
    kb_up, kb_down : what one client sent and received, in kB
    """

    error: float
    n_nonzero: int
    rounds: int
    kb_up: float
    kb_down: float
    seconds: float


def models(
    task: Task, n_rows: int, settings: dict[str, Any]
) -> dict[str, ClassifierMixin]:
    """Give the models that are compared; all have the same ridge."""
    options = {"loss": task.loss, "l2": task.l2, **settings}
    dense = LogisticRegression(C=1 / (task.l2 * n_rows), max_iter=5000)
    sparse = {
        estimator.__name__: estimator(task.n_nonzero, **options)
        for estimator in (FedBestSubset, FedIterHT, FedHT, DistributedIHT)
    }
    return {DENSE: dense} | sparse


def compare(task: Task, seed: int, settings: dict[str, Any]) -> dict[str, Line]:
    """Fit and test all models on one split of the rows."""
    X, y = task.load(return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, stratify=y, random_state=seed)
    clients = partition_dirichlet(y, N_CLIENTS, alpha=SKEW, random_state=seed)
    scaler = FedStandardScaler().fit(X, clients=clients)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    lines = {}
    for name, model in models(task, len(y), settings).items():
        is_federated = name != DENSE
        begun = perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, clients) if is_federated else model.fit(X, y)
        seconds = perf_counter() - begun
        sent, received = X.nbytes, 0  # pooling sends the rows
        if is_federated:
            history = model.history_
            sent, received = history["bytes_up"].sum(), history["bytes_down"].sum()
        lines[name] = Line(
            error=100 * (1 - model.score(X_test, y_test)),
            n_nonzero=np.count_nonzero(model.coef_),
            rounds=model.n_rounds_ if is_federated else 0,
            kb_up=sent / N_CLIENTS / 1e3,
            kb_down=received / N_CLIENTS / 1e3,
            seconds=seconds,
        )
    return lines


def run(
    *,
    n_splits: int = 4,
    n_jobs: int | None = None,
    seed: int = 0,
    say: Callable[[str], None] = print,
) -> dict[str, list[dict[str, Line]]]:
    """Compare sparse models with a dense one on two sets, and print what was seen.

    Parameters
    ----------
    n_splits : int, default=4
        Splits into training and test rows, at least 2.
    n_jobs : int, optional
        Threads, as in joblib.
    seed : int, default=0
        Draws the splits, and who owns which rows.
    say : callable, default=print
        Takes each line as it comes.

    Returns
    -------
    dict of list of dict of Line
        By set, split and model.
    """
    seeds = np.random.default_rng(seed).integers(2**31, size=n_splits).tolist()
    results = {}
    for task in TASKS:
        splits = [
            compare(task, s, {"n_jobs": n_jobs, "random_state": s}) for s in seeds
        ]
        say("")
        say(
            f"Sparse models of {task.name}: {N_CLIENTS} clients with skewed classes, "
            f"at most {task.n_nonzero} coefficients."
        )
        say(HEAD)
        for name in splits[0]:
            say(row(name, [lines[name] for lines in splits]))
        results[task.name] = splits
    say("")
    say(
        f"Mean over {n_splits} splits, as above. kB of one client in all rounds; "
        f"{DENSE}: of its rows, which leave it. So small sets need no federation to "
        f"save bytes, but to keep rows where they are."
    )
    return results


def row(name: str, lines: list[Line]) -> str:
    """Write one model's line of the table."""
    errors = [line.error for line in lines]
    nonzero, rounds, up, down, seconds = np.mean(
        [(m.n_nonzero, m.rounds, m.kb_up, m.kb_down, m.seconds) for m in lines], axis=0
    )
    return (
        f"{name:14}  {np.mean(errors):4.1f} +- {np.std(errors, ddof=1):<4.1f}  "
        f"{nonzero:9.0f}  {rounds:6.0f}  {up:7.1f}  {down:7.1f}  {seconds:6.2f}"
    )
