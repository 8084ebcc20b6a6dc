"""Atoms of a dictionary, and a domain as they make it up, in two dimensions."""

from __future__ import annotations

import numpy as np
from sklearn.decomposition import PCA

from ._axes import axes_for, check_has

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")


class AtomsDisplay:
    """Points of each atom and of one reconstructed domain, by their likeliest class.

    Parameters
    ----------
    atoms : ndarray of shape (n_atoms, n_points, 2)
    labels : ndarray of shape (n_atoms, n_points)
        Places in `classes`.
    points : ndarray of shape (n_points, 2)
        The reconstruction.
    point_labels : ndarray of shape (n_points,)
    weights : ndarray of shape (n_atoms,)
        Coordinates of the domain.
    classes : ndarray of shape (n_classes,)
    domain : object
        The domain's identifier.
    rows : ndarray of shape (n_rows, 2), default=None
        Rows of the domain, drawn behind.

    Attributes
    ----------
    ax_ : ndarray of n_atoms + 1 matplotlib Axes
        The last one has the reconstruction.
    figure_ : matplotlib Figure
    """

    def __init__(
        self,
        atoms,
        labels,
        points,
        point_labels,
        *,
        weights,
        classes,
        domain,
        rows=None,
    ):
        self.atoms, self.labels = atoms, labels
        self.points, self.point_labels = points, point_labels
        self.weights, self.classes = weights, classes
        self.domain, self.rows = domain, rows

    @classmethod
    def from_estimator(cls, estimator, *, domain=None, X=None, ax=None):
        """Draw a fitted DaDiL or FedDaDiL on two principal components of its atoms.

        Parameters
        ----------
        estimator : fitted DaDiL or FedDaDiL
        domain : hashable, default=None
            One of `clients_`; None: the target.
        X : array-like of shape (n_rows, n_features), default=None
            Rows of that domain, to be drawn behind its reconstruction.
        ax : sequence of n_atoms + 1 matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        AtomsDisplay

        Raises
        ------
        ValueError
            If the estimator has no atoms, or no such domain, `X` has other columns, or
            `ax` has another length.
        """
        check_has(estimator, "atom_labels_", "a DaDiL or FedDaDiL")
        points, labels = estimator.reconstruct(domain)
        place = 0
        names = estimator.clients_.tolist()
        if domain is not None:
            place = names.index(domain)
        elif len(names) > 1:
            place = names.index(estimator.targets_.tolist()[0])
        mean = estimator.domain_mean_[place]
        scale = estimator.domain_scale_[place]
        atoms = estimator.atoms_
        n_atoms, n, d = atoms.shape
        if X is not None and np.shape(X)[1:] != (d,):
            raise ValueError(f"X has shape {np.shape(X)}, expected (n_rows, {d})")
        flat = atoms.reshape(-1, d)
        if d > 2:
            project = PCA(2, random_state=0).fit(flat).transform
        else:

            def project(rows):
                return np.column_stack([rows, np.zeros((len(rows), 2 - d))])

        return cls(
            project(flat).reshape(n_atoms, n, 2),
            estimator.atom_labels_.argmax(axis=2),
            project((points - mean) / scale),
            labels.argmax(axis=1),
            weights=estimator.weights_[place],
            classes=estimator.classes_,
            domain=names[place],
            rows=None if X is None else project((np.asarray(X, float) - mean) / scale),
        ).plot(ax)

    def plot(self, ax=None):
        """Draw.

        Parameters
        ----------
        ax : sequence of n_atoms + 1 matplotlib Axes, default=None
            None makes a new figure.

        Returns
        -------
        AtomsDisplay
        """
        n_panels = len(self.atoms) + 1
        size = (3.2 * n_panels, 3.6)
        made = axes_for(
            ax, ncols=n_panels, figsize=size, sharex=True, sharey=True, squeeze=False
        )
        self.ax_ = np.ravel(made)
        if len(self.ax_) != n_panels:
            raise ValueError(f"ax has {len(self.ax_)} axes, expected {n_panels}")
        self.figure_ = self.ax_[0].figure
        for k, axes in enumerate(self.ax_[:-1]):
            self._panel(axes, self.atoms[k], self.labels[k])
            axes.set_title(f"atom {k + 1}, weight {self.weights[k]:.2f}")
        self.ax_[0].set(xlabel="component 1", ylabel="component 2")
        last = self.ax_[-1]
        if self.rows is not None:
            last.plot(*self.rows.T, ".", color="0.8", label="rows", zorder=0)
        self._panel(last, self.points, self.point_labels)
        last.set_title(f"domain {self.domain}, reconstructed")
        last.legend(fontsize="small")
        return self

    def _panel(self, ax, points, labels) -> None:
        for c, name in enumerate(self.classes):
            own = points[labels == c]
            marker = _MARKERS[c % len(_MARKERS)]
            ax.plot(
                *own.T, marker, color=f"C{c % 10}", markersize=4, alpha=0.7, label=name
            )
