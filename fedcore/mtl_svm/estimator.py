"""FedMTLSVC and FedMTLSVR: linear SVMs with a shared and a personal part."""

from __future__ import annotations

import warnings
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import check_scalar, check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._clients import client_ids, cohort_of, find_clients, group_by_client
from .._estimators import check_choice, check_engine, seed_of, sorted_names
from .._rows import ROWS, check_places, check_real, check_sample_weight, kernel_rows
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .envelope import SMOOTHING_FROM
from .protocol import MTLSVM
from .scores import scores

MOST_SOLVED_COLUMNS = 200  # up to which csrc/fc_svm has an interior point for a client
AGGREGATIONS = ("auto", "sequential", "envelope", "line_search", "safe", "sum")


class _FedMTLSVM(BaseEstimator):
    # cross_validate, GridSearchCV and Pipeline pass these on when routing is enabled.
    __metadata_request__fit = {"clients": True, "sample_weight": True}
    __metadata_request__predict = {"clients": True}
    __metadata_request__score = {"clients": True}

    def _check_parameters(self) -> None:
        positive = {"min_val": 0, "include_boundaries": "neither"}
        check_real(self.C1, "C1", **positive)
        check_real(self.C2, "C2", infinite=True, **positive)
        check_real(self.tol, "tol", min_val=0)
        check_real(self.intercept_scaling, "intercept_scaling", **positive)
        check_scalar(self.max_rounds, "max_rounds", Integral, min_val=1)
        check_choice("loss", self.loss, self._losses)
        check_choice("aggregation", self.aggregation, AGGREGATIONS)
        check_engine(self.engine)
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
        ids = client_ids(clients, n)
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
                seed=seed_of(self.random_state),
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
        self.clients_, by_name = sorted_names(groups.names)
        self._set_models(w, outcome.personal["v"], by_name, algorithm.bias)
        self.n_rounds_ = int(outcome.history["round"][-1])
        self.history_ = outcome.history
        self.dual_gap_ = float(gap.max())
        self.objective_ = float(primal.sum())
        return self

    def _set_models(self, w, v, by_name, bias):
        """Split off the intercepts and give everything its public shape."""
        C, K = len(w), len(self.clients_)
        d = self.n_features_in_
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

    def _scores(self, X, clients):
        """Score (n, C) of each row by the model of its client."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **ROWS)
        check_places(X)
        return scores(self, X, self._owners(clients, X.shape[0]))

    def _owners(self, clients, n):
        """Place of each row's client in clients_, -1 for the shared model."""
        if clients is None:
            if len(self.clients_) > 1:
                raise ValueError(
                    f"the model was fitted on {len(self.clients_)} clients: pass "
                    f"clients=, one identifier a row"
                )
            return np.zeros(n, np.int64)
        ids = client_ids(clients, n)
        owners = find_clients(ids, self.clients_)
        unknown = np.flatnonzero(owners < 0)
        if len(unknown) and self.handle_unknown == "error":
            raise ValueError(
                f"clients has {ids[unknown].tolist()[0]!r} in row {unknown[0]}, which "
                f"was not there in fit ({len(unknown)} such rows); expected one of "
                f"clients_, "
                f'or handle_unknown="shared"'
            )
        return owners

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _check_class_weight(class_weight: dict, classes: np.ndarray) -> None:
    known = set(classes.tolist())
    for label, weight in class_weight.items():
        if label not in known:
            raise ValueError(
                f"class_weight has {label!r}, which is no label of y; "
                f"expected one of {classes.tolist()}"
            )
        check_real(weight, f"class_weight[{label!r}]", min_val=0)


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


