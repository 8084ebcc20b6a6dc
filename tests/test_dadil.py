"""DaDiL and FedDaDiL: scikit-learn's contract, and what labels may not do."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedcore
from fedcore import DaDiL, FedDaDiL, LocalEngine, Timing
from fedcore.dadil.protocol import drift
from fedcore.dadil.reference import project
from fedcore.dadil.sampling import balanced, batch_of_atoms, strata

SHORT = {"batch_size": 24, "scaler": "isotropic", "random_state": 0}
BOTH = [DaDiL(max_iter=40, **SHORT), FedDaDiL(max_rounds=15, **SHORT)]
both = pytest.mark.parametrize("model", BOTH, ids=lambda m: type(m).__name__)


@parametrize_with_checks(
    [
        DaDiL(max_iter=25, batch_size=32, random_state=0),
        FedDaDiL(max_rounds=10, batch_size=32, random_state=0),
        DaDiL(inference="ensemble", max_iter=10, batch_size=32, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def domains():
    """Three classes in three domains, each turned further; the last is moved too."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 4.0], [4.0, 0.0], [-3.0, -1.0]])
    y = np.tile([0, 1, 2], 60)
    clients = np.repeat(["a", "b", "t"], 60)
    turns = np.deg2rad(np.repeat([0, 15, 30], 60))
    X = centres[y] + rng.normal(scale=0.7, size=(180, 2))
    X = np.column_stack(
        [
            X[:, 0] * np.cos(turns) - X[:, 1] * np.sin(turns),
            X[:, 0] * np.sin(turns) + X[:, 1] * np.cos(turns),
        ]
    )
    return X + np.where(clients[:, None] == "t", [5, -2], 0), y, clients


def fitted(model, domains, **given):
    X, y, clients = domains
    model = type(model)(**model.get_params() | {"target": "t"} | given)
    return model.fit(X, y, clients)


def copy_of(model, **given):
    return type(model)(**model.get_params() | given)


@both
def test_it_labels_a_domain_that_moved_away(model, domains):
    X, y, clients = domains
    target = clients == "t"
    alone = LogisticRegression().fit(X[~target], y[~target]).score(X[target], y[target])
    assert alone < 0.8
    model = fitted(model, domains)
    assert model.score(X[target], y[target]) > 0.95
    assert model.agreement_ > 0.8
    sources = [model.score(X[clients == k], y[clients == k], [k] * 60) for k in "ab"]
    assert_allclose(model.source_score_, np.mean(sources))


@both
def test_the_labels_of_a_target_change_no_bit(model, domains, assert_same_fit):
    X, y, clients = domains
    target = clients == "t"
    expected = copy_of(model, target=["t"]).fit(X, y, clients)
    for labels in (y[target][::-1], 7, -1):
        other = y.copy()
        other[target] = labels
        assert_same_fit(copy_of(model, target=["t"]).fit(X, other, clients), expected)
    y = y.astype(float)
    y[target] = np.nan
    kept = copy_of(model, target=["t"]).fit(X, y, clients)
    assert_array_equal(kept.atoms_, expected.atoms_)


@both
@pytest.mark.parametrize("kind", ["integers", "nan", "none"])
def test_a_client_without_labels_is_a_target(model, domains, kind):
    X, y, clients = domains
    named = fitted(model, domains)
    if kind == "integers":
        y = np.where(clients == "t", -1, y)
    elif kind == "nan":
        y = np.where(clients == "t", np.nan, y)
    else:
        y = [
            None if c == "t" else f"class {k}" for k, c in zip(y, clients, strict=True)
        ]
    found = copy_of(model).fit(X, y, clients)
    assert_array_equal(found.targets_, ["t"])
    assert_array_equal(found.atoms_, named.atoms_)
    rows = X[clients == "t"]
    places = np.searchsorted(found.classes_, found.predict(rows))
    assert_array_equal(places, named.predict(rows))


def test_with_names_minus_one_is_a_label(domains):
    X, y, clients = domains
    model = fitted(BOTH[0], (X, y - 1, clients))
    assert_array_equal(model.classes_, [-1, 0, 1])
    target = clients == "t"
    assert model.score(X[target], y[target] - 1) > 0.95


def test_score_counts_labelled_rows_alone(domains):
    X, y, clients = domains
    model = fitted(BOTH[0], domains)
    target = clients == "t"
    some = np.where(np.arange(60) < 30, -1, y[target])
    expected = model.score(X[target][30:], y[target][30:])
    assert model.score(X[target], some) == expected
    assert np.isnan(model.score(X[target], np.full(60, -1)))


