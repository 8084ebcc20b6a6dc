"""Personal parts in some columns alone: the optimum, and how columns are named."""

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.svm import LinearSVC, LinearSVR

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine

CLASSIFICATION = ["hinge", "squared_hinge"]
LOSSES = [*CLASSIFICATION, "epsilon_insensitive", "squared_epsilon_insensitive"]
RULES = ["sequential", "line_search", "safe"]
C1, EPSILON, K, D = 0.02, 0.1, 5, 6

quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def make_rows(loss, seed=0):
    """Clients with related linear tasks, their rows in mixed order."""
    rng = np.random.default_rng(seed)
    # Odd numbers of rows: multipliers that are all at their bound do not add up to 0.
    owner = rng.permutation(np.repeat(np.arange(K), [7, 9, 5, 11, 7]))
    X = rng.standard_normal((len(owner), D)) * (rng.random((len(owner), D)) < 0.8)
    u = rng.standard_normal(D) + 0.7 * rng.standard_normal((K, D))
    y = np.einsum("nd,nd->n", X, u[owner]) + 0.5 * rng.standard_normal(len(owner))
    return X, np.where(y > 0, 1, -1) if loss in CLASSIFICATION else y, owner


def liblinear(loss, C2, X, y, owner, personal):
    """Find w, v and the objective by LIBLINEAR, from rows augmented where personal."""
    n, d = X.shape
    wide = np.zeros((n, K + 1, d))
    wide[:, 0] = X
    scale = 0 if np.isinf(C2) else 1 / np.sqrt(C2)
    wide[np.arange(n), 1 + owner] = X * personal * scale
    options = {"C": C1, "loss": loss, "fit_intercept": False, "dual": True}
    options |= {"tol": 1e-8, "max_iter": 10**6, "random_state": 0}
    if loss in CLASSIFICATION:
        solver = LinearSVC(**options)
    else:
        solver = LinearSVR(epsilon=EPSILON, **options)
    parts = np.ravel(solver.fit(wide.reshape(n, -1), y).coef_).reshape(K + 1, d)
    return parts[0], parts[1:] * scale


def objective(loss, C2, X, y, owner, w, v):
    a = np.einsum("nd,nd->n", X, w + v[owner])
    excess = 1 - y * a if loss in CLASSIFICATION else abs(y - a) - EPSILON
    losses = np.maximum(0, excess) ** (2 if loss.startswith("squared") else 1)
    personal = 0 if np.isinf(C2) else C2 / 2 * np.sum(v * v)
    return w @ w / 2 + personal + C1 * np.sum(losses)


def estimator(loss, C2, **options):
    # |v - v*|^2 <= 2 gap P / C2; of a plain loss the optimum is a vertex, met exactly.
    tol = 1e-12 if loss.startswith("squared") else 1e-10
    options = {"tol": tol, "max_rounds": 5000, "random_state": 0} | options
    if C2 < 1:
        options = {"local_epochs": 20} | options
    if loss in CLASSIFICATION:
        return FedMTLSVC(C1, C2, loss=loss, **options)
    return FedMTLSVR(C1, C2, loss=loss, epsilon=EPSILON, **options)


def parts(model):
    """Give w (d + 1,) and v (K, d + 1), the intercept in the last column."""
    v = model.client_coef_
    v = v.toarray() if sparse.issparse(v) else v.reshape(K, -1)
    w = np.append(model.coef_, model.intercept_)
    return w, np.column_stack([v, model.client_intercept_.reshape(K)])


def mask_of(columns):
    """Mask of a list of columns and the intercept."""
    personal = np.zeros(D + 1)
    personal[[*columns, D]] = 1
    return personal


