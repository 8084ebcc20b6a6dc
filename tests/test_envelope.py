"""The coordinator of "envelope", against clients written in plain numpy."""

import io

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.svm import LinearSVC, LinearSVR

from fedcore.mtl_svm import envelope

LOSSES = [
    "hinge",
    "squared_hinge",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
]
EPSILON = 0.1


class Clients:
    """All clients of one class: row i of every client is visited at once."""

    def __init__(self, X, y, loss, C1, C2, absent=None):
        self.X, self.y, self.C1 = X, y, C1
        self.svr, self.squared = "epsilon" in loss, "squared" in loss
        self.U = np.inf if self.squared else C1
        self.D = 1 / (2 * C1) if self.squared else 0.0
        self.absent = np.zeros(len(X), bool) if absent is None else absent
        self.true_inv = np.where(self.absent, 0.0, 1 / C2)
        self.b, self.s = np.zeros(y.shape), np.zeros((len(X), X.shape[2]))
        self.kept = np.full_like(self.s, np.nan)
        self.order = np.random.default_rng(0)

    def bounds(self, w, inv):
        """P_k and d_k."""
        score = np.einsum("kid,kd->ki", self.X, w + inv[:, None] * self.s)
        if self.svr:
            slack = np.maximum(abs(score - self.y) - EPSILON, 0)
        else:
            slack = np.maximum(1 - self.y * score, 0)
        bend = inv * np.sum(self.s**2, axis=1) / 2
        primal = bend + self.C1 * np.sum(slack**2 if self.squared else slack, axis=1)
        dual = np.sum(self.y * self.b - self.D * self.b**2 / 2, axis=1) - bend
        return primal, dual - EPSILON * self.svr * np.sum(abs(self.b), axis=1)

    def one_pass(self, w, inv):
        u = w + inv[:, None] * self.s
        for i in self.order.permutation(self.y.shape[1]):
            x, y, b = self.X[:, i], self.y[:, i], self.b[:, i]
            Q = inv * np.sum(x * x, axis=1) + self.D
            rest = y - np.einsum("kd,kd->k", x, u) + (Q - self.D) * b
            if self.svr:  # soft threshold
                new = np.sign(rest) * np.maximum(abs(rest) - EPSILON, 0) / Q
                new = np.clip(new, -self.U, self.U)
            else:
                new = y * np.clip(y * rest / Q, 0, self.U)
            u += (inv * (new - b))[:, None] * x
            self.b[:, i] = new
        self.s = np.einsum("kid,ki->kd", self.X, self.b)

    def solve(self, w, tol, inv_C2, inv_C2_absent, most_passes=3000):
        """Answer one round, as sums over the clients."""
        inv = np.where(self.absent, inv_C2_absent, inv_C2)
        for _ in range(most_passes):
            self.one_pass(w, inv)
            primal, dual = self.bounds(w, inv)
            if np.all(primal - dual + self.s @ w <= tol):
                break
        primal, dual = self.bounds(w, inv)
        true_primal, true_dual = self.bounds(w, self.true_inv)
        return {
            "s": self.s.sum(axis=0),
            "primal": primal.sum(),
            "dual": dual.sum(),
            "true_primal": true_primal.sum(),
            "true_dual": true_dual.sum(),
        }


def freeze(values):
    for value in values.values():
        if isinstance(value, np.ndarray):
            value.flags.writeable = False
    return values


def begin(classes, C2, **options):
    first = classes[0]
    return envelope.start(
        len(classes),
        first.X.shape[2],
        len(first.X),
        C2=C2,
        plain_loss=not first.squared,
        has_absent=any(clients.absent.any() for clients in classes),
        **options,
    )


def one_round(classes, state, tol, **limits):
    """Let the clients of every class work; return the next state."""
    point = envelope.point(freeze(state))
    reply = {
        name: np.zeros(len(classes))
        for name in ("primal", "dual", "true_primal", "true_dual")
    }
    reply["s"] = np.zeros_like(point["w"])
    for c, clients in enumerate(classes):
        if point["keep"][c]:
            clients.kept = clients.s.copy()
        if point["working"][c]:
            row = {name: point[name][c] for name in ("w", "tol")}
            row |= {name: point[name][c] for name in ("inv_C2", "inv_C2_absent")}
            for name, value in clients.solve(**row, **limits).items():
                reply[name][c] = value
    return envelope.absorb(state, freeze(reply), tol=tol)


