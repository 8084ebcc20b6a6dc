"""A method of which the rows are scaled first, as one method of the federation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import numpy as np

from ..federation.contract import Cohort, Key, Request, State
from .moments import scale_of, scale_rows
from .protocol import Moments

# What an exchange is for; it travels in the message as `scaler_task`.
MOMENTS, SCALE, WORK = range(3)


@dataclass(frozen=True, slots=True)
class Scaled:
    """One fit of a scaler, then one of a method on what it makes of the rows.

    The clients learn the moments in an exchange of their own, and then keep scaled rows
    until the end.
    """

    moments: Moments
    method: Any

    @property
    def may_commit_sent(self) -> bool:
        """Whether clients may keep work that the coordinator never saw."""
        return getattr(self.method, "may_commit_sent", False)

    def _key(self, key: Key) -> Key:
        # The method draws the numbers that it would draw alone.
        return key[0], key[1] - self.moments.n_rounds

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Let both agree on what they must."""
        scaler, _ = self.moments.start([h["scaler"] for h in hellos], key)
        method, agreement = self.method.start([h["method"] for h in hellos], key)
        state = {
            "round": 1,
            "done": False,
            "task": SCALE if scaler["done"] else MOMENTS,
            "scaler": scaler,
            "method": method,
        }
        return state, agreement

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for moments, tell them, then ask what the method asks."""
        if state["task"] == MOMENTS:
            request = self.moments.broadcast(state["scaler"], key)
        elif state["task"] == SCALE:
            message = {}
            if self.moments.shared:
                mean, var, count = self.moments.result(state["scaler"])
                message = {"mean": mean, "scale": scale_of(mean, var, count)}
            request = Request(all=message, reply={}, everyone=True, evaluate=True)
        else:
            request = self.method.broadcast(state["method"], self._key(key))
        return replace(request, all={**request.all, "scaler_task": state["task"]})

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Go on where the last exchange left off."""
        state = dict(state)
        if state["task"] == MOMENTS:
            state["scaler"] = self.moments.combine(state["scaler"], reply, who, key)
            if state["scaler"]["done"]:
                state["task"] = SCALE
            else:
                state["round"] = state["scaler"]["round"]
            return state
        if state["task"] == SCALE:
            state["task"] = WORK
            state["done"] = state["method"]["done"]
        else:
            own = self._key(key)
            state["method"] = self.method.combine(state["method"], reply, who, own)
            state["done"] = state["method"]["done"]
        state["round"] = self.moments.n_rounds + state["method"]["round"]
        return state

    def close(self, state: State) -> Request:
        """Say the last message of the method."""
        return self.method.close(state["method"])

    def report(self, state: State) -> dict[str, float]:
        """Figures of the method's rounds; those of the scaler have none."""
        first = self.moments.n_rounds + 1
        if state["round"] <= first and not state["done"]:
            return {}
        return self.method.report(state["method"])

    def findings(self, state: State) -> State:
        """Give what both give."""
        return {
            "scaler": self.moments.findings(state["scaler"]),
            "method": self.method.findings(state["method"]),
        }

    def final(self, state: State) -> dict[str, Any]:
        """Give the method's shared model as a message."""
        return self.method.final(state["method"])

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Say what both say."""
        scaler, method = self.moments.hello(cohort), self.method.hello(cohort)
        return {"n_rows": scaler["n_rows"], "scaler": scaler, "method": method}

    def join(self, cohort: Cohort, agreement: dict) -> dict[str, Any]:
        """Wait for the moments: only scaled rows can join the method."""
        return {
            "agreement": agreement,
            "lock": Lock(),
            "table": None,
            "rows": None,
            "method": None,
        }

    def dump(self, cohort: Cohort, cs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Copy the moments, and what visits have changed."""
        if cs["table"] is None:
            return {}
        kept = {f"scaler_{name}": table for name, table in cs["table"].items()}
        return kept | self.method.dump(cs["rows"], cs["method"])

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Scale again, and go on from what `dump` gave."""
        cs, kept = self.join(cohort, agreement), dict(kept)
        if "scaler_mean" in kept:
            names = ("mean", "scale")
            table = {name: kept.pop(f"scaler_{name}") for name in names}
            cs["table"], cs["rows"] = table, self._scale(cohort, table)
            cs["method"] = self.method.restore(cs["rows"], agreement, kept)
        return cs

    def update(
        self,
        cohort: Cohort,
        cs: dict[str, Any],
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Add up moments, or do the method's work on scaled rows."""
        if message["scaler_task"] == MOMENTS:
            return self.moments.update(cohort, {}, message, active, key)
        if cs["rows"] is None:
            raise RuntimeError("the moments of this fit have not been heard")
        return self.method.update(
            cs["rows"], cs["method"], message, active, self._key(key)
        )

    def evaluate(
        self, cohort: Cohort, cs: dict[str, Any], message: dict, active: np.ndarray
    ) -> dict:
        """Scale the rows by what the message or they themselves say."""
        if message["scaler_task"] != SCALE:
            return self.method.evaluate(cs["rows"], cs["method"], message, active)
        with cs["lock"]:  # scaled once, for all clients
            if cs["table"] is None:
                cs["table"] = self._table(cohort, message)
                cs["rows"] = self._scale(cohort, cs["table"])
                cs["method"] = self.method.join(cs["rows"], cs["agreement"])
        return {}

    def _table(self, cohort: Cohort, message: dict) -> dict[str, np.ndarray]:
        if not self.moments.own:
            return {name: np.array(message[name]) for name in ("mean", "scale")}
        own = self.moments.personal(cohort, {}, {})
        return {"mean": own["mean"], "scale": scale_of(**own)}

    def _scale(self, cohort: Cohort, table: dict[str, np.ndarray]) -> Cohort:
        """Scale the rows of a cohort, and those that it holds out."""
        owners = None
        if self.moments.own:
            owners = np.repeat(np.arange(cohort.n_clients), np.diff(cohort.offsets))
        mean = table["mean"] if self.moments.centre else None
        scale = table["scale"] if self.moments.spread else None
        held = cohort.held_out
        return replace(
            cohort,
            X=scale_rows(cohort.X, owners, mean, scale),
            held_out=None if held is None else self._scale(held, table),
        )

    def scores(
        self, cohort: Cohort, cs: dict[str, Any], message: dict, personal: dict
    ) -> np.ndarray:
        """Score the scaled rows that are held out."""
        return self.method.scores(cs["rows"], cs["method"], message, personal)

    def losses(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Give the method's losses."""
        return self.method.losses(scores, target)

    def personal(
        self, cohort: Cohort, cs: dict[str, Any], message: dict
    ) -> dict[str, Any]:
        """Give the method's personal parts, and the clients' own moments."""
        own = self.moments.personal(cohort, {}, message)
        kept = {f"scaler_{name}": part for name, part in own.items()}
        return kept | self.method.personal(cs["rows"], cs["method"], message)
