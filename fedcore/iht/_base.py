"""What all sparse estimators share: validation, labels, loss and prediction."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_scalar, check_X_y
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._clients import client_ids, cohort_of, group_by_client
from .._estimators import (
    check_choice,
    check_classes,
    check_engine,
    seed_of,
    sorted_names,
)
from .._rows import ROWS, check_places, check_real, check_sample_weight, kernel_rows
from ..federation.contract import Algorithm, Cohort
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import Outcome, run
from .deployed import DeployedSparse
from .held_out import linear_scores

LOSSES = ("squared", "logistic", "softmax")


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be found; what only the rows say is None before they are seen.

    loss          : one of LOSSES
    n_nonzero     : tau, at most n_outputs * n_columns if these are known
    l2            : weight of 1/2 |x|^2; the intercept is free
    weights       : "samples", "uniform", or one number a client of the cohort
    fit_intercept : whether there is one
    n_outputs     : rows of the coefficients: the classes of softmax, else 1
    n_columns     : of the rows
    most_rows     : of a client
    columns       : their names, None if they have none
    """

    loss: str
    n_nonzero: int
    l2: float
    weights: str | tuple[float, ...]
    fit_intercept: bool
    n_outputs: int | None = None
    n_columns: int | None = None
    most_rows: int | None = None
    columns: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """A validated fit.

    cohort : rows by client; y is float64, or int32 codes into cohort.classes. No row
             has weight 0
    names  : identifiers of the clients of the cohort
    """

    task: Task
    cohort: Cohort
    names: np.ndarray


@dataclass(frozen=True, slots=True)
class Solution:
    """What a method found.

    coef       : (n_outputs, n_features) float64
    intercept  : (n_outputs,) float64, zeros without one
    objective  : the objective there, over all rows
    history    : the ledger's columns
    attributes : further fitted attributes, by name
    """

    coef: np.ndarray
    intercept: np.ndarray
    objective: float
    history: dict[str, np.ndarray]
    attributes: dict[str, Any] = field(default_factory=dict)


def _has_classes(estimator: SparseLinearModel) -> bool:
    return estimator.loss != "squared"


