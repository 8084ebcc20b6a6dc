"""LocalEngine: the whole federation in this process, threads over blocks of clients."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .._kernels import _rng
from .check import check_reply
from .checkpoint_file import CheckpointError, CheckpointFile
from .clock import Clock, Traffic, columns_used
from .contract import Algorithm, Cohort, Key, Request
from .fingerprint import fingerprint
from .fold import Fold, block_bounds, dense_size
from .message import MessageError, down_size, up_size
from .privacy import PrivateFold, PrivateRun, PrivateSums
from .progress import Progress
from .record import Record
from .timing import Timing


@dataclass(frozen=True, slots=True)
class Exchange:
    """What came of one request: replies folded over the clients in the mask `who`."""

    reply: dict
    who: np.ndarray
    bytes_down: int
    bytes_up: int
    n_late: int = 0
    n_dropped: int = 0
    n_refused: int = 0
    virtual_time: float | None = None  # at the end
    figures: dict[str, float] = field(default_factory=dict)  # for `history_`


class LocalEngine:
    """Run a federation in this process.

    Parameters
    ----------
    timing : Timing, default=None
        Random delays, deadlines and losses in virtual time; None: everybody answers.
    client_fraction : float, default=1.0
        Share of the clients that is asked in a round, drawn anew each round. Rounds
        that need everybody, such as those that measure the duality gap, ask all.
    min_clients : int, default=1
        Ask at least so many clients, or all when there are fewer.
    commit : {"accepted", "sent"}, default="accepted"
        What a client keeps of a visit whose reply came too late or was lost:
        "accepted", nothing; "sent", all of it, as in the paper to the letter, so that w
        is no longer the sum of what the clients hold. The latter is for
        ``aggregation="sum"`` and ``"safe"`` only.
    privacy : PrivateSums, default=None
        Each client masks its replies, so that the coordinator reads their sums alone;
        optionally with noise, and `epsilon` in `history_`.
    checkpoint : path-like, default=None
        File in which the run is saved as it goes, its rows excepted; or a folder, in
        which each run has a file of its own, as a grid search needs. Two runs never
        share a file at the same time.
    every : int, default=10
        Rounds from one checkpoint to the next. The end is saved too.
    resume : bool, default=False
        Go on from the checkpoint if there is one, with the same bits as a run that was
        never interrupted; without it the file is overwritten. Method, engine, data and
        seed must be those of the checkpoint. `max_rounds` may be another, `n_jobs` and
        `verbose` do not matter, and with ``random_state=None`` the seed is taken from
        the checkpoint; early stopping, which draws the rows to hold out, needs a number
        there. Functions given to `Timing` are known by their names only.
    replay : Record, default=None
        Repeat a run over sites bit by bit: a client works where its answer counted
        then. `fit` needs the rows of all sites, in the order of ``replay.clients``.
        Other options have no say.

    Notes
    -----
    Replies are added in the order of the clients inside fixed blocks, and the blocks
    in their order, so results do not depend on the number of threads. An engine holds
    no state of a run: one engine may serve several estimators, and is shared, not
    copied, by `sklearn.base.clone`.
    """

    def __init__(
        self,
        *,
        timing: Timing | None = None,
        client_fraction: float = 1.0,
        min_clients: int = 1,
        commit: str = "accepted",
        privacy: PrivateSums | None = None,
        checkpoint: Any = None,
        every: int = 10,
        resume: bool = False,
        replay: Record | None = None,
    ):
        self.timing = timing
        self.client_fraction = client_fraction
        self.min_clients = min_clients
        self.commit = commit
        self.privacy = privacy
        self.checkpoint = checkpoint
        self.every = every
        self.resume = resume
        self.replay = replay

    def __deepcopy__(self, memo: dict) -> LocalEngine:
        return self

    def __repr__(self) -> str:
        timing = "" if self.timing is None else f"timing={self.timing!r}, "
        commit = "" if self.commit == "accepted" else f", commit={self.commit!r}"
        privacy = "" if self.privacy is None else f", privacy={self.privacy!r}"
        saves = ""
        if self.checkpoint is not None:
            saves = f", checkpoint={self.checkpoint!r}, every={self.every}"
            saves += f", resume={self.resume}"
        return (
            f"LocalEngine({timing}client_fraction={self.client_fraction}, "
            f"min_clients={self.min_clients}{commit}{privacy}{saves})"
        )

    @property
    def asks_everybody(self) -> bool:
        """Whether each round reaches every client."""
        return self.client_fraction == 1

    @property
    def hears_everybody(self) -> bool:
        """Whether each round brings the reply of every client."""
        if self.replay is not None:
            return False
        loses = self.timing is not None and self.timing.loses_replies
        return self.asks_everybody and not loses

    def open(
        self, algorithm: Algorithm, cohort: Cohort, seed: int, n_jobs: int
    ) -> LocalRun:
        """Begin a run; use the result as a context manager."""
        check_sampling(self)
        if self.timing is not None and not isinstance(self.timing, Timing):
            raise ValueError(f"timing is {self.timing!r}, expected None or a Timing")
        if self.commit not in ("accepted", "sent"):
            raise ValueError(
                f"commit is {self.commit!r}, expected 'accepted' or 'sent'"
            )
        if self.commit == "sent" and not getattr(algorithm, "may_commit_sent", False):
            raise ValueError(
                "commit is 'sent', expected 'accepted': with this method the "
                "coordinator must know what each client keeps; of the multi-task SVM "
                'only aggregation="sum" and "safe" can do without'
            )
        private = None
        if self.privacy is not None:
            self._check_privacy(algorithm)
            private = PrivateRun(self.privacy, cohort.n_clients, seed)
        self._check_checkpoint()
        n_asked = number_asked(self, cohort.n_clients)
        clock = None if self.timing is None else Clock(self.timing, cohort)
        sent = self.commit == "sent"
        run = LocalRun(algorithm, cohort, seed, n_jobs, n_asked, clock, sent, private)
        if self.replay is not None:
            run.repeat(self.replay)
        if self.checkpoint is not None:
            run.keep_in(self)
        return run

    def _check_privacy(self, algorithm: Algorithm) -> None:
        if not isinstance(self.privacy, PrivateSums):
            raise ValueError(
                f"privacy is {self.privacy!r}, expected None or a PrivateSums"
            )
        if self.commit == "sent":
            raise ValueError("commit is 'sent', expected 'accepted' with privacy")
        noise = self.privacy.noise
        if noise is not None and self.checkpoint is not None:
            raise ValueError(
                "checkpoint is set, expected None with noise: exchanges that a "
                "resumed run does anew with other rounds to go would be answered "
                "twice, which the account does not cover"
            )
        self.privacy.check()
        if noise is not None and not getattr(algorithm, "bears_noise", False):
            raise ValueError(
                f"noise is {noise!r}, expected None: {type(algorithm).__name__} steers "
                "by exact figures among its replies, such as counts and measured gaps, "
                "and would stop or go astray on noisy ones"
            )

    def _check_checkpoint(self) -> None:
        check_scalar(self.every, "every", Integral, min_val=1)
        if not isinstance(self.resume, bool | np.bool_):
            raise ValueError(f"resume is {self.resume!r}, expected True or False")
        if self.checkpoint is None:
            if self.resume:
                raise ValueError("resume is True, checkpoint is None: expected a path")
            return
        if not isinstance(self.checkpoint, str | os.PathLike):
            raise ValueError(
                f"checkpoint is {self.checkpoint!r}, expected None or a path"
            )


def check_sampling(engine: Any) -> None:
    """Raise an error if `client_fraction` or `min_clients` is out of range."""
    limits = {"min_val": 0, "max_val": 1, "include_boundaries": "right"}
    check_scalar(engine.client_fraction, "client_fraction", Real, **limits)
    check_scalar(engine.min_clients, "min_clients", Integral, min_val=1)


def number_asked(engine: Any, n_clients: int) -> int:
    """Count the clients that a round asks."""
    share = round(engine.client_fraction * n_clients)
    return max(share, min(engine.min_clients, n_clients), 1)


class LocalRun:
    """One run of an algorithm over one cohort that holds every client."""

    def __init__(
        self,
        algorithm,
        cohort,
        seed,
        n_jobs,
        n_asked,
        clock=None,
        commit_sent=False,
        private=None,
    ):
        self._algorithm, self._cohort = algorithm, cohort
        self._clock: Clock | None = clock
        self._private: PrivateRun | None = private
        self._commit_sent, self._columns = commit_sent, None
        self._seed, self._n_asked = seed, n_asked
        self._keeper: LocalEngine | None = None
        self._file: CheckpointFile | None = None
        self._everybody = np.arange(cohort.n_clients, dtype=np.int32)
        self._bounds = block_bounds(cohort)
        self._answered: Iterator[list[int]] | None = None
        self._n_jobs = n_jobs
        self._pool: ThreadPoolExecutor | None = None
        self._state: Any = None
        self._sizes: dict[tuple, int] = {}

    def __enter__(self) -> LocalRun:
        # A pool kept from before a fork never answers: it lives for one run.
        if self._n_jobs > 1:
            self._pool = ThreadPoolExecutor(self._n_jobs)
        return self

    def __exit__(self, *error) -> None:
        if self._pool is not None:
            # Calls of a kernel that take long would hold up an interrupt.
            if error[0] is not None and hasattr(self._state, "interrupt"):
                self._state.interrupt()
            self._pool.shutdown(cancel_futures=True)
        if self._file is not None:
            self._file.close()

    def keep_in(self, engine: LocalEngine) -> None:
        """Save the run where and when `engine` says."""
        self._keeper = engine

    def resume(self, any_seed: bool) -> Progress | None:
        """Take the checkpoint for this run; go on from it if there is one."""
        engine = self._keeper
        if engine is None:
            return None
        options = ("timing", "client_fraction", "min_clients", "commit", "privacy")
        told = {name: getattr(engine, name) for name in options}
        self._file = CheckpointFile(
            engine.checkpoint,
            every=engine.every,
            told=fingerprint(self._algorithm, self._cohort, told),
            seed=None if any_seed else self._seed,
            max_rounds=getattr(self._algorithm, "max_rounds", None),
        )
        found = self._file.load() if engine.resume else None
        if found is None:
            return None
        progress, extra = found
        try:
            self._state = self._algorithm.restore(
                self._cohort, progress.agreement, extra["clients"]
            )
        except MessageError as error:
            raise CheckpointError(f"checkpoint {self._file.path}: {error}") from None
        if self._clock is not None:
            self._clock.restore(extra["clock"])
        if self._private is not None:
            privacy = self._private.privacy
            self._private = PrivateRun(
                privacy, self._cohort.n_clients, progress.seed, extra["private"]
            )
        return progress

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Write the checkpoint if there is to be one, and it is time or `now`."""
        if self._file is not None:
            self._file.offer(progress, self._dump, now=now)

    def _dump(self) -> dict[str, Any]:
        clock = None if self._clock is None else self._clock.dump()
        clients = self._algorithm.dump(self._cohort, self._state)
        private = None if self._private is None else self._private.dump()
        return {"clients": clients, "clock": clock, "private": private}

    def repeat(self, record: Record) -> None:
        """Let those work who did then."""
        bounds, n = record.bounds, self._cohort.n_clients
        if bounds[-1] != n:
            raise ValueError(
                f"replay is of {bounds[-1]} clients, the rows are of {n} clients"
            )
        if record.seed != self._seed:
            raise ValueError(
                f"replay has the seed {record.seed}, random_state gives {self._seed}"
            )
        self._bounds, self._answered = bounds, iter(record.answered)

    def hellos(self) -> list[dict]:
        """Give the hello of each participant: here, one."""
        return [self._algorithm.hello(self._cohort)]

    def join(self, agreement: dict) -> None:
        """Let the participants set up what they keep."""
        self._state = self._algorithm.join(self._cohort, agreement)

    def exchange(self, request: Request, key: Key) -> Exchange:
        """Send a request and fold what comes back, block by block."""
        lanes = self._lanes(request, key)
        if self._answered is not None:
            lanes = self._as_recorded(lanes)
        down, n_asked, verdict = self._down_size(request), sum(map(len, lanes)), None
        fold: Fold | PrivateFold
        if self._private is not None:
            fold = self._private.fold(request, np.concatenate(lanes))
            # Each masks its own reply.
            lanes = [lane[k : k + 1] for lane in lanes for k in range(len(lane))]
        if self._clock is not None:
            # What is rolled back need not be computed: those clients never work.
            up = self._up_sizes(request)
            verdict = self._clock.exchange(request, lanes, key, down, up)
            lanes = [lane[verdict.accepted[lane]] for lane in lanes]
            lanes = [lane for lane in lanes if len(lane)]
        if self._private is None:
            fold = Fold(request.reply, lanes, self._cohort.n_clients)
        elif isinstance(fold, PrivateFold) and len(lanes) < fold.least:
            lanes = []  # the sum stays hidden, and their work is taken back

        def work(active: np.ndarray) -> dict:
            message = request.content(active)
            if request.evaluate:
                return self._algorithm.evaluate(
                    self._cohort, self._state, message, active
                )
            return self._algorithm.update(
                self._cohort, self._state, message, active, key
            )

        for active, reply in zip(lanes, self._in_order(work, lanes), strict=True):
            check_reply(request.reply, reply, len(active))
            fold.add(active, reply)
        answer = Exchange(
            fold.result(),
            fold.who,
            bytes_down=n_asked * down,
            bytes_up=fold.bytes_up(),
        )
        if self._private is not None and isinstance(fold, PrivateFold):
            answer = replace(
                answer,
                bytes_down=answer.bytes_down + fold.bytes_down(),
                figures=self._private.figures(),
            )
        if verdict is None or self._clock is None:
            return answer
        if self._commit_sent and len(verdict.in_vain):
            work(np.sort(verdict.in_vain).astype(np.int32))
        up_in_vain = np.broadcast_to(up, self._everybody.shape)[verdict.in_vain]
        return replace(
            answer,
            bytes_up=answer.bytes_up + int(up_in_vain.sum()),
            n_late=verdict.n_late,
            n_dropped=verdict.n_dropped,
            virtual_time=self._clock.time,
        )

    @property
    def traffic(self) -> Traffic | None:
        """What was seen of late and lost replies; None without a clock."""
        return None if self._clock is None else self._clock.traffic

    def _up_sizes(self, request: Request) -> Any:
        """Foresee the bytes of a reply; of a sparse one, by the columns in use."""
        sparse = [n for n, k in request.reply.items() if getattr(k, "sparse", False)]
        if not sparse:
            return dense_size(tuple(request.reply.items()))
        if self._columns is None:
            self._columns = columns_used(self._cohort)
        return up_size(request.reply, dict.fromkeys(sparse, self._columns))

    def _down_size(self, request: Request) -> int:
        """`down_size`, worked out once for messages of the same form."""
        arrays = [*request.all.items(), *request.each.items()]
        form = tuple((name, *_form(value)) for name, value in arrays)
        if form not in self._sizes:
            self._sizes[form] = down_size(request)
        return self._sizes[form]

    def close(self, request: Request) -> dict:
        """Send the last message; give the clients' personal parts."""
        message = request.content(slice(None))
        return self._algorithm.personal(self._cohort, self._state, message)

    def _lanes(self, request: Request, key: Key) -> list[np.ndarray]:
        """Who works, cut into the pieces that may work at the same time."""
        if request.lanes is not None and request.clients is not None:
            asked, cuts = request.clients, request.lanes
        else:
            asked = self._asked(request, key)
            if request.evaluate:  # a cohort scores in one call
                return [asked]
            cuts = np.searchsorted(asked, self._bounds)
        return [asked[a:b] for a, b in pairwise(cuts) if a < b]

    def _as_recorded(self, lanes: list[np.ndarray]) -> list[np.ndarray]:
        """Leave out the sites whose answer did not count; a lane is of one site."""
        answered = next(self._answered, None) if self._answered is not None else None
        if answered is None:
            raise ValueError("replay ends before the run does: it is of another fit")
        first = np.searchsorted(self._bounds, [a[0] for a in lanes], side="right") - 1
        return [
            lane for lane, s in zip(lanes, first.tolist(), strict=True) if s in answered
        ]

    def _asked(self, request: Request, key: Key) -> np.ndarray:
        if request.clients is not None:
            return np.sort(request.clients).astype(np.int32, copy=False)
        if request.everyone or self._n_asked == len(self._everybody):
            return self._everybody
        draws = np.empty(len(self._everybody))
        _rng.uniform(*key, _rng.SAMPLING, 0, draws)
        chosen = np.argpartition(draws, self._n_asked - 1)[: self._n_asked]
        return np.sort(chosen).astype(np.int32)

    def _in_order(
        self, work: Callable[[np.ndarray], dict], lanes: list[np.ndarray]
    ) -> Iterator[dict]:
        """Yield results in the order of the lanes; few wait at a time."""
        if self._pool is None or len(lanes) < 2:
            yield from map(work, lanes)
            return
        if len(lanes) <= self._n_jobs:
            # To hand work over and wait costs more than to do a share of it here.
            others = [self._pool.submit(work, active) for active in lanes[1:]]
            yield work(lanes[0])
            yield from (other.result() for other in others)
            return
        waiting: deque = deque()
        for active in lanes:
            waiting.append(self._pool.submit(work, active))
            if len(waiting) > 2 * self._n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _form(value: Any) -> tuple:
    """Whatever the size of a value in a message can depend on."""
    if isinstance(value, tuple):  # a table, of which each client gets one row
        value = value[0]
    return getattr(value, "shape", None), getattr(value, "dtype", type(value))
