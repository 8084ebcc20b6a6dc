"""What a participant of the sparse methods tells of its rows."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

from ..federation.contract import Cohort


def shares(weights: str | tuple[float, ...], mass: np.ndarray) -> np.ndarray:
    """Give p_k (K,), of clients with rows of these total weights."""
    if weights == "samples":
        share = mass
    elif weights == "uniform":
        share = np.ones(len(mass))
    else:
        share = np.array(weights, float)
    return share / share.sum()


def describe(cohort: Cohort) -> dict[str, Any]:
    """Give n_rows and mass (K,), the sums of weights; n_features; classes, if any."""
    sizes = np.diff(cohort.offsets)
    mass = sizes.astype(float)
    if cohort.sample_weight is not None:
        mass = np.add.reduceat(cohort.sample_weight, cohort.offsets[:-1])
    hello = {"n_rows": sizes, "mass": mass, "n_features": cohort.X.shape[1]}
    if cohort.classes is not None:
        hello["classes"] = cohort.classes
    return hello


def check_sizes(n_nonzero: int, n_outputs: int, n_features: int) -> None:
    """Refuse more coefficients than there are."""
    if n_nonzero > n_outputs * n_features:
        raise ValueError(
            f"n_nonzero_coefs == {n_nonzero}, expected at most "
            f"{n_outputs * n_features}: X has {n_features} columns, with {n_outputs} "
            f"coefficients each"
        )


def check_always(
    places: Collection[int],
    n_outputs: int | None,
    n_features: int | None,
    n_nonzero: int,
) -> None:
    """Refuse columns that are not there, or too many; None is not known yet."""
    if n_features is not None and places and max(places) >= n_features:
        raise ValueError(f"always_select has {max(places)}, X has {n_features} columns")
    n = len(places) * (1 if n_outputs is None else n_outputs)
    if n > n_nonzero:
        raise ValueError(
            f"always_select has {len(places)} columns with {n} coefficients, "
            f"n_nonzero_coefs allows {n_nonzero}"
        )
