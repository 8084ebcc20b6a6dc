"""The real data with clients: rows, what is asked of them, and how it is scored."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    r2_score,
    roc_auc_score,
    root_mean_squared_error,
)

from fedcore.datasets import load_clients, load_watch


@dataclass(frozen=True, slots=True)
class Metric:
    """A figure of merit of scores by client; `sign` is -1 if less is better."""

    name: str
    measure: Callable
    sign: int = 1


@dataclass(frozen=True, slots=True)
class RealSet:
    """Rows of many clients; labels are 0 .. C - 1 in classification."""

    name: str
    X: np.ndarray
    y: np.ndarray
    clients: np.ndarray
    metric: Metric
    regression: bool = False

    @property
    def cells(self) -> np.ndarray:
        """Rows that are dealt out evenly: of a client, in classification by class."""
        owner = np.unique(self.clients, return_inverse=True)[1]
        if self.regression:
            return owner
        return owner * (int(self.y.max()) + 1) + self.y


def mean_auc(y, scores, clients):
    """Average the AUC, in per cent, over the clients that have rows of both classes."""
    own = [clients == client for client in np.unique(clients)]
    return 100 * np.mean(
        [roc_auc_score(y[k], scores[k]) for k in own if len(np.unique(y[k])) == 2]
    )


def accuracy(y, scores, clients):
    """Accuracy over all rows, in per cent."""
    return 100 * accuracy_score(y, labels(scores))


def labels(scores):
    """Turn scores, one a row or one a row and class, into labels."""
    return (scores > 0).astype(int) if scores.ndim == 1 else scores.argmax(axis=1)


def explained_variance(y, scores, clients):
    """Explained variance over the rows of all clients, in per cent.

    As in the multi-task literature (Argyriou, Evgeniou, Pontil 2008): the total
    variance of `y` less the mean squared error, over the total variance.
    """
    return 100 * r2_score(y, scores)


def rmse(y, scores, clients):
    """Root mean squared error over all rows, in units of `y`."""
    return root_mean_squared_error(y, scores)


AUC = Metric("mean AUC per client, %", mean_auc)
ACCURACY = Metric("accuracy, %", accuracy)
VARIANCE = Metric("explained variance, %", explained_variance)
RMSE = Metric("RMSE", rmse, sign=-1)


def landmine(folder):
    """29 mine fields; mine or clutter."""
    return _classes("landmine", load_clients(folder / "graph_landmine.npz"), AUC)


def wisdm(folder):
    """36 persons; six activities. Rows with a missing value are dropped."""
    X, y, clients = load_clients(folder / "graph_wisdm.npz")
    whole = ~np.isnan(X).any(axis=1)
    return _classes("wisdm", (X[whole], y[whole], clients[whole]), ACCURACY)


def school(folder):
    """139 schools; exam scores."""
    X, y, clients = load_clients(folder / "graph_school.npz")
    return RealSet("school", X, y.astype(float), clients, VARIANCE, regression=True)


def parkinsons_motor(folder):
    """42 patients; the motor part of the UPDRS score."""
    return _parkinsons("parkinsons_motor", folder, 0)


def parkinsons_total(folder):
    """42 patients; the total UPDRS score."""
    return _parkinsons("parkinsons_total", folder, 1)


def watch(folder):
    """Ten persons; seven exercises. In the package, whatever the folder."""
    return _classes("watch", load_watch(), ACCURACY)


def _parkinsons(name, folder, target):
    X, y, clients = load_clients(folder / "graph_parkinsons.npz")
    return RealSet(name, X, y[:, target].astype(float), clients, RMSE, regression=True)


def _classes(name, loaded, metric):
    X, y, clients = loaded
    return RealSet(name, X, np.unique(y, return_inverse=True)[1], clients, metric)


SETS = {
    load.__name__: load
    for load in (landmine, wisdm, school, parkinsons_motor, parkinsons_total, watch)
}
