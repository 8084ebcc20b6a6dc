"""Peers in groups: which are found, and whether mixing inside them pays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from ..datasets import load_clients, make_gaussian_tasks
from ..graph_mtl import FedGraphMTL
from .chapter import FAILS, HOLDS, Chapter, Claim, Figure, MissingSet, Options, Table
from .splits import marked_rows

PAPER = (
    "M. Mortaheb and S. Ulukus, Personalized Decentralized Multi-Task Learning Over "
    "Dynamic Communication Graphs (2022)."
)
SCENES: dict[str, dict[str, Any]] = {
    "2 groups of 4": {"group_sizes": (4, 4)},
    "4 groups of 2": {"group_sizes": (2,) * 4},
    "4 groups of 6": {"group_sizes": (6,) * 4},
    "14/6/3/1": {"group_sizes": (14, 6, 3, 1)},
    "opposed signs": {"group_sizes": (4, 4), "opposed": 0.5},
    "one group of 8": {"group_sizes": (8,)},
}
GROUPINGS = {
    "auto": {"max_rounds": 1},
    "paper": {"grouping": "paper", "regroup_every": 5, "max_rounds": 6},
}
TOPOLOGIES = "dynamic", "full", "none"
ROUNDS = 60
WIDTHS = (2, 8)  # columns of the encoders: of one group, and of all four
SETS = {
    "scene": ("graph_scene.npz", "Mulan collection; six attributes of images"),
    "emotions": ("graph_emotions.npz", "Mulan collection; six moods of music"),
    "landmine": ("graph_landmine.npz", "LandmineData.mat, Duke University"),
}
CELEBA = MissingSet(
    "CelebA",
    "torchvision.datasets.CelebA; the paper trains convolutional networks on it, and "
    "a set with several attributes over the same rows stands in for it",
)


def measurements(options: Options) -> dict[str, Callable[[], Any]]:
    """Name what is measured."""
    n_seeds = 10 if options.quick else 50
    steps: dict[str, Callable[[], Any]] = {
        f"groups {grouping} {scene}": partial(recovery, grouping, scene, n_seeds)
        for grouping in GROUPINGS
        for scene in SCENES
    }
    for seed in range(3 if options.quick else 10):
        for width in WIDTHS:
            steps[f"course {width} {seed}"] = partial(course, width, seed)
    for name, (file, _) in SETS.items():
        path = options.file(file)
        if path is not None:
            steps[f"set {name}"] = partial(real_set, path)
    return steps


def recovery(grouping: str, scene: str, n_seeds: int) -> float:
    """Share of the seeds, in per cent, in which the groups are found exactly."""
    right = 0
    for seed in range(n_seeds):
        X, y, clients, truth = make_gaussian_tasks(
            n_samples=60,
            n_features=10,
            truth=True,
            random_state=seed,
            **SCENES[scene],
        )
        model = FedGraphMTL(random_state=0, **GROUPINGS[grouping]).fit(X, y, clients)
        right += adjusted_rand_score(truth.groups, model.groups_) == 1
    return 100 * right / n_seeds


def course(width: int, seed: int) -> dict[str, Any]:
    """Follow the excess risk of three topologies, 20 rows a client."""
    X, y, clients, truth = make_gaussian_tasks(
        (6, 6, 6, 6), n_samples=20, n_features=10, truth=True, random_state=seed
    )
    runs = {}
    for topology in TOPOLOGIES:
        risks = []
        for n_rounds in (1, 2, 5, 10, 20, 40, ROUNDS):
            model = FedGraphMTL(
                n_components=width,
                topology=topology,
                max_rounds=n_rounds,
                tol=0,
                random_state=0,
            ).fit(X, y, clients)
            risks.append((n_rounds, excess_risk(model, truth)))
        runs[topology] = risks
    return runs


def excess_risk(model: FedGraphMTL, truth) -> float:
    """Mean squared distance of the clients' models from the planted ones."""
    learned = np.einsum(
        "kdm,kmo->kd", model.encoder_coef_[model.groups_], model.head_coef_
    )
    return float(((learned - truth.coef) ** 2).sum(axis=1).mean())


def real_set(path) -> dict[str, float]:
    """Error in per cent of three topologies on half of the rows."""
    found = np.load(path)
    if "Y" in found:
        X, Y = _standard(found["X"]), found["Y"]
        train = marked_rows(Y[:, 0], 0.5, 0)
        fit, test = ((X[part], Y[part]) for part in (train, ~train))
    else:
        X, y, clients = load_clients(path)
        X = _standard(X)
        train = marked_rows(np.unique(clients, return_inverse=True)[1], 0.5, 0)
        fit, test = ((X[part], y[part], clients[part]) for part in (train, ~train))
    losses = {}
    for topology in TOPOLOGIES:
        model = FedGraphMTL(loss="logistic", topology=topology, random_state=0)
        model.fit(*fit)
        losses[topology] = 100 * (1 - score(model, *test))
        losses[f"groups {topology}"] = int(model.groups_.max()) + 1
    return losses


