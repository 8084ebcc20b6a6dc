"""The SVMs over sites that hold several clients each: the bits of one process."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from fedcore import FederatedSearchCV, FedMTLSVC, FedMTLSVR, LocalEngine, load

pytest.importorskip("flwr", minversion="1.42")

from fake_grid import FakeGrid
from flwr.app import Context, RecordDict

from fedcore.federation.checkpoint import unpack_state
from fedcore.federation.flower import _bytes, client_app, server_app

# A site's clients have names of their own kind; they sort within a site only.
SITES = {"north": [0, 1, 2], "south": [3], "west": [4, 5]}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    clients = np.sort(rng.integers(6, size=180))
    X = rng.normal(size=(180, 7)) * (rng.random((180, 7)) < 0.5)
    scores = X @ rng.normal(size=(7, 3)) + 0.2 * rng.normal(size=(180, 3))
    return X, scores, clients


def labels(scores, clients):
    y = np.array(["red", "green", "blue"])[scores.argmax(axis=1)]
    y[(y == "blue") & (clients == 3)] = "red"  # south never saw blue
    y[(y == "green") & (clients == 0)] = "red"
    return y


def serve(model, X, y, clients, folder, tamper=None):
    apps = {}
    column = getattr(model, "client_column", None) is not None
    for node, (name, own) in enumerate(SITES.items(), start=1):
        mine = np.isin(clients, own)
        part = (X[mine], y[mine]) if column else (X[mine], y[mine], clients[mine])
        app = client_app(model, lambda _, part=part: part, state_dir=folder)
        apps[node] = app, {"name": name}
    options = {"sites": 3, "deadline": 20.0, "patience": 20.0}
    server = server_app(model, out=folder / "out", **options)
    grid = FakeGrid(apps)
    grid.tamper = tamper
    server(grid, Context(1, 0, {}, RecordDict(), {}))
    assert not len(server.fitted.faults_["fault"])
    return server.fitted


def assert_same_bits(fitted, model, data, folder):
    X, y, clients = data
    local = clone(model).set_params(engine=LocalEngine(replay=fitted.record_))
    local.fit(X, y, None if model.client_column is not None else clients)
    assert_array_equal(fitted.coef_, local.coef_)
    assert_array_equal(fitted.intercept_, local.intercept_)
    assert fitted.dual_gap_ == local.dual_gap_
    for site, own in SITES.items():
        at_site = load(folder / f"{site}.npz")
        assert at_site.clients_.tolist() == own
        places = np.searchsorted(local.clients_, own)
        assert_array_equal(at_site.client_intercept_, local.client_intercept_[places])
        mine = np.isin(clients, own)
        whose = () if model.client_column is not None else (clients[mine],)
        ours, theirs = (m.predict(X[mine], *whose) for m in (at_site, local))
        assert_array_equal(ours, theirs)


@pytest.mark.parametrize("aggregation", ["auto", "line_search", "safe"])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("kind", ["two", "three", "numbers"])
def test_several_clients_a_site(kind, form, aggregation, rows, tmp_path):
    X, scores, clients = rows
    estimator = FedMTLSVR if kind == "numbers" else FedMTLSVC
    model = estimator(
        C2=3.0, aggregation=aggregation, tol=1e-2, max_rounds=10, random_state=0
    )
    y = {
        "two": np.where(scores[:, 0] > 0, "yes", "no"),
        "three": labels(scores, clients),
        "numbers": scores[:, 0],
    }[kind]
    data = form(X), y, clients
    fitted = serve(model, *data, tmp_path)
    assert_same_bits(fitted, model, data, tmp_path)


def test_the_clients_are_a_column(rows, tmp_path):
    X, scores, clients = rows
    X = np.column_stack([X[:, :3], clients, X[:, 3:]])
    model = FedMTLSVR(C2=3.0, client_column=3, max_rounds=10, random_state=0)
    data = X, scores[:, 0], clients
    fitted = serve(model, *data, tmp_path)
    assert fitted.n_features_in_ == 8
    assert_same_bits(fitted, model, data, tmp_path)


def test_a_fit_that_stops_short_warns_once_at_the_coordinator(rows, tmp_path):
    X, scores, clients = rows
    model = FedMTLSVR(C2=3.0, max_rounds=2, tol=1e-9, random_state=0)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always", ConvergenceWarning)
        serve(model, X, scores[:, 0], clients, tmp_path)
    said = [str(w.message) for w in seen if w.category is ConvergenceWarning]
    assert len(said) == 1
    assert said[0].startswith("FedMTLSVR stopped after 2 rounds")


def test_the_last_message_tells_a_site_nothing_of_other_clients(rows, tmp_path):
    X, scores, clients = rows
    y = np.where(scores[:, 0] > 0, "yes", "no")
    seen = []

    def spy(node, push, message, answer):
        seen.append(unpack_state(_bytes(message.content)))
        return [answer()]

    search = FederatedSearchCV(
        FedMTLSVC(max_rounds=3, tol=0.1, random_state=0), {"C1": [0.1, 1.0]}, cv=2
    )
    serve(search, X, y, clients, tmp_path, spy)
    (last, *_) = [message for message in seen if message["kind"] == "close"]
    assert set(last["found"]) == {"folds", "worst", "inner"}
    assert last["found"]["folds"].shape == (2, 2, 5)  # candidates, folds
    assert set(last["found"]["inner"]) == {
        "w",
        "gap",
        "primal",
        "certified",
        "diverged",
    }
