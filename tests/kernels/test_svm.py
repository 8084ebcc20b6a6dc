"""The SVM kernel against the same steps in plain Python, and its laws."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedcore._kernels._compact import compact
from fedcore._kernels._svm import N_SOLVE_FIGURES, N_UPDATE_FIGURES, SVMCohort
from fedcore.mtl_svm.participant import LOSSES
from fedcore.mtl_svm.reference import ReferenceClients

GAP, PRIMAL, DUAL, TRUE_PRIMAL, TRUE_DUAL, PASSES = range(6)


def make_case(
    seed,
    sizes=(5, 0, 3),
    n_columns=4,
    loss="hinge",
    *,
    n_classes=1,
    bias=0.0,
    dtype=np.float64,
    is_sparse=False,
    density=0.7,
    weighted=False,
    has_absent=False,
    whole=False,
    has_shared=False,
):
    """Rows of a few clients; `whole` numbers make ties and repeated rows likely."""
    rng = np.random.default_rng(seed)
    n, C = sum(sizes), n_classes
    X = rng.normal(size=(n, n_columns))
    X = X.round() if whole else X
    X = (X * (rng.random(X.shape) < density)).astype(dtype)
    X[:, rng.random(n_columns) < 0.2] = 0
    case = SimpleNamespace(
        X=X,
        offsets=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        is_sparse=is_sparse,
        code=None,
        target=None,
        weight=None,
        class_weight=None,
        absent=None,
        loss=loss,
        n_classes=C,
        C1=rng.choice([0.02, 0.5, 3.0]),
        epsilon=rng.choice([0.0, 0.25]),
        bias=bias,
        personal=None,
    )
    if loss.endswith("hinge"):
        case.code = rng.integers(2 if C == 1 else C, size=n).astype(np.int32)
        if weighted:
            case.class_weight = rng.choice([0.0, 0.5, 1.0, 2.0], (C, 2))
    else:
        case.target = rng.normal(size=n)
    if weighted:
        case.weight = rng.choice([0.0, 0.3, 1.0, 4.0], n)
    if has_absent:
        case.absent = rng.integers(2, size=(len(sizes), C)).astype(np.uint8)
    if has_shared:
        case.personal = rng.integers(2, size=n_columns + (bias != 0)).astype(np.uint8)
    return case


OPTIONS = {
    "sizes": st.lists(st.integers(0, 7), min_size=1, max_size=4),
    "n_columns": st.integers(1, 19),
    "loss": st.sampled_from(LOSSES),
    "bias": st.sampled_from([0.0, 1.0, -0.5]),
    "dtype": st.sampled_from([np.float32, np.float64]),
    "is_sparse": st.booleans(),
    "density": st.sampled_from([0.0, 0.3, 1.0]),
    "weighted": st.booleans(),
    "has_absent": st.booleans(),
    "has_shared": st.booleans(),
}


@st.composite
def cases(draw, **fixed):
    options = {name: draw(values) for name, values in OPTIONS.items()} | fixed
    if options["loss"].endswith("hinge"):
        options["n_classes"] = draw(st.sampled_from([1, 3]))
    return make_case(draw(st.integers(0, 2**32)), **options)


class Kernel:
    """An SVMCohort and its arrays, called as the reference is."""

    def __init__(self, case, **other):
        K, n, d = len(case.offsets) - 1, *case.X.shape
        self.C, self.length = case.n_classes, d + (case.bias != 0)
        rows = columns_of(case)
        self.starts, self.columns, *_ = rows
        n_places = self.C * self.starts[-1]
        self.offsets = case.offsets
        self.b, self.s = np.zeros(self.C * n), np.zeros(n_places)
        self.arrays = {
            "code": case.code,
            "target": case.target,
            "weight": case.weight,
            "class_weight": case.class_weight,
            "absent": case.absent,
            "sqnorm": np.empty(n),
            "b": self.b,
            "s": self.s,
            "b_before": np.zeros(self.C * n),
            "s_before": np.zeros(n_places),
            "rest": np.zeros(self.C * n, np.uint8),
            "violation": np.full((K, self.C), np.inf),
            "personal": case.personal,
            "own_sqnorm": None if case.personal is None else np.empty(n),
        } | other
        self.positional = (case.offsets, *rows, d)
        self.numbers = {
            "loss": LOSSES.index(case.loss),
            "n_classes": self.C,
            "C1": case.C1,
            "epsilon": case.epsilon,
            "bias": case.bias,
        }
        self.cohort = SVMCohort(*self.positional, **self.numbers, **self.arrays)

    def update(self, active, step, w, *, packed=False, **call):
        total = np.zeros(self.C * self.room(active, packed))
        figures = np.zeros((self.C, N_UPDATE_FIGURES))
        self.cohort.update(active, step, w, total, figures, packed=packed, **call)
        return self.unpack(active, total, packed), figures

    def solve(self, active, step, w, *, packed=False, **call):
        total = np.zeros(self.C * self.room(active, packed))
        figures = np.zeros((self.C, N_SOLVE_FIGURES))
        self.cohort.solve(active, step, w, total, figures, packed=packed, **call)
        return self.unpack(active, total, packed), figures

    def room(self, active, packed):
        return np.diff(self.starts)[active].sum() if packed else self.length

    def unpack(self, active, total, packed):
        if not packed:
            return total.reshape(self.C, self.length)
        out, parts = np.zeros((self.C, self.length)), iter(total)
        for k in active:
            for c in range(self.C):
                for j in self.columns_of(k):
                    out[c, j] += next(parts)
        return out

    def columns_of(self, k):
        if self.columns is None:
            return np.arange(self.length)
        return self.columns[self.starts[k] : self.starts[k + 1]]

    def state(self):
        """Multipliers and s of each client and class, s in its full length."""
        for k in range(len(self.starts) - 1):
            rows = slice(*self.C * self.offsets[k : k + 2])
            places = slice(*self.C * self.starts[k : k + 2])
            s = np.zeros((self.C, self.length))
            s[:, self.columns_of(k)] = self.s[places].reshape(self.C, -1)
            yield from zip(self.b[rows].reshape(self.C, -1), s, strict=True)


def columns_of(case):
    """Rows as the kernel takes them: starts, columns, indptr, indices, data."""
    K, d = len(case.offsets) - 1, case.X.shape[1]
    has_bias = case.bias != 0
    if not case.is_sparse:
        starts = np.arange(K + 1) * (d + has_bias)
        return starts, None, None, None, case.X.reshape(-1)
    X = sparse.csr_array(case.X)
    starts, indices = np.empty(K + 1, np.int64), np.empty(X.nnz, np.int32)
    columns = np.empty(X.nnz + has_bias * K, np.int32)
    length = compact(
        *(case.offsets, X.indptr, X.indices, d, has_bias),
        *(np.empty(d, np.int32), np.zeros(d // 64 + 1, np.uint64)),
        *(indices, columns, starts),
    )
    return starts, columns[:length].copy(), X.indptr, indices, X.data


def reference(case):
    clients = []
    X = sparse.csr_array(case.X) if case.is_sparse else case.X
    for a, b in zip(case.offsets, case.offsets[1:], strict=False):
        y = case.target[a:b] if case.code is None else case.code[a:b]
        clients.append((X[a:b], y, None if case.weight is None else case.weight[a:b]))
    names = ("loss", "n_classes", "C1", "epsilon", "bias", "class_weight", "absent")
    options = {name: getattr(case, name) for name in (*names, "personal")}
    return ReferenceClients(clients, **options)


def call_of(case, **other):
    C = case.n_classes
    call = {
        "inv_C2": np.stack([np.full(C, 0.7), np.zeros(C)]),
        "working": np.ones(C, np.uint8),
        "seed": 2**40 + 5,
        "exchange": 9,
        "first_client": 100,
    }
    return call | other


def everybody(case):
    return np.arange(len(case.offsets) - 1, dtype=np.int32)


def tasks_of(case):
    """Rows (constant column included), targets and upper bounds of each task."""
    for a, b in zip(case.offsets, case.offsets[1:], strict=False):
        X = case.X[a:b].astype(float)
        if case.bias:
            X = np.column_stack([X, np.full(b - a, case.bias)])
        for c in range(case.n_classes):
            U = np.full(b - a, case.C1)
            if case.weight is not None:
                U *= case.weight[a:b]
            if case.code is None:
                yield X, case.target[a:b], U
                continue
            inside = (case.code[a:b] == (c if case.n_classes > 1 else 1)).astype(int)
            if case.class_weight is not None:
                U *= case.class_weight[c, inside]
            yield X, 2.0 * inside - 1, U


def values_of(case, kernel, w, inv_C2):
    """Primal and dual by the formulas, added up over the clients: (C,) each."""
    primal, dual = np.zeros(kernel.C), np.zeros(kernel.C)
    for t, ((b, _), (X, y, U)) in enumerate(
        zip(kernel.state(), tasks_of(case), strict=True)
    ):
        c, k = t % kernel.C, t // kernel.C
        inv = inv_C2[0 if case.absent is None else case.absent[k, c], c]
        s, epsilon = X.T @ b, case.epsilon if case.code is None else 0
        if case.personal is not None:
            s = s * case.personal
        a = X @ (w[c] + inv * s)
        h = abs(a - y) - epsilon if case.code is None else 1 - y * a
        loss, curved = h.clip(min=0), 0.0
        if case.loss.startswith("squared"):
            loss = loss**2
            curved = (b[U > 0] ** 2 / (4 * U[U > 0])).sum()
        primal[c] += U @ loss + inv * (s @ s) / 2
        dual[c] += y @ b - epsilon * abs(b).sum() - curved - inv * (s @ s) / 2
    return primal, dual


def assert_feasible(case, kernel):
    """Check 0 <= y b <= U, or |b| <= U, to the last bit; and s = X' b."""
    for (b, s), (X, y, U) in zip(kernel.state(), tasks_of(case), strict=True):
        if case.code is not None:
            assert (b * y >= 0).all()
        high = np.where(U > 0, np.inf, 0) if case.loss.startswith("squared") else U
        assert (abs(b) <= np.nextafter(high, np.inf)).all()
        assert_allclose(s, X.T @ b, rtol=1e-12, atol=1e-12 * (1 + abs(b).sum()))