def score(model: FedGraphMTL, X, y, clients=None) -> float:
    """Accuracy over all clients; a column of `y` is a client."""
    if y.ndim == 1:
        return model.score(X, y, clients)
    per_task = [model.score(X, y[:, k], np.full(len(X), k)) for k in range(y.shape[1])]
    return float(np.mean(per_task))


def _standard(X):
    X = np.asarray(X, float)
    spread = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1)


def chapter(found: dict[str, Any], options: Options) -> Chapter:
    """Lay the measurements beside the paper's sentences."""
    return Chapter(
        title="Decentralised multi-task learning over a dynamic graph",
        paper=PAPER,
        claims=[
            *(_recovers(found, grouping) for grouping in GROUPINGS),
            _better_than_full(found),
            *_on_sets(found),
        ],
        tables=[_recovery_table(found), *_set_table(found)],
        figures=[
            Figure(
                "Excess risk against rounds, 24 clients in four groups, 20 rows each.",
                partial(_draw, found),
            )
        ],
        missing=[
            CELEBA,
            *(
                MissingSet(name, how)
                for name, (_, how) in SETS.items()
                if f"set {name}" not in found
            ),
        ],
    )


def _recovers(found, grouping):
    shares = [found[f"groups {grouping} {scene}"] for scene in SCENES]
    who = "As printed" if grouping == "paper" else 'By grouping="auto"'
    return Claim(
        f"{who}: correlated tasks are detected from exchanged gradients",
        "detected",
        f"exact in {min(shares):.0f} to {max(shares):.0f} % of the seeds, mean "
        f"{np.mean(shares):.0f} %",
        HOLDS if min(shares) >= 80 else FAILS,
    )


def _courses(found, width) -> list[dict]:
    return [found[name] for name in found if name.startswith(f"course {width} ")]


def _final(found, topology) -> np.ndarray:
    """Excess risks of the seeds, at the width that suits the topology best."""
    by_width = [
        [run[topology][-1][1] for run in _courses(found, width)] for width in WIDTHS
    ]
    return np.array(min(by_width, key=np.mean))


def _better_than_full(found):
    dynamic, full, none = (_final(found, topology).mean() for topology in TOPOLOGIES)
    return Claim(
        "The dynamic graph learns faster and better than the full one",
        "faster, better",
        f"excess risk {dynamic:.2g}, of full mixing {full:.2g}, of learning alone "
        f"{none:.2g} after {ROUNDS} rounds, each at its best width",
        HOLDS if dynamic < min(full, none) else FAILS,
        dynamic / full,
    )


def _on_sets(found):
    for name in SETS:
        errors = found.get(f"set {name}")
        if errors is not None:
            yield Claim(
                f"{name}: the dynamic graph errs less than the full one",
                "less",
                f"{errors['dynamic']:.2f} % against {errors['full']:.2f} % (alone "
                f"{errors['none']:.2f} %)",
                HOLDS if errors["dynamic"] < errors["full"] else FAILS,
                errors["dynamic"] / errors["full"],
            )


def _recovery_table(found):
    return Table(
        "Exact recovery of planted groups, % of the seeds",
        ("scene", *GROUPINGS),
        [
            (scene, *(found[f"groups {grouping} {scene}"] for grouping in GROUPINGS))
            for scene in SCENES
        ],
        "60 rows a client, 10 columns, groups on planes.",
    )


def _set_table(found):
    rows = [
        (name, *(errors[t] for t in TOPOLOGIES), errors["groups dynamic"])
        for name in SETS
        if (errors := found.get(f"set {name}")) is not None
    ]
    if rows:
        yield Table(
            "Errors on the other half of the rows, %",
            ("set", *TOPOLOGIES, "groups found"),
            rows,
            "Logistic loss, linear encoder, defaults.",
        )


def _draw(found, ax):
    for width, dash in zip(WIDTHS, ("-", "--"), strict=True):
        runs = _courses(found, width)
        for topology, marker in zip(TOPOLOGIES, ("o", "s", "^"), strict=True):
            at = [n for n, _ in runs[0][topology]]
            risks = np.mean([[r for _, r in run[topology]] for run in runs], axis=0)
            ax.plot(at, risks, dash, marker=marker, label=f"{topology}, width {width}")
    ax.set(xlabel="round", ylabel="excess risk", xscale="log", yscale="log")
    ax.legend()
