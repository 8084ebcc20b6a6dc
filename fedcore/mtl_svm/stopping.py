"""Early stopping: held-out rows by client, and when they say that it is enough."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy import sparse

from .._client_scores import client_scores
from ..federation.contract import Cohort, Request, State, Sum
from . import participant

FIGURES = 4  # right answers or squared errors; weight; weighted sums of y and of y^2


def hold_out(
    owner: np.ndarray, label: np.ndarray, fraction: float, rng: np.random.RandomState
) -> np.ndarray:
    """Choose rows (n,) to hold out: a share of each client's, of all its labels alike.

    No label of a client loses its last row. Clients with too few rows give none.
    """
    n = len(owner)
    # Evenly spaced places in the order of labels, shuffled inside, hit all alike.
    order = np.lexsort((rng.permutation(n), label, owner))
    sizes = np.bincount(owner)
    first = np.concatenate([[0], np.cumsum(sizes)])[owner[order]]
    size = sizes[owner[order]]
    quota = np.floor(fraction * size + 0.5)
    place = np.arange(n) - first
    chosen = np.floor((place + 1) * quota / size) > np.floor(place * quota / size)
    held = np.zeros(n, bool)
    held[order] = chosen
    _, cell = np.unique(np.column_stack([owner, label]), axis=0, return_inverse=True)
    cell = cell.reshape(-1)
    emptied = np.bincount(cell, ~held) == 0
    _, firsts = np.unique(cell, return_index=True)
    held[firsts[emptied]] = False
    return held


# the coordinator


def start(state: State) -> State:
    """Add what early stopping keeps to a rule's state."""
    return state | {
        "evaluating": False,
        "was_best": False,
        "tried_w": state["w"],
        "scored_best_w": state["w"],
        "best_score": -np.inf,
        "idle_rounds": 0,
        "score": np.nan,
        "next_round": 1,
        "finished": False,
    }


def hold(before: State, after: State, w: np.ndarray) -> State:
    """Keep a round that has ended open until its model is scored."""
    return after | {
        "evaluating": True,
        "round": before["round"],
        "next_round": after["round"],
        "finished": after["done"],
        "done": False,
        "tried_w": w,
    }


def request(state: State) -> Request:
    """Ask everybody to score the model that this round made."""
    C = len(state["w"])
    step = state["step"] if "step" in state else np.ones((state["n_clients"], C))
    n_clients = len(step)
    return Request(
        all={"w": state["tried_w"], "was_best": state["was_best"]},
        each={"step": step},
        reply={"figures": Sum((FIGURES,))},
        clients=np.arange(n_clients, dtype=np.int32),
        lanes=np.array([0, n_clients]),
        everyone=True,
        evaluate=True,
    )


def judge(state: State, figures: np.ndarray, patience: int, regression: bool) -> State:
    """Read the score; go on, or stop when the best is `patience` rounds old."""
    hits, weight, total, squares = figures.tolist()
    if regression:
        spread = squares - total * total / weight
        score = 1 - hits / spread if spread > 0 else 0.0
    else:
        score = hits / weight
    better = score > state["best_score"]
    idle = 0 if better else state["idle_rounds"] + 1
    state = state | {
        "evaluating": False,
        "round": state["next_round"],
        "done": state["finished"] or idle >= patience,
        "score": score,
        "was_best": better,
        "idle_rounds": idle,
    }
    if better:
        state |= {"scored_best_w": state["tried_w"], "best_score": score}
    return state


# a participant


def evaluate(cohort: Cohort, cs: participant.Clients, message: dict, bias: float):
    """Score the held-out rows of all clients, and put the model aside."""
    held = cohort.held_out
    if message["was_best"]:
        cs.best = cs.tried
    cs.tried = participant.settled(cs, message["step"])
    v = participant.personal_models(cs, cs.tried)
    K = cohort.n_clients
    w, b, v, c = split_models(np.asarray(message["w"]), v, bias, K)
    model = SimpleNamespace(
        coef_=w,
        intercept_=b,
        client_coef_=v,
        client_intercept_=c,
        clients_=np.arange(K),
    )
    owners = np.repeat(np.arange(K), np.diff(held.offsets))
    scores = client_scores(model, held.X, owners)
    weight = np.ones(len(owners))
    if held.sample_weight is not None:
        weight = held.sample_weight
    if held.classes is None:
        value, y = (scores[:, 0] - held.y) ** 2, held.y
    else:
        binary = scores.shape[1] == 1
        told = scores[:, 0] > 0 if binary else scores.argmax(axis=1)
        value, y = told == cs.held_code, np.zeros(len(owners))
    terms = (value, np.ones(len(owners)), y, y * y)
    return {"figures": np.array([float(weight @ term) for term in terms])}


def split_models(
    w: np.ndarray, v: Any, bias: float, K: int
) -> tuple[np.ndarray, np.ndarray, Any, np.ndarray]:
    """Split the constant column off w (C, length) and v, as intercepts."""
    C, d = len(w), w.shape[1] - bool(bias)
    if not bias:
        return w.copy(), np.zeros(C), v, np.zeros((K, C))
    if sparse.issparse(v):
        v, last = _without_last(v, d)
    else:
        v, last = v[:, :, :d].copy(), v[:, :, d]
    return w[:, :d].copy(), w[:, d] * bias, v, last.reshape(K, C) * bias


def _without_last(v: sparse.csr_array, d: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Take the constant column, the last entry of each row, off a CSR array."""
    ends = v.indptr[1:] - 1
    rest = np.ones(v.nnz, bool)
    rest[ends] = False
    indptr = v.indptr - np.arange(len(v.indptr), dtype=v.indptr.dtype)
    parts = (v.data[rest], v.indices[rest], indptr)
    return sparse.csr_array(parts, shape=(v.shape[0], d)), v.data[ends]
