"""The demo's part on groups, and its last table."""

from dataclasses import replace

import numpy as np
import pytest

from fedcore import demo_graph, demo_summary
from fedcore.demo_graph import TOPOLOGIES, Line


def test_half_of_the_clients_hold_turned_digits():
    X, y, clients = demo_graph.rows(0)
    assert X.shape == (1797, 64) and len(y) == len(clients) == 1797
    # Upright digits leave the left and right columns empty, turned ones the rows.
    edge = X.reshape(-1, 8, 8)[:, :, 0].mean(axis=1)
    turned = clients < demo_graph.N_TURNED
    assert edge[turned].mean() > 5 * edge[~turned].mean()


def test_it_prints_a_line_for_each_topology(monkeypatch):
    monkeypatch.setattr(demo_graph, "N_ROUNDS", 3)
    lines = []
    found = demo_graph.run(say=lines.append)
    assert list(found) == list(TOPOLOGIES)
    text = "\n".join(lines)
    for line in found.values():
        assert line.rounds == 3 and f"error {line.error:4.1f} %" in text
    assert found["full"].n_groups == 1 and found["full"].n_right == 0
    assert found["none"].n_groups == found["none"].n_right == demo_graph.N_CLIENTS


@pytest.mark.parametrize(
    ("error", "said"), [(1.0, "they err least"), (3.0, "did not help")]
)
def test_its_verdict_follows_the_figures(error, said):
    other = Line(2.0, 1, 0, 5, 1.0)
    found = dict.fromkeys(TOPOLOGIES, other)
    found["dynamic"] = replace(other, error=error, n_groups=2, n_right=12)
    assert said in demo_graph.verdict(found)


def test_the_last_table_goes_to_the_terminal_and_to_a_file(tmp_path):
    row = demo_summary.Row("FedX", "things", 1.25, 2.0, np.nan, 7, 1234.5)
    *_, head, line = demo_summary.table([row])
    assert len(head) == len(line)
    assert line.split() == ["FedX", "things", "1.2", "2.0", "-", "7", "1234"]
    path = tmp_path / "demo.html"
    demo_summary.write_report(path, [row])
    text = path.read_text(encoding="utf-8")
    assert "<h1>fedcore demo</h1>" in text and "<td>FedX</td>" in text
    assert "claims" not in text
