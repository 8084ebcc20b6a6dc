"""The README: its Python runs as it stands, and it stays short."""

import re
from pathlib import Path

import numpy as np
import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.fixture(scope="module")
def text():
    if not README.exists():
        pytest.skip("README.md is not beside the tests")
    return README.read_text(encoding="utf-8")


def test_python_blocks_run_in_their_order(text, capsys):
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    model, score = names["model"], float(capsys.readouterr().out.split()[0])
    assert model.dual_gap_ <= model.tol
    # Better than one model for all, or the README says what its code does not show.
    shared = model.set_params(C2=np.inf, engine=None, local_epochs=10)
    shared.fit(names["X"], names["y"])
    assert score > shared.score(names["X_test"], names["y_test"])


def test_commands_are_targets_of_the_makefile(text):
    makefile = README.parent / "Makefile"
    if not makefile.exists():
        pytest.skip("Makefile is not beside the tests")
    makefile = makefile.read_text()
    commands = set(re.findall(r"^    make (\S+)", text, re.MULTILINE))
    assert {"demo", "test", "lint", "ctest", "bench"} <= commands
    for target in commands:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE)


def test_has_at_most_150_lines(text):
    assert len(text.splitlines()) <= 150