def run(classes, C2, tol, most_rounds=100, **limits):
    """Give the last state, and the gaps after every round."""
    state, gaps = begin(classes, C2), []
    for _ in range(most_rounds):
        state = one_round(classes, state, tol, **limits)
        gaps.append(state["gap"])
        if not state["working"].any():
            break
    for clients, keep in zip(classes, envelope.result(state)["keep"], strict=True):
        if keep:
            clients.kept = clients.s.copy()
    return state, np.array(gaps)


def problem(n_clients, n_samples, n_features, loss, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_clients, n_samples, n_features))
    w = rng.normal(size=n_features)
    v = 0.5 * rng.normal(size=(n_clients, n_features))
    y = np.einsum("kid,kd->ki", X, w + v) / np.sqrt(n_features)
    y += 0.3 * rng.normal(size=y.shape)
    return X, (y if "epsilon" in loss else np.sign(y))


def objective(X, y, loss, C1, C2, w, v):
    score = np.einsum("kid,kd->ki", X, w + v)
    miss = abs(score - y) - EPSILON if "epsilon" in loss else 1 - y * score
    cost = np.maximum(miss, 0) ** (2 if "squared" in loss else 1)
    personal = np.sum(v**2) * C2 / 2 if C2 < np.inf else 0.0
    return w @ w / 2 + personal + C1 * cost.sum()


def liblinear(X, y, loss, C1, C2):
    """Give the optimum by LIBLINEAR on rows [x, 0 .. x / sqrt(C2) .. 0]."""
    K, n, d = X.shape
    rows = np.zeros((K, n, (K + 1) * d))
    rows[:, :, :d] = X
    for k in range(K):
        rows[k, :, (k + 1) * d : (k + 2) * d] = X[k] / np.sqrt(C2)
    options = dict(loss=loss, C=C1, fit_intercept=False, tol=1e-8, max_iter=10**6)
    svr = "epsilon" in loss
    model = LinearSVR(epsilon=EPSILON, **options) if svr else LinearSVC(**options)
    coef = model.fit(rows.reshape(K * n, -1), y.ravel()).coef_.ravel()
    return objective(X, y, loss, C1, C2, coef[:d], coef[d:].reshape(K, d) / C2**0.5)


@pytest.mark.parametrize("C2", [1.0, 1e3, np.inf])
@pytest.mark.parametrize("n_clients", [1, 2, 5])
@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_close_on_the_optimum_of_liblinear(loss, n_clients, C2):
    X, y = problem(n_clients, 20, 5, loss)
    clients = Clients(X, y, loss, 1.0, C2)
    state, _ = run([clients], C2, tol=1e-12)
    best = envelope.result(state)
    assert best["gap"][0] <= 1e-12
    optimum = liblinear(X, y, loss, 1.0, C2)
    assert_allclose(best["primal"][0], optimum, rtol=1e-6)
    assert state["best_dual"][0] <= optimum * (1 + 1e-14)


@pytest.mark.parametrize("C1, C2", [(1, 10), (1, 100), (0.1, 1000), (10, 1000)])
@pytest.mark.parametrize("loss", ["hinge", "epsilon_insensitive"])
def test_a_gap_of_a_thousandth_takes_few_rounds(loss, C1, C2):
    X, y = problem(30, 100, 50, loss)
    clients = Clients(X / np.sqrt(50), y, loss, C1, C2)
    _, gaps = run([clients], C2, tol=1e-3, most_rounds=20)
    assert gaps[-1] <= 1e-3


@pytest.mark.parametrize("loss", LOSSES)
def test_what_was_kept_has_the_value_reported(loss):
    X, y = problem(4, 20, 5, loss)
    C1, C2 = 3.0, 200.0
    clients = Clients(X, y, loss, C1, C2)
    state = begin([clients], C2)
    not_the_last = False
    for _ in range(25):
        state = one_round([clients], state, tol=0.0, most_passes=100)
        best = envelope.result(state)
        kept = clients.s if best["keep"][0] else clients.kept
        not_the_last |= not best["keep"][0]
        value = objective(X, y, loss, C1, C2, best["w"][0], kept / C2)
        assert_allclose(best["primal"][0], value, rtol=1e-13)
    assert not_the_last


@pytest.mark.parametrize("C2", [1.0, np.inf])
@pytest.mark.parametrize("loss", LOSSES)
def test_bounds_never_get_worse(loss, C2):
    clients = Clients(*problem(3, 20, 5, loss), loss, 1.0, C2)
    _, gaps = run([clients], C2, tol=1e-10)
    assert np.all(np.diff(gaps, axis=0) <= 1e-15)


