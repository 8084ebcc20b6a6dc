"""The report: one HTML file with nothing outside it."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from html import escape
from numbers import Real
from pathlib import Path
from typing import Any

from .._facts import facts
from .chapter import FAILS, HOLDS, UNKNOWN, Chapter, Claim, Figure, Table

STYLE = """
body { font: 16px/1.5 sans-serif; max-width: 62em; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0 }
caption { text-align: left; font-weight: bold }
th, td { padding: .25em .7em; border-bottom: 1px solid #ccc; text-align: left }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.verdict { font-weight: bold } .holds { color: #060 } .fails { color: #a00 }
figure { margin: 1em 0 } figcaption, .note { color: #444 }
svg { max-width: 100%; height: auto }
"""
CLASSES = {HOLDS: "holds", FAILS: "fails", UNKNOWN: "unknown"}


def write_report(
    path: Path,
    chapters: Sequence[Chapter],
    *,
    quick: bool,
    title: str = "What the papers claim, and what we measure",
) -> None:
    """Write the chapters, in their order, to one file; its folder is there."""
    body = "\n".join([*_opening(chapters, quick, title), *map(_chapter, chapters)])
    text = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body>\n{body}\n</body></html>\n"
    )
    beside = path.with_suffix(".part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)


def _opening(chapters: Sequence[Chapter], quick: bool, title: str) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    if quick:
        yield (
            "<p>A quick run: few seeds, small sizes. Without <code>--quick</code> "
            "the figures are surer.</p>"
        )
    verdicts = [claim.verdict for chapter in chapters for claim in chapter.claims]
    if verdicts:
        yield (
            f"<p>{len(verdicts)} claims: {verdicts.count(HOLDS)} hold, "
            f"{verdicts.count(FAILS)} do not, "
            f"{len(verdicts) - sum(map(verdicts.count, CLASSES))} hold on a condition, "
            f"{verdicts.count(UNKNOWN)} were not measured.</p>"
        )
    known = "; ".join(f"{name} {value}" for name, value in facts())
    yield f'<p class="note">{escape(known)}</p>'


def _chapter(chapter: Chapter) -> str:
    parts = [f"<h2>{escape(chapter.title)}</h2>", f"<p>{escape(chapter.paper)}</p>"]
    if chapter.claims:
        parts.append(_claims(chapter.claims))
    parts += map(_table, chapter.tables)
    parts += map(_figure, chapter.figures)
    if chapter.missing:
        items = "".join(
            f"<li>{escape(found.name)}: {escape(found.how)}</li>"
            for found in chapter.missing
        )
        parts.append(f"<p>Published sets that were not found:</p><ul>{items}</ul>")
    return "\n".join(parts)


def _claims(claims: Sequence[Claim]) -> str:
    head = _row("th", ["claim", "published", "measured", "ratio", "verdict"])
    rows = []
    for claim in claims:
        style = f"verdict {CLASSES.get(claim.verdict, 'partly')}"
        cells = [claim.text, claim.published, claim.measured]
        ratio = "" if claim.ratio is None else f"{claim.ratio:.2f}"
        rows.append(
            f"<tr>{''.join(map(_cell, cells))}"
            f'<td class="number">{ratio}</td>'
            f'<td class="{style}">{escape(claim.verdict)}</td></tr>'
        )
    return f"<table>{head}{''.join(rows)}</table>"


def _table(table: Table) -> str:
    head = _row("th", table.columns)
    rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f"<table><caption>{escape(table.title)}</caption>{head}{rows}</table>{note}"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"


def _cell(value: Any) -> str:
    if isinstance(value, Real):
        return f'<td class="number">{_number(float(value))}</td>'
    return f"<td>{escape(str(value))}</td>"


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "never" if value == math.inf else "-"
    return f"{value:.0f}" if value == round(value) else f"{value:.3g}"


def _figure(figure: Figure) -> str:
    from matplotlib import rc_context
    from matplotlib.figure import Figure as Canvas

    # Not pyplot: it would choose a backend, and keep the figure.
    canvas = Canvas(figsize=(7, 4), layout="constrained")
    figure.draw(canvas.subplots())
    text = io.StringIO()
    # No date, and names by content: the same figures make the same report.
    with rc_context({"svg.hashsalt": "fedcore", "svg.fonttype": "none"}):
        canvas.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    return (
        f"<figure>{svg[svg.index('<svg') :]}"
        f"<figcaption>{escape(figure.caption)}</figcaption></figure>"
    )
