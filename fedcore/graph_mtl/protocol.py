"""Decentralised multi-task learning as a method of the federation.

Mortaheb and Ulukus, "Personalized Decentralized Multi-Task Learning Over Dynamic
Communication Graphs"; formulas in math.md, section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _losses as losses
from ..federation.contract import Cohort, Key, Request, State
from ..federation.hello import check_alike
from . import grouping_rounds, participant, steps
from .encoders import random_encoder


@dataclass(frozen=True, slots=True)
class GraphMTL:
    """One fit; a plain record of numbers.

    head_steps   : gradient steps, 0 to solve
    topology     : "dynamic", "full", "none" or "given"
    mixing       : W of a given topology, rows in the order of the clients, else None
    statistic    : of the dynamic one: "models", "probes" or "paper"
    background   : of `group_clients`
    transference : "gradient" or "exact"
    step_size    : a number, or "auto"
    """

    loss: str
    encoder: str
    n_components: int
    head_steps: int
    mixing_steps: int
    regroup_every: int
    topology: str
    mixing: tuple[tuple[float, ...], ...] | None
    statistic: str
    background: float | str
    transference: str
    n_probes: int
    step_size: float | str
    l2: float
    tol: float
    max_rounds: int

    @property
    def first_stop(self) -> int:
        """Rounds before which the fit does not stop: groups must be known."""
        waits = self.topology == "dynamic" and self.statistic == "paper"
        return 2 * self.regroup_every if waits else 0

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on columns and classes, and on where all start."""
        N, n_features = check_alike(hellos, "n_features"), hellos[0]["n_features"]
        agreement = losses.agree_on_outputs(self.loss, hellos)
        agreement["n_components"] = self.n_components
        return self._start(N, n_features, key[0]), agreement

    def _start(self, N: int, n_features: int, seed: int) -> State:
        alone = self.topology == "none" or self.mixing is not None
        rng = np.random.default_rng([seed, 0])
        s = random_encoder(self.encoder, n_features, self.n_components, rng)
        state: State = {
            "round": 1,
            "done": False,
            "converged": False,
            "seed": seed,
            "n_features": n_features,
            "labels": np.arange(N) if alone else np.zeros(N, np.int64),
            "task": "train",
            "mixing_step": 0,
            "round_ended": False,
            "steps_known": False,
            "last_mean": np.inf,
            "objective": np.nan,
            "best": np.zeros(0),
        }
        steps.start_tables(state, np.tile(s, (N if alone else 1, 1)))
        if self.topology == "dynamic" and N > 1:
            state |= grouping_rounds.start(self, N, n_features)
            self._measure(state, first=True)
        return state

    def _measure(self, state: State, first: bool = False) -> None:
        """Turn to the next measurement of similarities, if one is due."""
        if self.statistic == "models":
            if not state["heard"].all():
                state["task"] = "models"
        elif self.statistic == "probes" or not first:
            grouping_rounds.next_probe(self, state)
            state["step_of"] = state["step"][state["labels"]]

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for the next piece of work."""
        if state["task"] == "train":
            return steps.request(self, state)
        return grouping_rounds.request(self, state)

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Fold the replies into the next state."""
        # What follows fills arrays in place: those of the old state must stay.
        state = {name: _own(value) for name, value in state.items()}
        if state["task"] == "train":
            state["round_ended"] = False
            steps.combine(self, state, reply, who)
            if state["round_ended"]:
                self._end_round(state)
            return state
        if not grouping_rounds.combine(self, state, reply, who):
            return state
        state["task"] = "train"
        if self.statistic == "probes" and state["n_probes"] < self.n_probes:
            grouping_rounds.next_probe(self, state)
        elif self.statistic != "paper" or state["round"] % self.regroup_every == 0:
            steps.regrouped(state, grouping_rounds.regroup(self, state))
        if self.statistic == "paper":
            state["round"] += 1
        return state

    def _end_round(self, state: State) -> None:
        """Count the round, and see whether groups are to be looked at again."""
        if not state["done"] and state["round"] >= self.max_rounds:
            state["done"] = True
        if state["done"]:
            return
        if "heard" in state:
            if self.statistic == "paper":  # measures at the end of each round
                self._measure(state)
                return
            if state["round"] % self.regroup_every == 0:
                self._measure(state)
        state["round"] += 1

    def close(self, state: State) -> Request:
        """Send each client the final point of its group."""
        return Request(all={}, reply={}, each={"s": (state["base"], state["labels"])})

    def report(self, state: State) -> dict[str, float]:
        """Tell the objective, the mean over the clients, and the number of groups."""
        return {
            "objective": float(state["objective"]),
            "n_groups": float(state["labels"].max() + 1),
        }

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes and classes."""
        hello = {"n_rows": np.diff(cohort.offsets), "n_features": cohort.X.shape[1]}
        if cohort.classes is not None:
            hello["classes"] = cohort.classes
        return hello

    def join(self, cohort: Cohort, agreement: dict) -> participant.Peers:
        """Bind the rows, with heads of zeros."""
        return participant.join(cohort, agreement)

    def update(
        self,
        cohort: Cohort,
        cs: participant.Peers,
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Train or measure; see `participant`."""
        return participant.update(cs, self, message, active)

    def personal(
        self, cohort: Cohort, cs: participant.Peers, message: dict
    ) -> dict[str, Any]:
        """Give the heads, fitted to the final point."""
        return participant.personal(cs, self, message, cohort.n_clients)

    def dump(self, cohort: Cohort, cs: participant.Peers) -> dict[str, np.ndarray]:
        """Give the heads; rows are bound anew."""
        names = ("A", "c", "trial_A", "trial_c")
        return {name: getattr(cs, name).copy() for name in names}

    def restore(self, cohort: Cohort, agreement: dict, kept: dict) -> participant.Peers:
        """Bind the rows, and put the heads back."""
        cs = self.join(cohort, agreement)
        for name, value in kept.items():
            getattr(cs, name)[...] = value
        return cs


def _own(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value
