"""Timing: how long clients take, how long the coordinator waits, what gets lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_scalar

from .._kernels import _rng
from .contract import Key

# (c, r, c0) of a pass, seconds: bench/fit_cost_model.py on one core.
DENSE_COST = (5e-10, 1.5e-7, 0.0)
SPARSE_COST = (5e-9, 1.3e-7, 5e-7)


@dataclass(frozen=True, slots=True, eq=False)
class Timing:
    """Virtual time of a simulated federation: stragglers, deadlines and losses.

    The coordinator sends w, collects replies until `wait`, adds them for `sum_time`,
    and sends the new w to everyone. A reply counts if it arrives within `wait`. A
    client that still computes when the new w comes is interrupted and its work rolled
    back; a reply that comes while the coordinator adds is discarded. When all asked
    clients have answered, the coordinator does not wait on.

    Parameters
    ----------
    delay : frozen distribution of scipy.stats, or callable
        How long a client computes. A draw of the distribution, for each client and
        exchange, is multiplied by the cost of the work, ``passes (c (m + d) + r n +
        c0)`` with n rows, d columns and m entries (n d if dense): with a distribution
        of mean 1 that is the mean. A callable ``delay(sizes, d, key)`` gives the
        seconds (n_clients,) itself: `sizes` are the clients' numbers of rows, `key` is
        (seed, number of the exchange).
    wait : float or callable
        Seconds that the coordinator collects; ``inf``: until all have answered. A
        callable gets the number of the exchange, from 1; those that wait for everybody
        count too.
    sum_time : float, default=0.0
        Seconds that it takes to add the replies.
    dropout : float, default=0.0
        Probability that a reply is lost, each time anew.
    latency : float or array-like of shape (n_clients,), default=0.0
        Seconds that a message is under way, whatever its size. One a client: in the
        order of the rows where each client's stand together, else of `clients_`.
    bandwidth : float or array-like of shape (n_clients,), default=inf
        Bytes a second between a client and the coordinator.
    cost : (float, float, float), default=None
        The constants c, r and c0 of the cost model, in seconds. None: as measured for
        the kernel of `FedMTLSVC` on one core, (5e-10, 1.5e-7, 0) for dense rows and
        (5e-9, 1.3e-7, 5e-7) for sparse ones.
    trace : bool, default=False
        Keep every message, 33 bytes each; see `Trace`.

    Notes
    -----
    With r = c the cost model is the published one. It explains 0.62 to 0.70 of the
    variance of the logarithm of the kernel's time over 35 dense sizes (10 to 3000 rows,
    5 to 1000 columns) and 0.91 to 0.93 over 48 sparse ones, because a visit to a row
    costs more than to an entry; with r of its own 0.95 and 0.97 to 0.98, and four of
    five predictions are within a factor 1.9 of what was measured.

    In exchanges that need everybody, such as those that measure a duality gap, there
    is no deadline, and a lost reply is computed and sent again. Where clients take
    turns (``aggregation="sequential"``) each has `wait` for itself and its lane goes on
    without it when it is late. Draws depend on the seed and the exchange alone.

    Raises
    ------
    ValueError
        If an argument is not as described.

    References
    ----------
    A. Ponomarenko-Timofeev et al., "Multi-Task Model Personalization for Federated
    Supervised SVM in Heterogeneous Networks": the message sequence of its section on
    heterogeneous participants.

    Examples
    --------
    >>> from scipy.stats import gamma
    >>> from fedcore import LocalEngine, Timing
    >>> engine = LocalEngine(timing=Timing(gamma(2, scale=0.5), wait=1e-3, dropout=0.1))
    """

    delay: Any
    wait: float | Callable[[int], float]
    sum_time: float = 0.0
    dropout: float = 0.0
    latency: Any = 0.0
    bandwidth: Any = np.inf
    cost: tuple[float, float, float] | None = None
    trace: bool = False

    def __post_init__(self):
        if not callable(self.delay) and _quantiles(self.delay) is None:
            raise ValueError(
                f"delay is {self.delay!r}, expected a frozen distribution of "
                f"scipy.stats or a callable"
            )
        if not callable(self.delay) and self.delay.support()[0] < 0:
            raise ValueError(
                f"delay begins at {self.delay.support()[0]}, expected a distribution "
                f"of times, at least 0"
            )
        if not callable(self.wait):
            _check_wait(self.wait, self.dropout)
        for name in ("sum_time", "dropout"):
            value = getattr(self, name)
            if isinstance(value, Real) and not np.isfinite(float(value)):
                raise ValueError(f"{name} is {value}, expected a finite number")
        check_scalar(self.sum_time, "sum_time", Real, min_val=0)
        check_scalar(
            self.dropout,
            "dropout",
            Real,
            min_val=0,
            max_val=1,
            include_boundaries="left",
        )
        latency = np.asarray(self.latency, float)
        bandwidth = np.asarray(self.bandwidth, float)
        for name, array, fine, expected in (
            ("latency", latency, (latency >= 0) & (latency < np.inf), "finite seconds"),
            ("bandwidth", bandwidth, bandwidth > 0, "more than 0 bytes a second"),
        ):
            if array.ndim > 1 or not np.all(fine):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r}, expected {expected}, a number "
                    f"or one a client"
                )
        if self.cost is not None and (
            len(self.cost) != 3 or not all(np.isfinite(c) and c >= 0 for c in self.cost)
        ):
            raise ValueError(f"cost is {self.cost!r}, expected (c, r, c0), at least 0")

    def __repr__(self) -> str:
        parts = [f"delay={_name(self.delay)}", f"wait={self.wait!r}"]
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if np.ndim(value) or value != default:
                parts.append(f"{name}={value!r}")
        return f"Timing({', '.join(parts)})"

    @property
    def loses_replies(self) -> bool:
        """Whether a reply may come too late, or never."""
        return self.dropout > 0 or callable(self.wait) or self.wait < np.inf

    def wait_at(self, exchange: int) -> float:
        """Give the deadline of an exchange."""
        if not callable(self.wait):
            return float(self.wait)
        wait = self.wait(exchange)
        _check_wait(wait, self.dropout)
        return float(wait)

    def seconds(
        self,
        sizes: np.ndarray,
        entries: np.ndarray,
        d: int,
        passes: float,
        key: Key,
        *,
        sparse: bool,
    ) -> np.ndarray:
        """Draw how long each client computes: (K,), for sizes and entries (K,)."""
        if callable(self.delay):
            times = np.asarray(self.delay(sizes.copy(), d, key), float)
            if times.shape != sizes.shape:
                raise ValueError(
                    f"delay gives an array of shape {times.shape}, expected "
                    f"{sizes.shape}: one time a client"
                )
        else:
            c, r, c0 = self.cost or (SPARSE_COST if sparse else DENSE_COST)
            columns = np.minimum(d, entries) if sparse else d
            draws = np.empty(len(sizes))
            _rng.uniform(key[0], key[1], _rng.DELAYS, 0, draws)
            mean = passes * (c * (entries + columns) + r * sizes + c0)
            times = mean * _quantiles(self.delay)(draws)
        wrong = np.flatnonzero(~((times >= 0) & (times < np.inf)))
        if len(wrong):
            raise ValueError(
                f"delay gives {times[wrong[0]]} seconds for client {wrong[0]}, "
                f"expected a finite number, at least 0"
            )
        return times

    def losses(self, n_clients: int, key: Key) -> np.ndarray:
        """Draw how often in a row each client's reply is lost: (K,)."""
        draws = np.empty(n_clients)
        if self.dropout == 0:
            return np.zeros(n_clients)
        _rng.uniform(key[0], key[1], _rng.DROPOUTS, 0, draws)
        return np.floor(np.log1p(-draws) / np.log(self.dropout))


_DEFAULTS = {
    "sum_time": 0.0,
    "dropout": 0.0,
    "latency": 0.0,
    "bandwidth": np.inf,
    "cost": None,
    "trace": False,
}


def _quantiles(distribution: Any) -> Any:
    """Find the inverse of the distribution function, by either of SciPy's names."""
    known = hasattr(distribution, "support")
    ppf = getattr(distribution, "ppf", None) or getattr(distribution, "icdf", None)
    return ppf if known else None


def _check_wait(wait: Any, dropout: float) -> None:
    if not isinstance(wait, Real) or not float(wait) > 0:
        raise ValueError(f"wait is {wait!r}, expected seconds, more than 0")
    if wait == np.inf and dropout > 0:
        raise ValueError(
            f"wait is inf and dropout is {dropout}: for a lost reply the coordinator "
            f"would wait for ever, expected a finite wait"
        )


def _name(delay: Any) -> str:
    """Show a frozen distribution as it was written."""
    family = getattr(getattr(delay, "dist", None), "name", None)
    if family is None:
        return repr(delay)
    given = [repr(a) for a in delay.args]
    given += [f"{name}={value!r}" for name, value in delay.kwds.items()]
    return f"{family}({', '.join(given)})"
