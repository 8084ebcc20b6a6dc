"""Tables for people: coefficients by name, scores by client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length, column_or_1d

from ._client_scores import personal_coef, total_coef, total_intercept
from ._rows import check_sample_weight

PARTS = ("total", "shared", "personal")


def pandas_for(method: str) -> Any:
    """Import pandas, or say who needs it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(f"{method} makes a table: install pandas") from error
    return pandas


def coefficient_table(
    model: Any, places: np.ndarray, names: Any, part: str, features: Any
) -> Any:
    """Lay the weights of clients at `places` out, a row a client (and class)."""
    pandas = pandas_for("coefficients")
    w, b = np.atleast_2d(model.coef_), np.atleast_1d(model.intercept_)
    C, d = w.shape
    if part == "shared":
        coef, intercept = w[None], b[None]
    elif part == "total":
        coef, intercept = total_coef(model, places), total_intercept(model)[places]
    else:
        own = model.client_intercept_.reshape(-1, C)
        coef = personal_coef(model, places)
        intercept = np.vstack([own, np.zeros(C)])[places]
    if features is None:
        features = [f"x{j}" for j in range(d)]
    columns = list(features)
    values = coef.reshape(-1, d)
    if model.fit_intercept:
        columns.append("intercept")
        values = np.column_stack([values, intercept.reshape(-1)])
    levels = {} if part == "shared" else {"client": np.repeat(names, C)}
    if C > 1:
        levels["class"] = np.tile(model.classes_, len(coef))
    if not levels:
        index = pandas.Index(["shared"], name="part")
    elif len(levels) == 1:
        ((name, labels),) = levels.items()
        index = pandas.Index(labels, name=name)
    else:
        index = pandas.MultiIndex.from_arrays(list(levels.values()), names=list(levels))
    return pandas.DataFrame(values, index=index, columns=columns)


def score_table(
    score: Callable[..., float],
    y: Any,
    predicted: np.ndarray,
    ids: np.ndarray,
    owner: np.ndarray,
    sample_weight: Any,
    fewest: int,
) -> Any:
    """Score each client's rows; NaN for those with less than `fewest` that count."""
    pandas = pandas_for("score_by_client")
    y = column_or_1d(y)
    check_consistent_length(y, predicted)
    weight = check_sample_weight(sample_weight, len(y))
    order = np.argsort(owner, kind="stable")
    cuts = np.flatnonzero(np.diff(owner[order])) + 1
    names, sizes, scores = [], [], []
    for rows in np.split(order, cuts):
        own = None if weight is None else weight[rows]
        counts = len(rows) if own is None else np.count_nonzero(own)
        names.append(ids[rows[0]])
        sizes.append(len(rows))
        scores.append(
            np.nan
            if counts < fewest
            else score(y[rows], predicted[rows], sample_weight=own)
        )
    index = pandas.Index(names, name="client")
    table = pandas.DataFrame({"n_rows": sizes, "score": scores}, index=index)
    table = table.sort_values("score", kind="stable")
    known = table["score"].dropna()
    tenth = -(-len(known) // 10)
    table.attrs["worst_tenth"] = float(known.iloc[:tenth].mean()) if tenth else np.nan
    return table
