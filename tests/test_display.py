"""Figures show what the fitted estimators hold, and say why they cannot."""

import io
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from fedcore import FedGraphMTL, FedIterHT, FedMTLSVC, FedMTLSVR, LocalEngine, Timing
from fedcore.datasets import make_gaussian_tasks, make_mtl_classification
from fedcore.display import (
    ClientGraphDisplay,
    CoefficientsDisplay,
    ConvergenceDisplay,
    MessageSequenceDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


def short(model, X, y, clients):
    """Fit a few rounds: the figure is the same."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, clients)


@pytest.fixture(scope="module")
def rows():
    X, y, clients = make_mtl_classification(6, 30, 4, random_state=0)
    return X, y, np.array([f"site {k}" for k in range(6)])[clients]


@pytest.fixture(scope="module")
def svm(rows):
    return FedMTLSVC(engine=LocalEngine(), random_state=0).fit(*rows)


@pytest.fixture(scope="module")
def late(rows):
    def delay(sizes, d, key):
        return np.random.default_rng(key).exponential(1.0, len(sizes))

    timing = Timing(delay, wait=1.2, sum_time=0.2, dropout=0.2, trace=True)
    model = FedMTLSVC(
        aggregation="line_search",
        max_rounds=12,
        engine=LocalEngine(timing=timing),
        random_state=0,
    )
    return short(model, *rows)


@pytest.fixture(scope="module")
def graph():
    X, y, clients = make_gaussian_tasks([3, 3], 40, random_state=0)[:3]
    return short(FedGraphMTL(max_rounds=20, random_state=0), X, y, clients)


def rendered(display):
    picture = io.BytesIO()
    display.figure_.savefig(picture, format="png", dpi=40)
    return picture.getvalue()


@pytest.mark.parametrize("x", ["round", "exchange", "bytes", "time"])
def test_convergence_is_the_measured_gap_against_what_it_cost(svm, x):
    display = ConvergenceDisplay.from_estimator(svm, x=x)
    history = svm.history_
    cost = {
        "round": history["round"],
        "exchange": np.cumsum(history["n_exchanges"]),
        "bytes": np.cumsum(history["bytes_up"] + history["bytes_down"]),
        "time": history["time"],
    }[x]
    known = np.isfinite(history["gap"])
    assert_array_equal(display.line_.get_xdata(), cost[known])
    assert_array_equal(display.line_.get_ydata(), history["gap"][known])
    assert display.ax_.get_yscale() == "log"
    assert rendered(display)


def test_lines_of_one_figure_differ_without_colour(svm):
    first = ConvergenceDisplay.from_estimator(svm, name="one")
    second = ConvergenceDisplay.from_estimator(svm, name="two", ax=first.ax_)
    assert second.figure_ is first.figure_
    for kind in ("linestyle", "marker"):
        assert plt.getp(first.line_, kind) != plt.getp(second.line_, kind)
    legend = [text.get_text() for text in first.ax_.get_legend().get_texts()]
    assert legend == ["one", "two"]


def test_distance_from_the_best_objective(svm):
    best = svm.objective_ / 2
    line = ConvergenceDisplay.from_estimator(svm, best=best).line_
    known = svm.history_["objective"][np.isfinite(svm.history_["objective"])]
    assert_allclose(line.get_ydata(), known / best - 1)


def test_messages_are_marked_by_what_became_of_them(late):
    display = MessageSequenceDisplay.from_estimator(late, exchanges=range(1, 9))
    within = late.trace_.exchange <= 8
    words = {"accepted": ">", "interrupted": "x", "discarded": "s", "dropped": "v"}
    marks = [line.get_marker() for line in display.ax_.lines if len(line.get_xdata())]
    counts = {mark: marks.count(mark) for mark in words.values()}
    outcomes = np.bincount(late.trace_.outcome[within], minlength=4)
    assert list(counts.values()) == outcomes.tolist()
    assert (outcomes > 0).all()
    ticks = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert ticks == late.clients_.tolist()
    assert rendered(display)


def test_nothing_is_drawn_beyond_the_exchanges_asked_for(late):
    trace = late.trace_
    display = MessageSequenceDisplay.from_estimator(late, exchanges=[2])
    begin, end = trace.sent[trace.exchange == 2].min(), trace.sent[trace.exchange > 2]
    times = np.concatenate([line.get_xdata() for line in display.ax_.lines])
    assert times.min() >= begin
    assert times.max() <= end.min()


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_coefficients_are_the_largest_of_any_client(rows, form):
    X, y, clients = rows
    model = FedMTLSVC(random_state=0).fit(form(X), y, clients)
    display = CoefficientsDisplay.from_estimator(model, n_features=3)
    total = model.coefficients().drop(columns="intercept")
    largest = total.abs().max().nlargest(3).index
    assert display.names == largest.tolist()
    assert_allclose(display.total, total[largest])
    assert_allclose(display.shared, model.coef_[0][[int(x[1:]) for x in largest]])
    assert rendered(display)


def test_each_class_has_its_own_figure(rows):
    X, y, clients = rows
    model = FedMTLSVC(random_state=0, tol=1e-2).fit(X, y + 2 * (X[:, 0] > 1), clients)
    for place, label in enumerate(model.classes_):
        display = CoefficientsDisplay.from_estimator(model, label=label, n_features=4)
        assert set(display.shared) == set(model.coef_[place])
    with pytest.raises(ValueError, match=r"label is None, expected one of \["):
        CoefficientsDisplay.from_estimator(model)


def test_a_model_without_personal_parts_has_bars_alone(rows):
    X, y, clients = rows
    model = FedIterHT(2, tol=1e-3).fit(X, y.astype(float), clients)
    display = CoefficientsDisplay.from_estimator(model, n_features=2)
    assert display.total.shape == (0, 2)
    assert set(np.flatnonzero(model.coef_)) == {int(x[1:]) for x in display.names}
    assert rendered(display)


def test_graph_is_ordered_by_group_beside_its_spectrum(graph):
    display = ClientGraphDisplay.from_estimator(graph)
    matrix, spectrum = display.ax_
    order = np.argsort(graph.groups_, kind="stable")
    assert_array_equal(
        matrix.images[0].get_array(), graph.client_graph_[np.ix_(order, order)]
    )
    drawn = np.concatenate([line.get_ydata() for line in spectrum.lines])
    assert_array_equal(drawn, graph.eigenvalues_)
    assert rendered(display)


def test_a_given_topology_has_no_spectrum():
    X, y, clients = make_gaussian_tasks([2, 1], 20, random_state=0)[:3]
    model = short(FedGraphMTL(topology="full", max_rounds=3), X, y, clients)
    display = ClientGraphDisplay.from_estimator(model)
    assert "no spectrum" in display.ax_[1].get_title()


@pytest.mark.parametrize(
    "draw, message",
    [
        (lambda m: ConvergenceDisplay.from_estimator(m, x="cost"), "x is 'cost'"),
        (lambda m: ConvergenceDisplay.from_estimator(m, y="loss"), "y is 'loss'"),
        (
            lambda m: ConvergenceDisplay.from_estimator(m, y="gap", best=1.0),
            "best is 1.0 with y='gap'",
        ),
        (
            lambda m: ConvergenceDisplay.from_estimator(m, best=0.0),
            "expected a finite objective, not 0",
        ),
        (MessageSequenceDisplay.from_estimator, "without trace_, expected a fit with"),
        (
            lambda m: CoefficientsDisplay.from_estimator(m, n_features=0),
            "n_features is 0",
        ),
        (
            lambda m: CoefficientsDisplay.from_estimator(m, feature_names=["a"]),
            "feature_names has 1 entries, the estimator was fitted with 4 features",
        ),
        (
            lambda m: CoefficientsDisplay.from_estimator(m, label=3),
            "label is 3, but the estimator has one row of coefficients",
        ),
        (ClientGraphDisplay.from_estimator, "without client_graph_, expected a FedGr"),
    ],
)
def test_what_cannot_be_drawn_is_said(svm, draw, message):
    with pytest.raises(ValueError, match=message):
        draw(svm)
    assert not plt.get_fignums()


def test_exchanges_without_messages_are_refused(late):
    with pytest.raises(ValueError, match="sent anything in exchanges 900 to 901"):
        MessageSequenceDisplay.from_estimator(late, exchanges=[900, 901])


def test_an_unfitted_estimator_is_refused():
    with pytest.raises(NotFittedError):
        ConvergenceDisplay.from_estimator(FedMTLSVR())


def test_a_missing_matplotlib_is_named(svm, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install fedcore-learn\[plot\]"):
        ConvergenceDisplay.from_estimator(svm)
