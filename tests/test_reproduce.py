"""`fedcore reproduce`: what is kept, what is refused, and what the report holds."""

import json
import math
import re
from html.parser import HTMLParser
from importlib import import_module

import numpy as np
import pytest

from fedcore.__main__ import main
from fedcore.reproduce import PARTS, reproduce, run
from fedcore.reproduce.adaptation import turned_digits
from fedcore.reproduce.chapter import (
    FAILS,
    HOLDS,
    Chapter,
    Claim,
    Figure,
    MissingSet,
    Options,
    Table,
)
from fedcore.reproduce.kept import KeptMeasurements
from fedcore.reproduce.rivals import methods
from fedcore.reproduce.rivals.losses import GRADIENTS

pytest.importorskip("tqdm")
pytest.importorskip("matplotlib")

VOID = {"meta", "br", "hr", "img", "input", "link"}


class Outline(HTMLParser):
    """Tags in pairs, text by tag."""

    def __init__(self, text):
        super().__init__()
        self.open, self.cells = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


class Part:
    """A part that counts how often it is asked."""

    def __init__(self):
        self.asked = []
        self.fails = False

    def measurements(self, options):
        return {name: lambda name=name: self.measure(name) for name in ("one", "two")}

    def measure(self, name):
        if self.fails and name == "two":
            raise KeyboardInterrupt
        self.asked.append(name)
        return {"value": len(name), "infinite": math.inf}

    def chapter(self, found, options):
        return Chapter(
            "Toy <part>",
            "Nobody & others.",
            [
                Claim("it works", "always", f"{found['one']['value']}", HOLDS, 1.5),
                Claim("it is fast", "never", "slow", FAILS),
            ],
            [Table("numbers", ("a", "b"), [("x < y", found["two"]["infinite"])])],
            [Figure("a line", lambda ax: ax.plot([0, 1], [0, 1]))],
            [MissingSet("the moon", "fetch it")],
        )


@pytest.fixture
def toy(monkeypatch):
    part = Part()
    monkeypatch.setitem(PARTS, "toy", "toy")
    monkeypatch.setattr(run, "import_module", lambda *name: part)
    return part


def test_the_report_stands_alone_and_escapes_what_it_is_given(toy, tmp_path):
    said = []
    place = reproduce(["toy"], quick=True, out=tmp_path / "new", say=said.append)
    text = place.read_text(encoding="utf-8")
    cells = Outline(text).cells
    assert {"it works", "always", "1.50", "holds", "x < y", "never"} <= set(cells)
    assert "2 claims: 1 hold, 1 do not" in text
    assert "Toy &lt;part&gt;" in text and "the moon: fetch it" in text
    assert "<svg" in text
    assert not re.search(r'(src|href)="(?!#)', text)  # nothing outside the file
    assert said[0] == "toy     holds: it works (3)"
    assert str(place) in said[-1]


def test_an_interrupted_run_goes_on_where_it_was(toy, tmp_path):
    toy.fails = True
    with pytest.raises(KeyboardInterrupt):
        reproduce(["toy"], quick=True, out=tmp_path)
    toy.fails = False
    reproduce(["toy"], quick=True, out=tmp_path)
    assert toy.asked == ["one", "two"]
    first = (tmp_path / "report.html").read_bytes()
    reproduce(["toy"], quick=True, out=tmp_path)
    assert toy.asked == ["one", "two"]
    assert (tmp_path / "report.html").read_bytes() == first
    reproduce(["toy"], out=tmp_path)  # the full run is another
    assert toy.asked == ["one", "two"] * 2


@pytest.mark.parametrize("text", ["", "{", "[]", '{"found": {}}', "null"])
def test_a_file_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "quick.json"
    path.write_text(text)
    with pytest.raises(ValueError, match="does not hold measurements"):
        KeptMeasurements(path, {})
    assert path.read_text() == text


def test_measurements_under_other_conditions_are_refused(tmp_path):
    path = tmp_path / "quick.json"
    KeptMeasurements(path, {"data": None}).measure("a", lambda: 1)
    with pytest.raises(ValueError, match=r"was measured with .*None.*'/there'"):
        KeptMeasurements(path, {"data": "/there"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"parts": ["svm", "moon"]}, r"parts are \['svm', 'moon'\]"),
        ({"parts": []}, r"parts are \[\]"),
        ({"parts": ["svm"], "data": "nowhere"}, "nowhere, expected a folder"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_made(
    tmp_path, arguments, message
):
    out = tmp_path / "out"
    if "data" in arguments:
        arguments = arguments | {"data": tmp_path / arguments["data"]}
    with pytest.raises(ValueError, match=message):
        reproduce(**arguments, out=out)
    assert not out.exists()


def test_a_missing_library_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "NEEDS", ("no_such_library",))
    with pytest.raises(ImportError, match=r"no_such_library.*\[reproduce\]"):
        reproduce(["svm"], out=tmp_path)


def test_the_command_says_errors_in_a_sentence(tmp_path, capsys):
    arguments = ["reproduce", "svm", "--data", str(tmp_path / "no")]
    with pytest.raises(SystemExit) as stopped:
        main([*arguments, "--out", str(tmp_path)])
    assert "expected a folder" in stopped.value.code


