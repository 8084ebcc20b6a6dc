"""The dictionary of domains whose rows are in one place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from .domains import Domains, move
from .sampling import ATOMS, ROWS, START, batch_of_atoms, generator
from .start import column_sums, first_atoms
from .steps import Stepper


@dataclass(frozen=True, slots=True)
class Learnt:
    """Atoms, and a table with a line a step."""

    X: np.ndarray
    logits: np.ndarray
    history: dict[str, np.ndarray]


def learn(
    domains: Domains,
    shape: tuple[int, int, int, int],
    n_batch: int,
    *,
    label_weight: float | str,
    rate: float,
    max_iter: int,
    seed: int,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> Learnt:
    """Learn atoms of shape (K, n, d, c), and in place the domains' coordinates.

    A step is over a batch of every domain.
    """
    n_atoms, n, d, n_classes = shape
    sums = column_sums(domains.X)
    X, logits = first_atoms(n_atoms, n, n_classes, sums, generator(seed, START))
    tables = [(np.zeros_like(Z), np.zeros_like(Z)) for Z in (X, logits)]
    stepper = Stepper(n_atoms, n_batch, d, n_classes, label_weight=label_weight)
    everybody = list(range(domains.n_domains))
    objective, time, begun = [], [], perf_counter()
    for t in range(1, max_iter + 1):
        drawn = batch_of_atoms(
            n_atoms, n, n_classes, n_batch, generator(seed, ATOMS, t)
        )
        at = np.arange(n_atoms)[:, None], drawn
        X_batch, logits_batch = X[at], logits[at]
        moments = [(first[at], second[at]) for first, second in tables]
        rng = generator(seed, ROWS, t)
        losses = move(
            *(stepper, domains, everybody, X_batch, logits_batch),
            *(moments, t, rate, rng),
        )
        X[at], logits[at] = X_batch, logits_batch
        for table, moved in zip(tables, moments, strict=True):
            table[0][at], table[1][at] = moved
        objective.append(sum(losses))
        time.append(perf_counter() - begun)
        if on_step is not None:
            on_step(t, {"objective": objective[-1]})
    history = {
        "round": np.arange(1, max_iter + 1),
        "time": np.array(time),
        "objective": np.array(objective),
    }
    return Learnt(X, logits, history)
