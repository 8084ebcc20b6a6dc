"""Private sums: masks that cancel, so that the coordinator reads the sum alone.

Bonawitz et al., "Practical secure aggregation for privacy-preserving machine
learning", CCS 2017, figure 4 against an honest-but-curious coordinator. Each exchange
has keys of its own:

1. `keys`    a participant gives two public keys;
2. `share`   it cuts its mask key s and its own seed b into shares for the others;
3. `mask`    it sends x + PRG(b) + sum_{v > u} PRG(s_uv) - sum_{v < u} PRG(s_uv);
4. `reveal`  it gives shares of b of those who answered, of s of those who did not.

Nobody ever reveals both for one client, so a reply that comes late stays hidden by
PRG(b). A participant's secrets follow from its `secret` and the number of the exchange:
a step that is done twice sends the same bits. Nothing here knows how messages travel.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, TypeAlias

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from . import shamir
from .message import MessageError

Arrays: TypeAlias = dict[str, np.ndarray]

CHANNEL, MASK = range(2)  # the two keys of a participant
BOX_BYTES = 2 * shamir.SHARE_BYTES + 16  # two shares and a tag
_ONCE = bytes(12)  # a nonce: each key seals one box only


def stream(seed: bytes, n_bytes: int) -> bytes:
    """Give the first bytes of ChaCha20's stream under a seed of 32 bytes."""
    return (
        Cipher(algorithms.ChaCha20(seed, bytes(16)), None)
        .encryptor()
        .update(bytes(n_bytes))
    )


def derive(secret: bytes, *labels: bytes | str | int, n_bytes: int = 32) -> bytes:
    """Derive bytes for one purpose, told by its labels, from a secret."""
    parts = [x if isinstance(x, bytes) else str(x).encode() for x in labels]
    # Each part has its length in front: no two rows of labels read the same.
    info = b"fedcore" + b"".join(len(p).to_bytes(4, "big") + p for p in parts)
    return HKDF(SHA256(), n_bytes, None, info).derive(secret)


