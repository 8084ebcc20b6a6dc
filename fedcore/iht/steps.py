"""The coordinator of FedHT, FedIterHT and DistributedIHT: points, steps, when to stop.

An exchange sends a point; what comes back holds the objective there, over all rows of
those who answer, and what the next point is made of. math.md, section 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import Kind, Request, State, Sum
from .participant import (
    BAD_POINT,
    BAD_STEPS,
    LOSS,
    MASS,
    MEASURE,
    N_FIGURES,
    SMOOTHNESS,
    STEPS,
    SURVEY,
)
from .threshold import top

if TYPE_CHECKING:
    from .protocol import IHT

PATIENCE = 10  # rounds in a row that gain less than tol before the fit stops
MEMORY = 5  # a step may end above the last objective, not above the last few
SHRINK = 0.3
GROW = 1.2
MOST_GROWTH = 10.0  # over the first step; clients go no further than their own 1/L
DESCENT = 1e-4  # of what a step promises has to come true
SLACK = 0.5  # two samples of clients do not have the same objective
SHORT = 0.03  # local steps, over 1/L: the sum of the clients' moves is then a gradient
FAR = 10.0  # times the objective at 0: a fixed step that gets there has diverged
LOST = 0.1  # of what was gained: a fixed step that loses so much in the end rose


def start(iht: IHT, n_outputs: int, n_features: int) -> State:
    """Begin at x = 0."""
    size = n_outputs * n_features
    automatic = iht.step_size == "auto"
    state: State = {
        "round": 1,
        "done": False,
        # The line search surveys the support that the first gradient points to.
        "work": STEPS if iht.searches_gradients or not automatic else SURVEY,
        "step": 1.0 if automatic else float(iht.step_size),
        "local_step": 1.0 if automatic else float(iht.step_size),
        "shape": (n_outputs, n_features),
        "objectives": np.zeros(0),  # of the point kept after 0, 1, ... rounds
        "recent": np.zeros(0),  # of the last points that were kept
        "reference": np.inf,  # has to be improved by tol
        "stalled": 0,  # rounds since it was
        "best_objective": np.inf,
        "converged": False,
        "diverged": False,
        "rose": False,
        "partial": False,  # some exchange has not reached everybody
        "control_index": np.zeros(0, np.int32),
        "control_value": np.zeros(0),
        "control_intercept": np.zeros(n_outputs),
    }
    for name in ("", "kept_", "best_"):
        put(state, name, np.zeros(size), np.zeros(n_outputs))
    if iht.line_search:
        state["kept_gradient"] = np.zeros(size)
        state["kept_gradient_intercept"] = np.zeros(n_outputs)
    return state


def put(state: State, name: str, x: np.ndarray, intercept: np.ndarray) -> None:
    """Store a point as pairs."""
    index = np.flatnonzero(x).astype(np.int32)
    state[name + "index"], state[name + "value"] = index, x[index]
    state[name + "intercept"] = intercept


def copy(state: State, source: str, target: str) -> None:
    """Store a point under another name."""
    for part in ("index", "value", "intercept"):
        state[target + part] = state[source + part]


def dense(state: State, name: str) -> np.ndarray:
    """Coefficients (C * d,) of a point."""
    x = np.zeros(state["shape"][0] * state["shape"][1])
    x[state[name + "index"]] = state[name + "value"]
    return x


def request(iht: IHT, state: State) -> Request:
    """Send the point and say what it is for."""
    C, d = state["shape"]
    work = state["work"]
    message = {"work": work}
    message |= {name: state[name] for name in ("index", "value", "intercept")}
    reply: dict[str, Kind] = {"figures": Sum((N_FIGURES,))}
    if work == STEPS:
        reply["x"] = Sum((C * d,), sparse=iht.rule == "FedIterHT")
        reply["intercept"] = Sum((C,))
        if iht.rule != "DistributedIHT":
            message["step"] = state["local_step"]
        if iht.control_variates:
            for name in ("control_index", "control_value", "control_intercept"):
                message[name] = state[name]
            reply["control"] = Sum((len(state["index"]),))
            reply["control_intercept"] = Sum((C,))
    everyone = work != STEPS or iht.searches_gradients
    return Request(all=message, reply=reply, everyone=everyone)


def combine(iht: IHT, state: State, reply: dict, who: np.ndarray) -> State:
    """Judge the point that was sent and choose the next one."""
    state = dict(state)
    figures = reply["figures"]
    mass = figures[MASS]
    if state["work"] == SURVEY:
        curvature = figures[SMOOTHNESS] / mass + iht.l2
        state["step"] = 1 / curvature if curvature > 0 else 1.0
        state["longest"] = MOST_GROWTH * state["step"]
        state["local_step"] = state["step"] * (SHORT if iht.line_search else 1)
        state["work"] = STEPS
        if iht.searches_gradients:
            _step_from_gradient(iht, state)
        return state
    objective = objective_at(iht, state, figures)
    if state["work"] == MEASURE:
        return _finish(iht, state, objective)
    if not (len(state["objectives"]) or np.isfinite(objective)):
        raise ValueError("the objective overflows at the start: scale y")
    if iht.control_variates:
        state["control_index"] = state["index"]
        state["control_value"] = reply["control"] / mass
        state["control_intercept"] = reply["control_intercept"] / mass
    x, intercept = reply["x"] / mass, reply["intercept"] / mass
    bad = bool(figures[BAD_STEPS])
    searches = iht.searches_gradients or (iht.line_search and not state["partial"])
    if not (state["partial"] or who.all()):
        state["partial"] = True
        if searches and not iht.searches_gradients:
            # Moves of samples do not compare: stay here, go on with published rounds.
            searches, x, intercept = False, dense(state, ""), state["intercept"]
            state["local_step"] = state["longest"] / MOST_GROWTH
    if iht.rule == "DistributedIHT":
        x += iht.l2 * dense(state, "")
    if searches:
        if not iht.searches_gradients:
            # The mean move, per unit of local step, stands for a gradient.
            length = state["local_step"] * iht.local_steps
            x = (dense(state, "") - x) / length
            intercept = (state["intercept"] - intercept) / length
        _search(iht, state, objective, x, intercept, bad)
    else:
        if iht.rule == "DistributedIHT":
            x = dense(state, "") - state["step"] * x
            intercept = state["intercept"] - state["step"] * intercept
        x = _threshold(iht, x)
        if iht.step_size == "auto":
            _adapt(state, objective, x, intercept, bad, who)
        else:
            _follow(state, objective, x, intercept, bad)
    return _move_on(iht, state)


def objective_at(iht: IHT, state: State, figures: np.ndarray) -> float:
    """Read the objective at the point that was sent; inf if it overflowed."""
    ridge = iht.l2 / 2 * float(state["value"] @ state["value"])
    objective = float(figures[LOSS] / figures[MASS]) + ridge
    return np.inf if figures[BAD_POINT] else objective


def _threshold(iht: IHT, x: np.ndarray) -> np.ndarray:
    """Apply H_tau to coefficients (C * d,)."""
    index = top(x, iht.n_nonzero)
    thresholded = np.zeros_like(x)
    thresholded[index] = x[index]
    return thresholded


def _keep(state: State, objective: float) -> None:
    """Take the point that was sent as the one to go on from."""
    copy(state, "", "kept_")
    state["recent"] = np.append(state["recent"], objective)[-MEMORY:]
    if objective < state["best_objective"]:
        copy(state, "", "best_")
        state["best_objective"] = objective


def _follow(state, objective, x, intercept, bad) -> None:
    """Take the step that was given, whatever comes of it."""
    _keep(state, objective)
    first = state["objectives"][0] if len(state["objectives"]) else objective
    state["diverged"] = bad or not objective <= FAR * first
    put(state, "", x, intercept)


def _adapt(state, objective, x, intercept, bad, who) -> None:
    """Lengthen the local steps while the objective obeys, else go back and shorten."""
    slack = 0.0 if who.all() else SLACK
    kept = state["recent"]
    if not len(kept) or objective <= (1 + slack) * kept.max():
        _keep(state, objective)
        if not bad:
            step = min(GROW * state["local_step"], state["longest"])
            state["step"] = state["local_step"] = step
            put(state, "", x, intercept)
            return
    state["step"] = state["local_step"] = SHRINK * state["local_step"]
    copy(state, "kept_", "")


def _search(iht, state, objective, g, g_intercept, bad) -> None:
    """Step along a gradient by the rule of Barzilai and Borwein, watched."""
    kept = state["recent"]
    dx = dense(state, "") - dense(state, "kept_")
    db = state["intercept"] - state["kept_intercept"]
    length = float(dx @ dx + db @ db)
    promise = DESCENT * length / (2 * state["step"])
    if len(kept) and not (objective <= kept.max() - promise and not bad):
        state["step"] *= SHRINK
        _step_from_gradient(iht, state)
        return
    if len(kept):
        bend = float(dx @ (g - state["kept_gradient"]))
        bend += float(db @ (g_intercept - state["kept_gradient_intercept"]))
        if length > 0:
            state["step"] = length / bend if bend > 0 else 2 * state["step"]
    _keep(state, objective)
    state["kept_gradient"], state["kept_gradient_intercept"] = g, g_intercept
    _step_from_gradient(iht, state)
    if not len(kept) and iht.searches_gradients:
        state["work"] = SURVEY  # of the support that this step has chosen


def _step_from_gradient(iht: IHT, state: State) -> None:
    x = dense(state, "kept_") - state["step"] * state["kept_gradient"]
    free = state["kept_intercept"] - state["step"] * state["kept_gradient_intercept"]
    put(state, "", _threshold(iht, x), free)


def _move_on(iht: IHT, state: State) -> State:
    """Count the round, and see whether it was the last one."""
    if state["work"] == SURVEY:
        return state
    state["objectives"] = np.append(state["objectives"], state["recent"][-1])
    if state["best_objective"] < (1 - iht.tol) * state["reference"]:
        state["reference"], state["stalled"] = state["best_objective"], 0
    else:
        state["stalled"] += 1
    state["converged"] = iht.tol > 0 and state["stalled"] >= PATIENCE
    automatic = iht.step_size == "auto"
    if state["diverged"] or (state["converged"] and automatic):
        copy(state, "best_", "")
    if state["diverged"] or state["converged"] or state["round"] >= iht.max_rounds:
        state["work"] = MEASURE
    else:
        state["round"] += 1
    return state


def _finish(iht: IHT, state: State, objective: float) -> State:
    """End at the point that was measured, or at a better one that was met before."""
    best = state["best_objective"]
    gained = max(state["objectives"][0] - best, 0)
    state["rose"] = not objective <= best + LOST * gained
    given = iht.step_size != "auto" and not state["rose"]  # as published: the last one
    sampled = state["partial"]  # the objectives of samples do not compare
    if given or sampled or objective <= best:
        copy(state, "", "best_")
        state["best_objective"] = objective
    copy(state, "best_", "")
    state["objectives"] = np.append(state["objectives"], state["best_objective"])
    return state
