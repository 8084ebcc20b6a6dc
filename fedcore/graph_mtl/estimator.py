"""FedGraphMTL: encoders shared along a graph that follows the clients' tasks."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, RegressorTags, check_scalar, check_X_y
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._client_column import check_client_column
from .._client_models import ClientScores
from .._clients import (
    Groups,
    client_ids,
    cohort_of,
    find_clients,
    group_by_client,
    with_client,
)
from .._estimators import (
    check_choice,
    check_classes,
    check_engine,
    seed_of,
    sorted_names,
)
from .._rows import (
    ROWS,
    check_labels,
    check_n_jobs,
    check_real,
    check_sample_weight,
    kernel_rows,
)
from ..federation.contract import Cohort
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .encoders import ENCODERS, encode
from .grouping import by_first_member, mixing_matrix
from .participant import head_objective, rows_of
from .protocol import GraphMTL
from .similarity import MOST_COLUMNS

LOSSES = ("squared", "logistic", "softmax")
TOPOLOGIES = ("dynamic", "full", "none")


def _has_classes(estimator: FedGraphMTL) -> bool:
    return estimator.loss != "squared"


class FedGraphMTL(ClientScores, BaseEstimator):
    """Multi-task learning of peers that share encoders with those like them.

    Client `i` scores a row by ``act(x W_g + b_g) A_i + c_i``: an encoder that it
    shares with its group `g`, and a head of its own. Fitting minimises

    ``(1/N) sum_i L_i(W_g(i), b_g(i), A_i, c_i) + l2/2 (|A_i|^2 + |W_g(i)|^2)``

    with ``L_i`` the mean loss over the rows of client `i`. Peers send gradients of
    their encoders, mix them within their groups, and find the groups by how much they
    help each other [1]_. Heads and rows never leave their clients.

    Opposed tasks help each other, for the heads absorb the sign.

    A regressor for the squared loss, a classifier for the others.

    Parameters
    ----------
    loss : {"squared", "logistic", "softmax"}, default="squared"
        ``1/2 (y - z)^2``; the log loss of two classes; the cross entropy of any number.
    encoder : {"linear", "relu", "tanh"}, default="linear"
    n_components : int, default=10
        Columns of the encoders.
    head_steps : int or "solve", default="solve"
        Gradient steps of each head in a round; "solve": its minimum, in closed form
        for the squared loss, else by Newton's method.
    mixing_steps : int, default=1
        Gradient steps of the encoders in a round, each followed by mixing.
    regroup_every : int, default=10
        Rounds after which groups are looked at again.
    topology : {"dynamic", "full", "none"} or array-like of shape \
