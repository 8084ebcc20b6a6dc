"""The virtual clock of a run: who answers in time, and what time it is then."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from .contract import Cohort, Key, Request
from .timing import Timing
from .trace import ACCEPTED, DISCARDED, DROPPED, INTERRUPTED, Trace

HARDLY = 0.05  # a client whose replies count in less than this share is starved,
FEW_CHANCES = 10  # unless it was asked less often: that may be chance


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of one exchange.

    accepted  : (K,) mask of the clients whose replies count
    in_vain   : clients whose replies were sent and do not count
    n_late    : replies after the deadline, or interrupted before they were sent
    n_dropped : replies lost on the way
    """

    accepted: np.ndarray
    in_vain: np.ndarray
    n_late: int
    n_dropped: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What was seen of the clients in exchanges that have a deadline.

    asked, accepted : (K,) how often a client was asked, and its reply counted
    trace           : every message, or None
    """

    asked: np.ndarray
    accepted: np.ndarray
    trace: Trace | None

    @property
    def starved(self) -> np.ndarray:
        """Numbers of the clients whose replies never or hardly ever counted."""
        hardly = self.accepted < HARDLY * self.asked
        return np.flatnonzero(hardly & (self.asked >= FEW_CHANCES))


class Clock:
    """Time, counts and messages of one run."""

    def __init__(self, timing: Timing, cohort: Cohort):
        K = cohort.n_clients
        self._timing = timing
        self._sizes = np.diff(cohort.offsets)
        self._d = cohort.X.shape[1]
        self._sparse = sparse.issparse(cohort.X)
        if self._sparse:
            self._entries = np.diff(cohort.X.indptr[cohort.offsets].astype(np.int64))
        else:
            self._entries = self._sizes * self._d
        self._latency = _one_each("latency", timing.latency, K)
        self._bandwidth = _one_each("bandwidth", timing.bandwidth, K)
        self._asked, self._accepted = np.zeros(K, np.int64), np.zeros(K, np.int64)
        self._parts: list[tuple] = []
        self.time = 0.0

    @property
    def traffic(self) -> Traffic:
        trace = Trace.of(self._parts) if self._timing.trace else None
        return Traffic(self._asked, self._accepted, trace)

    def dump(self) -> dict[str, Any]:
        """Give what time and traffic have made of it."""
        trace = Trace.of(self._parts)
        return {
            "time": self.time,
            "asked": self._asked.copy(),
            "accepted": self._accepted.copy(),
            "trace": tuple(getattr(trace, field.name) for field in fields(trace)),
        }

    def restore(self, kept: dict[str, Any]) -> None:
        """Go on from what `dump` gave."""
        self.time = kept["time"]
        self._asked, self._accepted = kept["asked"], kept["accepted"]
        self._parts = [kept["trace"]] if self._timing.trace else []

    def exchange(
        self, request: Request, lanes: list[np.ndarray], key: Key, down, up
    ) -> Verdict:
        """Let the time of one exchange pass.

        Parameters
        ----------
        request : Request
        lanes : list of ndarray
            The clients that are asked, as they share the work.
        key : (int, int)
        down, up : int, or (K,) array of int
            Bytes of the message to a client and of its reply.
        """
        timing, asked = self._timing, np.concatenate(lanes)
        down, up = (
            np.broadcast_to(n, self._sizes.shape) / self._bandwidth + self._latency
            for n in (down, up)
        )
        computed = down + timing.seconds(
            self._sizes,
            self._entries,
            self._d,
            request.passes,
            key,
            sparse=self._sparse,
        )
        losses = timing.losses(len(self._sizes), key)[asked]
        down, computed = down[asked], computed[asked]
        arrived = computed + up[asked]
        sent = np.full(len(asked), self.time)
        outcome = np.full(len(asked), ACCEPTED, np.int8)
        if request.everyone:
            again = losses * arrived
            computed, arrived = computed + again, arrived + again
            duration = arrived.max()
        else:
            wait, lost = timing.wait_at(key[1]), losses > 0
            outcome[lost] = DROPPED
            late = arrived > wait
            interrupted = computed > wait + timing.sum_time + down
            outcome[late] = np.where(interrupted, INTERRUPTED, DISCARDED)[late]
            counts = outcome == ACCEPTED
            if request.lanes is not None:
                # The lane goes on at the deadline: late work is broken off.
                outcome[late] = INTERRUPTED
                spent = np.where(counts, arrived, wait)
                ends = np.cumsum([0, *map(len, lanes)])
                passed = np.cumsum(spent)
                for a, b in pairwise(ends):
                    sent[a:b] += passed[a:b] - spent[a:b]
                    sent[a:b] -= passed[a - 1] if a else 0.0
                duration = (sent + spent).max() - self.time
            else:
                duration = arrived.max() if counts.all() else wait
            self._asked[asked] += 1
            self._accepted[asked[counts]] += 1
        if timing.trace:
            broken = outcome == INTERRUPTED
            never = broken | (outcome == DROPPED)
            self._parts.append(
                (
                    np.full(len(asked), key[1], np.int32),
                    asked,
                    sent,
                    np.where(broken, np.nan, sent + computed),
                    np.where(never, np.nan, sent + arrived),
                    outcome,
                )
            )
        self.time += duration + timing.sum_time
        accepted = np.zeros(len(self._sizes), bool)
        accepted[asked[outcome == ACCEPTED]] = True
        in_vain = (outcome == DISCARDED) | (outcome == DROPPED)
        n_dropped = int(np.count_nonzero(outcome == DROPPED))
        n_late = len(asked) - int(np.count_nonzero(accepted)) - n_dropped
        return Verdict(accepted, asked[in_vain], n_late, n_dropped)


def _one_each(name: str, value, n_clients: int) -> np.ndarray:
    value = np.asarray(value, float)
    if value.ndim == 1 and len(value) != n_clients:
        raise ValueError(
            f"{name} has {len(value)} entries, the federation has {n_clients} clients"
        )
    return np.broadcast_to(value, n_clients)


def columns_used(cohort: Cohort) -> np.ndarray:
    """Count the columns in which each client has an entry: (K,)."""
    X = cohort.X
    if not sparse.issparse(X):
        return np.full(cohort.n_clients, X.shape[1])
    pattern = sparse.csr_array(
        (np.ones(len(X.indices), np.int8), X.indices, X.indptr[cohort.offsets]),
        shape=(cohort.n_clients, X.shape[1]),
        copy=True,  # it is sorted in place
    )
    pattern.sum_duplicates()
    return np.diff(pattern.indptr)
