"""Validation of rows and numbers beyond what scikit-learn does."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_array, check_scalar

# What every estimator says to check_X_y, check_array and validate_data.
ROWS = {"accept_sparse": "csr", "dtype": [np.float64, np.float32], "order": "C"}


def kernel_rows(X: Any) -> Any:
    """Bring validated rows into the form that kernels read; the caller's stay as given.

    CSR comes out canonical (sorted, no duplicates) with int32 indices.

    Raises
    ------
    ValueError
        If the indices of a sparse X do not fit 32 bits, or point outside of it.
    """
    if not sparse.issparse(X):
        return X
    check_places(X)
    limit = np.iinfo(np.int32).max
    if max(X.nnz, X.shape[1]) > limit:
        raise ValueError(
            f"X has {X.nnz} stored entries and {X.shape[1]} columns, expected at most "
            f"{limit} of each: sparse rows are indexed by 32 bits"
        )
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    indices = X.indices.astype(np.int32, copy=False)
    indptr = X.indptr.astype(np.int32, copy=False)
    if indices is X.indices and indptr is X.indptr:
        return X
    return sparse.csr_array((X.data, indices, indptr), shape=X.shape)


def check_places(X: Any) -> None:
    """Raise ValueError if a CSR X is corrupt: compiled loops trust its indices."""
    if not sparse.issparse(X):
        return
    try:
        X.check_format(full_check=True)
    except ValueError as error:
        raise ValueError(
            f"X is no valid CSR matrix of shape {X.shape}: {error}"
        ) from error


def check_real(value: Any, name: str, *, infinite: bool = False, **limits: Any) -> None:
    """Check a number as `sklearn.utils.check_scalar` does, and that it is finite.

    Raises
    ------
    TypeError, ValueError
        Naming the argument, what was seen and what was expected.
    """
    check_scalar(value, name, Real, **limits)
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(
            f"{name} is a whole number beyond the floats, expected a finite number"
        ) from None
    if np.isnan(number) or (np.isinf(number) and not infinite):
        raise ValueError(f"{name} == {value}, expected a finite number")


def check_n_jobs(n_jobs: Any) -> None:
    """Raise TypeError or ValueError unless `n_jobs` is None or counts threads."""
    if n_jobs is None:
        return
    check_scalar(n_jobs, "n_jobs", Integral)
    if n_jobs == 0:
        raise ValueError("n_jobs == 0, expected None, -1 or a number of threads")


def check_bool(value: Any, name: str) -> None:
    """Raise TypeError unless the value is True or False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} == {value!r}, expected True or False")


def check_labels(y: Any) -> None:
    """Raise ValueError if strings stand beside labels of other types.

    Lists must come as they are: NumPy would make strings of all.
    """
    if not (
        isinstance(y, list) or getattr(getattr(y, "dtype", None), "kind", "") == "O"
    ):
        return
    is_text = [isinstance(label, str) for label in y]
    if any(is_text) and not all(is_text):
        kinds = {type(label).__name__ for label in y if not isinstance(label, str)}
        kinds = ", ".join(sorted(kinds | {"str"}))
        raise ValueError(f"y has labels of types {kinds}, expected one type")


def check_sample_weight(sample_weight: Any, n_rows: int) -> np.ndarray | None:
    """Return weights as float64, None for none.

    Raises
    ------
    ValueError
        If the shape is wrong, a weight is negative or not finite, or all are 0.
    """
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Real):
        check_real(sample_weight, "sample_weight")
        sample_weight = np.full(n_rows, float(sample_weight))
    weight = check_array(
        sample_weight,
        ensure_2d=False,
        dtype=np.float64,
        order="C",
        input_name="sample_weight",
    )
    if weight.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    if len(weight) != n_rows:
        raise ValueError(
            f"sample_weight.shape == {weight.shape}, expected ({n_rows},): "
            f"one weight a row"
        )
    if weight.min() < 0:
        raise ValueError(
            f"sample_weight has a negative entry ({weight.min()}), expected none"
        )
    if not weight.any():
        raise ValueError("sample_weight is all zero, expected a positive weight")
    return None if (weight == 1).all() else weight
