"""The data sets: real, simulated, dealt out, read from files."""

import gzip
import io
import math
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse
from sklearn.svm import LinearSVC

from fedcore.datasets import (
    WATCH_EXERCISES,
    load_clients,
    load_watch,
    make_mtl_classification,
    make_mtl_regression,
    partition_by_column,
    partition_dirichlet,
    partition_quantity,
)

BOTH = pytest.mark.parametrize(
    "make", [make_mtl_classification, make_mtl_regression], ids=lambda f: f.__name__
)


# The watch


def test_watch_has_ten_people_who_all_do_every_exercise():
    X, y, clients, recordings = load_watch(return_recordings=True)
    assert X.shape == (1149, 79) and X.dtype == np.float32
    assert X.flags.c_contiguous
    assert y.shape == clients.shape == recordings.shape == (1149,)
    assert_array_equal(np.unique(clients), np.arange(1, 11))
    assert len(set(zip(clients.tolist(), y.tolist(), strict=True))) == 70
    assert len(WATCH_EXERCISES) == y.max() + 1 == 7
    assert np.all(np.diff(clients) >= 0)


def test_watch_docstring_tells_the_size_of_the_clients():
    sizes = np.bincount(load_watch()[2])[1:]
    assert f"{sizes.min()} to {sizes.max()} a person" in load_watch.__doc__


