"""What went wrong at the sites, and when."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any

import numpy as np

log = logging.getLogger("fedcore")

FAULTS = ("silent", "failed", "late", "twice", "refused", "frozen")


@dataclass(slots=True)
class Faults:
    """The faults of a run, in the order in which they were seen.

    round  : of the coordinator when it was seen; 0 at the start
    site   : its name, or the address of one that has none
    fault  : "silent", no answer in time; "failed", the transport says that none will
             come; "late", an answer to an earlier message; "twice", one too many;
             "refused", an answer or a site that is not as agreed; "frozen", a site that
             takes no further part
    reason : what the log said
    """

    round: list[int] = field(default_factory=list)
    site: list[str] = field(default_factory=list)
    fault: list[str] = field(default_factory=list)
    reason: list[str] = field(default_factory=list)

    def note(self, round: int, site: Any, fault: str, reason: str) -> None:
        """Write down one fault, here and in the log."""
        self.round.append(round)
        self.site.append(str(site))
        self.fault.append(fault)
        self.reason.append(reason)
        log.warning("round %d: site %s %s: %s", round, site, fault, reason)

    def table(self) -> dict[str, np.ndarray]:
        """Give columns of equal length, as pandas.DataFrame takes them."""
        columns = {n: np.array(getattr(self, n), object) for n in self.__slots__}
        return columns | {"round": np.array(self.round, np.int64)}

    def dump(self) -> dict[str, Any]:
        """Give them as values that a checkpoint can hold."""
        return {name: list(getattr(self, name)) for name in self.__slots__}
