"""Whose rows these are: identifiers beside X or inside of it, and their places."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ._client_column import take_client_column
from ._clients import client_ids, find_clients
from ._rows import ROWS, check_places


class ClientRows:
    """Mixin of estimators that tell clients apart.

    They have the parameters `client_column` and `handle_unknown`, and once fitted
    `clients_`. `_form` is what they say to `check_array` of their rows.
    """

    _form = ROWS

    def _ids_name(self) -> str:
        """How messages call the identifiers."""
        if self.client_column is None:
            return "clients"
        return f"client_column {self.client_column!r}"

    def _split(self, X: Any, clients: Any, names: Any = None) -> tuple[Any, Any]:
        """Give X without its column of identifiers, and the identifiers."""
        if self.client_column is None:
            return X, clients
        if clients is not None:
            raise ValueError(
                f"clients= was passed, but client_column={self.client_column!r} names "
                f"a column of X: expected one of the two"
            )
        return take_client_column(X, self.client_column, names)

    def _fitted_rows(self, X: Any, clients: Any) -> tuple[Any, Any]:
        """Validate X against what was fitted; give its numbers and identifiers."""
        check_is_fitted(self)
        if self.client_column is None:
            X = validate_data(self, X, reset=False, **self._form)
        else:
            validate_data(self, X, reset=False, skip_check_array=True)
            names = getattr(self, "feature_names_in_", None)
            X, clients = self._split(X, clients, names)
            X = check_array(X, estimator=self, input_name="X", **self._form)
        check_places(X)
        return X, clients

    def _owners(self, clients: Any, n: int) -> np.ndarray:
        """Place of each row's client in clients_, -1 for the shared model."""
        if clients is None:
            if len(self.clients_) > 1:
                raise ValueError(
                    f"the model was fitted on {len(self.clients_)} clients: pass "
                    f"clients=, one identifier a row; or, for scikit-learn's scorers "
                    f"and whatever else passes X alone, set client_column= and let the "
                    f"identifiers be a column of X"
                )
            # A coordinator of sites that keep their rows has the shared model alone.
            return np.full(n, 0 if len(self.clients_) else -1, np.int64)
        name = self._ids_name()
        ids = client_ids(clients, n, name)
        owners = find_clients(ids, self.clients_)
        unknown = np.flatnonzero(owners < 0)
        if len(unknown) and self.handle_unknown == "error":
            raise ValueError(
                f"{name} has {ids[unknown].tolist()[0]!r} in row {unknown[0]}, which "
                f"was not there in fit ({len(unknown)} such rows); expected one of "
                f"clients_, "
                f'or handle_unknown="shared"'
            )
        return owners
