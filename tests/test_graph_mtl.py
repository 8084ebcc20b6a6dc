"""FedGraphMTL: scikit-learn's contract, laws of gradients and groups, and cases."""

import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import approx_fprime
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

from fedcore import FedGraphMTL, LocalEngine, Timing
from fedcore._losses import values
from fedcore.datasets import make_gaussian_tasks
from fedcore.graph_mtl import heads, participant
from fedcore.graph_mtl.encoders import ENCODERS, encode, n_parameters, pull_back

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
LOSSES = ("squared", "logistic", "softmax")


@parametrize_with_checks(
    [
        FedGraphMTL(max_rounds=15, random_state=0),
        FedGraphMTL(loss="logistic", max_rounds=8, random_state=0),
        FedGraphMTL(loss="softmax", max_rounds=8, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tasks():
    return make_gaussian_tasks((4, 3, 1), 30, n_features=8, truth=True, random_state=1)


def small(**given):
    settings = dict(n_components=2, max_rounds=12, random_state=0)
    return FedGraphMTL(**settings | given)


def problem(loss, n=30, d=4, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = rng.integers(3 if loss == "softmax" else 2, size=n)
    return X, rng.standard_normal(n) if loss == "squared" else y


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_gradients_are_the_slopes_of_the_loss(encoder, loss):
    X, y = problem(loss)
    rng = np.random.default_rng(1)
    C = 3 if loss == "softmax" else 1
    s = rng.standard_normal(n_parameters(4, 3))
    A, c = rng.standard_normal((1, 3, C)), rng.standard_normal((1, C))
    weight = rng.random(len(y))
    rows = participant.Rows(X, y, weight / weight.sum(), np.array([0, len(y)]))

    def objective(s):
        return rows.weight @ values(loss, encode(encoder, X, s) @ A[0] + c[0], y)

    H = encode(encoder, X, s)
    mean, slope = participant.slopes(loss, rows, H, A, c)
    assert_allclose(mean, objective(s))
    h = 1e-6
    steps = h * np.eye(len(s))
    central = [(objective(s + e) - objective(s - e)) / (2 * h) for e in steps]
    assert_allclose(pull_back(encoder, X, H, slope), central, atol=1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_exact_and_first_order_transference_agree_for_short_steps(encoder):
    """Half the step, a quarter of the difference."""
    X, y = problem("squared")
    other = np.random.default_rng(2).standard_normal(len(y))
    rng = np.random.default_rng(3)
    s = rng.standard_normal(n_parameters(4, 3))
    A, c = rng.standard_normal((2, 3, 1)), rng.standard_normal((2, 1))
    H, weight, end = encode(encoder, X, s), np.full(30, 1 / 30), np.array([0, 30])

    def loss_and_gradient(y, i):
        rows = participant.Rows(X, y, weight, end)
        own = A[i : i + 1], c[i : i + 1]
        loss, slope = participant.slopes("squared", rows, H, *own)
        return loss[0], pull_back(encoder, X, H, slope)

    _, g_i = loss_and_gradient(other, 1)
    L_j, g_j = loss_and_gradient(y, 0)

    def difference(lr):
        F = encode(encoder, X, s - lr * g_i) @ A[0] + c[0]
        exact = 1 - weight @ values("squared", F, y) / L_j
        return abs(exact - lr * g_i @ g_j / L_j)

    steps = np.array([1e-3, 5e-4, 2.5e-4])
    gaps = np.log([difference(lr) for lr in steps])
    assert_allclose(np.diff(gaps) / np.diff(np.log(steps)), 2, atol=0.1)


def test_solved_heads_are_ridge_and_logistic_regression():
    X, y = problem("squared")
    n, l2 = len(y), 0.1
    given = X, y, np.full(n, 1 / n), np.array([0, n]), np.array([l2])
    A, c = np.zeros((1, 4, 1)), np.zeros((1, 1))
    heads.solve_heads("squared", *given, A, c)
    oracle = Ridge(alpha=l2 * n).fit(X, y)
    assert_allclose(A[0, :, 0], oracle.coef_)
    assert_allclose(c[0], oracle.intercept_)
    stepped, shift = np.zeros_like(A), np.zeros_like(c)
    heads.step_heads("squared", *given, stepped, shift, 2000)
    assert_allclose(stepped, A, atol=1e-9)
    for loss in ("logistic", "softmax"):
        X, y = problem(loss)
        C = 3 if loss == "softmax" else 1
        A, c = np.zeros((1, 4, C)), np.zeros((1, C))
        given = X, y, np.full(n, 1 / n), np.array([0, n]), np.array([l2])
        heads.solve_heads(loss, *given, A, c)
        oracle = LogisticRegression(C=1 / (n * l2), tol=1e-10).fit(X, y)
        assert_allclose(A[0].T, oracle.coef_, atol=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_the_second_derivatives_are_the_slopes_of_the_first(loss):
    X, y = problem(loss)
    C, n = (3 if loss == "softmax" else 1), len(y)
    Hc = np.column_stack([X, np.ones(n)])
    B = np.random.default_rng(5).standard_normal((5, C))

    def gradient(b):
        F = Hc @ b.reshape(B.shape)
        return (Hc.T @ heads.losses.slopes(loss, F, y)).reshape(-1) / n

    G = heads._hessian(loss, Hc, Hc @ B, np.full(n, 1 / n))
    assert_allclose(G, approx_fprime(B.reshape(-1), gradient), atol=1e-5)


def test_planted_groups_are_found(tasks):
    X, y, clients, truth = tasks
    model = small().fit(X, y, clients)
    assert_array_equal(model.groups_, truth.groups)
    assert_allclose(model.client_graph_.sum(axis=0), 1, atol=1e-12)
    assert model.encoder_coef_.shape == (3, 8, 2)
    history = pd.DataFrame(model.history_)
    assert history["objective"].iloc[-1] < history["objective"].iloc[0]
    assert (history["n_groups"] == 3).all()


def test_groups_beat_one_encoder_for_all_and_each_alone():
    X, y, clients, truth = make_gaussian_tasks(
        (6, 6), 20, n_features=15, noise=0.3, truth=True, random_state=0
    )
    fresh = np.random.default_rng(1).standard_normal((200, 15))
    risk = {}
    for topology in ("dynamic", "full", "none"):
        model = small(topology=topology, max_rounds=40).fit(X, y, clients)
        wrong = [
            model.predict(fresh, np.full(200, k)) - fresh @ truth.coef[k]
            for k in range(12)
        ]
        risk[topology] = np.square(wrong).mean()
    assert risk["dynamic"] < 0.6 * risk["full"]
    assert risk["dynamic"] < risk["none"]


def test_one_client_is_its_local_model():
    """Case 1."""
    X, y, _ = make_gaussian_tasks((1,), random_state=0)
    both = [small(topology=t).fit(X, y) for t in ("dynamic", "none")]
    assert_array_equal(both[0].client_graph_, [[1]])
    assert_array_equal(both[0].predict(X), both[1].predict(X))


@pytest.mark.parametrize(
    "given",
    [
        dict(regroup_every=2, grouping="paper"),
        dict(regroup_every=2, grouping="paper", transference="exact"),
        dict(regroup_every=2, transference="exact", n_probes=3),
        dict(regroup_every=2, encoder="relu", n_probes=3),
        dict(regroup_every=2, mixing_steps=2, head_steps=3),
    ],
)
def test_after_each_regroup_labels_are_a_partition(tasks, given):
    """Case 7: wherever the fit stops."""
    X, y, clients, _ = tasks
    for rounds in (1, 3, 6):
        model = small(max_rounds=rounds, **given).fit(X, y, clients)
        W, labels = model.client_graph_, model.groups_
        assert_array_equal(np.unique(labels), np.arange(len(model.encoder_coef_)))
        assert_array_equal(W > 0, labels[:, None] == labels)
        for axis in (0, 1):
            assert_allclose(W.sum(axis=axis), 1, rtol=0, atol=1e-12)


def test_a_client_that_leaves_takes_nobody_along(tasks):
    """Case 8: in mid-run its replies fail, afterwards it is removed."""
    X, y, clients, truth = tasks
    whole = small().fit(X, y, clients)
    before = whole.predict(X[clients != 2], clients[clients != 2])
    whole.remove_client(2)
    assert_array_equal(whole.groups_, np.delete(truth.groups, 2))
    assert_allclose(whole.client_graph_.sum(axis=1), 1, atol=1e-12)
    assert_array_equal(whole.predict(X[clients != 2], clients[clients != 2]), before)

    engine = LocalEngine(timing=Timing(lambda n, d, k: np.ones(len(n)), 2, dropout=0.3))
    silent = small(engine=engine, regroup_every=3).fit(X, y, clients)
    assert_array_equal(silent.groups_, truth.groups)
    assert silent.history_["n_dropped"].sum() > 0


def test_a_newcomer_joins_those_like_it(tasks):
    X, y, clients, _ = tasks
    old = clients != 2
    model = small().fit(X[old], y[old], clients[old])
    kept = model.predict(X[old], clients[old])
    model.add_client(X[~old], y[~old], 2)
    place = {k: g for k, g in zip(model.clients_, model.groups_, strict=True)}
    assert place[2] == place[0]
    assert_array_equal(model.predict(X[old], clients[old]), kept)
    assert model.score(X[~old], y[~old], np.full((~old).sum(), 2)) > 0.9
    with pytest.raises(ValueError, match="is there already"):
        model.add_client(X[~old], y[~old], 2)
    with pytest.raises(ValueError, match="no groups that clients join"):
        small(topology="none").fit(X, y, clients).remove_client(2)


def test_opposed_tasks_share_an_encoder():
    X, y, clients = make_gaussian_tasks(
        (6,), opposed=0.5, n_components=1, random_state=3
    )
    assert small().fit(X, y, clients).groups_.max() == 0


@pytest.mark.parametrize(
    "given",
    [
        {},
        dict(encoder="tanh", n_probes=3),
        dict(grouping="paper", transference="exact"),
        dict(topology=np.full((8, 8), 1 / 8)),
        dict(head_steps=2),
    ],
)
def test_bits_do_not_depend_on_threads(tasks, given):
    X, y, clients, _ = tasks
    one, two, five = (
        small(max_rounds=6, n_jobs=n, **given).fit(X, y, clients) for n in (1, 2, 5)
    )
    for other in (two, five):
        assert_array_equal(one.predict(X, clients), other.predict(X, clients))
        assert_array_equal(one.encoder_coef_, other.encoder_coef_)


def test_equal_weights_for_all_are_the_full_graph_with_a_given_step(tasks):
    X, y, clients, _ = tasks
    full = small(topology="full", step_size=0.1).fit(X, y, clients)
    given = small(topology=np.full((8, 8), 1 / 8), step_size=0.1).fit(X, y, clients)
    assert_allclose(given.predict(X, clients), full.predict(X, clients), atol=1e-2)


def test_mixing_weights_are_in_the_order_of_clients_(tasks):
    X, y, clients, _ = tasks
    rng = np.random.default_rng(0)
    W = np.eye(8)
    W[:2, :2] = 0.5
    names = np.array(list("cabdefgh"))[clients]
    shuffled = rng.permutation(len(y))
    one = small(topology=W, step_size=0.1).fit(X, y, names)
    two = small(topology=W, step_size=0.1).fit(*(a[shuffled] for a in (X, y, names)))
    assert_array_equal(one.clients_, sorted(set(names)))
    assert_allclose(one.encoder_coef_, two.encoder_coef_, atol=1e-8)
    near = np.abs(one.encoder_coef_[0] - one.encoder_coef_[1]).max()
    assert near < np.abs(one.encoder_coef_[0] - one.encoder_coef_[2]).max()


def test_columns_of_y_are_clients_over_the_same_rows():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 6))
    Y = pd.DataFrame(X[:, [0, 0, 3]] + 0.1 * rng.standard_normal((60, 3)))
    Y.columns = ["warm", "hot", "loud"]
    model = small().fit(X, Y)
    stacked = small().fit(
        np.tile(X, (3, 1)), Y.to_numpy().T.reshape(-1), np.repeat([*Y.columns], 60)
    )
    assert_array_equal(model.clients_, ["hot", "loud", "warm"])
    assert_array_equal(model.groups_, [0, 1, 0])
    assert_array_equal(model.encoder_coef_, stacked.encoder_coef_)
    one = model.predict(X, np.full(60, "loud"))
    assert_array_equal(model.predict(X)[:, 1], one)


def test_identifiers_may_be_a_column_of_X(tasks):
    X, y, clients, _ = tasks
    both = np.column_stack([X, clients])
    model = small(client_column=-1, max_rounds=10).fit(both, y)
    folds = KFold(2, shuffle=True, random_state=0)
    assert_array_equal(
        model.predict(both), small(max_rounds=10).fit(X, y, clients).predict(X, clients)
    )
    assert cross_val_score(clone(model), both, y, cv=folds).min() > 0.5
    table = model.score_by_client(both, y)
    assert_array_equal(sorted(table.index), np.arange(8))


def test_sparse_rows_give_what_dense_ones_give(tasks):
    X, y, clients, _ = tasks
    X = np.where(np.abs(X) > 0.5, X, 0)
    for given in ({}, dict(encoder="relu", n_probes=2)):
        dense = small(max_rounds=5, **given).fit(X, y, clients)
        sparse = small(max_rounds=5, **given).fit(csr_array(X), y, clients)
        assert_allclose(
            sparse.predict(csr_array(X), clients), dense.predict(X, clients), atol=1e-6
        )


def test_classes_of_all_kinds(tasks):
    X, y, clients, _ = tasks
    label = np.where(y > 0, "yes", "no")
    model = small(loss="logistic", n_probes=3, max_rounds=10).fit(X, label, clients)
    assert model.score(X, label, clients) > 0.9
    P = model.predict_proba(X, clients)
    assert_allclose(P.sum(axis=1), 1)
    three = np.digitize(y, [-0.5, 0.5])
    model = small(loss="softmax", n_probes=3, max_rounds=10).fit(X, three, clients)
    assert model.score(X, three, clients) > 0.8


def test_unknown_clients_are_refused_or_get_the_mean_of_all(tasks):
    X, y, clients, _ = tasks
    model = small().fit(X, y, clients)
    with pytest.raises(ValueError, match="was fitted on 8 clients"):
        model.predict(X)
    with pytest.raises(ValueError, match="99"):
        model.predict(X[:1], [99])
    model.set_params(handle_unknown="shared")
    each = [model.predict(X[:1], [k]) for k in range(8)]
    assert_allclose(model.predict(X[:1], [99]), np.mean(each))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (dict(loss="hinge"), "loss == 'hinge'"),
        (dict(encoder="cube"), "encoder == 'cube'"),
        (dict(topology="ring"), "topology == 'ring'"),
        (dict(topology=np.eye(3)), r"topology has shape \(3, 3\)"),
        (dict(topology=2 * np.eye(8)), "expected entries from 0 to 1"),
        (dict(head_steps=0), "head_steps == 0"),
        (dict(step_size=0), "step_size == 0"),
        (dict(l2=-1), "l2 == -1"),
    ],
)
def test_bad_parameters_are_named_and_nothing_changes(tasks, given, message):
    X, y, clients, _ = tasks
    model = small(max_rounds=2).fit(X, y, clients)
    before = model.predict(X, clients)
    model.set_params(**given)
    with pytest.raises(ValueError, match=message):
        model.fit(X, y, clients)
    assert_array_equal(
        model.set_params(encoder="linear", loss="squared").predict(X, clients), before
    )


def test_a_fit_that_ran_out_of_rounds_says_so(tasks):
    X, y, clients, _ = tasks
    with pytest.warns(ConvergenceWarning, match="max_rounds=2"):
        small(max_rounds=2).fit(X, y, clients)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small(tol=1e-2, max_rounds=100).fit(X, y, clients)


def test_a_restored_cohort_goes_on_as_if_nothing_had_happened(tasks):
    from fedcore.federation.contract import Cohort

    X, y, _, _ = tasks
    cohort = Cohort(X, y, None, np.arange(9) * 30)
    method = small(head_steps=2)._algorithm(8, None, 8)
    state, agreement = method.start([method.hello(cohort)], (0, 0))
    cs = method.join(cohort, agreement)
    s = np.tile(state["base"], (8, 1))
    message = dict(work=0, heads=True, each=False, s=s, label=np.zeros(8, int))
    active = np.arange(8, dtype=np.int32)
    method.update(cohort, cs, message, active, (0, 1))
    again = method.restore(cohort, agreement, method.dump(cohort, cs))
    one = method.update(cohort, cs, message, active, (0, 2))["pull"]
    two = method.update(cohort, again, message, active, (0, 2))["pull"]
    assert_array_equal(one.rows, two.rows)