# --- oracle ---


def assert_same(kernel, oracle, ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert_allclose(mine, other, rtol=1e-9, atol=1e-9)
    tasks = [task for client in oracle.tasks for task in client]
    for (b, s), task in zip(kernel.state(), tasks, strict=True):
        assert_allclose(b, task.b, rtol=1e-9, atol=1e-9)
        assert_allclose(s, task.s, rtol=1e-9, atol=1e-9)


@settings(deadline=None)
@given(cases(), st.data())
def test_update_matches_the_reference(case, data):
    kernel, oracle = Kernel(case), reference(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C, K = case.n_classes, len(case.offsets) - 1
    w = rng.normal(size=(C, kernel.length))
    inv_C2 = np.stack([rng.choice([0.0, 0.1, 1.0, 5.0], C), np.zeros(C)])
    for exchange in range(data.draw(st.integers(1, 4))):
        hand_on = data.draw(st.booleans())
        active = np.array(data.draw(st.permutations(range(K))), np.int32)
        active = active[: data.draw(st.integers(0, K))]
        step = None if exchange == 0 else rng.choice([0.0, 0.3, 1.0], (len(active), C))
        call = call_of(
            case,
            inv_C2=inv_C2,
            working=(rng.random(C) < 0.8).astype(np.uint8),
            coupling=rng.choice([1.0, 2.5], C),
            passes=data.draw(st.integers(0, 5)),
            hand_on=hand_on,
            exchange=exchange,
        )
        w_ours, w_theirs = w.copy(), w.copy()
        packed = not hand_on and data.draw(st.booleans())
        ds, figures = kernel.update(active, step, w_ours, packed=packed, **call)
        parts, expected = oracle.update(active, step, w_theirs, **call)
        gain = w_theirs - w if hand_on else parts.sum(axis=0)
        ours = (w_ours - w if hand_on else ds), figures
        assert_same(kernel, oracle, ours, (gain, expected))
        w = w + 0.3 * gain


@pytest.mark.parametrize("loss", LOSSES)
def test_settled_rows_rest_as_in_the_reference(loss):
    case = make_case(2, (40, 25), 5, loss, bias=1.0)
    case.C1, case.epsilon = 0.2, 0.25
    kernel, oracle = Kernel(case), reference(case)
    w, resting = np.zeros((1, kernel.length)), 0
    for exchange in range(6):
        call = call_of(case, exchange=exchange, passes=3, hand_on=False)
        call |= {"coupling": np.ones(1)}
        ds, figures = kernel.update(everybody(case), None, w, **call)
        parts, expected = oracle.update(everybody(case), None, w, **call)
        assert_same(kernel, oracle, (ds, figures), (parts.sum(axis=0), expected))
        rest = np.concatenate([task.rest for (task,) in oracle.tasks])
        assert_array_equal(kernel.arrays["rest"] & 15, rest)
        resting += np.count_nonzero(rest)
        w = w + 0.3 * ds
    assert resting > 0 or loss == "squared_hinge"  # hardly one is at a bound


@settings(deadline=None)
@given(cases(), st.data())
def test_measure_matches_the_reference(case, data):
    kernel, oracle = Kernel(case), reference(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C, K = case.n_classes, len(case.offsets) - 1
    w = rng.normal(size=(C, kernel.length))
    call = call_of(case, coupling=np.ones(C), passes=2, hand_on=False)
    kernel.update(everybody(case), None, w, **call)
    oracle.update(everybody(case), None, w, **call)
    active = np.array(data.draw(st.permutations(range(K))), np.int32)
    active = active[: data.draw(st.integers(0, K))]
    step = rng.choice([0.0, 0.3, 1.0], (len(active), C))
    call = call_of(case, tol=np.full(C, -np.inf), passes=0)
    call |= {"inv_C2": rng.choice([0.0, 1.0, 5.0], (2, C))}
    call |= {"true_inv_C2": rng.choice([0.0, 0.1, 1.0], (2, C))}
    call |= {"working": (rng.random(C) < 0.8).astype(np.uint8)}
    call |= {"renew": data.draw(st.booleans())}
    packed = data.draw(st.booleans())
    s, figures = kernel.solve(active, step, w, packed=packed, **call)
    parts, expected = oracle.solve(active, step, w, **call)
    assert_same(kernel, oracle, (s, figures), (parts.sum(axis=0), expected))

    few = {name: call[name] for name in ("inv_C2", "working")}
    gaps = np.zeros((len(active), C))
    step = rng.choice([0.0, 0.3, 1.0], (len(active), C))
    kernel.cohort.gaps(active, step, w, gaps, **few)
    theirs = oracle.gaps(active, step, w, **few)
    assert_same(kernel, oracle, (s, gaps), (s, theirs))


@settings(deadline=None, max_examples=60)
@given(cases(), st.data())
def test_solve_finds_the_optimum_of_the_reference(case, data):
    """The dual is curved in personal s by 1 / C2, so a gap bounds how far s is off."""
    kernel, oracle = Kernel(case), reference(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C, K, tol = case.n_classes, len(case.offsets) - 1, 1e-8
    for exchange in range(2):
        call = call_of(case, inv_C2=rng.choice([0.1, 1.0, 5.0], (2, C)))
        call |= {"true_inv_C2": np.ones((2, C)), "exchange": exchange}
        call |= {"tol": np.full(C, tol), "passes": 50}
        w = rng.normal(size=(C, kernel.length))
        s, figures = kernel.solve(everybody(case), None, w, **call)
        parts, expected = oracle.solve(everybody(case), None, w, **call)
        gaps = figures[:, GAP].clip(min=tol) + expected[:, GAP].clip(min=tol)
        radius = 2 * np.sqrt(K * gaps / call["inv_C2"].min(axis=0))
        off = s - parts.sum(axis=0)
        off = off if case.personal is None else off * case.personal
        assert (np.linalg.norm(off, axis=1) <= radius).all()
        assert (figures[:, PASSES] <= 50 * K).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_solve_reaches_its_tolerance(loss):
    case = make_case(3, (30, 0, 10), 6, loss, n_classes=1, bias=1.0)
    kernel, inv_C2 = Kernel(case), np.ones((2, 1))
    for exchange in range(4):
        call = call_of(case, inv_C2=inv_C2, true_inv_C2=inv_C2, exchange=exchange)
        call |= {"tol": np.full(1, 1e-6), "passes": 2000}
        w = np.full((1, kernel.length), 0.1 * exchange)
        _, figures = kernel.solve(everybody(case), None, w, **call)
        assert figures[0, GAP] <= 3e-6
        assert 0 < figures[0, PASSES] < 6000


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
def test_the_interior_point_ends_what_passes_do_not(loss, is_sparse):
    """A wide box and many rows, of which but a few columns are personal."""
    case = make_case(1, (300,), 8, loss, bias=1.0, density=1.0, is_sparse=is_sparse)
    case.C1 = 100.0
    case.personal = np.array([1, 0, 1, 1, 0, 1, 0, 0, 1], np.uint8)
    kernel, w, inv_C2 = Kernel(case), np.full((1, 9), 0.5), np.ones((2, 1))
    call = call_of(case, inv_C2=inv_C2, true_inv_C2=inv_C2, tol=np.full(1, 1e-6))
    _, figures = kernel.solve(everybody(case), None, w, passes=2000, **call)
    assert figures[0, GAP] <= 1e-6
    assert figures[0, PASSES] == 100  # when it takes over


# --- laws ---


@settings(deadline=None, max_examples=50)
@given(cases(whole=True), st.data())
def test_update_keeps_the_state_consistent(case, data):
    kernel = Kernel(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C, K = case.n_classes, len(case.offsets) - 1
    call = call_of(case, coupling=np.full(C, rng.choice([1.0, 3.0])))
    w, step = rng.normal(size=(C, kernel.length)), None
    for _ in range(3):
        call |= {"passes": data.draw(st.integers(1, 4))}
        call |= {"hand_on": data.draw(st.booleans())}
        kernel.update(everybody(case), step, w, **call)
        assert_feasible(case, kernel)
        step = rng.choice([0.0, 0.3, 0.999, 1.0], (K, C))
    # A measurement takes the step too.
    measure = call_of(case, tol=np.full(C, -np.inf), true_inv_C2=call["inv_C2"])
    kernel.solve(everybody(case), step, w, passes=0, **measure)
    assert_feasible(case, kernel)


@settings(deadline=None, max_examples=50)
@given(cases(whole=True), st.data())
def test_figures_of_an_update_are_the_change_of_the_dual(case, data):
    kernel = Kernel(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    call = call_of(case, coupling=np.ones(case.n_classes))
    call |= {"passes": 2, "hand_on": data.draw(st.booleans())}
    w = rng.normal(size=(case.n_classes, kernel.length))
    for _ in range(3):
        _, before = values_of(case, kernel, w, call["inv_C2"])
        _, figures = kernel.update(everybody(case), None, w, **call)
        _, after = values_of(case, kernel, w, call["inv_C2"])
        linear, quadratic, seen = figures.T
        assert_allclose(linear - quadratic / 2, after - before, rtol=1e-9, atol=1e-9)
        assert (quadratic >= 0).all()
        assert (seen >= -1e-14).all()


@settings(deadline=None, max_examples=50)
@given(cases(whole=True), st.data())
def test_figures_of_a_solve_are_the_objectives(case, data):
    kernel = Kernel(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C = case.n_classes
    call = call_of(case, passes=30, inv_C2=rng.choice([0.1, 1.0, 5.0], (2, C)))
    call |= {"true_inv_C2": rng.choice([0.0, 0.1, 1.0], (2, C))}
    for tol in [1e-3, -np.inf]:
        w = rng.normal(size=(C, kernel.length)).round(1)
        call |= {"tol": np.full(C, tol)}
        s, figures = kernel.solve(everybody(case), None, w, **call)
        assert_feasible(case, kernel)
        primal, dual = values_of(case, kernel, w, call["inv_C2"])
        true_primal, true_dual = values_of(case, kernel, w, call["true_inv_C2"])
        # The dual of the client alone is dual - s . w.
        gap = primal - dual + np.einsum("cj,cj->c", w, s)
        expected = np.stack([gap, primal, dual, true_primal, true_dual], axis=1)
        scale = 1 + primal.max() + abs(dual).max()
        assert_allclose(figures[:, :PASSES], expected, rtol=1e-10, atol=1e-12 * scale)
        assert (figures[:, GAP] >= -1e-15 * scale).all()


@settings(deadline=None, max_examples=50)
@given(cases(whole=True), st.booleans())
def test_dual_never_falls(case, hand_on):
    """One after another, or at once with everybody's moves reckoned with ("safe")."""
    kernel = Kernel(case)
    C, K = case.n_classes, len(case.offsets) - 1
    call = call_of(case, coupling=np.full(C, 1.0 if hand_on else float(K)), passes=2)
    w, last = np.zeros((C, kernel.length)), np.zeros(C)
    for exchange in range(5):
        call |= {"exchange": exchange, "hand_on": hand_on}
        ds, _ = kernel.update(everybody(case), None, w, **call)
        w += 0 if hand_on else ds
        _, dual = values_of(case, kernel, w, call["inv_C2"])
        dual -= np.einsum("cj,cj->c", w, w) / 2
        assert (dual >= last - 1e-12 * (1 + abs(last))).all()
        last = dual


def play(case, **options):
    """Let the same calls act on a kernel; return all that came out of them."""
    kernel = Kernel(case)
    C, K = case.n_classes, len(case.offsets) - 1
    w, out = np.full((C, kernel.length), 0.125), []
    call = call_of(case, passes=3)
    for step in (None, np.full((K, C), 0.5)):
        extra = {"coupling": np.ones(C), "hand_on": False}
        out += kernel.update(everybody(case), step, w, **call, **extra, **options)
    extra = {"tol": np.full(C, 1e-6), "true_inv_C2": np.zeros((2, C))}
    out += kernel.solve(everybody(case), None, w, **call, **extra, **options)
    for b, s in kernel.state():
        out += b, s
    return out


@settings(deadline=None, max_examples=50)
@given(cases(whole=True, dtype=np.float32))
def test_float32_rows_give_the_same_bits_as_float64(case):
    double = SimpleNamespace(**vars(case) | {"X": case.X.astype(np.float64)})
    for single, other in zip(play(case), play(double), strict=True):
        assert_array_equal(single, other)


@settings(deadline=None, max_examples=50)
@given(cases(sizes=[4, 0, 3], is_sparse=True))
def test_packed_and_dense_agree_with_sparse(case):
    dense = SimpleNamespace(**vars(case) | {"is_sparse": False})
    for ours, packed, other in zip(
        play(case), play(case, packed=True), play(dense), strict=True
    ):
        assert_allclose(packed, ours, rtol=1e-14, atol=1e-14)
        assert_allclose(other, ours, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=50)
@given(cases(whole=True, has_shared=False))
def test_all_columns_listed_are_all(case):
    everything = np.ones(case.X.shape[1] + (case.bias != 0), np.uint8)
    listed = SimpleNamespace(**vars(case) | {"personal": everything})
    for ours, other in zip(play(listed), play(case), strict=True):
        assert_allclose(ours, other, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(cases(sizes=[3, 2, 0, 4]), st.integers(0, 4))
def test_how_clients_are_cut_into_cohorts_changes_no_bit(case, cut):
    first, second = (
        SimpleNamespace(**vars(case) | {"offsets": case.offsets[part] - start})
        for part, start in [
            (slice(cut + 1), 0),
            (slice(cut, None), case.offsets[cut]),
        ]
    )
    n = case.offsets[cut]
    for name in ("X", "code", "target", "weight"):
        if getattr(case, name) is not None:
            setattr(first, name, getattr(case, name)[:n])
            setattr(second, name, getattr(case, name)[n:])
    if case.absent is not None:
        first.absent, second.absent = case.absent[:cut], case.absent[cut:]
    C, states = case.n_classes, []
    for part, client in [(case, 100), (first, 100), (second, 100 + cut)]:
        kernel = Kernel(part)
        call = call_of(case, first_client=client, passes=4, hand_on=False)
        w = np.full((C, kernel.length), 0.1)
        kernel.update(everybody(part), None, w, coupling=np.ones(C), **call)
        states.append(list(kernel.state()))
    whole, left, right = states
    for (b, s), (other_b, other_s) in zip(whole, left + right, strict=True):
        assert_array_equal(b, other_b)
        assert_array_equal(s, other_s)


@settings(deadline=None, max_examples=30)
@given(cases(dtype=np.float64))
def test_rough_passes_read_the_mirror_and_renewal_the_rows(case):
    n_numbers = np.count_nonzero(case.X) if case.is_sparse else case.X.size
    kernel = Kernel(case, mirror=np.empty(n_numbers, np.float32))
    C, w = case.n_classes, np.zeros((case.n_classes, kernel.length))
    extra = {"coupling": np.ones(C), "hand_on": False, "passes": 2}
    kernel.update(everybody(case), None, w, rough=True, **call_of(case), **extra)
    rounded = SimpleNamespace(**vars(case) | {"X": case.X.astype(np.float32)})
    assert_feasible(rounded, kernel)
    extra = {"tol": np.full(C, -np.inf), "true_inv_C2": np.ones((2, C)), "passes": 0}
    kernel.solve(everybody(case), None, w, renew=True, **call_of(case), **extra)
    assert_feasible(case, kernel)


def set_lone_apart(kernel, case):
    n, n_entries = len(case.X), np.count_nonzero(case.X)
    return kernel.cohort.set_lone_apart(
        *(np.empty(n, np.int32), np.empty(n_entries, np.int32)),
        *(np.empty(n_entries, np.float32), np.empty(n)),
        *(
            np.empty(kernel.starts[-1], np.int32),
            np.empty(len(kernel.starts), np.int64),
        ),
    )


def count_repeated(case):
    """Columns with two entries and more, and the constant one, over all clients."""
    clients = np.split(case.X, case.offsets[1:-1])
    return sum(
        np.count_nonzero(np.count_nonzero(X, axis=0) > 1) + (case.bias != 0)
        for X in clients
    )


@settings(deadline=None)
@given(cases(is_sparse=True, dtype=np.float32, has_shared=False), st.data())
def test_passes_with_lone_entries_apart_match_the_reference(case, data):
    assume(case.X.any())
    if data.draw(st.booleans()):
        case.X = case.X.astype(np.float64)  # numbers that float32 holds
    kernel, oracle = Kernel(case), reference(case)
    assert set_lone_apart(kernel, case) == count_repeated(case)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    C, K = case.n_classes, len(case.offsets) - 1
    w = rng.normal(size=(C, kernel.length))
    inv_C2 = np.stack([rng.choice([0.0, 0.1, 1.0, 5.0], C), np.zeros(C)])
    for exchange in range(data.draw(st.integers(1, 4))):
        active = np.array(data.draw(st.permutations(range(K))), np.int32)
        step = None if exchange == 0 else rng.choice([0.0, 0.3, 1.0], (len(active), C))
        call = call_of(
            case,
            inv_C2=inv_C2,
            working=(rng.random(C) < 0.8).astype(np.uint8),
            coupling=rng.choice([1.0, 2.5], C),
            passes=data.draw(st.integers(0, 3)),
            hand_on=True,
            exchange=exchange,
        )
        w_ours, w_theirs = w.copy(), w.copy()
        _, figures = kernel.update(active, step, w_ours, rough=True, **call)
        _, expected = oracle.update(active, step, w_theirs, **call)
        assert_allclose(w_ours, w_theirs, rtol=1e-9, atol=1e-9)
        assert_allclose(figures, expected, rtol=1e-9, atol=1e-9)
        w = w_theirs
    extra = {"tol": np.full(C, -np.inf), "true_inv_C2": np.ones((2, C)), "passes": 0}
    kernel.solve(everybody(case), None, w, renew=True, **call_of(case), **extra)
    tasks = [task for client in oracle.tasks for task in client]
    for (b, s), task in zip(kernel.state(), tasks, strict=True):
        assert_allclose(b, task.b, rtol=1e-9, atol=1e-9)
        assert_allclose(s, task.s, rtol=1e-9, atol=1e-9)


# --- edges ---


@pytest.mark.parametrize("loss", LOSSES)
def test_an_empty_row_pays_its_loss(loss):
    """Without any entry the answer is known: b at its bound, or at its 1 / D."""
    case = make_case(0, (2, 0), 3, loss, is_sparse=True)
    case.X[:] = 0
    case.C1, case.epsilon = 0.5, 0.25
    if case.code is not None:
        case.code[:] = 0, 1
        y, h = np.array([-1.0, 1.0]), np.ones(2)
    else:
        case.target[:] = 2.0, -0.125
        y, h = np.sign(case.target), np.array([1.75, 0.0])
    best = {True: 2 * case.C1 * h * y, False: case.C1 * (h > 0) * y}
    cost = case.C1 * {True: h**2, False: h}[loss.startswith("squared")].sum()
    kernel = Kernel(case)
    call = call_of(case, tol=np.full(1, 1e-9), passes=5, true_inv_C2=np.ones((2, 1)))
    _, figures = kernel.solve(everybody(case), None, np.ones((1, 3)), **call)
    assert_allclose(kernel.b, best[loss.startswith("squared")], rtol=1e-15)
    assert figures[0, GAP] == 0
    assert_allclose(figures[0, [PRIMAL, DUAL]], cost, rtol=1e-15)


def test_packed_measure_counts_clients_without_entries():
    case = make_case(0, (2,), 3, is_sparse=True)
    case.X[:] = 0
    call = call_of(case, tol=np.full(1, -np.inf), passes=0)
    call |= {"true_inv_C2": np.ones((2, 1))}
    w = np.zeros((1, 3))
    _, figures = Kernel(case).solve(everybody(case), None, w, packed=True, **call)
    assert_allclose(figures[0, PRIMAL], 2 * case.C1)


def test_a_cohort_without_rows_or_columns():
    for case in (make_case(0, (0, 0), 3, bias=1.0), make_case(0, (2,), 0, density=0)):
        for is_sparse in (False, True):
            case.is_sparse = is_sparse
            for out in play(case):
                assert np.isfinite(out).all()


# --- complaints ---


def longer(array):
    """Lengthen each axis by one in turn."""
    for axis in range(array.ndim):
        shape = list(array.shape)
        shape[axis] = 1
        yield np.concatenate([array, np.zeros(shape, array.dtype)], axis)


FULL = make_case(
    1, (3, 2), 4, n_classes=3, bias=1.0, is_sparse=True, weighted=True, has_absent=True
)


def test_wrong_lengths_are_refused_by_the_constructor():
    kernel = Kernel(FULL)
    *positional, n_columns = kernel.positional
    for place, array in enumerate(positional):
        for wrong in longer(array):
            arguments = [*positional[:place], wrong, *positional[place + 1 :]]
            with pytest.raises(ValueError, match="SVMCohort"):
                SVMCohort(*arguments, n_columns, **kernel.numbers, **kernel.arrays)
    shared = shared_in(FULL, 1)
    for name, array in Kernel(shared).arrays.items():
        for wrong in longer(array) if isinstance(array, np.ndarray) else []:
            with pytest.raises(ValueError, match="SVMCohort"):
                Kernel(shared, **{name: wrong})
    dense = Kernel(SimpleNamespace(**vars(FULL) | {"is_sparse": False}))
    with pytest.raises(ValueError, match="data has the wrong length"):
        arguments = dense.positional[:5]
        SVMCohort(
            *arguments, FULL.X[:4].reshape(-1), 4, **dense.numbers, **dense.arrays
        )


def shared_in(case, column):
    """Give the same case with no personal part in one column."""
    personal = np.ones(case.X.shape[1] + (case.bias != 0), np.uint8)
    personal[column] = 0
    return SimpleNamespace(**vars(case) | {"personal": personal})


def test_half_given_arguments_are_refused():
    kernel = Kernel(FULL)
    target = np.zeros(5)
    with pytest.raises(ValueError, match="either code or target"):
        Kernel(FULL, target=target)
    with pytest.raises(ValueError, match="either code or target"):
        Kernel(FULL, code=None)
    with pytest.raises(ValueError, match="array lengths disagree"):
        Kernel(FULL, b_before=None)
    with pytest.raises(ValueError, match="need columns, indptr and indices"):
        arguments = list(kernel.positional)
        arguments[2] = None
        SVMCohort(*arguments, **kernel.numbers, **kernel.arrays)
    with pytest.raises(ValueError, match="needs b_before and s_before"):
        extra = {"coupling": np.ones(3), "passes": 1, "hand_on": False}
        bare = Kernel(FULL, b_before=None, s_before=None)
        bare.update(everybody(FULL), None, np.zeros((3, 5)), **call_of(FULL), **extra)
    with pytest.raises(ValueError, match="no mirror of the rows"):
        extra |= {"rough": True}
        kernel.update(everybody(FULL), None, np.zeros((3, 5)), **call_of(FULL), **extra)
    set_lone_apart(kernel, FULL)
    with pytest.raises(ValueError, match="w must be handed on"):
        kernel.update(everybody(FULL), None, np.zeros((3, 5)), **call_of(FULL), **extra)
    with pytest.raises(ValueError, match="array lengths disagree"):
        set_lone_apart(
            Kernel(SimpleNamespace(**vars(FULL) | {"is_sparse": False})), FULL
        )
    with pytest.raises(ValueError, match="array lengths disagree"):
        Kernel(shared_in(FULL, 1), own_sqnorm=None)
    with pytest.raises(ValueError, match="all is personal"):
        set_lone_apart(Kernel(shared_in(FULL, 1)), FULL)
    with pytest.raises(ValueError, match="mirror has the wrong length"):
        Kernel(FULL, mirror=np.zeros(len(kernel.positional[5]) + 1, np.float32))


def arguments_of(work):
    """Arguments of a call on FULL, in their places and by name."""
    if work == "gaps":
        given = {"active": np.array([1, 0], np.int32), "step": np.ones((2, 3))}
        given |= {"w": np.zeros((3, 5)), "out": np.zeros((2, 3))}
        return given, {name: call_of(FULL)[name] for name in ("inv_C2", "working")}
    n_figures = {"update": N_UPDATE_FIGURES, "solve": N_SOLVE_FIGURES}[work]
    given = {
        "active": np.array([1, 0], np.int32),
        "step": np.ones((2, 3)),
        "w": np.zeros((3, 5)),
        "total": np.zeros(15),
        "figures": np.zeros((3, n_figures)),
    }
    named = call_of(FULL, passes=2)
    if work == "update":
        return given, named | {"coupling": np.ones(3), "hand_on": False}
    return given, named | {"tol": np.ones(3), "true_inv_C2": np.ones((2, 3))}


@pytest.mark.parametrize("work", ["update", "solve", "gaps"])
def test_wrong_lengths_are_refused_by_a_call(work):
    kernel = Kernel(FULL)
    call = getattr(kernel.cohort, work)
    given, named = arguments_of(work)
    for group in (given, named):
        for name, array in group.items():
            if not isinstance(array, np.ndarray):
                continue
            for wrong in longer(array):
                with pytest.raises(ValueError, match="SVMCohort: array lengths"):
                    changed = {name: wrong}
                    if name in given:
                        call(*(given | changed).values(), **named)
                    else:
                        call(*given.values(), **named | changed)
    if work != "gaps":
        with pytest.raises(ValueError, match="array lengths disagree"):
            call(*given.values(), **named, packed=True)
    assert not kernel.b.any()


@pytest.mark.parametrize("work", ["update", "solve", "gaps"])
@pytest.mark.parametrize("client", [-1, 2, 2**31 - 1, -(2**31)])
def test_unknown_clients_are_refused(work, client):
    given, named = arguments_of(work)
    given["active"][1] = client
    with pytest.raises(ValueError, match="no such client"):
        getattr(Kernel(FULL).cohort, work)(*given.values(), **named)


def frozen(argument):
    """Copy an array so that it cannot be written to; pass the rest through."""
    if isinstance(argument, np.ndarray):
        argument = argument.copy()
        argument.flags.writeable = False
    return argument


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("work", ["update", "solve", "gaps"])
def test_read_only_input_is_enough(work, is_sparse):
    case = SimpleNamespace(**vars(shared_in(FULL, 1)) | {"is_sparse": is_sparse})
    kernel = Kernel(case)
    given, named = arguments_of(work)
    read = ["code", "weight", "class_weight", "absent", "personal"]
    arrays = kernel.arrays | {name: frozen(kernel.arrays[name]) for name in read}
    positional = [frozen(argument) for argument in kernel.positional]
    cohort = SVMCohort(*positional, **kernel.numbers, **arrays)
    read = ["active", "step"] + (["w"] if work != "update" else [])
    given |= {name: frozen(given[name]) for name in read}
    named = {name: frozen(argument) for name, argument in named.items()}
    getattr(cohort, work)(*given.values(), **named)
    assert given["out"].any() if work == "gaps" else kernel.b.any()


def test_other_types_are_refused():
    for data in (np.zeros(3, np.int32), np.zeros((3, 1)), np.zeros(6)[::2], [0.0] * 3):
        case = make_case(0, (3,), 1)
        kernel = Kernel(case)
        with pytest.raises((ValueError, TypeError, AttributeError)):
            SVMCohort(
                *(*kernel.positional[:5], data, 1), **kernel.numbers, **kernel.arrays
            )
