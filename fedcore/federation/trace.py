"""The messages of a run as arrays, and as a chart in text."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

ACCEPTED, INTERRUPTED, DISCARDED, DROPPED = range(4)
OUTCOMES = ("accepted", "interrupted", "discarded", "dropped")
_MARKS = ">x!?"
_DTYPES = (np.int32, np.int32, np.float64, np.float64, np.float64, np.int8)


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Every request to a client, and what became of the reply, in order of sending.

    Attributes
    ----------
    exchange : ndarray of shape (n_messages,)
        Number of the exchange, from 1.
    client : ndarray of shape (n_messages,)
        Number of the client.
    sent : ndarray of shape (n_messages,)
        Virtual seconds at which w was sent to the client.
    computed : ndarray of shape (n_messages,)
        When it had computed its reply; NaN if it was interrupted.
    arrived : ndarray of shape (n_messages,)
        When the reply reached the coordinator; NaN if it never did.
    outcome : ndarray of shape (n_messages,)
        Place in `OUTCOMES`: "accepted"; "interrupted", the new w came first;
        "discarded", arrived after the deadline; "dropped", lost on the way.
    """

    exchange: np.ndarray
    client: np.ndarray
    sent: np.ndarray
    computed: np.ndarray
    arrived: np.ndarray
    outcome: np.ndarray

    @classmethod
    def of(cls, parts: list[tuple]) -> Trace:
        """Join the records of exchanges, each a tuple in the order of the fields."""
        columns = zip(*parts, strict=True) if parts else [()] * len(_DTYPES)
        return cls(
            *(
                np.concatenate([*column, np.empty(0, dtype)]).astype(dtype)
                for column, dtype in zip(columns, _DTYPES, strict=True)
            )
        )

    def renumbered(self, order: np.ndarray | None) -> Trace:
        """Count the clients in another order: `order` lists their present numbers."""
        if order is None:
            return self
        place = np.empty(len(order), np.int32)
        place[order] = np.arange(len(order))
        return replace(self, client=place[self.client])

    def __len__(self) -> int:
        return len(self.client)

    def chart(self, clients=None, exchanges=None, *, width: int = 72) -> str:
        """Draw the message sequence, a line a client, time from left to right.

        Parameters
        ----------
        clients : sequence of int, default=None
            Which clients; None: the first ten.
        exchanges : sequence of int, default=None
            Which exchanges; None: the first four. The chart spans from the first to
            the last of them.
        width : int, default=72
            Characters for the time axis.

        Returns
        -------
        str
        """
        if clients is None:
            clients = np.unique(self.client)[:10]
        if exchanges is None:
            exchanges = np.unique(self.exchange)[:4]
        shown = np.flatnonzero(
            (self.exchange >= np.min(exchanges, initial=np.iinfo(np.int32).max))
            & (self.exchange <= np.max(exchanges, initial=0))
        )
        if not len(shown):
            return "no messages"
        begin = self.sent[shown].min()
        ends = np.fmax(self.computed[shown], self.arrived[shown])
        later = self.sent[self.exchange > self.exchange[shown].max()]
        # Where the last exchange ended: when the next began, if there was one.
        end = later.min() if len(later) else np.nanmax([*ends, self.sent[shown].max()])
        scale = (width - 1) / (end - begin) if end > begin else 0.0

        def column(time):
            return int(np.clip((time - begin) * scale, 0, width - 1))

        starts = np.unique(self.sent[shown])
        lines = [f"{begin:.4g} s".rjust(22) + f"{end:.4g} s".rjust(width - 10)]
        axis = [" "] * width
        for start in starts:
            axis[column(start)] = "w"
        lines.append("coordinator |".rjust(14) + "".join(axis))
        for k in clients:
            row = [" "] * width
            own = shown[self.client[shown] == k]
            for i in own:
                after = starts[starts > self.sent[i]]
                over = after[0] if len(after) else end
                done = self.computed[i] if self.computed[i] <= over else over
                come = self.arrived[i] if self.arrived[i] <= over else done
                first, last = column(self.sent[i]), column(done)
                row[first : last + 1] = "=" * (last + 1 - first)
                row[last : column(come) + 1] = "-" * (column(come) + 1 - last)
                # The mark of an interrupted client stands just before the next w.
                place = column(come)
                if self.outcome[i] == INTERRUPTED and len(after):
                    place = max(place - 1, first)
                    row[place + 1 :] = " " * (width - place - 1)
                row[place] = _MARKS[self.outcome[i]]
            lines.append(f"client {k:4d} |".rjust(14) + "".join(row).rstrip())
        lines.append(
            "w: sent to the clients; = computes, - on the way; > accepted, "
            "x interrupted, ! discarded, ? lost"
        )
        return "\n".join(line.rstrip() for line in lines)
