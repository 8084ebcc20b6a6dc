"""Local steps and gradients against the plain Python of fedcore.iht.reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from fedcore._kernels._iht import add_pairs
from fedcore.federation.contract import Cohort
from fedcore.iht import kernel
from fedcore.iht.reference import ReferenceClient

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def problem(seed, *, loss, sizes, d, density, coarse, weights, fit_intercept=True):
    """Make clients of one cohort: rows, labels and weights, all by the seed."""
    rng = np.random.default_rng(seed)
    n, C = sum(sizes), 3 if loss == "softmax" else 1
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < density)
    X = np.round(X * 2) / 2 if coarse else X
    y = rng.integers(0, max(C, 2), n).astype(np.int32)
    if loss == "squared":
        y = np.round(rng.standard_normal(n) * 2) / 2
    weight = rng.integers(0, 3, n).astype(float) if weights else None
    x = np.round(rng.standard_normal((C, d)) * (rng.random((C, d)) < 0.4) * 4) / 4
    b = np.round(rng.standard_normal(C) * 4) / 4 * fit_intercept
    return {
        "X": X,
        "y": y,
        "weight": weight,
        "offsets": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        "loss": loss,
        "C": C,
        "fit_intercept": fit_intercept,
        "x": x,
        "b": b,
    }


def bound(p, form=np.asarray, first=5):
    """Bind the rows in the form that `form` gives them."""
    cohort = Cohort(form(p["X"]), p["y"], p["weight"], p["offsets"], first=first)
    labels = {"target" if p["loss"] == "squared" else "code": p["y"]}
    return kernel.bind(
        cohort,
        loss=p["loss"],
        n_outputs=p["C"],
        fit_intercept=p["fit_intercept"],
        **labels,
    )


def references(p, first=5):
    for k in range(len(p["offsets"]) - 1):
        rows = slice(*p["offsets"][k : k + 2])
        yield ReferenceClient(
            p["X"][rows],
            p["y"][rows],
            None if p["weight"] is None else p["weight"][rows],
            loss=p["loss"],
            n_outputs=p["C"],
            fit_intercept=p["fit_intercept"],
            number=first + k,
        )


def start(p):
    flat = p["x"].reshape(-1)
    index = np.flatnonzero(flat).astype(np.int32)
    return index, flat[index], p["b"]


def dense(p, pairs):
    """Give the iterates of all clients, (n_active, C, d)."""
    out = np.zeros((len(pairs.counts), p["x"].size))
    ends = np.cumsum(pairs.counts)
    for m, end in enumerate(ends):
        one = slice(end - pairs.counts[m], end)
        assert (np.diff(pairs.index[one]) > 0).all()
        assert (pairs.value[one] != 0).all()
        out[m, pairs.index[one]] = pairs.value[one]
    return out.reshape(len(pairs.counts), *p["x"].shape)


def corrections(p, n_active, seed):
    """Sparse corrections in both forms."""
    rng = np.random.default_rng(seed)
    full = rng.standard_normal((n_active, p["x"].size))
    full *= rng.random(full.shape) < 0.3
    intercepts = rng.standard_normal((n_active, p["C"]))
    rows = sparse.csr_array(full)
    offsets, places = rows.indptr.astype(np.int64), rows.indices.astype(np.int32)
    return full.reshape(-1, *p["x"].shape), (offsets, places, rows.data, intercepts)


problems = st.fixed_dictionaries(
    {
        "loss": st.sampled_from(kernel.LOSSES),
        "sizes": st.lists(st.integers(0, 7), min_size=1, max_size=4),
        "d": st.sampled_from([1, 3, 17, 40]),
        "density": st.sampled_from([0.0, 0.05, 0.3, 1.0]),
        "coarse": st.booleans(),
        "weights": st.booleans(),
        "fit_intercept": st.booleans(),
    }
)
forms = st.sampled_from([np.asarray, sparse.csr_array])
calls = st.fixed_dictionaries(
    {
        "n_steps": st.integers(0, 4),
        "batch_size": st.sampled_from([0, 1, 2, 5]),
        "l2": st.sampled_from([0.0, 0.25]),
        "key": st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 0xFFFFFF)),
    }
)


# Steps of powers of two on quarters and halves keep sums exact for a few steps, so ties
# are met as ties by both.
@settings(deadline=None, max_examples=100)
@given(problems, calls, forms, st.integers(0, 50), st.booleans(), st.integers(0, 2**32))
def test_thresholded_steps(given, call, form, tau, corrected, seed):
    p = problem(seed, **given)
    active = np.arange(len(given["sizes"]), dtype=np.int32)[::-1].copy()
    step = 2.0 ** -np.arange(2, 2 + len(active))
    full, sparse_form = corrections(p, len(active), seed)
    pairs = kernel.local_steps(
        *(bound(p, form), active, *start(p)),
        step=step,
        n_nonzero=tau,
        first_client=5,
        correction=sparse_form if corrected else None,
        **call,
    )
    clients = list(references(p))
    x = dense(p, pairs)
    for m, k in enumerate(active):
        kwargs = {"correction": full[m], "correction_b": sparse_form[3][m]}
        expected, b = clients[k].steps(
            *(p["x"], p["b"]),
            step=step[m],
            n_steps=call["n_steps"],
            batch_size=call["batch_size"],
            tau=tau,
            l2=call["l2"],
            key=call["key"],
            **(kwargs if corrected else {}),
        )
        assert_allclose(x[m], expected, **CLOSE)
        assert_allclose(pairs.intercepts[m], b, **CLOSE)
        assert np.count_nonzero(x[m]) <= tau


@settings(deadline=None)
@given(problems, calls, forms, st.booleans(), st.integers(0, 2**32))
def test_steps_without_threshold(given, call, form, corrected, seed):
    p = problem(seed, **given)
    active = np.arange(len(given["sizes"]), dtype=np.int32)
    step, share = np.full(len(active), 0.25), np.linspace(0.1, 1, len(active))
    full, sparse_form = corrections(p, len(active), seed)
    total, intercepts = kernel.local_steps_dense(
        *(bound(p, form), active, *start(p), share),
        step=step,
        first_client=5,
        correction=sparse_form if corrected else None,
        **call,
    )
    expected = np.zeros(p["x"].shape)
    for m, client in enumerate(references(p)):
        kwargs = {"correction": full[m], "correction_b": sparse_form[3][m]}
        x, b = client.steps(
            *(p["x"], p["b"]),
            step=0.25,
            tau=None,
            **call,
            **(kwargs if corrected else {}),
        )
        expected += share[m] * x
        assert_allclose(intercepts[m], b, **CLOSE)
    assert_allclose(total.reshape(expected.shape), expected, **CLOSE)


@settings(deadline=None)
@given(problems, calls, forms, st.integers(0, 2**32))
def test_gradients_and_losses(given, call, form, seed):
    p = problem(seed, **given)
    active = np.arange(len(given["sizes"]), dtype=np.int32)
    share = np.linspace(0.1, 1, len(active))
    size, key = call["batch_size"], call["key"]
    both = [
        kernel.gradient(
            *(bound(p, form), active, *start(p), share),
            batch_size=size,
            key=key,
            first_client=5,
            want_gradient=want,
        )
        for want in (True, False)
    ]
    total, of_intercept, losses = both[0]
    expected, expected_b = np.zeros(p["x"].shape), np.zeros(p["C"])
    for m, client in enumerate(references(p)):
        rows = client.batch(key, 0, size)
        loss, g, g_b = client.loss_and_gradient(p["x"], p["b"], rows)
        expected += share[m] * g
        expected_b += share[m] * g_b
        assert_allclose(losses[m], loss, **CLOSE)
    assert_allclose(total.reshape(expected.shape), expected, **CLOSE)
    assert_allclose(of_intercept, expected_b, **CLOSE)
    assert both[1][0] is None
    assert_array_equal(both[1][2], losses)


def wide(seed=0):
    """Make steps touch few of a client's columns, so that lists are kept."""
    rules = {"loss": "logistic", "sizes": [40, 1, 30], "d": 3000, "density": 0.01}
    return problem(seed, **rules, coarse=False, weights=True)


