"""Refit on the support that was found: Newton's method, of which clients give sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg

from ..federation.contract import Kind, Request, State, Sum
from .participant import MASS, N_FIGURES, NEWTON
from .steps import objective_at

if TYPE_CHECKING:
    from .protocol import IHT

MOST_ROUNDS = 30  # of Newton's method
MOST_ROUNDS_BFGS = 200
ENOUGH = 1e-15  # stop when a step promises less than this part of the objective
ENOUGH_BFGS = 1e-9
ROUNDING = 1e-14  # part of the objective that its sum may be off by
LEAST_BEND = 1e-11  # of the scaled Hessian: directions that bend less stay as they are
ARMIJO = 1e-4
SHRINK = 0.3
LEAST_DAMPING = 1e-8
MOST_PLACES = 1000  # a Hessian of this order is a message of 4 MB; above it, L-BFGS
MEMORY = 20


def has_places(iht: IHT, state: State) -> bool:
    """Whether there is anything to refit."""
    return bool(len(state["index"]) or iht.fit_intercept)


def start(iht: IHT, state: State) -> State:
    """Go on from the point where the rounds ended."""
    state = dict(state)
    m = len(state["index"]) + iht.fit_intercept * len(state["intercept"])
    state |= {
        "work": NEWTON,
        "round": state["round"] + 1,
        "refits": 0,
        "curved": m <= MOST_PLACES,
        "base": _vector(iht, state),
        "direction": np.zeros(m),
        "slope": 0.0,
        "damping": 1.0,
    }
    if not state["curved"]:
        state |= {"moves": np.zeros((0, m)), "bends": np.zeros((0, m))}
        state["base_gradient"] = np.zeros(m)
    return state


def request(iht: IHT, state: State) -> Request:
    """Ask for objective, gradient and Hessian on the support."""
    message = {"work": NEWTON, "curved": state["curved"]}
    message |= {name: state[name] for name in ("index", "value", "intercept")}
    m = len(state["base"])
    reply: dict[str, Kind] = {"figures": Sum((N_FIGURES,)), "gradient": Sum((m,))}
    if state["curved"]:
        reply["hessian"] = Sum((m * (m + 1) // 2,))  # its lower triangle
    return Request(all=message, reply=reply, everyone=True)


def combine(iht: IHT, state: State, reply: dict) -> State:
    """Judge the point that was tried; choose the next one."""
    state = dict(state)
    state["refits"] += 1
    first = state["refits"] == 1
    objective = objective_at(iht, state, reply["figures"])
    bar = state["best_objective"] * (1 + ROUNDING)
    if first or objective <= bar + ARMIJO * state["damping"] * state["slope"]:
        mass = reply["figures"][MASS]
        state["base"] = _vector(iht, state)
        state["best_objective"] = objective
        g = reply["gradient"] / mass
        g[: len(state["value"])] += iht.l2 * state["value"]
        if "moves" in state:
            _remember(state, g, first)
            state["direction"] = _bfgs_direction(state, g)
        else:
            if state["curved"]:
                H = np.zeros((len(g), len(g)))
                H[np.tril_indices(len(g))] = reply["hessian"] / mass
                H += np.tril(H, -1).T
                places = np.arange(len(state["value"]))
                H[places, places] += iht.l2
                state["hessian"] = H
                state["curved"] = iht.loss != "squared"  # there it stays as it is
            state["direction"] = _newton_direction(state["hessian"], g)
        state["slope"] = float(g @ state["direction"])
        state["damping"] = 1.0
        enough = ENOUGH_BFGS if "moves" in state else ENOUGH
        ended = -state["slope"] <= enough * objective
    else:
        state["damping"] *= SHRINK
        ended = state["damping"] < LEAST_DAMPING
    most = MOST_ROUNDS_BFGS if "moves" in state else MOST_ROUNDS
    state["objectives"] = np.append(state["objectives"], state["best_objective"])
    if ended or state["refits"] >= most:
        _place(iht, state, state["base"])
        state["done"] = True
    else:
        _place(iht, state, state["base"] + state["damping"] * state["direction"])
        state["round"] += 1
    return state


def _vector(iht: IHT, state: State) -> np.ndarray:
    if iht.fit_intercept:
        return np.concatenate([state["value"], state["intercept"]])
    return state["value"]


def _place(iht: IHT, state: State, vector: np.ndarray) -> None:
    s = len(state["index"])
    state["value"] = vector[:s]
    if iht.fit_intercept:
        state["intercept"] = vector[s:]


def _newton_direction(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Solve on the directions that bend; repeated columns leave some that do not."""
    scale = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1))
    bend, axes = linalg.eigh(H / scale / scale[:, None])
    bends = bend > LEAST_BEND * bend[-1:].sum()
    axes = axes[:, bends]
    return -(axes @ ((axes.T @ (g / scale)) / bend[bends])) / scale


def _remember(state: State, g: np.ndarray, first: bool) -> None:
    """Add the last move and its change of gradient to the memory of L-BFGS."""
    if not first:
        move = state["damping"] * state["direction"]
        bend = g - state["base_gradient"]
        if move @ bend > 0:
            state["moves"] = np.vstack([state["moves"], move])[-MEMORY:]
            state["bends"] = np.vstack([state["bends"], bend])[-MEMORY:]
    state["base_gradient"] = g


def _bfgs_direction(state: State, g: np.ndarray) -> np.ndarray:
    """Apply the inverse Hessian of the two loops to -g."""
    pairs = list(zip(state["moves"], state["bends"], strict=True))
    if not pairs:
        return -state["step"] * g
    q, weights = -g, []
    for move, bend in reversed(pairs):
        weights.append(move @ q / (move @ bend))
        q = q - weights[-1] * bend
    move, bend = pairs[-1]
    q = q * (move @ bend) / (bend @ bend)
    for (move, bend), weight in zip(pairs, reversed(weights), strict=True):
        q = q + (weight - bend @ q / (move @ bend)) * move
    return q
