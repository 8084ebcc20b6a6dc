"""FedStandardScaler: columns of mean 0 and variance 1, without pooling rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    OneToOneFeatureMixin,
    TransformerMixin,
    clone,
)
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from .._client_column import check_client_column, put_client_column
from .._client_rows import ClientRows
from .._clients import by_name, client_ids, cohort_of, group_by_client
from .._estimators import check_choice, check_engine, seed_of, sorted_names
from .._rows import (
    ROWS,
    check_bool,
    check_n_jobs,
    check_sample_weight,
    kernel_rows,
)
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .moments import scale_of, scale_rows
from .protocol import Moments

SCOPES = ("federation", "client")
TOO_LARGE = "X has values that are too large to be squared"


class FedStandardScaler(
    OneToOneFeatureMixin, ClientRows, TransformerMixin, BaseEstimator
):
    """Bring columns to mean 0 and variance 1, without pooling rows.

    `sklearn.preprocessing.StandardScaler` fitted on the rows of all clients needs these
    rows in one place: in a federation that is a leak, however harmless its result.
    Here clients send counts, sums and sums of squares of their columns.

    Which clients share a scale is part of the model. With ``scope="federation"`` a unit
    means the same for every client, and a shared weight vector speaks of the same
    quantities everywhere: the pooled scaler, and the usual choice before a shared
    model. With ``scope="client"`` each client's columns have mean 0 and variance 1 by
    themselves: what clients differ by in level and spread (sensors, units, habits) is
    removed before the shared model sees it, and cannot be learnt any more.

    Parameters
    ----------
    scope : {"federation", "client"}, default="federation"
        Whose moments: those of all rows, or each client's own, which it keeps.
    with_mean : bool, default=True
        Subtract the mean; must be False for sparse rows.
    with_std : bool, default=True
        Divide by the standard deviation.
    client_column : str or int, default=None
        Column of X that holds the client identifiers: a name, if X is a data frame, or
        an index. It is left as it is, at its place. `n_features_in_` and
        `feature_names_in_` count it, the fitted moments do not. A data frame then
        comes out as one.
    handle_unknown : {"error", "shared"}, default="error"
        For ``scope="client"``: what to do with rows of a client that was not there in
        `fit`: raise, or use the moments of the federation. Only for "shared" does
        anything leave a client.
    engine : LocalEngine, default=None
        The machine that carries the federation; None simulates it in this process.
        ``LocalEngine(privacy=PrivateSums(noise=...))`` adds noise to the sums: a
        client's reply is its rows counted, summed and squared in each column, and
        `clip` bounds the norm of all these together. ``history_["epsilon"]`` has the
        account.
    n_jobs : int, default=None
        Threads; None is 1, -1 all processors. The result does not depend on it.
    copy : bool, default=True
        False: write into X where its form allows that.
    random_state : int, RandomState instance or None, default=None
        Of the noise and the masks, and of what the engine draws.

    Attributes
    ----------
    mean_, var_ : ndarray of shape (n_columns,) or None
        Of the rows of all clients, without NaN. None if not needed.
    scale_ : ndarray of shape (n_columns,) or None
        The standard deviation; 1 where a column is constant. None without `with_std`.
    n_samples_seen_ : int, float or ndarray of shape (n_columns,), or None
        Rows, or the sum of their weights; by column if some are NaN.
    client_mean_, client_var_, client_scale_ : ndarray of shape (n_clients, n_columns)
        Each client's own, for ``scope="client"`` alone; None if not needed.
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    n_rounds_ : int
        2, 1 if neither mean nor deviation is wanted, or 0 if nothing is sent.
    history_ : dict of ndarray
        One entry a round: round, n_exchanges, time (seconds), bytes_down, bytes_up,
        n_active, n_late, n_dropped.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Notes
    -----
    Sums are taken in double precision about values near the means, so neither float32
    rows nor means far from 0 cost digits. NaN counts as missing: left out of the
    moments, kept by `transform`. Sums hide rows, but a client with one row sends that
    row.

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore import FedStandardScaler
    >>> X = np.array([[0.0], [2.0], [10.0], [30.0]])
    >>> clients = ["ann", "ann", "bob", "bob"]
    >>> FedStandardScaler().fit(X, clients=clients).mean_
    array([10.5])
    >>> own = FedStandardScaler("client").fit(X, clients=clients)
    >>> own.transform(X, clients).ravel()
    array([-1.,  1., -1.,  1.])
    """

    _form = ROWS | {"ensure_all_finite": "allow-nan"}

    # cross_validate, GridSearchCV and Pipeline pass these on when routing is enabled.
    __metadata_request__fit = {"clients": True, "sample_weight": True}
    __metadata_request__transform = {"clients": True}
    __metadata_request__inverse_transform = {"clients": True}

    def __init__(
        self,
        scope="federation",
        *,
        with_mean=True,
        with_std=True,
        client_column=None,
        handle_unknown="error",
        engine=None,
        n_jobs=None,
        copy=True,
        random_state=None,
    ):
        self.scope = scope
        self.with_mean = with_mean
        self.with_std = with_std
        self.client_column = client_column
        self.handle_unknown = handle_unknown
        self.engine = engine
        self.n_jobs = n_jobs
        self.copy = copy
        self.random_state = random_state

    def fit(self, X, y=None, clients=None, sample_weight=None):
        """Find the moments of the columns.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        y : None
            Ignored.
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client that owns each row; None: one client.
        sample_weight : array-like of shape (n_rows,), default=None

        Returns
        -------
        self : FedStandardScaler

        Raises
        ------
        ValueError, TypeError
            If a parameter or an argument is not as described; the scaler stays as it
            was.
        """
        self._check_parameters()
        rows, groups = self._checked(X, clients)
        n = rows.shape[0]
        weight = check_sample_weight(sample_weight, n)
        cohort = cohort_of(rows, np.zeros(n), weight, groups)
        engine = LocalEngine() if self.engine is None else self.engine
        algorithm = self._moments()
        try:
            outcome = run(
                algorithm,
                engine,
                cohort,
                seed=seed_of(self.random_state),
                n_jobs=self.n_jobs,
                any_seed=self.random_state is None,
            )
        except MessageError as error:
            raise ValueError(f"{TOO_LARGE} ({error})") from error
        if np.isinf(outcome.personal.get("var", 0)).any():
            raise ValueError(TOO_LARGE)
        validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
        self.clients_, order = sorted_names(groups.names)
        own = outcome.personal
        if order is not None:
            own = {name: part[order] for name, part in own.items()}
        self._set_moments(algorithm, outcome.state, own, sample_weight is None)
        self._set_history(outcome.history)
        return self

    def _checked(self, X, clients):
        """Check the rows; give them and whose they are."""
        rows, clients = self._split(X, clients)
        rows = check_array(rows, estimator=self, input_name="X", **self._form)
        self._check_sparse(rows)
        ids = client_ids(clients, rows.shape[0], self._ids_name())
        return kernel_rows(rows), group_by_client(ids)

    def _deployed_algorithm(self, engine):
        """Choose the method from parameters alone."""
        self._check_parameters()
        return self._moments()

    def _deployed_cohort(self, X, y, clients):
        """Check a site's rows; lay them out by the sorted names of its clients."""
        self._check_parameters()
        rows, groups = self._checked(X, clients)
        groups = by_name(groups)
        return cohort_of(rows, np.zeros(rows.shape[0]), None, groups), groups.names

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        """Make a fitted copy; without `personal`, of the shared moments alone."""
        fitted, d = clone(self), int(agreement["n_features"])
        fitted.n_features_in_ = d + (self.client_column is not None)
        fitted.clients_ = names if personal is not None else names[:0]
        if personal is None:
            personal = dict.fromkeys(("mean", "var", "count"), np.empty((0, d)))
        fitted._set_moments(algorithm, found, personal, counts_rows=True)
        fitted._set_history(history)
        return fitted

    def _check_parameters(self) -> None:
        check_choice("scope", self.scope, SCOPES)
        for name in ("with_mean", "with_std", "copy"):
            check_bool(getattr(self, name), name)
        check_client_column(self.client_column)
        check_choice("handle_unknown", self.handle_unknown, ("error", "shared"))
        check_engine(self.engine)
        check_n_jobs(self.n_jobs)

    def _check_sparse(self, rows: Any) -> None:
        if self.with_mean and sparse.issparse(rows):
            raise ValueError(
                "X is sparse and with_mean is True: sparse rows cannot be centred and "
                "stay sparse, expected with_mean=False"
            )

    def _moments(self) -> Moments:
        own = self.scope == "client"
        return Moments(
            shared=not own or self.handle_unknown == "shared",
            own=own,
            centre=bool(self.with_mean),
            spread=bool(self.with_std),
        )

    def _set_moments(self, algorithm, state, own, counts_rows) -> None:
        wanted = self.with_mean or self.with_std
        self.mean_ = self.var_ = self.scale_ = self.n_samples_seen_ = None
        if algorithm.shared:
            mean, var, count = algorithm.result(state)
            seen = count.astype(np.int64) if counts_rows else count
            if len(seen) and (seen == seen[0]).all():
                seen = seen[0]
            self.n_samples_seen_ = seen
            self.mean_ = mean if wanted else None
            if self.with_std:
                self.var_, self.scale_ = var, scale_of(mean, var, count)
        for name in ("client_mean_", "client_var_", "client_scale_"):
            vars(self).pop(name, None)
        if algorithm.own:
            self.client_mean_ = own["mean"] if wanted else None
            self.client_var_ = own["var"] if self.with_std else None
            self.client_scale_ = scale_of(**own) if self.with_std else None

    def _set_history(self, history) -> None:
        self.history_ = history
        self.n_rounds_ = len(history["round"])

    def fit_transform(self, X, y=None, clients=None, sample_weight=None):
        """Fit, then transform the same rows; arguments as `fit`.

        Returns
        -------
        X_new : as X, of shape (n_rows, n_features)
        """
        return self.fit(X, y, clients, sample_weight).transform(X, clients)

    def transform(self, X, clients=None):
        """Scale rows.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the client of each row. Only ``scope="client"`` reads it, and
            it may be left out when the scaler was fitted on one client.

        Returns
        -------
        X_new : as X, of shape (n_rows, n_features)

        Raises
        ------
        ValueError
            If `clients` is needed and missing, or names an unknown one.
        """
        return self._apply(X, clients, inverse=False)

    def inverse_transform(self, X, clients=None):
        """Give scaled rows their means and deviations back; arguments as `transform`.

        Returns
        -------
        X_original : as X, of shape (n_rows, n_features)
        """
        return self._apply(X, clients, inverse=True)

    def _apply(self, X, clients, inverse):
        check_is_fitted(self)
        rows, clients = self._fitted_rows(X, clients)
        self._check_sparse(rows)
        owners = None
        if self.scope == "client":
            owners = self._owners(clients, rows.shape[0])
        in_place = not self.copy and self.client_column is None
        scaled = scale_rows(rows, owners, *self._table(), inverse, in_place)
        if self.client_column is None:
            return scaled
        names = getattr(self, "feature_names_in_", None)
        return put_client_column(scaled, X, self.client_column, names)

    def _table(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Means and scales: one row for all, or one a client and then the shared."""
        pairs = [(self.with_mean, "mean_"), (self.with_std, "scale_")]
        table: list[np.ndarray | None] = []
        for wanted, name in pairs:
            shared = getattr(self, name)
            if not wanted:
                table.append(None)
            elif self.scope == "federation":
                table.append(shared)
            else:
                own = getattr(self, f"client_{name}")
                table.append(own if shared is None else np.vstack([own, shared]))
        return table[0], table[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = not self.with_mean
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
