"""The problems that several benchmarks share."""

from functools import cache

import numpy as np
from sklearn.preprocessing import normalize

from fedcore.datasets import make_mtl_classification, make_mtl_regression

DENSE = {"n_clients": 30, "n_samples": 300, "n_features": 560}
SPARSE = {
    "n_clients": 1000,
    "n_samples": 50,
    "n_features": 50_000,
    "density": 0.001,  # 50 non-zeros a row
}
SMALL = {"n_clients": 30, "n_samples": 100, "n_features": 50}


SIZES = {"small": SMALL, "dense": DENSE, "sparse": SPARSE}


@cache
def classification(name):
    """Rows, labels and clients: a name of SIZES, with "-unit" for rows of norm 1."""
    sizes = SIZES[name.removesuffix("-unit")]
    X, y, clients = make_mtl_classification(**sizes, random_state=0)
    return (normalize(X) if name.endswith("unit") else X), y, clients


@cache
def regression(name):
    """Rows, targets of unit variance and clients; names as in `classification`."""
    sizes = SIZES[name.removesuffix("-unit")]
    X, y, clients = make_mtl_regression(**sizes, random_state=0)
    y = y / np.std(y)
    return (normalize(X) if name.endswith("unit") else X), y, clients