@pytest.mark.parametrize("batch_size", [1, 3, 40])
def test_lists_and_whole_passes_agree_with_dense_rows(batch_size):
    p = wide()
    call = {"n_steps": 6, "batch_size": batch_size, "n_nonzero": 50, "l2": 0.1}
    runs = [
        kernel.local_steps(
            *(bound(p, form), np.arange(3, dtype=np.int32), *start(p)),
            step=np.full(3, 0.5),
            key=(9, 1),
            first_client=0,
            **call,
        )
        for form in (np.asarray, sparse.csr_array, sparse.csr_array)
    ]
    assert_array_equal(runs[1].value, runs[2].value)
    for run in runs[1:]:
        assert_array_equal(run.counts, runs[0].counts)
        assert_array_equal(run.index, runs[0].index)
        assert_allclose(run.value, runs[0].value, rtol=1e-11)


def test_cuts_of_the_cohort_and_order_of_calls_change_no_bit():
    p = wide()
    shared = bound(p, sparse.csr_array)
    call = {"n_steps": 5, "batch_size": 2, "n_nonzero": 30, "l2": 0.0}

    def run(active):
        return kernel.local_steps(
            *(shared, np.array(active, np.int32), *start(p)),
            step=np.full(len(active), 0.5),
            key=(9, 1),
            first_client=0,
            **call,
        )

    whole = run([0, 1, 2])
    parts = [run([k]) for k in (2, 0, 1)]
    for name in ("index", "value", "counts", "intercepts"):
        joined = np.concatenate([getattr(parts[m], name) for m in (1, 2, 0)])
        assert_array_equal(getattr(whole, name), joined)


