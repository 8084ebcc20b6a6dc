"""The sparse methods over Flower: the bits of one process, whoever answered."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from fedcore import (
    DistributedIHT,
    FedBestSubset,
    FederatedSearchCV,
    FedHT,
    FedIterHT,
    LocalEngine,
    load,
)
from fedcore.federation.flower import client_app, server_app

pytest.importorskip("flwr", minversion="1.42")

from fake_grid import FakeGrid
from flwr.app import Context, Error, Message, RecordDict

SITES = {"north": ["a", "b"], "south": ["c"], "west": ["d", "e"]}
STOPPED = "ignore::sklearn.exceptions.ConvergenceWarning"


def rows(loss):
    rng = np.random.default_rng(0)
    clients = np.sort(rng.choice(list("abcde"), 120))
    X = rng.normal(size=(120, 8)) * (rng.random((120, 8)) < 0.6)
    scores = X @ rng.normal(size=(8, 3)) + 0.3 * rng.normal(size=(120, 3))
    if loss == "squared":
        return X, scores[:, 0], clients
    if loss == "logistic":
        return X, np.where(scores[:, 0] > 0, "yes", "no"), clients
    y = np.array(["red", "green", "blue"])[scores.argmax(axis=1)]
    y[(y == "blue") & (clients == "c")] = "red"  # south never saw blue
    return X, y, clients


def serve(model, data, folder, tamper=None, **options):
    """Fit over three sites on a fake Grid; give the coordinator's estimator."""
    X, y, clients = data
    apps = {}
    for node, (name, own) in enumerate(SITES.items(), start=1):
        mine = np.isin(clients, own)
        part = X[mine], y[mine], clients[mine]
        app = client_app(model, lambda _, part=part: part, state_dir=folder)
        apps[node] = app, {"name": name}
    grid = FakeGrid(apps)
    grid.tamper = tamper
    options = {"sites": 3, "deadline": 20.0, "patience": 20.0} | options
    server = server_app(model, out=folder / "out", **options)
    server(grid, Context(1, 0, {}, RecordDict(), {}))
    return server.fitted


def assert_same_bits(fitted, model, data):
    """Compare with one process in which the same clients answered."""
    local = clone(model).set_params(engine=LocalEngine(replay=fitted.record_))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        local.fit(*data)
    assert_array_equal(fitted.coef_, local.coef_)
    assert_array_equal(fitted.intercept_, local.intercept_)
    assert fitted.objective_ == local.objective_
    assert_array_equal(fitted.history_["objective"], local.history_["objective"])
    return local


MODELS = {
    "FedIterHT": FedIterHT(4, max_rounds=6, random_state=0),
    "control": FedIterHT(
        4, control_variates=True, batch_size=7, max_rounds=6, random_state=0
    ),
    "FedHT": FedHT(4, weights="uniform", max_rounds=6, random_state=0),
    "refit": FedHT(4, refit=True, step_size=0.05, max_rounds=6, random_state=0),
    "DistributedIHT": DistributedIHT(4, max_rounds=6, random_state=0),
    "FedBestSubset": FedBestSubset(4, max_rounds=6, l2=1e-3, random_state=0),
    "always": FedBestSubset(
        6, always_select=[1, 5], pool_size=8, l2=1e-3, random_state=0
    ),
}


@pytest.mark.filterwarnings(STOPPED)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", ["squared", "logistic", "softmax"])
@pytest.mark.parametrize("name", MODELS)
def test_sites_find_the_bits_of_one_process(name, loss, form, tmp_path):
    model = clone(MODELS[name]).set_params(loss=loss)
    if loss == "softmax":
        model.set_params(n_nonzero_coefs=10)
        if name == "always":
            model.set_params(pool_size=12)
    X, y, clients = rows(loss)
    data = form(X), y, clients
    fitted = serve(model, data, tmp_path)
    assert not len(fitted.faults_["fault"])
    local = assert_same_bits(fitted, model, data)
    assert_array_equal(fitted.predict(X), local.predict(X))
    for site, own in SITES.items():
        at_site = load(tmp_path / f"{site}.npz")
        assert_array_equal(at_site.coef_, local.coef_)
        assert at_site.clients_.tolist() == own


@pytest.mark.filterwarnings(STOPPED)
@pytest.mark.parametrize("name", ["FedIterHT", "control", "FedHT"])
def test_a_lost_reply_is_a_masked_client(name, tmp_path):
    def tamper(node, push, message, answer):
        if push == 4 and node == 2:
            return [Message(Error(5, "Node Unavailable"), reply_to=message)]
        return [answer()]

    data = rows("squared")
    fitted = serve(MODELS[name], data, tmp_path, tamper, patience=0.3)
    assert fitted.faults_["fault"].tolist() == ["failed"]
    assert_same_bits(fitted, MODELS[name], data)


def test_a_fit_that_stops_short_warns_at_the_coordinator(tmp_path):
    model = FedIterHT(3, max_rounds=2, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match="stopped after max_rounds=2"):
        serve(model, rows("squared"), tmp_path)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (FedIterHT(), "n_nonzero_coefs is None, over sites expected a number"),
        (FedBestSubset(3, weights=[1, 2, 3]), "weights is .*, over sites expected"),
        (FedBestSubset(3, always_select=["age"]), "'age', which is no column"),
        (FedIterHT(0.5), "n_nonzero_coefs"),
    ],
)
def test_what_only_rows_could_tell_is_refused_at_the_server(model, message, tmp_path):
    with pytest.raises((ValueError, TypeError), match=message):
        serve(model, rows("squared"), tmp_path)


@pytest.mark.parametrize(
    ("model", "loss", "message"),
    [
        (FedIterHT(9), "squared", "n_nonzero_coefs == 9, expected at most 8"),
        (FedBestSubset(3, always_select=[8]), "squared", "has 8, X has 8 columns"),
        (FedBestSubset(3, always_select=[0, 1]), "softmax", "with 6 coefficients"),
        (FedIterHT(3), "three classes", "Only binary classification"),
    ],
)
def test_what_does_not_fit_the_sites_is_refused(model, loss, message, tmp_path):
    data = rows("softmax" if loss == "three classes" else loss)
    loss = "logistic" if loss == "three classes" else loss
    with pytest.raises(ValueError, match=message):
        serve(clone(model).set_params(loss=loss), data, tmp_path)


@pytest.mark.filterwarnings(STOPPED)
def test_a_search_over_sites_chooses_as_one_process(tmp_path):
    model = FedBestSubset(2, l2=1e-3, max_rounds=5)
    search = FederatedSearchCV(model, {"n_nonzero_coefs": [2, 5]}, cv=2)
    data = rows("logistic")
    search.set_params(estimator__loss="logistic")
    fitted = serve(search, data, tmp_path)
    whole = clone(search).fit(*data)
    assert fitted.best_params_ == whole.best_params_
