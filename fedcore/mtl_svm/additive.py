"""Coordinator of the rules that add the clients' changes to w.

"sum", "safe" and "line_search" ask everybody in each round; in a round of "sequential"
each client takes one turn. math.md, section 1, "Ways to combine".
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from .._kernels import _rng
from .._kernels._svm import N_SOLVE_FIGURES, N_UPDATE_FIGURES
from ..federation.contract import Key, Request, State, Sum
from . import certificate

if TYPE_CHECKING:
    from .protocol import MTLSVM

N_LANES = 2  # work side by side in a turn, whatever the threads; more overshoot more
TURNS_A_ROUND = 2  # more are no better, and each costs an exchange

MOST_CONTACTS = (
    100  # w's of the past that are kept for the bound; then all are measured
)
MOST_TRUST = 10.0  # a gap met on the way says nothing when it is further off than this


def start(svm: MTLSVM, agreement: dict, sizes: dict, key: Key) -> State:
    """Begin at w = 0, b = 0, where the dual is 0."""
    C, length, K = agreement["n_classes"], sizes["length"], sizes["n_clients"]
    state = {
        "round": 1,
        "done": False,
        "diverged": False,
        "sparse": sizes["sparse"],
        "w": np.zeros((C, length)),
        "step": np.ones((K, C)),
        "dual": np.zeros(C),
        "primal": np.full(C, np.nan),
        "gap": np.full(C, np.nan),
        "working": np.ones(C, np.uint8),
        "measuring": np.zeros(C, np.uint8),
        "estimate": np.full(C, np.nan),
        "heard": 0,  # replies of this round
        "certify": False,
        "opening": False,  # measured before any work
        "seen": np.zeros(C),  # gap of this round, as the clients met it on their way
        "seen_before": np.zeros(C),
        "trust": np.ones(C),  # the measured gap over the one seen, when last measured
        "warm": svm.warm,  # w is not yet the sum of what the clients came with
        "promised": np.zeros(C, bool),
        "rough": svm.mirrors,  # passes may read float32 copies of the rows
        "stale": np.zeros(C, bool),  # s lags behind b after rough passes
        "look_at": 16,  # measure then at the latest, whatever was seen
        "judged": False,  # the gap is that of the round that just ended
        "coupling": np.full(C, float(K) if svm.aggregation == "safe" else 1.0),
        "n_passes": _n_passes(svm, sizes),
        "passes": 0.0,
        "turn": 0,
    }
    if svm.warm:
        state["measuring"] = np.ones(C, np.uint8)
    if agreement["certify"]:
        # The first bound needs a gap of everybody.
        state |= certificate.start(K, C, length)
        state |= {"opening": True, "measuring": np.ones(C, np.uint8)}
    if svm.aggregation == "sequential":
        # Each lane has a w of its own: where that is long beside the rows, one serves.
        wide = N_LANES * TURNS_A_ROUND * length > 4 * sizes["n_entries"]
        n_lanes, n_turns = (1, 1) if wide else (N_LANES, TURNS_A_ROUND)
        state["n_lanes"] = n_lanes
        state["lane_size"] = -(-K // (n_lanes * n_turns))
        state["turn_size"] = n_lanes * state["lane_size"]
        state["order"] = _order(K, 1, key)
    return state


def broadcast(svm: MTLSVM, state: State) -> Request:
    """Ask for a measurement when one is due, else for local work."""
    C, length = state["w"].shape
    message = {"w": state["w"], "measure": bool(state["measuring"].any())}
    if message["measure"]:
        message |= {"working": state["measuring"], "tol": np.full(C, -np.inf)}
        message |= {"renew": bool(state["stale"].any()), "certify": state["certify"]}
        reply = _reply_kinds("s", length, C, state["sparse"])
        each = {"step": state["step"]}
        return Request(all=message, each=each, reply=reply, everyone=True)
    sequential = svm.aggregation == "sequential"
    message |= {
        "working": state["working"],
        "passes": state["n_passes"],
        "rough": state["rough"],
        "coupling": state["coupling"],
        "hand_on": sequential,
        "certify": state["certify"],
    }
    clients, lanes = _turn(state) if sequential else (None, None)
    return Request(
        all=message,
        each={"step": state["step"]},
        reply=_reply_kinds("ds", length, C, state["sparse"], state["certify"]),
        clients=clients,
        lanes=lanes,
        passes=state["n_passes"] + state["certify"],
    )


@lru_cache(maxsize=16)
def _reply_kinds(
    name: str, length: int, C: int, sparse: bool, certify: bool = False
) -> dict[str, Sum]:
    """Kinds of the replies; they are the same all through a run."""
    n_figures = N_UPDATE_FIGURES if name == "ds" else N_SOLVE_FIGURES
    kinds = {name: Sum((length, C), sparse), "figures": Sum((C, n_figures))}
    if certify:
        kinds["gaps"] = Sum((C, certificate.N_FIGURES))
    return kinds


def combine(svm: MTLSVM, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
    """Take the changes into w, or judge what was measured."""
    if state["warm"]:
        return _take_up(state, reply)
    if state["measuring"].any():
        return _judge(svm, state, reply, who, key)
    state = _add(svm, dict(state), reply, who)
    if svm.aggregation == "sequential":
        state["turn"] += 1
        if state["turn"] * state["turn_size"] < len(who):
            return state
    if svm.aggregation == "sum" and not (state["dual"] >= 0).all():
        # At b = 0 the dual is 0: the published rule has left the road.
        state["diverged"] = True
    if state["certify"]:
        certificate.judge(svm, state)
        if certificate.holds(svm, state):
            return state | {"done": True, "certified": True}
    # The silent ones are thought to be like the others.
    state["seen"] = state["seen"] * (len(who) / max(state["heard"], 1))
    seen = np.maximum(state["seen"], 0)  # of rounding, it may fall a hair below
    before = np.maximum(state["seen_before"], 0)
    # The clients met this gap in the middle of the round; it fell on to its end.
    trend = np.divide(seen, before, out=np.ones_like(seen), where=before > seen)
    estimate = trend * seen / np.maximum(seen + state["dual"], 1e-300)
    due = estimate * state["trust"] <= svm.tol
    if not state["heard"]:
        due[:] = False
    if state["certify"] and len(state["contact_w"]) > MOST_CONTACTS:
        due[:] = True
    if state["certify"]:  # the classes share their contacts
        due[:] = (due & (state["working"] > 0)).any()
    state["promised"] = due.copy()
    if state["round"] >= min(state["look_at"], svm.max_rounds) or state["diverged"]:
        due[:] = True
        state["look_at"] = 2 * state["round"]
    state["estimate"] = estimate
    state["measuring"] = (due & (state["working"] > 0)).astype(np.uint8)
    return state if state["measuring"].any() else _next_round(state, key)


def _take_up(state: State, reply: dict) -> State:
    """Start at w = sum_k s_k; at 0 in a class where the dual is lower than there."""
    state = dict(state)
    s, figures = reply["s"].T, reply["figures"]
    # As measured at w = 0, where the primal has no term of w.
    dual = figures[:, 1] - figures[:, 0] - np.einsum("cj,cj->c", s, s) / 2
    helps = dual > 0
    state["w"] = np.where(helps[:, None], s, 0)
    state["dual"] = np.where(helps, dual, 0)
    state["step"] = np.where(helps, state["step"], 0.0)
    state["warm"] = False
    return state


def _add(svm: MTLSVM, state: State, reply: dict, who: np.ndarray) -> State:
    """Take w + g ds, with the best common g in [0, 1] unless the rule fixes it at 1."""
    state["judged"] = False
    if not who.any():
        return state
    w, changes, figures = state["w"].copy(), reply["ds"].T, reply["figures"].tolist()
    steps, dual = np.ones(len(w)), state["dual"].copy()
    state["coupling"] = state["coupling"].copy()
    for c, (own_linear, own_quadratic, _) in enumerate(figures):
        dw = changes[c]
        linear = own_linear - float(w[c] @ dw)
        quadratic = own_quadratic + float(dw @ dw)
        step = 1.0
        if svm.aggregation not in ("sum", "safe"):
            best = linear / quadratic if quadratic > 0 else float(linear > 0)
            step = min(max(best, 0.0), 1.0)
            if svm.aggregation == "sequential":
                state["coupling"][c] = _coupling(state, c, best)
        w[c] += dw if step == 1 else step * dw
        dual[c] += step * (linear - step * quadratic / 2)
        steps[c] = step
    if state["certify"]:
        certificate.meet(state, who, state["w"], reply["gaps"], np.array(steps))
    state["w"], state["dual"] = w, dual
    state["step"] = np.where(who[:, None], steps, state["step"])
    state["heard"] += int(np.count_nonzero(who))
    state["seen"] = state["seen"] + reply["figures"][:, 2]
    if state["rough"]:
        state["stale"] = state["working"] > 0
    state["passes"] += state["n_passes"] * np.count_nonzero(who) / len(who)
    return state


def _coupling(state: State, c: int, best_step: float) -> float:
    """Choose how far each lane reckons with the others' moves of w.

    Lanes that pull the same way overshoot together: then each counts its own moves
    more than once, as in "safe", as much as the best step asks for.
    """
    asked = state["coupling"][c] / max(best_step, 0.1) ** 0.5
    return min(max(asked, 1.0), state["n_lanes"])


def _judge(svm: MTLSVM, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
    """Read the relative gap of the classes that were measured."""
    state = dict(state)
    measured = state["measuring"] > 0
    rest = state["w"] - reply["s"].T
    norm = np.einsum("cj,cj->c", state["w"], state["w"])
    primal = norm / 2 + reply["figures"][:, 1]
    gap = reply["figures"][:, 0] + np.einsum("cj,cj->c", rest, rest) / 2
    relative = np.divide(gap, primal, out=np.zeros(len(gap)), where=primal > 0)
    state["primal"] = np.where(measured, primal, state["primal"])
    state["dual"] = np.where(measured, primal - gap, state["dual"])
    state["gap"] = np.where(measured, relative, state["gap"])
    trust = np.minimum(relative / np.maximum(state["estimate"], 1e-300), MOST_TRUST)
    state["trust"] = np.where(measured & ~np.isnan(trust), trust, state["trust"])
    state["step"] = np.where(who[:, None] & measured, 1.0, state["step"])
    state["working"] = state["working"] * ~(measured & (relative <= svm.tol))
    state["measuring"] = np.zeros_like(state["measuring"])
    state["judged"] = True
    if state["certify"]:
        certificate.meet_all(state, measured, reply["figures"][:, 0])
        certificate.judge(svm, state)
    opening, state["opening"] = state["opening"], False
    state["done"] = bool(
        not state["working"].any()
        or state["diverged"]
        or (state["round"] >= svm.max_rounds and not opening)
    )
    if state["done"] or opening:
        return state
    renewed = measured & state["stale"]  # from the exact rows, and w is the sum of s
    state["w"] = np.where(renewed[:, None], reply["s"].T, state["w"])
    state["stale"] = state["stale"] & ~measured & (state["working"] > 0)
    if state["rough"] and (state["promised"] & measured & (relative > svm.tol)).any():
        state["rough"] = False
        state["promised"] = np.zeros_like(state["promised"])
    if not state["rough"] and state["stale"].any():
        # Exact passes go on from s: it must be renewed in the other classes too.
        state["measuring"] = state["stale"].astype(np.uint8)
        return state
    return _next_round(state, key)


def _next_round(state: State, key: Key) -> State:
    state["round"] += 1
    state["turn"] = state["heard"] = 0
    state["seen_before"] = state["seen"]
    state["seen"] = np.zeros_like(state["seen"])
    if "order" in state:
        state["order"] = _order(len(state["order"]), state["round"], key)
    return state


def _n_passes(svm: MTLSVM, sizes: dict) -> int:
    """Count the passes that a client makes over its rows in one visit."""
    if svm.local_epochs != "auto":
        return int(svm.local_epochs)
    if svm.aggregation == "sum":
        return 1
    if svm.aggregation != "sequential":
        return 5
    # What is fitted in columns that all share, the next client changes again.
    if svm.own_columns is not None and 2 * len(svm.own_columns) < sizes["length"]:
        return 1
    # Where columns outnumber a client's rows its problem is soon solved, and where they
    # are sparse a second pass gains nothing.
    if 4 * sizes["n_entries"] < sizes["n_rows"] * sizes["length"]:
        return 1
    return 2 if sizes["n_rows"] < sizes["length"] * sizes["n_clients"] else 5


def _order(n_clients: int, round: int, key: Key) -> np.ndarray:
    order = np.empty(n_clients, np.int32)
    _rng.permutation(key[0], round, _rng.CLIENTS, 0, order)
    return order


def _turn(state: State) -> tuple[np.ndarray, np.ndarray]:
    """Name the clients of this turn, and how the lanes share them."""
    first = state["turn"] * state["turn_size"]
    clients = state["order"][first : first + state["turn_size"]]
    lanes = np.arange(0, len(clients) + state["lane_size"], state["lane_size"])
    return clients, lanes.clip(max=len(clients))
