"""Means and variances of a federation's columns, as two rounds of sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..federation.contract import Cohort, Key, Request, State, Sum
from ..federation.hello import check_alike
from .moments import CHUNK, client_sums, mean_and_variance


@dataclass(frozen=True, slots=True)
class Moments:
    """One fit of a scaler.

    The first round finds values near the means. The second adds up differences from
    them, which keep their digits however far the means are from 0, and is complete by
    itself: who is silent in one of them does no harm to the other.

    shared : the clients' sums are added up; else nothing is sent
    own    : each client finds moments of its own, which it keeps
    centre : means are wanted
    spread : variances are wanted
    """

    shared: bool = True
    own: bool = False
    centre: bool = True
    spread: bool = True

    @property
    def bears_noise(self) -> bool:
        """Noisy sums make noisy moments; nothing is steered by them."""
        return True

    @property
    def n_rounds(self) -> int:
        """Rounds that the fit takes."""
        if not self.shared:
            return 0
        return 2 if self.centre or self.spread else 1

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on the columns."""
        check_alike(hellos, "n_features")
        d = hellos[0]["n_features"]
        state = {
            "round": 1,
            "done": not self.shared,
            "shift": np.zeros(d),
            "count": np.zeros(d),
            "total": np.zeros(d),
            "square": np.zeros(d),
        }
        return state, {"n_features": d}

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for sums about the shift."""
        d = len(state["shift"])
        reply = {"count": Sum((d,)), "total": Sum((d,))}
        if self.spread and state["round"] == 2:  # about the means alone
            reply["square"] = Sum((d,))
        message = {"shift": state["shift"], "squares": "square" in reply}
        return Request(all=message, reply=reply, everyone=True)

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Move the shift to the mean; after the second round, stop."""
        lost = int((reply["count"] < 0).sum())
        if lost:
            raise ValueError(
                f"the noise is larger than the counts of {lost} of "
                f"{len(reply['count'])} columns: expected more clients, a lower "
                f"multiplier, or a clip nearer to the norm of a client's sums"
            )
        if state["round"] == self.n_rounds:
            return state | reply | {"done": True}
        count = reply["count"]
        near = reply["total"] / np.where(count > 0, count, 1)
        return state | {"round": 2, "shift": near}

    def close(self, state: State) -> Request:
        """Say nothing: the clients need not know."""
        return Request(all={}, reply={})

    def report(self, state: State) -> dict[str, float]:
        """Tell nothing."""
        return {}

    def result(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give mean, variance and sum of weights (d,)."""
        count, total = state["count"], state["total"]
        moments = mean_and_variance(state["shift"], count, total, state["square"])
        return *moments, count

    def findings(self, state: State) -> State:
        """Give the sums that `result` reads."""
        return {name: state[name] for name in ("shift", "count", "total", "square")}

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes."""
        return {"n_rows": np.diff(cohort.offsets), "n_features": cohort.X.shape[1]}

    def join(self, cohort: Cohort, agreement: dict) -> dict:
        """Keep nothing: all that there is to know is in the rows."""
        return {}

    def dump(self, cohort: Cohort, cs: dict) -> dict[str, np.ndarray]:
        """Give nothing: no work changes anything."""
        return {}

    def restore(
        self, cohort: Cohort, agreement: dict, kept: dict[str, np.ndarray]
    ) -> dict:
        """Join again."""
        return self.join(cohort, agreement)

    def update(
        self, cohort: Cohort, cs: dict, message: dict, active: np.ndarray, key: Key
    ) -> dict:
        """Add up the rows of the active clients."""
        shift = np.asarray(message["shift"])
        sums = np.zeros((3, 1, len(shift)))
        size = max(1, CHUNK // max(len(shift), 1))  # clients whose sums fit at a time
        ends = np.flatnonzero(np.diff(active) != 1) + 1
        for run in np.split(active, ends):
            for group in np.split(run, np.arange(size, len(run), size)):
                own = client_sums(*_rows(cohort, group[0], group[-1] + 1), shift)
                # One client after the other, as if each stood alone.
                sums = np.concatenate([sums, own], axis=1).sum(axis=1, keepdims=True)
        sums = sums[:, 0]
        reply = {"count": sums[0], "total": sums[1]}
        if message["squares"]:
            reply["square"] = sums[2]
        return reply

    def personal(self, cohort: Cohort, cs: dict, message: dict) -> dict[str, Any]:
        """Give each client its own moments (K, d)."""
        if not self.own:
            return {}
        rows = _rows(cohort, 0, cohort.n_clients)
        count, total, _ = client_sums(*rows, np.zeros(cohort.X.shape[1]))
        near = total / np.where(count > 0, count, 1)
        count, total, square = client_sums(*rows, near)
        mean, var = mean_and_variance(near, count, total, square)
        return {"mean": mean, "var": var, "count": count}


def _rows(cohort: Cohort, first: int, last: int) -> tuple[Any, Any, np.ndarray]:
    """Cut out the rows of neighbouring clients, their weights and offsets."""
    begin, end = cohort.offsets[first], cohort.offsets[last]
    weight = cohort.sample_weight
    return (
        cohort.X[begin:end],
        None if weight is None else weight[begin:end],
        cohort.offsets[first : last + 1] - begin,
    )