@both
def test_several_targets_and_none(model, domains):
    X, y, clients = domains
    two = fitted(model, domains, target=["b", "t"])
    with pytest.raises(ValueError, match="fitted on 2 targets"):
        two.predict(X)
    assert two.score(X, y, clients) > 0.9
    none = fitted(model, domains, target=None)
    with pytest.raises(ValueError, match="fitted on 3 clients"):
        none.predict(X)
    assert none.score(X, y, clients) > 0.95
    assert list(none.score_by_client(X, y, clients).index.sort_values()) == [*"abt"]


@both
def test_rows_may_stand_in_any_order_of_clients(model, domains, assert_same_fit):
    X, y, clients = domains
    order = np.argsort(np.tile(np.arange(60), 3), kind="stable")
    one = fitted(model, domains)
    assert_same_fit(fitted(model, (X[order], y[order], clients[order])), one)


@both
@pytest.mark.parametrize("inference", ["reconstruct", "ensemble"])
@pytest.mark.parametrize("classifier", [LogisticRegression(C=0.1), RidgeClassifier()])
def test_any_classifier_learns_soft_labels(model, domains, inference, classifier):
    X, y, clients = domains
    model = fitted(model, domains, inference=inference, classifier=classifier)
    target = clients == "t"
    assert model.score(X[target], y[target]) > 0.8
    assert_allclose(model.predict_proba(X[target]).sum(axis=1), 1)


@both
def test_a_fit_serves_both_ways_of_inference(model, domains):
    X, _, clients = domains
    expected = fitted(model, domains, inference="ensemble").predict_proba(X, clients)
    model = fitted(model, domains).set_params(inference="ensemble")
    assert_array_equal(model.predict_proba(X, clients), expected)


@both
def test_coordinates_stay_on_the_simplex(model, domains):
    model = fitted(model, domains)
    assert (model.weights_ >= 0).all()
    assert_allclose(model.weights_.sum(axis=1), 1)
    assert_allclose(model.atom_labels_.sum(axis=2), 1)


@both
def test_the_reconstruction_lies_where_the_target_lies(model, domains):
    X, _y, clients = domains
    model = fitted(model, domains)
    points, labels = model.reconstruct()
    target = X[clients == "t"]
    assert_allclose(points.mean(axis=0), target.mean(axis=0), atol=0.5)
    assert_allclose(points.std(axis=0), target.std(axis=0), rtol=0.3)
    assert labels.shape == (len(points), 3)
    assert_array_equal(model.reconstruct("t")[0], points)


@both
@pytest.mark.parametrize("labelled", [True, False])
def test_a_newcomer_leaves_all_others_alone(model, domains, labelled):
    X, y, clients = domains
    before = fitted(model, domains)
    rows, labels = X[clients == "t"], y[clients == "t"]
    after = fitted(model, domains).fit_domain(rows, "new", labels if labelled else None)
    assert_array_equal(after.atoms_, before.atoms_)
    assert_array_equal(after.weights_[:3], before.weights_)
    names = np.full(60, "new")
    assert after.score(rows, labels, names) > 0.9
    assert ("new" in after.targets_) == (not labelled)
    with pytest.raises(ValueError, match="there already"):
        after.fit_domain(rows, "new")
    with pytest.raises(ValueError, match="expected 2 as in fit"):
        after.fit_domain(rows[:, :1])


@pytest.mark.parametrize("n_jobs", [2, 5])
def test_threads_change_no_bit(domains, n_jobs, assert_same_fit):
    one = fitted(BOTH[1], domains, n_jobs=1)
    assert_same_fit(fitted(BOTH[1], domains, n_jobs=n_jobs), one)


def test_a_message_holds_a_batch_of_every_atom_and_no_more(domains):
    sent = {}
    for n in (12, 24):
        history = fitted(BOTH[1], domains, batch_size=n, atom_size=48).history_
        for way in ("bytes_down", "bytes_up"):
            numbers = 3 * n * (2 + 3)  # K n_b (d + c)
            rest = history[way] - 3 * 8 * numbers  # of three clients
            assert (rest[1:] == rest[1]).all() and 0 < rest[1] < 3 * 300
            # Once each client sends three sums of each column, and gets nothing.
            once = rest[0] - rest[1] - (way == "bytes_up") * 3 * 8 * 3 * 2
            assert 0 < once < 3 * 300
            sent[n, way] = rest[1]
    for way in ("bytes_down", "bytes_up"):  # only the digits of a header differ
        assert sent[12, way] == sent[24, way]


def test_drift_grows_with_local_epochs_and_falls_with_rounds(domains):
    runs = [
        fitted(BOTH[1], domains, local_epochs=E, max_rounds=40).history_["drift"]
        for E in (1, 5)
    ]
    assert runs[1].mean() > runs[0].mean()
    for drifts in runs:
        assert drifts[-5:].mean() < drifts[:5].mean()


