"""How bytes get to the sites and back; the adapters fill this in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The transport knows that no answer will come, and why."""

    reason: str


class Transport(Protocol):
    """Carries messages; an address stands for a process and may change."""

    def addresses(self) -> Iterable[int]:
        """Name those that can be reached now."""

    def send(self, messages: Mapping[int, bytes], number: int, seconds: float) -> None:
        """Send a message to each address; answers are of use for so many seconds."""

    def receive(self, seconds: float) -> Iterable[tuple[int, bytes | NoAnswer]]:
        """Give what has come, or comes within so many seconds; nothing otherwise."""
