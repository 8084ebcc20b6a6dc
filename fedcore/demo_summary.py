"""The demo's last table: a row for each method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

import numpy as np

COLUMNS = ("method", "data", "error %", "one for all %", "alone %", "rounds", "kB up")
HEAD = f"{COLUMNS[0]:14}  {COLUMNS[1]:24}" + "".join(f"  {c:>13}" for c in COLUMNS[2:])


@dataclass(frozen=True, slots=True)
class Row:
    """Test errors in per cent; NaN where there is no such model.

    error : of the method
    shared : of one model for all clients, rows pooled if need be
    alone : of each client by itself
    kb_up : what one client sent in all rounds
    """

    method: str
    data: str
    error: float
    shared: float
    alone: float
    rounds: float
    kb_up: float


def rows(svm, sparse, adaptation, graph) -> list[Row]:
    """Take the rows out of what the demo's parts have found."""
    one, own, both, _ = (
        np.mean([(a.error, a.rounds, a.kb_up) for a in arm], axis=0)
        for arm in zip(*svm, strict=True)
    )
    found = [
        Row("FedMTLSVC", "exercises of people", both[0], one[0], own[0], *both[1:])
    ]
    for name, splits in sparse.items():
        best, dense = (
            np.mean([(s[m].error, s[m].rounds, s[m].kb_up) for s in splits], axis=0)
            for m in ("FedBestSubset", "dense, pooled")
        )
        found.append(Row("FedBestSubset", name, best[0], dense[0], np.nan, *best[1:]))
    accuracy, model = adaptation
    wrong = {name: 100 * (1 - each.mean()) for name, each in accuracy.items()}
    sent = model.history_["bytes_up"].sum() / len(model.clients_) / 1e3
    found.append(
        Row(
            "FedDaDiL",
            "people without labels",
            wrong["dictionary"],
            wrong["scaled"],
            np.nan,
            model.n_rounds_,
            sent,
        )
    )
    dynamic, full, none = (graph[name] for name in ("dynamic", "full", "none"))
    found.append(
        Row(
            "FedGraphMTL",
            "digits, half turned",
            dynamic.error,
            full.error,
            none.error,
            dynamic.rounds,
            dynamic.kb_up,
        )
    )
    return found


def table(found: Sequence[Row]) -> Iterator[str]:
    """Write the rows."""
    yield ""
    yield HEAD
    for row in found:
        method, data, *figures, n_rounds, sent = astuple(row)
        cells = ["-" if np.isnan(x) else f"{x:.1f}" for x in figures]
        cells += [f"{n_rounds:.0f}", f"{sent:.0f}"]
        yield f"{method:14}  {data:24}" + "".join(f"  {cell:>13}" for cell in cells)


def write_report(path: Path, found: Sequence[Row]) -> None:
    """Write the table to an HTML file."""
    from .reproduce.chapter import Chapter, Table
    from .reproduce.report import write_report as write

    cells = [tuple(astuple(row)) for row in found]
    note = (
        "Errors on rows that did not train. One for all: a single model, or encoder, "
        "for all clients, and for FedBestSubset and FedDaDiL a classifier of the "
        "pooled rows. kB up: of one client, in all rounds."
    )
    chapter = Chapter(
        title="Four methods on bundled data",
        paper="Printed by `fedcore demo`.",
        claims=(),
        tables=[Table("Test errors", COLUMNS, cells, note)],
    )
    write(path, [chapter], title="fedcore demo", quick=False)
