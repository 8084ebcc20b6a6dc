"""What FedMTLSVC and FedMTLSVR have in common: checks, the run, fitted attributes."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from .._client_column import check_client_column, column_place
from .._client_models import ClientModels
from .._clients import (
    client_ids,
    cohort_of,
    find_clients,
    group_by_client,
    with_client,
)
from .._estimators import check_choice, check_engine, seed_of, sorted_names
from .._rows import (
    check_bool,
    check_n_jobs,
    check_real,
    check_sample_weight,
    kernel_rows,
)
from ..federation.contract import Cohort
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .deployed import DeployedSVM
from .envelope import SMOOTHING_FROM
from .held_out import split_models
from .newcomer import GAP, solve_newcomer
from .personal import check_personal_features, personal_columns
from .protocol import MTLSVM, row_weights
from .stopping import hold_out

MOST_SOLVED_COLUMNS = 200  # up to which csrc/fc_svm has an interior point for a client
AGGREGATIONS = ("auto", "sequential", "envelope", "line_search", "safe", "sum")


class FedMTLSVM(DeployedSVM, ClientModels, BaseEstimator):
    def _check_parameters(self) -> None:
        positive = {"min_val": 0, "include_boundaries": "neither"}
        check_real(self.C1, "C1", **positive)
        check_real(self.C2, "C2", infinite=True, **positive)
        check_real(self.tol, "tol", min_val=0)
        check_real(self.intercept_scaling, "intercept_scaling", **positive)
        check_scalar(self.max_rounds, "max_rounds", Integral, min_val=1)
        check_bool(self.fit_intercept, "fit_intercept")
        check_bool(self.warm_start, "warm_start")
        check_bool(self.early_stopping, "early_stopping")
        limits = {"min_val": 0, "max_val": 1, "include_boundaries": "neither"}
        check_real(self.validation_fraction, "validation_fraction", **limits)
        check_scalar(self.n_iter_no_change, "n_iter_no_change", Integral, min_val=1)
        if self.warm_start and self.early_stopping:
            raise ValueError(
                "warm_start and early_stopping are both True, expected one at most: "
                "other rows are held out each time"
            )
        check_scalar(self.verbose, "verbose", Integral, min_val=0)
        check_n_jobs(self.n_jobs)
        check_choice("loss", self.loss, self._losses)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_engine(self.engine)
        check_client_column(self.client_column)
        check_personal_features(self.personal_features)
        check_choice("handle_unknown", self.handle_unknown, ("error", "shared"))
        if not isinstance(self.local_epochs, str) or self.local_epochs != "auto":
            check_scalar(
                self.local_epochs, "local_epochs", Integral, min_val=1, max_val=65535
            )

    def _algorithm(
        self, engine, n_rows, n_columns, n_clients, own_columns, warm
    ) -> MTLSVM:
        aggregation = self.aggregation
        if aggregation == "envelope" and own_columns is not None:
            raise ValueError(
                'aggregation == "envelope" needs personal_features="all": in columns '
                "without a personal part the clients' optima are not smooth; expected "
                '"auto" or another'
            )
        hears_everybody = getattr(engine, "hears_everybody", engine.asks_everybody)
        # Bound and switch of rules are for fits from 0 with a smooth envelope.
        is_plain = own_columns is None and not (warm or self.early_stopping)
        if aggregation == "auto":
            # Clients with more rows than columns are solved whole, and then few rounds
            # are also the shortest way; with fewer, passes in turns are.
            solved_whole = n_columns <= min(n_rows / n_clients, MOST_SOLVED_COLUMNS)
            smooth = self.C2 <= SMOOTHING_FROM or self.loss.startswith("squared")
            suits = own_columns is None and solved_whole and smooth
            if self.engine is None and not suits:
                aggregation = "sequential"
            elif own_columns is None and hears_everybody:
                aggregation = "envelope"
            else:
                may_switch = engine.asks_everybody and is_plain
                aggregation = "auto" if may_switch else "line_search"
        keeps_accepted = getattr(engine, "commit", "accepted") == "accepted"
        class_weight = getattr(self, "class_weight", None)
        if isinstance(class_weight, dict):
            class_weight = tuple(class_weight.items())
        return replace(
            self._svm(aggregation, class_weight, own_columns),
            warm=warm,
            keep_dual=bool(self.warm_start),
            patience=int(self.n_iter_no_change) if self.early_stopping else 0,
            certify=not hears_everybody
            and keeps_accepted
            and is_plain
            and aggregation in ("auto", "line_search", "safe", "sum")
            and self.C2 < np.inf,
        )

    def _svm(self, aggregation: str, class_weight: Any, own_columns: Any) -> MTLSVM:
        return MTLSVM(
            loss=self.loss,
            C1=float(self.C1),
            C2=float(self.C2),
            epsilon=float(getattr(self, "epsilon", 0.0)),
            bias=float(self.intercept_scaling) if self.fit_intercept else 0.0,
            aggregation=aggregation,
            local_epochs=self.local_epochs,
            tol=float(self.tol),
            max_rounds=int(self.max_rounds),
            class_weight=class_weight,
            own_columns=own_columns,
        )

    def _own_columns(self, names: Any, n_own: int) -> tuple[int, ...] | None:
        """Columns with a personal part; names are those of X, n_own have weights."""
        n, taken = n_own, None
        if self.client_column is not None:
            n += 1
            known = range(n) if names is None else names
            taken = column_place(None, self.client_column, known)
        columns = personal_columns(self.personal_features, names, n, taken)
        if columns == () and not self.fit_intercept:
            raise ValueError(
                f"personal_features == {self.personal_features!r} with "
                f"fit_intercept=False: nothing would be personal, expected some column"
            )
        return columns

    def _fit(self, X, rows, y, clients, sample_weight, classes=None):
        """Fit validated rows; nothing of self changes before the end."""
        n, d = rows.shape
        own_columns = self._own_columns(getattr(X, "columns", None), d)
        ids = client_ids(clients, n, self._ids_name())
        weight = check_sample_weight(sample_weight, n)
        groups = group_by_client(ids)
        warm = self._warm_dual(groups, classes)
        seed = check_random_state(self.random_state)
        cohort = cohort_of(kernel_rows(rows), y, weight, groups, classes, warm)
        if self.early_stopping:
            cohort = self._hold_out(cohort, seed)
        engine = LocalEngine() if self.engine is None else self.engine
        sizes = (n, d, cohort.n_clients)
        algorithm = self._algorithm(engine, *sizes, own_columns, warm is not None)
        try:
            outcome = run(
                algorithm,
                engine,
                cohort,
                seed=seed_of(seed),
                n_jobs=self.n_jobs,
                any_seed=self.random_state is None,
                on_round=_print_round if self.verbose else None,
            )
        except MessageError as error:
            raise ValueError(
                f"the fit overflowed ({error}): scale the columns of X, or bring C1, "
                f"C2 and intercept_scaling nearer to 1"
            ) from error
        w, gap, primal = algorithm.result(outcome.state)
        state = outcome.state
        if not (self.early_stopping and state["idle_rounds"] >= algorithm.patience):
            last = np.ravel(outcome.history["gap"])[-1] if self.early_stopping else gap
            self._warn_unless_converged(
                algorithm, outcome.state, outcome.history, float(np.max(last))
            )
        names, by_name = sorted_names(groups.names)
        starved = self._starved(outcome.traffic, groups.names)

        validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
        if classes is not None:
            self.classes_ = classes
            totals = np.bincount(y, weight, minlength=len(classes))
            hello = {"classes": classes, "weights": totals}
            weights = algorithm.weigh_classes(classes, [hello])
            self.class_weight_ = np.ones(len(classes)) if weights is None else weights
        self._keep_dual(outcome.personal.get("b"), groups)
        self.clients_ = names
        self._set_models(w, outcome.personal["v"], by_name, algorithm.bias)
        self.n_rounds_ = int(outcome.history["round"][-1])
        self.history_ = outcome.history
        self.dual_gap_ = float(gap.max())
        self.objective_ = float(primal.sum())
        bounded = state.get("certified", False)
        self.dual_gap_kind_ = "bound" if bounded else "measured"
        self.starved_ = starved
        vars(self).pop("trace_", None)
        if outcome.traffic is not None and outcome.traffic.trace is not None:
            self.trace_ = outcome.traffic.trace.renumbered(by_name)
        if self.early_stopping:
            self.best_validation_score_ = float(state["best_score"])
        else:
            vars(self).pop("best_validation_score_", None)
        return self

    def _plan(self, engine, X, y, clients=None, sample_weight=None):
        """Give method, rows and names of a fit that is left to others to run."""
        if self.early_stopping or self.warm_start:
            name = "early_stopping" if self.early_stopping else "warm_start"
            raise ValueError(f"{name} is True, expected False in a search")
        rows, y, clients, classes = self._checked(X, y, clients)
        n, d = rows.shape
        own_columns = self._own_columns(getattr(X, "columns", None), d)
        groups = group_by_client(client_ids(clients, n, self._ids_name()))
        weight = check_sample_weight(sample_weight, n)
        cohort = cohort_of(kernel_rows(rows), y, weight, groups, classes)
        sizes = (n, d, cohort.n_clients)
        algorithm = self._algorithm(engine, *sizes, own_columns, warm=False)
        return algorithm, cohort, groups.names

    def _starved(self, traffic, names):
        """Name the clients whose work never or hardly ever counted; warn of them."""
        if traffic is None or not len(traffic.starved):
            return names[:0]
        starved = traffic.starved
        shown = ", ".join(
            f"{names[k]!s} ({traffic.accepted[k]} of {traffic.asked[k]})"
            for k in starved[:5].tolist()
        )
        warnings.warn(
            f"{len(starved)} of {len(names)} clients starved: their replies came in "
            f"time never or hardly ever: {shown}{', ...' if len(starved) > 5 else ''}. "
            f"Let the coordinator wait longer.",
            UserWarning,
            stacklevel=4,
        )
        return sorted_names(names[starved])[0]

    def _hold_out(self, cohort, seed):
        """Split the rows of each client."""
        owner = np.repeat(np.arange(cohort.n_clients), np.diff(cohort.offsets))
        label = np.zeros(len(owner), int) if cohort.classes is None else cohort.y
        held = hold_out(owner, label, self.validation_fraction, seed)
        weight = cohort.sample_weight
        if not held.any() or (weight is not None and not weight[held].any()):
            raise ValueError(
                f"validation_fraction == {self.validation_fraction} leaves no row that "
                f"counts to hold out from {cohort.n_clients} clients with "
                f"{len(owner)} rows: expected more, or early_stopping=False"
            )

        def part(rows, held_out=None):
            own = np.bincount(owner[rows], minlength=cohort.n_clients)
            return Cohort(
                kernel_rows(cohort.X[rows]),
                cohort.y[rows],
                None if weight is None else weight[rows],
                np.concatenate([[0], np.cumsum(own)]),
                cohort.classes,
                held_out=held_out,
            )

        return part(~held, part(held))

    def _warm_dual(self, groups, classes):
        """Multipliers (C, n) to start from: if rows, clients and classes match."""
        if not self.warm_start or not hasattr(self, "dual_coef_"):
            return None
        b, seen = self.dual_coef_, self._dual_groups
        same = (
            np.array_equal(seen.names, groups.names)
            and np.array_equal(seen.offsets, groups.offsets)
            and np.array_equal(seen.order, groups.order)
            and np.array_equal(getattr(self, "classes_", None), classes)
        )
        return b * (float(self.C1) / self._dual_C1) if same else None

    def _keep_dual(self, b, groups):
        if b is None:
            for name in ("dual_coef_", "_dual_groups", "_dual_C1"):
                vars(self).pop(name, None)
            return
        self.dual_coef_ = np.empty_like(b)
        self.dual_coef_[:, slice(None) if groups.order is None else groups.order] = b
        self._dual_groups, self._dual_C1 = groups, float(self.C1)

    def _set_models(self, w, v, by_name, bias):
        """Split off the intercepts and give everything its public shape."""
        if by_name is not None:
            rows = by_name
            if sparse.issparse(v):
                rows = (by_name[:, None] * len(w) + np.arange(len(w))).reshape(-1)
            v = v[rows]
        parts = split_models(w, v, bias, len(self.clients_))
        self.coef_, self.intercept_, self.client_coef_, self.client_intercept_ = parts

    def fit_client(self, X, y, client=None, sample_weight=None):
        """Fit the personal part of one client, and leave the shared model as it is.

        A newcomer is appended to `clients_`, `client_coef_` and `client_intercept_`;
        the personal part of a client that is there already is made anew. Nothing else
        changes: `coef_` keeps its bits, `dual_gap_` and `history_` are those of `fit`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
            Rows of this client.
        y : array-like of shape (n_rows,)
            Labels must be among `classes_`; the client need not have all of them.
        client : hashable, default=None
            Its identifier; may be left out with `client_column`.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the rows are not like those of `fit`, are of several clients, or have a
            label that `fit` did not see. The estimator stays as it was.
        """
        check_is_fitted(self)
        self._check_parameters()
        validate_data(self, X, reset=False, skip_check_array=True)
        names = getattr(self, "feature_names_in_", None)
        rows, ids = self._split(X, None, names)
        rows, y = self._check_rows(rows, y)
        own_columns = self._own_columns(names, rows.shape[1])
        client = self._one_client(client, ids, len(y))
        weight = check_sample_weight(sample_weight, len(y))
        groups = group_by_client(np.zeros(len(y), np.int8))
        classes = getattr(self, "classes_", None)
        agreement: dict[str, Any] = {"n_classes": 1, "class_weight": None}
        if classes is not None:
            y = self._codes(y)
            agreement = {
                "classes": classes,
                "n_classes": 1 if len(classes) == 2 else len(classes),
                "class_weight": row_weights(self.class_weight_),
            }
        cohort = cohort_of(kernel_rows(rows), y, weight, groups, classes)
        svm = self._svm("envelope", None, own_columns)
        w = np.atleast_2d(self.coef_)
        if svm.bias:
            intercept = np.atleast_1d(self.intercept_) / svm.bias
            w = np.column_stack([w, intercept])
        with threadpool_limits(1, user_api="blas"):
            v, gap = solve_newcomer(
                svm, cohort, w, agreement, seed_of(self.random_state)
            )
        if not (np.isfinite(gap) and np.isfinite(v).all()):
            raise ValueError(
                "the fit of this client overflowed: scale the columns of X, as those "
                "of fit, and bring sample_weight nearer to 1"
            )
        if gap > max(self.tol, GAP):
            warnings.warn(
                f"{type(self).__name__}.fit_client stopped at a relative duality gap "
                f"of {gap:.1e}, above tol={self.tol:.1e}. Scale the columns of X.",
                ConvergenceWarning,
                stacklevel=2,
            )
        self._store_client(client, v, svm.bias)
        return self

    def _store_client(self, client, v, bias):
        C, d = len(v), self.coef_.shape[-1]
        last = v[:, d] * bias if bias else np.zeros(C)
        place = int(find_clients(client_ids([client], 1), self.clients_)[0])
        is_new = place < 0
        names = with_client(self.clients_, client) if is_new else self.clients_
        before = self.client_coef_
        if sparse.issparse(before):
            rest = before if is_new else before[: place * C]
            parts = [rest, sparse.csr_array(v[:, :d])]
            parts += [] if is_new else [before[(place + 1) * C :]]
            coef = sparse.vstack(parts, format="csr")
        elif is_new:
            coef = np.concatenate([before, v[:, :d].reshape(1, *before.shape[1:])])
        else:
            coef = before.copy()
            coef[place] = v[:, :d].reshape(before.shape[1:])
        intercept = self.client_intercept_
        last = last.reshape(1, *intercept.shape[1:])
        if is_new:
            intercept = np.concatenate([intercept, last])
        else:
            intercept = intercept.copy()
            intercept[place] = last[0]
        self.clients_, self.client_coef_ = names, coef
        self.client_intercept_ = intercept

    def _warn_unless_converged(self, algorithm, state, history, gap):
        name = type(self).__name__
        last = int(max(history["round"], default=0))
        if state.get("diverged"):
            warnings.warn(
                f'{name} with aggregation="sum" diverged: the dual objective fell '
                f"below its start in round {last}, at a "
                f"relative duality gap of {gap:.1e}. The published rule has no "
                f'guarantee; use aggregation="line_search" or "auto".',
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not gap <= algorithm.tol:
            warnings.warn(
                f"{name} stopped after {last} rounds "
                f"(max_rounds={self.max_rounds}) at a relative duality gap of "
                f"{gap:.1e}, above tol={self.tol:.1e}. Scale the columns of X, or "
                f"raise max_rounds.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _plain_parameters(self) -> dict[str, Any]:
        """Parameters under which scikit-learn's estimators are the nearest to ours."""
        return {
            "C": self.C1,
            "loss": self.loss,
            "fit_intercept": self.fit_intercept,
            "intercept_scaling": self.intercept_scaling,
            "tol": self.tol,
            "dual": True,
        }

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _print_round(round: int, figures: dict[str, float]) -> None:
    gap = figures.get("gap")
    text = "" if gap is None else f", relative duality gap {gap:.2e}"
    print(f"[fedcore] round {round}, {figures['passes']:.1f} passes{text}")
