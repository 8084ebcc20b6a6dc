"""The multi-task SVM reaches its optimum, and what holds on the way there.

The optimum is LIBLINEAR's on augmented rows [x ; 0 .. x / sqrt(C2) .. 0], and that of
a conic solver on the objective as it is written; math.md, section 1.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC, LinearSVR

from fedcore import FedMTLSVC, FedMTLSVR, LocalEngine
from fedcore.mtl_svm.protocol import MTLSVM

CLASSIFICATION = ["hinge", "squared_hinge"]
REGRESSION = ["epsilon_insensitive", "squared_epsilon_insensitive"]
LOSSES = [*CLASSIFICATION, *REGRESSION]
ADDITIVE = ["sequential", "line_search", "safe", "sum"]
CONVERGENT = ["sequential", "envelope", "line_search", "safe"]
AGGREGATIONS = [*CONVERGENT, "sum"]
TIES = [1e-3, 1.0, 1e3, np.inf]  # values of C2
EPSILON = 0.1
C1 = 0.02  # the effective C is C1 / C2 at small C2: still one that can be solved

quietly = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# The problem, in plain NumPy.


@dataclass(frozen=True)
class Rows:
    X: np.ndarray
    y: np.ndarray
    owner: np.ndarray
    n_clients: int


@dataclass(frozen=True)
class Model:
    w: np.ndarray  # (d,)
    v: np.ndarray  # (K, d)
    objective: float


def make_rows(loss, sizes, d, *, density=1.0, noise=0.5, seed=0):
    """Clients with related linear tasks, their rows in mixed order."""
    rng = np.random.default_rng(seed)
    K, n = len(sizes), sum(sizes)
    owner = rng.permutation(np.repeat(np.arange(K), sizes))
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    u = rng.standard_normal(d) + 0.7 * rng.standard_normal((K, d))
    y = np.einsum("nd,nd->n", X, u[owner]) + noise * rng.standard_normal(n)
    return Rows(X, np.where(y > 0, 1, -1) if loss in CLASSIFICATION else y, owner, K)


def objective(loss, C1, C2, rows, w, v, weight=1.0):
    a = np.einsum("nd,nd->n", rows.X, w + v[rows.owner])
    if loss in CLASSIFICATION:
        losses = np.maximum(0, 1 - rows.y * a)
    else:
        losses = np.maximum(0, abs(rows.y - a) - EPSILON)
    if loss.startswith("squared"):
        losses = losses**2
    personal = 0 if np.isinf(C2) else C2 / 2 * np.sum(v * v)
    return w @ w / 2 + personal + C1 * np.sum(weight * losses)


def augmented(rows, C2, held_at_0=None):
    """Rows whose plain SVM is the multi-task one."""
    if np.isinf(C2):
        return sparse.csr_array(rows.X)
    n, d = rows.X.shape
    wide = np.zeros((n, rows.n_clients + 1, d))
    wide[:, 0] = rows.X
    wide[np.arange(n), 1 + rows.owner] = rows.X / np.sqrt(C2)
    if held_at_0 is not None:
        wide[:, 1:][:, held_at_0] = 0
    wide = sparse.csr_array(wide.reshape(n, -1))
    wide.indices, wide.indptr = (
        a.astype(np.int32) for a in (wide.indices, wide.indptr)
    )
    return wide


def liblinear(loss, C1, C2, rows, *, sample_weight=None, held_at_0=None, **options):
    """Find the optimum by LIBLINEAR's dual solver."""
    options |= {"C": C1, "loss": loss, "fit_intercept": False, "dual": True}
    options |= {"tol": 1e-8, "max_iter": 10**6, "random_state": 0}
    if loss in CLASSIFICATION:
        solver = LinearSVC(**options)
    else:
        solver = LinearSVR(epsilon=EPSILON, **options)
    A = augmented(rows, C2, held_at_0)
    wide = np.ravel(solver.fit(A, rows.y, sample_weight).coef_)
    d = rows.X.shape[1]
    if np.isinf(C2):
        w, v = wide, np.zeros((rows.n_clients, d))
    else:
        w, v = wide[:d], wide[d:].reshape(-1, d) / np.sqrt(C2)
    weight = 1.0 if sample_weight is None else sample_weight
    return Model(w, v, objective(loss, C1, C2, rows, w, v, weight))


