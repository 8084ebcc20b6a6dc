"""Federated dataset dictionary learning: who computes what.

Castellon et al., "Federated Dataset Dictionary Learning for Multi-Source Domain
Adaptation"; formulas in math.md, section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._clients import codes_of
from ..federation.check import check_kept
from ..federation.contract import Cohort, Each, Key, Refused, Request, State, Sum
from ..federation.hello import check_alike
from .domains import Domains, join, move
from .sampling import ATOMS, PICK, ROWS, START, batch_of_atoms, generator
from .start import column_sums, first_atoms, sizes
from .steps import Stepper

KEPT = ("alphas", "first", "second", "t", "of_atoms")


@dataclass(frozen=True, slots=True)
class Dictionary:
    """One fit; a plain record of numbers.

    atom_size    : points of an atom, 0 for "auto"
    batch_size   : of an atom and of a domain, at most
    server       : "random", "loss" or "mean": what becomes of the versions
    keep_moments : whether clients keep Adam's moments of the atoms between rounds
    label_weight : a number, or "auto"
    """

    n_atoms: int
    atom_size: int
    batch_size: int
    local_epochs: int
    label_weight: float | str
    step_size: float
    server: str
    keep_moments: bool
    scaler: str
    max_rounds: int

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Agree on columns, classes and sizes."""
        check_alike(hellos, "n_features")
        n_rows = np.concatenate([hello["n_rows"] for hello in hellos])
        known = [hello["classes"] for hello in hellos if len(hello["classes"])]
        if not known:
            raise Refused(0, "no client has labels")
        classes = np.unique(np.concatenate(known))
        if len(classes) < 2:
            raise Refused(0, f"all labels are {classes.tolist()[0]!r}, expected others")
        n, n_batch = sizes(self.atom_size, self.batch_size, n_rows, len(classes))
        state: State = {
            "round": 1,
            "done": False,
            "shape": np.array([n, hellos[0]["n_features"], len(classes)]),
            "n_batch": n_batch,
            "objective": np.nan,
            "drift": np.nan,
        }
        return state, {"classes": classes, "atom_size": n, "n_batch": n_batch}

    def _batch(
        self, n: int, n_classes: int, n_batch: int, key: Key
    ) -> tuple[np.ndarray, np.ndarray]:
        """Say where the points of this exchange's batch lie in the atoms."""
        rng = generator(key[0], ATOMS, key[1])
        drawn = batch_of_atoms(self.n_atoms, n, n_classes, n_batch, rng)
        return np.arange(self.n_atoms)[:, None], drawn

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask for sums over the columns once, then send a batch of every atom."""
        if "X" not in state:
            sums = Sum((3, int(state["shape"][1])))
            return Request(all={}, reply={"sums": sums}, everyone=True)
        n, _, c = state["shape"].tolist()
        at = self._batch(n, c, state["n_batch"], key)
        atoms = np.concatenate([state["X"][at], state["logits"][at]], axis=2)
        reply = {"atoms": Each(atoms.shape), "loss": Each(())}
        return Request(
            all={"atoms": atoms}, reply=reply, passes=float(self.local_epochs)
        )

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Draw the first atoms; then write one version back, or the mean."""
        n, d, c = state["shape"].tolist()
        if "X" not in state:
            rng = generator(key[0], START)
            X, logits = first_atoms(self.n_atoms, n, c, reply["sums"], rng)
            return state | {"X": X, "logits": logits}
        versions, losses = reply["atoms"][who], reply["loss"][who]
        state = dict(state)
        state["objective"] = float(losses.sum()) if len(losses) else np.nan
        state["drift"] = drift(versions)
        if len(versions):
            at = self._batch(n, c, state["n_batch"], key)
            kept = self._choose(versions, losses, key)
            for name, value in (("X", kept[..., :d]), ("logits", kept[..., d:])):
                state[name] = state[name].copy()
                state[name][at] = value
        if state["round"] >= self.max_rounds:
            state["done"] = True
        else:
            state["round"] += 1
        return state

    def _choose(self, versions, losses, key):
        if self.server == "mean":
            return versions.mean(axis=0)
        if self.server == "loss":
            return versions[losses.argmin()]
        rng = generator(key[0], PICK, key[1])
        return versions[rng.integers(len(versions))]

    def close(self, state: State) -> Request:
        """Send all atoms, by which clients score rows."""
        return Request(all=self.final(state), reply={})

    def final(self, state: State) -> dict[str, Any]:
        """Give the atoms."""
        return {"X": state["X"], "logits": state["logits"]}

    def findings(self, state: State) -> State:
        """Give the atoms, how many rounds they took, and the last losses' sum."""
        return {name: state[name] for name in ("X", "logits", "round", "objective")}

    def report(self, state: State) -> dict[str, float]:
        """Tell the sum of the clients' losses, and how far their versions lie apart."""
        return {name: float(state[name]) for name in ("objective", "drift")}

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell sizes and the classes that were seen."""
        return {
            "n_rows": np.diff(cohort.offsets),
            "n_features": cohort.X.shape[1],
            "classes": cohort.classes,
        }

    def join(self, cohort: Cohort, agreement: dict) -> tuple[Domains, dict]:
        """Scale the rows of each client by itself."""
        codes = np.full(len(cohort.y), -1, np.int32)
        if cohort.classes is not None and len(cohort.classes):
            seen = codes_of(cohort, agreement["classes"])
            codes = np.where(cohort.y < 0, -1, seen).astype(np.int32)
        n = agreement["atom_size"] if self.keep_moments else 0
        p = cohort.X.shape[1] + len(agreement["classes"])
        return join(cohort, codes, self.n_atoms, self.scaler, n, p), agreement

    def dump(self, cohort: Cohort, cs: tuple[Domains, dict]) -> dict[str, np.ndarray]:
        """Give the coordinates and their moments; rows are scaled anew."""
        return {name: getattr(cs[0], name).copy() for name in KEPT}

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> tuple[Domains, dict]:
        """Join, and go on from what `dump` gave."""
        cs = self.join(cohort, agreement)
        check_kept({name: getattr(cs[0], name) for name in KEPT}, kept)
        for name, value in kept.items():
            getattr(cs[0], name)[...] = value
        return cs

    def update(
        self,
        cohort: Cohort,
        cs: tuple[Domains, dict],
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Let each client move its own copy of the batch."""
        domains, agreement = cs
        if "atoms" not in message:
            each = [column_sums(domains.X[domains.rows_of(k)]) for k in active.tolist()]
            return {"sums": np.sum(each, axis=0)}
        atoms, d = np.asarray(message["atoms"]), cohort.X.shape[1]
        c, n_batch = len(agreement["classes"]), agreement["n_batch"]
        at = self._batch(agreement["atom_size"], c, n_batch, key)
        stepper = Stepper(self.n_atoms, n_batch, d, c, label_weight=self.label_weight)
        versions, losses = np.empty((len(active), *atoms.shape)), np.empty(len(active))
        for place, k in enumerate(active.tolist()):
            X, logits = atoms[..., :d].copy(), atoms[..., d:].copy()
            moments = [(np.zeros_like(Z), np.zeros_like(Z)) for Z in (X, logits)]
            if self.keep_moments:
                own = domains.of_atoms[k][:, *at]
                moments = [tuple(Z.copy()) for Z in (own[..., :d], own[..., d:])]
            before = int(domains.t[k]) if self.keep_moments else 0
            rng = generator(key[0], ROWS, key[1], cohort.first + k)
            seen = [
                move(
                    *(stepper, domains, [k], X, logits, moments, before + t),
                    *(self.step_size, rng),
                )
                for t in range(1, 1 + self._steps(domains, k, n_batch))
            ]
            if self.keep_moments:
                domains.of_atoms[k][:, *at] = np.concatenate(moments, axis=3)
            versions[place] = np.concatenate([X, logits], axis=2)
            losses[place] = np.mean(seen)
        return {"atoms": versions, "loss": losses}

    def _steps(self, domains: Domains, k: int, n_batch: int) -> int:
        n_rows = int(domains.offsets[k + 1] - domains.offsets[k])
        return max(1, self.local_epochs * n_rows // n_batch)

    def personal(
        self, cohort: Cohort, cs: tuple[Domains, dict], message: dict
    ) -> dict[str, Any]:
        """Give coordinates and scales, which never leave a real site."""
        domains = cs[0]
        own = {name: getattr(domains, name) for name in ("alphas", "mean", "scale")}
        return own | {"target": np.array([part is None for part in domains.parts])}


def drift(versions: np.ndarray) -> float:
    """Root mean square distance between two versions (m, K, n, p) of a point."""
    m = len(versions)
    if m < 2:
        return 0.0 if m else np.nan
    spread = ((versions - versions.mean(axis=0)) ** 2).sum(axis=(0, 3)).mean()
    return float(np.sqrt(2 * spread / (m - 1)))
