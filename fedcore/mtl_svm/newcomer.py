"""The personal part of a client that comes when the shared model is already fixed."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from ..federation.contract import Cohort
from . import participant
from .protocol import MTLSVM

GAP = 1e-13  # relative; the distance to the optimum goes with its root
CALLS = 20


def solve_newcomer(
    svm: MTLSVM, cohort: Cohort, w: np.ndarray, agreement: dict, seed: int
) -> tuple[np.ndarray, float]:
    """Solve one client's own problem at a fixed `w`, to the last digits.

    Returns
    -------
    v : (C, length)
    gap : float
        Duality gap of the worst class, relative to the client's objective.
    """
    cs = participant.join(cohort, svm, agreement)
    one = np.zeros(1, np.int32)
    message = {
        "w": np.ascontiguousarray(w),
        "tol": np.full(len(w), -np.inf),
        "working": np.ones(len(w), np.uint8),
        "certify": False,
    }
    least = np.inf
    for call in range(CALLS):
        figures = participant.solve(cohort, cs, message, one, (seed, call))["figures"]
        gap, primal = figures[:, 0], figures[:, 1]
        relative = np.divide(gap, primal, out=np.zeros(len(gap)), where=primal > 0)
        worst = float(relative.max())
        if worst <= GAP or (call > 1 and worst > least / 2):
            break
        least = min(least, worst) if call else np.inf
        message["tol"] = GAP * primal
    v = participant.personal_models(cs, cs.s)
    return (v.toarray() if sparse.issparse(v) else v[0]), worst
