"""What an estimator would do, without its fit: a method and the rows that it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.pipeline import Pipeline

from ..federation.contract import Cohort
from ..preprocessing.estimator import FedStandardScaler
from ..preprocessing.scaled import Scaled

EXPECTED = (
    "expected an estimator of fedcore such as FedMTLSVC, or a Pipeline of "
    "FedStandardScaler and one"
)


def last_step(estimator: Any) -> Any:
    """Give the model itself, without what prepares the rows."""
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def check_plannable(estimator: Any) -> None:
    """Raise TypeError unless all that an estimator does can be done at the clients."""
    steps = estimator.steps if isinstance(estimator, Pipeline) else [("", estimator)]
    if not hasattr(steps[-1][1], "_plan"):
        name = type(steps[-1][1]).__name__
        raise TypeError(f"estimator is a {name}, {EXPECTED}")
    for name, step in steps[:-1]:
        if not (step in (None, "passthrough") or isinstance(step, FedStandardScaler)):
            raise TypeError(
                f"estimator has step {name!r}, a {type(step).__name__}, which needs "
                f"the rows of all clients in one place: {EXPECTED}"
            )


def plan(
    estimator: Any, engine: Any, X: Any, y: Any, clients: Any, sample_weight: Any
) -> tuple[Any, Cohort, np.ndarray]:
    """Give the method of a fit, its rows by client, and the clients' names.

    Raises
    ------
    TypeError, ValueError
        As the estimator's `fit`.
    """
    model = last_step(estimator)
    method, cohort, names = model._plan(engine, X, y, clients, sample_weight)
    if isinstance(estimator, Pipeline):
        for name, step in reversed(estimator.steps[:-1]):
            if not isinstance(step, FedStandardScaler):
                continue
            step._check_parameters()
            own, other = step.client_column, getattr(model, "client_column", None)
            if own != other:
                raise ValueError(
                    f"step {name!r} has client_column={own!r}, the model has "
                    f"client_column={other!r}: expected the same"
                )
            if sparse.issparse(cohort.X):
                step._check_sparse(cohort.X)
            method = Scaled(step._moments(), method)
    return method, cohort, names


def call(estimator: Any, name: str, *args: Any, **metadata: Any) -> Any:
    """Call a method with what is known of the rows besides, through all steps."""
    metadata = {name: value for name, value in metadata.items() if value is not None}
    if not isinstance(estimator, Pipeline) or not metadata:
        return getattr(estimator, name)(*args, **metadata)
    with config_context(enable_metadata_routing=True):
        return getattr(estimator, name)(*args, **metadata)
