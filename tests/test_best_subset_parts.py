"""The parts of federated splicing: tableau, sums over rows, protocol."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import approx_fprime

from fedcore.federation.contract import Cohort, Refused, Sum
from fedcore.iht import second_order
from fedcore.iht.best_subset import FedBestSubset
from fedcore.iht.splicing import Splicing
from fedcore.iht.sweep import Sweep, best_subset

LOSSES = ["squared", "logistic", "softmax"]
ALL = pytest.mark.parametrize("loss", LOSSES)
FORMS = pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])


# The tableau


def quadratic(p, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(2 * p, p))
    return A.T @ A / p, rng.normal(size=p)


def minimum(G, c, S):
    """Return the least value of the quadratic with the support S."""
    S = np.asarray(S, int)
    return -c[S] @ np.linalg.solve(G[np.ix_(S, S)], c[S]) / 2


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(0, 6), max_size=12), st.integers(0, 999))
def test_tableau_is_what_its_docstring_says(moves, seed):
    G, c = quadratic(7, seed)
    start = np.arange(7) < seed % 4
    tableau = Sweep(G, c, start, np.zeros(7, bool))
    inside = start.copy()
    for j in moves:
        tableau.move(j)
        inside[j] ^= True
    S, N = np.flatnonzero(inside), np.flatnonzero(~inside)
    assert_array_equal(tableau.inside, inside)
    A = np.linalg.inv(G[np.ix_(S, S)])
    B = A @ G[np.ix_(S, N)]
    M = tableau.M
    assert_allclose(M[np.ix_(S, S)], -A, atol=1e-8)
    assert_allclose(M[np.ix_(S, N)], B, atol=1e-8)
    assert_allclose(M[np.ix_(N, N)], G[np.ix_(N, N)] - G[np.ix_(N, S)] @ B, atol=1e-8)
    assert_allclose(M[S, -1], A @ c[S], atol=1e-8)
    assert_allclose(M[N, -1], c[N] - G[np.ix_(N, S)] @ A @ c[S], atol=1e-8)
    assert_allclose(M, M.T)
    assert_allclose(-tableau.gained, minimum(G, c, S), atol=1e-8)


@pytest.mark.parametrize("seed", range(10))
def test_each_move_is_the_best_of_its_kind(seed):
    G, c = quadratic(7, seed)
    fixed = np.arange(7) == 2
    tableau = Sweep(G, c, fixed, np.zeros(7, bool))

    def support():
        return np.flatnonzero(tableau.inside).tolist()

    for n in (2, 3, 4):
        S = support()
        best = min(minimum(G, c, [*S, j]) for j in range(7) if j not in S)
        assert tableau.add() and len(support()) == n
        assert_allclose(minimum(G, c, support()), best)
    S = support()
    others = [j for j in range(7) if j not in S]
    pairs = [[*(set(S) - {i}), j] for i in S if i != 2 for j in others]
    best = min(minimum(G, c, pair) for pair in pairs)
    improves = best < minimum(G, c, S) - 1e-9
    assert tableau.swap(fixed) == improves
    assert_allclose(minimum(G, c, support()), best if improves else minimum(G, c, S))
    S = support()
    best = min(minimum(G, c, [j for j in S if j != i]) for i in S if i != 2)
    tableau.drop(fixed)
    assert_allclose(minimum(G, c, support()), best)
    assert 2 in support()


def test_value_is_that_of_the_point_and_never_above_the_start():
    for seed in range(20):
        G, c = quadratic(12, seed)
        start = np.arange(12) < 5
        none = np.zeros(12, bool)
        x, value = best_subset(
            *(G, c),
            **{"start": start, "fixed": none, "free": none},
            **{"n_nonzero": 5, "n_beyond": 3, "max_swaps": 0},
        )
        assert np.count_nonzero(x) == 5
        assert_allclose(value, x @ G @ x / 2 - c @ x)
        assert_allclose(value, minimum(G, c, np.flatnonzero(x)))
        assert value <= minimum(G, c, np.arange(5)) + 1e-12


def test_dependent_columns_stay_out():
    A = np.random.default_rng(0).normal(size=(20, 4))
    A = np.column_stack([A, A[:, 0] + A[:, 1], np.zeros(20)])
    G, c = A.T @ A, A.T @ np.ones(20)
    everything, none = np.ones(6, bool), np.zeros(6, bool)
    x, _ = best_subset(
        *(G, c),
        **{"start": everything, "fixed": none, "free": none},
        **{"n_nonzero": 6, "n_beyond": 0, "max_swaps": 9},
    )
    assert_array_equal(np.flatnonzero(x), [0, 1, 2, 3])
    assert_allclose(x[:4], np.linalg.lstsq(A[:, :4], np.ones(20))[0])


# The sums


def some_rows(loss, form=np.asarray, K=3):
    """Return weighted rows of K clients, and a point with intercepts."""
    rng = np.random.default_rng(0)
    n, d = 40, 5
    C = 3 if loss == "softmax" else 1
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    y = rng.normal(size=n) if loss == "squared" else rng.integers(max(C, 2), size=n)
    offsets = np.array([0, 7, 21, 40]) if K == 3 else np.array([0, n])
    cohort = Cohort(form(X), y, rng.random(n), offsets)
    rows = second_order.rows_of(cohort, y, np.arange(K), np.array([0.2, 0.3, 0.5]))
    return rows, C, rng.normal(size=C * d + C)


def loss_at(loss, rows, C, flat):
    index = np.arange(len(flat), dtype=np.int32)
    return second_order.measure(loss, rows, index, flat, C)


@ALL
@FORMS
def test_gradient_is_the_slope_of_the_loss(loss, form):
    rows, C, flat = some_rows(loss, form)
    slope = approx_fprime(flat, lambda x: float(loss_at(loss, rows, C, x)["loss"]))
    assert_allclose(loss_at(loss, rows, C, flat)["gradient"], slope, atol=1e-6)


@ALL
@FORMS
def test_second_derivatives_are_the_slope_of_the_gradient(loss, form):
    rows, C, flat = some_rows(loss, form)
    p = len(flat)
    index = np.arange(p, dtype=np.int32)
    slope = approx_fprime(flat, lambda x: loss_at(loss, rows, C, x)["gradient"])
    block = second_order.second_derivatives(
        loss, rows, index, flat, C, index[:0], index
    )
    assert_allclose(block, slope[np.tril_indices(p)], atol=1e-6)


@FORMS
def test_new_rows_of_the_gram_matrix_are_those_of_the_whole(form):
    rows, _, _ = some_rows("squared", form)
    A = np.column_stack([form(rows.X) @ np.eye(5), np.ones(40)])
    G = A.T @ (A * rows.weight[:, None])
    new, known = np.array([1, 4, 5], np.int32), np.array([0, 2, 3], np.int32)
    none = np.zeros(0, np.int32)
    block = second_order.second_derivatives(
        "squared", rows, none, np.zeros(0), 1, known, new
    )
    assert_allclose(block[:9].reshape(3, 3), G[np.ix_(new, known)], atol=1e-14)
    among = G[np.ix_(new, new)][np.tril_indices(3)]
    assert_allclose(block[9:], among, atol=1e-14)


@FORMS
def test_moments_are_weighted_and_by_client(form):
    rows, _, _ = some_rows("squared", form)
    X = form(rows.X) @ np.eye(5)
    moments = second_order.moments(rows)
    assert_allclose(moments["mean"], np.average(X, axis=0, weights=rows.weight))
    assert_allclose(moments["square"], np.average(X**2, axis=0, weights=rows.weight))
    centre = np.zeros_like(X)
    for k in range(3):
        mine = rows.owner == k
        centre[mine] = np.average(X[mine], axis=0, weights=rows.weight[mine])
    within = np.average((X - centre) ** 2, axis=0, weights=rows.weight)
    assert_allclose(moments["within"], within)


@ALL
def test_sums_do_not_depend_on_the_size_of_the_chunks(loss, monkeypatch):
    rows, C, flat = some_rows(loss)
    index = np.arange(len(flat), dtype=np.int32)

    def everything():
        block = second_order.second_derivatives(
            loss, rows, index, flat, C, index[:0], index
        )
        sums = {**loss_at(loss, rows, C, flat), **second_order.moments(rows)}
        return sums | {"block": block}

    whole = everything()
    monkeypatch.setattr(second_order, "CHUNK", 30)
    for name, value in everything().items():
        assert_allclose(value, whole[name], atol=1e-13, err_msg=name)


# The protocol


def cohort(loss, rows, offsets, first=0):
    X, y = rows
    if loss == "squared":
        return Cohort(X, y, None, np.array(offsets), None, first)
    classes, code = np.unique(y, return_inverse=True)
    return Cohort(X, code.astype(np.int32), None, np.array(offsets), classes, first)


@ALL
def test_sites_that_send_only_dense_sums_find_what_one_machine_finds(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 12))
    y = X[:, 0] - X[:, 5] + rng.normal(size=90)
    if loss != "squared":
        y = np.digitize(y, [0.0] if loss == "logistic" else [-0.5, 0.5]).astype(float)
        y[:30] = y[:30].clip(1)  # a site that lacks a class
    splicing = Splicing(loss, 4, 1e-2, "samples", True, (), 8, 40, 1e-8, 50)
    sites = [cohort(loss, (X[:30], y[:30]), [0, 30])]
    sites += [cohort(loss, (X[30:], y[30:]), [0, 25, 60], first=1)]
    state, agreement = splicing.start([splicing.hello(s) for s in sites], (0, 0))
    kept = [splicing.join(s, agreement) for s in sites]
    while not state["done"]:
        request = splicing.broadcast(state, (0, 0))
        assert all(isinstance(k, Sum) and not k.sparse for k in request.reply.values())
        total = dict.fromkeys(request.reply, 0.0)
        for site, cs in zip(sites, kept, strict=True):
            active = np.arange(site.n_clients)
            share = request.each["share"][site.first + active]
            message = {**request.all, "share": share}
            reply = splicing.update(site, cs, message, active, (0, 0))
            assert {n: np.shape(v) for n, v in reply.items()} == {
                n: k.shape for n, k in request.reply.items()
            }
            total = {name: total[name] + reply[name] for name in total}
        state = splicing.combine(state, total, np.ones(3, bool), (0, 0))
    coef, intercept = splicing.result(state)
    model = FedBestSubset(4, loss=loss, l2=1e-2, pool_size=8, tol=1e-8)
    model.fit(X, y, np.repeat([0, 1, 2], [30, 25, 35]))
    assert_allclose(coef, np.atleast_2d(model.coef_), atol=1e-9)
    assert_allclose(intercept, np.atleast_1d(model.intercept_), atol=1e-9)


def test_a_client_of_another_width_is_refused_by_its_number():
    splicing = Splicing("squared", 2, 0.0, "samples", True, (), 4, 40, 1e-4, 50)
    sites = [
        cohort("squared", (np.ones((3, d)), np.ones(3)), [0, 1, 3]) for d in (2, 3)
    ]
    with pytest.raises(Refused, match="client 2 refused: its rows have n_features=3"):
        splicing.start([splicing.hello(s) for s in sites], (0, 0))


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_many_columns_need_no_square_of_them(loss):
    d = 150_000
    X = sparse.random_array((300, d), density=1e-3, rng=0, format="csr")
    score = 5 * X @ np.r_[np.ones(40), np.zeros(d - 40)] + X[:, [7]].toarray()[:, 0]
    y = score if loss == "squared" else score > np.median(score)
    tracemalloc.start()
    model = FedBestSubset(5, loss=loss, l2=1e-3, max_rounds=20).fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 0 < len(model.support_) <= 5
    assert peak < 60 * 8 * d  # a few vectors; the square would be 150 000
