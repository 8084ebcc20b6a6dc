"""An observer of a fit: the exact dual state of every client after each exchange."""

from dataclasses import dataclass

import numpy as np

from fedcore.mtl_svm import participant, protocol


@dataclass(frozen=True)
class Moment:
    """What was true after one exchange; b (n,) and s (K, length) as the clients keep.

    state : the coordinator's state
    who   : whose replies counted
    """

    state: dict
    who: np.ndarray
    b: np.ndarray
    s: np.ndarray


def watch(monkeypatch, moments):
    """Append a `Moment` to `moments` after every exchange of fits of two classes."""
    kept = {}
    SVMCohort, combine = participant.SVMCohort, protocol.MTLSVM.combine

    def keep(*args, **kwargs):
        kept.update(kwargs, offsets=args[0])
        return SVMCohort(*args, **kwargs)

    def observe(self, state, reply, who, key):
        state = combine(self, state, reply, who, key)
        K = len(who)
        step = state["step"][:, 0] if "step" in state else np.ones(K)
        length = len(kept["s"]) // K
        b, s = kept["b"].copy(), kept["s"].reshape(K, length).copy()
        if kept["b_before"] is not None:
            owner = np.repeat(np.arange(K), np.diff(kept["offsets"]))
            before = kept["b_before"], kept["s_before"].reshape(K, length)
            part, row = step < 1, step[owner] < 1
            b[row] = (before[0] + step[owner] * (b - before[0]))[row]
            s[part] = (before[1] + step[:, None] * (s - before[1]))[part]
        moments.append(Moment(dict(state), who.copy(), b, s))
        return state

    monkeypatch.setattr(participant, "SVMCohort", keep)
    monkeypatch.setattr(protocol.MTLSVM, "combine", observe)


def hinge_gap(X, y, owner, w, v, b, C1, C2):
    """The duality gap P(w, v) - D(b) of the hinge loss, in plain numpy."""
    score = np.einsum("ij,ij->i", X, w + v[owner])
    primal = w @ w / 2 + C2 / 2 * (v**2).sum() + C1 * np.maximum(1 - y * score, 0).sum()
    s = np.zeros_like(v)
    np.add.at(s, owner, b[:, None] * X)
    total = s.sum(axis=0)
    dual = y @ b - total @ total / 2 - (s**2).sum() / (2 * C2)
    return primal - dual, primal
