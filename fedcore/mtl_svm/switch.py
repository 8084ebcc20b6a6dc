"""From "envelope" to "line_search" when the first reply is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import Key, State
from . import additive, envelope

if TYPE_CHECKING:
    from .protocol import MTLSVM


def begin(svm: MTLSVM, state: State, s, dual, who, key: Key) -> State:
    """Go on from w = t sum_k s_k, as far along it as the dual surely rises.

    Parameters
    ----------
    svm : MTLSVM
    state : dict
        Of "envelope".
    s : (C, length) ndarray
        sum_k s_k as the clients have it now.
    dual : (C,) ndarray
        sum_k d_k, likewise.
    who : (K,) ndarray of bool
        Those that s and dual are of; the others go back to b_k = 0.
    key : (int, int)
    """
    C, length = s.shape
    norm = np.einsum("cj,cj->c", s, s)
    # D(t b) >= t dual - t^2/2 |s|^2: the rest of D is concave and 0 at b = 0.
    share = np.divide(dual, norm, out=np.zeros(C), where=norm > 0).clip(0, 1)
    working, best = state["working"], envelope.result(state)
    sizes = {"n_clients": state["n_clients"], "length": length}
    sizes |= {"n_rows": 0, "n_entries": 0, "sparse": state["sparse"]}
    agreement = {"n_classes": C, "certify": state["certify"]}
    begun = additive.start(svm, agreement, sizes, key)
    begun["step"] = begun["step"] * np.where(working, share, 1.0)
    begun["step"] = np.where(working & ~who[:, None], 0.0, begun["step"])
    return begun | {
        "additive": True,
        "opening": False,
        "settled": ~working,  # in these the clients keep what "envelope" chose
        "round": state["round"],
        "passes": state["passes"],
        "look_at": max(begun["look_at"], 2 * state["round"]),
        "w": np.where(working[:, None], share[:, None] * s, best["w"]),
        "dual": share * dual - share**2 / 2 * norm,
        "primal": np.where(working, np.nan, best["primal"]),
        "gap": np.where(working, np.nan, best["gap"]),
        "working": working.astype(np.uint8),
        "measuring": working.astype(np.uint8),
    }
