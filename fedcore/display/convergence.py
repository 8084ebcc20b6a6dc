"""How a fit came to its end: gap or objective against what it cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._axes import axes_for, check_has

_COSTS = {
    "round": "round",
    "exchange": "exchange",
    "bytes": "bytes, up and down",
    "time": "virtual time in s",
}
_FIGURES = {"gap": "relative duality gap", "objective": "objective"}
# Lines differ by dash and marker too: figures are also read without colour.
_DASHES = ("-", "--", "-.", ":")
_MARKERS = ("o", "s", "^", "D", "v", "x")


class ConvergenceDisplay:
    """Progress of a fit against rounds, exchanges, bytes or virtual time.

    Use `from_estimator`; give the same `ax` to put several fits in one figure.

    Parameters
    ----------
    cost : ndarray of shape (n_measured,)
        Where the fit was measured.
    figure : ndarray of shape (n_measured,)
        What it measured.
    x : {"round", "exchange", "bytes", "time"}
    y : {"gap", "objective"}
    name : str, default=None
        For the legend; None leaves the line unnamed.
    best : float, default=None
        Draw the objective's relative distance from this.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D

    Examples
    --------
    >>> from fedcore import FedMTLSVC
    >>> from fedcore.datasets import make_mtl_classification
    >>> from fedcore.display import ConvergenceDisplay
    >>> X, y, clients = make_mtl_classification(5, 40, 3, random_state=0)
    >>> model = FedMTLSVC(random_state=0).fit(X, y, clients)
    >>> display = ConvergenceDisplay.from_estimator(model)  # doctest: +SKIP
    """

    def __init__(self, cost, figure, *, x, y, name=None, best=None):
        self.cost, self.figure = cost, figure
        self.x, self.y, self.name, self.best = x, y, name, best

    @classmethod
    def from_estimator(
        cls, estimator, *, x="round", y="auto", name=None, best=None, ax=None, **line
    ):
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : fitted estimator with `history_`
        x : {"round", "exchange", "bytes", "time"}, default="round"
            The cost, added up from the start of the fit. Bytes are those of all
            clients, both ways.
        y : {"auto", "gap", "objective"}, default="auto"
            "auto" is the gap where there is one.
        name : str, default=None
            For the legend; None takes the class's name.
        best : float, default=None
            Draw ``(objective - best) / |best|``, where it is positive.
        ax : matplotlib Axes, default=None
            None makes a new figure.
        **line : dict
            Passed on to `Axes.plot`.

        Returns
        -------
        ConvergenceDisplay

        Raises
        ------
        ValueError
            If `x` or `y` is unknown, the fit has no such history, or `best` is 0 or
            comes with the gap.
        """
        check_has(estimator, "history_", "an estimator that keeps its history")
        history = estimator.history_
        if x not in _COSTS:
            raise ValueError(f"x is {x!r}, expected one of {', '.join(_COSTS)}")
        if y not in ("auto", *_FIGURES):
            raise ValueError(f"y is {y!r}, expected auto, {', '.join(_FIGURES)}")
        if y == "auto":
            measured = np.isfinite(history.get("gap", [np.nan])).any()
            y = "gap" if measured and best is None else "objective"
        if y not in history:
            raise ValueError(
                f"y is {y!r}, but the history has {', '.join(history)} only"
            )
        if best is not None and (y == "gap" or not np.isfinite(best) or best == 0):
            raise ValueError(
                f"best is {best} with y={y!r}, expected a finite objective, not 0"
            )
        figure = np.asarray(history[y], float)
        known = np.isfinite(figure)
        if not known.any():
            raise ValueError(f"no round of the history measured the {y}")
        display = cls(
            _cost(history, x)[known],
            figure[known],
            x=x,
            y=y,
            name=type(estimator).__name__ if name is None else name,
            best=best,
        )
        return display.plot(ax, **line)

    def plot(self, ax=None, *, name=None, **line: Any):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.
        name : str, default=None
            For the legend; None takes that of the display.
        **line : dict
            Passed on to `Axes.plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        self.ax_ = axes_for(ax)
        self.figure_ = self.ax_.figure
        label, figure = _FIGURES[self.y], self.figure
        if self.best is not None:
            label = "relative distance from the best objective"
            figure = (figure - self.best) / abs(self.best)
        positive = self.y == "gap" or self.best is not None
        if positive:
            figure = np.where(figure > 0, figure, np.nan)  # log(0) has no place
        drawn = len(self.ax_.lines)
        style = {
            "label": self.name if name is None else name,
            "linestyle": _DASHES[drawn % len(_DASHES)],
            "marker": _MARKERS[drawn % len(_MARKERS)],
            "markevery": max(len(figure) // 12, 1),
        }
        (self.line_,) = self.ax_.plot(self.cost, figure, **(style | line))
        if positive and np.isfinite(figure).any():
            self.ax_.set_yscale("log")
        self.ax_.set(xlabel=_COSTS[self.x], ylabel=label)
        if style["label"]:
            self.ax_.legend()
        return self


def _cost(history: dict[str, np.ndarray], x: str) -> np.ndarray:
    if x == "bytes":
        return np.cumsum(history["bytes_up"] + history["bytes_down"])
    if x == "exchange":
        return np.cumsum(history["n_exchanges"])
    return np.asarray(history[x])
