"""FedDaDiL over Flower: what sites find is what one process finds."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from fedcore import FedDaDiL, load

pytest.importorskip("flwr", minversion="1.42")
pytestmark = pytest.mark.filterwarnings("ignore")
SITES = {"north": ["a", "b"], "south": ["c"], "west": ["t"]}


def rows():
    rng = np.random.default_rng(0)
    clients = np.repeat(list("abct"), 40)
    value = rng.integers(3, size=160)
    X = np.array([[0, 4], [4, 0], [-3, -1]])[value] + rng.normal(size=(160, 2))
    X += (clients == "t")[:, None] * [1, -1]
    y = np.array(["red", "green", "blue"], object)[value]
    y[clients == "t"] = None
    return X, y, clients, np.array(["red", "green", "blue"])[value]


def test_sites_keep_their_coordinates(grid_of, tmp_path):
    from flwr.app import Context, RecordDict

    from fedcore.federation.flower import client_app, server_app

    X, y, clients, truth = rows()
    model = FedDaDiL(batch_size=20, max_rounds=12, random_state=0)
    apps = {}
    for node, (name, own) in enumerate(SITES.items()):
        mask = np.isin(clients, own)
        data = X[mask], y[mask], clients[mask]
        app = client_app(model, lambda _, data=data: data, state_dir=tmp_path)
        apps[node + 1] = app, {"name": name}
    options = {"sites": 3, "deadline": 20.0, "patience": 20.0}
    server = server_app(model, out=tmp_path / "out", **options)
    server(grid_of(apps), Context(1, 0, {}, RecordDict(), {}))
    assert not len(server.fitted.faults_["fault"])

    whole = model.fit(X, y, clients)
    assert_allclose(server.fitted.atoms_, whole.atoms_, rtol=1e-8, atol=1e-10)
    assert server.fitted.weights_.shape == (0, 3)
    with pytest.raises(ValueError, match="as a coordinator's"):
        server.fitted.predict(X)
    for name, own in SITES.items():
        site = load(tmp_path / f"{name}.npz")
        assert_array_equal(site.clients_, own)
        at = np.isin(whole.clients_, own)
        assert_allclose(site.weights_, whole.weights_[at], rtol=1e-8, atol=1e-10)
    target = clients == "t"
    assert_array_equal(site.targets_, ["t"])
    assert_array_equal(site.predict(X[target]), whole.predict(X[target]))
    assert np.mean(site.predict(X[target]) == truth[target]) > 0.9
    server.fitted.fit_domain(X[target], "t")
    assert np.mean(server.fitted.predict(X[target]) == truth[target]) > 0.9
