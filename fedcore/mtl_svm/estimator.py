"""FedMTLSVC and FedMTLSVR: linear SVMs with a shared and a personal part."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.svm import LinearSVC, LinearSVR
from sklearn.utils import check_X_y
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from .._clients import find_clients
from .._estimators import check_choice
from .._rows import ROWS, check_labels, check_real
from .base import FedMTLSVM


class FedMTLSVC(ClassifierMixin, FedMTLSVM):
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
        - "auto": with an engine "envelope", or "line_search" if it samples clients or
          as soon as a reply is missing.
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
        "line_search"; for "sequential" 1 if less than a quarter of X is not zero or
        half of its columns are personal, else 2, or 5 where clients have more rows than
        columns. "envelope" decides by itself.
    personal_features : {"all", "intercept"} or array-like, default="all"
        Where a client may differ: columns whose weights have a personal part, and so
        has the intercept. Names, if X is a data frame, indices, or a boolean mask;
        "intercept" for the intercept alone. Everywhere else ``v_k = 0``. They count
        in X as it is passed, `client_column` included, which cannot be one of them.
        Unless all columns are personal, "envelope" is refused and "auto" does without;
        many rounds are then needed where the pooled model (``C2=inf``) needs them.
    client_column : str or int, default=None
        Column of X that holds the client identifiers, of any type: a name, if X is a
        data frame, or an index. It takes the place of `clients` in all methods, so
        that scikit-learn's scorers and meta-estimators, which pass X alone, work.
        `n_features_in_` and `feature_names_in_` count it, `coef_` does not.
    handle_unknown : {"error", "shared"}, default="error"
        What to do with rows of a client that was not there in `fit`: raise, or use
        the shared model.
    early_stopping : bool, default=False
        Hold some rows of each client out, score them after each round, and stop when
        the score no longer grows. The model is the one that scored best.
    validation_fraction : float, default=0.1
        Share of each client's rows to hold out, of all its labels alike. Clients with
        too few rows give none; no label of a client loses its last row.
    n_iter_no_change : int, default=5
        Rounds without a better score before early stopping stops.
    warm_start : bool, default=False
        Start `fit` from the multipliers of the fit before, scaled by the new `C1` over
        the old, if it had as many rows of the same clients in the same order, and the
        same classes; else anew. `mtl_svm_path` does so along values of `C2`.
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
    class_weight_ : ndarray of shape (n_classes,)
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be; then those that
        `fit_client` added.
    coef_ : ndarray of shape (1, n_features) or (n_classes, n_features)
        The shared part w.
    intercept_ : ndarray of shape (1,) or (n_classes,)
    client_coef_ : ndarray of shape (n_clients, 1 or n_classes, n_features)
        The personal parts v_k: a client's model is ``coef_ + client_coef_[k]``. If X
        was sparse, a CSR array of shape (n_clients * (1 or n_classes), n_features).
        With more than two classes, zero for a class that a client has no row of.
    client_intercept_ : ndarray of shape (n_clients, 1 or n_classes)
    dual_coef_ : ndarray of shape (1 or n_classes, n_rows)
        Signed multipliers of the rows; with `warm_start` alone.
    dual_gap_ : float
        Relative duality gap of the returned model, over all rows that were not held
        out; NaN if early stopping chose a model that was not measured, and so is
        `objective_`.
    dual_gap_kind_ : {"measured", "bound"}
        "bound" if replies may be missing and the fit stopped on what is known without
        the silent clients: the gap is at most `dual_gap_`, and the primal objective at
        most `objective_`. A silent client's model is then the one that it made last.
    objective_ : float
        The primal objective, added over the one-vs-rest problems.
    n_rounds_ : int
    starved_ : ndarray
        Identifiers of clients whose replies counted in less than a twentieth of at
        least ten exchanges with a deadline; see `Timing`.
    trace_ : Trace
        The messages of the fit, with ``Timing(..., trace=True)`` only. Its `client`
        are places in `clients_`.
    history_ : dict of ndarray
        One entry a round: round, n_exchanges, time (seconds), bytes_down, bytes_up,
        n_active, n_late, n_dropped, passes, objective and gap (NaN where not measured).
        With an engine that may lose replies also gap_bound, above the gap of the model
        that a fit which stops there by its bound returns, and with `Timing`
        virtual_time (seconds, at the end); with early stopping validation_score,
        accuracy or R^2 on held-out rows, and validation_loss, their mean loss.
        `pandas.DataFrame` takes it as it is.
    best_validation_score_ : float
        With `early_stopping` alone.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

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
    _score_of_rows = accuracy_score, 1
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
        personal_features="all",
        client_column=None,
        handle_unknown="error",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        warm_start=False,
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
        self.personal_features = personal_features
        self.client_column = client_column
        self.handle_unknown = handle_unknown
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
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
        rows, y, clients, classes = self._checked(X, y, clients)
        return self._fit(X, rows, y, clients, sample_weight, classes)

    def _checked(self, X, y, clients):
        """Check what `fit` gets; give rows, codes, identifiers and classes."""
        self._check_parameters()
        if self.class_weight is not None and not isinstance(self.class_weight, dict):
            check_choice("class_weight", self.class_weight, ("balanced",))
        rows, clients = self._split(X, clients)
        rows, y = self._check_rows(rows, y)
        classes, code = np.unique(y, return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y has 1 class ({classes.tolist()[0]!r}), expected at least 2 classes"
            )
        if isinstance(self.class_weight, dict):
            _check_class_weight(self.class_weight, classes)
        return rows, code.astype(np.int32), clients, classes

    def _check_rows(self, X, y):
        check_labels(y)
        X, y = check_X_y(X, y, estimator=self, **ROWS)
        check_classification_targets(y)
        return X, y

    def _codes(self, y):
        """Places of labels in classes_."""
        codes = find_clients(y, self.classes_)
        strange = np.flatnonzero(codes < 0)
        if len(strange):
            raise ValueError(
                f"y has {y[strange].tolist()[0]!r} in row {strange[0]}, which is no "
                f"label of fit; expected one of {self.classes_.tolist()}"
            )
        return codes.astype(np.int32)

    def for_client(self, client=None):
        """Give one client's whole model as a plain estimator of scikit-learn.

        Parameters
        ----------
        client : hashable, default=None
            Identifier; may be left out when the model was fitted on one client. With
            ``handle_unknown="shared"`` an unknown one gets the shared model.

        Returns
        -------
        model : sklearn.svm.LinearSVC
            Fitted; needs no fedcore to be loaded. X comes without `client_column`. The
            answers are the same: to the last bit for arrays in C order and CSR; for
            data frames scikit-learn adds up in another order, so the last digit may
            differ.

        Raises
        ------
        ValueError
            If the client is unknown.
        """
        check_is_fitted(self)
        plain = LinearSVC(
            **self._plain_parameters(),
            class_weight=self.class_weight,
        )
        plain.classes_ = self.classes_
        return self._fill(plain, client)

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
        return self._predicted(self._scores(X, clients))

    def _predicted(self, scores):
        if scores.shape[1] == 1:
            return self.classes_[(scores[:, 0] > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def score(self, X, y, clients=None, sample_weight=None):
        """Return the accuracy over the given rows.

        Scorers made by scikit-learn never pass `clients` on; this method does.
        """
        return accuracy_score(y, self.predict(X, clients), sample_weight=sample_weight)


class FedMTLSVR(RegressorMixin, FedMTLSVM):
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
personal_features, client_column, handle_unknown, early_stopping, \
validation_fraction, n_iter_no_change, warm_start, engine, n_jobs, random_state, verbose
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
    dual_gap_, dual_gap_kind_, objective_, n_rounds_, starved_, trace_, history_, \
n_features_in_, feature_names_in_
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
    _score_of_rows = r2_score, 2

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
        personal_features="all",
        client_column=None,
        handle_unknown="error",
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=5,
        warm_start=False,
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
        self.personal_features = personal_features
        self.client_column = client_column
        self.handle_unknown = handle_unknown
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
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
        rows, y, clients, _ = self._checked(X, y, clients)
        return self._fit(X, rows, y, clients, sample_weight)

    def _checked(self, X, y, clients):
        """Check what `fit` gets; give rows, targets, identifiers and no classes."""
        self._check_parameters()
        check_real(self.epsilon, "epsilon", min_val=0)
        rows, clients = self._split(X, clients)
        return *self._check_rows(rows, y), clients, None

    def _check_rows(self, X, y):
        X, y = check_X_y(X, y, estimator=self, y_numeric=True, **ROWS)
        return X, np.ascontiguousarray(y, np.float64)

    def for_client(self, client=None):
        """Give one client's whole model as a plain estimator of scikit-learn.

        Parameters and errors as `FedMTLSVC.for_client`.

        Returns
        -------
        model : sklearn.svm.LinearSVR
        """
        check_is_fitted(self)
        plain = LinearSVR(**self._plain_parameters(), epsilon=self.epsilon)
        return self._fill(plain, client)

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
        return self._predicted(self._scores(X, clients))

    def _predicted(self, scores):
        return scores[:, 0]

    def score(self, X, y, clients=None, sample_weight=None):
        """Return R^2 over the given rows.

        Scorers made by scikit-learn never pass `clients` on; this method does.
        """
        return r2_score(y, self.predict(X, clients), sample_weight=sample_weight)


def _check_class_weight(class_weight: dict, classes: np.ndarray) -> None:
    known = set(classes.tolist())
    for label, weight in class_weight.items():
        if label not in known:
            raise ValueError(
                f"class_weight has {label!r}, which is no label of y; "
                f"expected one of {classes.tolist()}"
            )
        check_real(weight, f"class_weight[{label!r}]", min_val=0)
