"""The figure of a dictionary shows its atoms and what they make up."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fedcore import DaDiL, FedMTLSVC
from fedcore.display import AtomsDisplay

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def no_figure_stays_open():
    yield
    plt.close("all")


def fitted(d):
    rng = np.random.default_rng(0)
    y = np.tile(["left", "right"], 60)
    X = rng.normal(size=(120, d)) + 3 * (y == "right")[:, None]
    domain = np.repeat(["a", "b", "c"], 40)
    X[domain == "b"] *= 2
    model = DaDiL(n_atoms=2, target=["c"], max_iter=20, random_state=0)
    return model.fit(X, y, domain), X, domain


@pytest.mark.parametrize("d", [1, 2, 5])
def test_a_panel_for_each_atom_and_one_for_the_domain(d):
    model, X, domain = fitted(d)
    display = AtomsDisplay.from_estimator(model, X=X[domain == "c"])
    assert len(display.ax_) == 3
    assert [ax.get_title() for ax in display.ax_] == [
        *(f"atom {k + 1}, weight {w:.2f}" for k, w in enumerate(model.weights_[2])),
        "domain c, reconstructed",
    ]
    for ax, count in zip(display.ax_, (2, 2, 3), strict=True):
        assert len(ax.lines) == count  # a line a class, and one of rows
        markers = {line.get_marker() for line in ax.lines}
        assert len(markers) == count  # also read without colour
    drawn = sum(len(line.get_xdata()) for line in display.ax_[0].lines)
    assert drawn == model.atoms_.shape[1]
    display.figure_.savefig(io.BytesIO(), format="png")


def test_any_domain_can_be_drawn_in_given_axes():
    model, _, _ = fitted(2)
    axes = plt.subplots(1, 3)[1]
    display = AtomsDisplay.from_estimator(model, domain="b", ax=axes)
    assert display.domain == "b" and display.ax_[0] is axes[0]
    points, labels = model.reconstruct("b")
    own = (points - model.domain_mean_[1]) / model.domain_scale_[1]
    assert_allclose(display.points, own, atol=1e-12)
    assert (display.point_labels == labels.argmax(axis=1)).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"domain": "z"}, "z"),
        ({"X": np.ones((3, 7))}, r"X has shape \(3, 7\), expected \(n_rows, 2\)"),
        ({"ax": [None]}, "ax has 1 axes, expected 3"),
    ],
)
def test_what_cannot_be_drawn_is_said(options, message):
    model, _, _ = fitted(2)
    with pytest.raises(ValueError, match=message):
        AtomsDisplay.from_estimator(model, **options)


def test_other_estimators_have_no_atoms():
    X, y = np.eye(4), np.array([0, 1, 0, 1])
    with pytest.raises(ValueError, match="without atom_labels_, expected a DaDiL"):
        AtomsDisplay.from_estimator(FedMTLSVC().fit(X, y))
