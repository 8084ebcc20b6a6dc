"""A search over candidates as one method of the federation: fits and held-out scores.

All fits of a search are one run: one handshake, one account of bytes, and each client
cuts its folds where its rows are. Candidates are methods of any kind that say
`final`, `scores` and `losses` besides; see `Scorable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol

import numpy as np

from .._clients import codes_of
from .._rows import kernel_rows
from ..federation.contract import Algorithm, Cohort, Each, Key, Request, State
from .figures import N_FIGURES, WEIGHT, client_figures, merge, score
from .folds import cut

ALL = -1  # the fold that holds nothing out


class Scorable(Algorithm, Protocol):
    """A method whose model can be scored on rows that it has not seen."""

    def final(self, state: State) -> dict[str, Any]:
        """Give the shared model of a finished run as a message."""

    def scores(
        self, cohort: Cohort, cs: Any, message: dict, personal: dict
    ) -> np.ndarray:
        """Score `cohort.held_out` (n, C) by what `final` and `personal` gave."""

    def losses(self, scores: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Loss (n,) of rows with these scores and targets, or codes of labels."""


@dataclass(frozen=True, slots=True)
class Search:
    """One search.

    candidates : a method for each set of parameters
    cv         : number of folds, or the share of rows to hold out once
    scoring    : "accuracy", "r2" or "neg_loss"
    refit      : fit the best candidate to all rows at the end
    seed       : draws the folds
    fit_seed   : names the random numbers of each fit, at the coordinator
    """

    candidates: tuple[Any, ...]
    cv: int | float
    scoring: str
    refit: bool
    seed: int
    fit_seed: int = 0

    @property
    def n_folds(self) -> int:
        return self.cv if isinstance(self.cv, int) else 1

    @property
    def may_commit_sent(self) -> bool:
        """Whether clients may keep work that the coordinator never saw."""
        return all(getattr(c, "may_commit_sent", False) for c in self.candidates)

    def _folds(self) -> list[int]:
        return [*range(self.n_folds), ALL] if self.refit else list(range(self.n_folds))

    # the coordinator

    def start(self, hellos: list[dict], key: Key) -> tuple[State, dict]:
        """Let every fit agree on what it must; see that all folds have rows."""
        held = sum(hello["n_held"].sum(axis=1) for hello in hellos)
        if not held.all():
            raise ValueError(
                f"cv == {self.cv} leaves no row to hold out in {(held == 0).sum()} of "
                f"{self.n_folds} folds: expected clients with more rows, or another cv"
            )
        n_clients = sum(len(hello["n_rows"]) for hello in hellos)
        state = {
            "round": 1,
            "done": False,
            "offset": 0,  # rounds of the fits before
            "place": 0,  # of the fit in the order of work
            "exchange": 0,  # of this fit
            "scoring": False,
            "hellos": [hello["folds"] for hello in hellos],
            "figures": np.full(
                (len(self.candidates), self.n_folds, n_clients, N_FIGURES), np.nan
            ),
            "seed": self.fit_seed,
            "told": {},  # figures of the last round
        }
        agreements = []
        for candidate in range(len(self.candidates)):
            own = [
                self._start(state, candidate, fold)[1]
                for fold in range(len(self._folds()))
            ]
            agreements.append(own)
        self._begin(state)
        return state, {"candidates": agreements}

    def _start(self, state: State, candidate: int, fold: int):
        hellos = [folds[fold] for folds in state["hellos"]]
        return self.candidates[candidate].start(hellos, (state["seed"], 0))

    def _begin(self, state: State) -> None:
        """Turn to the next fit: fold after fold, in each all candidates."""
        place, C = state["place"], len(self.candidates)
        fold, candidate = divmod(place, C)
        if place == C * self.n_folds:
            fold, candidate = ALL, best(state["figures"], self.scoring)
        state["fold"], state["candidate"] = fold, candidate
        state["inner"], _ = self._start(state, candidate, fold)
        state["exchange"], state["scoring"] = 0, bool(state["inner"]["done"])

    def broadcast(self, state: State, key: Key) -> Request:
        """Ask what the present fit asks, or for the scores of its model."""
        method, inner = self.candidates[state["candidate"]], state["inner"]
        if not state["scoring"]:
            request = method.broadcast(inner, self._key(state))
        else:
            last = method.close(inner)
            request = Request(
                all={**last.all, **method.final(inner)},
                each=last.each,
                reply={"figures": Each((N_FIGURES,))},
                everyone=True,
                evaluate=True,
            )
        return replace(request, all={**request.all, **self._head(state)})

    def _head(self, state: State) -> dict[str, Any]:
        """Tell which fit a message is of."""
        return {
            "search_candidate": int(state["candidate"]),
            "search_fold": int(state["fold"]),
            "search_seed": int(state["seed"]),
            "search_exchange": int(state["exchange"] + 1),
            "search_scoring": state["scoring"],
        }

    def _key(self, state: State) -> Key:
        # A fit draws the numbers that it would draw alone.
        return state["seed"], state["exchange"] + 1

    def combine(self, state: State, reply: dict, who: np.ndarray, key: Key) -> State:
        """Go on with the fit, or keep its scores and turn to the next one."""
        state, method = dict(state), self.candidates[state["candidate"]]
        if state["scoring"]:
            figures = state["figures"].copy()
            # Who is silent has no rows that count.
            told = np.where(who[:, None], reply["figures"], 0)
            figures[state["candidate"], state["fold"]] = told
            state["figures"] = figures
            self._finish(state)
            return state
        own = self._key(state)
        evaluated = method.broadcast(state["inner"], own).evaluate
        before = state["inner"]["round"]
        inner = method.combine(state["inner"], reply, who, own)
        state["inner"] = inner
        state["exchange"] += not evaluated
        if inner["done"] or inner["round"] > before:
            fit = {"candidate": state["candidate"], "fold": state["fold"]}
            state["told"] = method.report(inner) | fit
        if not inner["done"]:
            state["round"] = state["offset"] + inner["round"]
        elif state["fold"] == ALL:
            state |= {"done": True, "hellos": []}
        else:
            state["scoring"] = True
        return state

    def _finish(self, state: State) -> None:
        state["offset"] = state["round"]
        state["place"] += 1
        n_fits = len(self.candidates) * self.n_folds
        if state["place"] < n_fits + self.refit:
            self._begin(state)
            state["round"] += 1
        else:
            state |= {"done": True, "hellos": []}

    def close(self, state: State) -> Request:
        """Say the last message of the last fit, if its model is to be kept."""
        if not self.refit:
            return Request(all={}, reply={})
        last = self.candidates[state["candidate"]].close(state["inner"])
        return replace(last, all={**last.all, **self._head(state)})

    def report(self, state: State) -> dict[str, float]:
        """Figures of the fit whose round has ended."""
        return state["told"]

    def findings(self, state: State) -> State:
        """Give the folds' figures, the worst score of a client, and the best model."""
        found = summary(state["figures"], self.scoring)
        if self.refit:
            method = self.candidates[best(state["figures"], self.scoring)]
            found["inner"] = method.findings(state["inner"])
        return found

    # a participant

    def hello(self, cohort: Cohort) -> dict:
        """Tell of the rows of each fold what a fit asks.

        A hello tells of rows, not of parameters: that of one candidate does for all.
        """
        fold, sizes = cut(cohort, self.cv, self.seed), np.diff(cohort.offsets)
        owner = np.repeat(np.arange(cohort.n_clients), sizes)
        weight = cohort.sample_weight
        counts = np.ones(len(fold), bool) if weight is None else weight > 0
        held = [
            np.bincount(owner[counts & (fold == f)], minlength=cohort.n_clients)
            for f in range(self.n_folds)
        ]
        method = self.candidates[0]
        folds = [method.hello(part(cohort, fold, f)) for f in self._folds()]
        return {"n_rows": sizes, "n_held": np.array(held), "folds": folds}

    def join(self, cohort: Cohort, agreement: dict) -> dict[str, Any]:
        """Cut the folds; what a fit needs is made when its first message comes."""
        return {
            "folds": cut(cohort, self.cv, self.seed),
            "agreement": agreement["candidates"],
            "lock": Lock(),
            "fit": None,
            "fold": None,
            "rows": None,
            "inner": None,
            "figures": None,
        }

    def dump(self, cohort: Cohort, cs: dict[str, Any]) -> dict[str, np.ndarray]:
        """Copy what the present fit has changed."""
        if cs["fit"] is None:
            return {}
        method = self.candidates[cs["fit"][0]]
        kept = method.dump(cs["rows"], cs["inner"])
        return {"search_fit": np.array(cs["fit"])} | kept

    def restore(
        self, cohort: Cohort, agreement: dict, kept: Mapping[str, np.ndarray]
    ) -> dict[str, Any]:
        """Join, and go on in the middle of a fit."""
        cs = self.join(cohort, agreement)
        kept = dict(kept)
        if "search_fit" not in kept:
            return cs
        candidate, fold = kept.pop("search_fit").tolist()
        self._turn_to(cohort, cs, candidate, fold, kept)
        return cs

    def _turn_to(self, cohort, cs, candidate, fold, kept=None) -> None:
        if cs["rows"] is None or cs["fold"] != fold:
            cs["rows"], cs["fold"] = part(cohort, cs["folds"], fold), fold
        method, agreement = self.candidates[candidate], cs["agreement"][candidate][fold]
        if kept is None:
            cs["inner"] = method.join(cs["rows"], agreement)
        else:
            cs["inner"] = method.restore(cs["rows"], agreement, kept)
        cs["fit"], cs["figures"] = (candidate, fold), None

    def _enter(self, cohort: Cohort, cs: dict[str, Any], message: dict):
        """Give method, rows and state of the fit that a message is of."""
        fit = int(message["search_candidate"]), int(message["search_fold"])
        with cs["lock"]:  # calls for other clients may come at the same time
            if cs["fit"] != fit:
                self._turn_to(cohort, cs, *fit)
        return self.candidates[fit[0]], cs["rows"], cs["inner"]

    def update(
        self,
        cohort: Cohort,
        cs: dict[str, Any],
        message: dict,
        active: np.ndarray,
        key: Key,
    ) -> dict:
        """Do the work of the present fit."""
        method, rows, inner = self._enter(cohort, cs, message)
        own = int(message["search_seed"]), int(message["search_exchange"])
        return method.update(rows, inner, message, active, own)

    def evaluate(
        self, cohort: Cohort, cs: dict[str, Any], message: dict, active: np.ndarray
    ) -> dict:
        """Score the model of a finished fit on the rows that it has not seen."""
        method, rows, inner = self._enter(cohort, cs, message)
        if not message["search_scoring"]:
            return method.evaluate(rows, inner, message, active)
        with cs["lock"]:  # scored once, for all clients
            if cs["figures"] is None:
                cs["figures"] = self._score(cs, message)
        return {"figures": cs["figures"][active]}

    def _score(self, cs: dict[str, Any], message: dict) -> np.ndarray:
        candidate, fold = cs["fit"]
        method, rows, inner = self.candidates[candidate], cs["rows"], cs["inner"]
        personal, held = method.personal(rows, inner, message), rows.held_out
        target = held.y
        if held.classes is not None:
            agreement = cs["agreement"][candidate][fold]
            target = codes_of(held, agreement["classes"])
        scores = method.scores(rows, inner, message, personal)
        return client_figures(held, scores, target, method.losses(scores, target))

    def personal(
        self, cohort: Cohort, cs: dict[str, Any], message: dict
    ) -> dict[str, Any]:
        """Give the personal parts of the last fit, if its model is to be kept."""
        if not self.refit:
            return {}
        method, rows, inner = self._enter(cohort, cs, message)
        return method.personal(rows, inner, message)


