"""Results of a search as the table that GridSearchCV makes."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.stats import rankdata

from .figures import WEIGHT, score
from .protocol import mean_scores


def results_table(
    params: list[dict[str, Any]],
    folds: np.ndarray,
    worst: np.ndarray,
    scoring: str,
    history: dict[str, np.ndarray],
) -> dict[str, Any]:
    """Lay the results out as GridSearchCV does; folds and worst as in `summary`."""
    n = len(params)
    candidate = history["candidate"].astype(int)
    n_folds = folds.shape[1]

    def total(cost: np.ndarray) -> np.ndarray:
        return np.bincount(candidate, cost, n)

    seconds = total(np.diff(history["time"], prepend=0.0))
    results: dict[str, Any] = {"mean_fit_time": seconds / n_folds}
    for name in sorted(set().union(*params)):
        column = np.ma.masked_all(n, object)
        for place, own in enumerate(params):
            if name in own:
                column[place] = own[name]
        results[f"param_{name}"] = column
    results["params"] = params
    by_fold, weight = score(folds, scoring), folds[..., WEIGHT]
    for f in range(n_folds):
        results[f"split{f}_test_score"] = by_fold[:, f]
    mean = mean_scores(folds, scoring)
    apart = np.where(weight > 0, (by_fold - mean[:, None]) ** 2, 0)
    total_weight = np.maximum(weight.sum(axis=1), np.finfo(float).tiny)
    results["mean_test_score"] = mean
    results["std_test_score"] = np.sqrt((weight * apart).sum(axis=1) / total_weight)
    results["rank_test_score"] = rankdata(-mean, method="min").astype(np.int32)
    results["worst_client_test_score"] = worst
    results["mean_fit_rounds"] = total(np.ones(len(candidate))) / n_folds
    for name in ("bytes_up", "bytes_down"):
        results[name] = total(history[name]).astype(np.int64)
    return results