class MaskedParticipant:
    """A participant's part in one private sum.

    Parameters
    ----------
    number : int
        Its place in the federation, from 0.
    threshold : int
        How many must answer, and reveal, before a sum can be read.
    secret : bytes
        At least 32 random bytes that nobody else knows; may serve many exchanges, if
        a repeated exchange repeats the reply.
    run, exchange : bytes, int
        What the participants know the sum by.

    Raises
    ------
    MessageError
        From any step, if what the coordinator says would give a reply away.
    """

    def __init__(
        self, number: int, threshold: int, secret: bytes, run: bytes, exchange: int
    ):
        self._number, self._threshold = number, threshold
        self._secret, self._about = secret, (run, exchange)
        channel, mask = (self._derive("key", k) for k in (CHANNEL, MASK))
        self._mask_key = mask
        self._channel = X25519PrivateKey.from_private_bytes(channel)
        self._mask = X25519PrivateKey.from_private_bytes(mask)
        self._seed = self._derive("seed")
        self._public: dict[int, np.ndarray] = {}
        self._masked: set[int] = set()
        self._shares: dict[int, tuple[bytes, bytes]] = {}
        self._has_revealed = False

    def _derive(self, *labels, n_bytes: int = 32) -> bytes:
        labels = (*self._about, self._number, *labels)
        return derive(self._secret, *labels, n_bytes=n_bytes)

    def _agree(self, own: X25519PrivateKey, public: np.ndarray, *labels) -> bytes:
        try:
            secret = own.exchange(X25519PublicKey.from_public_bytes(public.tobytes()))
        except ValueError:
            raise MessageError("public holds a key of low order") from None
        return derive(secret, *self._about, *labels)

    def keys(self) -> Arrays:
        """Give the public keys: `public` (2, 32)."""
        keys = [k.public_key().public_bytes_raw() for k in (self._channel, self._mask)]
        return {"public": np.frombuffer(b"".join(keys), np.uint8).reshape(2, 32)}

    def share(self, directory: Arrays) -> Arrays:
        """Seal shares of both secrets for the members of the directory.

        Returns `boxes` (n, 82), a row a member; its own row is zero.
        """
        members = directory["members"].tolist()
        self._check_members("directory", members)
        if self._public:
            raise MessageError("directory came twice, expected one an exchange")
        self._public = dict(zip(members, directory["public"], strict=True))
        if (self._public[self._number] != self.keys()["public"]).any():
            raise MessageError("directory has another key for this participant")
        places = [member + 1 for member in members]
        n_bytes = 48 * (self._threshold - 1)
        of_key, of_seed = (
            shamir.split(secret, stream(self._derive("shares", k), n_bytes), places)
            for k, secret in enumerate((self._mask_key, self._seed))
        )
        boxes = np.zeros((len(members), BOX_BYTES), np.uint8)
        for row, member in enumerate(members):
            both = of_key[row], of_seed[row]
            if member == self._number:
                self._shares[member] = both
                continue
            key = self._channel_key(self._number, member)
            box = ChaCha20Poly1305(key).encrypt(_ONCE, b"".join(both), None)
            boxes[row] = np.frombuffer(box, np.uint8)
        return {"boxes": boxes}

    def _channel_key(self, sender: int, receiver: int) -> bytes:
        other = receiver if sender == self._number else sender
        public = self._public[other][CHANNEL]
        return self._agree(self._channel, public, "box", sender, receiver)

    def mask(self, values: np.ndarray, boxes: Arrays) -> Arrays:
        """Hide `values` (m,) uint64 by the masks of all who sent a box.

        Returns `masked` (m,) uint64.
        """
        members = boxes["members"].tolist()
        self._check_members("boxes", members)
        if self._masked:
            raise MessageError("boxes came twice, expected once an exchange")
        if not set(members) <= set(self._public):
            raise MessageError("boxes has members that the directory lacks")
        self._masked = set(members)
        total = values + _numbers(self._seed, len(values))
        for member, box in zip(members, boxes["boxes"], strict=True):
            if member == self._number:
                continue
            key = self._channel_key(member, self._number)
            try:
                both = ChaCha20Poly1305(key).decrypt(_ONCE, box.tobytes(), None)
            except InvalidTag:
                raise MessageError(
                    f"the box of participant {member} is broken"
                ) from None
            half = shamir.SHARE_BYTES
            self._shares[member] = both[:half], both[half:]
            pair = (min(member, self._number), max(member, self._number))
            seed = self._agree(self._mask, self._public[member][MASK], "mask", *pair)
            _add_mask(total, seed, plus=self._number < member)
        return {"masked": total}

    def reveal(self, answered: Arrays) -> Arrays:
        """Give the shares that unmask the sum of those who `answered`, and no other.

        Returns `members` (n,), all that masked, and `shares` (n, 33): of the seed b of
        a member that answered, of the mask key s of one that did not.
        """
        heard = answered["members"].tolist()
        self._check_members("answered", heard)
        if self._has_revealed:
            raise MessageError("answered came twice, expected once an exchange")
        if not set(heard) <= self._masked:
            raise MessageError("answered has members that sent no box")
        self._has_revealed = True
        members = sorted(self._masked)
        given = [self._shares[m][m in set(heard)] for m in members]
        shares = np.frombuffer(b"".join(given), np.uint8)
        return {
            "members": np.array(members, np.int64),
            "shares": shares.reshape(-1, shamir.SHARE_BYTES),
        }

    def _check_members(self, name: str, members: list[int]) -> None:
        if len(set(members)) < len(members) or self._number not in members:
            raise MessageError(
                f"{name} names {members}, expected distinct ones, with {self._number}"
            )
        if len(members) < self._threshold:
            raise MessageError(
                f"{name} names {len(members)} participants, expected at least "
                f"{self._threshold}: the sum of fewer is not private"
            )


