"""Dictionaries of data sets: who labels a domain best, and at what cost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler, normalize

from ..dadil import DaDiL, FedDaDiL
from .chapter import (
    FAILS,
    HOLDS,
    Chapter,
    Claim,
    Figure,
    MissingSet,
    Options,
    Table,
    only_if,
)

PAPER = (
    "E. Fernandes Montesuma et al., Multi-Source Domain Adaptation through Dataset "
    "Dictionary Learning in Wasserstein Space; F. Espinoza Castellon et al., Federated "
    "Dataset Dictionary Learning for Multi-Source Domain Adaptation."
)
TURNED = "turned digits"
SETS = {
    "Caltech-Office 10": (
        "dadil_office_caltech10_surf.npz",
        "SURF or DeCAF features with the GFK package (Gong et al., 2012)",
    ),
    "CWRU bearings": (
        "dadil_cwru4_fft256.npz",
        "recordings of the Case Western Reserve University bearing data center",
    ),
    "digits of three sources": (
        "dadil_digits3_64.npz",
        "MNIST, USPS and sklearn.datasets.load_digits()",
    ),
}
TEP = MissingSet(
    "Tennessee Eastman process",
    "simulated data of the six modes, Reinartz et al., 2021",
)
EPOCHS = (1, 5, 10)
ROUNDS = 40  # of the runs that follow the drift
RESNET_50 = 25_557_032 * 4  # bytes of its weights in float32


def measurements(options: Options) -> dict[str, Callable[[], Any]]:
    """Name what is measured."""
    sets: dict[str, Callable] = {TURNED: turned_digits}
    for name, (file, _) in SETS.items():
        path = options.file(file)
        if path is not None:
            sets[name] = partial(read, path)
    steps: dict[str, Callable[[], Any]] = {}
    for name, load in sets.items():
        n_targets = len(np.unique(load()[2]))
        for target in range(1 if options.quick else n_targets):
            # The first domain of a set is as good as any for a quick look.
            steps[f"label {target} {name}"] = partial(label, load, target)
    for epochs in EPOCHS:
        steps[f"drift {epochs}"] = partial(drift, epochs)
    return steps


def turned_digits():
    """Four domains: scikit-learn's digits, turned by 0 to 45 degrees and cut apart."""
    from scipy.ndimage import rotate

    X, y = load_digits(return_X_y=True)
    domain = np.random.default_rng(0).integers(4, size=len(y))
    images = X.reshape(-1, 8, 8) / 16
    for k in range(4):
        own = domain == k
        images[own] = rotate(images[own], 15 * k, axes=(1, 2), reshape=False, order=1)
    return images.reshape(len(y), -1), y, domain


def read(path: Path):
    """Give rows, labels and domains of a set; no label is looked at."""
    with np.load(path) as data:
        X, y, domain = data["X"].astype(float), data["y"], data["domain"]
    if "office" in path.name:  # counts in 800 columns
        X = _standard(normalize(X, norm="l1"), domain)
        X = PCA(60, random_state=0).fit_transform(X)
    return X, y.astype(int), domain.astype(int)


def _standard(X, domain):
    X = X.copy()
    for k in np.unique(domain):
        X[domain == k] = StandardScaler().fit_transform(X[domain == k])
    return X


def label(load, target: int) -> dict[str, float]:
    """Hide the labels of a domain; accuracies on its rows, in per cent."""
    X, y, domain = load()
    own = domain == target
    hidden = np.where(own, -1, y)
    accuracy = {}
    plain = LogisticRegression(max_iter=2000)
    rows = _standard(X, domain)
    plain.fit(rows[~own], y[~own])
    accuracy["sources alone"] = 100 * plain.score(rows[own], y[own])
    for model in (DaDiL(random_state=0), FedDaDiL(random_state=0)):
        fitted = model.fit(X, hidden, domain)
        accuracy[type(model).__name__] = 100 * fitted.score(X[own], y[own])
    sent = fitted.history_["bytes_up"].sum() / len(fitted.clients_)
    accuracy["round kB"] = sent / fitted.n_rounds_ / 1e3
    accuracy["rounds"] = fitted.n_rounds_
    accuracy["data kB"] = X.nbytes / len(np.unique(domain)) / 1e3
    return accuracy


def drift(epochs: int) -> list[float]:
    """Distance between the clients' versions of the atoms, round by round."""
    X, y, domain = turned_digits()
    hidden = np.where(domain == 3, -1, y)
    model = FedDaDiL(local_epochs=epochs, max_rounds=ROUNDS, random_state=0)
    return model.fit(X, hidden, domain).history_["drift"].tolist()


