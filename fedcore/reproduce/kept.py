"""Measurements in a file: what is there is not measured again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import __version__


class KeptMeasurements:
    """Finished measurements, written after each; a run that was cut short goes on.

    Parameters
    ----------
    path : Path
        A JSON file; made if it is not there.
    conditions : dict
        What else decides the figures; a file made under others is refused.

    Raises
    ------
    ValueError
        If the file is not such a file, or was made under other conditions.
    """

    def __init__(self, path: Path, conditions: dict[str, Any]) -> None:
        self._path = path
        self._conditions = {"fedcore": __version__, **conditions}
        self._found: dict[str, Any] = {}
        if path.exists():
            self._found = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            conditions, found = kept["conditions"], kept["found"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{self._path} does not hold measurements of `fedcore reproduce`: "
                f"take another --out, or remove it"
            ) from error
        if conditions != self._conditions:
            raise ValueError(
                f"{self._path} was measured with {conditions}, expected "
                f"{self._conditions}: take another --out, or remove it"
            )
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._found

    def __getitem__(self, name: str) -> Any:
        return self._found[name]

    def measure(self, name: str, what: Callable[[], Any]) -> None:
        """Measure, and keep the result in the file before the next begins."""
        # Through JSON at once: what a chapter is given does not depend on resuming.
        self._found[name] = json.loads(json.dumps(what()))
        beside = self._path.with_suffix(".part")
        with beside.open("w", encoding="utf-8") as file:
            json.dump({"conditions": self._conditions, "found": self._found}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)
