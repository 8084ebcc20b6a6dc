"""What one site does with one message: the same one twice gives the same answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from .checkpoint import pack_state, unpack_state
from .contract import Cohort
from .deploy import Deployable, Deployment, describe, difference
from .message import MessageError
from .site_file import SiteFile
from .wire import plain_reply


class Site:
    """One site of a deployed federation.

    Parameters
    ----------
    estimator : estimator
        With the parameters of the coordinator's.
    name : str
        As the coordinator is to know it.
    rows : callable
        ``rows(anew)`` gives the cohort and its clients' names; `anew` at the start of a
        run.
    file : SiteFile
        Where its state outlives a message.
    keep : callable
        Gets the fitted estimator at the end.

    Notes
    -----
    A message says by number from which state the work starts. The site keeps three: the
    one that it started from last, the one that the coordinator's checkpoint is about,
    and the newest. What the coordinator did not accept is thereby undone, also when
    it has itself gone back to its checkpoint.
    """

    def __init__(
        self,
        estimator: Deployable,
        name: str,
        rows: Callable[[bool], tuple[Cohort, np.ndarray]],
        file: SiteFile,
        keep: Callable[[Any], None],
    ):
        self._estimator, self._name = estimator, name
        self._rows, self._file, self._keep = rows, file, keep

    def answer(self, data: bytes) -> bytes:
        """Do what a message asks; give the reply."""
        message = unpack_state(data)
        ours = describe(self._estimator)
        head = {
            "run": message.get("run"),
            "number": message.get("number"),
            "site": self._name,
        }
        if message.get("kind") == "hello":
            return pack_state(head | self._hello(ours))
        wrong = difference(ours, message["told"])
        if wrong:
            return pack_state(head | {"wrong": wrong})
        work = {"work": self._work, "close": self._close}.get(str(message.get("kind")))
        if work is None:
            raise MessageError(f"message is of kind {message.get('kind')!r:.40}")
        with threadpool_limits(1, user_api="blas"):  # threads change the bits of sums
            return pack_state(head | work(message))

    def _hello(self, told: dict[str, str]) -> dict[str, Any]:
        algorithm = self._estimator._deployed_algorithm(Deployment())
        cohort, names = self._rows(True)
        hello = algorithm.hello(cohort)
        return {"told": told, "names": names, "hello": hello}

    def _work(self, message: dict) -> dict[str, Any]:
        algorithm = self._estimator._deployed_algorithm(Deployment())
        cohort = self._cohort(message)
        kept, cs = self._states(algorithm, cohort, message)
        if cs is None:
            return {"lost": message["base"]}
        active, content = message["active"], message["content"]
        if message["evaluate"]:
            reply = algorithm.evaluate(cohort, cs, content, active)
        else:
            reply = algorithm.update(cohort, cs, content, active, tuple(message["key"]))
        kept[message["number"]] = algorithm.dump(cohort, cs)
        self._file.save(message["run"], kept)
        return {"reply": plain_reply(reply)}

    def _close(self, message: dict) -> dict[str, Any]:
        algorithm = self._estimator._deployed_algorithm(Deployment())
        cohort = self._cohort(message)
        _, cs = self._states(algorithm, cohort, message)
        if cs is None:
            return {"lost": message["base"]}
        personal = algorithm.personal(cohort, cs, message["content"])
        names = self._rows(False)[1]
        fitted = self._estimator._deployed_result(
            *(algorithm, message["found"], personal, names),
            *(message["history"], message["agreement"]),
        )
        self._keep(fitted)
        return {"reply": {}}

    def _cohort(self, message: dict) -> Cohort:
        return replace(self._rows(False)[0], first=message["first"])

    def _states(self, algorithm, cohort: Cohort, message: dict) -> tuple[dict, Any]:
        """Give what is still to be kept, and the state to start from, None if lost."""
        agreement, base = message["agreement"], message["base"]
        found = self._file.load(message["run"])
        kept = {n: found[n] for n in (base, message["safe"]) if n in found}
        if base == 0:  # its first work, which needs no memory
            return kept, algorithm.join(cohort, agreement)
        if base not in kept:
            return kept, None
        return kept, algorithm.restore(cohort, agreement, kept[base])
