"""The simulations of sparse learning, and the partition of a real set by clusters."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.datasets import load_digits

from fedcore.datasets import make_iht_simulation, partition_kmeans

# The simulations


@pytest.mark.parametrize("which, rows, dtype", [(1, 100, float), (2, 1000, np.int64)])
def test_simulation_shapes_and_types(which, rows, dtype):
    X, y, clients = make_iht_simulation(which, n_clients=3, random_state=0)
    assert X.shape == (3 * rows, 1000) and X.flags.c_contiguous
    assert y.shape == (3 * rows,) and y.dtype == dtype
    assert_array_equal(clients, np.repeat(np.arange(3), rows))


def test_targets_are_the_scores_of_the_sparse_models():
    X, y, clients, coef = make_iht_simulation(
        1, n_clients=4, n_samples=7, coef=True, random_state=0
    )
    assert np.all(coef[:, :100] != 0) and not coef[:, 100:1000].any()
    scores = (X * coef[clients, :1000]).sum(axis=1) + coef[clients, 1000]
    assert_allclose(y, scores, rtol=1e-12)


def test_labels_are_the_largest_tenth_of_each_client():
    X, y, clients, coef = make_iht_simulation(
        2, n_clients=4, n_samples=60, coef=True, random_state=0
    )
    scores = (X * coef[clients, :1000]).sum(axis=1) + coef[clients, 1000]
    for k in range(4):
        mine, own = scores[clients == k], y[clients == k]
        assert own.sum() == 6
        assert mine[own == 1].min() > mine[own == 0].max()


def test_columns_vary_as_the_power_of_their_number():
    X, _, clients = make_iht_simulation(1, n_clients=2, n_samples=4000, random_state=0)
    within = np.stack([X[clients == k].var(axis=0) for k in range(2)]).mean(axis=0)
    assert_allclose(within, np.arange(1, 1001) ** -1.2, rtol=0.15)


def test_alpha_and_beta_are_variances_between_clients():
    X, _, _, coef = make_iht_simulation(
        1, alpha=4.0, beta=9.0, n_clients=400, n_samples=1, coef=True, random_state=0
    )
    # A mean of m unit normals around a common u has variance alpha + 1 / m.
    assert_allclose(np.var(coef[:, :100].mean(axis=1)), 4 + 1 / 100, rtol=0.2)
    assert_allclose(np.var(X.mean(axis=1)), 9 + 1 / 1000, rtol=0.2)
    shared = coef[:, :100].mean(axis=1)
    assert np.corrcoef(shared, coef[:, 1000])[0, 1] > 0.8  # b_k has the same u_k


def test_simulation_depends_on_the_seed_alone():
    size = {"n_clients": 2, "n_samples": 3, "n_features": 20}
    one, two, other = (
        make_iht_simulation(1, **size, random_state=s)
        for s in (3, np.random.RandomState(3), 4)
    )
    for a, b in zip(one, two, strict=True):
        assert_array_equal(a, b)
    assert not np.array_equal(one[0], other[0])


@pytest.mark.parametrize(
    "wrong, error, message",
    [
        (dict(which=3), ValueError, "which == 3, expected 1 or 2"),
        (dict(alpha=-1), ValueError, "alpha == -1"),
        (dict(beta=math.nan), ValueError, "beta == nan"),
        (dict(n_clients=0), ValueError, "n_clients == 0"),
        (dict(n_samples=2.0), TypeError, "n_samples must be an instance of int"),
        (dict(n_features=0), ValueError, "n_features == 0"),
    ],
)
def test_simulation_complains(wrong, error, message):
    with pytest.raises(error, match=message):
        make_iht_simulation(**({"which": 1, "n_clients": 2} | wrong))


# The partition


def test_the_published_partition_gives_two_clusters_a_client():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 400)
    clients = partition_kmeans(rng.normal(size=(4000, 1)), labels=labels)
    table = np.zeros((100, 10), int)
    np.add.at(table, (clients, labels), 1)
    assert_array_equal(np.count_nonzero(table, axis=1), 2)
    assert_array_equal(np.count_nonzero(table, axis=0), 20)
    assert_array_equal(table[table > 0], 20)


@settings(deadline=None, max_examples=50)
@given(st.integers(5, 30), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_each_client_has_parts_of_two_clusters(n_clients, n_clusters, seed):
    labels = np.arange(n_clusters * 75) % n_clusters
    X = np.zeros((len(labels), 1))
    clients = partition_kmeans(X, n_clients, labels=labels, random_state=seed)
    assert clients.dtype == np.int64
    assert_array_equal(np.unique(clients), np.arange(n_clients))
    pairs = {(k, c) for k, c in zip(clients.tolist(), labels.tolist(), strict=True)}
    assert len(pairs) == 2 * n_clients
    again = partition_kmeans(X, n_clients, labels=labels, random_state=seed)
    assert_array_equal(clients, again)


def test_clusters_are_found_by_k_means_dense_and_sparse():
    X = load_digits().data
    clients = partition_kmeans(X, 20, n_clusters=5, random_state=0)
    assert_array_equal(
        partition_kmeans(csr_array(X), 20, n_clusters=5, random_state=0), clients
    )
    centres = np.stack([X[clients == k].mean(axis=0) for k in range(20)])
    dealt = np.random.default_rng(0).permutation(clients)
    random = np.stack([X[dealt == k].mean(axis=0) for k in range(20)])
    assert centres.var(axis=0).sum() > 5 * random.var(axis=0).sum()


@pytest.mark.parametrize(
    "wrong, message",
    [
        (dict(n_clients=0), "n_clients == 0"),
        (dict(n_clusters=1), "n_clusters == 1"),
        (dict(labels=[0, 1]), "labels has 2 entries, X has 6 rows"),
        (dict(labels=[0] * 6), "of 1 cluster, expected at least 2"),
        (dict(labels=range(6)), "n_clients == 2, expected at least 3 for 6 clusters"),
        (dict(labels=[0] * 5 + [7]), "cluster 7 has 1 rows, too few for 2 parts"),
    ],
    ids=str,
)
def test_partition_complains(wrong, message):
    X = np.arange(6.0).reshape(6, 1)
    with pytest.raises(ValueError, match=message):
        partition_kmeans(X, **({"n_clients": 2} | wrong))
