"""RemoteEngine: the coordinator's side of a run over sites that hold their own rows."""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .check import check_reply
from .checkpoint import pack_state, unpack_state
from .checkpoint_file import CheckpointError, CheckpointFile
from .contract import Algorithm, Key, Request, TooFewClients
from .deploy import Deployable, Deployment, describe, difference
from .faults import Faults, log
from .fold import Fold
from .local import Exchange
from .message import MAX_BYTES, MessageError
from .norms import Norms
from .progress import Progress
from .record import Record
from .roster import Member, agree, number_clients
from .transport import NoAnswer, Transport
from .wire import most_bytes, read_reply


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
        The same for exchanges that need everybody, the start and the end.
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
        check_scalar(self.min_clients, "min_clients", Integral, min_val=1)
        check_scalar(self.every, "every", Integral, min_val=1)
        if isinstance(self.sites, Integral):
            check_scalar(self.sites, "sites", Integral, min_val=1)
        if self.resume and self.checkpoint is None:
            raise ValueError("resume is True, checkpoint is None: expected a path")
        return RemoteRun(self, algorithm, seed)


class RemoteRun:
    """One run over sites."""

    def __init__(self, engine: RemoteEngine, algorithm: Algorithm, seed: int):
        self._engine, self._algorithm, self._seed = engine, algorithm, seed
        self._transport = engine.transport
        self._told = describe(engine.estimator)
        self._run, self._number, self._round = secrets.token_hex(8), 0, 0
        self._members: list[Member] = []
        self._strange: set[int] = set()  # addresses that are not let in
        self._agreement: dict[str, Any] = {}
        self._norms, self.faults = Norms(), Faults()
        self._answered: list[list[int]] = []
        self._progress: Progress | None = None
        self._file: CheckpointFile | None = None

    def __enter__(self) -> RemoteRun:
        return self

    def __exit__(self, *error) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def record(self) -> Record:
        """Who answered when."""
        names = [member.name for member in self._members]
        clients = [member.clients.tolist() for member in self._members]
        return Record(self._seed, names, clients, [list(a) for a in self._answered])

    # the start

    def hellos(self) -> list[dict]:
        """Wait for the sites; let in those that agree, and name the others."""
        members = self._gather(self._let_in)
        self._members = number_clients(members)
        kept, refused = agree(self._algorithm, self._members, (self._seed, 0))
        for name, reason in refused.items():
            self._note(name, "refused", reason)
        self._members = number_clients(kept)
        out = [m.address for m in members if m.name in refused]
        self._strange |= {address for address in out if address is not None}
        self._need(sum(member.n_clients for member in self._members))
        return [member.hello for member in self._members]

    def join(self, agreement: dict) -> None:
        """Remember what every message tells: sites join with their first work."""
        self._agreement = agreement

    def _gather(self, let_in) -> list[Member]:
        """Greet whoever is there until all are; `let_in` says who is one of us."""
        sites = self._engine.sites
        found: list[Member] = []
        greeted: set[int] = set()
        until = time.monotonic() + self._engine.patience
        self._number += 1
        wanted = sites if isinstance(sites, Integral) else len(sites)
        heard = 0
        while time.monotonic() < until:
            greeted |= self._greet(set(self._transport.addresses()) - greeted)
            left = max(until - time.monotonic(), 0)
            for address, content in self._transport.receive(min(left, 1.0)):
                member = self._read_hello(address, content, found, let_in)
                heard += 1
                if member is not None:
                    found.append(member)
            enough = heard if isinstance(sites, Integral) else len(found)
            if enough >= wanted:
                break
        return found

    def _greet(self, addresses: set[int]) -> set[int]:
        if addresses:
            message = {"kind": "hello", "run": self._run, "number": self._number}
            data = pack_state(message | {"told": self._told})
            self._transport.send(
                dict.fromkeys(addresses, data), self._number, self._engine.patience
            )
        return addresses

    def _read_hello(self, address, content, found, let_in) -> Member | None:
        name = f"at address {address}"
        try:
            if isinstance(content, NoAnswer):
                raise MessageError(content.reason)
            answer = unpack_state(content)
            name = str(answer.get("site", name))
            wrong = difference(self._told, answer.get("told", {}))
            if wrong:
                raise MessageError(wrong)
            member = Member(name, answer["names"], answer["hello"], address)
            let_in(member, found)
            return member
        except (MessageError, LookupError, TypeError, AttributeError) as error:
            self._note(name, "refused", str(error))
            self._strange.add(address)
            return None

    def _let_in(self, member: Member, found: list[Member]) -> None:
        """Raise MessageError unless a site may take part from the start."""
        sites = self._engine.sites
        if not isinstance(sites, Integral) and member.name not in map(str, sites):
            raise MessageError(f"expected one of the sites {list(sites)}")
        for other in found:
            if other.name == member.name:
                raise MessageError(f"another site has the name {member.name} already")
            both = set(other.clients.tolist()) & set(member.clients.tolist())
            if both:
                raise MessageError(
                    f"its client {both.pop()} is one of site {other.name} already"
                )

    # rounds

    def exchange(self, request: Request, key: Key) -> Exchange:
        """Send a request; fold what comes back in time and is as agreed."""
        if request.lanes is not None:
            raise ValueError(
                "this method lets clients of several sites work one after another, "
                "which needs them all in one process: choose another aggregation"
            )
        self._number += 1
        self._find_moved()
        messages, active = {}, {}
        for member in self._members:
            asked = self._asked(member, request)
            if len(asked) and not member.frozen and member.address is not None:
                active[member.name] = asked
                messages[member.address] = pack_state(
                    self._work(member, request, key, asked)
                )
        long = request.everyone
        wait = self._engine.patience if long else self._engine.deadline
        counts = {"n_late": 0, "n_refused": 0}
        answers, bytes_up = self._collect(request, messages, active, wait, counts)
        for name, reason in self._norms.absurd(answers, request.reply).items():
            self._note(name, "refused", reason)
            counts["n_refused"] += len(active[name])
            del answers[name]
        kinds, lanes = request.reply, []
        for member in self._members:
            if member.name in answers:
                lanes.append(active[member.name] + np.int32(member.first))
        fold = Fold(kinds, lanes, sum(member.n_clients for member in self._members))
        answered, place = [], 0
        for number, member in enumerate(self._members):
            if member.name in answers:
                fold.add(lanes[place], answers[member.name])
                place += 1
                answered.append(number)
        if fold.n_active < min(self._engine.min_clients, len(fold.who)):
            raise TooFewClients(
                f"{fold.n_active} clients answered in round {self._round}, expected "
                f"at least min_clients={self._engine.min_clients}"
            )
        for number in answered:
            self._members[number].accepted = self._number
            self._members[number].pending = 0  # its place is taken again
        self._answered.append(answered)
        n_asked = sum(map(len, active.values()))
        return Exchange(
            fold.result(),
            fold.who,
            bytes_down=sum(map(len, messages.values())),
            bytes_up=bytes_up,
            n_dropped=n_asked - fold.n_active - counts["n_refused"],
            n_late=counts["n_late"],
            n_refused=counts["n_refused"],
        )

    def _asked(self, member: Member, request: Request) -> np.ndarray:
        local = np.arange(member.n_clients, dtype=np.int32)
        if request.clients is None:
            return local
        return local[np.isin(local + member.first, request.clients)]

    def _head(self, member: Member, kind: str) -> dict[str, Any]:
        return {
            "kind": kind,
            "run": self._run,
            "number": self._number,
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

    def _find_moved(self) -> None:
        """Greet new addresses: a site that was started again has another one."""
        here = set(self._transport.addresses())
        known = {member.address for member in self._members} | self._strange
        self._greet(here - known)
        self._strange |= here - known  # until it says who it is

    def _collect(self, request, messages, active, wait, counts):
        """Give the answers that come in time and are as asked, by site."""
        by_address = {m.address: m for m in self._members if m.address is not None}
        self._transport.send(messages, self._number, wait)
        waiting, answers, bytes_up = set(active), {}, 0
        seen: set[str] = set()
        until = time.monotonic() + wait
        while waiting and (left := until - time.monotonic()) > 0:
            for address, content in self._transport.receive(left):
                member = by_address.get(address)
                if member is None:
                    self._meet_again(address, content)
                    continue
                if isinstance(content, NoAnswer):
                    if member.name in waiting:
                        self._note(member.name, "failed", content.reason)
                        waiting.discard(member.name)
                    continue
                bytes_up += len(content)
                n_active = len(active.get(member.name, ()))
                is_first = member.name in waiting
                try:
                    answer = self._read(member, content, request, n_active)
                    if self._is_old(member, answer, seen, counts):
                        continue
                    waiting.discard(member.name)
                    seen.add(member.name)
                    reply = read_reply(request.reply, answer.get("reply"))
                    check_reply(request.reply, reply, n_active)
                    answers[member.name] = reply
                except MessageError as error:
                    self._note(member.name, "refused", str(error))
                    counts["n_refused"] += n_active * is_first
                    waiting.discard(member.name)
        for name in sorted(waiting):
            self._note(name, "silent", f"no answer within {wait:g} s")
        return answers, bytes_up

    def _read(self, member: Member, content, request, n_active) -> dict[str, Any]:
        limit = min(most_bytes(request.reply, max(n_active, 1)), MAX_BYTES)
        answer = unpack_state(content, max_bytes=limit)
        if answer.get("site") != member.name:
            raise MessageError(
                f"it bears the name of site {answer.get('site')!s:.80}, "
                f"expected {member.name}"
            )
        if answer.get("run") != self._run:
            raise MessageError("it belongs to another run")
        if "wrong" in answer:
            raise MessageError(f"it disagrees: {answer['wrong']!s:.200}")
        if not isinstance(answer.get("number"), int):
            raise MessageError("it names no message")
        if answer["number"] == self._number and "lost" in answer:
            member.frozen = True
            self._note(
                member.name,
                "frozen",
                f"it has lost its state as of message {member.accepted}; what it gave "
                f"stays in the model, it takes no further part",
            )
            raise MessageError("it has nothing to start from")
        return answer

    def _is_old(self, member: Member, answer, seen, counts) -> bool:
        number = answer["number"]
        if number > self._number:
            raise MessageError(f"it answers message {number}, which was never sent")
        if number == self._number and member.name not in seen:
            return False
        if number in (self._number, member.accepted):
            self._note(member.name, "twice", f"message {number}: the first counts")
        else:
            counts["n_late"] += member.n_clients
            self._note(
                member.name,
                "late",
                f"its answer to message {number} came after message {self._number} "
                f"was sent",
            )
        return True

    def _meet_again(self, address: int, content: bytes | NoAnswer) -> None:
        """Take a site that was started again under its new address."""
        here = set(self._transport.addresses())

        def let_in(member: Member, _) -> None:
            for other in self._members:
                if other.name == member.name:
                    if other.address in here and other.pending == 0:
                        raise MessageError(
                            f"it bears the name of site {member.name}, which is there"
                        )
                    if other.clients.tolist() != member.clients.tolist():
                        raise MessageError("its clients are not those of the start")
                    other.address = address
                    self._strange.discard(address)
                    return
            raise MessageError("the run has begun without it")

        self._read_hello(address, content, [], let_in)

    def _note(self, site: Any, fault: str, reason: str) -> None:
        self.faults.note(self._round, site, fault, reason)
        for member in self._members:
            if member.name == site:
                member.pending = self._number if fault in ("silent", "failed") else 0

    def _need(self, n_clients: int) -> None:
        if n_clients < self._engine.min_clients:
            raise TooFewClients(
                f"{n_clients} clients are there at the start, expected at least "
                f"min_clients={self._engine.min_clients}"
            )

    # the end

    def close(self, request: Request) -> None:
        """Send the last message; the personal parts stay where they are."""
        self._number += 1
        progress = self._progress
        if progress is None:  # nothing was asked of anybody
            return
        last = {
            "found": self._algorithm.findings(progress.state),
            "history": progress.ledger.history(),
        }
        messages, active = {}, {}
        for member in self._members:
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
        counts = {"n_late": 0, "n_refused": 0}
        self._collect(nothing, messages, active, self._engine.patience, counts)

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
        self._progress, self._round = progress, progress.state["round"]
        self._gather(self._let_back)
        missing = [m.name for m in self._members if m.address is None and not m.frozen]
        for name in missing:
            self._note(name, "silent", "it is not there as the run goes on")
        return progress

    def _let_back(self, member: Member, found: list[Member]) -> None:
        for other in self._members:
            if other.name == member.name:
                if other.address is not None:
                    raise MessageError(f"another site has the name {member.name}")
                if other.clients.tolist() != member.clients.tolist():
                    raise MessageError("its clients are not those of the start")
                other.address = member.address
                return
        raise MessageError("the run has begun without it")

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Write the checkpoint if it is time to; only then is a new state safe."""
        self._progress, self._round = progress, progress.state["round"]
        if self._file is not None and self._file.offer(progress, self._dump, now=now):
            for member in self._members:
                member.safe = member.accepted

    def _dump(self) -> dict[str, Any]:
        members = []
        for member in self._members:
            kept = asdict(member)
            for name in ("hello", "address", "pending", "safe"):
                del kept[name]
            members.append(kept)
        answered = np.zeros((len(self._answered), len(self._members)), bool)
        for exchange, places in enumerate(self._answered):
            answered[exchange, places] = True
        return {
            "run": self._run,
            "number": self._number,
            "members": members,
            "answered": answered,
            "faults": self.faults.table(),
            "norms": dict(self._norms.largest),
        }

    def _restore(self, extra: Mapping[str, Any]) -> None:
        try:
            self._run, self._number = extra["run"], extra["number"]
            self._members = [Member(**kept) for kept in extra["members"]]
            for member in self._members:
                member.safe = member.accepted
            self._answered = [np.flatnonzero(a).tolist() for a in extra["answered"]]
            columns = {n: c.tolist() for n, c in extra["faults"].items()}
            self.faults = Faults(**columns)
            self._norms.largest = dict(extra["norms"])
        except (LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"checkpoint is of no run over sites: {error!r:.80}"
            ) from None
        log.info("going on from round %d", self._round)
