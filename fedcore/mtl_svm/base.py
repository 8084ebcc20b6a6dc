"""What FedMTLSVC and FedMTLSVR have in common: checks, the run, fitted attributes."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state, check_scalar
from sklearn.utils.validation import validate_data

from .._client_column import check_client_column
from .._client_models import ClientModels
from .._clients import client_ids, cohort_of, group_by_client
from .._rows import check_real, check_sample_weight, kernel_rows
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .envelope import SMOOTHING_FROM
from .protocol import MTLSVM

MOST_SOLVED_COLUMNS = 200  # up to which csrc/fc_svm has an interior point for a client
AGGREGATIONS = ("auto", "sequential", "envelope", "line_search", "safe", "sum")


class FedMTLSVM(ClientModels, BaseEstimator):
    def _check_parameters(self) -> None:
        positive = {"min_val": 0, "include_boundaries": "neither"}
        check_real(self.C1, "C1", **positive)
        check_real(self.C2, "C2", infinite=True, **positive)
        check_real(self.tol, "tol", min_val=0)
        check_real(self.intercept_scaling, "intercept_scaling", **positive)
        check_scalar(self.max_rounds, "max_rounds", Integral, min_val=1)
        check_choice("loss", self.loss, self._losses)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        if self.engine is not None and (
            isinstance(self.engine, type) or not hasattr(self.engine, "open")
        ):
            raise ValueError(
                f"engine == {self.engine!r}, expected None or an engine such as "
                f"LocalEngine()"
            )
        check_client_column(self.client_column)
        check_choice("handle_unknown", self.handle_unknown, ("error", "shared"))
        if not isinstance(self.local_epochs, str) or self.local_epochs != "auto":
            check_scalar(
                self.local_epochs, "local_epochs", Integral, min_val=1, max_val=65535
            )

    def _algorithm(self, engine: LocalEngine, n_rows, n_columns, n_clients) -> MTLSVM:
        aggregation = self.aggregation
        if aggregation == "auto":
            # Clients with more rows than columns are solved whole, and then few rounds
            # are also the shortest way; with fewer, passes in turns are.
            solved_whole = n_columns <= min(n_rows / n_clients, MOST_SOLVED_COLUMNS)
            smooth = self.C2 <= SMOOTHING_FROM or self.loss.startswith("squared")
            if self.engine is None and not (solved_whole and smooth):
                aggregation = "sequential"
            else:
                aggregation = "envelope" if engine.asks_everybody else "line_search"
        class_weight = getattr(self, "class_weight", None)
        if isinstance(class_weight, dict):
            class_weight = tuple(class_weight.items())
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
        )

    def _fit(self, X, rows, y, clients, sample_weight, classes=None):
        """Fit validated rows; nothing of self changes before the end."""
        n, d = rows.shape
        ids = client_ids(clients, n, self._ids_name())
        weight = check_sample_weight(sample_weight, n)
        groups = group_by_client(ids)
        cohort = cohort_of(kernel_rows(rows), y, weight, groups, classes)
        engine = LocalEngine() if self.engine is None else self.engine
        algorithm = self._algorithm(engine, n, d, cohort.n_clients)
        try:
            outcome = run(
                algorithm,
                engine,
                cohort,
                seed=_seed(self.random_state),
                n_jobs=self.n_jobs,
                on_round=_print_round if self.verbose else None,
            )
        except MessageError as error:
            raise ValueError(
                f"the fit overflowed ({error}): scale the columns of X, or bring C1, "
                f"C2 and intercept_scaling nearer to 1"
            ) from error
        w, gap, primal = algorithm.result(outcome.state)
        self._warn_unless_converged(algorithm, outcome, float(gap.max()))

        validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
        if classes is not None:
            self.classes_ = classes
        self.clients_, by_name = _sorted_names(groups.names)
        self._set_models(w, outcome.personal["v"], by_name, algorithm.bias)
        self.n_rounds_ = int(outcome.history["round"][-1])
        self.history_ = outcome.history
        self.dual_gap_ = float(gap.max())
        self.objective_ = float(primal.sum())
        return self

    def _set_models(self, w, v, by_name, bias):
        """Split off the intercepts and give everything its public shape."""
        C, K = len(w), len(self.clients_)
        d = w.shape[1] - bool(bias)
        self.coef_ = w[:, :d].copy()
        self.intercept_ = w[:, d] * bias if bias else np.zeros(C)
        if sparse.issparse(v):
            if by_name is not None:
                rows = (by_name[:, None] * C + np.arange(C)).reshape(-1)
                v = v[rows]
            last = np.zeros((K, C))
            if bias:
                v, last = _without_last(v, d)
            self.client_coef_ = v
            last = last.reshape(K, C)
        else:
            if by_name is not None:
                v = v[by_name]
            self.client_coef_ = v[:, :, :d].copy() if bias else v
            last = v[:, :, d].copy() if bias else np.zeros((K, C))
        self.client_intercept_ = last * bias if bias else last

    def _warn_unless_converged(self, algorithm, outcome, gap):
        name = type(self).__name__
        if outcome.state.get("diverged"):
            warnings.warn(
                f'{name} with aggregation="sum" diverged: the dual objective fell '
                f"below its start in round {int(outcome.history['round'][-1])}, at a "
                f"relative duality gap of {gap:.1e}. The published rule has no "
                f'guarantee; use aggregation="line_search" or "auto".',
                ConvergenceWarning,
                stacklevel=4,
            )
        elif not gap <= algorithm.tol:
            warnings.warn(
                f"{name} stopped after {int(outcome.history['round'][-1])} rounds "
                f"(max_rounds={self.max_rounds}) at a relative duality gap of "
                f"{gap:.1e}, above tol={self.tol:.1e}. Scale the columns of X, or "
                f"raise max_rounds.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name} == {value!r}, expected one of {choices}")


def _seed(random_state: Any) -> int:
    return int(check_random_state(random_state).randint(2**31 - 1))


def _sorted_names(names: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Sort identifiers if they can be; give the order too, None if they were."""
    try:
        order = np.argsort(names, kind="stable")
    except TypeError:  # of kinds that do not compare
        return names, None
    if (order == np.arange(len(names))).all():
        return names, None
    return names[order], order


def _without_last(v: sparse.csr_array, d: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Take the constant column, the last entry of each row, off a CSR array."""
    ends = v.indptr[1:] - 1
    rest = np.ones(v.nnz, bool)
    rest[ends] = False
    indptr = v.indptr - np.arange(len(v.indptr), dtype=v.indptr.dtype)
    parts = (v.data[rest], v.indices[rest], indptr)
    return sparse.csr_array(parts, shape=(v.shape[0], d)), v.data[ends]


def _print_round(round: int, figures: dict[str, float]) -> None:
    gap = figures.get("gap")
    text = "" if gap is None else f", relative duality gap {gap:.2e}"
    print(f"[fedcore] round {round}, {figures['passes']:.1f} passes{text}")
