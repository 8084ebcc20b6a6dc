"""Small things that the estimators of all methods do alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state


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
