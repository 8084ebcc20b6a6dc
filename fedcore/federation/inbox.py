"""The answers to one message: which come in time and are as asked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from .check import check_reply
from .checkpoint import unpack_state
from .contract import Request
from .membership import Membership
from .message import MAX_BYTES, MessageError
from .roster import Member
from .transport import NoAnswer, Transport
from .wire import most_bytes, read_reply


class Inbox:
    """Collect the answers to the message that was sent last.

    Parameters
    ----------
    sites : Membership
    transport : Transport
    request : Request
    active : dict
        The clients that were asked, by the name of their site.

    Attributes
    ----------
    answers : dict
        What counts, by site.
    bytes_up, n_late, n_refused : int
        The last two count clients.
    """

    def __init__(
        self,
        sites: Membership,
        transport: Transport,
        request: Request,
        active: Mapping[str, np.ndarray],
    ):
        self._sites, self._transport = sites, transport
        self._request, self._active = request, active
        self._waiting, self._seen = set(active), set[str]()
        self.answers: dict[str, dict[str, Any]] = {}
        self.bytes_up = self.n_late = self.n_refused = 0

    def collect(self, wait: float, wait_again: float) -> None:
        """Wait for everybody, so many seconds at most.

        A site that left its last message without an answer may be gone for good: it is
        waited for `wait_again` seconds, until something is heard of it.
        """
        begun = time.monotonic()
        by_address = self._sites.by_address()
        until = {
            member.name: begun + (min(wait_again, wait) if member.pending else wait)
            for member in by_address.values()
        }
        while (left := self._left(until)) > 0:
            for address, content in self._transport.receive(left):
                member = by_address.get(address)
                if member is None:
                    self._sites.meet_again(address, content)
                elif isinstance(content, NoAnswer):
                    if member.name in self._waiting:
                        self._sites.note(member.name, "failed", content.reason)
                        self._waiting.discard(member.name)
                else:
                    until[member.name] = begun + wait
                    self._take(member, content)
        for name in sorted(self._waiting):
            seconds = until[name] - begun
            self._sites.note(name, "silent", f"no answer within {seconds:g} s")

    def _left(self, until: dict[str, float]) -> float:
        now = time.monotonic()
        return max((until[name] - now for name in self._waiting), default=0.0)

    def _take(self, member: Member, content: bytes) -> None:
        self.bytes_up += len(content)
        n_active = len(self._active.get(member.name, ()))
        is_first = member.name in self._waiting
        try:
            answer = self._read(member, content, n_active)
            if self._is_old(member, answer):
                return
            self._waiting.discard(member.name)
            self._seen.add(member.name)
            reply = read_reply(self._request.reply, answer.get("reply"))
            check_reply(self._request.reply, reply, n_active)
            self.answers[member.name] = reply
        except MessageError as error:
            self._sites.note(member.name, "refused", str(error))
            self.n_refused += n_active * is_first
            self._waiting.discard(member.name)

    def _read(self, member: Member, content: bytes, n_active: int) -> dict[str, Any]:
        limit = min(most_bytes(self._request.reply, max(n_active, 1)), MAX_BYTES)
        answer = unpack_state(content, max_bytes=limit)
        if answer.get("site") != member.name:
            raise MessageError(
                f"it bears the name of site {answer.get('site')!s:.80}, "
                f"expected {member.name}"
            )
        if answer.get("run") != self._sites.run:
            raise MessageError("it belongs to another run")
        if "wrong" in answer:
            raise MessageError(f"it disagrees: {answer['wrong']!s:.200}")
        if not isinstance(answer.get("number"), int):
            raise MessageError("it names no message")
        if answer["number"] == self._sites.number and "lost" in answer:
            member.frozen = True
            self._sites.note(
                member.name,
                "frozen",
                f"it has lost its state as of message {member.accepted}; what it gave "
                f"stays in the model, it takes no further part",
            )
            raise MessageError("it has nothing to start from")
        return answer

    def _is_old(self, member: Member, answer: dict[str, Any]) -> bool:
        number, last = answer["number"], self._sites.number
        if number > last:
            raise MessageError(f"it answers message {number}, which was never sent")
        if number == last and member.name not in self._seen:
            return False
        if number in (last, member.accepted):
            self._sites.note(
                member.name, "twice", f"message {number}: the first counts"
            )
        else:
            self.n_late += member.n_clients
            self._sites.note(
                member.name,
                "late",
                f"its answer to message {number} came after message {last} was sent",
            )
        return True