def turned_digits_of_few():
    X, y, domain = turned_digits()
    few = np.flatnonzero(y < 3)[:240]
    return X[few], y[few], domain[few]


SMALLER = {
    "multi_task_svm": {"TIES": (1.0,), "CLIENTS": (2, 3), "FEW": 2, "MANY": 3},
    "sparse_learning": {
        "N_CLIENTS": {1: 10, 2: 3},
        "BASE_ROUNDS": {1: 3, 2: 3},
        "STEPS": {1: (1e-4,), 2: (1e-3,)},
    },
    "adaptation": {
        "turned_digits": turned_digits_of_few,
        "ROUNDS": 2,
        "EPOCHS": (1, 2),
    },
    "client_graph": {"SCENES": {"2 groups of 2": {"group_sizes": (2, 2)}}},
}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", SMALLER)
def test_a_part_measures_all_that_its_chapter_shows(name, monkeypatch, tmp_path):
    part = import_module(f"fedcore.reproduce.{name}")
    for constant, value in SMALLER[name].items():
        monkeypatch.setattr(part, constant, value)
    options = Options(quick=True)
    found = {
        step: json.loads(json.dumps(what()))
        for step, what in part.measurements(options).items()
        if not step.startswith(("delays 20", "course 2 2", "course 8 2"))
    }
    chapter = part.chapter(found, options)
    assert all(claim.measured and claim.verdict for claim in chapter.claims)
    assert all(len(row) == len(t.columns) for t in chapter.tables for row in t.rows)
    from fedcore.reproduce.report import write_report

    write_report(tmp_path / "report.html", [chapter], quick=True)
    Outline((tmp_path / "report.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def alike():
    """Four clients with one model, 40 rows each."""
    rng = np.random.default_rng(0)
    W = rng.normal(size=(5, 3))
    clients = []
    for _ in range(4):
        X = rng.normal(size=(40, 5))
        own = (X @ W).argmax(axis=1)
        clients.append((X, np.where(np.eye(3, dtype=bool)[own], 1.0, -1.0)))
    return clients


def objective_slope(W, clients, gradient):
    pooled = tuple(np.concatenate(parts) for parts in zip(*clients, strict=True))
    return gradient(W, *pooled) + methods.L2 * W


@pytest.mark.parametrize("name", ["scaffold", "fedprox"])
def test_one_model_for_all_ends_at_the_pooled_optimum(alike, name):
    gradient = GRADIENTS["logistic"]
    setting = {"rate": 1.0} | ({"mu": 0.01} if name == "fedprox" else {})
    course = getattr(methods, name)(alike, gradient, **setting)
    for _ in range(2000):
        models = next(course)
    slope = np.abs(objective_slope(models[0], alike, gradient)).max()
    # Local steps leave FedProx beside the optimum; control variates do not.
    assert slope < (1e-8 if name == "scaffold" else 2e-2)
    assert (models == models[0]).all()


@pytest.mark.parametrize(("name", "slack"), [("mr_mtl", 1e-6), ("ditto", 1e-6)])
def test_personal_models_end_where_their_slopes_vanish(alike, name, slack):
    gradient, pull = GRADIENTS["logistic"], 0.3
    course = getattr(methods, name)(alike, gradient, rate=0.5, pull=pull)
    for _ in range(3000):
        own = next(course)
    if name == "mr_mtl":
        centre = own.mean(axis=0)  # the clients have as many rows
    else:
        shared = methods.fedprox(alike, gradient, rate=0.5, mu=0.0)
        for _ in range(3000):
            centre = next(shared)[0]
    for V, client in zip(own, alike, strict=True):
        slope = gradient(V, *client) + methods.L2 * V + pull * (V - centre)
        assert np.abs(slope).max() < slack


def test_the_coin_of_l2gd_draws_clients_together(alike):
    def spread(pull):
        course = methods.l2gd(alike, GRADIENTS["logistic"], rate=0.05, pull=pull)
        for _ in range(400):
            own = next(course)
        return own.std(axis=0).max()

    assert spread(3.0) < 0.5 * spread(0.01)


@pytest.mark.parametrize("loss", GRADIENTS)
def test_gradients_of_the_losses(alike, loss):
    W = np.random.default_rng(1).normal(size=(5, 3))
    X, sign = alike[0]

    def mean_loss(W):
        scores = X @ W
        if loss == "hinge":
            return np.maximum(0, 1 - sign * scores).sum(axis=1).mean()
        high = scores.max(axis=1, keepdims=True)
        total = np.log(np.exp(scores - high).sum(axis=1)) + high[:, 0]
        return (total - scores[sign > 0]).mean()

    analytic = GRADIENTS[loss](W, X, sign)
    step = 1e-6
    for place in np.ndindex(W.shape):
        unit = np.zeros_like(W)
        unit[place] = step
        numeric = (mean_loss(W + unit) - mean_loss(W - unit)) / (2 * step)
        assert numeric == pytest.approx(analytic[place], abs=1e-6)
