"""PrivateSums: an engine's coordinator reads sums over clients, never one's reply."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .contract import Request
from .fixed_point import decode, encode, flatten, length, unflatten
from .message import pack, unpack
from .noise import GaussianNoise, discrete_gaussian

FEWEST = 3  # of two, each learns the other's reply from the sum


@dataclass(frozen=True, slots=True)
class PrivateSums:
    """Secure aggregation of every reply; optionally with noise.

    Parameters
    ----------
    resolution : float, default=2**-30
        Replies are rounded to multiples of it. Numbers up to 2**63 resolution / n can
        be sent by n participants; larger ones are refused by name.
    threshold : float, default=2/3
        More than this share of the asked participants must answer, else the exchange
        counts for nobody. At least 1/2, below which two groups could be told
        different stories.
    noise : GaussianNoise, default=None
        Clip the replies and add noise inside the masks.

    Notes
    -----
    Only requests whose replies are all of kind `Sum` can be private, and only if their
    clients work side by side. Sparse sums are sent whole, for their places would tell
    what a client has. docs/privacy.md says what is not protected.
    """

    resolution: float = 2.0**-30
    threshold: float = 2 / 3
    noise: GaussianNoise | None = None

    def check(self) -> None:
        """Raise an error if a parameter is out of range or a library is missing."""
        neither = {"min_val": 0, "include_boundaries": "neither"}
        check_scalar(self.resolution, "resolution", Real, **neither)
        if self.resolution == math.inf:
            raise ValueError("resolution == inf, expected a finite number")
        limits = {"min_val": 0.5, "max_val": 1, "include_boundaries": "left"}
        check_scalar(self.threshold, "threshold", Real, **limits)
        if self.noise is not None and not isinstance(self.noise, GaussianNoise):
            raise TypeError(f"noise is {self.noise!r}, expected None or GaussianNoise")
        if self.noise is not None:
            self.noise.check()
        try:
            import cryptography  # noqa: F401

            if self.noise is not None:
                import dp_accounting  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "privacy needs cryptography and dp-accounting: "
                "pip install fedcore-learn[privacy]"
            ) from error

    def least(self, n_asked: int) -> int:
        """Count the participants that must answer of those that are asked."""
        return min(math.floor(self.threshold * n_asked) + 1, n_asked)

    def check_request(self, request: Request, n_asked: int) -> None:
        """Raise ValueError if the replies to a request cannot be private."""
        length(request.reply)
        if request.lanes is not None:
            raise ValueError(
                "the clients of this request work one after another and see each "
                "other's work, expected side by side: private sums are not for "
                'aggregation="sequential" or scores of held-out rows'
            )
        if n_asked < FEWEST:
            raise ValueError(
                f"{n_asked} participants are asked, expected at least {FEWEST}: a sum "
                "over fewer is not private"
            )

    def to_integers(self, request: Request, reply: Mapping, n: int, t: int, noise):
        """Make of a participant's checked reply what its masks hide: (m,) uint64.

        Parameters
        ----------
        request : Request
        reply : mapping
        n, t : int
            Participants that are asked, and must answer.
        noise : callable
            Gives random bytes that nobody else knows.
        """
        flat = flatten(request.reply, reply)
        if self.noise is None:
            return encode(request.reply, flat, self.resolution, n)
        sigma = self.noise.sigma(self.resolution, t)
        flat = self.noise.clipped(flat, self.resolution)
        values = encode(request.reply, flat, self.resolution, n)
        return values + discrete_gaussian(sigma, len(flat), noise).view(np.uint64)


class PrivateRun:
    """What an engine that simulates all participants keeps over one run.

    The participants' secrets follow from the seed, so that a simulation can be
    repeated; real ones draw theirs from the system.
    """

    def __init__(
        self,
        privacy: PrivateSums,
        n_clients: int,
        seed: int,
        kept: dict[str, Any] | None = None,
    ):
        from .masks import derive

        self.privacy = privacy
        self._run = derive(seed.to_bytes(16, "big"), "run")
        self._secrets = [
            derive(seed.to_bytes(16, "big"), "client", k) for k in range(n_clients)
        ]
        self._n_exchanges = np.zeros(n_clients, np.int64)
        self._n_opened = 0
        if kept is not None:
            self._n_exchanges = kept["n_exchanges"].copy()
            self._n_opened = kept["n_opened"]

    def dump(self) -> dict[str, Any]:
        """Give what a resumed run must know."""
        return {"n_exchanges": self._n_exchanges.copy(), "n_opened": self._n_opened}

    def fold(self, request: Request, asked: np.ndarray) -> PrivateFold:
        """Begin an exchange: keys and shares of all that are asked."""
        self.privacy.check_request(request, len(asked))
        # Evaluations share their number with the exchange after them.
        self._n_opened += 1
        return PrivateFold(self, request, asked, self._n_opened)

    def figures(self) -> dict[str, float]:
        """Tell what the client that took part most often has spent."""
        noise = self.privacy.noise
        if noise is None:
            return {}
        return {"epsilon": noise.epsilon(int(self._n_exchanges.max(initial=0)))}


class PrivateFold:
    """One private sum among simulated participants; stands in for `fold.Fold`."""

    def __init__(self, run: PrivateRun, request: Request, asked, exchange: int):
        from .masks import MaskedParticipant, MaskedSum, derive

        self._run, self._request, self._exchange = run, request, exchange
        self._derive = derive
        self._n, self.least = len(asked), run.privacy.least(len(asked))
        self.who = np.zeros(len(run._secrets), bool)
        self._up = self._down = 0
        about = run._run, exchange
        self._people = {
            k: MaskedParticipant(k, self.least, run._secrets[k], *about)
            for k in asked.tolist()
        }
        self._sum = MaskedSum(self.least, *about)
        people = self._people.items()
        keys = {k: self._sent(p.keys()) for k, p in people}
        directory = self._sum.directory(keys)
        shared = {k: self._sent(p.share(self._told(directory))) for k, p in people}
        self._boxes = self._sum.boxes(shared)
        self._masked: dict[int, dict] = {}

    def _sent(self, arrays: dict) -> dict:
        """Let a message travel to the coordinator."""
        data = pack(arrays)
        self._up += len(data)
        return unpack(data)[0]

    def _told(self, arrays: dict) -> dict:
        """Let a message travel to a participant."""
        data = pack(arrays)
        self._down += len(data)
        return unpack(data)[0]

    def add(self, active: np.ndarray, reply: dict) -> None:
        """Mask the reply of one client."""
        (k,) = active.tolist()
        secret, about = self._run._secrets[k], (self._run._run, self._exchange)

        def noise(n_bytes: int) -> bytes:
            from .masks import stream

            return stream(self._derive(secret, *about, k, "noise"), n_bytes)

        values = self._run.privacy.to_integers(
            self._request, reply, self._n, self.least, noise
        )
        masked = self._people[k].mask(values, self._told(self._boxes[k]))
        self._masked[k] = self._sent(masked)
        self._run._n_exchanges[k] += 1

    def result(self) -> dict[str, Any]:
        """Open the sum; zeros, over nobody, if too few have answered."""
        from .masks import TooFew

        kinds = self._request.reply
        try:
            answered = self._sum.answered(self._masked, length(kinds))
        except TooFew:
            return unflatten(kinds, np.zeros(length(kinds)))
        revealed = {
            k: self._sent(self._people[k].reveal(self._told(answered)))
            for k in self._masked
        }
        total = self._sum.open(revealed)
        self.who[list(self._masked)] = True
        return unflatten(kinds, decode(total, self._run.privacy.resolution))

    def bytes_up(self) -> int:
        """Bytes of all messages from the participants."""
        return self._up

    def bytes_down(self) -> int:
        """Bytes of all messages to them, without the request itself."""
        return self._down
