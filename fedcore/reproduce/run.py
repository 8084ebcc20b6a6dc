"""Measure the parts in their order, and write the report after each."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

from .chapter import Chapter, Options
from .kept import KeptMeasurements

# Name on the command line -> module, which has `measurements` and `chapter`.
PARTS = {
    "svm": "multi_task_svm",
    "iht": "sparse_learning",
    "dadil": "adaptation",
    "graph": "client_graph",
    "rivals": "rivals",
}
NEEDS = ("matplotlib", "tqdm")


def reproduce(
    parts: Sequence[str],
    *,
    quick: bool = False,
    data: Path | None = None,
    out: Path,
    say: Callable[[str], None] = print,
) -> Path:
    """Measure what the papers claim, and write a report.

    Parameters
    ----------
    parts : sequence of str
        Of `PARTS`.
    quick : bool, default=False
        Fewer seeds and smaller sizes: minutes instead of an hour.
    data : Path, optional
        Folder with sets that the package does not ship; what is missing there is
        named in the report.
    out : Path
        Folder for `report.html` and the measurements, `quick.json` or `full.json`;
        what these hold already is not measured again.
    say : callable, default=print
        Takes a line for each claim, and the report's place.

    Returns
    -------
    Path
        Of the report.

    Raises
    ------
    ValueError
        If a part is unknown, `data` is no folder, or the measurements in `out` were
        made by another version or with other data.
    ImportError
        If matplotlib or tqdm is not installed.
    """
    options = _checked(parts, quick, data)
    out.mkdir(parents=True, exist_ok=True)
    kept = KeptMeasurements(
        out / ("quick.json" if quick else "full.json"),
        {"data": None if data is None else str(data.resolve())},
    )
    from .report import write_report  # draws, so only after the check

    place = out / "report.html"
    chapters: list[Chapter] = []
    for name in parts:
        chapters.append(_measured(name, options, kept))
        write_report(place, chapters, quick=quick)
        for claim in chapters[-1].claims:
            say(f"{name:7} {claim.verdict}: {claim.text} ({claim.measured})")
    say(f"the report is {place}")
    return place


def _checked(parts: Sequence[str], quick: bool, data: Path | None) -> Options:
    unknown = [name for name in parts if name not in PARTS]
    if unknown or not parts:
        raise ValueError(
            f"parts are {list(parts)}, expected some of {', '.join(PARTS)}"
        )
    if data is not None and not data.is_dir():
        raise ValueError(f"data is {data}, expected a folder")
    missing = [name for name in NEEDS if find_spec(name) is None]
    if missing:
        raise ImportError(
            f"the report needs {' and '.join(missing)}: "
            f"pip install 'fedcore-learn[reproduce]'"
        )
    return Options(quick, data)


def _measured(name: str, options: Options, kept: KeptMeasurements) -> Chapter:
    from tqdm import tqdm

    part = import_module(f".{PARTS[name]}", __package__)
    steps = part.measurements(options)
    for step, what in tqdm(steps.items(), desc=name, unit="step"):
        if f"{name}/{step}" not in kept:
            with warnings.catch_warnings():
                # Arms that stop short say so in their figures.
                warnings.simplefilter("ignore", ConvergenceWarning)
                kept.measure(f"{name}/{step}", what)
    return part.chapter({step: kept[f"{name}/{step}"] for step in steps}, options)
