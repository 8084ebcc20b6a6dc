"""What all clients share, and what each adds."""

from __future__ import annotations

import numpy as np

from .._client_scores import personal_coef
from ._axes import axes_for, check_has


class CoefficientsDisplay:
    """Shared weights as bars, each client's own weights as points.

    Parameters
    ----------
    shared : ndarray of shape (n_shown,)
        w of the features drawn, the first on top.
    total : ndarray of shape (n_clients, n_shown)
        w + v_k; no rows for a model without personal parts.
    names : list of str
        Names of the features drawn.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, shared, total, names):
        self.shared, self.total, self.names = shared, total, names

    @classmethod
    def from_estimator(
        cls, estimator, *, n_features=15, label=None, feature_names=None, ax=None
    ):
        """Draw the largest coefficients of a fitted linear estimator.

        Parameters
        ----------
        estimator : fitted estimator with `coef_`
        n_features : int, default=15
            How many features, those of the largest weight at any client.
        label : object, default=None
            Which class of `classes_`; needed where each has weights of its own.
        feature_names : sequence of str, default=None
            None takes those seen in `fit`, else x0, x1, ...
        ax : matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        CoefficientsDisplay

        Raises
        ------
        ValueError
            If the estimator has no `coef_`, `label` is missing or unknown, or an
            argument has the wrong size.
        """
        check_has(estimator, "coef_", "one with coefficients")
        W = np.atleast_2d(estimator.coef_)
        row, d = _row(estimator, len(W), label), W.shape[1]
        if n_features < 1:
            raise ValueError(f"n_features is {n_features}, expected at least 1")
        if feature_names is None:
            default = [f"x{j}" for j in range(d)]
            feature_names = getattr(estimator, "feature_names_in_", default)
        if len(feature_names) != d:
            raise ValueError(
                f"feature_names has {len(feature_names)} entries, "
                f"the estimator was fitted with {d} features"
            )
        shared, personal = W[row], np.zeros((0, d))
        if hasattr(estimator, "client_coef_"):
            places = np.arange(len(estimator.clients_))
            personal = personal_coef(estimator, places)[:, row]
        total = shared + personal
        size = np.vstack([np.abs(shared)[None], np.abs(total)]).max(axis=0)
        shown = np.argsort(-size, kind="stable")[:n_features]
        names = [str(feature_names[j]) for j in shown]
        return cls(shared[shown], total[:, shown], names).plot(ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        CoefficientsDisplay
        """
        self.ax_ = axes_for(ax, figsize=(6.4, 1.2 + 0.28 * len(self.shared)))
        self.figure_ = self.ax_.figure
        places = np.arange(len(self.shared))
        bars = {"color": "0.75", "edgecolor": "0.3", "label": "shared, w"}
        self.ax_.barh(places, self.shared, **bars)
        if len(self.total):
            points = {"marker": "|", "s": 80, "color": "tab:blue", "zorder": 3}
            y = np.broadcast_to(places, self.total.shape)
            self.ax_.scatter(self.total, y, label="each client's, w + v$_k$", **points)
        self.ax_.axvline(0, color="black", linewidth=0.8)
        self.ax_.set_yticks(places, self.names)
        self.ax_.set_ylim(len(places) - 0.4, -0.6)
        self.ax_.set(xlabel="weight")
        self.ax_.legend()
        return self


def _row(estimator, n_rows: int, label) -> int:
    if n_rows == 1:
        if label is not None:
            raise ValueError(
                f"label is {label!r}, but the estimator has one row of coefficients"
            )
        return 0
    known = estimator.classes_.tolist()
    if label not in known:
        raise ValueError(f"label is {label!r}, expected one of {known}")
    return known.index(label)
