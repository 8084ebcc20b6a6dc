"""Which sites take part, under which numbers, and where they are reached."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .contract import Algorithm, Key, Refused


@dataclass(slots=True)
class Member:
    """A site that takes part.

    name     : as it calls itself
    clients  : (K,) names of its clients
    hello    : what it told of its rows
    address  : where it is reached, None when nowhere
    first    : number of its first client
    accepted : number of the last message whose answer counted, 0 before the first
    safe     : the same as of the last checkpoint
    pending  : number of a message that it has not answered yet, or 0
    frozen   : it takes no further part
    """

    name: str
    clients: np.ndarray
    hello: dict[str, Any] = field(default_factory=dict)
    address: int | None = None
    first: int = 0
    accepted: int = 0
    safe: int = 0
    pending: int = 0
    frozen: bool = False

    @property
    def n_clients(self) -> int:
        return len(self.clients)


def natural(name: str) -> tuple:
    """Sort numbers as numbers, before words."""
    return (0, int(name), name) if name.isdecimal() else (1, 0, name)


def number_clients(members: list[Member]) -> list[Member]:
    """Put sites in the order of their names and number their clients through."""
    members = sorted(members, key=lambda member: natural(member.name))
    first = 0
    for member in members:
        member.first = first
        first += member.n_clients
    return members


def agree(
    algorithm: Algorithm, members: list[Member], key: Key
) -> tuple[list[Member], dict[str, str]]:
    """Find the most sites that agree; say why the others do not."""
    best: list[Member] = []
    refused: dict[str, str] = {}
    for leader in members:
        kept, why = _agree_with(algorithm, leader, members, key)
        if len(kept) > len(best):
            best, refused = kept, why
        if not why:
            break
    return best, refused


def _agree_with(algorithm, leader: Member, members: list[Member], key: Key):
    kept = [leader, *(member for member in members if member is not leader)]
    why: dict[str, str] = {}
    while True:
        try:
            algorithm.start([member.hello for member in kept], key)
        except Refused as refusal:
            ends = np.cumsum([member.n_clients for member in kept])
            place = int(np.searchsorted(ends, refusal.client, side="right"))
            why[kept.pop(place).name] = refusal.reason
            continue
        return sorted(kept, key=lambda member: member.first), why
