"""The command line: the demo on the data in the package, and the facts of `info`."""

import math
import re
import subprocess
import sys

import numpy as np
import pytest

import fedcore
from fedcore import demo
from fedcore.__main__ import main

ARMS = ("global only", "local only", "multi-task")


def test_demo_prints_a_table_of_three_arms(capsys):
    assert main(["demo", "--splits", "2", "--jobs", "1", "--seed", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("arm "))
    rows = dict(zip(ARMS, lines[head + 1 : head + 4], strict=True))
    for arm, row in rows.items():
        assert row.startswith(arm)
        figures = [float(x) for x in row[len(arm) :].replace("+-", "").split()]
        assert len(figures) == 8
        assert all(math.isfinite(x) and x >= 0 for x in figures)
        error, _, worst, rounds, up, down, gap, _ = figures
        assert 0 < error < worst < 100
        assert gap <= 1e-3
        exchanged = (rounds > 0, up > 0, down > 0)
        assert exchanged == ((False,) * 3 if arm == "local only" else (True,) * 3)
    assert sum(line.startswith("  split ") for line in lines) == 2
    assert sum(line.startswith("Seen: ") for line in lines) == 1
    (stragglers,) = [line for line in lines if line.startswith("Stragglers: ")]
    assert len(re.findall(r"\d+ s \(\d+ rounds\)", stragglers)) == 3


def _splits(errors):
    """Accounts that hold nothing but these errors, given a list for each arm."""
    return [
        [
            demo.Account(arm, error, np.full(2, error), 1, 1.0, 1.0, 0.0, 0.0)
            for arm, error in zip(ARMS, split, strict=True)
        ]
        for split in zip(*errors, strict=True)
    ]


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([(4, 5), (5, 6), (1, 2)], ["multi-task errs least, 1.5 %", "in 2 of 2"]),
        ([(4, 5), (5, 6), (5, 2)], ["multi-task errs least, 3.5 %", "in 1 of 2"]),
        ([(1, 2), (5, 6), (3, 4)], ["global only errs least, 1.5 %", "did not help"]),
        ([(4, 4), (2, 2), (3, 3)], ["local only errs least, 2.0 %", "did not help"]),
        ([(3, 3), (5, 6), (2, 4)], ["no arm alone is best"]),
    ],
)
def test_the_last_sentence_follows_the_figures(errors, expected):
    sentence = demo.verdict(_splits(errors))
    for part in expected:
        assert part in sentence


def test_rows_of_each_cell_are_spread_evenly():
    rng = np.random.default_rng(0)
    cells = rng.integers(7, size=200)
    part = demo.spread_evenly(cells, 5, rng)
    for cell in range(7):
        counts = np.bincount(part[cells == cell], minlength=5)
        assert np.ptp(counts) <= 1


def test_info_names_versions_and_kernels(capsys):
    assert main(["info"]) == 0
    facts = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    assert facts["fedcore"] == fedcore.__version__
    assert facts["numpy"] == np.__version__
    assert facts["python"].startswith(f"{sys.version_info.major}.")
    assert {"scipy", "scikit-learn", "POT", "kernels"} <= facts.keys()


def test_runs_as_a_module():
    command = [sys.executable, "-m", "fedcore", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"fedcore {fedcore.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        ([], "required: command"),
        (["show"], "invalid choice: 'show'"),
        (["demo", "--jobs", "0"], "0 threads, expected 1 or more"),
        (["demo", "--jobs", "two"], "invalid threads value"),
        (["demo", "--seed", "-1"], "-1, expected 0 to 4294967295"),
        (["demo", "--splits", "9"], "invalid choice: 9"),
        (["info", "more"], "unrecognized arguments: more"),
    ],
)
def test_bad_arguments_exit_2(argv, complaint, capsys):
    with pytest.raises(SystemExit) as exit:
        main(argv)
    assert exit.value.code == 2
    assert complaint in capsys.readouterr().err


def test_interruption_exits_130(monkeypatch, capsys):
    def interrupt(**_):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "run", interrupt)
    assert main(["demo"]) == 130
    assert "interrupted" in capsys.readouterr().err
