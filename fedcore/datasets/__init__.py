"""Data with clients: one real set, simulations, partitioners, loaders."""

from fedcore.datasets.files import load_clients
from fedcore.datasets.gaussian_tasks import make_gaussian_tasks
from fedcore.datasets.iht import make_iht_simulation
from fedcore.datasets.kmeans import partition_kmeans
from fedcore.datasets.mtl import make_mtl_classification, make_mtl_regression
from fedcore.datasets.partition import (
    partition_by_column,
    partition_dirichlet,
    partition_quantity,
)
from fedcore.datasets.watch import WATCH_EXERCISES, load_watch

__all__ = [
    "WATCH_EXERCISES",
    "load_clients",
    "load_watch",
    "make_gaussian_tasks",
    "make_iht_simulation",
    "make_mtl_classification",
    "make_mtl_regression",
    "partition_by_column",
    "partition_dirichlet",
    "partition_kmeans",
    "partition_quantity",
]
