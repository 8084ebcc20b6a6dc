"""Who answered when in a deployed run, so that one machine can repeat it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

_FORM = "fedcore-record-1"


@dataclass(slots=True)
class Record:
    """A deployed run without its numbers.

    seed     : names every random number of the run
    sites    : names, in the order of their clients' numbers
    clients  : the clients' names, one list a site
    answered : for each exchange the places in `sites` of those whose answer counted
    """

    seed: int
    sites: list[str]
    clients: list[list[Any]]
    answered: list[list[int]] = field(default_factory=list)

    @property
    def bounds(self) -> np.ndarray:
        """First client of each site, and the end."""
        return np.cumsum([0, *map(len, self.clients)])

    def save(self, path: Any) -> None:
        """Write it as JSON."""
        content = {name: getattr(self, name) for name in self.__slots__}
        text = json.dumps({"form": _FORM} | content, default=_plain)
        Path(path).write_text(text + "\n", "utf-8")

    @classmethod
    def load(cls, path: Any) -> Record:
        """Read what `save` wrote.

        Raises
        ------
        ValueError
            If the file holds anything else.
        """
        try:
            content = json.loads(Path(path).read_text("utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is no record of a run: {error}") from None
        if not isinstance(content, dict) or content.pop("form", None) != _FORM:
            raise ValueError(f"{path} is no record of a run of the form {_FORM}")
        try:
            record = cls(**content)
            whole = (
                isinstance(record.seed, int)
                and all(isinstance(name, str) for name in record.sites)
                and len(record.clients) == len(record.sites)
                and all(isinstance(names, list) for names in record.clients)
                and all(isinstance(place, int) for a in record.answered for place in a)
            )
        except TypeError:
            whole = False
        if not whole:
            raise ValueError(f"{path} does not hold what a record of a run needs")
        return record


def _plain(name: Any) -> Any:
    """Write NumPy's numbers as Python's, and what JSON does not know as its repr."""
    return name.item() if isinstance(name, np.generic) else repr(name)
