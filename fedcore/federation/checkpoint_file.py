"""A checkpoint on disk: always whole, of one run at a time, refused by any other."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from .checkpoint import pack_state, unpack_state
from .message import MessageError
from .progress import Progress

try:
    import fcntl
except ImportError:  # no POSIX: there is no lock then
    fcntl = None  # type: ignore[assignment]

_MAGIC = b"fedckpt\x01"  # the last byte is the version of the form
_DIGEST = 32


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why."""


class CheckpointFile:
    """The checkpoint of one run.

    Parameters
    ----------
    path : path-like
        A file; or a folder, in which each run has a file of its own.
    every : int
        Rounds from one checkpoint to the next.
    told : mapping of str to str
        What the run is about, as `fingerprint` says.
    seed : int or None
        None: any, the one of the checkpoint is taken.
    max_rounds : int or None
        May differ from the one that the checkpoint was written under.

    Notes
    -----
    The file is written beside, flushed to disk and renamed, so at any moment there is
    the old one or the new one. A lock on a third file, which the system frees when a
    process dies, keeps two runs apart.
    """

    def __init__(
        self,
        path: Any,
        *,
        every: int,
        told: Mapping[str, str],
        seed: int | None,
        max_rounds: int | None = None,
    ):
        self.path = Path(path)
        if self.path.is_dir():
            name = repr([sorted(told.items()), seed]).encode()
            self.path /= f"{blake2b(name, digest_size=8).hexdigest()}.ckpt"
        self._every, self._told, self._seed = every, dict(told), seed
        self._max_rounds = max_rounds
        self._saved_round = self._last_round = 1
        self._spare: dict | None = None
        self._lock = _lock(self._beside("lock"), self.path)

    def close(self) -> None:
        """Let another run have the file."""
        if self._lock is not None:
            self._beside("tmp").unlink(missing_ok=True)
            self._beside("lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def load(self) -> tuple[Progress, dict[str, Any]] | None:
        """Read the progress and what else was saved; None if there is no file.

        Raises
        ------
        CheckpointError
            If the file is broken, or of another run.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        content = self._read(data)
        try:
            chosen = self._choose(content)
            progress, extra = Progress.of(chosen["progress"]), chosen["extra"]
        except CheckpointError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint {self.path} does not hold what a run needs: {error!r:.80}"
            ) from None
        self._spare = content["spare"]
        self._saved_round = self._last_round = progress.state["round"]
        return progress, extra

    def offer(
        self,
        progress: Progress,
        extra: Callable[[], dict[str, Any]],
        *,
        now: bool = False,
    ) -> bool:
        """Save the progress if it is time to; say whether it was.

        Parameters
        ----------
        progress : Progress
        extra : callable
            Gives what else belongs to the checkpoint, as a dict of values.
        now : bool, default=False
            Save whatever the time.
        """
        state = progress.state
        round, done = state["round"], bool(state["done"])
        begins = round > self._last_round and not done
        self._last_round = round
        is_last = begins and round == self._max_rounds
        if not (now or done or is_last or round - self._saved_round >= self._every):
            return False
        snapshot = {
            "begins": begins,
            "progress": progress.dump(),
            "extra": extra(),
        }
        content = {
            "told": self._told | {"fedcore": _version()},
            "max_rounds": self._max_rounds,
            "current": snapshot,
            "spare": self._spare,
        }
        try:
            body = pack_state(content)
        except MessageError as error:
            raise CheckpointError(f"the run cannot be saved: {error}") from error
        check = blake2b(body, digest_size=_DIGEST).digest()
        write_whole(self.path, [_MAGIC, check, body], self._beside("tmp"))
        self._saved_round = round
        if is_last:
            # From here on max_rounds has its say: a longer run goes on from here.
            self._spare = snapshot
        return True

    def _beside(self, ending: str) -> Path:
        return self.path.with_name(f"{self.path.name}.{ending}")

    def _read(self, data: bytes) -> dict[str, Any]:
        start = len(_MAGIC) + _DIGEST
        if data[: len(_MAGIC) - 1] != _MAGIC[:-1]:
            raise CheckpointError(f"{self.path} is no checkpoint of fedcore")
        if data[len(_MAGIC) - 1 : len(_MAGIC)] != _MAGIC[-1:]:
            raise CheckpointError(
                f"checkpoint {self.path} has another version of the form than "
                f"{_MAGIC[-1]}, which this fedcore writes"
            )
        body = memoryview(data)[start:]
        check = blake2b(body, digest_size=_DIGEST).digest()
        if data[len(_MAGIC) : start] != check:
            raise CheckpointError(
                f"checkpoint {self.path} is damaged: its {len(data)} bytes do not have "
                f"the sum that was written with them"
            )
        try:
            return unpack_state(body, max_bytes=len(data))
        except MessageError as error:
            raise CheckpointError(f"checkpoint {self.path}: {error}") from None

    def _choose(self, content: dict[str, Any]) -> dict[str, Any]:
        """Find the snapshot that this run may go on from."""
        then, now = content["told"], self._told | {"fedcore": _version()}
        current = content["current"]
        differ = [
            f"{name} was {then.get(name, 'absent')}, is {now.get(name, 'absent')}"
            for name in [*now, *(then.keys() - now.keys())]
            if then.get(name) != now.get(name)
        ]
        seed = current["progress"]["seed"]
        if self._seed is not None and seed != self._seed:
            differ.append(f"the seed from random_state was {seed}, is {self._seed}")
        if differ:
            raise CheckpointError(
                f"checkpoint {self.path} is of another run: {'; '.join(differ)}"
            )
        most = (content["max_rounds"], self._max_rounds)
        for snapshot in (current, content["spare"]):
            if snapshot is not None and (
                most[0] == most[1] or _is_free(snapshot, min(most))
            ):
                return snapshot
        raise CheckpointError(
            f"checkpoint {self.path} has come to round "
            f"{current['progress']['state']['round']} under max_rounds={most[0]}, from "
            f"where there is no way to max_rounds={most[1]}"
        )


def _is_free(snapshot: dict[str, Any], max_rounds: int) -> bool:
    """Whether a run that is to end after `max_rounds` would have come this way too."""
    round = snapshot["progress"]["state"]["round"]
    return round < max_rounds or (round == max_rounds and snapshot["begins"])


def write_whole(path: Path, pieces: list[bytes], beside: Path) -> None:
    """Write a file so that at any moment there is the old one or the new one."""
    with open(beside, "wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _lock(path: Path, checkpoint: Path) -> int | None:
    if fcntl is None:
        return None
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise CheckpointError(
                f"checkpoint {checkpoint} is in use by another fit"
            ) from None
        # Whoever had it may have taken the file away in between.
        try:
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        except FileNotFoundError:
            pass
        os.close(lock)


def _version() -> str:
    from .. import __version__

    return __version__
