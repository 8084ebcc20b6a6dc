"""The coordinator's steps: one point a group, or general mixing of all points."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import Each, Request, State, Sum
from . import participant

if TYPE_CHECKING:
    from .protocol import GraphMTL

MEMORY = 5  # objectives that a trial point must not all exceed
SHORTER = 0.3
FALLS = 1e-4
SLOWER, FASTER = 0.5, 1.05
WINDOW = 10  # rounds over which the objective must fall by tol of itself


def start_tables(state: State, points: np.ndarray) -> None:
    """Begin at points (G, p), of which nothing is known."""
    G = len(points)
    state["base"], state["point"] = points, points.copy()
    state["gradient"] = np.zeros_like(points)
    state["F"] = np.full((G, MEMORY), -np.inf)
    state["step"] = np.ones(G)
    state["begun"] = np.zeros(G, bool)


def regrouped(state: State, labels: np.ndarray) -> None:
    """Give each new group the mean of its members' points."""
    old = state["labels"]
    if np.array_equal(labels, old):
        return
    size = np.bincount(labels)
    share = np.zeros((len(size), len(state["base"])))
    np.add.at(share, (labels, old), 1 / size[labels])
    step = share @ state["step"]
    state["labels"] = labels
    start_tables(state, share @ state["base"])
    state["step"] = step
    state["steps_known"] = False


def request(method: GraphMTL, state: State) -> Request:
    """Send each client the point of its group, and ask for gradients there."""
    p, labels = state["point"].shape[1], state["labels"]
    apart = method.mixing is not None
    everything = {
        "work": participant.TRAIN,
        "heads": state["mixing_step"] == 0,
        "each": apart,
    }
    kinds = (
        {"gradient": Each((p,)), "loss": Each(())}
        if apart
        else {"pull": Sum((len(state["point"]), p + 2), sparse=True)}
    )
    each = {"s": (state["point"], labels), "label": labels}
    return Request(everything, kinds, each=each)


def combine(method: GraphMTL, state: State, reply: dict, who: np.ndarray) -> None:
    """Take the step that the replies speak for."""
    N = len(state["labels"])
    if method.mixing is None:
        pull = reply["pull"]
        count = pull[:, -1]
        share = np.where(count > 0, count, 1)
        F, gradient = pull[:, -2] / share, pull[:, :-2] / share[:, None]
        _penalise(method, state, F, gradient)
        size = np.bincount(state["labels"], minlength=len(count))
        _step_groups(method, state, F, gradient, count > 0, count == size)
        mean = (size * state["F"][:, 0])[count > 0].sum() / max(who.sum(), 1)
        mean = mean if count.sum() == N else (count * F).sum() / max(count.sum(), 1)
    else:
        F = np.where(who, reply["loss"], 0)
        gradient = np.where(who[:, None], reply["gradient"], 0)
        _penalise(method, state, F, gradient)
        mean = F[who].sum() / max(who.sum(), 1)
        _mix(method, state, gradient, who, mean)
    _note(method, state, float(mean), bool(who.all()))


def _penalise(method, state, F, gradient):
    """Add l2/2 |W|^2 and its gradient; the biases are free."""
    W = state["point"].copy()
    W[:, -method.n_components :] = 0
    F += method.l2 / 2 * (W**2).sum(axis=1)
    gradient += method.l2 * W


def _step_groups(method, state, F, gradient, there, complete):
    """Judge each group's point, and propose the next one.

    With step_size="auto" a point stays if its objective is not above all of the last
    ones; then the step is Barzilai and Borwein's, else shorter from the point before.
    Where members are missing, objectives are not of the same sum: nothing is judged.
    """
    if method.step_size != "auto":
        state["F"][there, 0] = F[there]
        state["point"][there] -= method.step_size * gradient[there]
        state["base"] = state["point"].copy()
        state["step"][:] = method.step_size
        return
    moved = state["point"] - state["base"]
    length = (moved**2).sum(axis=1)
    limit = state["F"].max(axis=1) - FALLS * length / (2 * state["step"])
    fine = there & (~state["begun"] | ~complete | (F <= limit))
    worse = there & ~fine
    step = state["step"]
    bend = (moved * (gradient - state["gradient"])).sum(axis=1)
    again = fine & state["begun"] & (length > 0)
    curved = again & (bend > 0)
    step[curved] = length[curved] / bend[curved]
    step[again & ~curved] *= 2
    squares = (gradient**2).sum(axis=1)
    first = fine & ~state["begun"] & (squares > 0)
    if not state["steps_known"]:
        # As if the objective were a square that reaches 0: whatever the units.
        step[first] = F[first] / squares[first]
    step[worse] *= SHORTER
    np.clip(step, 1e-100, 1e100, out=step)
    state["base"][fine] = state["point"][fine]
    state["gradient"][fine] = gradient[fine]
    history = state["F"]
    history[fine, 1:], history[fine, 0] = history[fine, :-1], F[fine]
    state["begun"] |= fine
    state["point"] = state["base"] - step[:, None] * state["gradient"]


def _mix(method, state, gradient, who, mean):
    """s_i <- sum_j W_ij (s_j - step g_j) among those that answered."""
    W = np.array(method.mixing)
    W[:, ~who] = 0
    W[~who] = 0
    W[np.diag_indices_from(W)] += 1 - W.sum(axis=1)
    step = state["step"]
    if method.step_size != "auto":
        step[:] = method.step_size
    elif not state["begun"].any():
        squares = (gradient**2).sum() / max(who.sum(), 1)
        step[:] = mean / squares if squares > 0 else 1.0
        state["begun"][:] = True
    else:
        step *= SLOWER if mean > state["last_mean"] else FASTER
    state["last_mean"] = mean
    state["point"] = W @ (state["point"] - step[:, None] * gradient)
    state["base"] = state["point"].copy()


def _note(method, state, mean, complete):
    """Keep the objective, and stop when it hardly falls."""
    state["mixing_step"] = (state["mixing_step"] + 1) % method.mixing_steps
    state["objective"] = mean
    if state["mixing_step"]:
        return
    state["round_ended"] = True
    if not complete:  # the objective of others: no progress can be told
        return
    best = state["best"]
    state["best"] = np.append(best, min(mean, best[-1]) if len(best) else mean)
    best = state["best"][-WINDOW - 1 :]
    settled = len(best) > WINDOW and best[0] - best[-1] <= method.tol * abs(best[0])
    if settled and state["round"] > method.first_stop:
        state["converged"] = state["done"] = True
