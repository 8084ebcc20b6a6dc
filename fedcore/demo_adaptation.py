"""The demo's part on adaptation: one person has no labels."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from sklearn.linear_model import LogisticRegression

from .dadil import FedDaDiL
from .datasets import load_watch

N_ROUNDS = 100


def accuracies(
    model: FedDaDiL, X: np.ndarray, y: np.ndarray, clients: np.ndarray, target
) -> dict[str, float]:
    """Accuracy on the target's rows of a pooled classifier, and of the dictionary.

    The pooled classifier sees rows as they are, or scaled for each person as the
    dictionary scales them.
    """
    own = clients == target
    fitted = model.fit(X, np.where(own, -1, y), clients)
    place = np.searchsorted(fitted.clients_, clients)
    scaled = (X - fitted.domain_mean_[place]) / fitted.domain_scale_[place]
    found = {}
    for name, rows in (("as they are", X), ("scaled", scaled)):
        plain = LogisticRegression(C=0.1, max_iter=1000).fit(rows[~own], y[~own])
        found[name] = plain.score(rows[own], y[own])
    found["dictionary"] = fitted.score(X[own], y[own])
    return found


def run(
    *, n_jobs: int | None = None, seed: int = 0, say: Callable[[str], None] = print
) -> dict[str, float]:
    """Hide one person's labels, label the rows, and say how well.

    Parameters
    ----------
    n_jobs : int, optional
        Threads, as in joblib.
    seed : int, default=0
        Also draws the person.
    say : callable, default=print
        Takes each line as it comes.

    Returns
    -------
    dict of str to float
        Accuracies.
    """
    begun = perf_counter()
    X, y, clients = load_watch()
    X = X.astype(np.float64)
    target = int(np.random.default_rng(seed).choice(np.unique(clients)))
    model = FedDaDiL(max_rounds=N_ROUNDS, n_jobs=n_jobs, random_state=seed)
    found = accuracies(model, X, y, clients, target)
    sent = model.history_["bytes_up"].sum() / len(model.clients_) / 1e6
    say("")
    say(
        f"Adaptation: person {target} has no labels, the other "
        f"{len(model.clients_) - 1} have. Right labels for that person's rows:"
    )
    say(
        f"  {100 * found['as they are']:.1f} % by logistic regression on all others' "
        f"rows as they are; {100 * found['scaled']:.1f} % if each person's are scaled "
        f"first;"
    )
    say(
        f"  {100 * found['dictionary']:.1f} % by a federated dictionary (FedDaDiL), "
        f"which pools no rows: {model.n_rounds_} rounds, {sent:.1f} MB up from each "
        f"({perf_counter() - begun:.1f} s)."
    )
    say(f"  {verdict(found)}")
    return found


def verdict(found: dict[str, float]) -> str:
    """Say whether it helped."""
    best = max(found["as they are"], found["scaled"])
    if found["dictionary"] > best:
        return "Seen: here the dictionary adapts better than pooled rows do."
    if found["dictionary"] > found["as they are"]:
        return "Seen: here scaling by person is what adapts; transport adds nothing."
    return "Seen: here the dictionary did not help; on other sets it does."