def test_watch_recordings_are_of_one_person_arm_and_exercise():
    _, y, clients, recordings = load_watch(return_recordings=True)
    assert_array_equal(clients, recordings // 14 + 1)
    assert_array_equal(y, recordings % 7)
    assert np.unique(recordings).size == 140


def test_watch_columns_are_standardised():
    X = load_watch()[0].astype(float)
    assert_allclose(X.mean(axis=0), 0, atol=1e-3)
    assert_allclose(X.std(axis=0), 1, atol=1e-3)


def test_watch_as_frame_names_the_features():
    frame = load_watch(as_frame=True)[0]
    assert_array_equal(frame.to_numpy(), load_watch()[0])
    assert frame.columns.is_unique
    assert {"mean_ax", "q95_wnorm", "corr_wy_wz"} <= set(frame.columns)


def test_watch_is_small_and_carries_its_licence():
    folder = files("fedcore.datasets") / "data"
    assert len((folder / "watch.npz").read_bytes()) < 400_000
    notice = (folder / "WATCH_LICENSE.txt").read_text()
    assert "Copyright (c) 2018, David M. Burns" in notice
    assert "Redistribution and use in source and binary forms" in notice


def test_watch_people_share_something_and_differ():
    X, y, clients = load_watch()
    rng = np.random.default_rng(0)
    cell = clients * 7 + y
    train = np.zeros(y.size, dtype=bool)
    for c in np.unique(cell):
        rows = rng.permutation(np.flatnonzero(cell == c))
        train[rows[: rows.size // 5]] = True
    # [x, ..., x of the own person, ...]: the multi-task SVM as one plain SVM
    wide = np.zeros((y.size, 11, X.shape[1]), dtype=X.dtype)
    wide[:, 0] = X
    wide[np.arange(y.size), clients] = X
    wide = wide.reshape(y.size, -1)

    def errors(X, rows):
        model = LinearSVC(C=0.1, loss="hinge", random_state=0, max_iter=10_000)
        model.fit(X[rows & train], y[rows & train])
        return np.sum(model.predict(X[rows & ~train]) != y[rows & ~train])

    everybody = np.ones(y.size, dtype=bool)
    pooled = errors(X, everybody)
    local = sum(errors(X, clients == k) for k in range(1, 11))
    assert errors(wide, everybody) < 0.8 * min(pooled, local)


# The simulations


@BOTH
def test_simulation_shapes_and_types(make):
    X, y, clients = make(random_state=0)
    assert X.shape == (3000, 50) and X.dtype == np.float64
    assert_array_equal(clients, np.repeat(np.arange(30), 100))
    assert y.shape == (3000,)
    if make is make_mtl_classification:
        assert y.dtype == np.int64 and set(y.tolist()) == {-1, 1}


@BOTH
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_simulation_depends_on_the_seed_alone(make, density):
    args = dict(n_clients=4, n_samples=9, n_features=20, density=density)
    (X, y, _), (again, y_again, _), (other, _, _) = (
        make(**args, random_state=s) for s in (3, np.random.RandomState(3), 4)
    )
    dense = [A.toarray() if issparse(A) else A for A in (X, again, other)]
    assert_array_equal(dense[0], dense[1])
    assert_array_equal(y, y_again)
    assert not np.array_equal(dense[0], dense[2])


@BOTH
def test_asking_for_the_models_changes_nothing_else(make):
    plain = make(random_state=1)
    assert_array_equal(plain[1], make(random_state=1, coef=True)[1])


def test_heterogeneity_zero_is_one_model_for_all():
    *_, coef = make_mtl_regression(heterogeneity=0, coef=True, random_state=0)
    assert coef.shape == (30, 50)
    assert_array_equal(coef, np.tile(coef[0], (30, 1)))


@pytest.mark.parametrize("h", [0.3, 1.0, 3.0, 1e300])
def test_heterogeneity_sets_the_cosine_between_clients(h):
    *_, coef = make_mtl_regression(
        6, 1, 20_000, heterogeneity=h, coef=True, random_state=0
    )
    cosine = coef @ coef.T
    off = cosine[~np.eye(6, dtype=bool)]
    assert_allclose(np.diag(cosine), 1, rtol=1e-12)
    assert_allclose(off, 1 / (1 + h * h) if h < 1e9 else 0, atol=0.04)


@pytest.mark.parametrize("density", [1.0, 0.3])
def test_regression_is_the_score_plus_noise(density):
    X, y, clients, coef = make_mtl_regression(
        20, 400, noise=0.5, density=density, coef=True, random_state=0
    )
    score = np.asarray((X * coef[clients]).sum(axis=1)).ravel()
    assert_allclose(np.var(score), 1, rtol=0.1)
    assert_allclose(np.std(y - score), 0.5, rtol=0.03)
    exact = make_mtl_regression(
        20, 400, noise=0, density=density, coef=True, random_state=0
    )
    assert_allclose(exact[1], score, atol=1e-12)


@pytest.mark.parametrize("noise, flip_y", [(0.1, 0), (1.0, 0), (0.1, 0.4), (0, 1)])
def test_true_models_err_as_documented(noise, flip_y):
    X, y, clients, coef = make_mtl_classification(
        20, 2000, 10, noise=noise, flip_y=flip_y, coef=True, random_state=0
    )
    wrong = np.sign((X * coef[clients]).sum(axis=1)) != y
    expected = (1 - flip_y) * math.atan(noise) / math.pi + flip_y / 2
    assert_allclose(wrong.mean(), expected, atol=0.01)


def test_uninformative_columns_have_no_weight():
    *_, coef = make_mtl_regression(5, 4, 30, n_informative=7, coef=True, random_state=0)
    used = np.any(coef != 0, axis=0)
    assert np.count_nonzero(used) == 7
    assert np.all(coef[:, used] != 0)


@BOTH
def test_clients_may_differ_in_size(make):
    _, _, clients = make(3, [2, 7, 1], 4, random_state=0)
    assert_array_equal(clients, np.repeat([0, 1, 2], [2, 7, 1]))


@BOTH
@pytest.mark.parametrize("density", [0.004, 0.1, 0.5, 0.7, 0.99, 0.999])
def test_sparse_rows_have_exact_counts_of_distinct_ascending_columns(make, density):
    X, *_ = make(5, 40, 250, density=density, random_state=0)
    m = round(density * 250)
    assert isinstance(X, csr_array) and X.shape == (200, 250)
    assert X.indices.dtype == X.indptr.dtype == np.int32
    assert_array_equal(X.indptr, np.arange(201) * m)
    assert np.all(np.diff(X.indices.reshape(200, m), axis=1) > 0)
    assert X.indices.min() >= 0 and X.indices.max() < 250
    X.check_format(full_check=True)


@pytest.mark.parametrize("m", [2, 3])
def test_every_set_of_columns_is_equally_likely(m):
    X, *_ = make_mtl_regression(1, 6000, 4, density=m / 4, random_state=0)
    sets = (1 << X.indices.reshape(-1, m)).sum(axis=1)
    counts = np.unique(sets, return_counts=True)[1]
    assert counts.size == math.comb(4, m)
    assert_allclose(counts, 6000 / counts.size, rtol=0.1)


@BOTH
@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(n_clients=0), ValueError, "n_clients == 0"),
        (dict(n_clients=2.0), TypeError, "n_clients must be an instance of int"),
        (dict(n_samples=0), ValueError, "n_samples == 0"),
        (dict(n_samples=[5, 5]), ValueError, r"3 clients, got int64 of shape \(2,\)"),
        (dict(n_samples=[5, 0, 5]), ValueError, "n_samples of client 1 is 0"),
        (dict(n_samples=[5.0] * 3), ValueError, "got float64"),
        (dict(n_features=0), ValueError, "n_features == 0"),
        (dict(heterogeneity=-1), ValueError, "heterogeneity == -1"),
        (dict(heterogeneity=math.inf), ValueError, "heterogeneity == inf, must be fin"),
        (dict(heterogeneity="much"), TypeError, "heterogeneity"),
        (dict(n_informative=9), ValueError, "n_informative == 9, n_features is 8"),
        (dict(n_informative=0), ValueError, "n_informative == 0"),
        (dict(noise=math.nan), ValueError, "noise == nan, must be finite"),
        (dict(noise=-0.1), ValueError, "noise == -0.1"),
        (dict(density=0), ValueError, "density == 0"),
        (dict(density=1.1), ValueError, "density == 1.1"),
        (dict(density=0.05), ValueError, "leaves none of 8 features"),
        (dict(random_state="x"), ValueError, "cannot be used to seed"),
    ],
    ids=lambda v: str(v)[:40] if isinstance(v, dict) else "",
)
def test_simulation_complains(make, wrong, error, message):
    with pytest.raises(error, match=message):
        make(**(dict(n_clients=3, n_samples=5, n_features=8) | wrong))