# The optimum.


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("C2", [1e-2, 1.0, np.inf])
@pytest.mark.parametrize("features", ["intercept", [4, 1]])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_that_of_liblinear_on_augmented_rows(loss, features, C2, form):
    X, y, owner = make_rows(loss)
    personal = mask_of([] if features == "intercept" else features)
    with_1 = np.column_stack([X, np.ones(len(X))])
    best_w, best_v = liblinear(loss, C2, with_1, y, owner, personal)
    model = estimator(loss, C2, personal_features=features)
    w, v = parts(model.fit(form(X), y, owner))
    best = objective(loss, C2, with_1, y, owner, best_w, best_v)
    assert_allclose(model.objective_, best, rtol=1e-6)
    mine = objective(loss, C2, with_1, y, owner, w, v)
    assert_allclose(model.objective_, mine, rtol=1e-9)
    assert np.linalg.norm(w - best_w) <= 1e-4 * np.linalg.norm(best_w)
    off = np.linalg.norm(v - best_v, axis=1)
    assert (off <= 1e-4 * np.linalg.norm(best_v, axis=1)).all()
    assert not v[:, personal == 0].any()
    assert v[:, personal > 0].any() or C2 == np.inf


@pytest.mark.parametrize("aggregation", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_aggregation_reaches_the_optimum_without_an_intercept(loss, aggregation):
    X, y, owner = make_rows(loss)
    best_w, best_v = liblinear(loss, 1.0, X, y, owner, mask_of([0, 3])[:D])
    options = {"personal_features": [0, 3], "fit_intercept": False}
    model = estimator(loss, 1.0, aggregation=aggregation, **options)
    model.fit(X, y, owner)
    w, v = model.coef_.reshape(-1), model.client_coef_.reshape(K, -1)
    best = objective(loss, 1.0, X, y, owner, best_w, best_v)
    assert_allclose(model.objective_, best, rtol=1e-6)
    assert np.linalg.norm(w - best_w) <= 1e-4 * np.linalg.norm(best_w)
    assert_allclose(v, best_v, atol=1e-4 * np.linalg.norm(best_v))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_reached_when_clients_are_sampled(loss):
    X, y, owner = make_rows(loss)
    whole = estimator(loss, 1.0, personal_features=[2]).fit(X, y, owner)
    engine = LocalEngine(client_fraction=0.4)
    some = estimator(loss, 1.0, personal_features=[2], engine=engine, local_epochs=5)
    some.fit(X, y, owner)
    assert some.history_["n_active"].min() == 2
    for mine, other in zip(parts(some), parts(whole), strict=True):
        assert_allclose(mine, other, atol=1e-4)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("features", ["intercept", [4, 1]])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_client_fitted_again_keeps_its_optimum(loss, features, form):
    """Where w is optimal, a client's own optimum is its part of the whole one."""
    X, y, owner = make_rows(loss)
    model = estimator(loss, 1.0, personal_features=features).fit(form(X), y, owner)
    w, v = parts(model)
    model.fit_client(form(X[owner == 2]), y[owner == 2], 2)
    w_after, v_after = parts(model)
    assert_array_equal(w_after, w)
    # How far both are from the optimum: |v - v*|^2 <= 2 gap P / C2.
    assert_allclose(v_after, v, atol=2 * (2e-10 * model.objective_) ** 0.5)
    assert_array_equal(v_after == 0, v == 0)


def test_an_absent_class_has_no_personal_part():
    rng = np.random.default_rng(0)
    X, owner = rng.standard_normal((60, D)), np.repeat(np.arange(K), 12)
    y = rng.integers(3, size=60)
    y[owner == 1] %= 2
    model = FedMTLSVC(C1, personal_features=[0, 2], random_state=0).fit(X, y, owner)
    assert not model.client_coef_[1, 2].any() and not model.client_intercept_[1, 2]
    assert not model.client_coef_[:, :, [1, 3, 4, 5]].any()
    assert (model.client_coef_[[0, 2, 3, 4]][:, :, [0, 2]] != 0).any(axis=(0, 2)).all()


# Laws.


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", LOSSES)
def test_all_columns_listed_are_all(loss, form):
    X, y, owner = make_rows(loss)
    every = estimator(loss, 1.0).fit(form(X), y, owner)
    listed = estimator(loss, 1.0, personal_features=[5, 0, 2, 1, 4, 3])
    listed.fit(form(X), y, owner)
    for mine, other in zip(parts(listed), parts(every), strict=True):
        assert_array_equal(mine, other)


@quietly
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("aggregation", [*RULES, "sum"])
@pytest.mark.parametrize("loss", ["hinge", "squared_epsilon_insensitive"])
def test_threads_do_not_change_a_bit(loss, aggregation, form):
    X, y, owner = make_rows(loss)
    options = {"aggregation": aggregation, "max_rounds": 7, "personal_features": [1]}
    models = [
        estimator(loss, 1.0, n_jobs=n_jobs, **options).fit(form(X), y, owner)
        for n_jobs in (1, 2, 5)
    ]
    for model in models[1:]:
        for mine, other in zip(parts(model), parts(models[0]), strict=True):
            assert_array_equal(mine, other)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_zeros_of_sparse_models_are_not_stored(dtype):
    X, y, owner = make_rows("hinge")
    rows = sparse.csr_array(X.astype(dtype))
    for features, most in [("intercept", 0), ([1, 4], 2 * K)]:
        model = FedMTLSVC(C1, personal_features=features, random_state=0)
        coef = model.fit(rows, y, owner).client_coef_
        assert coef.shape == (K, D) and coef.nnz <= most
        assert set(coef.indices) == (set() if features == "intercept" else {1, 4})


def test_rough_passes_over_rare_columns_end_in_the_same_model():
    """With columns that come once, where all personal takes another way."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((200, 900), density=0.01, rng=rng, format="csr")
    y, owner = rng.choice([-1, 1], 200), np.repeat(np.arange(K), 40)
    options = {"personal_features": list(range(0, 900, 3)), "random_state": 0}
    loose = FedMTLSVC(1.0, tol=1e-4, **options).fit(X, y, owner)
    dense = FedMTLSVC(1.0, tol=1e-10, **options).fit(X.toarray(), y, owner)
    assert_allclose(loose.objective_, dense.objective_, rtol=1e-4)
    assert loose.dual_gap_ <= 1e-4


@pytest.mark.parametrize("loss", LOSSES)
def test_a_warm_start_ends_in_the_same_optimum(loss):
    X, y, owner = make_rows(loss)
    model = estimator(loss, 3.0, warm_start=True).fit(X, y, owner)
    model.set_params(C2=1.0, personal_features=[2]).fit(X, y, owner)
    cold = estimator(loss, 1.0, personal_features=[2]).fit(X, y, owner)
    assert_allclose(model.objective_, cold.objective_, rtol=1e-8)
    for mine, other in zip(parts(model), parts(cold), strict=True):
        assert_allclose(mine, other, atol=1e-4)


@quietly
def test_early_stopping_scores_the_models_that_it_returns():
    X, y, owner = make_rows("hinge")
    options = {"early_stopping": True, "validation_fraction": 0.3}
    model = estimator("hinge", 1.0, personal_features=[2], **options).fit(X, y, owner)
    assert model.best_validation_score_ == model.history_["validation_score"].max()
    assert not model.client_coef_[:, :, [0, 1, 3, 4, 5]].any()


def test_one_client_as_a_plain_model():
    X, y, owner = make_rows("hinge")
    model = estimator("hinge", 1.0, personal_features=[2]).fit(X, y, owner)
    mine = owner == 3
    plain = model.for_client(3).decision_function(X[mine])
    assert_array_equal(plain, model.decision_function(X[mine], owner[mine]))


# How columns are named.

NAMES = ["height", "weight", "age", "pulse", "sleep", "steps"]
SAME = [
    [4, 1],
    [-2, 1],
    (1, 4),
    np.array([1, 4]),
    pd.Index([1, 4]),
    [False, True, False, False, True, False],
    np.array([0, 1, 0, 0, 1, 0], bool),
    ["sleep", "weight"],
    np.array(["weight", "sleep"]),
    pd.Index(["weight", "sleep"]),
]


@pytest.mark.parametrize("features", SAME, ids=str)
def test_names_indices_and_masks_say_the_same(features):
    X, y, owner = make_rows("hinge")
    frame = pd.DataFrame(X, columns=NAMES)
    first = FedMTLSVC(C1, personal_features=[1, 4], random_state=0).fit(X, y, owner)
    model = FedMTLSVC(C1, personal_features=features, random_state=0)
    model.fit(frame, y, owner)
    assert_array_equal(model.client_coef_, first.client_coef_)


@pytest.mark.parametrize("place", [0, 2, 6])
def test_columns_count_with_the_column_of_identifiers(place):
    X, y, owner = make_rows("hinge")
    first = FedMTLSVC(C1, personal_features=[1, 4], random_state=0).fit(X, y, owner)
    frame = pd.DataFrame(X, columns=NAMES)
    frame.insert(place, "who", owner)
    indices = [frame.columns.get_loc(name) for name in ("weight", "sleep")]
    mask = np.isin(frame.columns, ["weight", "sleep"])
    for features in (["weight", "sleep"], indices, mask):
        for column in ("who", place):
            model = FedMTLSVC(
                C1, personal_features=features, client_column=column, random_state=0
            ).fit(frame, y)
            assert_array_equal(model.client_coef_, first.client_coef_)
            model.fit_client(frame[owner == 2], y[owner == 2])
            assert not model.client_coef_[:, :, [0, 2, 3, 5]].any()
            assert model.client_coef_[2, 0, [1, 4]].all()


@pytest.mark.parametrize("features", [[], [False] * D, np.zeros(D, bool)], ids=str)
def test_no_column_is_the_intercept_alone(features):
    X, y, owner = make_rows("hinge")
    alone = FedMTLSVC(C1, personal_features="intercept", random_state=0)
    model = FedMTLSVC(C1, personal_features=features, random_state=0)
    mine, other = (parts(m.fit(X, y, owner)) for m in (model, alone))
    assert_array_equal(mine[1], other[1])


@pytest.mark.parametrize(
    ("features", "error", "match"),
    [
        (
            "age",
            ValueError,
            r"'age', expected \"all\", .* a single column is \['age'\]",
        ),
        (3, TypeError, "personal_features == 3, expected"),
        (None, TypeError, "personal_features == None, expected"),
        ({1, 2}, TypeError, "expected"),
        (np.zeros((2, 2)), ValueError, r"has shape \(2, 2\)"),
        ([1.0], TypeError, "has 1.0, expected names alone"),
        ([1, "age"], TypeError, "has 'age', expected names alone"),
        ([1, True], TypeError, "has True, expected names alone"),
        ([6], ValueError, "has column 6, X has 6 columns"),
        ([-7], ValueError, "has column -7, X has 6 columns"),
        ([1, 2, 1], ValueError, "names column 1 of X more than once"),
        ([1, -5], ValueError, "names column 1 of X more than once"),
        (["age", "age"], ValueError, "names column 2 of X more than once"),
        (["agee"], ValueError, "has 'agee', which 0 columns of X have"),
        ([True, False], ValueError, "mask of 2 entries, X has 6 columns"),
    ],
    ids=str,
)
def test_other_columns_are_refused(features, error, match):
    X, y, owner = make_rows("hinge")
    model = FedMTLSVC(personal_features=features)
    with pytest.raises(error, match=match):
        model.fit(pd.DataFrame(X, columns=NAMES), y, owner)
    assert not hasattr(model, "coef_")


def test_names_need_a_data_frame():
    X, y, owner = make_rows("hinge")
    with pytest.raises(ValueError, match="'age', but X has no column names"):
        FedMTLSVC(personal_features=["age"]).fit(X, y, owner)


@pytest.mark.parametrize("features", [["who", "age"], [6], [-1], [2, 6]], ids=str)
def test_the_column_of_identifiers_is_refused(features):
    X, y, owner = make_rows("hinge")
    frame = pd.DataFrame(X, columns=NAMES).assign(who=owner)
    model = FedMTLSVC(personal_features=features, client_column="who")
    with pytest.raises(ValueError, match="column 6 of X, which client_column says"):
        model.fit(frame, y)


@pytest.mark.parametrize("features", ["intercept", [], [False] * D], ids=str)
def test_something_must_be_personal(features):
    X, y, owner = make_rows("hinge")
    model = FedMTLSVC(personal_features=features, fit_intercept=False)
    with pytest.raises(ValueError, match="nothing would be personal"):
        model.fit(X, y, owner)


def test_the_envelope_is_refused():
    X, y, owner = make_rows("hinge")
    model = FedMTLSVC(personal_features=[1], aggregation="envelope")
    with pytest.raises(ValueError, match='"envelope" needs personal_features="all"'):
        model.fit(X, y, owner)
