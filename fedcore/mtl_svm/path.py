"""The models along a path of C2, each fit started from the one before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from .._rows import check_real
from .base import FedMTLSVM


class MTLSVMPath(NamedTuple):
    """Models along a path of C2, one entry a value.

    C2                : (n,)
    coefs, intercepts : (n, ...) `coef_` and `intercept_` of each fit
    client_coefs      : (n, ...) `client_coef_`; a list of CSR arrays if X was sparse
    client_intercepts : (n, ...)
    gaps              : (n,) relative duality gaps
    rounds, passes    : (n,) what each fit took
    """

    C2: np.ndarray
    coefs: np.ndarray
    intercepts: np.ndarray
    client_coefs: Any
    client_intercepts: np.ndarray
    gaps: np.ndarray
    rounds: np.ndarray
    passes: np.ndarray


def mtl_svm_path(
    estimator: Any,
    X: Any,
    y: Any,
    clients: Any = None,
    *,
    C2: Sequence[float] = (100.0, 10.0, 1.0, 0.1),
    sample_weight: Any = None,
) -> MTLSVMPath:
    """Fit the multi-task SVM for each value of C2, warm-started along the way.

    With ``aggregation="sequential"`` this took 5 to 22% fewer passes than fits from 0,
    in steps of a factor of about 2; with "envelope" it saves nothing.

    Parameters
    ----------
    estimator : FedMTLSVC or FedMTLSVR
        Gives all parameters but `C2`; is not changed.
    X, y, clients, sample_weight
        As for its `fit`.
    C2 : sequence of float, default=(100, 10, 1, 0.1)
        In the order of the fits; neighbours should be near each other.

    Returns
    -------
    MTLSVMPath

    Raises
    ------
    TypeError, ValueError
        If `estimator` is of another kind, `C2` is empty, or `fit` complains.

    Examples
    --------
    >>> from fedcore.datasets import make_mtl_classification
    >>> from fedcore.mtl_svm import FedMTLSVC, mtl_svm_path
    >>> X, y, clients = make_mtl_classification(n_clients=5, random_state=0)
    >>> model = FedMTLSVC(C1=0.1, random_state=0)
    >>> path = mtl_svm_path(model, X, y, clients, C2=[10.0, 3.0, 1.0])
    >>> path.client_coefs.shape
    (3, 5, 1, 50)
    """
    if not isinstance(estimator, FedMTLSVM):
        raise TypeError(
            f"estimator is a {type(estimator).__name__}, expected a FedMTLSVC or a "
            f"FedMTLSVR"
        )
    values = np.atleast_1d(np.asarray(C2, dtype=np.float64))
    if values.ndim != 1 or not len(values):
        raise ValueError(f"C2 has shape {values.shape}, expected values in a row")
    for value in values.tolist():
        check_real(value, "C2", min_val=0, include_boundaries="neither", infinite=True)
    model = clone(estimator).set_params(warm_start=True)
    steps = []
    for value in values:
        model.set_params(C2=float(value)).fit(X, y, clients, sample_weight)
        steps.append(
            (
                *(model.coef_, model.intercept_),
                *(model.client_coef_, model.client_intercept_),
                *(model.dual_gap_, model.n_rounds_, model.history_["passes"][-1]),
            )
        )
    coefs, intercepts, client_coefs, *rest = zip(*steps, strict=True)
    if isinstance(client_coefs[0], np.ndarray):
        client_coefs = np.array(client_coefs)
    return MTLSVMPath(
        values,
        np.array(coefs),
        np.array(intercepts),
        client_coefs if isinstance(client_coefs, np.ndarray) else list(client_coefs),
        *map(np.array, rest),
    )