def conic(loss, C1, C2, rows, weight=None):
    """Find the optimum by an interior-point solver, the objective as it is written."""
    clarabel = pytest.importorskip("clarabel")
    (n, d), K = rows.X.shape, rows.n_clients
    m = d * (1 if np.isinf(C2) else 1 + K)
    cost = C1 * (np.ones(n) if weight is None else weight)
    scores = np.zeros((n, m))
    scores[:, :d] = rows.X
    if m > d:
        for i, k in enumerate(rows.owner):
            scores[i, d * (1 + k) : d * (2 + k)] = rows.X[i]
    squared = loss.startswith("squared")
    curvature = np.concatenate([np.ones(d), np.full(m - d, C2), 2 * squared * cost])
    linear = np.concatenate([np.zeros(m), (not squared) * cost])
    excess = -np.eye(n)  # a row's excess over what its loss leaves free
    if loss in CLASSIFICATION:
        blocks = [[-rows.y[:, None] * scores, excess]]
        bounds = [-np.ones(n)]
    else:
        blocks = [[scores, excess], [-scores, excess]]
        bounds = [EPSILON + rows.y, EPSILON - rows.y]
    blocks.append([np.zeros((n, m)), excess])
    bounds.append(np.zeros(n))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-12
    bounds = np.concatenate(bounds)
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(np.diag(curvature)),
        linear,
        sparse.csc_matrix(np.block(blocks)),
        bounds,
        [clarabel.NonnegativeConeT(len(bounds))],
        settings,
    ).solve()
    wide = np.array(solution.x)[:m]
    w, v = wide[:d], wide[d:].reshape(-1, d)
    if np.isinf(C2):
        v = np.zeros((K, d))
    weight = 1.0 if weight is None else weight
    return Model(w, v, objective(loss, C1, C2, rows, w, v, weight))


def estimator(loss, C1, C2, **options):
    options = {"fit_intercept": False, "random_state": 0} | options
    if loss in CLASSIFICATION:
        return FedMTLSVC(C1, C2, loss=loss, **options)
    return FedMTLSVR(C1, C2, loss=loss, epsilon=EPSILON, **options)


def parts(model):
    """Give w (d,) and v (K, d) of a fitted model with one problem."""
    w, v = np.ravel(model.coef_), model.client_coef_
    v = v.toarray() if sparse.issparse(v) else v
    return w, v.reshape(len(model.clients_), len(w))


def assert_optimum(model, best):
    w, v = parts(model)
    assert_allclose(model.objective_, best.objective, rtol=1e-6)
    assert np.linalg.norm(w - best.w) <= 1e-4 * np.linalg.norm(best.w)
    off = np.linalg.norm(v - best.v, axis=1)
    assert (off <= 1e-4 * np.linalg.norm(best.v, axis=1)).all()


# The optimum.

SIZES = {
    1: ([20], 5, 1.0),
    2: ([22, 18], 5, 1.0),
    5: ([7, 9, 4, 8, 7], 6, 1.0),
    30: ([4, 5, 6, 7, 8] * 6, 8, 0.6),
}


@cache
def problem(loss, K):
    sizes, d, density = SIZES[K]
    return make_rows(loss, sizes, d, density=density)


@cache
def optimum(loss, K, C2):
    return liblinear(loss, C1, C2, problem(loss, K))


