"""What a part of the report holds: claims, tables, figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOLDS, FAILS, UNKNOWN = "holds", "does not hold", "not measured"


def only_if(condition: str) -> str:
    """Word the verdict on a claim that needs more than the paper says."""
    return f"holds only if {condition}"


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    quick : fewer seeds and sizes
    data : folder of `.npz` sets, None for what the package ships alone
    """

    quick: bool = False
    data: Path | None = None

    def file(self, name: str) -> Path | None:
        """Find a set of the user's; None if it is not there."""
        path = None if self.data is None else self.data / name
        return path if path is not None and path.exists() else None


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a paper beside what was measured.

    ratio : measured over published, None where the claim has no number
    """

    text: str
    published: str
    measured: str
    verdict: str
    ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """Cells are numbers or text; `note` says how they came about."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawing on one matplotlib Axes, and the words under it."""

    caption: str
    draw: Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class MissingSet:
    """A published set that was not found, and how a user gets it."""

    name: str
    how: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """One part of the report."""

    title: str
    paper: str
    claims: Sequence[Claim]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    missing: Sequence[MissingSet] = field(default=())