class FedMTLSVC(ClassifierMixin, _FedMTLSVM):
    """Linear SVM classifier with one shared and one personal weight vector a client.

    A row `x` of client `k` has the score ``(w + v_k) . x``. Fitting minimises

    ``1/2 |w|^2 + C2/2 sum_k |v_k|^2 + C1 sum_ik c_ik loss(y_ik, (w + v_k) . x_ik)``

    by dual coordinate ascent at the clients; rows never leave them, only sums over
    rows do [1]_.

    Parameters
    ----------
    C1 : float, default=1.0
        Weight of the losses: the `C` of `sklearn.svm.LinearSVC`.
    C2 : float, default=1.0
        Weight of the personal parts. A large one ties the clients together; with
        ``inf`` all share one model. Towards 0 each client stands alone, with
        ``C = C1 / C2``.
    loss : {"hinge", "squared_hinge"}, default="hinge"
    aggregation : {"auto", "sequential", "envelope", "line_search", "safe", "sum"}, \
default="auto"
        How the clients' work is brought together. The optimum is the same for all.

        - "sequential": clients take turns; fewest passes over the rows, many messages.
        - "envelope": clients solve their own problem, the coordinator minimises the
          sum of their Moreau envelopes; fewest rounds. Needs every client.
        - "line_search": all clients at once, with the best common step.
        - "safe": all at once with steps short enough to be added [2]_.
        - "sum": the published rule, which may diverge with many clients; the fit
          then warns.
        - "auto": with an engine "envelope", or "line_search" if it samples clients.
          Without one "envelope" where clients have more rows than columns and at most
          200 of these, else "sequential".
    fit_intercept : bool, default=True
        Append a constant column. Its weights, shared and personal, are penalised
        like all others.
    intercept_scaling : float, default=1.0
        Value of the constant column; a large one lessens the penalty on it.
    class_weight : dict or "balanced", default=None
        Weights of the classes, as in `sklearn.svm.LinearSVC`: with more than two
        classes they apply to a class's own rows in its one-vs-rest problem.
        "balanced" uses counts over the whole federation.
    tol : float, default=1e-3
        Relative duality gap, ``(primal - dual) / primal``, at which fitting stops; of
        the worst class when there are several.
    max_rounds : int, default=1000
        Rounds at most. In a round of "sequential" each client takes one turn.
    local_epochs : int or "auto", default="auto"
        Passes of a client over its rows in one visit: 1 for "sum", 5 for "safe" and
        "line_search"; for "sequential" 1 if less than a quarter of X is not zero, else
        2, or 5 where clients have more rows than columns. "envelope" decides by itself.
    handle_unknown : {"error", "shared"}, default="error"
        What to do with rows of a client that was not there in `fit`: raise, or use
        the shared model.
    engine : LocalEngine, default=None
        The machine that carries the federation; None simulates it in this process.
    n_jobs : int, default=None
        Threads; None is 1, -1 all processors. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Orders the rows and clients.
    verbose : int, default=0
        Print a line a round.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The shared part w.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    client_coef_ : ndarray of shape (n_clients, 1 or n_classes, n_features)
        The personal parts v_k: a client's model is ``coef_ + client_coef_[k]``. If X
        was sparse, a CSR array of shape (n_clients * (1 or n_classes), n_features).
        With more than two classes, zero for a class that a client has no row of.
    client_intercept_ : ndarray of shape (n_clients, 1 or n_classes)
    dual_gap_ : float
        Relative duality gap of the returned model, measured over all rows.
    objective_ : float
        The primal objective, added over the one-vs-rest problems.
    n_rounds_ : int
    history_ : dict of ndarray
        One entry a round: round, n_exchanges, time (seconds), bytes_down, bytes_up,
        n_active, n_late, passes, objective and gap (NaN where not measured).
        `pandas.DataFrame` takes it as it is.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features_in_,)

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached; the text names the gap that was.

    References
    ----------
    .. [1] A. Ponomarenko-Timofeev, O. Galinina, R. Balakrishnan, N. Himayat,
       S. Andreev, Y. Koucheryavy, "Multi-Task Model Personalization for Federated
       Supervised SVM in Heterogeneous Networks", eq. (1) and algorithm 1.
    .. [2] C. Ma et al., "Adding vs. Averaging in Distributed Primal-Dual
       Optimization", 2015.

    Examples
    --------
    >>> from fedcore import FedMTLSVC
    >>> from fedcore.datasets import make_mtl_classification
    >>> X, y, clients = make_mtl_classification(n_clients=5, random_state=0)
    >>> model = FedMTLSVC(C2=10.0, random_state=0).fit(X, y, clients)
    >>> model.client_coef_.shape
    (5, 1, 50)
    >>> model.predict(X[:3], clients[:3]).shape
    (3,)
    """

    _losses = ("hinge", "squared_hinge")
    __metadata_request__decision_function = {"clients": True}

    def __init__(
        self,
        C1=1.0,
        C2=1.0,
        *,
        loss="hinge",
        aggregation="auto",
        fit_intercept=True,
        intercept_scaling=1.0,
        class_weight=None,
        tol=1e-3,
        max_rounds=1000,
        local_epochs="auto",
        handle_unknown="error",
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.C1 = C1
        self.C2 = C2
        self.loss = loss
        self.aggregation = aggregation
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.class_weight = class_weight
        self.tol = tol
        self.max_rounds = max_rounds
        self.local_epochs = local_epochs
        self.handle_unknown = handle_unknown
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, clients=None, sample_weight=None):
        """Fit the shared and the personal models.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Labels of any kind, at least two distinct ones over all clients.
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client that owns each row; None: one client.
        sample_weight : array-like of shape (n_rows,), default=None
            A row of weight 0 takes no part.

        Returns
        -------
        self : FedMTLSVC

        Raises
        ------
        ValueError
            If a parameter or an argument is not as described; the estimator stays
            as it was.
        """
        self._check_parameters()
        if self.class_weight is not None and not isinstance(self.class_weight, dict):
            check_choice("class_weight", self.class_weight, ("balanced",))
        rows, y = check_X_y(X, y, estimator=self, **ROWS)
        check_classification_targets(y)
        classes, code = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has 1 class ({classes.tolist()[0]!r}), expected at least 2 classes"
            )
        if isinstance(self.class_weight, dict):
            _check_class_weight(self.class_weight, classes)
        code = code.astype(np.int32)
        return self._fit(X, rows, code, clients, sample_weight, classes)

    def decision_function(self, X, clients=None):
        """Score rows by their clients' models.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client of each row; may be left out when the model was
            fitted on one client.

        Returns
        -------
        scores : ndarray of shape (n_rows,) or (n_rows, n_classes)
            For two classes, positive for ``classes_[1]``.

        Raises
        ------
        ValueError
            If `clients` is missing though several were fitted, or names an unknown
            one.
        """
        scores = self._scores(X, clients)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X, clients=None):
        """Predict labels by the clients' models; arguments as `decision_function`.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        scores = self.decision_function(X, clients)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def score(self, X, y, clients=None, sample_weight=None):
        """Return the accuracy over the given rows.

        Scorers made by scikit-learn never pass `clients` on; this method does.
        """
        return accuracy_score(y, self.predict(X, clients), sample_weight=sample_weight)


class FedMTLSVR(RegressorMixin, _FedMTLSVM):
    """Linear SVM regressor with one shared and one personal weight vector a client.

    A row `x` of client `k` is predicted as ``(w + v_k) . x``; the objective is that of
    `FedMTLSVC` with an epsilon-insensitive loss.

    Parameters
    ----------
    C1 : float, default=1.0
        Weight of the losses: the `C` of `sklearn.svm.LinearSVR`.
    C2 : float, default=1.0
        Weight of the personal parts; see `FedMTLSVC`.
    epsilon : float, default=0.1
        Errors up to this size, in units of `y`, cost nothing.
    loss : {"epsilon_insensitive", "squared_epsilon_insensitive"}, \
