"""Print how often planted groups of clients are found exactly."""

import argparse
import warnings

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import SpectralClustering
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from fedcore import FedGraphMTL
from fedcore.datasets import make_gaussian_tasks

SCENARIOS = {
    "2 x 4": {"group_sizes": (4, 4)},
    "4 x 2": {"group_sizes": (2,) * 4},
    "4 x 6": {"group_sizes": (6,) * 4},
    "14/6/3/1": {"group_sizes": (14, 6, 3, 1)},
    "scales 0.1 to 10": {"group_sizes": (4, 4), "label_scales": (0.1, 10)},
    "noise 0.5": {"group_sizes": (4, 4), "noise": 0.5},
    "flipped": {"group_sizes": (4, 4), "opposed": 0.5},
    "one group of 8": {"group_sizes": (8,)},
}


def found(X, y, clients, **given):
    """Find groups in as few rounds as the rule needs."""
    settings = {"max_rounds": 1, "random_state": 0} | given
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FedGraphMTL(**settings).fit(X, y, clients).groups_


def ridge_models(X, y, clients):
    models = []
    for k in np.unique(clients):
        rows = X[clients == k] - X[clients == k].mean(axis=0)
        gram = rows.T @ rows + np.eye(X.shape[1])
        models.append(np.linalg.solve(gram, rows.T @ y[clients == k]))
    models = np.array(models)
    return models / np.linalg.norm(models, axis=1, keepdims=True)


def rival(X, y, clients):
    """Link local ridge models whose cosine is above 0.5, either way."""
    models = ridge_models(X, y, clients)
    return connected_components(np.abs(models @ models.T) > 0.5)[1]


def told_k(X, y, clients, k):
    """Cluster the same models by scikit-learn, which is told how many groups."""
    if k == 1:
        return np.zeros(len(np.unique(clients)))
    models = ridge_models(X, y, clients)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spectral = SpectralClustering(k, affinity="precomputed", random_state=0)
        return spectral.fit_predict(np.abs(models @ models.T))


def planted(n_seeds, n_samples, n_features):
    print(
        f"\n{n_samples} rows, {n_features} columns, 2 dimensions a group, "
        f"{n_seeds} seeds"
    )
    print(f"{'exact recovery, %':18s}   auto  relu  paper  rival  told k")
    for name, scenario in SCENARIOS.items():
        right = np.zeros(5)
        for seed in range(n_seeds):
            X, y, clients, truth = make_gaussian_tasks(
                n_samples=n_samples,
                n_features=n_features,
                truth=True,
                random_state=seed,
                **scenario,
            )
            k = len(scenario["group_sizes"])
            labels = [
                found(X, y, clients),
                found(X, y, clients, encoder="relu"),
                found(X, y, clients, grouping="paper", regroup_every=5, max_rounds=6),
                rival(X, y, clients),
                told_k(X, y, clients, k),
            ]
            right += [adjusted_rand_score(truth.groups, part) == 1 for part in labels]
        shares = "  ".join(f"{share:5.0f}" for share in 100 * right / n_seeds)
        print(f"{name:18s}  {shares}", flush=True)


def rotated_digits(n_seeds):
    """Four rotations, six clients each; ten classes."""
    X, y = load_digits(return_X_y=True)
    images = X.reshape(-1, 8, 8) / 16
    right = 0
    for seed in range(n_seeds):
        order = np.random.default_rng(seed).permutation(len(y))[:1776].reshape(24, -1)
        rows = [np.rot90(images[at], i // 6, (1, 2)) for i, at in enumerate(order)]
        X = np.concatenate(rows).reshape(-1, 64)
        X = X - X.mean(axis=0)
        clients = np.repeat(np.arange(24), order.shape[1])
        labels = found(X, y[order].reshape(-1), clients, loss="softmax", encoder="relu")
        right += adjusted_rand_score(np.arange(24) // 6, labels) == 1
    print(
        f"\nrotated digits: exact in {100 * right / n_seeds:.0f} % of {n_seeds} seeds"
    )


def landmine(path):
    data = np.load(path)
    X = (data["X"] - data["X"].mean(axis=0)) / data["X"].std(axis=0)
    for loss in ("squared", "logistic"):
        y = data["y"].astype(float) if loss == "squared" else data["y"]
        labels = found(X, y, data["client"], loss=loss)
        ari = adjusted_rand_score(data["group"], labels)
        print(f"landmine, {loss}: ARI {ari:.2f}, {labels.max() + 1} groups")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--digits-seeds", type=int, default=20)
    parser.add_argument("--landmine", default="../shared/data/graph_landmine.npz")
    arguments = parser.parse_args()
    for n_samples in (60, 20):
        planted(arguments.seeds, n_samples, 10)
    landmine(arguments.landmine)
    rotated_digits(arguments.digits_seeds)
