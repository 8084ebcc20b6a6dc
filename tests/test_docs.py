"""The pages in docs: their Python runs as it stands."""

import re
import warnings
from pathlib import Path

import pytest
from sklearn.exceptions import ConvergenceWarning

from fedcore.datasets import make_mtl_classification

DOCS = Path(__file__).parents[1] / "docs"
NEEDS = {
    "flower": ("flwr",),
    "new_method": ("cryptography",),
    "privacy": ("cryptography", "dp_accounting"),
}


def blocks(page):
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


PAGES = [page for page in sorted(DOCS.rglob("*.md")) if blocks(page)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_blocks_run_in_their_order(page, tmp_path, monkeypatch):
    for library in NEEDS.get(page.stem, ()):
        pytest.importorskip(library)
    monkeypatch.chdir(tmp_path)  # for what they save
    X, y, clients = make_mtl_classification(5, 30, 3, random_state=0)
    names = {"__name__": page.stem, "X": X, "y": y, "clients": clients}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for block in blocks(page):
            exec(compile(block, str(page), "exec", dont_inherit=True), names)


def test_there_are_pages_or_no_checkout():
    assert PAGES or not DOCS.exists()


def test_the_method_of_the_text_finds_its_model(tmp_path, capsys):
    pytest.importorskip("cryptography")
    page = DOCS / "new_method.md"
    if not page.exists():
        pytest.skip("docs are not beside the tests")
    names = {"__name__": "new_method"}
    for block in blocks(page):
        exec(compile(block, str(page), "exec", dont_inherit=True), names)
    *_, residual, masked = capsys.readouterr().out.split("\n")[:-1]
    assert float(residual) < 1e-4
    assert 0 < float(masked) < 1e-6
