"""The demo's part on groups: clients whose pictures are turned, and others'."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split

from .graph_mtl import FedGraphMTL

N_CLIENTS, N_TURNED = 12, 6
TOPOLOGIES = {"dynamic": "in groups", "full": "all with all", "none": "nobody"}
N_ROUNDS = 40


@dataclass(frozen=True, slots=True)
class Line:
    """What one topology did; `error` in per cent, `kb_up` of one client."""

    error: float
    n_groups: int
    n_right: int  # clients whose group holds no client of the other kind
    rounds: int
    kb_up: float


def rows(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Deal the digits out; half of the clients hold theirs on the side."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    clients = np.arange(len(y)) % N_CLIENTS
    images = X[order].reshape(-1, 8, 8) / 16
    turned = clients < N_TURNED
    images[turned] = np.rot90(images[turned], axes=(1, 2))
    return images.reshape(len(y), -1), y[order], clients


def run(
    *, n_jobs: int | None = None, seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, Line]:
    """Let clients share encoders in groups, with all, and with nobody.

    Parameters
    ----------
    n_jobs : int, optional
        Threads, as in joblib.
    seed : int, default=0
        Also draws who owns which rows.
    say : callable, default=print
        Takes each line as it comes.

    Returns
    -------
    dict of str to Line
        By topology.
    """
    begun = perf_counter()
    X, y, clients = rows(seed)
    parts = train_test_split(
        X, y, clients, train_size=0.4, stratify=clients, random_state=seed
    )
    X, X_test, y, y_test, clients, clients_test = parts
    found = {}
    for topology in TOPOLOGIES:
        model = FedGraphMTL(
            loss="softmax",
            topology=topology,
            max_rounds=N_ROUNDS,
            n_jobs=n_jobs,
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X, y, clients)
        turned = model.clients_ < N_TURNED
        pure = [len(set(turned[model.groups_ == g])) == 1 for g in model.groups_]
        found[topology] = Line(
            error=100 * (1 - model.score(X_test, y_test, clients_test)),
            n_groups=int(model.groups_.max()) + 1,
            n_right=sum(pure),
            rounds=model.n_rounds_,
            kb_up=model.history_["bytes_up"].sum() / N_CLIENTS / 1e3,
        )
    say("")
    say(
        f"Groups: {N_CLIENTS} clients hold digits, {N_TURNED} of them on the side, "
        f"which nobody is told. Encoders are shared"
    )
    for topology, words in TOPOLOGIES.items():
        line = found[topology]
        say(
            f"  {words:12}  error {line.error:4.1f} %  {line.rounds:3d} rounds  "
            f"{line.kb_up:5.0f} kB up a client"
        )
    say(f"  {verdict(found)} ({perf_counter() - begun:.1f} s)")
    return found


def verdict(found: dict[str, Line]) -> str:
    """Say which groups were found, and whether they helped."""
    groups = found["dynamic"]
    sentence = (
        f"Seen: {groups.n_groups} groups were found, {groups.n_right} of {N_CLIENTS} "
        f"clients among their like alone"
    )
    best = min(line.error for line in found.values())
    if groups.error > best:
        return f"{sentence}; on average that did not help here."
    return f"{sentence}; they err least."