def test_drift_is_the_distance_between_versions():
    rng = np.random.default_rng(0)
    versions = rng.normal(size=(4, 2, 5, 3))
    apart = [
        ((versions[i] - versions[j]) ** 2).sum(axis=2).mean()
        for i in range(4)
        for j in range(i)
    ]
    assert_allclose(drift(versions), np.sqrt(np.mean(apart)))
    assert drift(versions[:1]) == 0


def test_versions_drawn_at_random_learn_too(domains):
    X, y, clients = domains
    model = fitted(BOTH[1], domains, server="random", keep_moments=False)
    target = clients == "t"
    assert model.score(X[target], y[target]) > 0.9


def test_versions_of_least_loss_learn_from_labels_alone(domains):
    X, y, clients = domains
    # A target pays no label, so its version would stay in every round.
    model = fitted(BOTH[1], domains, server="loss", target=None)
    assert model.score(X, y, clients) > 0.9


def test_a_run_goes_on_from_its_checkpoint(domains, tmp_path, assert_same_fit):
    whole = fitted(BOTH[1], domains)
    for rounds, resume in ((7, False), (15, True)):
        path = tmp_path / "run"
        engine = LocalEngine(checkpoint=path, every=1, resume=resume)
        again = fitted(BOTH[1], domains, max_rounds=rounds, engine=engine)
    assert_same_fit(again, whole)


def test_silent_clients_are_no_harm(domains):
    X, y, clients = domains
    engine = LocalEngine(
        timing=Timing(lambda n, d, key: np.ones(len(n)), 2.0, dropout=0.3)
    )
    model = fitted(BOTH[1], domains, engine=engine)
    assert model.history_["n_dropped"].sum() > 0
    target = clients == "t"
    assert model.score(X[target], y[target]) > 0.9


@both
def test_saved_and_loaded_it_predicts_with_the_same_bits(model, domains, tmp_path):
    X, _y, clients = domains
    model = fitted(model, domains)
    fedcore.save(tmp_path / "m.npz", model)
    again = fedcore.load(tmp_path / "m.npz")
    assert_array_equal(again.predict_proba(X, clients), model.predict_proba(X, clients))
    assert_array_equal(again.reconstruct()[0], model.reconstruct()[0])


def test_it_is_searched_within_a_pipeline(domains):
    X, y, clients = domains
    y = np.where(clients == "t", -1, y)
    with sklearn.config_context(enable_metadata_routing=True):
        pipeline = make_pipeline(StandardScaler(), copy_of(BOTH[0], max_iter=25))
        search = GridSearchCV(
            pipeline,
            {"dadil__n_atoms": [1, 2]},
            cv=KFold(2, shuffle=True, random_state=0),
        )
        search.fit(X, y, clients=clients)
        assert search.best_score_ > 0.9
        model = search.best_estimator_
        assert model.predict(X, clients=clients).shape == (180,)


def test_atoms_are_chosen_without_a_label_of_the_target(domains):
    X, y, clients = domains
    code = np.unique(clients, return_inverse=True)[1]
    rows = np.column_stack([X, code])
    model = copy_of(BOTH[0], target=[2], client_column=2, max_iter=25)
    search = GridSearchCV(
        model,
        {"n_atoms": [1, 2]},
        cv=KFold(2, shuffle=True, random_state=0),
        scoring=lambda model, X, y: model.agreement_score(X),
    )
    search.fit(rows, y)
    assert 0.5 < search.best_score_ <= 1


@both
@pytest.mark.parametrize(
    ("changes", "labels", "message"),
    [
        ({"target": "z"}, None, "target names 'z', which is no client"),
        ({"target": ["a", "b", "t"]}, None, "expected a source"),
        ({"scaler": "robust"}, None, "scaler == 'robust', expected one of"),
        ({"n_atoms": 0}, None, "n_atoms == 0, must be >= 1"),
        ({"classifier": StandardScaler()}, None, "expected None or a classifier"),
        ({}, "some", r"y has no label in 5 of the 60 rows of client 'a'"),
        ({}, "all", "y has no label"),
        ({}, "one class", "y has 1 class"),
    ],
)
def test_a_failed_fit_says_why_and_changes_nothing(
    model, domains, changes, labels, message
):
    X, y, clients = domains
    given = y.astype(float)
    if labels == "some":
        given[:5] = np.nan
    elif labels == "all":
        given[:] = np.nan
    elif labels == "one class":
        given[:] = 3
    model = fitted(model, domains)
    before = model.atoms_.copy()
    model.set_params(**changes)
    with pytest.raises(ValueError, match=message):
        model.fit(X, given, clients)
    assert_array_equal(model.atoms_, before)
    assert model.n_features_in_ == 2