def test_float32_rows_are_used_as_they_are():
    p = wide()
    p["X"] = p["X"].astype(np.float32)
    exact = {**p, "X": p["X"].astype(np.float64)}
    for form in (np.asarray, sparse.csr_array):
        one, other = (
            kernel.local_steps(
                *(bound(q, form), np.arange(3, dtype=np.int32), *start(p)),
                step=np.full(3, 0.5),
                n_steps=4,
                batch_size=2,
                n_nonzero=30,
                l2=0.0,
                key=(0, 0),
                first_client=0,
            )
            for q in (p, exact)
        )
        assert_array_equal(one.index, other.index)
        assert_array_equal(one.value, other.value)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 99999), st.integers(-9, 9)), max_size=50))
def test_pairs_of_equal_place_are_added(pairs):
    index = np.array([j for j, _ in pairs], np.int32)
    value = np.array([v for _, v in pairs], float)
    room = np.empty_like(index), np.empty_like(value)
    m = add_pairs(index, value, *room, 100000)
    expected = {}
    for j, v in pairs:
        expected[j] = expected.get(j, 0) + v
    assert index[:m].tolist() == sorted(expected)
    assert value[:m].tolist() == [expected[j] for j in sorted(expected)]


def test_weighted_sum_is_that_of_dense_iterates():
    p = wide()
    pairs = kernel.local_steps(
        *(bound(p, sparse.csr_array), np.arange(3, dtype=np.int32), *start(p)),
        step=np.full(3, 0.5),
        n_steps=2,
        batch_size=2,
        n_nonzero=40,
        l2=0.0,
        key=(0, 0),
        first_client=0,
    )
    share = np.array([0.5, 0.25, 2.0])
    index, value = kernel.weighted_sum(pairs, share)
    total = np.einsum("k,kcd->cd", share, dense(p, pairs)).reshape(-1)
    assert_array_equal(index, np.flatnonzero(total))
    assert_allclose(value, total[index], rtol=1e-15)


def test_large_scores_do_not_overflow():
    for loss in ("logistic", "softmax"):
        p = problem(
            *(0,),
            **{"loss": loss, "sizes": [5], "d": 3, "density": 1.0},
            coarse=True,
            weights=False,
        )
        p["x"] = p["x"] * 0 + 1e4 * np.arange(p["x"].size).reshape(p["x"].shape)
        total, _, losses = kernel.gradient(
            *(bound(p), np.zeros(1, np.int32), *start(p), np.ones(1))
        )
        assert np.isfinite(total).all()
        assert np.isfinite(losses).all()


def test_bad_places_and_clients_are_refused():
    p = wide()
    shared, (index, value, b) = bound(p, sparse.csr_array), start(p)
    ask = {"share": np.ones(1)}
    one = np.zeros(1, np.int32)
    with pytest.raises(ValueError, match="places do not ascend"):
        kernel.gradient(shared, one, index[::-1].copy(), value, b, **ask)
    with pytest.raises(ValueError, match="no such client"):
        kernel.gradient(shared, one + 3, index, value, b, **ask)
    with pytest.raises(ValueError, match="lengths disagree"):
        kernel.gradient(shared, one, index[1:], value, b, **ask)
    with pytest.raises(ValueError, match="out of range"):
        kernel.gradient(shared, one, index, value, b, key=(0, 2**24), **ask)
