"""A deployed fit from the coordinator's end to its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone

from .._estimators import seed_of
from .deploy import Deployable
from .remote import RemoteEngine
from .run import run


def coordinate(estimator: Deployable, engine: RemoteEngine, *, out: Any = None) -> Any:
    """Fit over the sites that an engine reaches; give the shared model.

    Parameters
    ----------
    estimator : estimator
        Stays as it is.
    engine : RemoteEngine
    out : path-like, default=None
        Folder for ``model.npz`` and ``record.json``.

    Returns
    -------
    fitted : estimator
        Also with `faults_`, a table of what went wrong, and `record_`.
    """
    estimator = clone(estimator)
    algorithm = estimator._deployed_algorithm(engine)
    random_state = getattr(estimator, "random_state", None)
    # As `fit` draws it, so that a LocalEngine can repeat the run.
    seed = seed_of(random_state)
    outcome = run(algorithm, engine, None, seed=seed, any_seed=random_state is None)
    found = outcome.state | algorithm.findings(outcome.state)
    fitted = estimator._deployed_result(
        *(algorithm, found, None, np.array([], object)),
        *(outcome.history, outcome.agreement or {}),
    )
    fitted.faults_ = outcome.faults
    if out is not None:
        folder = Path(out)
        folder.mkdir(parents=True, exist_ok=True)
        outcome.record.save(folder / "record.json")
        save_model(folder / "model.npz", fitted)
    fitted.record_ = outcome.record
    return fitted


def save_model(path: Path, fitted: Any) -> None:
    """Save a fitted estimator by `fedcore.save`."""
    from ..persist import save

    save(path, fitted)
