"""FedMTLSVC and FedMTLSVR in their users' hands."""

import numpy as np
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fedcore import FedMTLSVC
from fedcore.datasets import load_watch

# Choosing C1 and C2 with metadata routing.


def test_a_search_over_a_pipeline_chooses_C1_and_C2_on_watch():
    X, y, clients = load_watch()
    few = np.arange(len(y)) % 4 == 0
    X, y, clients = X[few], y[few], clients[few]
    grid = {"fedmtlsvc__C1": [1e-4, 0.1], "fedmtlsvc__C2": [0.3, 1e3]}
    folds = StratifiedKFold(2, shuffle=True, random_state=0)
    folds = list(folds.split(X, clients))
    pipeline = make_pipeline(StandardScaler(), FedMTLSVC(random_state=0))
    with config_context(enable_metadata_routing=True):
        search = GridSearchCV(pipeline, grid, cv=folds).fit(X, y, clients=clients)

    def score(C1, C2, train, test):
        scaler = StandardScaler().fit(X[train])
        model = FedMTLSVC(C1, C2, random_state=0)
        model.fit(scaler.transform(X[train]), y[train], clients[train])
        return model.score(scaler.transform(X[test]), y[test], clients[test])

    cells = [(C1, C2) for C1 in grid["fedmtlsvc__C1"] for C2 in grid["fedmtlsvc__C2"]]
    by_hand = [np.mean([score(*cell, *fold) for fold in folds]) for cell in cells]
    assert_array_equal(search.cv_results_["mean_test_score"], by_hand)
    assert np.ptp(by_hand) > 0.05  # the choice means something
    assert tuple(search.best_params_.values()) == cells[np.argmax(by_hand)]
