"""Groups of clients from similarities: the laws of W and labels, and cases."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.linalg import block_diag

from fedcore.graph_mtl import group_clients, grouping

METHODS = ["auto", "paper"]
entries = st.one_of(
    st.floats(-4, 4, width=16),
    st.sampled_from([0.0, 1.0, -1.0, 1e-300, 1e300, np.nan, np.inf, -np.inf]),
)
matrices = st.integers(1, 9).flatmap(lambda n: arrays(float, (n, n), elements=entries))


def check_laws(found, n):
    W, labels = found.W, found.labels
    assert W.shape == (n, n)
    assert (W >= 0).all()
    assert_array_equal(W, W.T)
    assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-12)
    assert_allclose(W @ W, W, rtol=0, atol=1e-12)
    assert_array_equal(np.unique(labels), np.arange(found.n_groups))
    assert_array_equal(W > 0, labels[:, None] == labels)
    first = [np.flatnonzero(labels == g)[0] for g in range(found.n_groups)]
    assert first == sorted(first)
    assert np.isfinite(found.eigenvalues).all()
    assert (np.diff(found.eigenvalues) >= 0).all()


@settings(deadline=None)
@given(matrices, st.sampled_from(METHODS))
def test_whatever_comes_labels_are_a_partition_and_W_is_doubly_stochastic(Z, method):
    check_laws(group_clients(Z, method=method), len(Z))


@pytest.mark.parametrize("method", METHODS)
def test_clients_that_are_all_alike_keep_the_laws(method):
    check_laws(group_clients(np.ones((7, 7)), method=method), 7)


@pytest.mark.parametrize("method", METHODS)
def test_one_client_is_one_cluster(method):
    """Case 1."""
    found = group_clients([[0.3]], method=method)
    assert_array_equal(found.W, [[1]])
    assert found.n_groups == 1


@pytest.mark.parametrize("method", METHODS)
def test_two_that_harm_each_other_stay_apart(method):
    """Case 2; by the paper's rule as well when the numbers are large."""
    found = group_clients([[1, -0.5], [-0.5, 1]])
    assert_array_equal(found.labels, [0, 1])
    check_laws(group_clients([[1, -0.5], [-0.5, 1]], method=method), 2)


@pytest.mark.parametrize("method", METHODS)
def test_opposite_weights_do_not_cancel(method):
    """Case 3: node 0 has weights +1 and -1."""
    Z = np.array([[0.0, 1, -1], [1, 0, 0], [-1, 0, 0]])
    found = group_clients(Z, method=method)
    check_laws(found, 3)
    assert found.eigenvalues.min() > -1e-12
    if method == "auto":
        assert_array_equal(found.labels, [0, 0, 1])


def test_components_and_a_lonely_node():
    """Case 4."""
    Z = np.zeros((5, 5))
    Z[0, 1] = Z[1, 0] = Z[2, 3] = Z[3, 2] = 1
    assert_array_equal(group_clients(Z).labels, [0, 0, 1, 1, 2])


def test_nearly_all_ones_is_one_cluster_each_time():
    """Case 5."""
    Z = np.ones((50, 50)) - 1e-6 * np.random.default_rng(0).random((50, 50))
    found = group_clients(Z)
    assert found.n_groups == 1
    again = group_clients(Z)
    assert_array_equal(again.eigenvalues, found.eigenvalues)


def test_cliques_are_clusters_and_one_clique_is_one():
    """Case 6."""
    noise = 0.05 * np.random.default_rng(1).random((12, 12))
    Z = block_diag(*[np.ones((3, 3))] * 4) + noise
    assert_array_equal(group_clients(Z).labels, np.repeat(np.arange(4), 3))
    assert group_clients(np.ones((12, 12)) + noise).n_groups == 1


def test_a_row_without_numbers_is_a_singleton():
    Z = block_diag(np.ones((3, 3)), np.ones((3, 3)))
    Z[4] = np.nan
    assert_array_equal(group_clients(Z).labels, [0, 0, 0, 1, 2, 1])


@pytest.mark.parametrize("factor", [1e-12, 1e12])
def test_the_unit_of_Z_says_nothing(factor):
    noise = 0.2 * np.random.default_rng(2).random((9, 9))
    Z = block_diag(*[np.ones((3, 3))] * 3) + noise
    assert_array_equal(group_clients(factor * Z).labels, group_clients(Z).labels)
    np.fill_diagonal(Z, 0)
    assert_array_equal(group_clients(factor * Z).labels, group_clients(Z).labels)


def test_the_printed_rule_depends_on_the_unit():
    Z = np.ones((6, 6))
    assert group_clients(Z, method="paper").n_groups == 1
    assert group_clients(0.01 * Z, method="paper").n_groups == 6


def test_groups_do_not_depend_on_the_order_of_the_clients():
    rng = np.random.default_rng(3)
    Z = block_diag(np.ones((5, 5)), np.ones((4, 4)), np.ones((6, 6)))
    Z += 0.3 * rng.random(Z.shape)
    order = rng.permutation(len(Z))
    expected = grouping.by_first_member(group_clients(Z).labels[order])
    assert_array_equal(group_clients(Z[np.ix_(order, order)]).labels, expected)


def test_few_eigenvectors_give_what_all_give(monkeypatch):
    rng = np.random.default_rng(4)
    Z = block_diag(*[np.ones((n, n)) for n in (30, 50, 80)])
    Z += 0.03 * rng.random(Z.shape)
    whole = group_clients(Z, background=0.005)
    monkeypatch.setattr(grouping, "DENSE_BELOW", 100)
    calls = []
    leading = grouping._leading
    monkeypatch.setattr(
        grouping, "_leading", lambda A: calls.append(leading(A)) or calls[-1]
    )
    few = group_clients(Z, background=0.005)
    assert calls[0] is not None
    assert_array_equal(few.labels, whole.labels)
    assert whole.n_groups == 3
    m = grouping.N_LEADING
    assert_allclose(few.eigenvalues, whole.eigenvalues[:m], atol=1e-9)


def test_a_gap_that_few_eigenvalues_cannot_see_falls_back(monkeypatch):
    monkeypatch.setattr(grouping, "DENSE_BELOW", 100)
    ring = np.roll(np.eye(120), 1, axis=1)  # eigenvalues spread evenly
    assert grouping._leading((ring + ring.T) / 2) is None
    check_laws(group_clients(ring), 120)


def test_an_emptied_cluster_takes_the_worst_served_row():
    V = np.array([[0.0], [0.1], [0.2], [5.0]])
    labels = grouping.lloyd(V, np.array([[0.1], [0.1], [0.1]]))
    assert len(set(labels)) == 3
    assert np.count_nonzero(labels == labels[3]) == 1


def test_a_background_above_all_leaves_singletons():
    Z = np.full((4, 4), 0.5) + 0.5 * np.eye(4)
    assert group_clients(Z, background=0.9).n_groups == 4
    assert group_clients(Z, background=0).n_groups == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"Z": np.ones((2, 3))}, "Z has shape \\(2, 3\\)"),
        ({"Z": np.ones((2, 2)), "method": "best"}, "method == 'best'"),
        ({"Z": np.ones((2, 2)), "background": np.nan}, "background == nan"),
        ({"Z": np.ones((0, 0))}, "0 sample"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        group_clients(**arguments)
