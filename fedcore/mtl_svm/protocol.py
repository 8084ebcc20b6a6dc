"""The multi-task SVM as a method of the federation: who computes what.

Ponomarenko-Timofeev et al., "Multi-Task Model Personalization for Federated
Supervised SVM in Heterogeneous Networks"; formulas in math.md, section 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..federation.contract import Cohort, Key, Request, State, Sum
from ..federation.hello import check_alike
from . import (
    additive,
    certificate,
    contact,
    envelope,
    held_out,
    participant,
    stopping,
    switch,
    warm,
)

CLASSIFICATION = ("hinge", "squared_hinge")
MIRROR_TOL = 1e-4  # a relative gap that float32 rows can be trusted to reach
PLAIN = ("hinge", "epsilon_insensitive")


@dataclass(frozen=True, slots=True)
class MTLSVM:
    """One fit of the model; a plain record of numbers.

    bias         : value of the constant column, 0 for none
    aggregation  : "auto" is "envelope" until a reply is missing, then "line_search"
    certify      : bound the gap of each round though replies may be missing
    class_weight : ((label, weight), ...), "balanced", or None
    warm         : clients start from the multipliers of an earlier fit
    keep_dual    : clients give their multipliers at the end, for the next one
    own_columns  : those where v_k is not held at 0, besides the constant column; None:
                   all
    patience     : rounds without a better score on held-out rows before the last; 0:
                   no rows are held out
    """

    loss: str
    C1: float
    C2: float
    epsilon: float
    bias: float
    aggregation: str
    local_epochs: int | str
    tol: float
    max_rounds: int
    class_weight: Any = None
    warm: bool = False
    keep_dual: bool = False
    patience: int = 0
    certify: bool = False
    own_columns: tuple[int, ...] | None = None

    @property
    def mirrors(self) -> bool:
        """Whether passes may read float32 copies of float64 rows, until measured."""
        # Held-out rows are scored by s as it is, which must be exact after each round.
        solves = self.aggregation in ("envelope", "auto")
        exact = solves or self.certify or self.patience
        return self.tol >= MIRROR_TOL and not exact

    @property
    def may_commit_sent(self) -> bool:
        """Whether clients may keep work that the coordinator never saw."""
        return self.aggregation in ("sum", "safe")

    def _is_additive(self, state: State) -> bool:
        return state.get("additive", self.aggregation != "envelope")

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on columns and classes."""
        first = hellos[0]
        client = check_alike(hellos, "n_features", "sparse")
        agreement: dict[str, Any] = {"n_classes": 1, "class_weight": None}
        has_absent = False
        if self.loss in CLASSIFICATION:
            classes = np.unique(np.concatenate([h["classes"] for h in hellos]))
            if len(classes) < 2:
                raise ValueError(
                    f"the rows are of {len(classes)} class, expected at least 2 classes"
                )
            n_classes = 1 if len(classes) == 2 else len(classes)
            agreement = {
                "classes": classes,
                "n_classes": n_classes,
                "class_weight": row_weights(self.weigh_classes(classes, hellos)),
            }
            has_absent = n_classes > 1 and any(
                (h["n_present"] < len(classes)).any() for h in hellos
            )
        sizes = {
            "n_clients": client,
            "length": first["n_features"] + (self.bias != 0),
            "n_rows": sum(int(h["n_rows"].sum()) for h in hellos),
            "n_entries": sum(h["n_entries"] for h in hellos),
            "sparse": first["sparse"],
        }
        # Where a class is absent phi has kinks, and the bound does not hold.
        agreement["certify"] = self.certify and not has_absent
        if self.aggregation in ("envelope", "auto"):
            state = envelope.start(
                agreement["n_classes"],
                sizes["length"],
                client,
                C2=self.C2,
                plain_loss=self.loss in PLAIN,
                has_absent=has_absent,
            )
            if self.warm:
                state["w"] = sum(hello["w"] for hello in hellos)
            state |= {"round": 1, "done": False, "sparse": first["sparse"]}
            state |= {"passes": 0.0, "n_clients": client, "additive": False}
            state |= {"silent": False, "certify": agreement["certify"]}
            state |= {"last_passes": 0.0}
        else:
            state = additive.start(self, agreement, sizes, key)
        return (stopping.start(state) if self.patience else state), agreement

    def weigh_classes(self, classes: np.ndarray, hellos: list[dict]) -> Any:
        """Weight (n_classes,) of each class, or None."""
        if self.class_weight == "balanced":
            totals = np.zeros(len(classes))
            for hello in hellos:
                totals[np.searchsorted(classes, hello["classes"])] += hello["weights"]
            # A class without weight has no rows to be weighted.
            return totals.sum() / (len(classes) * np.where(totals > 0, totals, 1))
        if self.class_weight is None:
            return None
        table = dict(self.class_weight)
        return np.array([table.get(c, 1.0) for c in classes.tolist()], float)

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for the next piece of work."""
        if self.patience and state["evaluating"]:
            return stopping.request(state)
        if self._is_additive(state):
            return additive.broadcast(self, state)
        point = envelope.point(state)
        C, length = point["w"].shape
        message = {
            "w": point["w"],
            "measure": True,
            "tol": np.full(C, -np.inf) if state["silent"] else point["tol"],
            "inv_C2": np.stack([point["inv_C2"], point["inv_C2_absent"]]),
            "working": point["working"].astype(np.uint8),
            "keep": point["keep"],
            "certify": False,
        }
        vector = Sum((length, C), state["sparse"])
        reply = {"s": vector, "figures": Sum((C, participant.N_SOLVE_FIGURES))}
        everyone = self.aggregation == "envelope" or state["silent"]
        passes = 1 + (0 if state["silent"] else state["last_passes"])
        return Request(all=message, reply=reply, everyone=everyone, passes=passes)

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Fold the replies into the next state."""
        if not self.patience:
            return self._fold(state, reply, who, key)
        if state["evaluating"]:
            regression = self.loss not in CLASSIFICATION
            return stopping.judge(state, reply["figures"], self.patience, regression)
        after = self._fold(state, reply, who, key)
        if not after["done"] and after["round"] == state["round"]:
            return after
        # An envelope has already moved on from the point that its clients solved at.
        w = state["w"] if not self._is_additive(state) else after["w"]
        return stopping.hold(state, after, w)

    def _fold(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        if self._is_additive(state):
            return additive.combine(self, state, reply, who, key)
        figures = reply["figures"]
        names = ("gap", "primal", "dual", "true_primal", "true_dual", "passes")
        answer = dict(zip(names, figures.T, strict=True)) | {"s": reply["s"].T}
        last = answer.pop("passes").sum() / state["n_clients"]
        made = {"passes": state["passes"] + last, "last_passes": last}
        if state["silent"]:
            dual = answer["true_dual"]
            return switch.begin(self, state, answer["s"], dual, who, key)
        if not who.all() and self.aggregation == "envelope":
            # Over sites even this may be: ask the same again.
            if state["round"] >= self.max_rounds:
                return state | made | {"done": True}
            return state | made | {"round": state["round"] + 1}
        if not who.all():
            return state | made | {"silent": True}
        state = envelope.absorb(state, answer, tol=self.tol) | made
        if (
            state["round"] >= self.max_rounds
            or not envelope.point(state)["working"].any()
        ):
            state["done"] = True
        else:
            state["round"] += 1
        return state

    def close(self, state: State) -> Request:
        """Say which of a client's two candidates for s is the one to keep."""
        if self.patience:
            return Request(all={"was_best": state["was_best"]}, reply={})
        if not self._is_additive(state):
            return Request(all={"keep": envelope.result(state)["keep"]}, reply={})
        message, each = {}, {"step": state["step"]}
        if "settled" in state:
            message["settled"] = state["settled"]
        if state.get("certified"):
            message |= {"w": certificate.result(state)[0]}
            message |= {"working": state["working"], "contact_w": state["contact_w"]}
            each["contact"] = state["contact"]
        return Request(all=message, each=each, reply={})

    def report(self, state: State) -> dict[str, float]:
        """Objective and relative gap where they were measured; passes so far."""
        figures = {"passes": state["passes"]}
        if self.patience:
            figures["validation_score"] = state["score"]
            figures["validation_loss"] = state["loss"]
        if not self._is_additive(state) or state["judged"]:
            _, gap, primal = self._last(state)
            figures |= {"objective": float(primal.sum()), "gap": float(gap.max())}
        if state["certify"]:
            bound = state["gap_bound"] if self._is_additive(state) else state["gap"]
            figures["gap_bound"] = float(bound.max())
        return figures

    def result(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Give w (C, length), relative gap (C,) and primal (C,) as last measured.

        With early stopping w is the best scored, the others NaN unless its own.
        """
        w, gap, primal = self._last(state)
        if not self.patience:
            return w, gap, primal
        best = state["scored_best_w"]
        is_last = np.array_equal(best, w) and state.get("judged", True)
        unknown = np.full(len(w), np.nan)
        return best, *((gap, primal) if is_last else (unknown, unknown))

    def findings(self, state: State) -> State:
        """Give the shared model and how good it is; nothing of single clients."""
        w, gap, primal = self.result(state)
        kinds = {name: bool(state.get(name)) for name in ("certified", "diverged")}
        return {"w": w, "gap": gap, "primal": primal, **kinds}

    def final(self, state: State) -> dict[str, Any]:
        """Give w, for clients that score rows by it and their own part."""
        return {"w": self.result(state)[0]}

    def _last(self, state: State) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if state.get("certified"):
            return certificate.result(state)
        if self._is_additive(state):
            return state["w"], state["gap"], state["primal"]
        best = envelope.result(state)
        return best["w"], best["gap"], best["primal"]

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes and classes."""
        X = cohort.X
        hello = {
            "n_rows": np.diff(cohort.offsets),
            "n_features": X.shape[1],
            "n_entries": participant.count_entries(X),
            "sparse": sparse.issparse(X),
        }
        if cohort.warm is not None and self.aggregation == "envelope":
            w = cohort.warm @ X
            bias = self.bias * cohort.warm.sum(axis=1, keepdims=True)
            hello["w"] = np.hstack([w, bias]) if self.bias else w
        if cohort.classes is not None:
            n_classes = len(cohort.classes)
            present = participant.presence(cohort.y, cohort, n_classes)
            hello["classes"] = cohort.classes
            hello["n_present"] = present.sum(axis=1)
            hello["weights"] = np.bincount(
                cohort.y, cohort.sample_weight, minlength=n_classes
            )
        return hello

    def join(self, cohort: Cohort, agreement: dict) -> participant.Clients:
        """Start the clients at b = 0."""
        return participant.join(cohort, self, agreement)

    def dump(self, cohort: Cohort, cs: participant.Clients) -> dict[str, np.ndarray]:
        """Copy what the clients' visits have changed."""
        return participant.dump(cs)

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> participant.Clients:
        """Join, and go on from what `dump` gave."""
        cs = participant.join(cohort, self, agreement)
        participant.restore(cs, kept)
        return cs

    def update(
        self,
        cohort: Cohort,
        cs: participant.Clients,
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Improve or measure; see `participant`."""
        work = participant.solve if message["measure"] else participant.improve
        return work(cohort, cs, message, active, key)

    def evaluate(
        self,
        cohort: Cohort,
        cs: participant.Clients,
        message: dict,
        active: np.ndarray,
    ) -> dict:
        """Score the held-out rows; see `stopping`."""
        return stopping.evaluate(cohort, cs, message, self)

    def scores(
        self, cohort: Cohort, cs: Any, message: dict, personal: dict
    ) -> np.ndarray:
        """Score the held-out rows (n, C) by w and the clients' own v_k."""
        w = np.asarray(message["w"])
        return held_out.model_scores(cohort, w, personal["v"], self.bias)

    def losses(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss (n,) of rows, without C1 and weights."""
        return held_out.row_losses(self.loss, self.epsilon, scores, target)

    def personal(
        self, cohort: Cohort, cs: participant.Clients, message: dict
    ) -> dict[str, Any]:
        """Give the personal models v_k."""
        if self.patience:
            s = cs.tried if message["was_best"] else cs.best
            return {"v": participant.personal_models(cs, s)}
        s = cs.s
        if "keep" in message:
            everybody = np.arange(cohort.n_clients)
            participant.keep_best(cs, everybody, np.asarray(message["keep"]))
            s = cs.kept
        elif "settled" in message:
            s = participant.settle(cs, np.asarray(message["settled"]))
        if "contact" in message:
            contact.take_steps(cs, message)
            v = participant.personal_models(cs, cs.s)
            return {"v": contact.stay(cs, v, message)}
        personal = {"v": participant.personal_models(cs, s)}
        if self.keep_dual:
            personal["b"] = cs.b[warm.places(cohort.offsets, cs.n_classes)]
        return personal


def row_weights(class_weight: np.ndarray | None) -> np.ndarray | None:
    """Weights (C, 2) of the rows outside and inside each class, as LIBLINEAR's."""
    if class_weight is None:
        return None
    if len(class_weight) == 2:
        return class_weight[None, :]
    return np.column_stack([np.ones(len(class_weight)), class_weight])
