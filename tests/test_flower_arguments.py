"""What a user of the Flower apps may get wrong, and what is left of a run."""

import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LogisticRegression

import fedcore
from fedcore import FedGraphMTL, FedMTLSVC, LocalEngine
from fedcore.datasets import make_mtl_classification
from fedcore.federation.flower import client_app, server_app
from fedcore.federation.record import Record

pytest.importorskip("flwr", minversion="1.42")

from fake_grid import FakeGrid
from flwr.app import Context, RecordDict

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
MODEL = FedMTLSVC(max_rounds=3, tol=0.1, random_state=0)
X, Y, CLIENTS = make_mtl_classification(3, 20, 4, random_state=0)


def serve(folder, loads=None, names=("a", "b", "c"), **options):
    apps = {}
    for k, name in enumerate(names):
        rows = X[CLIENTS == k], Y[CLIENTS == k]
        data = rows if loads is None else loads(k, rows)
        app = client_app(MODEL, lambda _, data=data: data, state_dir=folder)
        apps[k + 1] = app, {"name": name}
    options = {"sites": 3, "deadline": 1.0, "patience": 1.0, **options}
    app = server_app(MODEL, out=folder / "out", **options)
    app(FakeGrid(apps), Context(1, 0, {}, RecordDict(), {}))
    return app.fitted


@pytest.mark.parametrize(
    "estimator", [FedGraphMTL(), LogisticRegression(), FedMTLSVC, None]
)
def test_what_does_not_run_over_sites_is_refused_at_once(estimator):
    with pytest.raises(TypeError, match="expected an instance of an estimator"):
        server_app(estimator, sites=2)
    with pytest.raises(TypeError, match="expected an instance of an estimator"):
        client_app(estimator, lambda context: None, state_dir=".")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sites": None}, "sites is None, expected how many"),
        ({"sites": "abc"}, "sites is 'abc', expected how many"),
        ({"sites": []}, r"sites is \[\], expected"),
        ({"sites": ["a", "a", "b"]}, "sites is .* expected how many"),
        ({"patience": np.nan}, "patience is nan, expected seconds"),
        ({"deadline": np.inf}, "deadline is inf, expected seconds"),
    ],
)
def test_options_are_checked_before_anything_is_sent(options, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        serve(tmp_path, **options)
    assert not list(tmp_path.glob("*.site"))


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda rows: rows[:1], "load_data gave 1 parts"),
        (lambda rows: (*rows, rows[1], 1), "load_data gave 4 parts"),
        (lambda rows: rows[0], "load_data gave <class"),
        (lambda rows: (np.full_like(rows[0], np.nan), rows[1]), "contains NaN"),
    ],
)
def test_a_site_with_bad_rows_is_named_and_left_out(spoil, told, tmp_path):
    fitted = serve(tmp_path, lambda k, rows: spoil(rows) if k == 1 else rows)
    assert fitted.record_.sites == ["a", "c"]
    assert told in fitted.faults_["reason"][0]


def test_a_site_needs_a_name(tmp_path):
    fitted = serve(tmp_path, names=("a", "", "c"))
    assert fitted.record_.sites == ["a", "c"]
    assert "name of the node config is empty" in fitted.faults_["reason"][0]


def test_the_coordinators_model_can_be_saved_as_it_is(tmp_path):
    fitted = serve(tmp_path)
    fedcore.save(tmp_path / "model.npz", fitted)
    again = fedcore.load(tmp_path / "model.npz")
    assert again.record_ == fitted.record_
    assert_array_equal(again.coef_, fitted.coef_)


@pytest.mark.parametrize(
    "names",
    [
        ['a"b', "c'd", "\u2028"],
        [np.str_("x"), np.int64(3), 2.5],
        [("a", 1), ("b", 2), ("c", 3)],
    ],
)
def test_a_record_keeps_odd_names_well_enough_to_repeat_the_run(names, tmp_path):
    ids = np.empty(60, object)
    ids[:] = [names[k] for k in CLIENTS]
    app = client_app(MODEL, lambda _: (X, Y, ids), state_dir=tmp_path)
    server = server_app(MODEL, sites=1, out=tmp_path)
    server(FakeGrid({1: (app, {"name": "s"})}), Context(1, 0, {}, RecordDict(), {}))
    record = Record.load(tmp_path / "record.json")
    local = FedMTLSVC(**MODEL.get_params() | {"engine": LocalEngine(replay=record)})
    assert_array_equal(local.fit(X, Y, ids).coef_, server.fitted.coef_)


@pytest.mark.parametrize(
    "content",
    [
        "{}",
        "[1]",
        "nonsense",
        json.dumps({"form": "fedcore-record-1"}),
        json.dumps(
            {
                "form": "fedcore-record-1",
                "seed": 1,
                "sites": 3,
                "clients": 1,
                "answered": 2,
            }
        ),
        json.dumps(
            {
                "form": "fedcore-record-1",
                "seed": 1,
                "sites": ["a"],
                "clients": [],
                "answered": [],
            }
        ),
    ],
)
def test_a_file_that_is_no_record_is_refused(content, tmp_path):
    path = tmp_path / "record.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="record of a run"):
        Record.load(path)
