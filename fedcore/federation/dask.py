"""DaskEngine: the federation on a cluster of one owner; rows stay on their worker."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from numbers import Integral, Real
from time import monotonic
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_scalar
from threadpoolctl import threadpool_limits

from .check import check_reply
from .checkpoint import pack_state, unpack_state
from .contract import Algorithm, Cohort, Key, Request
from .fold import Fold
from .local import Exchange, LocalRun, check_sampling, number_asked
from .wire import plain_reply, read_reply

LOOK = 0.5  # seconds between looks at whether a silent worker is still there
GRACE = 10.0  # seconds in which the scheduler notices that a worker is gone


class DaskEngine:
    """Run a federation on the workers of a Dask cluster.

    Parameters
    ----------
    client : distributed.Client
        Its workers hold the rows, a run of neighbouring clients each.
    client_fraction : float, default=1.0
        As in `LocalEngine`.
    min_clients : int, default=1
        As in `LocalEngine`.
    every : int, default=10
        Exchanges from one copy of the clients' states to the next, from which a lost
        worker's clients go on elsewhere. The messages since are kept too.
    timeout : float, default=600.0
        Seconds to wait for a worker in one exchange.
    retries : int, default=3
        Workers that may be lost, one after another, in one exchange.

    Notes
    -----
    The bits are those of `LocalEngine`, also when workers are lost. Rules in which
    clients work one after another, across workers, are refused; `n_jobs` is not used.
    """

    def __init__(
        self,
        client: Any,
        *,
        client_fraction: float = 1.0,
        min_clients: int = 1,
        every: int = 10,
        timeout: float = 600.0,
        retries: int = 3,
    ):
        self.client = client
        self.client_fraction = client_fraction
        self.min_clients = min_clients
        self.every = every
        self.timeout = timeout
        self.retries = retries

    def __deepcopy__(self, memo: dict) -> DaskEngine:
        return self

    def __repr__(self) -> str:
        return f"DaskEngine(client_fraction={self.client_fraction})"

    @property
    def asks_everybody(self) -> bool:
        """Whether each round reaches every client."""
        return self.client_fraction == 1

    @property
    def hears_everybody(self) -> bool:
        """Whether each round brings the reply of every client."""
        return self.asks_everybody

    def open(
        self, algorithm: Algorithm, cohort: Cohort, seed: int, n_jobs: int
    ) -> DaskRun:
        """Begin a run; use the result as a context manager."""
        check_sampling(self)
        check_scalar(self.every, "every", Integral, min_val=1)
        check_scalar(self.retries, "retries", Integral, min_val=0)
        neither = {"min_val": 0, "include_boundaries": "neither"}
        check_scalar(self.timeout, "timeout", Real, **neither)
        if getattr(algorithm, "keep_dual", False):
            raise ValueError(
                "warm_start is True, expected False with DaskEngine: what it keeps of "
                "each row would have to leave the workers"
            )
        n_asked = number_asked(self, cohort.n_clients)
        return DaskRun(self, algorithm, cohort, seed, n_asked)


class Site:
    """The rows and states of some neighbouring clients, on a worker."""

    def __init__(self, algorithm: Algorithm, cohort: Cohort):
        self._limits = threadpool_limits(1, user_api="blas")
        self._algorithm, self._cohort, self._state = algorithm, cohort, None

    def join(self, agreement: bytes, kept: bytes | None) -> None:
        """Allocate, or go on from what `dump` gave."""
        agreed = unpack_state(agreement)
        if kept is None:
            self._state = self._algorithm.join(self._cohort, agreed)
        else:
            state = unpack_state(kept)
            self._state = self._algorithm.restore(self._cohort, agreed, state)

    def work(
        self, messages: list[bytes], lanes: list[np.ndarray], evaluate: bool, key: Key
    ) -> list[bytes]:
        """Do the work of each lane; give a reply a lane."""
        replies = []
        for data, active in zip(messages, lanes, strict=True):
            message, state = unpack_state(data), self._state
            if evaluate:
                reply = self._algorithm.evaluate(self._cohort, state, message, active)
            else:
                reply = self._algorithm.update(
                    self._cohort, state, message, active, key
                )
            replies.append(pack_state(plain_reply(reply)))
        return replies

    def dump(self) -> bytes:
        """Give all that the work has changed."""
        return pack_state(self._algorithm.dump(self._cohort, self._state))

    def personal(self, message: bytes) -> dict:
        """Give the clients' personal parts."""
        return self._algorithm.personal(
            self._cohort, self._state, unpack_state(message)
        )


