"""Scores of rows that a sparse model has not seen."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.extmath import safe_sparse_dot

from ..federation.contract import Cohort


def linear_scores(X: Any, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
    """Score rows (n, C) by coefficients (C, d), in the precision of the rows."""
    coef = coef.astype(X.dtype, copy=False)
    return safe_sparse_dot(X, coef.T, dense_output=True) + intercept


def model_message(coef: np.ndarray, intercept: np.ndarray) -> dict[str, Any]:
    """Give a model as what is not zero in it."""
    flat = coef.reshape(-1)
    index = np.flatnonzero(flat).astype(np.int32)
    return {"index": index, "value": flat[index], "intercept": intercept}


def message_scores(cohort: Cohort, message: dict) -> np.ndarray:
    """Score the held-out rows (n, C) by the model of a message."""
    X = cohort.held_out.X
    intercept = np.asarray(message["intercept"])
    coef = np.zeros((len(intercept), X.shape[1]))
    coef.reshape(-1)[message["index"]] = message["value"]
    return linear_scores(X, coef, intercept)
