"""Gaussian noise for clipped replies, and the account of what they tell of a client."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Real

import numpy as np
from sklearn.utils import check_scalar

LEAST_SIGMA = 8  # in units of the grid: sums of discrete Gaussians are then Gaussian
MOST_SIGMA = 2.0**45  # drawn from float64; sums of many stay below 2**63


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Differential privacy of whole clients: clip each reply, add noise to each sum.

    Parameters
    ----------
    clip : float
        The largest L2 norm of a client's reply to one exchange, all its numbers taken
        as one vector; longer ones are scaled down.
    multiplier : float
        Standard deviation of the noise of a sum, in units of `clip`.
    delta : float, default=1e-5
        Of the account; well below 1 / number of clients.

    Notes
    -----
    Two federations are neighbours if one client's replies are zero in one of them. A
    sum of n vectors, rounded towards zero on a grid, each with discrete Gaussian noise
    of variance sigma^2 / t, where at least t answer, has the Renyi divergence of the
    Gaussian mechanism to within exp(-600) [1]_ [2]_.

    References
    ----------
    .. [1] Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy",
       NeurIPS 2020.
    .. [2] Kairouz, Liu, Steinke, "The distributed discrete Gaussian mechanism for
       federated learning with secure aggregation", ICML 2021, theorem 1.
    """

    clip: float
    multiplier: float
    delta: float = 1e-5

    def check(self) -> None:
        """Raise ValueError or TypeError if a parameter is out of range."""
        neither = {"min_val": 0, "include_boundaries": "neither"}
        check_scalar(self.clip, "clip", Real, **neither)
        check_scalar(self.multiplier, "multiplier", Real, **neither)
        check_scalar(self.delta, "delta", Real, max_val=1, **neither)
        for name in ("clip", "multiplier"):
            if getattr(self, name) == np.inf:
                raise ValueError(f"{name} == inf, expected a finite number")

    def clipped(self, flat: np.ndarray, resolution: float) -> np.ndarray:
        """Scale a reply down to the norm `clip`, on the grid, where it stays below."""
        largest = np.abs(flat).max(initial=0)
        norm = largest * np.linalg.norm(flat / largest) if largest > 0 else 0.0
        # A hair less, since scaling rounds.
        scale = min(1.0, self.clip * (1 - 1e-12) / norm) if norm > 0 else 1.0
        return np.trunc(flat * scale / resolution) * resolution

    def sigma(self, resolution: float, threshold: int) -> float:
        """Give the deviation of one participant's share, in units of the grid."""
        sigma = self.multiplier * self.clip / resolution / threshold**0.5
        if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
            raise ValueError(
                f"resolution == {resolution:.3g} does not suit noise of "
                f"{self.multiplier * self.clip:.3g}, expected from "
                f"{resolution * sigma / MOST_SIGMA:.3g} to "
                f"{resolution * sigma / LEAST_SIGMA:.3g}"
            )
        return sigma

    def epsilon(self, n_exchanges: int) -> float:
        """Give epsilon for a client that took part in so many exchanges.

        Sampling is not counted in favour: the coordinator knows whom it asked.
        """
        if not n_exchanges:
            return 0.0
        return _epsilon(float(self.multiplier), float(self.delta), int(n_exchanges))


@lru_cache(maxsize=256)
def _epsilon(multiplier: float, delta: float, n: int) -> float:
    import dp_accounting

    accountant = dp_accounting.rdp.RdpAccountant()
    accountant.compose(dp_accounting.GaussianDpEvent(multiplier), n)
    return float(accountant.get_epsilon(delta))


def discrete_gaussian(
    sigma: float, n: int, stream: Callable[[int], bytes]
) -> np.ndarray:
    """Draw integers with probabilities proportional to exp(-k^2 / (2 sigma^2)).

    By rejection from a discrete Laplace, as Canonne, Kamath and Steinke (algorithm 3),
    with the uniform numbers of float64.

    Parameters
    ----------
    sigma : float
    n : int
    stream : callable
        Gives so many random bytes, the same ones followed by more if asked for more.

    Returns
    -------
    (n,) int64
    """
    scale = np.floor(sigma) + 1
    drawn = 2 * n + 32  # a little over one half is accepted
    while True:
        u = np.frombuffer(stream(24 * drawn), "<u8").reshape(drawn, 3)
        unit = ((u >> np.uint64(11)) + 0.5) * 2.0**-53
        size = np.floor(-scale * np.log(unit[:, 0]))
        negative = (u[:, 1] & np.uint64(1)).astype(bool)
        kept = ~(negative & (size == 0))  # zero has one sign
        chance = np.exp(-((size - sigma**2 / scale) ** 2) / (2 * sigma**2))
        kept &= unit[:, 2] < chance
        if np.count_nonzero(kept) >= n:
            value = np.where(negative, -size, size)[kept][:n]
            return value.astype(np.int64)
        drawn *= 2
