"""What a method and an engine say to each other; neither knows more of the other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import numpy as np

Key: TypeAlias = tuple[int, int]
"""Names the random numbers of one exchange: (seed, number of the exchange)."""

State: TypeAlias = dict[str, Any]
"""The coordinator's state: a flat dict of arrays and numbers, so it can be saved.

A method never changes an array that a state holds, so an older state stays good.

The loop reads `done` (stop) and `round` (rounds begun, from 1): exchanges that share
a round share a line of `history_`.
"""


@dataclass(frozen=True, slots=True)
class Sum:
    """A reply of fixed shape that is added over the answering clients.

    A `sparse` one is sent as `Entries` along axis 0: only the rows that are not zero.
    """

    shape: tuple[int, ...]
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Each:
    """A reply of fixed shape that is kept apart, one row a client."""

    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Choose:
    """A reply of fixed shape of which one stays: that of the smallest (key, client)."""

    shape: tuple[int, ...]


Kind: TypeAlias = Sum | Each | Choose


@dataclass(frozen=True, slots=True)
class Entries:
    """What `update` returns for a sparse `Sum`: the sum over the active clients.

    index  : (m,) distinct places along axis 0; None: all of them
    rows   : (m, ...) the sum at those places
    counts : (n_active,) entries that each client sends by itself, for the ledger
    """

    index: np.ndarray | None
    rows: np.ndarray
    counts: np.ndarray


@dataclass(frozen=True, slots=True)
class Chosen:
    """What `update` returns for a `Choose`; `client` counts over the federation."""

    key: float
    client: int
    value: np.ndarray


@dataclass(frozen=True, slots=True)
class Request:
    """One exchange.

    all      : goes to every asked client
    each     : name -> (K, ...) array, of which a client gets only its own row; or
               (table, index): client k gets table[index[k]]
    reply    : name -> kind of what comes back
    clients  : ask only these (None: whoever the engine samples)
    lanes    : (n_lanes + 1,) offsets into `clients`: the clients of a lane work one
               after another, in this order and in one `update` call, lanes side by
               side. None: the engine's own fixed blocks
    everyone : no sampling and no deadline in this exchange
    evaluate : clients score held-out rows by `evaluate`, and do not work; all asked
               clients of a cohort in one call
    passes   : passes of a client over its rows that the work takes, as far as is known:
               what it costs in virtual time
    """

    all: Mapping[str, Any]
    reply: Mapping[str, Kind]
    each: Mapping[str, Any] = field(default_factory=dict)
    clients: np.ndarray | None = None
    lanes: np.ndarray | None = None
    everyone: bool = False
    evaluate: bool = False
    passes: float = 1.0

    def content(self, clients: np.ndarray | slice) -> dict[str, Any]:
        """Give what these clients get: `all`, and their own rows of `each`."""
        content = dict(self.all)
        for name, rows in self.each.items():
            if isinstance(rows, tuple):
                content[name] = rows[0][rows[1][clients]]
            else:
                content[name] = rows[clients]
        return content


@dataclass(frozen=True, slots=True)
class Cohort:
    """The rows that one participant holds, its clients' rows one after another.

    X             : (n, d) C-contiguous array or CSR with int32 indices
    y             : (n,) float64 targets, or int32 codes into `classes`
    sample_weight : (n,) float64, or None for all ones
    offsets       : (K + 1,) int64; client k owns rows offsets[k]:offsets[k + 1]
    classes       : sorted distinct labels of these rows, None in regression
    first         : number of the first client in the federation
    warm          : (C, n) what an earlier fit left with these rows, or None
    held_out      : rows of the same clients that only `evaluate` reads, or None
    """

    X: Any
    y: np.ndarray
    sample_weight: np.ndarray | None
    offsets: np.ndarray
    classes: np.ndarray | None = None
    first: int = 0
    warm: np.ndarray | None = None
    held_out: Cohort | None = None

    @property
    def n_clients(self) -> int:
        return len(self.offsets) - 1


class Refused(ValueError):
    """A client's hello disagrees with the others'; `client` is its number."""

    def __init__(self, client: int, reason: str):
        super().__init__(f"client {client} refused: {reason}")
        self.client, self.reason = client, reason


class TooFewClients(RuntimeError):
    """Fewer clients answered than a run is to go on with."""


class Algorithm(Protocol):
    """A method: the paper, without I/O, threads or clock.

    It is a frozen dataclass of numbers and strings. `active` are the clients of the
    cohort that work in this call, in this order; several calls may run at the same
    time on one cohort state, never with a client in common.
    """

    # the coordinator
    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on what the clients must share; raise `Refused` where they differ."""

    def broadcast(self, state: State, key: Key) -> Request:
        """Say what the next exchange asks; changes nothing."""

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Fold the replies of the clients in the mask `who` into the next state."""

    def close(self, state: State) -> Request:
        """Say the last message, which no one answers."""

    def report(self, state: State) -> dict[str, float]:
        """Figures of the round that just ended, for `history_`."""

    def findings(self, state: State) -> State:
        """Give what of the last state every site may know; only if deployed."""

    # a participant
    def hello(self, cohort: Cohort) -> dict:
        """Describe the cohort: `n_rows` (K,), and what `start` must agree on."""

    def join(self, cohort: Cohort, agreement: dict) -> Any:
        """Allocate the clients' state."""

    def dump(self, cohort: Cohort, cs: Any) -> dict[str, np.ndarray]:
        """Give all that `update` may have changed, as arrays that own their memory."""

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> Any:
        """Join, then put back what `dump` gave.

        Later updates have the same bits as if there had been no interruption.
        """

    def update(
        self, cohort: Cohort, cs: Any, message: dict, active: np.ndarray, key: Key
    ) -> dict:
        """Do the local work of the active clients in place; return their replies."""

    def evaluate(
        self, cohort: Cohort, cs: Any, message: dict, active: np.ndarray
    ) -> dict:
        """Score `cohort.held_out`; only for requests that say `evaluate`."""

    def personal(self, cohort: Cohort, cs: Any, message: dict) -> dict:
        """Give the personal parts; on a real site they never leave."""
