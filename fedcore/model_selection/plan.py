"""What an estimator would do, without its fit: a method and the rows that it takes."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
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
    if sum(isinstance(step, FedStandardScaler) for _, step in steps[:-1]) > 1:
        raise TypeError(f"estimator has more than one FedStandardScaler, {EXPECTED}")


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
    scaler = scaler_of(estimator)
    if scaler is not None and sparse.issparse(cohort.X):
        scaler._check_sparse(cohort.X)
    return scaled(estimator, method), cohort, names


def scaler_of(estimator: Any) -> FedStandardScaler | None:
    """Find the step that scales."""
    steps = estimator.steps[:-1] if isinstance(estimator, Pipeline) else []
    found = [step for _, step in steps if isinstance(step, FedStandardScaler)]
    return found[0] if found else None


def scaled(estimator: Any, method: Any) -> Any:
    """Put what scales the rows before the method of the model."""
    scaler, model = scaler_of(estimator), last_step(estimator)
    if scaler is None:
        return method
    scaler._check_parameters()
    own, other = scaler.client_column, getattr(model, "client_column", None)
    if own != other:
        raise ValueError(
            f"FedStandardScaler has client_column={own!r}, the model has "
            f"client_column={other!r}: expected the same"
        )
    return Scaled(scaler._moments(), method)


def deployed(
    estimator: Any,
    method: Any,
    found: dict,
    personal: Any,
    names: np.ndarray,
    history: dict[str, np.ndarray],
    agreement: dict,
) -> Any:
    """Make a fitted copy of an estimator that sites of their own have fitted."""
    rest = names, history, agreement
    if not isinstance(method, Scaled):
        fitted = last_step(estimator)._deployed_result(method, found, personal, *rest)
        made = {}
    else:
        own = None
        if personal is not None:
            own = {k[7:]: v for k, v in personal.items() if k.startswith("scaler_")}
        size = {"n_features": len(found["scaler"]["shift"])}
        scaler = scaler_of(estimator)
        made = {
            id(scaler): scaler._deployed_result(
                *(method.moments, found["scaler"], own, names, history, size)
            )
        }
        fitted = last_step(estimator)._deployed_result(
            method.method, found["method"], personal, *rest
        )
    if not isinstance(estimator, Pipeline):
        return fitted
    pipeline = clone(estimator)
    before = [(name, made.get(id(step), step)) for name, step in estimator.steps[:-1]]
    pipeline.steps = [*before, (estimator.steps[-1][0], fitted)]
    return pipeline


def call(estimator: Any, name: str, *args: Any, **metadata: Any) -> Any:
    """Call a method with what is known of the rows besides, through all steps.

    A model that is the same for all clients need not be told whose rows it sees.
    """
    method = getattr(estimator, name)
    known = {key: value for key, value in metadata.items() if value is not None}
    if not isinstance(estimator, Pipeline):
        if "clients" in known and "clients" not in signature(method).parameters:
            del known["clients"]
        return method(*args, **known)
    with config_context(enable_metadata_routing=bool(known)):
        return method(*args, **known)
