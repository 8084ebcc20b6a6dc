"""RemoteEngine: the coordinator's side of a run over sites that hold their own rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .checkpoint import pack_state
from .checkpoint_file import CheckpointError, CheckpointFile
from .contract import Algorithm, Key, Request, TooFewClients
from .deploy import Deployable, Deployment, describe
from .faults import Faults, log
from .fold import Fold
from .inbox import Inbox
from .local import Exchange
from .membership import Membership
from .norms import Norms
from .progress import Progress
from .record import Record
from .roster import Member, agree, number_clients
from .transport import Transport


class RemoteEngine(Deployment):
    """Run a federation over a transport.

    Parameters
    ----------
    transport : Transport
    estimator : estimator
        What coordinator and sites must agree on.
    sites : int or list of str
        How many sites to wait for at the start, or their names: then no other is let
        in.
    deadline : float, default=120.0
        Seconds that a round waits for answers.
    patience : float, default=600.0
        The same for exchanges that need everybody, the start and the end. There too a
        site that left its last message without an answer is waited for `deadline`
        only, until something is heard of it.
    min_clients : int, default=1
        The run stops when fewer clients answer.
    checkpoint, every, resume
        As in `LocalEngine`.
    """

    def __init__(
        self,
        transport: Transport,
        estimator: Deployable,
        *,
        sites: Any,
        deadline: float = 120.0,
        patience: float = 600.0,
        min_clients: int = 1,
        checkpoint: Any = None,
        every: int = 1,
        resume: bool = False,
    ):
        self.transport, self.estimator, self.sites = transport, estimator, sites
        self.deadline, self.patience = deadline, patience
        self.min_clients = min_clients
        self.checkpoint, self.every, self.resume = checkpoint, every, resume

    def open(self, algorithm: Algorithm, cohort: None, seed: int, n_jobs: int):
        """Begin a run; use the result as a context manager."""
        positive = {"min_val": 0, "include_boundaries": "neither"}
        check_scalar(self.deadline, "deadline", Real, **positive)
        check_scalar(self.patience, "patience", Real, **positive)
        for name in ("deadline", "patience"):
            if not np.isfinite(getattr(self, name)):
                raise ValueError(
                    f"{name} is {getattr(self, name)}, expected seconds: no wait is "
                    f"without a limit"
                )
        check_scalar(self.min_clients, "min_clients", Integral, min_val=1)
        check_scalar(self.every, "every", Integral, min_val=1)
        if isinstance(self.sites, Integral):
            check_scalar(self.sites, "sites", Integral, min_val=1)
        elif (
            not isinstance(self.sites, list | tuple)
            or not self.sites
            or len(set(map(str, self.sites))) < len(self.sites)
        ):
            raise ValueError(
                f"sites is {self.sites!r}, expected how many, or a list of their names"
            )
        if self.resume and self.checkpoint is None:
            raise ValueError("resume is True, checkpoint is None: expected a path")
        return RemoteRun(self, algorithm, seed)


class RemoteRun:
    """One run over sites."""

    def __init__(self, engine: RemoteEngine, algorithm: Algorithm, seed: int):
        self._engine, self._algorithm, self._seed = engine, algorithm, seed
        self._transport = engine.transport
        self._told = describe(engine.estimator)
        self._sites = Membership(
            engine.transport, self._told, engine.sites, engine.patience
        )
        self._agreement: dict[str, Any] = {}
        self._norms = Norms()
        self._answered: list[list[int]] = []
        self._progress: Progress | None = None
        self._file: CheckpointFile | None = None

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(self, *error) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def faults(self) -> Faults:
        """What went wrong so far."""
        return self._sites.faults

    @property
    def record(self) -> Record:
        """Who answered when."""
        members = self._sites.members
        names = [member.name for member in members]
        clients = [member.clients.tolist() for member in members]
        return Record(self._seed, names, clients, [list(a) for a in self._answered])

    # the start

    def hellos(self) -> list[dict]:
        """Wait for the sites; let in those that agree, and name the others."""
        there = number_clients(self._sites.gather())
        self._sites.members = there
        kept, refused = agree(self._algorithm, there, (self._seed, 0))
        self._sites.refuse(there, refused)
        self._sites.members = number_clients(kept)
        if self._sites.n_clients < self._engine.min_clients:
            raise TooFewClients(
                f"{self._sites.n_clients} clients are there at the start, expected at "
                f"least min_clients={self._engine.min_clients}"
            )
        return [member.hello for member in self._sites.members]

    def join(self, agreement: dict) -> None:
        """Remember what every message tells: sites join with their first work."""
        self._agreement = agreement

    # rounds

    def exchange(self, request: Request, key: Key) -> Exchange:
        """Send a request; fold what comes back in time and is as agreed."""
        if request.lanes is not None:
            raise ValueError(
                "this method lets clients of several sites work one after another, "
                "which needs them all in one process: choose another aggregation"
            )
        sites, engine = self._sites, self._engine
        sites.number += 1
        sites.find_moved()
        messages, active = {}, {}
        for member in sites.members:
            asked = self._asked(member, request)
            if len(asked) and not member.frozen and member.address is not None:
                active[member.name] = asked
                messages[member.address] = pack_state(
                    self._work(member, request, key, asked)
                )
        wait = engine.patience if request.everyone else engine.deadline
        inbox = self._send(request, messages, active, wait)
        answers = inbox.answers
        for name, reason in self._norms.absurd(answers, request.reply).items():
            sites.note(name, "refused", reason)
            inbox.n_refused += len(active[name])
            del answers[name]
        places = [n for n, m in enumerate(sites.members) if m.name in answers]
        members = [sites.members[place] for place in places]
        lanes = [active[m.name] + np.int32(m.first) for m in members]
        fold = Fold(request.reply, lanes, sites.n_clients)
        for member, lane in zip(members, lanes, strict=True):
            fold.add(lane, answers[member.name])
        if fold.n_active < min(engine.min_clients, len(fold.who)):
            raise TooFewClients(
                f"{fold.n_active} clients answered in round {sites.round}, expected "
                f"at least min_clients={engine.min_clients}"
            )
        for member in members:
            member.accepted = sites.number
            member.pending = 0  # its place is taken again
        self._answered.append(places)
        n_asked = sum(map(len, active.values()))
        return Exchange(
            fold.result(),
            fold.who,
            bytes_down=sum(map(len, messages.values())),
            bytes_up=inbox.bytes_up,
            n_dropped=n_asked - fold.n_active - inbox.n_refused,
            n_late=inbox.n_late,
            n_refused=inbox.n_refused,
        )

    def _send(self, request, messages, active, wait) -> Inbox:
        """Send messages by address, and collect what comes back."""
        inbox = Inbox(self._sites, self._transport, request, active)
        self._transport.send(messages, self._sites.number, wait)
        inbox.collect(wait, self._engine.deadline)
        return inbox

    def _asked(self, member: Member, request: Request) -> np.ndarray:
        local = np.arange(member.n_clients, dtype=np.int32)
        if request.clients is None:
            return local
        return local[np.isin(local + member.first, request.clients)]

    def _head(self, member: Member, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            "run": self._sites.run,
            "number": self._sites.number,
            "base": member.accepted,
            "safe": member.safe,
            "told": self._told,
            "first": member.first,
            "agreement": self._agreement,
        }

    def _work(self, member, request, key, asked) -> dict[str, Any]:
        return self._head(member, "work") | {
            "key": list(key),
            "evaluate": request.evaluate,
            "active": asked,
            "content": request.content(asked + member.first),
        }

    # the end

    def close(self, request: Request) -> None:
        """Send the last message; the personal parts stay where they are."""
        self._sites.number += 1
        progress = self._progress
        if progress is None:  # nothing was asked of anybody
            return
        last = {
            "found": self._algorithm.findings(progress.state),
            "history": progress.ledger.history(),
        }
        messages, active = {}, {}
        for member in self._sites.members:
            if member.frozen or member.address is None:
                continue
            asked = np.arange(member.n_clients, dtype=np.int32)
            active[member.name] = asked
            messages[member.address] = pack_state(
                self._head(member, "close")
                | last
                | {"content": request.content(asked + member.first)}
            )
        nothing = Request(all={}, reply={})
        self._send(nothing, messages, active, self._engine.patience)

    # checkpoints

    def resume(self, any_seed: bool) -> Progress | None:
        """Take the checkpoint; go on from it if there is one."""
        engine = self._engine
        if engine.checkpoint is None:
            return None
        told = {n: v for n, v in self._told.items() if n not in ("max_rounds",)}
        told.pop("fedcore")
        self._file = CheckpointFile(
            engine.checkpoint,
            every=engine.every,
            told=told,
            seed=None if any_seed else self._seed,
            max_rounds=getattr(self._algorithm, "max_rounds", None),
        )
        found = self._file.load() if engine.resume else None
        if found is None:
            return None
        progress, extra = found
        self._seed, self._agreement = progress.seed, progress.agreement
        self._restore(extra)
        self._progress, self._sites.round = progress, progress.state["round"]
        self._sites.gather_again()
        return progress

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Write the checkpoint if it is time to; only then is a new state safe."""
        self._progress, self._sites.round = progress, progress.state["round"]
        if self._file is not None and self._file.offer(progress, self._dump, now=now):
            for member in self._sites.members:
                member.safe = member.accepted

    def _dump(self) -> dict[str, Any]:
        members = []
        for member in self._sites.members:
            kept = asdict(member)
            for name in ("hello", "address", "pending", "safe"):
                del kept[name]
            members.append(kept)
        answered = np.zeros((len(self._answered), len(self._sites.members)), bool)
        for exchange, places in enumerate(self._answered):
            answered[exchange, places] = True
        return {
            "run": self._sites.run,
            "number": self._sites.number,
            "members": members,
            "answered": answered,
            "faults": self.faults.table(),
            "norms": dict(self._norms.largest),
        }

    def _restore(self, extra: Mapping[str, Any]) -> None:
        try:
            sites = self._sites
            sites.run, sites.number = extra["run"], extra["number"]
            sites.members = [Member(**kept) for kept in extra["members"]]
            for member in self._sites.members:
                member.safe = member.accepted
            self._answered = [np.flatnonzero(a).tolist() for a in extra["answered"]]
            columns = {n: c.tolist() for n, c in extra["faults"].items()}
            sites.faults = Faults(**columns)
            self._norms.largest = dict(extra["norms"])
        except (LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"checkpoint is of no run over sites: {error!r:.80}"
            ) from None
        log.info("going on from round %d", self._sites.round)
