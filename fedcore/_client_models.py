"""What estimators with one model a client share: scores, tables, plain models."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from ._client_column import column_place
from ._client_rows import ClientRows
from ._client_scores import client_scores, total_coef, total_intercept
from ._client_tables import PARTS, coefficient_table, score_table
from ._clients import client_ids, distinct, find_clients


class ClientScores(ClientRows):
    """Mixin of estimators that have a model for each client.

    They score rows by `_scores_of`, say by `_predicted` what scores (n, C) mean, and by
    `_score_of_rows` what `score` measures and how many rows it needs.
    """

    # cross_validate, GridSearchCV and Pipeline pass these on when routing is enabled.
    __metadata_request__fit = {"clients": True, "sample_weight": True}
    __metadata_request__predict = {"clients": True}
    __metadata_request__score = {"clients": True}

    def score_by_client(
        self, X: Any, y: Any, clients: Any = None, sample_weight: Any = None
    ) -> Any:
        """Score each client's rows on their own.

        Parameters
        ----------
        X, y, clients, sample_weight
            As for `score`.

        Returns
        -------
        table : pandas.DataFrame
            Indexed by client, with columns n_rows and score, the worst first. A score
            is NaN, and stands last, where rows are too few for one.
            ``table.attrs["worst_tenth"]`` is the mean score of the worst tenth of the
            clients, rounded up.

        Raises
        ------
        ValueError
            As `predict`, or if `y` or `sample_weight` do not fit X.
        ImportError
            If pandas is not installed.
        """
        rows, clients = self._fitted_rows(X, clients)
        n = rows.shape[0]
        owners = self._owners(clients, n)
        ids = np.repeat(self.clients_, n) if clients is None else clients
        ids = client_ids(ids, n, self._ids_name())
        owner = distinct(ids)[1]
        predicted = self._predicted(self._scores_of(rows, owners))
        score, fewest = self._score_of_rows
        return score_table(score, y, predicted, ids, owner, sample_weight, fewest)

    def _one_client(self, client: Any, ids: Any, n: int) -> Any:
        """Name the client whose rows these are, by argument or by their column."""
        if ids is None:
            if client is None:
                raise ValueError("client is None, expected an identifier")
            return client_ids([client], 1, "client").tolist()[0]
        found = distinct(client_ids(ids, n, self._ids_name()))[0].tolist()
        if len(found) != 1 or (client is not None and found[0] != client):
            raise ValueError(
                f"{self._ids_name()} names the clients {found[:5]}, expected "
                f"{'one' if client is None else repr(client)} alone"
            )
        return found[0]

    def _scores(self, X: Any, clients: Any) -> np.ndarray:
        """Score (n, C) of each row by the model of its client."""
        X, clients = self._fitted_rows(X, clients)
        return self._scores_of(X, self._owners(clients, X.shape[0]))


class ClientModels(ClientScores):
    """Mixin of estimators that hold one linear model a client.

    Once fitted they have `coef_`, `intercept_`, `client_coef_` and
    `client_intercept_` besides.
    """

    def coefficients(self, client: Any = None, part: str = "total") -> Any:
        """Give the weights as a table, a row a client and a column a feature.

        Parameters
        ----------
        client : hashable, default=None
            This client alone; None: all of them.
        part : {"total", "shared", "personal"}, default="total"
            ``coef_ + client_coef_``, or one of the two. "shared" is the same for all
            clients, and one row.

        Returns
        -------
        table : pandas.DataFrame
            With more than two classes a row for each client and class. The intercept,
            if there is one, is the last column. Zeros are stored: of many clients
            with many features name one.

        Raises
        ------
        ValueError
            If the client is unknown.
        ImportError
            If pandas is not installed.
        """
        check_is_fitted(self)
        if not isinstance(part, str) or part not in PARTS:
            raise ValueError(f"part == {part!r}, expected one of {PARTS}")
        if client is None:
            places, names = np.arange(len(self.clients_)), self.clients_
        else:
            places = np.array([self._place_of(client)])
            names = client_ids([client], 1, "client")
        return coefficient_table(self, places, names, part, self._own_names())

    def _place_of(self, client: Any) -> int:
        """Place of one client in clients_, -1 for the shared model."""
        check_is_fitted(self)
        if client is None:
            if len(self.clients_) > 1:
                raise ValueError(
                    f"the model was fitted on {len(self.clients_)} clients: say which "
                    f"by client="
                )
            return 0
        ids = client_ids([client], 1, "client")
        place = int(find_clients(ids, self.clients_)[0])
        if place < 0 and self.handle_unknown == "error":
            raise ValueError(
                f"client == {client!r}, which was not there in fit; expected one of "
                f'clients_, or handle_unknown="shared"'
            )
        return place

    def _own_names(self) -> np.ndarray | None:
        """Names of the columns that have weights, None if X had none."""
        names = getattr(self, "feature_names_in_", None)
        if names is None or self.client_column is None:
            return names
        return np.delete(names, column_place(None, self.client_column, names))

    def _fill(self, plain: Any, client: Any) -> Any:
        """Make a linear model of scikit-learn the fitted one of a client."""
        k = self._place_of(client)
        d = self.coef_.shape[-1]
        plain.coef_ = total_coef(self, np.array([k]))[0].reshape(self.coef_.shape)
        plain.intercept_ = total_intercept(self)[k]
        plain.n_features_in_ = d
        plain.n_iter_ = self.n_rounds_
        names = self._own_names()
        if names is not None:
            plain.feature_names_in_ = names
        return plain

    def _scores_of(self, rows: Any, owners: np.ndarray) -> np.ndarray:
        return client_scores(self, rows, owners)
