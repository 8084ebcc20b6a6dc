"""How far a run has come: all that the loop knows between two exchanges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .contract import State
from .ledger import Ledger


@dataclass(slots=True)
class Progress:
    """A run between two exchanges.

    seed      : names every random number of the run
    exchange  : number of the last one
    state     : the coordinator's
    agreement : what the participants joined with
    """

    seed: int
    exchange: int
    state: State
    agreement: dict[str, Any]
    ledger: Ledger = field(default_factory=Ledger)

    def dump(self) -> dict[str, Any]:
        """Give it as values that a checkpoint can hold."""
        return {
            "seed": self.seed,
            "exchange": self.exchange,
            "state": self.state,
            "agreement": self.agreement,
            "history": self.ledger.history(),
        }

    @classmethod
    def of(cls, kept: dict[str, Any]) -> Progress:
        """Go on from what `dump` gave."""
        return cls(
            kept["seed"],
            kept["exchange"],
            kept["state"],
            kept["agreement"],
            Ledger.of(kept["history"]),
        )
