"""Accuracy on held-out rows: sparse federated models, the pooled dense one, pooled L1.

python bench/accuracy_iht.py --data FOLDER [--sets a9a golub] [--max-rounds 50]

Rows are split within clients' labels, and dealt out unevenly by label (Dirichlet, 0.3)
but for product-reviews, whose 14 products are the clients. L1 gets the penalty that
leaves at most as many coefficients as the sparse models may have.
"""

import argparse
import warnings
from bisect import bisect_left
from pathlib import Path
from time import perf_counter

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import (
    FunctionTransformer,
    StandardScaler,
    label_binarize,
)
from sklearn.svm import l1_min_c

from fedcore import DistributedIHT, FedBestSubset, FedHT, FedIterHT
from fedcore.datasets import partition_dirichlet

# file, loss, non-zeros allowed, clients, ridge, scaling fitted on the training rows
SETS = {
    "product": ("productreviews_counts", "squared", 200, None, 1e-4, TfidfTransformer),
    "20news": ("20news_w1000", "softmax", 1000, 20, 1e-5, TfidfTransformer),
    "a9a": ("a9a", "logistic", 30, 20, 1e-4, FunctionTransformer),
    "golub": ("golub", "logistic", 10, 3, 1e-2, StandardScaler),
    "khan": ("khan", "softmax", 20, 3, 1e-2, StandardScaler),
    "alon": ("alon", "logistic", 10, 3, 1e-2, StandardScaler),
    "mnist": ("mnist_t10k", "softmax", 500, 20, 1e-4, None),
}

SAGA_ROWS = 200_000  # that saga visits at least: small sets need many passes


def load(folder, name):
    """Rows (float), targets and clients of a set; None where they are to be dealt."""
    with np.load(Path(folder) / f"iht_{name}.npz", allow_pickle=False) as file:
        if "indptr" in file:
            parts = (file["data"].astype(float), file["indices"], file["indptr"])
            X = sparse.csr_array(parts, shape=tuple(file["shape"]))
        else:
            X = file["X"].astype(float)
        clients = file["client"] if "client" in file else None
        return X, file["y"], clients


def least_C(X, y, loss):
    """Return the C below which L1 leaves nothing but intercepts."""
    if loss == "logistic":
        return l1_min_c(X, y, loss="log")
    one_hot = label_binarize(y, classes=np.unique(y))
    return 1 / np.abs(X.T @ (one_hot - one_hot.mean(axis=0))).max()


def pooled_l1(X, y, loss, n_nonzero):
    """Fit L1 with the weakest of 20 penalties that leaves few enough coefficients."""
    if loss == "squared":
        strongest = np.abs(X.T @ (y - y.mean())).max() / len(y)
        models = [Lasso(alpha=strongest / 1.5**k) for k in range(20)]
    else:
        least = least_C(X, y, loss)
        options = {"l1_ratio": 1, "max_iter": max(100, SAGA_ROWS // len(y))}
        options["solver"] = "saga" if loss == "softmax" else "liblinear"
        models = [LogisticRegression(C=least * 1.5**k, **options) for k in range(20)]

    def is_too_many(k):
        return np.count_nonzero(models[k].fit(X, y).coef_) > n_nonzero

    return models[bisect_left(range(20), True, key=is_too_many) - 1]


def models_of(loss, n_nonzero, l2, max_rounds, seed):
    """Yield the name of each model and a function that fits it."""
    if loss == "squared":
        dense = Ridge(alpha=1.0)
    else:
        dense = LogisticRegression(C=1.0, max_iter=2000)
    yield "pooled dense", lambda X, y, c: dense.fit(X, y)
    yield "pooled L1", lambda X, y, c: pooled_l1(X, y, loss, n_nonzero)
    for estimator in (FedIterHT, FedHT, DistributedIHT, FedBestSubset):
        options = {"loss": loss, "l2": l2, "random_state": seed}
        if estimator is not FedBestSubset:
            options["max_rounds"] = max_rounds
        model = estimator(n_nonzero, **options)
        name = estimator.__name__
        yield name, lambda X, y, c, model=model: model.fit(X, y, c)
        if estimator is not FedBestSubset:
            again = estimator(n_nonzero, refit=True, **options)
            yield f"{name} + refit", lambda X, y, c, m=again: m.fit(X, y, c)
    options = {"loss": loss, "l2": l2, "max_rounds": max_rounds}
    both = FedIterHT(n_nonzero, control_variates=True, **options)
    yield "FedIterHT + control", lambda X, y, c: both.fit(X, y, c)


def split(short, seed, folder):
    """Return training rows and targets, test rows and targets, and clients."""
    name, loss, _, n_clients, _, scaler = SETS[short]
    X, y, clients = load(folder, name)
    train, test = train_test_split(
        np.arange(len(y)),
        test_size=0.25,
        stratify=clients if loss == "squared" else y,
        random_state=seed,
    )
    if scaler is None:
        A, B = X[train] / 255, X[test] / 255
    else:
        scale = scaler().fit(X[train])
        A, B = scale.transform(X[train]), scale.transform(X[test])
    if clients is None:
        owner = partition_dirichlet(
            y[train], n_clients, alpha=0.3, min_rows=2, random_state=seed
        )
    else:
        owner = clients[train]
    return A, y[train], B, y[test], owner


def compare(folder, short, seeds, max_rounds, wanted):
    """Print one line a model: score over the seeds, non-zeros, rounds, seconds."""
    _, loss, n_nonzero, _, l2, _ = SETS[short]
    splits = [split(short, seed, folder) for seed in range(seeds)]
    A, _, _, _, owner = splits[0]
    measure = "R^2" if loss == "squared" else "accuracy"
    print(
        f"\n{short}: {A.shape[0]} rows to train, {A.shape[1]} columns, "
        f"{len(np.unique(owner))} clients, tau {n_nonzero}, {seeds} splits"
    )
    print(f"  {'':24}{measure:>18}  non-zeros  rounds  seconds", flush=True)
    models = (models_of(loss, n_nonzero, l2, max_rounds, seed) for seed in range(seeds))
    for fits in zip(*models, strict=True):
        model_name = fits[0][0]
        if wanted and model_name not in wanted:
            continue
        results = []
        for (_, fit), (A, y, B, y_test, owner) in zip(fits, splits, strict=True):
            begun = perf_counter()
            model = fit(A, y, owner)
            seconds = perf_counter() - begun
            rounds = getattr(model, "n_rounds_", 0)
            nonzeros = np.count_nonzero(model.coef_)
            results.append((model.score(B, y_test), nonzeros, rounds, seconds))
        score, nonzeros, rounds, seconds = np.array(results).T
        print(
            f"  {model_name:24}{score.mean():10.4f} +- {score.std():.4f}"
            f"{nonzeros.mean():11.0f}{rounds.mean():8.0f}{seconds.mean():9.2f}",
            flush=True,
        )


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="folder of the iht_*.npz files")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-rounds", type=int, default=200)
    parser.add_argument("--models", nargs="+", metavar="NAME", help="these lines only")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for short in arguments.sets:
        compare(
            arguments.data,
            short,
            arguments.seeds,
            arguments.max_rounds,
            arguments.models,
        )


if __name__ == "__main__":
    main()
