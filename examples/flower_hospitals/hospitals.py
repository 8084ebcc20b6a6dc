"""What the hospitals have: the people of `load_watch`, and the model they agreed on."""

import numpy as np

from fedcore import FedMTLSVC, demo
from fedcore.datasets import WATCH_EXERCISES, load_watch

C1, C2 = 0.3, 1  # what `fedcore demo` chooses, on a fifth that is not used here


def estimator():
    """Give the model of the demo's multi-task arm; both sides compare it."""
    return FedMTLSVC(C1, C2, aggregation="envelope", random_state=0, **demo.EXACT)


def people(hospital, n_hospitals):
    """Give the people whose rows a hospital has."""
    _, _, clients = load_watch()
    return np.array_split(np.unique(clients), n_hospitals)[hospital]


def rows(hospital, n_hospitals, split):
    """Give a hospital's own rows, (X, y, clients), to train and to test with."""
    X, y, clients = load_watch()
    cells = clients * len(WATCH_EXERCISES) + y
    part = demo.spread_evenly(cells, demo.N_PARTS, np.random.default_rng(0))
    own = np.isin(clients, people(hospital, n_hospitals))
    train = own & (part == split)
    test = own & (part != split) & (part != 0)
    return tuple((X[r], y[r], clients[r]) for r in (train, test))