(n_clients, n_clients), default="dynamic"
        "dynamic": groups that are found. "full": all share one encoder. "none": each
        client learns alone; the baseline. An array is a fixed, doubly stochastic
        matrix of mixing weights, in the order of `clients_`.
    grouping : {"auto", "paper"}, default="auto"
        "paper": by the transference at the clients' own encoders in the rounds since
        the last regrouping, as printed; see `group_clients`.

        "auto": similarities at points that are common to all. For the squared loss
        with a linear encoder and at most 500 features these are the clients' local
        least squares, and clients are linked where those are surely not at right
        angles: each sends its model and half of its covariance, once. Else they are
        the cosines of the clients' gradients at random encoders, with heads solved.
    transference : {"gradient", "exact"}, default="gradient"
        "exact": measure each client's loss after a step of each other, which sends
        ``n_clients`` encoders to each. "gradient": the first-order approximation.
    background : float or "auto", default="auto"
        As for `group_clients`, of similarities at random encoders.
    n_probes : int, default=20
        Random encoders before the first grouping; each later one adds another.
    step_size : float or "auto", default="auto"
        Of the encoders. "auto": Barzilai and Borwein's for each group, shortened while
        its objective rises. With an array of mixing weights: longer while the mean
        objective falls.
    l2 : float, default=1e-2
        Weight of the squares of encoders and heads. Biases are free.
    tol : float, default=1e-4
        The fit stops when the objective has fallen by less than this share of itself in
        ten rounds.
    max_rounds : int, default=200
    client_column : str or int, default=None
        Name or index of the column of X that holds the clients' identifiers.
    handle_unknown : {"error", "shared"}, default="error"
        What to predict for a client that was not there in fit. "shared": by the mean
        of all clients' scores.
    engine : LocalEngine, default=None
        Where the federation runs.
    n_jobs : int, default=None
        Threads. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Draws the first encoder and those at which similarities are measured.
    verbose : int, default=0

    Attributes
    ----------
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be; the columns of a 2-d `y`.
    classes_ : ndarray of shape (n_classes,)
        Not for the squared loss.
    groups_ : ndarray of shape (n_clients,)
        Group of each client, numbered by first members.
    client_graph_ : ndarray of shape (n_clients, n_clients)
        The mixing weights W, doubly stochastic.
    eigenvalues_ : ndarray
        Of the last grouping; empty if there was none.
    encoder_coef_ : ndarray of shape (n_groups, n_features, n_components)
    encoder_intercept_ : ndarray of shape (n_groups, n_components)
    head_coef_ : ndarray of shape (n_clients, n_components, n_outputs)
    head_intercept_ : ndarray of shape (n_clients, n_outputs)
    objective_ : float
        The last objective, before the heads' last fit.
    n_rounds_ : int
    history_ : dict of ndarray
        One entry a round: objective, n_groups, bytes_up, bytes_down and more.
    n_features_in_, feature_names_in_
        As in scikit-learn.

    Warns
    -----
    ConvergenceWarning
        If `max_rounds` came before `tol`.

    References
    ----------
    .. [1] M. Mortaheb, S. Ulukus, "Personalized decentralized multi-task learning over
       dynamic communication graphs".

    Examples
    --------
    >>> from fedcore import FedGraphMTL
    >>> from fedcore.datasets import make_gaussian_tasks
    >>> X, y, clients = make_gaussian_tasks((3, 3), random_state=1)
    >>> model = FedGraphMTL(n_components=2, tol=0.01, random_state=0)
    >>> model.fit(X, y, clients).groups_
    array([0, 0, 0, 1, 1, 1])
    """

    def __init__(
        self,
        *,
        loss="squared",
        encoder="linear",
        n_components=10,
        head_steps="solve",
        mixing_steps=1,
        regroup_every=10,
        topology="dynamic",
        grouping="auto",
        transference="gradient",
        background="auto",
        n_probes=20,
        step_size="auto",
        l2=1e-2,
        tol=1e-4,
        max_rounds=200,
        client_column=None,
        handle_unknown="error",
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.loss = loss
        self.encoder = encoder
        self.n_components = n_components
        self.head_steps = head_steps
        self.mixing_steps = mixing_steps
        self.regroup_every = regroup_every
        self.topology = topology
        self.grouping = grouping
        self.transference = transference
        self.background = background
        self.n_probes = n_probes
        self.step_size = step_size
        self.l2 = l2
        self.tol = tol
        self.max_rounds = max_rounds
        self.client_column = client_column
        self.handle_unknown = handle_unknown
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, clients=None, sample_weight=None):
        """Fit encoders, heads and groups.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        y : array-like of shape (n_rows,) or (n_rows, n_clients)
            Numbers for the squared loss; else labels, exactly two distinct ones over
            all clients for "logistic". With two dimensions each column is a client of
            its own, over the same rows, and `clients` must be None.
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client that owns each row; None: one client.
        sample_weight : array-like of shape (n_rows,), default=None
            A row of weight 0 takes no part.

        Returns
        -------
        self : FedGraphMTL

        Raises
        ------
        ValueError, TypeError
            If a parameter or an argument is not as described; the estimator stays as
            it was.
        """
        self._check_parameters()
        columns = getattr(y, "columns", None)
        rows, clients = self._split(X, clients)
        rows, y, classes = self._check_rows(rows, y)
        n, d = rows.shape
        weight = check_sample_weight(sample_weight, n)
        if y.ndim == 2:
            if clients is not None:
                raise ValueError(
                    f"{self._ids_name()} was given and y has {y.shape[1]} columns, "
                    f"expected one of the two: a column is a client"
                )
            names = np.arange(y.shape[1]) if columns is None else np.asarray(columns)
            cohort, groups = _columns_cohort(rows, y, weight, classes, names)
        else:
            ids = client_ids(clients, n, self._ids_name())
            if weight is not None and (weight == 0).any():
                kept = np.flatnonzero(weight)
                rows, y, ids, weight = rows[kept], y[kept], ids[kept], weight[kept]
            groups = group_by_client(ids)
            cohort = cohort_of(kernel_rows(rows), y, weight, groups, classes)
        names, by_name = sorted_names(groups.names)
        algorithm = self._algorithm(d, by_name, len(names))
        engine = LocalEngine() if self.engine is None else self.engine
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
                f"the fit overflowed ({error}): scale the columns of X, or lower "
                f"step_size"
            ) from error
        state = outcome.state
        if not state["converged"]:
            warnings.warn(
                f"FedGraphMTL stopped after max_rounds={self.max_rounds} rounds at an "
                f"objective of {state['objective']:.6g}, which had still fallen by "
                f"more than tol={self.tol:.1e} of itself in the last rounds. Raise "
                f"max_rounds, or scale the columns of X.",
                ConvergenceWarning,
                stacklevel=2,
            )
        order = np.arange(len(names)) if by_name is None else by_name

        validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
        if classes is not None:
            self.classes_ = classes
        else:
            vars(self).pop("classes_", None)
        self.clients_ = names
        self._by_column = y.ndim == 2
        labels = state["labels"][order]
        self.groups_ = by_first_member(labels)
        first = [np.flatnonzero(self.groups_ == g)[0] for g in np.unique(self.groups_)]
        s = state["base"][labels[first]].reshape(len(first), d + 1, -1)
        self.encoder_coef_, self.encoder_intercept_ = s[:, :d], s[:, d]
        self.head_coef_ = outcome.personal["A"][order]
        self.head_intercept_ = outcome.personal["c"][order]
        self.client_graph_ = (
            mixing_matrix(self.groups_)
            if algorithm.mixing is None
            else np.array(self.topology, float)
        )
        self.eigenvalues_ = state.get("eigenvalues", np.zeros(0))
        self.objective_ = float(state["objective"])
        self.n_rounds_ = int(outcome.history["round"][-1])
        self.history_ = outcome.history
        return self

    def _check_parameters(self) -> None:
        check_choice("loss", self.loss, LOSSES)
        check_choice("encoder", self.encoder, ENCODERS)
        check_choice("grouping", self.grouping, ("auto", "paper"))
        check_choice("transference", self.transference, ("gradient", "exact"))
        check_choice("handle_unknown", self.handle_unknown, ("error", "shared"))
        if isinstance(self.topology, str):
            check_choice("topology", self.topology, TOPOLOGIES)
        if not (isinstance(self.head_steps, str) and self.head_steps == "solve"):
            check_scalar(self.head_steps, "head_steps", Integral, min_val=1)
        for name in (
            "n_components",
            "mixing_steps",
            "regroup_every",
            "n_probes",
            "max_rounds",
        ):
            check_scalar(getattr(self, name), name, Integral, min_val=1)
        for name in ("step_size", "background"):
            value = getattr(self, name)
            if not (isinstance(value, str) and value == "auto"):
                least = {"min_val": 0, "include_boundaries": "neither"}
                check_real(value, name, **(least if name == "step_size" else {}))
        check_real(self.l2, "l2", min_val=0)
        check_real(self.tol, "tol", min_val=0)
        check_scalar(self.verbose, "verbose", Integral, min_val=0)
        check_client_column(self.client_column)
        check_engine(self.engine)
        check_n_jobs(self.n_jobs)

    def _check_rows(self, X, y):
        """Give rows, targets or codes, and classes or None."""
        is_regressor = not _has_classes(self)
        by_column = _n_dimensions(y) == 2
        if not (is_regressor or by_column):
            check_labels(y)
        X, y = check_X_y(
            X,
            y,
            estimator=self,
            y_numeric=is_regressor,
            multi_output=by_column,
            **ROWS,
        )
        if y.ndim == 2 and y.shape[1] == 1:
            y = y[:, 0]
        if is_regressor:
            return X, np.ascontiguousarray(y, np.float64), None
        check_classification_targets(y)
        classes, code = np.unique(y, return_inverse=True)
        check_classes(classes, self.loss)
        return X, code.reshape(y.shape).astype(np.int32), classes

    def _algorithm(self, n_features, by_name, n_clients) -> GraphMTL:
        mixing, topology = None, self.topology
        if not isinstance(topology, str):
            W = _check_mixing(topology, n_clients)
            placed = W.copy()
            if by_name is not None:
                placed[np.ix_(by_name, by_name)] = W
            mixing, topology = tuple(map(tuple, placed.tolist())), "given"
        models = (
            self.loss == "squared"
            and self.encoder == "linear"
            and self.transference == "gradient"
            and n_features <= MOST_COLUMNS
        )
        statistic = "models" if models else "probes"
        return GraphMTL(
            loss=self.loss,
            encoder=self.encoder,
            n_components=int(self.n_components),
            head_steps=0 if self.head_steps == "solve" else int(self.head_steps),
            mixing_steps=int(self.mixing_steps),
            regroup_every=int(self.regroup_every),
            topology=topology,
            mixing=mixing,
            statistic="paper" if self.grouping == "paper" else statistic,
            background=_number(self.background),
            transference=self.transference,
            n_probes=int(self.n_probes),
            step_size=_number(self.step_size),
            l2=float(self.l2),
            tol=float(self.tol),
            max_rounds=int(self.max_rounds),
        )

    def add_client(self, X, y, client, sample_weight=None):
        """Let a newcomer join the group whose encoder serves its rows best.

        Its head is fitted; nothing of the others changes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
            Its rows, without `client_column`.
        y : array-like of shape (n_rows,)
            Labels must be among `classes_`.
        client : hashable
            Its identifier, not one of `clients_`.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        self : FedGraphMTL

        Raises
        ------
        ValueError
            If the client is there already, rows are not like those of `fit`, or the
            topology has no groups to join. The estimator stays as it was.
        """
        check_is_fitted(self)
        self._check_parameters()
        self._check_joinable()
        name = client_ids([client], 1, "client")
        if find_clients(name, self.clients_)[0] >= 0:
            raise ValueError(f"client == {client!r} is there already")
        rows, y = check_X_y(
            X, y, estimator=self, y_numeric=not _has_classes(self), **ROWS
        )
        d = self.encoder_coef_.shape[1]
        if rows.shape[1] != d:
            raise ValueError(f"X has {rows.shape[1]} features, expected {d} as in fit")
        classes = getattr(self, "classes_", None)
        y = np.ascontiguousarray(y, np.float64) if classes is None else self._codes(y)
        weight = check_sample_weight(sample_weight, len(y))
        offsets = np.array([0, len(y)])
        cohort = Cohort(kernel_rows(rows), y, weight, offsets, classes)
        own = rows_of(cohort, classes)
        method = self._algorithm(d, None, len(self.clients_))
        tried = []
        for W, b in zip(self.encoder_coef_, self.encoder_intercept_, strict=True):
            A = np.zeros((1, *self.head_coef_.shape[1:]))
            c = np.zeros((1, self.head_intercept_.shape[1]))
            s = np.append(W, b)
            tried.append((head_objective(method, own, s, A, c), A, c))
        group = int(np.argmin([value for value, _, _ in tried]))
        self.clients_ = with_client(self.clients_, client)
        self.groups_ = np.append(self.groups_, group)
        self.client_graph_ = mixing_matrix(self.groups_)
        self.head_coef_ = np.concatenate([self.head_coef_, tried[group][1]])
        self.head_intercept_ = np.concatenate([self.head_intercept_, tried[group][2]])
        return self

    def remove_client(self, client):
        """Forget a client; the others keep their groups and models.

        Parameters
        ----------
        client : hashable
            One of `clients_`, and not the only one.

        Returns
        -------
        self : FedGraphMTL

        Raises
        ------
        ValueError
            If there is no such client, or no other.
        """
        check_is_fitted(self)
        self._check_joinable()
        place = find_clients(client_ids([client], 1, "client"), self.clients_)[0]
        if place < 0:
            raise ValueError(
                f"client == {client!r}, which is not there; expected one of clients_"
            )
        if len(self.clients_) == 1:
            raise ValueError(f"client == {client!r} is the only one")
        left = np.delete(self.groups_, place)
        labels = by_first_member(left)
        first = [np.flatnonzero(labels == g)[0] for g in np.unique(labels)]
        self.encoder_coef_ = self.encoder_coef_[left[first]]
        self.encoder_intercept_ = self.encoder_intercept_[left[first]]
        self.clients_ = np.delete(self.clients_, place)
        self.groups_, self.client_graph_ = labels, mixing_matrix(labels)
        self.head_coef_ = np.delete(self.head_coef_, place, axis=0)
        self.head_intercept_ = np.delete(self.head_intercept_, place, axis=0)
        return self

    def _check_joinable(self):
        if not isinstance(self.topology, str) or self.topology == "none":
            raise ValueError(
                f"topology == {self.topology!r}, expected 'dynamic' or 'full': others "
                f"have no groups that clients join and leave"
            )

    def _codes(self, y):
        codes = find_clients(y, self.classes_)
        strange = np.flatnonzero(codes < 0)
        if len(strange):
            raise ValueError(
                f"y has {y[strange].tolist()[0]!r} in row {strange[0]}, which is no "
                f"label of fit; expected one of {self.classes_.tolist()}"
            )
        return codes.astype(np.int32)

    def _scores_of(self, rows, owners):
        """Score rows (n, C) by the models of these clients; -1 is all of them."""
        out = np.empty((rows.shape[0], self.head_coef_.shape[2]))
        for k in np.unique(owners):
            at = np.flatnonzero(owners == k)
            if k >= 0:
                out[at] = self._scores_by(rows[at], k)
                continue
            everybody = range(len(self.clients_))
            out[at] = np.mean([self._scores_by(rows[at], j) for j in everybody], axis=0)
        return out

    def _scores_by(self, rows, k):
        g = self.groups_[k]
        s = np.append(self.encoder_coef_[g], self.encoder_intercept_[g])
        return (
            encode(self.encoder, rows, s) @ self.head_coef_[k]
            + (self.head_intercept_[k])
        )

    def _scores_by_column(self, X, clients):
        """Scores (n, N, C) if each fitted client is a column of y, else None."""
        check_is_fitted(self)
        if clients is not None or not self._by_column:
            return None
        X, ids = self._fitted_rows(X, clients)
        if ids is not None:
            return None
        everybody = range(len(self.clients_))
        return np.stack([self._scores_by(X, k) for k in everybody], axis=1)

    @available_if(_has_classes)
    def decision_function(self, X, clients=None):
        """Score rows by their clients' models.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client of each row; may be left out when the model was
            fitted on one client, or on a 2-d `y`.

        Returns
        -------
        scores : ndarray of shape (n_rows,) or (n_rows, n_classes)
            For two classes the logarithm of the odds of ``classes_[1]``. Without
            `clients` after a fit on a 2-d `y`: (n_rows, n_clients), or
            (n_rows, n_clients, n_classes).

        Raises
        ------
        ValueError
            If `clients` is missing though several were fitted, or names an unknown
            one.
        """
        scores = self._scores_by_column(X, clients)
        if scores is None:
            scores = self._scores(X, clients)
        if scores.shape[-1] == 2:
            return scores[..., 1] - scores[..., 0]
        return scores[..., 0] if scores.shape[-1] == 1 else scores

    @available_if(_has_classes)
    def predict_proba(self, X, clients=None):
        """Give the probability of each class; arguments as `decision_function`.

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)
            Without `clients` after a fit on a 2-d `y`: that of ``classes_[1]`` for
            each column, (n_rows, n_clients); with more classes, of all of them,
            (n_rows, n_clients, n_classes).
        """
        scores = self._scores_by_column(X, clients)
        if scores is None:
            return _probabilities(self._scores(X, clients))
        N = scores.shape[1]
        columns = np.stack([_probabilities(scores[:, k]) for k in range(N)], axis=1)
        return columns[..., 1] if columns.shape[2] == 2 else columns

    def predict(self, X, clients=None):
        """Predict numbers for the squared loss, labels else.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client of each row; may be left out when the model was
            fitted on one client, or on a 2-d `y`.

        Returns
        -------
        y : ndarray of shape (n_rows,), or (n_rows, n_clients) without `clients` after \
