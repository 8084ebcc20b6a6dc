"""An upper bound of the duality gap that holds whoever answers.

A client that was last heard when w was w0 still has the model u = w0 + s_k / C2 that it
made then. For any w its personal part may be v = u - w: its losses are as they were, so

    gap_k at w  =  gap_k at w0 + C2/2 |w - w0|^2        (math.md, section 1)

and the whole gap is the sum of these and 1/2 |w - sum_k s_k|^2. Of that w only the
last two terms know; their minimum, a weighted mean of sum_k s_k and of the w's that the
clients were last heard at, is the w that is certified.

Clients report their gaps at the broadcast w before and after the work; a gap is convex
in the multipliers, so after the step g it is at most (1 - g) before + g after. Each
client remembers its share, so sums are all that the coordinator needs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import State

if TYPE_CHECKING:
    from .protocol import MTLSVM

OLD, BEFORE, AFTER = range(3)
N_FIGURES = 3  # gap_k by the last contact; at the broadcast w before and after the work


def start(n_clients: int, n_classes: int, length: int) -> State:
    """Begin without contact."""
    return {
        "certify": True,
        "certified": False,
        "contact": np.zeros(n_clients, np.int32),  # places in contact_w
        "contact_w": np.zeros((1, n_classes, length)),
        "contact_gap": np.full(n_classes, np.inf),
        "gap_bound": np.full(n_classes, np.inf),
        "bound": np.full(n_classes, np.inf),
        "centre": np.zeros((n_classes, length)),
    }


def meet(state: State, who: np.ndarray, w: np.ndarray, figures, step) -> None:
    """Note that the clients in `who` worked at w, and what came of it."""
    if not who.any():
        return
    contact = state["contact"].copy()
    contact[who] = len(state["contact_w"])
    # w's that no client refers to any more are forgotten.
    used, state["contact"] = np.unique(contact, return_inverse=True)
    table = np.concatenate([state["contact_w"], w[None]])
    state["contact_w"] = table[used]
    met = (1 - step) * figures[:, BEFORE] + step * figures[:, AFTER]
    state["contact_gap"] = state["contact_gap"] - figures[:, OLD] + met


def meet_all(state: State, measured: np.ndarray, gap: np.ndarray) -> None:
    """Note that everybody was measured at w."""
    state["contact"] = np.zeros_like(state["contact"])
    state["contact_w"] = state["w"][None].copy()
    state["contact_gap"] = np.where(measured, gap, state["contact_gap"])


def judge(svm: MTLSVM, state: State) -> None:
    """Find the bound of the classes that are not done, and the w that it is for."""
    table, total = state["contact_w"], state["w"]
    counts = np.bincount(state["contact"], minlength=len(table)).astype(float)
    K, working = counts.sum(), state["working"] > 0
    centre = np.einsum("t,tcj->cj", counts, table)
    centre = (total + svm.C2 * centre) / (1 + svm.C2 * K)
    spread = np.zeros(len(total))
    for count, w in zip(counts, table, strict=True):
        spread += count * np.einsum("cj,cj->c", centre - w, centre - w)
    rest = np.einsum("cj,cj->c", centre - total, centre - total)
    bound = np.maximum(state["contact_gap"], 0) + svm.C2 / 2 * spread + rest / 2
    primal = bound + state["dual"]
    relative = np.where(primal > 0, bound / np.where(primal > 0, primal, 1), np.inf)
    relative[bound == 0] = 0
    state["bound"], state["centre"] = bound, centre
    state["gap_bound"] = np.where(working, relative, state["gap"])


def holds(svm: MTLSVM, state: State) -> bool:
    """Whether the bound alone says that every class is done."""
    return bool((state["gap_bound"] <= svm.tol).all())


def result(state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Give w, relative gap and primal as certified; where measured, as measured."""
    working = state["working"] > 0
    w = np.where(working[:, None], state["centre"], state["w"])
    primal = np.where(working, state["bound"] + state["dual"], state["primal"])
    return w, state["gap_bound"], primal
