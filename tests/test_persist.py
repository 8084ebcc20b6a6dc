"""What is saved comes back bit by bit, and nothing else ever does."""

import json
import os
import pickle
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from scipy import sparse, stats
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fedcore
from fedcore import (
    DistributedIHT,
    FedBestSubset,
    FedHT,
    FedIterHT,
    FedMTLSVC,
    FedMTLSVR,
    LocalEngine,
    Timing,
    load,
    save,
)
from fedcore.datasets import make_mtl_classification, make_mtl_regression
from fedcore.persist import _CLASSES, SavedModelError

pytestmark = pytest.mark.filterwarnings(
    "ignore::sklearn.exceptions.ConvergenceWarning", "ignore:.*starved:UserWarning"
)
SIZES = {"n_clients": 4, "n_samples": 15, "n_features": 6, "random_state": 0}
LATE = Timing(stats.gamma(2, scale=0.5), wait=4e-6, dropout=0.1, trace=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.npz"


def there_and_back(path, model):
    save(path, model)
    again = load(path)
    assert type(again) is type(model)
    if not isinstance(model.random_state, np.random.RandomState):
        assert repr(again) == repr(model)
    return again


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array], ids=["dense", "csr"])
@pytest.mark.parametrize(
    "model",
    [
        FedMTLSVC(random_state=0),
        FedMTLSVC(warm_start=True, class_weight={1: 2.0}, random_state=0),
        FedMTLSVC(early_stopping=True, personal_features=[0, 2], random_state=0),
        FedMTLSVC(engine=LocalEngine(timing=LATE), random_state=0, max_rounds=20),
        FedMTLSVR(random_state=np.random.RandomState(3)),
        FedIterHT(2, loss="logistic", weights=[1.0, 2, 1, 1], random_state=0),
        FedHT(2, loss="logistic", random_state=0),
        DistributedIHT(2, random_state=0),
        FedBestSubset(2, always_select=np.array([1])),
    ],
    ids=lambda model: type(model).__name__,
)
def test_a_model_comes_back(path, model, form, assert_same_fit):
    tags = model.__sklearn_tags__()
    make = make_mtl_regression
    if tags.estimator_type == "classifier":
        make = make_mtl_classification
    X, y, clients = make(**SIZES)
    model.fit(form(X), y, clients)
    again = there_and_back(path, model)
    trace, seconds = vars(model).get("trace_"), model.history_["time"]
    assert_same_fit(model, again)
    assert_array_equal(seconds, again.history_["time"])
    assert (trace is None) == (vars(again).get("trace_") is None)
    which = (clients,) if hasattr(model, "client_coef_") else ()
    assert_array_equal(model.predict(form(X), *which), again.predict(form(X), *which))
    assert_same_fit(model.fit(form(X), y, clients), again.fit(form(X), y, clients))


def test_every_class_has_its_place():
    estimators = {n for n in fedcore.__all__ if hasattr(getattr(fedcore, n), "fit")}
    assert estimators == _CLASSES.keys()
    for name in _CLASSES:
        other = load_after_save(getattr(fedcore, name)())
        assert repr(other) == repr(getattr(fedcore, name)())


def load_after_save(model):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "x")
        save(path, model)
        assert os.listdir(folder) == ["x"]
        return load(path)


@pytest.mark.parametrize(
    "names",
    [
        [3, 1, 2],
        [1.5, -0.0, np.inf],
        ["b", "aé\U0001f600", ""],
        [("ward", 1), ("ward", 2), ("icu", 1.5)],
        ["x", 7, 2.5],
        np.array(["2020-01-01", "2021-01-01", "2019-06-01"], "M8[D]"),
        np.array([b"x", b"yy", b"z"]),
        np.array([True, False, True])[:2],
    ],
    ids=str,
)
@pytest.mark.parametrize("labels", [["yes", "no"], [10, 20], [True, False]], ids=str)
def test_identifiers_and_labels_of_any_type(path, names, labels, assert_same_fit):
    X, y, _ = make_mtl_classification(**SIZES)
    clients = [names[i % len(names)] for i in range(len(y))]
    if isinstance(names, np.ndarray):
        clients = np.array(clients, names.dtype)
    model = FedMTLSVC(random_state=0).fit(X, np.where(y > 0, *labels), clients)
    again = there_and_back(path, model)
    assert_same_fit(model, again)
    assert again.clients_.dtype == model.clients_.dtype
    assert list(map(type, again.clients_.tolist())) == list(
        map(type, model.clients_.tolist())
    )
    assert again.classes_.dtype == model.classes_.dtype
    assert_array_equal(model.predict(X, clients), again.predict(X, clients))


def test_names_of_columns_are_kept(path):
    X, y, clients = make_mtl_classification(**SIZES)
    table = pd.DataFrame(X, columns=list("abcdef")).assign(site=clients)
    model = FedMTLSVC(client_column="site", random_state=0).fit(table, y)
    again = there_and_back(path, model)
    assert_array_equal(again.feature_names_in_, model.feature_names_in_)
    assert_array_equal(again.predict(table), model.predict(table))


