"""Which clients learn together, and why so many groups."""

from __future__ import annotations

import numpy as np

from ._axes import axes_for, check_has


class ClientGraphDisplay:
    """The mixing matrix ordered by group, beside the spectrum of the Laplacian.

    Parameters
    ----------
    W : ndarray of shape (n_clients, n_clients)
        Doubly stochastic weights.
    groups : ndarray of shape (n_clients,)
    eigenvalues : ndarray
        Of the normalised Laplacian, ascending; empty where none was computed.
    names : ndarray of shape (n_clients,)

    Attributes
    ----------
    ax_ : ndarray of two matplotlib Axes
        Of the matrix and of the spectrum.
    figure_ : matplotlib Figure
    """

    def __init__(self, W, groups, eigenvalues, names):
        self.W, self.groups = W, groups
        self.eigenvalues, self.names = eigenvalues, names

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Draw the graph of a fitted FedGraphMTL.

        Parameters
        ----------
        estimator : fitted FedGraphMTL
        ax : sequence of two matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        ClientGraphDisplay

        Raises
        ------
        ValueError
            If the estimator has no client graph, or `ax` is not a pair.
        """
        check_has(estimator, "client_graph_", "a FedGraphMTL")
        return cls(
            np.asarray(estimator.client_graph_),
            np.asarray(estimator.groups_),
            np.asarray(estimator.eigenvalues_),
            np.asarray(estimator.clients_),
        ).plot(ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : sequence of two matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        ClientGraphDisplay
        """
        self.ax_ = np.ravel(axes_for(ax, ncols=2, figsize=(9, 4)))
        if len(self.ax_) != 2:
            raise ValueError(f"ax has {len(self.ax_)} axes, expected two")
        self.figure_ = self.ax_[0].figure
        self._matrix(self.ax_[0])
        self._spectrum(self.ax_[1])
        return self

    def _matrix(self, ax) -> None:
        order = np.argsort(self.groups, kind="stable")
        image = ax.imshow(self.W[np.ix_(order, order)], cmap="Greys", vmin=0)
        ax.figure.colorbar(image, ax=ax, label="weight", shrink=0.8)
        edges = np.flatnonzero(np.diff(self.groups[order])) + 0.5
        for edge in edges:
            ax.axhline(edge, color="tab:blue", linewidth=1)
            ax.axvline(edge, color="tab:blue", linewidth=1)
        if len(order) <= 30:
            names = [str(name) for name in self.names[order]]
            ax.set_xticks(range(len(order)), names, rotation=90)
            ax.set_yticks(range(len(order)), names)
        n_groups = len(edges) + 1
        ax.set(title=f"{n_groups} group{'s' if n_groups > 1 else ''}", xlabel="client")

    def _spectrum(self, ax) -> None:
        count = np.arange(1, len(self.eigenvalues) + 1)
        n_groups = len(np.unique(self.groups))
        within = count <= n_groups
        ax.plot(count[within], self.eigenvalues[within], "o", label="one a group")
        ax.plot(count[~within], self.eigenvalues[~within], "x", label="the others")
        ax.set(xlabel="place", ylabel="eigenvalue of the Laplacian")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if len(count):
            ax.legend()
        else:
            ax.set_title("no spectrum: the topology was given")
