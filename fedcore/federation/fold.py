"""Replies are added block by block, in an order that sizes alone decide."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from .contract import Choose, Cohort, Each, Kind, Sum
from .message import up_size

N_BLOCKS = 100  # enough for any number of threads, few enough that sums stay cheap


@lru_cache(maxsize=64)
def dense_size(kinds: tuple[tuple[str, Kind], ...]) -> int:
    """Give the bytes of a reply whose kinds are all dense."""
    return up_size(dict(kinds))


def block_bounds(cohort: Cohort) -> np.ndarray:
    """First client of each block, and the end: equal work, decided by sizes alone."""
    K = cohort.n_clients
    rows = np.diff(cohort.offsets)
    work = np.cumsum(rows + 1.0)
    cuts = np.searchsorted(work, work[-1] * np.arange(1, N_BLOCKS) / N_BLOCKS)
    return np.unique(np.concatenate([[0], cuts + 1, [K]]).clip(0, K))


class Fold:
    """Adds the replies of blocks as they come in their order."""

    def __init__(
        self, kinds: Mapping[str, Kind], lanes: list[np.ndarray], n_clients: int
    ):
        self._kinds = kinds
        self._counts: dict[str, list[np.ndarray]] = {}
        self._total: dict[str, Any] = {}
        self.who = np.zeros(n_clients, bool)
        self.n_active = 0
        for name, kind in kinds.items():
            if isinstance(kind, Each):
                self._total[name] = np.full((n_clients, *kind.shape), np.nan)
            elif isinstance(kind, Choose):
                self._total[name] = None
            elif kind.sparse:
                self._counts[name] = []
                self._total[name] = np.zeros(kind.shape)

    def add(self, active: np.ndarray, reply: dict) -> None:
        self.who[active] = True
        self.n_active += len(active)
        for name, kind in self._kinds.items():
            part = reply[name]
            if isinstance(kind, Each):
                self._total[name][active] = part
            elif isinstance(kind, Choose):
                best = self._total[name]
                if best is None or (part.key, part.client) < (best.key, best.client):
                    self._total[name] = part
            elif kind.sparse:
                self._counts[name].append(part.counts)
                if part.index is None:
                    self._total[name] += part.rows
                else:
                    self._total[name][part.index] += part.rows
            elif name in self._total:
                self._total[name] += part
            else:
                self._total[name] = np.array(part)

    def result(self) -> dict:
        for name, kind in self._kinds.items():
            if isinstance(kind, Sum) and name not in self._total:
                self._total[name] = np.zeros(kind.shape)
        return self._total

    def bytes_up(self) -> int:
        if not self._counts:
            return self.n_active * dense_size(tuple(self._kinds.items()))
        counts = {name: np.concatenate(c) for name, c in self._counts.items() if c}
        return int(np.sum(up_size(self._kinds, counts))) if counts else 0