def test_other_ways_to_keep_a_model_work_too(tmp_path, assert_same_fit):
    X, y, clients = make_mtl_classification(**SIZES)
    engine = LocalEngine(timing=LATE, checkpoint=tmp_path / "run.ckpt")
    model = FedMTLSVC(engine=engine, max_rounds=9, random_state=0).fit(X, y, clients)
    joblib.dump(model, tmp_path / "model.joblib")
    for again in (
        joblib.load(tmp_path / "model.joblib"),
        pickle.loads(pickle.dumps(model)),
        load_after_save(model),
        clone(model).fit(X, y, clients),
    ):
        assert_same_fit(model, again)


@pytest.mark.parametrize(
    "model, match",
    [
        (LinearRegression(), "estimator is a LinearRegression, expected one of FedMTL"),
        (make_pipeline(StandardScaler(), FedMTLSVC()), "estimator is a Pipeline"),
        (type("FedMTLSVC", (FedMTLSVC,), {})(), "estimator is a FedMTLSVC, expected"),
        (FedMTLSVC(C1=print), "C1 is a function"),
        (FedMTLSVC(C1=object()), "C1 is a object, expected numbers, strings"),
        (
            FedMTLSVC(engine=LocalEngine(timing=Timing(lambda s, d, k: s, wait=1.0))),
            "engine.timing.delay is a function, expected numbers or a distribution",
        ),
        (
            FedMTLSVC(engine=type("Engine", (LocalEngine,), {})()),
            "engine is a Engine, expected",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_saved_is_named(path, model, match):
    with pytest.raises(SavedModelError, match=match):
        save(path, model)
    assert not path.exists()


@pytest.fixture(scope="module")
def good():
    X, y, clients = make_mtl_classification(**SIZES)
    model = FedMTLSVC(random_state=0).fit(sparse.csr_array(X), y, clients)
    with tempfile.TemporaryDirectory() as folder:
        save(os.path.join(folder, "x"), model)
        return Path(folder, "x").read_bytes()


def test_numpy_opens_it_without_pickle(good):
    with np.load(BytesIO(good), allow_pickle=False) as content:
        header = json.loads(content["header"].tobytes())
        assert all(content[name].dtype.kind in "biuf" for name in content)
    assert header["class"] == "FedMTLSVC"


def with_header(good, **changes):
    """Write the file anew, with another header."""
    with np.load(BytesIO(good)) as content:
        arrays = dict(content)
    header = json.loads(arrays["header"].tobytes()) | changes
    text = json.dumps(header).encode()
    arrays["header"] = np.frombuffer(text, np.uint8)
    file = BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def compressed(good):
    file = BytesIO()
    with np.load(BytesIO(good)) as content:
        np.savez_compressed(file, **content)
    return file.getvalue()


def with_objects(good):
    file = BytesIO()
    np.savez(file, header=np.array([print], object))
    return file.getvalue()


def with_a_long_array(good):
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }"
    npy = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("header.npy", npy)
    return file.getvalue()


@pytest.mark.parametrize(
    "spoil, match",
    [
        (lambda good: b"", "is no saved model"),
        (lambda good: b"hello" * 100, "is no saved model: File is not a zip file"),
        (lambda good: good[:-30], "is no saved model"),
        (lambda good: good[: len(good) // 2], "is no saved model"),
        (compressed, "is no saved model: its parts are compressed"),
        (with_objects, "is no saved model"),
        (with_a_long_array, "an array of float64 has the wrong length"),
        (lambda good: with_header(good, form="x"), "its header is another"),
        (lambda good: with_header(good, version=2), "has version 2 of the form, this"),
        (lambda good: with_header(good, **{"class": "Popen"}), "holds a 'Popen', exp"),
        (lambda good: with_header(good, **{"class": ["a"]}), r"holds a \['a'\], expec"),
        (
            lambda good: with_header(good, params={"C9": ["tuple", []]}),
            "does not hold a FedMTLSVC",
        ),
        (
            lambda good: with_header(good, fitted={"predict": ["tuple", []]}),
            "does not hold a FedMTLSVC",
        ),
    ],
)
def test_a_foreign_file_is_refused_in_a_sentence(path, good, spoil, match):
    path.write_bytes(spoil(good))
    with pytest.raises(SavedModelError, match=match):
        load(path)


def test_a_fitted_value_never_takes_the_place_of_a_method(path):
    model = FedMTLSVC()
    model.predict = 3
    save(path, model)
    with pytest.raises(SavedModelError, match="'predict' is no fitted attribute"):
        load(path)


def test_a_matrix_of_wild_places_is_refused(path):
    model = FedMTLSVC()
    model.client_coef_ = sparse.csr_array(np.eye(3))
    model.client_coef_.indices[1] = 10**6
    save(path, model)
    with pytest.raises(SavedModelError, match="does not hold a FedMTLSVC"):
        load(path)


@settings(deadline=None, max_examples=int(os.environ.get("FEDCORE_FUZZ", 200)))
@given(data=st.data())
def test_flipped_bits_are_refused_or_do_not_matter(data, good, tmp_path_factory):
    place = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[place] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.getbasetemp() / "flipped.npz"
    path.write_bytes(bad)
    try:
        assert repr(load(path)) == repr(FedMTLSVC(random_state=0))
    except SavedModelError:
        pass
