"""Federated dictionaries over sites that hold their own rows."""

from __future__ import annotations

import numpy as np
from scipy.special import softmax
from sklearn.base import clone


class DeployedDictionary:
    """Mixin: what `federation.deploy` asks of an estimator."""

    def _deployed_algorithm(self, engine):
        """Choose the method from parameters alone."""
        self._check_parameters()
        return self._algorithm()

    def _deployed_cohort(self, X, y, clients):
        """Validate a site's rows; its clients may all be targets."""
        self._check_parameters()
        problem = self._problem(X, y, clients, alone=False)
        return problem.cohort, problem.names

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        """Make a fitted copy; of the atoms alone when `personal` is None.

        The scores of a whole federation are NaN: they need everybody's rows.
        """
        fitted = clone(self)
        K, _, d = found["X"].shape
        if personal is None:
            names, none = names[:0], np.empty((0, d))
            personal = {"mean": none, "scale": none, "alphas": np.empty((0, K))}
            personal["target"] = np.empty(0, bool)
        fitted.n_features_in_ = d + (self.client_column is not None)
        fitted.classes_, fitted.clients_ = agreement["classes"], names
        fitted.targets_ = names[personal["target"]]
        fitted.atoms_ = found["X"]
        fitted.atom_labels_ = softmax(found["logits"], axis=2)
        fitted.weights_ = personal["alphas"]
        fitted.domain_mean_, fitted.domain_scale_ = personal["mean"], personal["scale"]
        fitted.history_ = history
        fitted.n_rounds_ = int(found["round"])
        fitted.objective_ = float(found["objective"])
        fitted.agreement_ = fitted.source_score_ = np.nan
        fitted._make_unsaved()
        return fitted