a fit on a 2-d `y`

        Raises
        ------
        ValueError
            If `clients` is missing though several were fitted, or names an unknown
            one.
        """
        scores = self._scores_by_column(X, clients)
        return self._predicted(self._scores(X, clients) if scores is None else scores)

    def _predicted(self, scores):
        if not _has_classes(self):
            return scores[..., 0]
        if scores.shape[-1] == 1:
            return self.classes_[(scores[..., 0] > 0).astype(int)]
        return self.classes_[scores.argmax(axis=-1)]

    @property
    def _score_of_rows(self):
        return (accuracy_score, 1) if _has_classes(self) else (r2_score, 2)

    def score(self, X, y, clients=None, sample_weight=None):
        """Return R^2 for the squared loss, the accuracy else; of columns the mean.

        Scorers made by scikit-learn never pass `clients` on; this method does.
        """
        predicted = self.predict(X, clients)
        measure = self._score_of_rows[0]
        if predicted.ndim == 1:
            return measure(y, predicted, sample_weight=sample_weight)
        y = np.asarray(y)
        if y.shape != predicted.shape:
            raise ValueError(f"y has shape {y.shape}, expected {predicted.shape}")
        each = [
            measure(y[:, k], predicted[:, k], sample_weight=sample_weight)
            for k in range(y.shape[1])
        ]
        return float(np.mean(each))

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        if _has_classes(self):
            tags.estimator_type = "classifier"
            tags.classifier_tags = ClassifierTags(multi_class=self.loss != "logistic")
        else:
            tags.estimator_type = "regressor"
            tags.regressor_tags = RegressorTags()
        return tags


def _n_dimensions(y: Any) -> int:
    return len(y.shape) if hasattr(y, "shape") else np.asarray(y).ndim


def _number(value: Any) -> float | str:
    return value if isinstance(value, str) else float(value)


def _probabilities(scores: np.ndarray) -> np.ndarray:
    if scores.shape[1] == 1:
        return np.column_stack([expit(-scores[:, 0]), expit(scores[:, 0])])
    return softmax(scores, axis=1)


def _print_round(round: int, figures: dict[str, float]) -> None:
    print(
        f"[fedcore] round {round}, objective {figures['objective']:.6g}, "
        f"{figures['n_groups']:.0f} groups"
    )


def _columns_cohort(rows, y, weight, classes, names) -> tuple[Cohort, Groups]:
    """Lay the columns of y out one after another, over copies of the rows."""
    n, N = y.shape
    if len(set(names.tolist())) < N:
        raise ValueError("y has columns of the same name, expected distinct ones")
    at = np.tile(np.arange(n), N)
    offsets = np.arange(N + 1, dtype=np.int64) * n
    stacked = None if weight is None else weight[at]
    target = np.ascontiguousarray(y.T).reshape(-1)
    cohort = Cohort(kernel_rows(rows[at]), target, stacked, offsets, classes)
    return cohort, Groups(names, offsets, None)


def _check_mixing(topology: Any, n_clients: int) -> np.ndarray:
    """Return a doubly stochastic matrix, or say what is not so."""
    W = np.asarray(topology, float)
    if W.shape != (n_clients, n_clients):
        raise ValueError(
            f"topology has shape {W.shape}, expected ({n_clients}, {n_clients}): a row "
            f"and a column for each client"
        )
    sums = np.concatenate([W.sum(axis=0), W.sum(axis=1)])
    if not (np.isfinite(W).all() and (W >= 0).all() and np.allclose(sums, 1)):
        raise ValueError(
            f"topology has entries from {W.min()} to {W.max()} and sums from "
            f"{sums.min()} to {sums.max()}, expected entries from 0 to 1, and rows and "
            f"columns that add up to 1"
        )
    return W
