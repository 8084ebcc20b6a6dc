"""Who computed, who was late and who was interrupted."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..federation.trace import OUTCOMES, Trace
from ._axes import axes_for, check_has

_MARKS = {"accepted": ">", "interrupted": "x", "discarded": "s", "dropped": "v"}
_COLOURS = {
    "accepted": "tab:blue",
    "interrupted": "tab:red",
    "discarded": "tab:orange",
    "dropped": "tab:gray",
}
_THICK, _THIN = 6, 1.2


class MessageSequenceDisplay:
    """The message sequence of a fit under `Timing(trace=True)`.

    A line a client, virtual time from left to right. Thick: it computes; thin: its
    reply is on the way; the mark says what became of the reply. Upright lines: the
    coordinator sends.

    Parameters
    ----------
    trace : Trace
    names : ndarray of shape (n_clients,), default=None
        Names of the clients; None takes their numbers.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, trace: Trace, names=None):
        self.trace, self.names = trace, names

    @classmethod
    def from_estimator(cls, estimator, *, clients=None, exchanges=None, ax=None):
        """Draw the messages of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator with `trace_`
            Its engine was ``LocalEngine(timing=Timing(..., trace=True))``.
        clients : sequence of int, default=None
            Places in `clients_`; None: the first ten.
        exchanges : sequence of int, default=None
            Drawn from the first of them to the last; None: the first four.
        ax : matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        MessageSequenceDisplay

        Raises
        ------
        ValueError
            If the fit kept no trace, or nothing was sent in these exchanges.
        """
        check_has(estimator, "trace_", "a fit with Timing(..., trace=True)")
        display = cls(estimator.trace_, np.asarray(estimator.clients_))
        return display.plot(ax, clients=clients, exchanges=exchanges)

    def plot(self, ax=None, *, clients=None, exchanges=None):
        """Draw; see `from_estimator` for the arguments and what is raised."""
        trace = self.trace
        clients = np.unique(trace.client)[:10] if clients is None else clients
        if exchanges is None:
            exchanges = np.unique(trace.exchange)[:4]
        clients, exchanges = np.asarray(clients), np.asarray(exchanges)
        if not len(clients) or not len(exchanges):
            raise ValueError("clients and exchanges must name at least one each")
        first, last = exchanges.min(), exchanges.max()
        within = (trace.exchange >= first) & (trace.exchange <= last)
        shown = np.flatnonzero(within & np.isin(trace.client, clients))
        if not len(shown):
            raise ValueError(
                f"nobody among clients={clients.tolist()} was sent anything in "
                f"exchanges {first} to {last}"
            )
        self.ax_ = axes_for(ax, figsize=(8, 1.2 + 0.35 * len(clients)))
        self.figure_ = self.ax_.figure
        for start in np.unique(trace.sent[within]):
            self.ax_.axvline(start, color="0.6", linestyle=":", linewidth=1, zorder=0)
        end = _end(trace, shown, last)
        lane = {client: place for place, client in enumerate(clients)}
        for i in shown:
            self._message(i, lane[trace.client[i]], end)
        for outcome in np.unique(trace.outcome[shown]):
            word = OUTCOMES[outcome]
            self.ax_.plot([], [], color=_COLOURS[word], label=word, **_mark(word))
        names = clients if self.names is None else self.names[clients]
        self.ax_.set_yticks(range(len(clients)), [str(name) for name in names])
        self.ax_.set_ylim(len(clients) - 0.5, -0.5)
        self.ax_.set(xlabel="virtual time in s", ylabel="client")
        self.ax_.legend(loc="upper left", bbox_to_anchor=(1, 1), title="reply")
        return self

    def _message(self, i: int, y: int, end: float) -> None:
        trace, word = self.trace, OUTCOMES[self.trace.outcome[i]]
        later = trace.sent[trace.sent > trace.sent[i]]
        stop = min(later.min(), end) if len(later) else end
        computed = np.fmin(trace.computed[i], stop)
        arrived = computed if np.isnan(trace.arrived[i]) else trace.arrived[i]
        arrived = min(arrived, stop)
        line: dict[str, Any] = {"color": _COLOURS[word], "solid_capstyle": "butt"}
        self.ax_.plot([trace.sent[i], computed], [y, y], linewidth=_THICK, **line)
        self.ax_.plot([computed, arrived], [y, y], linewidth=_THIN, **line)
        self.ax_.plot([arrived], [y], color=_COLOURS[word], zorder=3, **_mark(word))


def _mark(word: str) -> dict[str, Any]:
    # On its bar a mark of the bar's colour would not be seen.
    return {
        "marker": _MARKS[word],
        "linestyle": "none",
        "markeredgecolor": "black",
        "markersize": 8,
    }


def _end(trace: Trace, shown: np.ndarray, last: int) -> float:
    later = trace.sent[trace.exchange > last]
    if len(later):
        return float(later.min())
    times = (trace.computed[shown], trace.arrived[shown], trace.sent[shown])
    return float(np.nanmax(np.concatenate(times)))
