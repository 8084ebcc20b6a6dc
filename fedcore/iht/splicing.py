"""Federated splicing: the best subset of a quadratic model on a growing pool.

The coordinator learns the slopes at its point and the second derivatives on a pool of
entries, all of them sums over rows; it exchanges entries of the support where the
model, minimised exactly for each exchange, gains. Extends the splicing of Zhu et al.,
"A polynomial algorithm for best-subset selection problem", PNAS 117(52), 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from .. import _losses as losses
from .._clients import codes_of
from ..federation.check import check_kept
from ..federation.contract import Cohort, Key, Request, State, Sum
from ..federation.hello import check_alike
from . import held_out, second_order
from .hello import check_always, check_sizes, describe, shares
from .sweep import DEPENDENT, best_subset

SHORTER = 0.4  # what a refused step is multiplied by
LEAST_WITHIN = 1e-3  # of a column's variance that counts as inside clients
MOST_SETTLING = 6  # steps on the support that was found, at one gradient each
LEAST_GROWTH = 20  # entries that join the pool in a round


@dataclass(frozen=True, slots=True)
class Splicing:
    """One fit; a plain record of numbers.

    always    : columns that are in the support whatever they gain
    pool_size : entries of the first pool
    """

    loss: str
    n_nonzero: int
    l2: float
    weights: str | tuple[float, ...]
    fit_intercept: bool
    always: tuple[int, ...]
    pool_size: int
    max_swaps: int
    tol: float
    max_rounds: int

    @property
    def _most_settling(self) -> int:
        return 0 if self.loss == "squared" else MOST_SETTLING

    @property
    def _growth(self) -> int:
        return max((self.pool_size - self.n_nonzero) // 2, LEAST_GROWTH)

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on columns and classes; give each client its share of the objective."""
        check_alike(hellos, "n_features")
        mass = np.concatenate([hello["mass"] for hello in hellos])
        agreement = losses.agree_on_outputs(self.loss, hellos)
        d, C = hellos[0]["n_features"], agreement["n_outputs"]
        check_sizes(self.n_nonzero, C, d)
        check_always(self.always, C, d, self.n_nonzero)
        fixed = (np.arange(C)[:, None] * d + np.array(self.always, int)).reshape(-1)
        if self.fit_intercept:
            fixed = np.append(fixed, C * d + np.arange(C))
        empty = np.zeros(0, np.int32)
        state = {
            "round": 1,
            "done": False,
            "converged": False,
            "task": "start",
            "n_outputs": C,
            "n_features": d,
            "share": shares(self.weights, mass),
            "fixed": np.sort(fixed).astype(np.int32),
            "index": empty,  # the best point so far, and the one that is tried
            "value": np.zeros(0),
            "try_index": empty,
            "try_value": np.zeros(0),
            "objective": np.inf,
            "step": 1.0,
            "trial": None,  # of the points tried in this round the best
            "n_settling": 0,
            "pool": empty,  # entries, sorted, whose second derivatives G are known
            "new": empty,
            "G": np.zeros((0, 0)),
        }
        return state, agreement

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for slopes at the point that is tried, or second derivatives at x."""
        length = state["n_outputs"] * (state["n_features"] + 1)
        share = {"share": state["share"]}
        if state["task"] == "block":
            q, p = len(state["new"]), len(state["pool"])
            message = {"known": state["pool"], "new": state["new"]}
            if self.loss != "squared":
                message |= {"index": state["index"], "value": state["value"]}
            reply = {"block": Sum((q * p + q * (q + 1) // 2,))}
            return Request(all=message, each=share, reply=reply, everyone=True)
        message = {"index": state["try_index"], "value": state["try_value"]}
        reply = {"loss": Sum(()), "gradient": Sum((length,))}
        if state["task"] == "start":
            d, message["first"] = state["n_features"], True
            reply |= {name: Sum((d,)) for name in ("square", "mean", "within")}
        return Request(all=message, each=share, reply=reply, everyone=True)

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Choose what joins the pool, or find the next point inside of it."""
        state = dict(state)
        if state["task"] == "block":
            self._learn_block(state, reply["block"])
            self._propose(state)
            return state
        loss, gradient = float(reply["loss"]), reply["gradient"].copy()
        penalised = state["try_index"] < state["n_outputs"] * state["n_features"]
        ridge = state["try_value"] * penalised * self.l2
        objective = loss + ridge @ state["try_value"] / 2
        gradient[state["try_index"]] += ridge
        if state["task"] == "start":
            self._learn_scale(state, reply)
            state["first"] = objective
            self._accept(state, objective, gradient)
            self._grow_pool(state)
            return state
        tried = state["try_index"], state["try_value"], objective, gradient
        if state["trial"] is None or objective < state["trial"][2]:
            state["trial"] = tried
            if state["n_settling"] < self._most_settling and self._settle(state):
                return state
        self._judge(state)
        if state["done"]:
            return state
        if state["round"] >= self.max_rounds:
            state["done"] = True
            return state
        state["round"] += 1
        if state["step"] < 1 and state["refused"]:
            self._propose(state)
        else:
            self._grow_pool(state)
        return state

    def close(self, state: State) -> Request:
        """Say nothing: the model is the coordinator's."""
        return Request(all={}, reply={})

    def report(self, state: State) -> dict[str, float]:
        """Objective at the best point so far; size of the pool."""
        return {
            "objective": state["objective"],
            "pool": len(state["pool"]),
            "step": state["step"],
        }

    def result(self, state: State) -> tuple[np.ndarray, np.ndarray]:
        """Give the coefficients (C, d) and the intercepts (C,)."""
        C, d = state["n_outputs"], state["n_features"]
        full = np.zeros(C * d + C)
        full[state["index"]] = state["value"]
        return full[: C * d].reshape(C, d), full[C * d :]

    def _learn_scale(self, state: State, reply: dict) -> None:
        """Keep what a column can be expected to have left beside those chosen."""
        square, mean = reply["square"], reply["mean"]
        centred = square - mean**2 if self.fit_intercept else square
        usable = centred > DEPENDENT * square
        # Differences between clients are mostly explained by the columns chosen.
        within = np.maximum(reply["within"], LEAST_WITHIN * centred)
        scale = np.sqrt(np.where(usable, centred * within, 1))
        state["scale"] = np.where(usable, scale + self.l2, np.inf)

    def _accept(self, state: State, objective: float, gradient: np.ndarray) -> None:
        state["index"], state["value"] = state["try_index"], state["try_value"]
        state["objective"], state["gradient"] = objective, gradient
        state["refused"] = False

    def _settle(self, state: State) -> bool:
        """Try Newton's step with the derivatives known, if it promises anything.

        Slopes at a point that is far from the best on its own support say little of
        what is missing from it.
        """
        index, value, objective, gradient = state["trial"]
        places = np.searchsorted(state["pool"], index)
        slope = gradient[index]
        try:
            factor = cho_factor(state["G"][np.ix_(places, places)])
        except np.linalg.LinAlgError:
            return False
        step = cho_solve(factor, slope)
        if not slope @ step / 2 > self._least(state, objective):
            return False
        state["try_index"], state["try_value"] = index, value - step
        state["n_settling"] += 1
        return True

    def _least(self, state: State, objective: float) -> float:
        return self.tol * max(objective, self.tol * state["first"])

    def _judge(self, state: State) -> None:
        """Take the best point tried or shorten the step; stop when neither pays."""
        before, index = state["objective"], state["index"]
        least = self._least(state, before)
        trial, state["trial"], state["n_settling"] = state["trial"], None, 0
        if trial[2] <= before:
            state["try_index"], state["try_value"] = trial[:2]
            self._accept(state, *trial[2:])
            is_whole = state["step"] == 1 or np.array_equal(index, trial[0])
            if before - trial[2] <= least and is_whole:
                state["done"] = state["converged"] = True
            state["step"] = min(state["step"] / SHORTER, 1.0)
            return
        state["refused"] = True
        state["step"] *= SHORTER
        # The model is exact for the squared loss, so what is left is rounding.
        if self.loss == "squared" or state["expected"] <= least:
            state["done"] = state["converged"] = True

    def _grow_pool(self, state: State) -> None:
        """Choose the entries whose second derivatives are asked for next."""
        C, d = state["n_outputs"], state["n_features"]
        known = state["pool"] if self.loss == "squared" else state["fixed"][:0]
        kept = np.union1d(known, np.union1d(state["index"], state["fixed"]))
        score = state["gradient"][: C * d] ** 2 / np.tile(state["scale"], C)
        score[kept[kept < C * d]] = 0
        if self.loss == "squared" and len(known):
            room = self._growth
        else:
            room = self.pool_size - int(np.count_nonzero(kept < C * d))
        joining = _largest(score, max(room, 0))
        wanted = np.union1d(kept, joining).astype(np.int32)
        if self.n_nonzero == 0:
            wanted = state["fixed"]
        state["pool"] = known.astype(np.int32)
        state["new"] = np.setdiff1d(wanted, known).astype(np.int32)
        state["task"] = "block"
        if not len(state["new"]):
            state["done"] = state["converged"] = True

    def _learn_block(self, state: State, block: np.ndarray) -> None:
        """Put the new rows of second derivatives where they belong."""
        known, new = state["pool"], state["new"]
        p, q = len(known), len(new)
        everything = np.concatenate([known, new])
        G = np.empty((p + q, p + q))
        if p:
            G[:p, :p] = state["G"]
        G[p:, :p] = block[: q * p].reshape(q, p)
        G[:p, p:] = G[p:, :p].T
        among = np.zeros((q, q))
        among[np.tril_indices(q)] = block[q * p :]
        G[p:, p:] = among + np.tril(among, -1).T
        penalised = new < state["n_outputs"] * state["n_features"]
        G[np.arange(p, p + q), np.arange(p, p + q)] += self.l2 * penalised
        order = np.argsort(everything)
        state["pool"], state["new"] = everything[order], new[:0]
        state["G"] = G[np.ix_(order, order)]

    def _propose(self, state: State) -> None:
        """Find the best point of the model inside the pool."""
        pool, G = state["pool"], state["G"]
        x = np.zeros(len(pool))
        x[np.searchsorted(pool, state["index"])] = state["value"]
        fixed = np.isin(pool, state["fixed"])
        free = pool >= state["n_outputs"] * state["n_features"]
        bent = G @ x
        c = bent - state["step"] * state["gradient"][pool]
        before = x @ bent / 2 - c @ x
        x, value = best_subset(
            G,
            c,
            start=x != 0,
            fixed=fixed,
            free=free,
            n_nonzero=self.n_nonzero,
            n_beyond=self._growth,
            max_swaps=self.max_swaps,
        )
        state["expected"] = before - value
        chosen = np.flatnonzero(x)
        state["try_index"], state["try_value"] = pool[chosen], x[chosen]
        state["task"] = "measure"

    def findings(self, state: State) -> State:
        """Give the model, its objective, and whether it was still falling."""
        model = ("index", "value", "n_outputs", "n_features")
        return {name: state[name] for name in (*model, "objective", "converged")}

    def final(self, state: State) -> dict[str, Any]:
        """Give the model, for clients that score rows by it."""
        coef, intercept, *_ = self.result(state)
        return held_out.model_message(coef, intercept)

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes, weights and classes."""
        return describe(cohort)

    def join(self, cohort: Cohort, agreement: dict) -> dict[str, Any]:
        """Put the labels into the classes of all."""
        y = cohort.y
        if cohort.classes is not None:
            y = codes_of(cohort, agreement["classes"])
        return {"y": y, "n_outputs": agreement["n_outputs"]}

    def dump(self, cohort: Cohort, cs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Give nothing: no visit leaves a trace."""
        return {}

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Join again."""
        check_kept({}, kept)
        return self.join(cohort, agreement)

    def update(
        self,
        cohort: Cohort,
        cs: dict[str, Any],
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Sum what was asked for over the active clients."""
        rows = second_order.rows_of(cohort, cs["y"], active, message["share"])
        C = cs["n_outputs"]
        index = np.asarray(message.get("index", np.zeros(0, np.int32)))
        value = np.asarray(message.get("value", np.zeros(0)))
        if "new" in message:
            known, new = np.asarray(message["known"]), np.asarray(message["new"])
            block = second_order.second_derivatives(
                self.loss, rows, index, value, C, known, new
            )
            return {"block": block}
        answer = second_order.measure(self.loss, rows, index, value, C)
        if "first" in message:
            answer |= second_order.moments(rows)
        return answer

    def scores(
        self, cohort: Cohort, cs: Any, message: dict, personal: dict
    ) -> np.ndarray:
        """Score the held-out rows (n, C) by the model."""
        return held_out.message_scores(cohort, message)

    def losses(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss (n,) of rows."""
        return losses.values(self.loss, scores, target)

    def personal(self, cohort: Cohort, cs: Any, message: dict) -> dict[str, Any]:
        """Give nothing: there is one model."""
        return {}


def _largest(score: np.ndarray, m: int) -> np.ndarray:
    """Places of the m largest positive scores, the first of equal ones."""
    order = np.argsort(-score, kind="stable")[:m]
    return order[score[order] > 0]