def test_flip_y_is_a_fraction():
    with pytest.raises(ValueError, match="flip_y == 2"):
        make_mtl_classification(flip_y=2)


# The partitioners


def test_column_partition_numbers_the_sorted_values():
    X = np.array([[0.5, 7], [0.1, 3], [0.2, 7], [0.3, -1]])
    expected = [2, 1, 2, 0]
    frame = pd.DataFrame(X, columns=["a", "b"])
    for table in (X, X.tolist(), csr_array(X), frame):
        clients = partition_by_column(table, 1)
        assert_array_equal(clients, expected)
        assert clients.dtype == np.int64
        assert_array_equal(partition_by_column(table, -1), expected)
    assert_array_equal(partition_by_column(frame, "b"), expected)


def test_column_partition_takes_text_and_categories():
    frame = pd.DataFrame({"job": ["nurse", "baker", "nurse"]})
    assert_array_equal(partition_by_column(frame, "job"), [1, 0, 1])
    assert_array_equal(partition_by_column(frame.astype("category"), "job"), [1, 0, 1])
    assert_array_equal(partition_by_column(frame.to_numpy(object), 0), [1, 0, 1])


def test_column_partition_of_one_hot_columns(data_path):
    X, _, clients = load_clients(data_path("svm_a9a_occupation.npz"))
    ours = partition_by_column(X, list(range(46, 60)))
    pairs = set(zip(ours.tolist(), clients.tolist(), strict=True))
    assert len(pairs) == 15 == np.unique(ours).size == np.unique(clients).size


@pytest.mark.parametrize(
    "column, message",
    [
        ("z", "X has no column 'z'"),
        (3, "column is 3, X has 3 columns"),
        (-4, "column == -4"),
        ([], "empty list"),
        ("text", "'text' has 1 missing values, the first in row 1"),
        ("number", "'number' has 2 missing values, the first in row 0"),
        ("mixed", "'mixed' mixes types"),
    ],
)
def test_column_partition_complains(column, message):
    frame = pd.DataFrame(
        {
            "text": ["a", None, "b"],
            "number": pd.array([None, 1, None], dtype="Int16"),
            "mixed": [1, "a", 2],
        }
    )
    with pytest.raises(ValueError, match=message):
        partition_by_column(frame, column)


