"""Answers of absurd size: the rule, and the memory that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .contract import Entries, Kind, Sum

MOST = 1000.0  # times the others' median
FEWEST = 3  # answers from which there is a median of others to speak of


class Norms:
    """Refuse a sum whose norm is more than `MOST` times the median of the others'.

    What shrinks as a run converges may be next to nothing at all sites but one: so the
    largest such median that the run has seen, by name of the sum, is what counts.
    """

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def absurd(
        self, answers: Mapping[str, Mapping[str, Any]], kinds: Mapping[str, Kind]
    ) -> dict[str, str]:
        """Say whose answer is absurd, and why."""
        why: dict[str, str] = {}
        if len(answers) < FEWEST:
            return why
        for name, kind in kinds.items():
            if not isinstance(kind, Sum):
                continue
            norms = {site: _norm(reply[name]) for site, reply in answers.items()}
            for site, norm in norms.items():
                rest = float(np.median([v for k, v in norms.items() if k != site]))
                most = MOST * max(rest, self.largest.get(name, 0.0))
                if norm > most > 0:
                    why[site] = (
                        f"its {name} has norm {norm:.3g}, more than {MOST:g} times "
                        f"{most / MOST:.3g}, the others' median"
                    )
            sane = [norm for site, norm in norms.items() if site not in why]
            middle = float(np.median(sane)) if sane else 0.0
            self.largest[name] = max(self.largest.get(name, 0.0), middle)
        return why


def _norm(value: Any) -> float:
    rows = value.rows if isinstance(value, Entries) else np.asarray(value)
    return float(np.linalg.norm(rows))
