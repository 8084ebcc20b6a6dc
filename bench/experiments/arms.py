"""The four arms: what each may choose from, and how it is fitted.

Every arm has the same loss (hinge or epsilon-insensitive), the same standardised rows
and a constant column whose value it chooses; a setting is a dict with a value for each
of the arm's axes.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
from ditto import personal_parts
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from fedcore import FedMTLSVC, FedMTLSVR

ROUGH, EXACT = 1e-2, 1e-3  # relative gaps: to choose by, and of what is tested
ARMS = GLOBAL, LOCAL, MULTI, DITTO = "global", "local", "multi-task", "Ditto"

HALF_DECADES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
C2S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 1000.0)
# The first axis of an arm is the first that is searched.
OWN_AXES = {
    GLOBAL: {"C": HALF_DECADES},
    LOCAL: {"C": HALF_DECADES},
    MULTI: {"C": HALF_DECADES, "C2": C2S},
    DITTO: {"C": HALF_DECADES, "C_own": (0.0001, 0.0003, *HALF_DECADES)},
}
FIRST = {"C": 0.03, "C2": 3.0, "C_own": 0.01, "epsilon": 0.3}
FIRST |= {"intercept_scaling": 3.0}
SHARED_AXES = {"intercept_scaling": (1.0, 3.0, 10.0)}
CLASS_AXES = {"class_weight": (None, "balanced")}
REAL_AXES = {"epsilon": (0.03, 0.1, 0.3, 0.6, 1.0)}  # of the standard deviation of y


def axes(arm: str, regression: bool) -> dict[str, tuple]:
    """Name what the arm chooses, and from which values."""
    task = REAL_AXES if regression else CLASS_AXES
    return OWN_AXES[arm] | SHARED_AXES | task


def first_setting(arm: str, regression: bool) -> dict:
    """Say where the search begins."""
    return {
        name: FIRST.get(name, values[0])
        for name, values in axes(arm, regression).items()
    }


def fit(
    arm: str, setting: dict, X, y, clients, *, regression: bool, tol: float
) -> tuple[Callable, float]:
    """Fit an arm.

    Returns
    -------
    score : callable
        From rows and clients to scores: of class 1, or a column a class, or values of
        the target.
    gap : float
        The worst relative duality gap of the arm's problems.
    """
    scaler = StandardScaler().fit(X)
    mean, sd = (y.mean(), y.std()) if regression else (0.0, 1.0)
    target = (y - mean) / sd if regression else y
    rows = scaler.transform(np.asarray(X, np.float64))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the gap is reported
        score, gap = FITS[arm](setting, rows, target, clients, regression, tol)

    def raw_score(X, clients):
        rows = scaler.transform(np.asarray(X, np.float64))
        return mean + sd * score(rows, clients)

    return raw_score, gap


def one_svm(C, setting, X, y, regression, tol):
    """Fit one SVM to rows that share a model; give its weights, last the constant's."""
    together = np.zeros(len(X), np.int8)
    start = zero_weights(X, y, regression)
    models, gap = own_svms(start, C, setting, X, y, together, regression, tol)
    return models[0], gap


def zero_weights(X, y, regression):
    """Give weights of 0: a row a class, one for two classes and for a regression."""
    n_classes = 2 if regression else int(y.max()) + 1
    return np.zeros((1 if n_classes == 2 else n_classes, X.shape[1] + 1))


def own_svms(w, C, setting, X, y, clients, regression, tol):
    """Draw an SVM a client towards `w`; give their weights as `one_svm` does."""
    bias = setting["intercept_scaling"]
    unit = np.append(np.ones(X.shape[1]), bias)
    names, v, gap = personal_parts(
        w / unit,
        X,
        y,
        clients,
        C=C,
        loss="epsilon_insensitive" if regression else "hinge",
        epsilon=setting.get("epsilon", 0.0),
        bias=bias,
        class_weight=setting.get("class_weight"),
        tol=tol,
    )
    return dict(zip(names, w + v * unit, strict=True)), gap


def linear(weights, X):
    """Score rows by weights whose last column is the intercept; one column flat."""
    scores = X @ weights[:, :-1].T + weights[:, -1]
    return scores[:, 0] if scores.shape[1] == 1 else scores


def by_client(models):
    """Score each row by the weights of its client."""

    def score(X, clients):
        parts = [np.flatnonzero(clients == client) for client in models]
        scores = [
            linear(w, X[own]) for w, own in zip(models.values(), parts, strict=True)
        ]
        return np.concatenate(scores)[np.argsort(np.concatenate(parts))]

    return score


def fit_global(setting, X, y, clients, regression, tol):
    """One SVM over all rows."""
    weights, gap = one_svm(setting["C"], setting, X, y, regression, tol)
    return lambda X, clients: linear(weights, X), gap


def fit_local(setting, X, y, clients, regression, tol):
    """One SVM a client, which knows its own rows only: drawn towards 0."""
    nothing = zero_weights(X, y, regression)
    models, gap = own_svms(
        nothing, setting["C"], setting, X, y, clients, regression, tol
    )
    if len(nothing) > 1:
        for client, weights in models.items():
            # A class that a client never saw is never its answer.
            absent = np.setdiff1d(np.arange(len(nothing)), y[clients == client])
            weights[absent, -1] = -np.inf
    return by_client(models), gap


def fit_multi(setting, X, y, clients, regression, tol):
    """One SVM with a shared part and a personal part a client.

    C1 is set so that a client alone would have an SVM with `C`: with one client,
    `w + v` is the SVM of ``C = C1 (1 + 1 / C2)``.
    """
    C, C2 = setting["C"], setting["C2"]
    how = {k: v for k, v in setting.items() if k not in OWN_AXES[MULTI]}
    if not regression and y.max() > 1:
        # Where clients lack a class, turns reach the same optimum in less time.
        how |= {"aggregation": "sequential", "local_epochs": 5}
    model = (FedMTLSVR if regression else FedMTLSVC)(
        C * C2 / (1 + C2),
        C2,
        tol=tol,
        max_rounds=300 if tol >= ROUGH else 3000,
        random_state=0,
        **how,
    ).fit(X, y, clients)
    scores = model.predict if regression else model.decision_function
    return scores, model.dual_gap_


def fit_ditto(setting, X, y, clients, regression, tol):
    """Fit the global SVM, then a client's own drawn towards it."""
    w, gap = one_svm(setting["C"], setting, X, y, regression, tol)
    models, own_gap = own_svms(
        w, setting["C_own"], setting, X, y, clients, regression, tol
    )
    return by_client(models), max(gap, own_gap)


FITS = {GLOBAL: fit_global, LOCAL: fit_local, MULTI: fit_multi, DITTO: fit_ditto}