def closely(loss, C2, **options):
    """Options that bring a fit to the optimum soon."""
    squared = loss.startswith("squared")
    # Of a plain loss the optimum is a vertex, which coordinate ascent meets once it is
    # near. "envelope", which "auto" takes here unless C2 is inf, comes as near as the
    # gap says: |w - w*|^2 + C2 |v - v*|^2 <= 2 gap P.
    tol = 1e-10 if squared else 1e-9
    rule = options.get("aggregation", "auto")
    if rule == "envelope" or (rule == "auto" and (squared or C2 < np.inf)):
        tol = 1e-13
    options = {"tol": tol, "max_rounds": 2000} | options
    return options | ({"local_epochs": 20} if C2 < 1 else {})


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("C2", TIES)
@pytest.mark.parametrize("K", [1, 2, 30])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_that_of_liblinear_on_augmented_rows(loss, K, C2, form):
    rows = problem(loss, K)
    model = estimator(loss, C1, C2, **closely(loss, C2))
    model.fit(form(rows.X), rows.y, rows.owner)
    assert_optimum(model, optimum(loss, K, C2))
    w, v = parts(model)
    assert_allclose(model.objective_, objective(loss, C1, C2, rows, w, v), rtol=1e-9)


@pytest.mark.parametrize("C2", TIES)
@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_aggregation_reaches_the_same_optimum(loss, aggregation, C2):
    rows = problem(loss, 5)
    model = estimator(loss, C1, C2, **closely(loss, C2, aggregation=aggregation))
    model.fit(rows.X, rows.y, rows.owner)
    assert_optimum(model, optimum(loss, 5, C2))
    w, v = parts(model)
    assert_allclose(model.objective_, objective(loss, C1, C2, rows, w, v), rtol=1e-9)


@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_every_aggregation_reaches_the_optimum_of_many_sparse_clients(
    loss, aggregation
):
    rows = problem(loss, 30)
    model = estimator(loss, C1, 1.0, **closely(loss, 1.0, aggregation=aggregation))
    model.fit(sparse.csr_array(rows.X), rows.y, rows.owner)
    assert_optimum(model, optimum(loss, 30, 1.0))


