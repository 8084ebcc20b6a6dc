"""Where a Display draws, and which estimators it can draw."""

from __future__ import annotations

from typing import Any

from sklearn.utils.validation import check_is_fitted


def axes_for(ax: Any, **figure: Any) -> Any:
    """Give `ax`, or the axes of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "fedcore.display draws with matplotlib: pip install fedcore-learn[plot]"
        ) from error
    return plt.subplots(layout="constrained", **figure)[1]


def check_has(estimator: Any, attribute: str, otherwise: str) -> None:
    """Raise unless `estimator` is fitted and has what a Display draws."""
    check_is_fitted(estimator)
    if not hasattr(estimator, attribute):
        raise ValueError(
            f"estimator is a {type(estimator).__name__} without {attribute}, "
            f"expected {otherwise}"
        )
