"""Scalers and searches over Flower: what sites find is what one process finds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline

from fedcore import (
    FederatedSearchCV,
    FedMTLSVC,
    FedStandardScaler,
    LocalEngine,
    load,
)

pytest.importorskip("flwr", minversion="1.42")
pytestmark = pytest.mark.filterwarnings("ignore")
SITES = {"north": ["a", "b", "c"], "south": ["d"], "west": ["e", "f"]}


def rows():
    rng = np.random.default_rng(0)
    clients = np.sort(rng.choice(list("abcdef"), 150))
    X = rng.normal(size=(150, 5)) * [1, 2, 3, 4, 5] + (clients == "b")[:, None]
    value = X @ rng.normal(size=5) + rng.normal(size=150)
    return X, np.where(value > 0, "yes", "no"), clients


@pytest.fixture
def over_sites(grid_of, tmp_path):
    """Return a function that fits over a fake Grid; it gives all models."""
    from flwr.app import Context, RecordDict

    from fedcore.federation.flower import client_app, server_app

    def fit(estimator):
        X, y, clients = rows()
        apps = {}
        for node, (name, own) in enumerate(SITES.items()):
            mask = np.isin(clients, own)
            data = X[mask], y[mask], clients[mask]
            app = client_app(estimator, lambda _, data=data: data, state_dir=tmp_path)
            apps[node + 1] = app, {"name": name}
        options = {"sites": 3, "deadline": 20.0, "patience": 20.0}
        server = server_app(estimator, out=tmp_path / "out", **options)
        server(grid_of(apps), Context(1, 0, {}, RecordDict(), {}))
        assert not len(server.fitted.faults_["fault"])
        return server.fitted, {n: load(tmp_path / f"{n}.npz") for n in SITES}

    return fit


@pytest.mark.parametrize("scope", ["federation", "client"])
def test_a_scaler_over_flower(scope, over_sites):
    X, _, clients = rows()
    scaler = FedStandardScaler(scope, handle_unknown="shared")
    coordinator, sites = over_sites(scaler)
    whole = scaler.fit(X, clients=clients)
    assert_allclose(coordinator.mean_, whole.mean_, rtol=1e-13, atol=1e-15)
    assert_allclose(coordinator.scale_, whole.scale_, rtol=1e-13)
    expected = whole.transform(X, clients)
    for name, own in SITES.items():
        mask = np.isin(clients, own)
        Z = sites[name].transform(X[mask], clients[mask])
        assert_allclose(Z, expected[mask], rtol=1e-11, atol=1e-13)


class Wary(LocalEngine):
    """Methods expect of it what they expect of a network: that replies may be lost."""

    hears_everybody = False


@pytest.mark.parametrize("scope", [None, "client"])
def test_a_search_over_flower(scope, over_sites):
    X, y, clients = rows()
    model = FedMTLSVC(
        aggregation="line_search", loss="squared_hinge", tol=0.05, random_state=0
    )
    name = "C1"
    if scope is not None:
        model = make_pipeline(FedStandardScaler(scope), model)
        name = "fedmtlsvc__C1"
    search = FederatedSearchCV(model, {name: [0.001, 0.01]}, cv=2, random_state=2)
    coordinator, sites = over_sites(search)
    whole = search.set_params(engine=Wary()).fit(X, y, clients)
    assert_array_equal(coordinator.client_scores_, whole.client_scores_)
    for column, values in whole.cv_results_.items():
        if column.endswith("_score"):
            assert_allclose(coordinator.cv_results_[column], values, rtol=1e-14)
    assert coordinator.best_params_ == whole.best_params_
    for site, own in SITES.items():
        mask = np.isin(clients, own)
        seen = sites[site].decision_function(X[mask], clients[mask])
        expected = whole.decision_function(X[mask], clients[mask])
        assert_allclose(seen, expected, rtol=1e-9, atol=1e-12)