def test_column_partition_complains_about_arrays():
    with pytest.raises(ValueError, match="X is not a DataFrame"):
        partition_by_column(np.zeros((2, 2)), "a")
    with pytest.raises(ValueError, match="X has 1 dimensions"):
        partition_by_column([1, 2], 0)
    with pytest.raises(ValueError, match="1 missing values, the first in row 1"):
        partition_by_column([[1.0], [np.nan]], 0)
    with pytest.raises(TypeError, match="column must be an instance of int"):
        partition_by_column([[1.0]], 0.5)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=30, max_size=60),
    st.integers(1, 6),
    st.floats(1e-6, 1e6),
    st.integers(0, 5),
    st.integers(0, 2**32 - 1),
)
def test_dealing_serves_every_client(y, n_clients, alpha, min_rows, seed):
    args = dict(alpha=alpha, min_rows=min_rows, random_state=seed)
    for deal, rows in ((partition_dirichlet, y), (partition_quantity, len(y))):
        clients = deal(rows, n_clients, **args)
        assert clients.shape == (len(y),) and clients.dtype == np.int64
        sizes = np.bincount(clients, minlength=n_clients)
        assert sizes.size == n_clients and sizes.min() >= min_rows
        assert_array_equal(clients, deal(rows, n_clients, **args))


def test_dirichlet_alpha_sets_the_skew_of_the_labels():
    y = np.repeat(np.arange(5), 400)

    def largest_share(alpha):
        clients = partition_dirichlet(y, 10, alpha=alpha, min_rows=0, random_state=0)
        table = np.zeros((5, 10))
        np.add.at(table, (y, clients), 1)
        return table.max(axis=1).mean() / 400

    assert largest_share(0.01) > 0.9 > 0.5 > largest_share(1.0) > 0.2
    assert_allclose(largest_share(1e6), 0.1, atol=0.003)


def test_dirichlet_takes_text_labels():
    y = ["spam", "ham"] * 20
    coded = partition_dirichlet([1, 0] * 20, 3, alpha=1, random_state=0)
    assert_array_equal(partition_dirichlet(y, 3, alpha=1, random_state=0), coded)


def test_quantity_alpha_sets_the_skew_of_the_sizes():
    def largest(alpha):
        clients = partition_quantity(1000, 10, alpha=alpha, random_state=0)
        return np.bincount(clients).max()

    assert largest(0.01) > 900 > 500 > largest(2.0) > 105 > largest(1e6)


def test_quantity_deals_at_random():
    clients = partition_quantity(1000, 2, alpha=1e6, random_state=0)
    assert 200 < clients[:500].sum() < 300


@pytest.mark.parametrize(
    "deal",
    [
        lambda **k: partition_dirichlet([0, 1] * 5, **k),
        lambda **k: partition_quantity(10, **k),
    ],
    ids=["dirichlet", "quantity"],
)
@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(n_clients=0), "n_clients == 0"),
        (dict(n_clients=11), "10 rows are too few for 11 clients of at least 1 rows"),
        (dict(min_rows=6), "10 rows are too few for 2 clients of at least 6 rows"),
        (dict(min_rows=-1), "min_rows == -1"),
        (dict(alpha=0), "alpha == 0"),
        (dict(alpha=math.nan), "alpha == nan, must be finite"),
    ],
    ids=str,
)
def test_dealing_complains(deal, wrong, message):
    with pytest.raises(ValueError, match=message):
        deal(**(dict(n_clients=2, alpha=1.0) | wrong))


def test_dirichlet_refuses_continuous_labels():
    with pytest.raises(ValueError, match="Unknown label type"):
        partition_dirichlet([0.1, 0.2, 0.3], 2, alpha=1)


# The files