class SparseLinearModel(DeployedSparse, BaseEstimator, metaclass=ABCMeta):
    """Base of the estimators: a regressor for the squared loss, a classifier else.

    A subclass stores n_nonzero_coefs, loss, l2, weights, fit_intercept, tol,
    max_rounds, engine, n_jobs, random_state and verbose, and has `_check_method`,
    `_method`, `_solve` and `_solution`.
    """

    # cross_validate, GridSearchCV and Pipeline pass these on when routing is enabled.
    __metadata_request__fit = {"clients": True, "sample_weight": True}

    def _check_method(self) -> None:
        """Check the parameters that only this method has."""

    @abstractmethod
    def _method(self, task: Task) -> Any:
        """Give the method with all its numbers."""

    def _plan(self, engine, X, y, clients=None, sample_weight=None):
        """Give method, rows and names of a fit that is left to others to run."""
        self._check_parameters()
        problem = self._problem(X, y, clients, sample_weight)
        return self._method(problem.task), problem.cohort, problem.names

    @abstractmethod
    def _solution(self, algorithm: Any, state: Any, history: dict) -> Solution:
        """Read what a run has found; `warnings` at stacklevel 4."""

    def _solve(self, problem: Problem) -> Solution:
        """Fit validated rows, changing nothing of self."""
        algorithm = self._method(problem.task)
        outcome = self._run(algorithm, problem, self._print_round)
        return self._solution(algorithm, outcome.state, outcome.history)

    def fit(self, X, y, clients=None, sample_weight=None):
        """Fit one model to the rows of all clients.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Numbers for the squared loss; else labels of any kind: exactly two
            distinct ones over all clients for "logistic", at least two for "softmax".
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client that owns each row; None: one client.
        sample_weight : array-like of shape (n_rows,), default=None
            A row of weight 0 is as if it were not there, one of weight 2 as if it
            stood there twice.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError, TypeError
            If a parameter or an argument is not as described; the estimator stays
            as it was.
        """
        self._check_parameters()
        problem = self._problem(X, y, clients, sample_weight)
        solution = self._solve(problem)

        validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
        self._set_model(solution, problem.cohort.classes, problem.names)
        return self

    def _set_model(self, solution: Solution, classes: Any, names: np.ndarray) -> None:
        if _has_classes(self):
            self.classes_ = classes
            self.coef_, self.intercept_ = solution.coef, solution.intercept
        else:
            self.coef_ = solution.coef[0]
            self.intercept_ = float(solution.intercept[0])
        self.support_ = np.flatnonzero((solution.coef != 0).any(axis=0))
        self.clients_ = sorted_names(names)[0]
        self.objective_ = float(solution.objective)
        rounds = solution.history["round"]
        self.n_rounds_ = int(rounds[-1]) if len(rounds) else 0
        self.history_ = solution.history
        for name, value in solution.attributes.items():
            setattr(self, name, value)

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        if self.n_nonzero_coefs is not None:
            check_scalar(self.n_nonzero_coefs, "n_nonzero_coefs", Integral, min_val=0)
        check_real(self.l2, "l2", min_val=0)
        check_real(self.tol, "tol", min_val=0)
        check_scalar(self.max_rounds, "max_rounds", Integral, min_val=1)
        if isinstance(self.weights, str):
            check_choice("weights", self.weights, ("samples", "uniform"))
        check_engine(self.engine)
        self._check_method()

    def _problem(self, X, y, clients, sample_weight) -> Problem:
        """Validate rows and lay them out by client."""
        cohort, names = self._cohort(X, y, clients, sample_weight, group_by_client)
        d, n_outputs = cohort.X.shape[1], 1
        if cohort.classes is not None:
            check_classes(cohort.classes, self.loss)
            n_outputs = len(cohort.classes) if self.loss == "softmax" else 1
        limit = np.iinfo(np.int32).max
        if n_outputs * d > limit:
            raise ValueError(
                f"X has {d} columns and y {n_outputs} classes, expected a product of "
                f"at most {limit}: coefficients are indexed by 32 bits"
            )
        n_nonzero = self.n_nonzero_coefs
        if n_nonzero is None:
            n_nonzero = max(d // 10, 1) * n_outputs
        task = self._task(
            min(int(n_nonzero), n_outputs * d),
            self._client_weights(names),
            n_outputs=n_outputs,
            n_columns=d,
            most_rows=int(np.diff(cohort.offsets).max()),
            columns=np.asarray(X.columns) if hasattr(X, "columns") else None,
        )
        return Problem(task, cohort, names)

    def _task(self, n_nonzero: int, weights, **seen: Any) -> Task:
        l2, fit_intercept = float(self.l2), bool(self.fit_intercept)
        return Task(self.loss, n_nonzero, l2, weights, fit_intercept, **seen)

    def _cohort(self, X, y, clients, sample_weight, group) -> tuple[Cohort, np.ndarray]:
        """Validate rows; give them in the order of `group`, and the clients' names."""
        is_regressor = not _has_classes(self)
        rows, y = check_X_y(X, y, estimator=self, y_numeric=is_regressor, **ROWS)
        if not is_regressor:
            check_classification_targets(y)
        ids = client_ids(clients, rows.shape[0])
        weight = check_sample_weight(sample_weight, rows.shape[0])
        rows = kernel_rows(rows)
        if weight is not None and (weight == 0).any():
            kept = np.flatnonzero(weight)
            rows, y, ids, weight = rows[kept], y[kept], ids[kept], weight[kept]
            if (weight == 1).all():
                weight = None
        classes = None
        if is_regressor:
            y = np.ascontiguousarray(y, np.float64)
        else:
            classes, y = np.unique(y, return_inverse=True)
            y = y.astype(np.int32)
        groups = group(ids)
        return cohort_of(rows, y, weight, groups, classes), groups.names

    def _client_weights(self, names: np.ndarray) -> str | tuple[float, ...]:
        """Bring an array of weights from the order of clients_ into that of names."""
        if isinstance(self.weights, str):
            return self.weights
        weights = np.asarray(self.weights)
        if weights.shape != (len(names),):
            raise ValueError(
                f"weights has shape {weights.shape}, expected ({len(names)},): one "
                f"number a client, in the order of the sorted identifiers"
            )
        for weight in weights.tolist():
            check_scalar(weight, "weights", Real, min_val=0)
        if not (np.isfinite(weights).all() and weights.any()):
            raise ValueError(
                f"weights is {weights}, expected finite numbers that are not all 0"
            )
        _, order = sorted_names(names)
        placed = weights.astype(float)
        if order is not None:
            placed[order] = weights
        return tuple(placed.tolist())

    def _run(
        self,
        algorithm: Algorithm,
        problem: Problem,
        on_round: Callable[[int, dict[str, float]], None],
    ) -> Outcome:
        """Carry a method over the engine; `on_round` prints when `verbose` is set."""
        engine = LocalEngine() if self.engine is None else self.engine
        try:
            return run(
                algorithm,
                engine,
                problem.cohort,
                seed=seed_of(self.random_state),
                n_jobs=self.n_jobs,
                any_seed=self.random_state is None,
                on_round=on_round if self.verbose else None,
            )
        except MessageError as error:
            raise ValueError(
                f"the fit overflowed ({error}): scale the columns of X"
            ) from error

    def _scores(self, X):
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ROWS)
        check_places(X)
        return linear_scores(X, np.atleast_2d(self.coef_), self.intercept_)

    @available_if(_has_classes)
    def decision_function(self, X):
        """Score rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)

        Returns
        -------
        scores : ndarray of shape (n_rows,) or (n_rows, n_classes)
            For two classes the logarithm of the odds of ``classes_[1]``.
        """
        scores = self._scores(X)
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores[:, 0] if scores.shape[1] == 1 else scores

    @available_if(_has_classes)
    def predict_proba(self, X):
        """Give the probability of each class.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
        """
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return np.column_stack([expit(-scores), expit(scores)])
        return softmax(scores, axis=1)

    def predict(self, X):
        """Predict numbers for the squared loss, labels else.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        if not _has_classes(self):
            return self._scores(X)[:, 0]
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def score(self, X, y, sample_weight=None):
        """Return R^2 for the squared loss, the accuracy else.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        score : float
        """
        measure = accuracy_score if _has_classes(self) else r2_score
        return measure(y, self.predict(X), sample_weight=sample_weight)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        if _has_classes(self):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.loss != "logistic")
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags
