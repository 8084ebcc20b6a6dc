"""Early stopping: held-out rows by client, and when they say that it is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import Cohort, Request, State, Sum
from . import participant
from .held_out import model_scores, row_losses

if TYPE_CHECKING:
    from .protocol import MTLSVM

# Right answers or squared errors; weight; weighted sums of y and y^2 about the centre,
# and of losses.
FIGURES = 5


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
        "loss": np.nan,
        "centre": 0.0,  # near the targets' mean: squares about it keep their digits
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
        all={
            "w": state["tried_w"],
            "was_best": state["was_best"],
            "centre": state["centre"],
        },
        each={"step": step},
        reply={"figures": Sum((FIGURES,))},
        clients=np.arange(n_clients, dtype=np.int32),
        lanes=np.array([0, n_clients]),
        everyone=True,
        evaluate=True,
    )


def judge(state: State, figures: np.ndarray, patience: int, regression: bool) -> State:
    """Read the score; go on, or stop when the best is `patience` rounds old."""
    hits, weight, total, squares, loss = figures.tolist()
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
        "loss": loss / weight,
        "centre": state["centre"] + total / weight,
        "was_best": better,
        "idle_rounds": idle,
    }
    if better:
        state |= {"scored_best_w": state["tried_w"], "best_score": score}
    return state


# a participant


def evaluate(cohort: Cohort, cs: participant.Clients, message: dict, svm: MTLSVM):
    """Score the held-out rows of all clients, and put the model aside."""
    held = cohort.held_out
    if message["was_best"]:
        cs.best = cs.tried
    cs.tried = participant.settled(cs, message["step"])
    v = participant.personal_models(cs, cs.tried)
    scores = model_scores(cohort, np.asarray(message["w"]), v, svm.bias)
    weight = np.ones(len(scores))
    if held.sample_weight is not None:
        weight = held.sample_weight
    if held.classes is None:
        target, y = held.y, held.y - float(message["centre"])
        value = (scores[:, 0] - target) ** 2
    else:
        target, y = cs.held_code, np.zeros(len(scores))
        binary = scores.shape[1] == 1
        value = (scores[:, 0] > 0 if binary else scores.argmax(axis=1)) == target
    losses = row_losses(svm.loss, svm.epsilon, scores, target)
    terms = (value, np.ones(len(scores)), y, y * y, losses)
    return {"figures": np.array([float(weight @ term) for term in terms])}
