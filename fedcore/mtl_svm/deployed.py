"""The multi-task SVMs over sites that hold their own rows."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.base import clone, is_classifier

from .._clients import by_name, client_ids, cohort_of, group_by_client
from .._estimators import check_choice, sorted_names
from .._rows import check_real, kernel_rows


class DeployedSVM:
    """Mixin: what `federation.deploy` asks of an estimator."""

    def _deployed_algorithm(self, engine):
        """Choose the method from parameters alone."""
        self._check_parameters()
        if is_classifier(self):
            if isinstance(self.class_weight, str):
                check_choice("class_weight", self.class_weight, ("balanced",))
        else:
            check_real(self.epsilon, "epsilon", min_val=0)
        if self.aggregation == "sequential":
            raise ValueError(
                "aggregation is 'sequential', in which clients of several sites work "
                "one after another; over sites expected 'auto' or another"
            )
        for name in ("early_stopping", "warm_start"):
            if getattr(self, name):
                raise ValueError(f"{name} is True, over sites expected False")
        if self.personal_features != "all":
            raise ValueError(
                f"personal_features is {self.personal_features!r}, over sites "
                f"expected 'all'"
            )
        # Sizes only matter without an engine.
        over_sites = clone(self).set_params(engine=engine)
        return over_sites._algorithm(engine, 1, 1, 1, None, False)

    def _deployed_cohort(self, X, y, clients):
        """Validate a site's rows, its clients in sorted order."""
        rows, clients = self._split(X, None if self.client_column else clients)
        rows, y = self._check_rows(rows, y)
        classes = None
        if is_classifier(self):
            classes, code = np.unique(y, return_inverse=True)
            y = code.astype(np.int32)
        ids = client_ids(clients, rows.shape[0], self._ids_name())
        groups = by_name(group_by_client(ids))
        cohort = cohort_of(kernel_rows(rows), y, None, groups, classes)
        return cohort, groups.names

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        """Make a fitted copy, of the shared model alone when `personal` is None."""
        fitted = clone(self)
        w, gap, primal = (found[name] for name in ("w", "gap", "primal"))
        if personal is None:  # the coordinator speaks for all
            self._warn_unless_converged(algorithm, found, history, float(gap.max()))
        v = np.empty((0, *w.shape)) if personal is None else personal["v"]
        if sparse.issparse(v):
            v = sparse.csr_array(v)
        if "classes" in agreement:
            fitted.classes_ = agreement["classes"]
            weight = agreement["class_weight"]
            if weight is None:
                fitted.class_weight_ = np.ones(len(fitted.classes_))
            else:
                fitted.class_weight_ = weight[0] if len(weight) == 1 else weight[:, 1]
        fitted.clients_, order = sorted_names(names)
        fitted._set_models(w, v, order, algorithm.bias)
        fitted.n_features_in_ = w.shape[1] - bool(algorithm.bias)
        fitted.n_features_in_ += self.client_column is not None
        rounds = history["round"]
        fitted.n_rounds_ = int(rounds[-1]) if len(rounds) else 0
        fitted.history_ = history
        fitted.dual_gap_, fitted.objective_ = float(gap.max()), float(primal.sum())
        fitted.dual_gap_kind_ = "bound" if found["certified"] else "measured"
        fitted.starved_ = fitted.clients_[:0]
        return fitted
