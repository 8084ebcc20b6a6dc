"""The one loop that carries any method over any engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from threadpoolctl import threadpool_limits

from .clock import Traffic
from .contract import Algorithm, Cohort, State, TooFewClients
from .progress import Progress


@dataclass(frozen=True, slots=True)
class Outcome:
    """A finished run.

    state    : the coordinator's last state
    personal : what the clients keep for themselves, one row a client
    history  : the ledger's columns, one entry a round
    traffic  : what the engine saw of late and lost replies, or None
    agreement : what the participants joined with
    faults   : of an engine over sites: a table of what went wrong there
    record   : likewise: who answered when, for `LocalEngine` to repeat
    """

    state: State
    personal: dict[str, Any]
    history: dict[str, np.ndarray]
    traffic: Traffic | None = None
    agreement: dict[str, Any] | None = None
    faults: Any = None
    record: Any = None


def run(
    algorithm: Algorithm,
    engine,
    cohort: Cohort | None,
    *,
    seed: int,
    n_jobs: int | None = None,
    any_seed: bool = False,
    on_round: Callable[[int, dict[str, float]], None] | None = None,
) -> Outcome:
    """Exchange messages until the algorithm says that it is done.

    Parameters
    ----------
    algorithm : Algorithm
        The method.
    engine : LocalEngine
        The machine that carries messages.
    cohort : Cohort
        The rows that this process holds; None when sites hold them all.
    seed : int
        64 bits that name every random number of the run.
    n_jobs : int, optional
        Threads, as in joblib: None is 1, -1 all processors. The result does not
        depend on it.
    any_seed : bool, default=False
        Whether a checkpoint that the engine goes on from may bring its own seed.
    on_round : callable, optional
        Called with the round's number and its figures at the end of each round.

    Returns
    -------
    Outcome
    """
    # The threads of BLAS would change the bits of long sums, and idle by spinning.
    with (
        threadpool_limits(1, user_api="blas"),
        engine.open(algorithm, cohort, seed, effective_n_jobs(n_jobs)) as link,
    ):
        progress = link.resume(any_seed) if hasattr(link, "resume") else None
        if progress is None:
            state, agreement = algorithm.start(link.hellos(), (seed, 0))
            link.join(agreement)
            progress = Progress(seed, 0, state, agreement)
        ledger = progress.ledger
        while not progress.state["done"]:
            state, begun = progress.state, perf_counter()
            key, round = (progress.seed, progress.exchange + 1), state["round"]
            request = algorithm.broadcast(state, key)
            # Scoring draws nothing: the rest of the run is the same with it or without.
            exchange = progress.exchange + (not request.evaluate)
            try:
                answer = link.exchange(request, key)
            except TooFewClients:
                link.save(progress, now=True)
                raise
            state = algorithm.combine(state, answer.reply, answer.who, key)
            progress.state, progress.exchange = state, exchange
            ledger.exchange(
                round,
                bytes_down=answer.bytes_down,
                bytes_up=answer.bytes_up,
                n_active=int(np.count_nonzero(answer.who)),
                n_late=answer.n_late,
                n_dropped=getattr(answer, "n_dropped", 0),
                n_refused=getattr(answer, "n_refused", 0),
                seconds=perf_counter() - begun,
            )
            if getattr(answer, "virtual_time", None) is not None:
                ledger.report({"virtual_time": answer.virtual_time})
            if getattr(answer, "figures", None):
                ledger.report(answer.figures)
            if state["done"] or state["round"] > round:
                figures = algorithm.report(state)
                ledger.report(figures)
                if on_round is not None:
                    on_round(round, figures)
            if hasattr(link, "save"):
                link.save(progress)
        personal = link.close(algorithm.close(progress.state))
        traffic = getattr(link, "traffic", None)
        faults = link.faults.table() if hasattr(link, "faults") else None
        record = getattr(link, "record", None)
    return Outcome(
        *(progress.state, personal, ledger.history(), traffic),
        *(progress.agreement, faults, record),
    )