@dataclass(eq=False)
class _Place:
    """What the coordinator knows of a site."""

    cohort: Cohort
    address: str = ""
    future: Any = None
    actor: Any = None
    kept: bytes | None = None


class _Lost(Exception):
    """The worker of a site is gone."""


class DaskRun(LocalRun):
    """One run of an algorithm over the workers of a cluster."""

    def __init__(self, engine: DaskEngine, algorithm, cohort, seed, n_asked):
        super().__init__(algorithm, cohort, seed, 1, n_asked)
        self._engine, self._client = engine, engine.client
        self._agreement = b""
        self._log: list[list[tuple]] = []  # what the sites did since they were dumped
        n_blocks = len(self._bounds) - 1
        n_sites = min(max(len(self._client.nthreads()), 1), n_blocks)
        cuts = self._bounds[np.arange(n_sites + 1) * n_blocks // n_sites]
        self._cuts = cuts
        self._sites = [_Place(_part(cohort, a, b)) for a, b in pairwise(cuts.tolist())]

    def __exit__(self, *error) -> None:
        for site in self._sites:
            self._leave(site)
        super().__exit__(*error)

    def join(self, agreement: dict) -> None:
        """Send the rows to the workers, once, and let the clients join."""
        self._agreement = pack_state(agreement)
        for site in self._sites:
            self._with_retries(site, lambda site=site: self._reopen(site))

    def exchange(self, request: Request, key: Key) -> Exchange:
        """Send a request to all workers; fold the replies in the order of blocks."""
        if request.lanes is not None and not request.evaluate:
            raise ValueError(
                "the clients of this request work one after another, on one machine: "
                'aggregation="sequential" is for LocalEngine, expected "auto", '
                '"envelope" or "line_search" with DaskEngine'
            )
        if request.evaluate:  # a site scores all its held-out rows at once
            lanes = [self._everybody[a:b] for a, b in pairwise(self._cuts.tolist())]
        else:
            lanes = self._lanes(request, key)
        orders = self._orders(request, lanes, key)
        self._log.append(orders)
        calls = [
            self._send(site, "work", *order) if order[0] else None
            for site, order in zip(self._sites, orders, strict=True)
        ]
        fold = Fold(request.reply, lanes, self._cohort.n_clients)
        for site, order, call in zip(self._sites, orders, calls, strict=True):
            if not order[0]:
                continue
            replies = self._answer(site, call)
            for data, local in zip(replies, order[1], strict=True):
                reply = read_reply(request.reply, unpack_state(data))
                check_reply(request.reply, reply, len(local))
                fold.add(local + site.cohort.first, reply)
        if len(self._log) >= self._engine.every:
            self._keep()
        n_asked = sum(map(len, lanes))
        return Exchange(
            fold.result(),
            fold.who,
            bytes_down=n_asked * self._down_size(request),
            bytes_up=fold.bytes_up(),
        )

    def close(self, request: Request) -> dict:
        """Send the last message; give the clients' personal parts."""
        parts = []
        for site in self._sites:
            own = np.arange(site.cohort.n_clients) + site.cohort.first
            message = pack_state(request.content(own))
            parts.append(self._call(site, "personal", message))
        return {name: _stack([part[name] for part in parts]) for name in parts[0]}

    def _orders(self, request: Request, lanes: list, key: Key) -> list[tuple]:
        """Give each site its messages, one a lane, and lanes in its own numbers."""
        orders: list[tuple] = [([], [], request.evaluate, key) for _ in self._sites]
        # Where all clients get the same, it is written once.
        common = None if request.each else pack_state(request.all)
        for lane in lanes:
            place = int(np.searchsorted(self._cuts, lane[0], side="right")) - 1
            messages, own = orders[place][:2]
            messages.append(common or pack_state(request.content(lane)))
            own.append(lane - np.int32(self._sites[place].cohort.first))
        return orders

    def _keep(self) -> None:
        """Copy the clients' states here, where the loss of a worker does not matter."""
        kept = [self._call(site, "dump") for site in self._sites]
        for site, data in zip(self._sites, kept, strict=True):
            site.kept = data
        self._log.clear()

    def _call(self, site: _Place, method: str, *args) -> Any:
        """Ask a site for what changes nothing; reopen it if its worker is gone."""

        def ask() -> Any:
            if site.actor is None:
                self._reopen(site)
                self._replay(site, self._log)
            return self._wait(site, self._send(site, method, *args))

        return self._with_retries(site, ask)

    def _answer(self, site: _Place, call: Any) -> list[bytes]:
        """Wait for the work of the last order; do it anew if the worker is gone."""
        calls = [call]

        def ask() -> Any:
            if calls:
                return self._wait(site, calls.pop())
            self._reopen(site)
            return self._replay(site, self._log)

        return self._with_retries(site, ask)

    def _replay(self, site: _Place, log: list[list[tuple]]) -> Any:
        """Let a site do again what it did since it was dumped; give its last reply."""
        place, replies = self._sites.index(site), None
        for orders in log:
            if orders[place][0]:
                replies = self._wait(site, self._send(site, "work", *orders[place]))
        return replies

    def _with_retries(self, site: _Place, ask) -> Any:
        for _ in range(self._engine.retries + 1):
            try:
                return ask()
            except _Lost:
                self._leave(site)
        raise RuntimeError(
            f"{self._engine.retries + 1} workers were lost in one exchange with the "
            f"clients from {site.cohort.first} on, expected at most "
            f"retries={self._engine.retries}"
        )

    def _reopen(self, site: _Place) -> None:
        """Bring the rows to the worker that has the fewest sites."""
        deadline = monotonic() + self._engine.timeout
        while not (alive := self._alive()):
            if monotonic() > deadline:
                raise RuntimeError("the cluster has no workers, expected at least 1")
            _pause()
        taken = [other.address for other in self._sites if other is not site]
        # One that has just been lost may still be listed.
        fresh = [a for a in alive if a != site.address] or alive
        site.address = min(fresh, key=lambda a: (taken.count(a), a))
        try:
            rows = self._client.scatter(
                site.cohort, workers=[site.address], hash=False, timeout=60
            )
            site.future = self._client.submit(
                Site,
                self._algorithm,
                rows,
                actor=True,
                workers=[site.address],
                pure=False,
            )
            site.actor = self._wait(site, site.future)
        except (OSError, RuntimeError, KeyError) as error:
            raise _Lost from error
        self._wait(site, self._send(site, "join", self._agreement, site.kept))

    def _send(self, site: _Place, method: str, *args) -> Any:
        try:
            return getattr(site.actor, method)(*args)
        except (OSError, RuntimeError):
            return None  # `_wait` says so

    def _wait(self, site: _Place, call: Any) -> Any:
        deadline = monotonic() + self._engine.timeout
        while call is not None:
            try:
                return call.result(timeout=LOOK)
            except TimeoutError:
                if site.address not in self._alive():
                    break
                if monotonic() > deadline:
                    raise TimeoutError(
                        f"the worker at {site.address} did not answer within "
                        f"timeout={self._engine.timeout} seconds"
                    ) from None
            except OSError:
                # A call that could not be made, or an error of the work itself.
                if not self._vanishes(site.address):
                    raise
                break
        raise _Lost

    def _alive(self) -> list[str]:
        return sorted(self._client.nthreads())

    def _vanishes(self, address: str) -> bool:
        """Wait a little for the scheduler to notice that a worker is gone."""
        deadline = monotonic() + GRACE
        while address in self._alive():
            if monotonic() > deadline:
                return False
            _pause()
        return True

    def _leave(self, site: _Place) -> None:
        # To forget it is not enough: errors and pending calls may hold on to an actor.
        if site.future is not None and self._client.status == "running":
            self._client.cancel([site.future], force=True)
        site.future = site.actor = None


def _pause() -> None:
    from time import sleep

    sleep(0.1)


def _part(cohort: Cohort, a: int, b: int) -> Cohort:
    """Cut the clients a .. b out of a cohort."""
    first, last = int(cohort.offsets[a]), int(cohort.offsets[b])
    rows = slice(first, last)
    weight, warm = cohort.sample_weight, cohort.warm
    return Cohort(
        cohort.X[rows],
        cohort.y[rows],
        None if weight is None else weight[rows],
        cohort.offsets[a : b + 1] - first,
        cohort.classes,
        cohort.first + a,
        None if warm is None else warm[:, rows],
        None if cohort.held_out is None else _part(cohort.held_out, a, b),
    )


def _stack(parts: list) -> Any:
    """Join personal parts, one row a client."""
    if sparse.issparse(parts[0]):
        return sparse.csr_array(sparse.vstack(parts, format="csr"))
    return np.concatenate(parts)
