"""The demo's part on adaptation says what it saw."""

import numpy as np
import pytest

from fedcore import demo_adaptation
from fedcore.demo_adaptation import AS_THEY_ARE, DICTIONARY, SCALED


def test_it_prints_three_accuracies(monkeypatch):
    monkeypatch.setattr(demo_adaptation, "N_ROUNDS", 3)
    lines = []
    found, model = demo_adaptation.run(seed=1, say=lines.append)
    assert model.n_rounds_ == 3
    for each in found.values():
        assert each.shape == (3,) and (each >= 0).all() and (each <= 1).all()
    text = "\n".join(lines)
    for each in found.values():
        assert f"{100 * each.mean():.1f} %" in text
    assert "3 rounds" in text and "Seen: " in text


@pytest.mark.parametrize(
    ("own", "said"),
    [([0.9, 0.7], "adapts best, for 1 of 2"), ([0.9, 0.3], "did not help here; for 1")],
)
def test_its_verdict_follows_the_figures(own, said):
    found = {DICTIONARY: own, AS_THEY_ARE: [0.5, 0.8], SCALED: [0.6, 0.7]}
    found = {name: np.array(each) for name, each in found.items()}
    assert said in demo_adaptation.verdict(found)
