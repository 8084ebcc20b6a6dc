"""The demo's part on adaptation: some people have no labels."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np
from sklearn.linear_model import LogisticRegression

from .dadil import FedDaDiL
from .datasets import load_watch

N_TARGETS = 3
N_ROUNDS = 150
AS_THEY_ARE, SCALED, DICTIONARY = "as they are", "scaled", "dictionary"


def accuracies(
    model: FedDaDiL, X: np.ndarray, y: np.ndarray, clients: np.ndarray
) -> dict[str, np.ndarray]:
    """Accuracy on each target's rows of pooled classifiers, and of the dictionary.

    The pooled classifiers see rows as they are, or scaled for each person as the
    dictionary scales them.
    """
    target = np.isin(clients, model.target)
    model.fit(X, y, clients)  # which reads no label of a target
    place = np.searchsorted(model.clients_, clients)
    scaled = (X - model.domain_mean_[place]) / model.domain_scale_[place]
    predicted = {DICTIONARY: model.predict(X, clients)}
    for name, rows in ((AS_THEY_ARE, X), (SCALED, scaled)):
        plain = LogisticRegression(C=0.1, max_iter=1000)
        predicted[name] = plain.fit(rows[~target], y[~target]).predict(rows)
    return {
        name: np.array([np.mean((labels == y)[clients == k]) for k in model.target])
        for name, labels in predicted.items()
    }


def run(
    *, n_jobs: int | None = None, seed: int = 0, say: Callable[[str], None] = print
) -> tuple[dict[str, np.ndarray], FedDaDiL]:
    """Hide the labels of a few people, label their rows, and say how well.

    Parameters
    ----------
    n_jobs : int, optional
        Threads, as in joblib.
    seed : int, default=0
        Also draws these people.
    say : callable, default=print
        Takes each line as it comes.

    Returns
    -------
    accuracies : dict of str to ndarray of shape (N_TARGETS,)
    model : FedDaDiL
    """
    begun = perf_counter()
    X, y, clients = load_watch()
    X = X.astype(np.float64)
    rng = np.random.default_rng(seed)
    targets = sorted(rng.choice(np.unique(clients), N_TARGETS, replace=False).tolist())
    model = FedDaDiL(
        target=targets,
        scaler="standard",
        max_rounds=N_ROUNDS,
        n_jobs=n_jobs,
        random_state=seed,
    )
    found = accuracies(model, X, y, clients)
    sent = model.history_["bytes_up"].sum() / len(model.clients_) / 1e6
    told = {name: f"{100 * each.mean():.1f} %" for name, each in found.items()}
    say("")
    say(
        f"Adaptation: people {', '.join(map(str, targets))} have no labels, the other "
        f"{len(model.clients_) - N_TARGETS} have. Of their rows are labelled rightly:"
    )
    say(
        f"  {told[AS_THEY_ARE]} by logistic regression on all others' rows, "
        f"{told[SCALED]} if each person's are standardised first;"
    )
    say(
        f"  {told[DICTIONARY]} by a federated dictionary (FedDaDiL), for which nobody "
        f"pools rows: {model.n_rounds_} rounds, {sent:.1f} MB up from each "
        f"({perf_counter() - begun:.1f} s)."
    )
    say(f"  {verdict(found)}")
    return found, model


def verdict(found: dict[str, np.ndarray]) -> str:
    """Say whether it helped, and whom."""
    best = np.maximum(found[AS_THEY_ARE], found[SCALED])
    wins = int(np.count_nonzero(found[DICTIONARY] > best))
    if found[DICTIONARY].mean() > max(found[AS_THEY_ARE].mean(), found[SCALED].mean()):
        return f"Seen: it adapts best, for {wins} of {len(best)} ahead of both others."
    return (
        f"Seen: on average it did not help here; for {wins} of {len(best)} it is ahead "
        f"of both others. docs/experiments_dadil.md says where it helps."
    )
