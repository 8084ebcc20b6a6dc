"""The demo's line on stragglers: what waiting for everybody costs, in virtual time."""

from __future__ import annotations

import numpy as np
from sklearn.base import clone

from .federation import LocalEngine, Timing
from .mtl_svm import FedMTLSVC

HALF = float(np.log(2))  # the median of a delay of mean 1


def delay(sizes, d, key) -> np.ndarray:
    """Draw a second on average, whatever the work: the way and the device decide."""
    return np.random.default_rng(key).exponential(size=len(sizes))


def costs(model: FedMTLSVC, X, y, clients) -> dict[str, tuple[int, float]]:
    """Count rounds and virtual seconds to the model's `tol`, by what is waited for."""
    ways = {
        "envelope": ("envelope", np.inf),
        "everybody": ("line_search", np.inf),
        "half": ("line_search", HALF),
    }
    figures = {}
    for name, (aggregation, wait) in ways.items():
        engine = LocalEngine(timing=Timing(delay, wait))
        fitted = clone(model).set_params(
            aggregation=aggregation, engine=engine, local_epochs=20
        )
        history = fitted.fit(X, y, clients).history_
        figures[name] = fitted.n_rounds_, float(history["virtual_time"][-1])
    return figures


def line(model: FedMTLSVC, X, y, clients) -> str:
    """Say it in one line."""
    figures = costs(model, X, y, clients)
    told = {name: f"{s:.0f} s ({n} rounds)" for name, (n, s) in figures.items()}
    return (
        f"Stragglers: if a reply takes 1 s on average (exponential), gap {model.tol:g} "
        f"takes {told['everybody']} by line search that waits for everybody, "
        f"{told['half']} if late replies are left out (half of them), and "
        f"{told['envelope']} by the envelope, which must wait."
    )
