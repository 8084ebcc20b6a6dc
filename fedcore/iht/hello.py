"""What a participant of the sparse methods tells of its rows."""

from __future__ import annotations

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