def summary(figures: np.ndarray, scoring: str) -> dict[str, np.ndarray]:
    """Bring the clients of figures (n, folds, K, 5) together; name none of them."""
    own = score(merge(figures, axis=1), scoring)
    return {"folds": merge(figures, axis=2), "worst": np.nanmin(own, axis=1)}


def best(figures: np.ndarray, scoring: str) -> int:
    """Choose the candidate, the first of equal ones, from figures (n, folds, K, 5)."""
    return int(np.argmax(mean_scores(merge(figures, axis=2), scoring)))


def mean_scores(folds: np.ndarray, scoring: str) -> np.ndarray:
    """Average the scores of folds (n, folds, 5) by the rows that they held out."""
    weight = folds[..., WEIGHT]
    scores = np.where(weight > 0, score(folds, scoring), 0)
    total = weight.sum(axis=1)
    mean = (weight * scores).sum(axis=1) / np.where(total > 0, total, 1)
    return np.where(total > 0, mean, -np.inf)


def part(cohort: Cohort, folds: np.ndarray, fold: int) -> Cohort:
    """Take a fold out of the rows to fit, and lay it beside."""
    if fold == ALL:
        return cohort
    owner = np.repeat(np.arange(cohort.n_clients), np.diff(cohort.offsets))
    weight = cohort.sample_weight

    def rows(chosen: np.ndarray, held_out: Cohort | None = None) -> Cohort:
        own = np.bincount(owner[chosen], minlength=cohort.n_clients)
        return replace(
            cohort,
            X=kernel_rows(cohort.X[chosen]),
            y=cohort.y[chosen],
            sample_weight=None if weight is None else weight[chosen],
            offsets=np.concatenate([[0], np.cumsum(own)]),
            held_out=held_out,
        )

    held = folds == fold
    return rows(~held, rows(held))
