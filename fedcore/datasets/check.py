"""Checks of the arguments that the generators and partitioners share."""

import math
from numbers import Integral, Real

import numpy as np
from sklearn.utils import check_random_state, check_scalar


def check_count(value, name, low=1):
    """Return `value` if it is an integer of at least `low`, raise otherwise."""
    return check_scalar(value, name, Integral, min_val=low)


def check_real(value, name, low, high=None, *, include="both"):
    """Return `value` if it is a finite number in the range, raise otherwise."""
    check_scalar(
        value, name, Real, min_val=low, max_val=high, include_boundaries=include
    )
    if not math.isfinite(value):
        raise ValueError(f"{name} == {value}, must be finite.")
    return value


def generator(random_state):
    """Return a Generator drawn from a scikit-learn `random_state`."""
    seed = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint32)
    return np.random.default_rng(seed)