def chapter(found: dict[str, Any], options: Options) -> Chapter:
    """Lay the measurements beside the papers' sentences."""
    return Chapter(
        title="Dictionaries of data sets",
        paper=PAPER,
        claims=[
            _adapts(found),
            _near_central(found),
            _drift_by_epochs(found),
            _drift_by_rounds(found),
            _bytes(found),
        ],
        tables=[_table(found)],
        figures=[
            Figure(
                f"Drift of the atoms on {TURNED}, by local epochs E.",
                partial(_draw, found),
            )
        ],
        missing=[
            TEP,
            *(
                MissingSet(name, how)
                for name, (_, how) in SETS.items()
                if not any(key.endswith(name) for key in found)
            ),
        ],
    )


def _means(found) -> dict[str, dict[str, float]]:
    """Average each set's figures over its targets."""
    runs: dict[str, list[dict]] = {}
    for key, run in found.items():
        kind, *rest = key.split(" ", 2)
        if kind == "label":
            runs.setdefault(rest[1], []).append(run)
    return {
        name: {column: float(np.mean([r[column] for r in of])) for column in of[0]}
        for name, of in runs.items()
    }


def _adapts(found):
    ahead = {
        name: run["DaDiL"] - run["sources alone"] for name, run in _means(found).items()
    }
    wins = sum(gain > 0 for gain in ahead.values())
    verdict = HOLDS if wins == len(ahead) else FAILS
    if 0 < wins < len(ahead):
        verdict = only_if("domains differ after each is scaled by itself")
    return Claim(
        "A dictionary labels the target better than a classifier of the sources",
        "better on all sets",
        "; ".join(f"{name} {gain:+.1f} points" for name, gain in ahead.items()),
        verdict,
    )


def _near_central(found):
    ahead = {
        name: run["FedDaDiL"] - run["DaDiL"] for name, run in _means(found).items()
    }
    return Claim(
        "The federated dictionary is as good as the centralised one",
        "as good or better",
        "; ".join(f"{name} {gain:+.1f} points" for name, gain in ahead.items()),
        HOLDS if min(ahead.values()) >= -1 else only_if("a few points do not matter"),
    )


def _drift_by_epochs(found):
    last = [found[f"drift {epochs}"][-1] for epochs in EPOCHS]
    return Claim(
        "More local epochs let the clients' versions drift apart",
        "drift grows",
        ", ".join(f"{d:.2f} at E = {e}" for e, d in zip(EPOCHS, last, strict=True)),
        HOLDS if last == sorted(last) else FAILS,
    )


def _drift_by_rounds(found):
    courses = [found[f"drift {epochs}"] for epochs in EPOCHS]
    verdict = FAILS
    if all(course[-1] < course[0] for course in courses):
        verdict = HOLDS
    elif any(course[-1] < course[0] for course in courses):
        verdict = only_if("rounds are many, or local epochs are")
    return Claim(
        "Drift falls as the rounds go by",
        "falls",
        ", ".join(
            f"{course[0]:.2f} to {course[-1]:.2f} at E = {epochs}"
            for epochs, course in zip(EPOCHS, courses, strict=True)
        ),
        verdict,
    )


def _bytes(found):
    run = max(_means(found).values(), key=lambda r: r["round kB"])
    share = run["round kB"] * 1e3 / RESNET_50
    total = run["round kB"] * run["rounds"] / run["data kB"]
    return Claim(
        "A round sends far less than the weights of a network",
        "less than a ResNet-50",
        f"at most {run['round kB']:.0f} kB up a client, {100 * share:.2f} % of one; "
        f"all {run['rounds']:.0f} rounds {total:.1f} times the client's data",
        HOLDS if share < 1 else FAILS,
        share,
    )


def _table(found):
    arms = ("sources alone", "DaDiL", "FedDaDiL")
    return Table(
        "Accuracy on the rows without labels, %",
        ("set", *arms, "round kB", "data kB"),
        [
            (name, *(run[c] for c in (*arms, "round kB", "data kB")))
            for name, run in _means(found).items()
        ],
        "Means over the targets that were run. Sources alone: logistic regression, "
        "each domain standardised. Dictionaries at their defaults, R.",
    )


def _draw(found, ax):
    for epochs, style in zip(EPOCHS, ("-", "--", ":"), strict=False):
        course = found[f"drift {epochs}"]
        ax.plot(range(1, len(course) + 1), course, style, label=f"E = {epochs}")
    ax.set(xlabel="round", ylabel="drift")
    ax.legend()