@pytest.mark.parametrize("C2", TIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_published_rule_reaches_the_optimum_of_one_client(loss, C2):
    rows = problem(loss, 1)
    model = estimator(loss, C1, C2, aggregation="sum", **closely(loss, C2))
    assert_optimum(model.fit(rows.X, rows.y), optimum(loss, 1, C2))


@pytest.mark.parametrize("C2", TIES)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_that_of_a_conic_solver(loss, C2):
    rows = make_rows(loss, [8, 5, 9], 3, seed=1)
    best = conic(loss, C1, C2, rows)
    model = estimator(loss, C1, C2, **closely(loss, C2))
    assert_optimum(model.fit(rows.X, rows.y, rows.owner), best)


@pytest.mark.parametrize("C2", [1e6, 1e12])
@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_very_large_C2_is_as_good_as_infinite(loss, aggregation, C2):
    rows = problem(loss, 5)
    options = {"tol": 1e-8, "max_rounds": 2000, "aggregation": aggregation}
    model = estimator(loss, C1, C2, **options).fit(rows.X, rows.y, rows.owner)
    pooled = optimum(loss, 5, np.inf)
    w, v = parts(model)
    # At C2 = inf the rows have their pooled model; v_k = s_k / C2 takes little of it.
    assert_allclose(model.objective_, pooled.objective, rtol=1e-5)
    assert np.linalg.norm(w - pooled.w) <= 1e-4 * np.linalg.norm(w)
    assert np.linalg.norm(v) <= 1e-5 * np.linalg.norm(w)
    assert_allclose(model.objective_, objective(loss, C1, C2, rows, w, v), rtol=1e-9)


@pytest.mark.parametrize("aggregation", CONVERGENT)
def test_infinite_C2_has_no_personal_parts(aggregation):
    rows = problem("hinge", 5)
    model = FedMTLSVC(C1, np.inf, aggregation=aggregation, random_state=0)
    model.fit(rows.X, rows.y, rows.owner)
    assert not model.client_coef_.any() and not model.client_intercept_.any()


@pytest.mark.parametrize("aggregation", ["line_search", "safe"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_is_reached_when_clients_are_sampled(loss, aggregation):
    rows = problem(loss, 5)
    options = closely(loss, 1.0, aggregation=aggregation, local_epochs=5)
    engine = LocalEngine(client_fraction=0.4)
    model = estimator(loss, C1, 1.0, engine=engine, **options)
    model.fit(rows.X, rows.y, rows.owner)
    assert model.history_["n_active"].min() == 2
    assert_optimum(model, optimum(loss, 5, 1.0))


# Weights, intercept, classes.


@pytest.mark.parametrize("aggregation", ["auto", "envelope"])
@pytest.mark.parametrize("loss", LOSSES)
def test_sample_weights_multiply_the_losses(loss, aggregation):
    rows = problem(loss, 5)
    weight = np.random.default_rng(0).choice([0, 0.5, 1, 3], len(rows.y))
    best = liblinear(loss, C1, 1.0, rows, sample_weight=weight)
    model = estimator(loss, C1, 1.0, **closely(loss, 1.0, aggregation=aggregation))
    assert_optimum(model.fit(rows.X, rows.y, rows.owner, weight), best)


def as_balanced(y):
    signs, counts = np.unique(y, return_counts=True)
    return dict(zip(signs.tolist(), len(y) / (2 * counts), strict=True))


@pytest.mark.parametrize("aggregation", ["auto", "envelope"])
@pytest.mark.parametrize("class_weight", ["balanced", {1: 2.0, -1: 0.3}, {-1: 4.0}])
@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_class_weights_multiply_the_losses(loss, class_weight, aggregation):
    rows = make_rows(loss, [9, 12, 8], 4)
    table = as_balanced(rows.y) if class_weight == "balanced" else class_weight
    weight = np.array([table.get(sign, 1.0) for sign in rows.y.tolist()])
    best = liblinear(loss, C1, 1.0, rows, sample_weight=weight)
    options = closely(loss, 1.0, class_weight=class_weight, aggregation=aggregation)
    model = estimator(loss, C1, 1.0, **options)
    assert_optimum(model.fit(rows.X, rows.y, rows.owner), best)


@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_sample_weights_and_class_weights_multiply(loss):
    rows = make_rows(loss, [9, 12, 8], 4)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(rows.y))
    both = weight * np.where(rows.y > 0, 2.0, 0.3)
    best = liblinear(loss, C1, 1.0, rows, sample_weight=both)
    options = closely(loss, 1.0, class_weight={1: 2.0, -1: 0.3})
    model = estimator(loss, C1, 1.0, **options)
    assert_optimum(model.fit(rows.X, rows.y, rows.owner, weight), best)


@pytest.mark.parametrize("aggregation", ["auto", "envelope"])
@pytest.mark.parametrize("scaling", [1.0, 5.0])
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_intercept_is_a_constant_column(loss, form, scaling, aggregation):
    rows = problem(loss, 5)
    y = rows.y if loss in CLASSIFICATION else rows.y + 3
    ones = np.full((len(y), 1), scaling)
    wide = Rows(np.hstack([rows.X, ones]), y, rows.owner, rows.n_clients)
    best = liblinear(loss, C1, 1.0, wide)
    options = closely(loss, 1.0, intercept_scaling=scaling, aggregation=aggregation)
    model = estimator(loss, C1, 1.0, fit_intercept=True, **options)
    model.fit(form(rows.X), y, rows.owner)
    w, v = parts(model)
    assert_allclose(model.objective_, best.objective, rtol=1e-6)
    size = np.linalg.norm(best.w)
    assert_allclose(w, best.w[:-1], atol=1e-4 * size, rtol=0)
    assert_allclose(model.intercept_, best.w[-1] * scaling, atol=1e-4 * size * scaling)
    assert_allclose(v, best.v[:, :-1], atol=1e-4 * size, rtol=0)
    assert_allclose(
        np.ravel(model.client_intercept_),
        best.v[:, -1] * scaling,
        atol=1e-4 * size * scaling,
    )
    score = getattr(model, "decision_function", model.predict)
    expected = np.einsum("nd,nd->n", wide.X, best.w + best.v[wide.owner])
    assert_allclose(
        score(form(rows.X), rows.owner), expected, atol=1e-4 * abs(expected).max()
    )


def three_classes(seed=0):
    """Three classes; client 0 has no row of the last, client 3 of the first."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(4), [10, 12, 9, 11])
    label = rng.integers(3, size=len(owner))
    label[owner == 0] %= 2
    label[owner == 3] = 1 + label[owner == 3] % 2
    centre = rng.standard_normal((3, 5)) + 0.5 * rng.standard_normal((4, 3, 5))
    X = centre[owner, label] + rng.standard_normal((len(owner), 5))
    mixed = rng.permutation(len(owner))
    return X[mixed], label[mixed], owner[mixed]


ABSENT = [
    (loss, aggregation, C2, form)
    for loss in CLASSIFICATION
    for aggregation in CONVERGENT
    for C2, form in [
        (0.1, np.asarray),
        (1.0, sparse.csr_array),
        (1e3, np.asarray),
        (np.inf, sparse.csr_array),
    ]
    # Where v_k is held at 0 a plain loss is not smooth: its last digits cost L-BFGS
    # hundreds of rounds, so once is enough.
    if (loss, aggregation) != ("hinge", "envelope") or C2 == 1
]


@pytest.mark.parametrize(("loss", "aggregation", "C2", "form"), ABSENT)
def test_an_absent_class_has_no_personal_part_but_counts_for_the_shared_one(
    loss, aggregation, C2, form
):
    X, label, owner = three_classes()
    options = closely(loss, C2, aggregation=aggregation, class_weight={"c": 3.0})
    if (loss, aggregation) == ("hinge", "envelope"):
        options["tol"] = 1e-7
    model = estimator(loss, C1, C2, **options)
    model.fit(form(X), np.array(["a", "b", "c"])[label], owner)
    v = model.client_coef_
    v = (v.toarray() if sparse.issparse(v) else v).reshape(4, 3, 5)
    total = 0
    for c in range(3):
        absent = [k for k in range(4) if not (label[owner == k] == c).any()]
        assert absent == {0: [3], 1: [], 2: [0]}[c]
        assert not v[absent, c].any()
        rows = Rows(X, np.where(label == c, 1, -1), owner, 4)
        weight = np.where((label == c) & (c == 2), 3.0, 1.0)
        best = liblinear(
            loss, C1, C2, rows, sample_weight=weight, held_at_0=absent or None
        )
        total += best.objective
        off_w = np.linalg.norm(model.coef_[c] - best.w)
        off_v = np.linalg.norm(v[:, c] - best.v)
        # By strong convexity, whatever the gap.
        reach = 2 * (model.dual_gap_ + 1e-8) * best.objective
        assert off_w**2 <= reach and (np.isinf(C2) or C2 * off_v**2 <= reach)
        if options["tol"] < 1e-7:
            assert off_w <= 1e-4 * np.linalg.norm(best.w)
            assert off_v <= 1e-4 * np.linalg.norm(best.v)
    assert_allclose(model.objective_, total, rtol=1e-6)


# Laws.


@quietly
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", ["hinge", "squared_epsilon_insensitive"])
def test_threads_do_not_change_a_bit(loss, aggregation, form):
    rows = problem(loss, 30)
    options = {"aggregation": aggregation, "tol": 1e-4, "max_rounds": 15}
    models = [
        estimator(loss, C1, 1.0, n_jobs=n_jobs, **options).fit(
            form(rows.X), rows.y, rows.owner
        )
        for n_jobs in (1, 2, 5)
    ]
    first, *others = models
    for model in others:
        for mine, other in zip(parts(model), parts(first), strict=True):
            assert_array_equal(mine, other)
        assert model.dual_gap_ == first.dual_gap_
        assert model.history_.keys() == first.history_.keys()
        for name in first.history_.keys() - {"time"}:
            assert_array_equal(model.history_[name], first.history_[name])


def pair_of_forms(density):
    """Rows of which many have few entries, or all have many."""
    if density == 1:
        return problem("hinge", 30)
    return make_rows("hinge", [5, 3, 4] * 4, 60, density=density)


@quietly
@pytest.mark.parametrize("density", [1, 0.2, 0.02])
@pytest.mark.parametrize("aggregation", CONVERGENT)
def test_dense_rows_and_sparse_rows_give_the_same_model(aggregation, density):
    rows = pair_of_forms(density)
    options = {"aggregation": aggregation, "fit_intercept": True, "max_rounds": 30}
    dense, csr = (
        estimator("hinge", 0.1, 2.0, **options).fit(form(rows.X), rows.y, rows.owner)
        for form in (np.asarray, sparse.csr_array)
    )
    size = np.linalg.norm(dense.coef_)
    for mine, other in zip(parts(dense), parts(csr), strict=True):
        assert_allclose(mine, other, rtol=0, atol=1e-10 * size)
    assert_allclose(dense.dual_gap_, csr.dual_gap_, atol=1e-10)
    assert_allclose(
        dense.decision_function(rows.X, rows.owner),
        csr.decision_function(sparse.csr_array(rows.X), rows.owner),
        rtol=0,
        atol=1e-10 * size,
    )


@pytest.mark.parametrize(
    "form", [sparse.csc_array, sparse.csc_matrix, sparse.coo_array]
)
def test_other_sparse_forms_are_csr(form):
    rows = problem("hinge", 5)
    expected = FedMTLSVC(C1, random_state=0)
    expected.fit(sparse.csr_array(rows.X), rows.y, rows.owner)
    model = FedMTLSVC(C1, random_state=0).fit(form(rows.X), rows.y, rows.owner)
    assert_array_equal(parts(model)[1], parts(expected)[1])
    assert_array_equal(
        model.decision_function(form(rows.X), rows.owner),
        expected.decision_function(sparse.csr_array(rows.X), rows.owner),
    )


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", ["hinge", "squared_epsilon_insensitive"])
def test_float32_rows_give_nearly_the_model_of_float64(loss, aggregation, form):
    rows = problem(loss, 5)
    single = rows.X.astype(np.float32)
    options = closely(loss, 1.0, aggregation=aggregation)
    models = [
        estimator(loss, C1, 1.0, **options).fit(form(X), rows.y, rows.owner)
        for X in (single, single.astype(np.float64), rows.X)
    ]
    size = np.linalg.norm(models[0].coef_)
    assert models[0].coef_.dtype == np.float64
    # Sums are double: the same values give the same model, whatever stores them.
    for mine, same, near in zip(*map(parts, models), strict=True):
        assert_allclose(mine, same, rtol=0, atol=1e-6 * size)
        assert_allclose(mine, near, rtol=0, atol=1e-5 * size)


@pytest.mark.parametrize("density", [0.02, 0.3])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_rough_passes_end_in_a_model_that_is_whole(density, n_classes):
    """At a loose tol passes read float32 rows: so far, w is still sum_k C2 v_k."""
    rng = np.random.default_rng(3)
    X = sparse.random_array((400, 300), density=density, rng=rng, format="csr")
    y, clients = rng.integers(n_classes, size=400), np.repeat(np.arange(10), 40)
    kind = {"aggregation": "sequential", "fit_intercept": False, "random_state": 0}
    model = FedMTLSVC(3.0, 2.0, tol=1e-2, **kind).fit(X, y, clients)
    C = len(model.coef_)
    v = model.client_coef_.toarray().reshape(10, C, 300)
    assert_allclose(model.coef_, 2.0 * v.sum(axis=0), rtol=1e-5, atol=1e-6)
    exact = FedMTLSVC(3.0, 2.0, tol=1e-6, **kind).fit(X, y, clients)
    assert exact.objective_ <= model.objective_ <= exact.objective_ / (1 - 1.01e-2)
    assert model.dual_gap_ <= 1e-2


def states_of_a_fit(monkeypatch, model, rows):
    """Every state that the coordinator went through."""
    states, combine = [], MTLSVM.combine

    def watched(self, state, reply, who, key):
        states.append(combine(self, state, reply, who, key))
        return states[-1]

    with monkeypatch.context() as patch:
        patch.setattr(MTLSVM, "combine", watched)
        model.fit(rows.X, rows.y, rows.owner)
    return states


@quietly
@pytest.mark.parametrize("fraction", [1.0, 0.3])
@pytest.mark.parametrize("C", [(1.0, 0.3), (1.0, 100.0), (10.0, np.inf)])
@pytest.mark.parametrize("aggregation", ["sequential", "line_search", "safe"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_dual_never_falls(monkeypatch, loss, aggregation, C, fraction):
    rows = problem(loss, 30)
    engine = LocalEngine(client_fraction=fraction)
    options = {"aggregation": aggregation, "max_rounds": 12, "tol": 1e-9}
    model = estimator(loss, *C, engine=engine, **options)
    states = states_of_a_fit(monkeypatch, model, rows)
    dual = np.array([0.0, *(state["dual"][0] for state in states)])
    assert dual[-1] > 0
    assert np.diff(dual).min() >= -1e-12 * dual[-1]  # but for rounding


@quietly
@pytest.mark.parametrize("aggregation", ["sequential", "line_search", "safe", "sum"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_dual_that_is_added_up_is_the_one_that_is_measured(
    monkeypatch, loss, aggregation
):
    rows = problem(loss, 5)
    options = {"aggregation": aggregation, "max_rounds": 4, "tol": 1e-12}
    model = estimator(loss, 1.0, 2.0, **options)
    *_, added, measured = states_of_a_fit(monkeypatch, model, rows)
    assert measured["judged"] and not added["judged"]
    # A common step below 1 makes the sum a lower bound where eps |b| bends.
    rounding = 1e-12 * abs(added["dual"][0])
    assert measured["dual"][0] >= added["dual"][0] - rounding
    if loss in CLASSIFICATION or aggregation in ("safe", "sum"):
        assert_allclose(measured["dual"], added["dual"], rtol=1e-10)


@quietly
@pytest.mark.parametrize("n_rounds", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_optimum_lies_between_dual_and_primal(loss, aggregation, n_rounds):
    rows, C2 = problem(loss, 5), 1.0
    options = {"aggregation": aggregation, "max_rounds": n_rounds, "tol": 1e-13}
    model = estimator(loss, C1, C2, **options).fit(rows.X, rows.y, rows.owner)
    best = optimum(loss, 5, C2).objective
    primal = objective(loss, C1, C2, rows, *parts(model))
    assert_allclose(model.objective_, primal, rtol=1e-9)
    assert model.dual_gap_ >= 0
    assert primal >= best * (1 - 1e-8)
    assert primal * (1 - model.dual_gap_) <= best * (1 + 1e-8)


def multipliers(rows, C2, v):
    """Find the b_k of C2 v_k, unique when the rows of a client are independent."""
    b = np.empty(len(rows.y))
    for k in range(rows.n_clients):
        mine = rows.owner == k
        b[mine] = np.linalg.lstsq(rows.X[mine].T, C2 * v[k])[0]
    return b


@quietly
@pytest.mark.parametrize("n_rounds", [1, 2, 6])
@pytest.mark.parametrize("aggregation", ADDITIVE)
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gap_is_that_of_the_multipliers(loss, aggregation, n_rounds):
    cost, C2 = 0.3, 2.0
    rows = make_rows(loss, [4, 3, 5, 1], 7, seed=3)
    options = {"aggregation": aggregation, "max_rounds": n_rounds, "tol": 1e-13}
    model = estimator(loss, cost, C2, **options).fit(rows.X, rows.y, rows.owner)
    w, v = parts(model)
    b = multipliers(rows, C2, v)
    if loss in CLASSIFICATION:
        assert (b * rows.y >= -1e-12).all()
    if not loss.startswith("squared"):
        assert (abs(b) <= cost + 1e-12).all()
    eps = EPSILON if loss in REGRESSION else 0
    bend = 1 / (2 * cost) if loss.startswith("squared") else 0
    s = C2 * v
    assert_allclose(w, s.sum(axis=0), atol=1e-12)
    dual = rows.y @ b - eps * abs(b).sum() - bend * b @ b / 2
    dual -= np.sum(s.sum(axis=0) ** 2) / 2 + np.sum(s * s) / (2 * C2)
    primal = objective(loss, cost, C2, rows, w, v)
    assert_allclose(model.dual_gap_, (primal - dual) / primal, rtol=1e-9, atol=1e-12)


@quietly
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_no_gap_is_negative_however_close_the_optimum(loss, aggregation, dtype):
    rows = problem(loss, 2)
    options = {"aggregation": aggregation, "max_rounds": 60, "tol": 0}
    for C2 in (1.0, 1e3):
        model = estimator(loss, C1, C2, **options)
        model.fit(rows.X.astype(dtype), rows.y, rows.owner)
        gaps = model.history_["gap"]
        assert gaps[~np.isnan(gaps)].min() >= 0
        assert model.dual_gap_ >= 0


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_that_stops_short_names_the_true_gap(loss, aggregation):
    rows, C2 = problem(loss, 30), 1.0
    model = estimator(loss, 1.0, C2, aggregation=aggregation, max_rounds=1, tol=1e-6)
    with pytest.warns(ConvergenceWarning) as caught:
        model.fit(rows.X, rows.y, rows.owner)
    (warning,) = caught
    assert f"gap of {model.dual_gap_:.1e}" in str(warning.message)
    assert warning.filename == __file__
    assert model.n_rounds_ == 1
    primal = objective(loss, 1.0, C2, rows, *parts(model))
    assert_allclose(model.objective_, primal, rtol=1e-9)
    best = liblinear(loss, 1.0, C2, rows).objective
    assert primal * (1 - model.dual_gap_) <= best * (1 + 1e-8) <= primal * (1 + 2e-8)


@quietly
@pytest.mark.parametrize("tol", [1e-3, 1e-9])
@pytest.mark.parametrize("K", [2, 30])
@pytest.mark.parametrize("aggregation", CONVERGENT)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_fit_stops_soon_after_its_gap_is_reached(loss, aggregation, K, tol):
    rows = problem(loss, K)
    options = {"aggregation": aggregation, "tol": tol, "random_state": 1}
    whole = estimator(loss, C1, 1.0, max_rounds=2000, **options)
    n_rounds = whole.fit(rows.X, rows.y, rows.owner).n_rounds_
    assert whole.dual_gap_ <= tol and n_rounds < 2000
    if n_rounds > 16:
        half = estimator(loss, C1, 1.0, max_rounds=n_rounds // 2, **options)
        assert half.fit(rows.X, rows.y, rows.owner).dual_gap_ > tol


@pytest.mark.parametrize("C2", [0.3, 1.0, 1000.0, np.inf])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_published_rule_never_fails_in_silence(loss, C2):
    rows = problem(loss, 30)
    model = estimator(loss, 1.0, C2, aggregation="sum", tol=1e-3, max_rounds=300)
    with pytest.warns(ConvergenceWarning, match="sum.* diverged") as caught:
        model.fit(rows.X, rows.y, rows.owner)
    (warning,) = caught
    assert f"gap of {model.dual_gap_:.1e}" in str(warning.message)
    assert model.dual_gap_ > 1e-3
    assert all(np.isfinite(part).all() for part in parts(model))
    primal = objective(loss, 1.0, C2, rows, *parts(model))
    assert_allclose(model.objective_, primal, rtol=1e-9)
