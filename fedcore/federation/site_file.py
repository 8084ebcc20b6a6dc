"""The states that a site keeps between two messages, in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from .checkpoint import pack_state, unpack_state
from .checkpoint_file import write_whole
from .faults import log
from .message import MessageError

_MAGIC, _DIGEST = b"fedsite\x01", 32


class SiteFile:
    """States by the number of the message that made them, of one run at a time.

    Parameters
    ----------
    folder : path-like
        Sites on one machine may share it.
    name : str
        Of the site.
    """

    def __init__(self, folder: Any, name: str):
        self.path = Path(folder) / f"{quote(name, safe='')}.site"

    def load(self, run: str) -> dict[int, dict[str, np.ndarray]]:
        """Read what was kept of this run; nothing if there is none."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        start = len(_MAGIC) + _DIGEST
        try:
            if data[: len(_MAGIC)] != _MAGIC:
                raise MessageError("it is no file of a site")
            if data[len(_MAGIC) : start] != _sum(data[start:]):
                raise MessageError("its bytes do not have the sum written with them")
            content = unpack_state(memoryview(data)[start:], max_bytes=len(data))
        except MessageError as error:
            log.warning("%s is damaged and left out: %s", self.path, error)
            return {}
        if content.get("run") != run:
            return {}
        return dict(zip(content["numbers"], content["states"], strict=True))

    def save(self, run: str, kept: Mapping[int, Mapping[str, np.ndarray]]) -> None:
        """Replace what was kept."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        states = [dict(state) for state in kept.values()]
        body = pack_state({"run": run, "numbers": list(kept), "states": states})
        beside = self.path.with_name(f"{self.path.name}.tmp")
        write_whole(self.path, [_MAGIC, _sum(body), body], beside)


def _sum(body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST).digest()
