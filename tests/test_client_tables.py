"""Tables of FedMTLSVC and FedMTLSVR: coefficients by name, scores by client."""

import sys

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, r2_score

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.datasets import make_mtl_classification, make_mtl_regression

BOTH = pytest.mark.parametrize("estimator", [FedMTLSVC, FedMTLSVR])
EASY = {"C1": 0.02, "random_state": 0}


def rows_for(estimator, n_clients=4):
    make = make_mtl_classification if estimator is FedMTLSVC else make_mtl_regression
    X, y, owner = make(n_clients, 20, 3, random_state=0)
    mixed = np.random.default_rng(0).permutation(len(y))
    names = np.array([f"site {k:02}" for k in range(n_clients)])
    return X[mixed], y[mixed], names[owner[mixed]]


def framed(X, clients):
    frame = pd.DataFrame(X, columns=["age", "dose", "weight"])
    frame.insert(1, "site", clients)
    return frame


@BOTH
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_coefficients_score_rows_as_the_model_does(estimator, form):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(form(X), y, clients)
    total, personal = model.coefficients(), model.coefficients(part="personal")
    assert total.columns.tolist() == ["x0", "x1", "x2", "intercept"]
    assert total.index.tolist() == model.clients_.tolist()
    rows = np.column_stack([X, np.ones(len(y))])
    scores = np.einsum("nd,nd->n", rows, total.loc[clients].to_numpy())
    expected = getattr(model, "decision_function", model.predict)(X, clients)
    np.testing.assert_allclose(scores, expected, rtol=1e-10)
    shared = model.coefficients(part="shared")
    assert_array_equal(shared.to_numpy()[0, :3], np.ravel(model.coef_))
    np.testing.assert_allclose(shared.to_numpy() + personal, total, rtol=1e-12)
    one = model.coefficients("site 02")
    pd.testing.assert_frame_equal(one, total.loc[["site 02"]])


def test_coefficients_bear_the_names_of_the_frame_and_of_the_classes():
    X, y, clients = rows_for(FedMTLSVC)
    y = np.array(["no", "some", "yes"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    model = FedMTLSVC(client_column="site", fit_intercept=False, **EASY)
    table = model.fit(framed(X, clients), y).coefficients()
    assert table.columns.tolist() == ["age", "dose", "weight"]
    assert table.index.names == ["client", "class"]
    k, c = 1, 2
    expected = model.coef_[c] + model.client_coef_[k, c]
    assert_array_equal(table.loc[("site 01", "yes")], expected)
    shared = model.coefficients(part="shared")
    assert shared.index.tolist() == ["no", "some", "yes"]


@BOTH
def test_scores_are_those_of_each_clients_rows(estimator):
    X, y, clients = rows_for(estimator, n_clients=13)
    weight = np.random.default_rng(1).uniform(0.5, 2, len(y))
    model = estimator(**EASY).fit(X, y, clients)
    metric = accuracy_score if estimator is FedMTLSVC else r2_score
    for sample_weight in (None, weight):
        table = model.score_by_client(X, y, clients, sample_weight)
        assert sorted(table.index) == model.clients_.tolist()
        assert table["score"].is_monotonic_increasing
        for name, (n_rows, score) in table.iterrows():
            own = clients == name
            w = None if sample_weight is None else weight[own]
            assert n_rows == own.sum()
            predicted = model.predict(X[own], clients[own])
            assert score == metric(y[own], predicted, sample_weight=w)
        assert table.attrs["worst_tenth"] == table["score"].iloc[:2].mean()


@BOTH
def test_scores_follow_the_client_column(estimator):
    X, y, clients = rows_for(estimator)
    frame = framed(X, clients)
    model = estimator(client_column="site", **EASY).fit(frame, y)
    plain = estimator(**EASY).fit(X, y, clients)
    pd.testing.assert_frame_equal(
        model.score_by_client(frame, y), plain.score_by_client(X, y, clients)
    )


@BOTH
def test_clients_without_a_score_stand_last(estimator):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(X, y, clients)
    keep = clients != "site 01"
    keep[np.flatnonzero(~keep)[0]] = True
    weight = np.where(clients == "site 01", 0.0, 1.0)
    table = model.score_by_client(X[keep], y[keep], clients[keep], weight[keep])
    assert table.index[-1] == "site 01" and np.isnan(table["score"].iloc[-1])
    assert table["n_rows"].iloc[-1] == 1
    assert table.attrs["worst_tenth"] == table["score"].iloc[0]
    one = model.score_by_client(X[:1], y[:1], clients[:1])["score"].iloc[0]
    assert np.isnan(one) == (estimator is FedMTLSVR)  # R^2 needs two rows


@BOTH
def test_bad_questions_get_clear_answers(estimator):
    X, y, clients = rows_for(estimator)
    with pytest.raises(NotFittedError):
        estimator().coefficients()
    with pytest.raises(NotFittedError):
        estimator().score_by_client(X, y, clients)
    model = estimator(**EASY).fit(X, y, clients)
    with pytest.raises(ValueError, match="part == 'own', expected one of"):
        model.coefficients(part="own")
    with pytest.raises(ValueError, match="client == 'home', which was not there"):
        model.coefficients("home")
    with pytest.raises(ValueError, match="fitted on 4 clients: pass clients="):
        model.score_by_client(X, y)
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.score_by_client(X, y[:-1], clients)
    with pytest.raises(ValueError, match="sample_weight has a negative entry"):
        model.score_by_client(X, y, clients, -np.ones(len(y)))


@BOTH
def test_tables_need_pandas_and_say_so(estimator, monkeypatch):
    X, y, clients = rows_for(estimator)
    model = estimator(**EASY).fit(X, y, clients)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="coefficients makes a table: install pandas"):
        model.coefficients()
    with pytest.raises(ImportError, match="score_by_client makes a table: install"):
        model.score_by_client(X, y, clients)