default="epsilon_insensitive"
    aggregation, fit_intercept, intercept_scaling, tol, max_rounds, local_epochs, \
handle_unknown, engine, n_jobs, random_state, verbose
        See `FedMTLSVC`.

    Attributes
    ----------
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    coef_ : ndarray of shape (n_features,)
        The shared part w.
    intercept_ : float
    client_coef_ : ndarray of shape (n_clients, n_features), or CSR if X was sparse
        The personal parts v_k: a client's model is ``coef_ + client_coef_[k]``.
    client_intercept_ : ndarray of shape (n_clients,)
    dual_gap_, objective_, n_rounds_, history_, n_features_in_, feature_names_in_
        See `FedMTLSVC`.

    Warns
    -----
    ConvergenceWarning
        If `tol` was not reached; the text names the gap that was.

    Examples
    --------
    >>> from fedcore import FedMTLSVR
    >>> from fedcore.datasets import make_mtl_regression
    >>> X, y, clients = make_mtl_regression(n_clients=5, random_state=0)
    >>> model = FedMTLSVR(C2=10.0, random_state=0).fit(X, y, clients)
    >>> model.client_coef_.shape
    (5, 50)
    """

    _losses = ("epsilon_insensitive", "squared_epsilon_insensitive")

    def __init__(
        self,
        C1=1.0,
        C2=1.0,
        *,
        epsilon=0.1,
        loss="epsilon_insensitive",
        aggregation="auto",
        fit_intercept=True,
        intercept_scaling=1.0,
        tol=1e-3,
        max_rounds=1000,
        local_epochs="auto",
        handle_unknown="error",
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.C1 = C1
        self.C2 = C2
        self.epsilon = epsilon
        self.loss = loss
        self.aggregation = aggregation
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.tol = tol
        self.max_rounds = max_rounds
        self.local_epochs = local_epochs
        self.handle_unknown = handle_unknown
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, clients=None, sample_weight=None):
        """Fit the shared and the personal models; arguments as `FedMTLSVC.fit`.

        Returns
        -------
        self : FedMTLSVR

        Raises
        ------
        ValueError
            If a parameter or an argument is not as described; the estimator stays
            as it was.
        """
        self._check_parameters()
        check_real(self.epsilon, "epsilon", min_val=0)
        rows, y = check_X_y(X, y, estimator=self, y_numeric=True, **ROWS)
        y = np.ascontiguousarray(y, np.float64)
        return self._fit(X, rows, y, clients, sample_weight)

    def _set_models(self, w, v, by_name, bias):
        super()._set_models(w, v, by_name, bias)
        self.coef_, self.intercept_ = self.coef_[0], float(self.intercept_[0])
        if not sparse.issparse(self.client_coef_):
            self.client_coef_ = self.client_coef_[:, 0]
        self.client_intercept_ = self.client_intercept_[:, 0]

    def predict(self, X, clients=None):
        """Predict rows by their clients' models.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client of each row; may be left out when the model was
            fitted on one client.

        Returns
        -------
        y : ndarray of shape (n_rows,)

        Raises
        ------
        ValueError
            If `clients` is missing though several were fitted, or names an unknown
            one.
        """
        return self._scores(X, clients)[:, 0]

    def score(self, X, y, clients=None, sample_weight=None):
        """Return R^2 over the given rows.

        Scorers made by scikit-learn never pass `clients` on; this method does.
        """
        return r2_score(y, self.predict(X, clients), sample_weight=sample_weight)