@pytest.mark.parametrize("loss", LOSSES)
def test_personal_part_of_an_absent_class_stays_zero(loss):
    X, y = problem(3, 20, 5, loss)
    absent = np.array([False, True, False])
    C2 = 5.0
    clients = Clients(X, y, loss, 1.0, C2, absent)
    state, _ = run([clients], C2, tol=1e-9, most_passes=500)
    w, s = envelope.result(state)["w"][0], clients.kept
    assert state["gap"][0] <= 1e-9
    value = objective(X, y, loss, 1.0, C2, w, clients.true_inv[:, None] * s)
    assert_allclose(envelope.result(state)["primal"][0], value, rtol=1e-12)


def test_classes_side_by_side_go_as_they_go_alone():
    C2 = 5.0
    several = [problem(3, 20, 5, "hinge", seed) for seed in range(3)]
    together, _ = run([Clients(*p, "hinge", 1.0, C2) for p in several], C2, tol=1e-8)
    for c, p in enumerate(several):
        alone, _ = run([Clients(*p, "hinge", 1.0, C2)], C2, tol=1e-8)
        for name in ("best_w", "best_primal", "gap", "keep", "working"):
            assert_array_equal(together[name][c], alone[name][0])


def test_a_run_goes_on_from_a_saved_state():
    C2 = np.inf
    data = problem(3, 20, 5, "hinge")
    straight, saved = (Clients(*data, "hinge", 1.0, C2) for _ in range(2))
    state = other = begin([straight], C2)
    for _ in range(15):
        state = one_round([straight], state, tol=0.0, most_passes=100)
        file = io.BytesIO()
        np.savez(file, **other)
        file.seek(0)
        with np.load(file, allow_pickle=False) as stored:
            other = {k: v if v.ndim else v.item() for k, v in stored.items()}
        other = one_round([saved], other, tol=0.0, most_passes=100)
    for name in state:
        assert_array_equal(state[name], other[name])


def test_more_planes_than_are_kept(monkeypatch):
    monkeypatch.setattr(envelope, "MOST_PLANES", 6)
    monkeypatch.setattr(envelope, "MOST_PAIRS", 2)
    clients = Clients(*problem(3, 20, 5, "hinge"), "hinge", 1.0, 1.0)
    state, _ = run([clients], 1.0, tol=1e-9)
    assert state["gap"][0] <= 1e-9
    assert state["plane_s"].shape[1] == 6
    assert state["pair_w"].shape[1] == 2


@pytest.mark.parametrize("C2", [0.01, 100.0, np.inf])
def test_clients_that_hardly_work_only_cost_rounds(C2):
    clients = Clients(*problem(3, 20, 5, "hinge"), "hinge", 1.0, C2)
    state, gaps = run([clients], C2, tol=1e-3, most_rounds=1000, most_passes=1)
    assert np.isfinite(gaps).all()
    assert state["gap"][0] <= 1e-3


def test_a_tolerance_below_rounding_ends():
    clients = Clients(*problem(2, 20, 5, "squared_hinge"), "squared_hinge", 1.0, 1.0)
    state, gaps = run([clients], 1.0, -1.0, most_rounds=300, most_passes=100)
    assert not state["working"].any()
    assert gaps[-1] <= 1e-14


def test_nothing_to_lose_is_done_at_once():
    X, y = problem(2, 20, 5, "epsilon_insensitive")
    y = np.clip(y, -EPSILON, EPSILON)
    state, gaps = run([Clients(X, y, "epsilon_insensitive", 1.0, 1.0)], 1.0, tol=0.0)
    assert gaps.tolist() == [[0.0]]
    assert not state["best_w"].any()


def test_a_first_tolerance_is_passed_on():
    clients = Clients(*problem(2, 20, 5, "hinge"), "hinge", 1.0, 1.0)
    state = begin([clients], 1.0, first_tol=0.25)
    assert envelope.point(state)["tol"].tolist() == [0.25]


@settings(deadline=None)
@given(
    arrays(float, (8, 3), elements=st.floats(-8, 8, width=16)),
    arrays(float, 8, elements=st.floats(0, 8, width=16)),
    st.integers(-6, 6),
)
def test_weights_are_optimal_on_the_simplex(rows, below, exponent):
    rows = rows * 10.0**exponent
    gram = rows @ rows.T
    weights = envelope._best_weights(gram, below)
    assert np.all(weights >= 0)
    assert_allclose(weights.sum(), 1, rtol=1e-14)
    slope = below + gram @ weights
    # No vertex is a better direction: Frank and Wolfe's gap.
    scale = weights @ (below + gram @ weights)
    assert weights @ slope - slope.min() <= 1e-7 * scale + 1e-12 * gram.max()
