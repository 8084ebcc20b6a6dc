"""Who takes part in a run over sites: greeted, let in, found again elsewhere."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from numbers import Integral
from typing import Any

from .checkpoint import pack_state, unpack_state
from .deploy import difference
from .faults import Faults
from .message import MessageError
from .roster import Member
from .transport import NoAnswer, Transport

LetIn = Callable[[Member, list[Member]], None]  # raises MessageError to refuse


class Membership:
    """The sites of a run, and what went wrong with them.

    Parameters
    ----------
    transport : Transport
    told : dict
        What coordinator and sites must have in common.
    sites : int or list of str
        How many to wait for, or their names.
    patience : float
        Seconds that a greeting waits.

    Attributes
    ----------
    run : str
        Names the run in all messages.
    number : int
        Of the last message that was sent.
    round : int
        That a fault is noted under.
    members : list of Member
    """

    def __init__(
        self, transport: Transport, told: dict[str, str], sites: Any, patience: float
    ):
        self._transport, self._told = transport, told
        self._sites, self._patience = sites, patience
        self.run, self.number, self.round = secrets.token_hex(8), 0, 0
        self.members: list[Member] = []
        self.faults = Faults()
        self._strange: set[int] = set()  # addresses that are not let in

    @property
    def n_clients(self) -> int:
        """Clients of all sites."""
        return sum(member.n_clients for member in self.members)

    def by_address(self) -> dict[int, Member]:
        """Say who is reached where."""
        return {m.address: m for m in self.members if m.address is not None}

    def note(self, site: Any, fault: str, reason: str) -> None:
        """Name a fault in the log and in the table."""
        self.faults.note(self.round, site, fault, reason)
        for member in self.members:
            if member.name == site:
                member.pending = self.number if fault in ("silent", "failed") else 0

    def refuse(self, members: Iterable[Member], reasons: dict[str, str]) -> None:
        """Let no more come from the sites that cannot agree."""
        for name, reason in reasons.items():
            self.note(name, "refused", reason)
        out = {member.address for member in members if member.name in reasons}
        self._strange |= {address for address in out if address is not None}

    # at the start

    def gather(self) -> list[Member]:
        """Greet whoever is there until all are."""
        return self._gather(self._let_in)

    def gather_again(self) -> None:
        """Find the members of a run that goes on."""
        self._gather(self._let_back)
        for member in self.members:
            if member.address is None and not member.frozen:
                self.note(member.name, "silent", "it is not there as the run goes on")

    def _gather(self, let_in: LetIn) -> list[Member]:
        sites = self._sites
        found: list[Member] = []
        greeted: set[int] = set()
        until = time.monotonic() + self._patience
        self.number += 1
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
            message = {"kind": "hello", "run": self.run, "number": self.number}
            data = pack_state(message | {"told": self._told})
            self._transport.send(
                dict.fromkeys(addresses, data), self.number, self._patience
            )
        return addresses

    def _read_hello(
        self,
        address: int,
        content: bytes | NoAnswer,
        found: list[Member],
        let_in: LetIn,
    ) -> Member | None:
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
            self.note(name, "refused", str(error))
            self._strange.add(address)
            return None

    def _let_in(self, member: Member, found: list[Member]) -> None:
        sites = self._sites
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

    def _let_back(self, member: Member, found: list[Member]) -> None:
        other = self._known(member)
        if other.address is not None:
            raise MessageError(f"another site has the name {member.name}")
        other.address = member.address

    def _known(self, member: Member) -> Member:
        """Find the member that a site says it is."""
        for other in self.members:
            if other.name == member.name:
                if other.clients.tolist() != member.clients.tolist():
                    raise MessageError("its clients are not those of the start")
                return other
        raise MessageError("the run has begun without it")

    # during the run

    def find_moved(self) -> None:
        """Greet new addresses: a site that was started again has another one."""
        here = set(self._transport.addresses())
        known = {member.address for member in self.members} | self._strange
        self._greet(here - known)
        self._strange |= here - known  # until it says who it is

    def meet_again(self, address: int, content: bytes | NoAnswer) -> None:
        """Take a site that was started again under its new address."""
        here = set(self._transport.addresses())

        def let_in(member: Member, _: list[Member]) -> None:
            other = self._known(member)
            if other.address in here and other.pending == 0:
                raise MessageError(
                    f"it bears the name of site {member.name}, which is there"
                )
            other.address = address
            self._strange.discard(address)

        self._read_hello(address, content, [], let_in)