class Failing(LogisticRegression):
    """A classifier that fails when it is trained."""

    def fit(self, X, y, sample_weight=None):
        raise RuntimeError("no more")


@both
def test_a_failing_classifier_changes_nothing(model, domains):
    X, y, clients = domains
    model = fitted(model, domains)
    model.set_params(classifier=Failing(), n_atoms=2)
    before = dict(vars(model))
    with pytest.raises(RuntimeError, match="no more"):
        model.fit(X[:, :1], y, clients)
    assert vars(model) == before


# cases that broke other systems


@both
def test_layout_and_type_of_rows_do_not_matter(model, domains):
    X, y, clients = domains
    X = np.round(X)
    expected = fitted(model, (X, y, clients)).atoms_
    strided = np.repeat(X, 2, axis=0)[::2]
    for rows in (np.asfortranarray(X), strided, X.astype(int), X.astype(np.float32)):
        assert_array_equal(fitted(model, (rows, y, clients)).atoms_, expected)
    read_only = X.copy()
    read_only.setflags(write=False)
    assert_array_equal(fitted(model, (read_only, y, clients)).atoms_, expected)


@both
def test_equal_rows_give_finite_models(model, domains):
    X, y, clients = domains
    X = np.eye(2, dtype=np.float32)[y % 2]
    model = fitted(model, (X, y, clients))
    assert np.isfinite(model.atoms_).all() and np.isfinite(model.atom_labels_).all()
    constant = np.ones((180, 2))
    assert np.isfinite(fitted(model, (constant, y, clients)).atoms_).all()


@both
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_bad_numbers_are_refused(model, domains, value):
    X, y, clients = domains
    X = X.copy()
    X[3, 1] = value
    with pytest.raises(ValueError, match=r"X|overflow"):
        fitted(model, (X, y, clients))


@both
def test_empty_rows_are_refused(model):
    with pytest.raises(ValueError, match="0 sample"):
        copy_of(model).fit(np.empty((0, 2)), np.empty(0, int), np.empty(0))


# batches


def test_batches_are_balanced():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [50, 3, 20])
    drawn = balanced(strata(codes), 31, rng)
    assert sorted(np.bincount(codes[drawn]))[0] == 10
    assert len(set(drawn[codes[drawn] == 0])) == np.sum(codes[drawn] == 0)
    at = batch_of_atoms(4, 11, 3, 8, rng)
    assert all(len(set(row)) == 8 for row in at.tolist())
    assert (np.sort([np.bincount(row % 3) for row in at]) == [2, 3, 3]).all()
    assert_array_equal(np.sort(batch_of_atoms(2, 5, 2, 5, rng)), [np.arange(5)] * 2)


def test_a_step_moves_coordinates_by_their_own_count(domains):
    """With one client and no newcomer the count is that of the steps."""
    from fedcore.dadil.domains import join, move
    from fedcore.dadil.reference import adam
    from fedcore.dadil.steps import Stepper
    from fedcore.federation.contract import Cohort

    X, y, _ = domains
    cohort = Cohort(X[:60], y[:60], None, np.array([0, 60]))
    own = join(cohort, y[:60], 2, "isotropic")
    rng = np.random.default_rng(1)
    atoms, logits = rng.normal(size=(2, 12, 2)), rng.normal(size=(2, 12, 3))
    alphas = own.alphas.copy()
    traces = [np.zeros_like(alphas), np.zeros_like(alphas)]
    zeros = [(np.zeros_like(Z), np.zeros_like(Z)) for Z in (atoms, logits)]
    stepper = Stepper(2, 12, 2, 3)
    for t in (1, 2, 3):
        key = np.random.default_rng(t)
        batch = own.batch(0, 12, 3, np.random.default_rng(t))
        copies = alphas.copy()
        probe = [np.zeros_like(alphas), np.zeros_like(alphas)]
        parts = [(a.copy(), b.copy()) for a, b in zeros]
        stepper.step(
            atoms.copy(), logits.copy(), copies, [batch], [*parts, probe], 1, 0.1
        )
        adam(alphas, probe[0] / 0.1, traces, t, 0.1)
        alphas[0] = project(alphas[0])
        move(
            *(stepper, own, [0], atoms.copy(), logits.copy()),
            *([(a.copy(), b.copy()) for a, b in zeros], 1, 0.1, key),
        )
        assert_allclose(own.alphas, alphas, atol=1e-12)
