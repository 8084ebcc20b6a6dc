"""What each round cost, and the figures that were measured in it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_COLUMNS = {
    "round": np.int64,
    "n_exchanges": np.int64,
    "time": np.float64,
    "bytes_down": np.int64,
    "bytes_up": np.int64,
    "n_active": np.int64,
    "n_late": np.int64,
    "n_dropped": np.int64,
}


class Ledger:
    """The accounts of one run, a line a round.

    Both methods that write cost about a microsecond; arrays are made by `history`.
    """

    def __init__(self) -> None:
        self._lines: list[list[float]] = []  # in the order of _COLUMNS
        self._figures: list[dict[str, float]] = []

    def exchange(
        self,
        round: int,
        *,
        bytes_down: int,
        bytes_up: int,
        n_active: int,
        n_late: int,
        seconds: float,
        n_dropped: int = 0,
    ) -> None:
        """Add one exchange to the line of its round.

        Parameters
        ----------
        round : int
            From 1, never less than in the call before. Exchanges that share a round
            are added up.
        bytes_down, bytes_up : int
            Bytes of all messages to and from the clients.
        n_active, n_late : int
            Clients whose work counted, and whose came too late.
        seconds : float
            What the exchange took; `time` is the running total.
        n_dropped : int, default=0
            Clients whose reply was lost on the way.

        Raises
        ------
        ValueError
            If `round` goes back.
        """
        last, time = (self._lines[-1][0], self._lines[-1][2]) if self._lines else (0, 0)
        if round < max(last, 1):
            raise ValueError(f"round is {round}, expected at least {max(last, 1)}")
        if round > last:
            self._lines.append([round, 0, time, 0, 0, 0, 0, 0])
            self._figures.append({})
        line = self._lines[-1]
        line[1] += 1
        line[2] += float(seconds)
        line[3] += int(bytes_down)
        line[4] += int(bytes_up)
        line[5] += int(n_active)
        line[6] += int(n_late)
        line[7] += int(n_dropped)

    def report(self, figures: Mapping[str, float]) -> None:
        """Set figures of the current round; other rounds without them show NaN.

        Raises
        ------
        ValueError
            If no round has begun, or a figure bears the name of a cost.
        """
        if not self._lines:
            raise ValueError("report before the first exchange, expected after it")
        taken = _COLUMNS.keys() & figures.keys()
        if taken:
            raise ValueError(f"figures has {sorted(taken)}, names of the ledger itself")
        self._figures[-1].update((name, float(x)) for name, x in figures.items())

    @classmethod
    def of(cls, history: Mapping[str, np.ndarray]) -> Ledger:
        """Go on from what `history` gave."""
        ledger = cls()
        costs = (history[name].tolist() for name in _COLUMNS)
        ledger._lines = [list(line) for line in zip(*costs, strict=True)]
        figures = {n: c.tolist() for n, c in history.items() if n not in _COLUMNS}
        ledger._figures = [
            {name: column[place] for name, column in figures.items()}
            for place in range(len(ledger._lines))
        ]
        return ledger

    def history(self) -> dict[str, np.ndarray]:
        """Give the columns, one entry a round.

        Returns
        -------
        dict of str to ndarray
            `round`, `n_exchanges`, `time` at the end of the round, `bytes_down`,
            `bytes_up`, `n_active`, `n_late`, `n_dropped`, then the figures in the order
            in which they first came. Counts are int64, all else is float64.
        """
        costs = zip(*self._lines, strict=True) if self._lines else [()] * len(_COLUMNS)
        columns = {
            name: np.array(cost, dtype)
            for (name, dtype), cost in zip(_COLUMNS.items(), costs, strict=True)
        }
        # A dict as an ordered set.
        names = dict.fromkeys(name for line in self._figures for name in line)
        for name in names:
            column = [line.get(name, np.nan) for line in self._figures]
            columns[name] = np.array(column, np.float64)
        return columns