class MaskedSum:
    """The coordinator's part in one private sum; it passes on, and adds.

    Parameters
    ----------
    threshold : int
    run, exchange : bytes, int
        As the participants have them.

    Attributes
    ----------
    refused : dict of int to str
        Participants that sent what cannot be read, and what it was. They count as if
        they had sent nothing from then on.

    Raises
    ------
    TooFew
        From any step, if fewer than `threshold` have answered.
    """

    def __init__(self, threshold: int, run: bytes, exchange: int):
        self._threshold, self._about = threshold, (run, exchange)
        self._public: dict[int, np.ndarray] = {}
        self._senders: list[int] = []
        self._masked: dict[int, np.ndarray] = {}
        self.refused: dict[int, str] = {}

    def directory(self, keys: Mapping[int, Arrays]) -> Arrays:
        """Collect public keys; all participants get the same answer."""
        self._public = self._read("public", keys, (2, 32), np.uint8)
        return {
            "members": np.array(list(self._public), np.int64),
            "public": np.stack(list(self._public.values())),
        }

    def boxes(self, shared: Mapping[int, Arrays]) -> dict[int, Arrays]:
        """Sort boxes by whom they are for."""
        shape = (len(self._public), BOX_BYTES)
        boxes = self._read("boxes", shared, shape, np.uint8, self._public)
        self._senders = list(boxes)
        row = {member: place for place, member in enumerate(self._public)}
        everything = np.stack(list(boxes.values()))
        members = np.array(self._senders, np.int64)
        return {
            v: {"members": members, "boxes": everything[:, row[v]]}
            for v in self._senders
        }

    def answered(self, masked: Mapping[int, Arrays], length: int) -> Arrays:
        """Take masked replies (length,); what comes later is of no use to anybody."""
        self._masked = self._read("masked", masked, (length,), "<u8", self._senders)
        return {"members": np.array(list(self._masked), np.int64)}

    def open(self, revealed: Mapping[int, Arrays]) -> np.ndarray:
        """Take off the masks: the sum (m,) uint64 of those who answered."""
        shape = (len(self._senders), shamir.SHARE_BYTES)
        shares = self._read("shares", revealed, shape, np.uint8, self._masked)
        chosen = list(shares)[: self._threshold]
        places = [u + 1 for u in chosen]
        lagrange = shamir.weights(places)

        def secret(row: int) -> bytes:
            own = [shares[u][row].tobytes() for u in chosen]
            return shamir.join(dict(zip(places, own, strict=True)), lagrange)

        total = np.zeros_like(next(iter(self._masked.values())))
        for masked in self._masked.values():
            total += masked
        for row, member in enumerate(self._senders):
            if member in self._masked:
                total -= _numbers(secret(row), len(total))
            else:
                self._take_off(total, member, secret(row))
        return total

    def _take_off(self, total: np.ndarray, lost: int, key: bytes) -> None:
        """Remove the masks that the others share with one whose reply is missing."""
        private = X25519PrivateKey.from_private_bytes(key)
        for member in self._masked:
            public = self._public[member][MASK].tobytes()
            secret = private.exchange(X25519PublicKey.from_public_bytes(public))
            pair = (min(member, lost), max(member, lost))
            seed = derive(secret, *self._about, "mask", *pair)
            _add_mask(total, seed, plus=member > lost)

    def _read(
        self,
        name: str,
        messages: Mapping[int, Arrays],
        shape: tuple[int, ...],
        dtype: Any,
        known: Collection[int] | None = None,
    ) -> dict[int, np.ndarray]:
        """Take an array out of each message, by participant; refuse what is none."""
        kept: dict[int, np.ndarray] = {}
        for u in sorted(messages):
            value = messages[u].get(name)
            if known is not None and u not in known:
                self.refused[u] = f"{name} came without what goes before"
            elif not isinstance(value, np.ndarray) or value.dtype != dtype:
                told = getattr(value, "dtype", type(value).__name__)
                self.refused[u] = f"{name} is {told}, expected {np.dtype(dtype)}"
            elif value.shape != shape:
                self.refused[u] = f"{name} has shape {value.shape}, expected {shape}"
            else:
                kept[u] = value
        if len(kept) < self._threshold:
            raise TooFew(
                f"{len(kept)} participants sent {name}, expected at least "
                f"{self._threshold}"
            )
        return kept


class TooFew(MessageError):
    """Too few participants are left to read a sum; it stays hidden."""


def _numbers(seed: bytes, n: int) -> np.ndarray:
    return np.frombuffer(stream(seed, 8 * n), "<u8")


def _add_mask(total: np.ndarray, seed: bytes, *, plus: bool) -> None:
    if plus:
        total += _numbers(seed, len(total))
    else:
        total -= _numbers(seed, len(total))