@pytest.mark.parametrize(
    "name, shape, n_clients",
    [
        ("svm_watch", (2229, 212), 10),
        ("svm_a9a_occupation", (32561, 123), 15),
        ("svm_chem97", (31022, 3), 2410),
        ("graph_landmine", (14820, 9), 29),
        ("graph_school", (15362, 28), 139),
        ("graph_wisdm", (5418, 43), 36),
        ("graph_parkinsons", (5875, 19), 42),
        ("iht_productreviews_counts", (3806, 37683), 14),
        ("dadil_amazon_reviews400", (7996, 400), 4),
    ],
)
def test_shared_sets_load(data_path, name, shape, n_clients):
    path = data_path(f"{name}.npz")
    X, y, clients = load_clients(str(path))
    assert X.shape == shape and X.dtype == np.float32
    assert len(y) == len(clients) == shape[0]
    assert np.unique(clients).size == n_clients
    assert clients.dtype == np.int64
    with np.load(path) as stored:
        assert_array_equal(y, stored["y"])
        assert_array_equal(
            clients, stored["client" if "client" in stored else "domain"]
        )
        if issparse(X):
            assert X.indices.dtype == X.indptr.dtype == np.int32
            assert_array_equal(X.data, stored["data"])
            assert_array_equal(X.indices, stored["indices"])
        else:
            assert_array_equal(X, stored["X"])


@pytest.mark.parametrize("name", ["scene", "yeast", "emotions", "computers"])
def test_shared_sets_without_clients_are_refused(data_path, name):
    path = data_path(f"graph_{name}.npz")
    with pytest.raises(ValueError, match=f"graph_{name}.npz .* expected 'y' and 'clie"):
        load_clients(path)


def _npz(folder, **arrays):
    path = folder / "rows.npz"
    np.savez(path, **arrays)
    return path


TABLE = dict(X=np.ones((3, 2)), y=np.array([1, 0, 1]), client=np.array([4, 2, 4]))
CSR = dict(
    data=np.ones(2, np.float16),
    indices=np.array([1, 0], np.uint8),
    indptr=np.array([0, 1, 1, 2], np.uint16),
    shape=np.array([3, 2]),
    y=TABLE["y"],
    client=TABLE["client"],
)


@pytest.mark.parametrize(
    "stored, loaded",
    [
        ("f2", "f4"),
        ("f4", "f4"),
        ("f8", "f8"),
        ("u1", "f4"),
        ("i2", "f4"),
        ("i4", "f8"),
        ("?", "f4"),
    ],
)
def test_npz_rows_become_floats_without_loss(tmp_path, stored, loaded):
    X = load_clients(_npz(tmp_path, **TABLE | dict(X=np.ones((3, 2), stored))))[0]
    assert X.dtype == loaded
    assert_array_equal(X, 1)


def test_npz_small_integers_are_widened(tmp_path):
    y = np.array([250, 0, 1], np.uint8)
    client = np.array([9, 3, 9], np.uint8)
    _, y, clients = load_clients(_npz(tmp_path, **TABLE | dict(y=y, client=client)))
    assert y.dtype == clients.dtype == np.int64
    assert_array_equal(clients, [9, 3, 9])


def test_npz_sparse_rows(tmp_path):
    X, _, clients = load_clients(_npz(tmp_path, **CSR))
    assert isinstance(X, csr_array) and X.dtype == np.float32
    assert X.indices.dtype == np.int32
    assert_array_equal(X.toarray(), [[0, 1], [0, 0], [1, 0]])
    assert_array_equal(clients, [4, 2, 4])


@pytest.mark.parametrize(
    "arrays, message",
    [
        (dict(X=TABLE["X"], y=TABLE["y"]), "arrays X, y; expected 'y' and 'client'"),
        (dict(y=TABLE["y"], client=TABLE["client"]), "expected 'X' or all of data, in"),
        (TABLE | dict(client=[1, 2]), r"client has shape \(2,\), X has 3 rows"),
        (TABLE | dict(y=[1]), r"y has shape \(1,\), X has 3 rows"),
        (TABLE | dict(y=1), r"y has shape \(\), X has 3 rows"),
        (TABLE | dict(client=[0.5, 1, 2]), "client is float64 of shape"),
        (TABLE | dict(X=[1, 2, 3]), r"X is int64 of shape \(3,\), expected a table"),
        (TABLE | dict(X=[["a"], ["b"], ["c"]]), "expected a table of numbers"),
        (CSR | dict(indices=[5, 0]), "not a valid CSR matrix"),
        (CSR | dict(indptr=[0, 1]), "not a valid CSR matrix"),
        (CSR | dict(shape=3), "not a valid CSR matrix"),
    ],
)
def test_npz_complaints_name_the_file(tmp_path, arrays, message):
    with pytest.raises(ValueError, match=rf"rows\.npz.*{message}"):
        load_clients(_npz(tmp_path, **arrays))


