"""The sparse estimators over sites that hold their own rows."""

from __future__ import annotations

from sklearn.base import clone

from .._clients import by_name, group_by_client


class DeployedSparse:
    """Mixin: what `federation.deploy` asks of an estimator."""

    def _deployed_algorithm(self, engine):
        """Choose the method from parameters alone."""
        self._check_parameters()
        if self.n_nonzero_coefs is None:
            raise ValueError(
                "n_nonzero_coefs is None, over sites expected a number: the "
                "coordinator sees no column"
            )
        if not isinstance(self.weights, str):
            raise ValueError(
                f"weights is {self.weights!r}, over sites expected 'samples' or "
                f"'uniform': clients come in no order that is known before"
            )
        return self._method(self._task(int(self.n_nonzero_coefs), self.weights))

    def _deployed_cohort(self, X, y, clients):
        """Validate a site's rows, its clients in sorted order."""

        def in_order(ids):
            return by_name(group_by_client(ids))

        return self._cohort(X, y, clients, None, in_order)

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        """Make a fitted copy; a site gets the same model as the coordinator."""
        fitted = clone(self)
        solution = self._solution(algorithm, found, history)
        fitted._set_model(solution, agreement.get("classes"), names)
        fitted.n_features_in_ = solution.coef.shape[1]
        return fitted
