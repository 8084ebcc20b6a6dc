"""What an estimator offers so that sites of their own can fit it together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from numbers import Real
from typing import Any, Protocol

import numpy as np

from .contract import Algorithm, Cohort, State

HERE_ONLY = {"engine", "n_jobs", "random_state", "verbose"}  # may differ between sites


class Deployment:
    """What methods ask of an engine that reaches sites over a network."""

    asks_everybody = True
    hears_everybody = False  # replies may be late, lost or refused
    commit = "accepted"

    def __deepcopy__(self, memo: dict) -> Deployment:
        return self


class Deployable(Protocol):
    """An estimator whose coordinator and participants need not share a process."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Give the parameters; the sites must agree on them."""

    def _deployed_algorithm(self, engine: Any) -> Algorithm:
        """Choose the method from parameters alone: no row is seen."""

    def _deployed_cohort(
        self, X: Any, y: Any, clients: Any
    ) -> tuple[Cohort, np.ndarray]:
        """Validate a site's rows; give them and its clients' names, in their order."""

    def _deployed_result(
        self,
        algorithm: Algorithm,
        found: State,
        personal: Mapping[str, Any] | None,
        names: np.ndarray,
        history: dict[str, np.ndarray],
        agreement: dict[str, Any],
    ) -> Any:
        """Make a fitted copy; at the coordinator of the shared model alone.

        There `personal` is None, and `found` the whole last state with the findings.
        """


def check_deployable(estimator: Any) -> None:
    """Raise TypeError if an estimator is not one that sites can fit together."""
    if isinstance(estimator, type) or not hasattr(estimator, "_deployed_algorithm"):
        raise TypeError(
            f"estimator is {estimator!r:.80}, expected an instance of an estimator of "
            f"fedcore that runs over sites, such as FedMTLSVC()"
        )


def describe(estimator: Deployable) -> dict[str, str]:
    """Say in plain words what coordinator and sites must have in common."""
    from .. import __version__

    told = {"fedcore": __version__, "estimator": type(estimator).__name__}
    for name, value in sorted(estimator.get_params(deep=False).items()):
        if name not in HERE_ONLY:
            told[name] = json.dumps(_plain(value), sort_keys=True)
    return told


def difference(ours: Mapping[str, str], theirs: Mapping[str, str]) -> str:
    """Name what differs between two descriptions; empty if nothing does."""
    return "; ".join(
        f"{name} is {theirs.get(name, 'absent')}, here {ours.get(name, 'absent')}"
        for name in [*ours, *(theirs.keys() - ours.keys())]
        if theirs.get(name) != ours.get(name)
    )


def _plain(value: Any) -> Any:
    """Write a parameter so that equal values look equal: 1, 1.0 and float32(1)."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Real):
        return float(value)
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    return repr(value)