def _damaged(kind):
    stream = io.BytesIO()
    if kind == "objects":
        np.savez(stream, **TABLE | dict(y=np.array([None] * 3)))
    elif kind == "one array":
        np.save(stream, np.ones(3))
    elif kind == "cut":
        np.savez(stream, **TABLE)
        return stream.getvalue()[:200]
    elif kind == "text":
        return b"not an archive"
    return stream.getvalue()


@pytest.mark.parametrize("kind", ["objects", "one array", "cut", "text", "empty"])
def test_damaged_npz_is_named(tmp_path, kind):
    path = tmp_path / "rows.npz"
    path.write_bytes(_damaged(kind))
    with pytest.raises(ValueError, match=r"rows\.npz is not an \.npz file of plain"):
        load_clients(path)


def test_missing_file_is_a_missing_file(tmp_path):
    for name in ("rows.npz", "rows.svm"):
        with pytest.raises(FileNotFoundError):
            load_clients(tmp_path / name)


def _text(folder, text, name="rows.svm"):
    path = folder / name
    path.write_text(text)
    return path


def test_svmlight_clients_are_the_qid(tmp_path):
    text = "1 qid:30 1:2 3:4\n-1 qid:4 2:1.5\n-1 qid:30 # nothing\n"
    X, y, clients = load_clients(_text(tmp_path, text))
    assert isinstance(X, csr_array) and X.indices.dtype == np.int32
    assert_array_equal(X.toarray(), [[2, 0, 4], [0, 1.5, 0], [0, 0, 0]])
    assert_array_equal(y, [1, -1, -1])
    assert_array_equal(clients, [30, 4, 30])
    assert clients.dtype == np.int64


def test_svmlight_clients_are_a_feature_named_as_in_the_file(tmp_path):
    from_one = _text(tmp_path, "1 1:5 2:30 3:6\n-1 3:7\n")
    X, _, clients = load_clients(from_one, client_column=2)
    assert_array_equal(X.toarray(), [[5, 6], [0, 7]])
    assert_array_equal(clients, [30, 0])
    from_zero = _text(tmp_path, "1 0:5 2:30 3:6\n-1 3:7\n")
    X, _, clients = load_clients(from_zero, client_column=2)
    assert_array_equal(X.toarray(), [[5, 0, 6], [0, 0, 7]])
    assert_array_equal(clients, [30, 0])
    X, _, clients = load_clients(from_zero, client_column=0)
    assert_array_equal(X.toarray(), [[0, 30, 6], [0, 0, 7]])


def test_svmlight_may_be_compressed(tmp_path):
    path = tmp_path / "rows.svm.gz"
    path.write_bytes(gzip.compress(b"1 qid:3 1:2\n"))
    assert_array_equal(load_clients(path)[2], [3])


@pytest.mark.parametrize(
    "text, column, message",
    [
        ("1 1:2\n-1 2:3\n", None, "has 2 rows and a qid in 0 of them"),
        ("1 qid:3 1:2\n-1 2:3\n", None, "has 2 rows and a qid in 1 of them"),
        ("", None, "has 0 rows"),
        ("hello\n", None, "is not an svmlight file"),
        ("1 1:2 2:3\n", 3, "client_column is 3, the features of rows.svm end at 2"),
        ("1 1:2 2:3\n", 0, "client_column == 0, must be >= 1"),
        ("1 1:2 2:3\n1 1:2.5\n", 1, "feature 1 is 2.5 in row 1, expected whole"),
    ],
)
def test_svmlight_complains(tmp_path, text, column, message):
    with pytest.raises(ValueError, match=message):
        load_clients(_text(tmp_path, text), client_column=column)


def test_client_column_is_for_text_files(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.npz: client_column is for svmlight"):
        load_clients(_npz(tmp_path, **TABLE), client_column=1)
