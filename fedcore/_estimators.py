"""Small things that the estimators of all methods do alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import type_of_target


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raise ValueError if a parameter is none of its choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} == {value!r}, expected one of {choices}")


def check_engine(engine: Any) -> None:
    """Raise ValueError if `engine` is neither None nor an engine."""
    if engine is not None and (isinstance(engine, type) or not hasattr(engine, "open")):
        raise ValueError(
            f"engine == {engine!r}, expected None or an engine such as LocalEngine()"
        )


def check_classes(classes: np.ndarray, loss: str) -> None:
    """Raise ValueError if a loss of scores cannot tell these classes apart."""
    if len(classes) < 2:
        raise ValueError(
            f"y has 1 class ({classes.tolist()[0]!r}), expected at least 2 classes"
        )
    if loss == "logistic" and len(classes) > 2:
        raise ValueError(
            f"Only binary classification is supported. The type of the target is "
            f"{type_of_target(classes)}: y has {len(classes)} classes; "
            f'loss="softmax" takes any number'
        )


def seed_of(random_state: Any) -> int:
    """Draw the number that names all random numbers of a fit."""
    return int(check_random_state(random_state).randint(2**31 - 1))


def sorted_names(names: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Sort identifiers if they can be; give the order too, None if they were."""
    try:
        order = np.argsort(names, kind="stable")
    except TypeError:  # of kinds that do not compare
        return names, None
    if (order == np.arange(len(names))).all():
        return names, None
    return names[order], order
