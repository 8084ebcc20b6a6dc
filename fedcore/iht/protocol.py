"""Hard-thresholded learning as a method of the federation: who computes what.

Tong et al., "Federated Optimization of l0-norm Regularized Sparse Learning"; formulas
in math.md, section 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import _losses as losses
from ..federation.contract import Cohort, Key, Request, State
from ..federation.hello import check_alike
from . import held_out, newton, participant, steps
from .hello import check_sizes, describe, shares


@dataclass(frozen=True, slots=True)
class IHT:
    """One fit; a plain record of numbers.

    rule          : "FedHT", "FedIterHT" or "DistributedIHT"
    n_nonzero     : tau, over all outputs
    weights       : "samples", "uniform", or one number a client
    step_size     : a number, or "auto"
    batch_size    : rows of a client in a step, 0 for all
    """

    rule: str
    loss: str
    n_nonzero: int
    l2: float
    weights: str | tuple[float, ...]
    fit_intercept: bool
    step_size: float | str
    local_steps: int
    batch_size: int
    control_variates: bool
    refit: bool
    tol: float
    max_rounds: int

    @property
    def line_search(self) -> bool:
        """Whether replies draw no rows, so that the coordinator can choose its step."""
        return self.step_size == "auto" and not self.batch_size

    @property
    def searches_gradients(self) -> bool:
        """Whether it chooses by exact gradients, for which every client must answer."""
        return self.line_search and self.rule == "DistributedIHT"

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on columns, classes and the weights of the clients."""
        check_alike(hellos, "n_features")
        agreement = losses.agree_on_outputs(self.loss, hellos)
        mass = np.concatenate([hello["mass"] for hello in hellos])
        agreement["share"] = shares(self.weights, mass)
        n_features = hellos[0]["n_features"]
        check_sizes(self.n_nonzero, agreement["n_outputs"], n_features)
        return steps.start(self, agreement["n_outputs"], n_features), agreement

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for the next piece of work."""
        if state["work"] == participant.NEWTON:
            return newton.request(self, state)
        return steps.request(self, state)

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Fold the replies into the next state."""
        if state["work"] == participant.NEWTON:
            return newton.combine(self, state, reply)
        ending = state["work"] == participant.MEASURE
        state = steps.combine(self, state, reply, who)
        if ending:
            if self.refit and newton.has_places(self, state):
                return newton.start(self, state)
            state["done"] = True
        return state

    def close(self, state: State) -> Request:
        """Say goodbye: clients keep nothing of their own."""
        return Request(all={}, reply={})

    def report(self, state: State) -> dict[str, float]:
        """Tell the objective of the point that is kept, and the step."""
        return {
            "objective": float(state["objectives"][-1]),
            "step": state["step"],
        }

    def result(self, state: State) -> tuple[np.ndarray, np.ndarray, float]:
        """Give coefficients (C, d), intercepts (C,) and the objective there."""
        coef = steps.dense(state, "").reshape(state["shape"])
        return coef, state["intercept"], state["best_objective"]

    def findings(self, state: State) -> State:
        """Give the model, its objectives, and how the run ended."""
        model = ("index", "value", "intercept", "shape")
        ended = ("objectives", "best_objective", "converged", "diverged", "rose")
        return {name: state[name] for name in (*model, *ended)}

    def final(self, state: State) -> dict[str, Any]:
        """Give the model, for clients that score rows by it."""
        coef, intercept, *_ = self.result(state)
        return held_out.model_message(coef, intercept)

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes, weights and classes."""
        return describe(cohort)

    def join(self, cohort: Cohort, agreement: dict) -> participant.Clients:
        """Bind the rows."""
        return participant.join(cohort, self, agreement)

    def dump(self, cohort: Cohort, cs: participant.Clients) -> dict[str, np.ndarray]:
        """Copy what the clients' visits have changed."""
        return participant.dump(cs)

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> participant.Clients:
        """Join, and go on from what `dump` gave."""
        cs = participant.join(cohort, self, agreement)
        participant.restore(cs, kept)
        return cs

    def update(
        self,
        cohort: Cohort,
        cs: participant.Clients,
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Step or measure; see `participant`."""
        return participant.update(cohort, cs, self, message, active, key)

    def scores(
        self, cohort: Cohort, cs: Any, message: dict, personal: dict
    ) -> np.ndarray:
        """Score the held-out rows (n, C) by the model."""
        return held_out.message_scores(cohort, message)

    def losses(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss (n,) of rows."""
        return losses.values(self.loss, scores, target)

    def personal(
        self, cohort: Cohort, cs: participant.Clients, message: dict
    ) -> dict[str, Any]:
        """Give nothing: there is one model for all."""
        return {}
