"""FederatedSearchCV: the best parameters by held-out rows of every client."""

from __future__ import annotations

from copy import copy
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_scalar, get_tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from .._estimators import check_choice, check_engine, seed_of, sorted_names
from .._rows import check_bool, check_n_jobs, check_real
from ..federation.local import LocalEngine
from ..federation.message import MessageError
from ..federation.run import run
from .figures import SCORINGS, merge, score
from .plan import (
    call,
    check_plannable,
    deployed,
    last_step,
    plan,
    scaled,
    scaler_of,
)
from .protocol import ALL, Search, summary
from .table import results_table

OF_BEST = ("classes_", "n_features_in_", "feature_names_in_")
NOT_TUNED = ("client_column", "engine", "n_jobs", "random_state", "verbose")


def _best_has(name: str):
    """Tell whether the fitted best, or else the given estimator, has a method."""

    def check(search: FederatedSearchCV) -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return check


class FederatedSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Search the best parameters of a federated estimator without pooling rows.

    As `sklearn.model_selection.GridSearchCV`, with folds that each client cuts from
    its own rows: of each of its labels alike, by random numbers of its own. A candidate
    is fitted by the federation to what a fold leaves, then every client scores the rows
    that it held out by its own model and sends five sums; rows and personal parts stay.
    All fits are one run of the engine, which accounts for all of it.

    Parameters
    ----------
    estimator : estimator
        `FedMTLSVC`, `FedMTLSVR`, `FedIterHT`, `FedHT`, `DistributedIHT` or
        `FedBestSubset`; or a Pipeline of `FedStandardScaler` and one of them, which
        scales by the moments of what a fold leaves.
    param_grid : dict or list of dicts
        Values to try by parameter, as for `GridSearchCV`.
    cv : int or float, default=5
        Number of folds, at least 2; or the share of each client's rows to hold out,
        once. A row that is its client's only one with its label is never held out, so
        clients with few rows have a say in fewer folds.
    scoring : {"accuracy", "r2", "neg_loss"}, default=None
        What is best, over all rows held out. None: "accuracy" for classifiers, else
        "r2". "neg_loss" is the mean of the estimator's own loss, without penalties,
        with the sign turned.
    engine : LocalEngine, default=None
        The machine that carries the federation; None: that of `estimator`, or one in
        this process.
    refit : bool, default=True
        Fit the best candidate to all rows.
    n_jobs : int, default=None
        Threads; None is 1, -1 all processors. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Draws the folds.
    verbose : int, default=0
        Print a line a fit.

    Attributes
    ----------
    cv_results_ : dict of ndarray
        As of `GridSearchCV`: params, param_NAME, split0_test_score and so on,
        mean_test_score, std_test_score (weighted by the rows held out),
        rank_test_score; besides worst_client_test_score, the least score of a client
        over all its held-out rows, and mean_fit_rounds, bytes_up and bytes_down of a
        candidate's fits. `pandas.DataFrame` takes it as it is.
    client_scores_ : ndarray of shape (n_candidates, n_clients)
        Score of each client over all its held-out rows; NaN where there are none.
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    best_index_ : int
        Of the best candidate, the first of equal ones.
    best_params_ : dict
    best_score_ : float
    best_estimator_ : estimator
        Fitted to all rows; with `refit` alone.
    n_splits_ : int
    n_rounds_ : int
        Rounds of the search, without the last fit.
    history_ : dict of ndarray
        One entry a round of the search, as of the estimator, with candidate and fold.
    classes_, n_features_in_, feature_names_in_
        Those of `best_estimator_`, where it has them.

    Notes
    -----
    With an engine that asks everybody, scores are those of a hand-written loop: fit
    the candidate, over the same engine, to the rows that a fold leaves, and score it
    on the others. Scores are kept by client, so private sums are not for searches.
    Parameters are all checked before any work; a fit that fails ends the search.

    Examples
    --------
    >>> from fedcore import FedMTLSVC
    >>> from fedcore.datasets import make_mtl_classification
    >>> from fedcore.model_selection import FederatedSearchCV
    >>> X, y, clients = make_mtl_classification(n_clients=5, random_state=0)
    >>> grid = {"C1": [0.01, 0.1], "C2": [1.0, 10.0]}
    >>> search = FederatedSearchCV(FedMTLSVC(random_state=0), grid, random_state=0)
    >>> search.fit(X, y, clients).cv_results_["mean_test_score"].shape
    (4,)
    >>> search.predict(X[:3], clients[:3]).shape
    (3,)
    """

    # cross_validate and Pipeline pass these on when routing is enabled.
    __metadata_request__fit = {"clients": True, "sample_weight": True}
    __metadata_request__predict = {"clients": True}
    __metadata_request__decision_function = {"clients": True}
    __metadata_request__predict_proba = {"clients": True}
    __metadata_request__score = {"clients": True, "sample_weight": True}

    def __init__(
        self,
        estimator,
        param_grid,
        *,
        cv=5,
        scoring=None,
        engine=None,
        refit=True,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.estimator = estimator
        self.param_grid = param_grid
        self.cv = cv
        self.scoring = scoring
        self.engine = engine
        self.refit = refit
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X, y, clients=None, sample_weight=None):
        """Fit and score all candidates, then the best one on all rows.

        Parameters
        ----------
        X, y, clients, sample_weight
            As for the estimator's `fit`.

        Returns
        -------
        self : FederatedSearchCV

        Raises
        ------
        ValueError, TypeError
            If a parameter or an argument is not as described, or not fit for one of
            the candidates; the search stays as it was.
        """
        params, models, scoring = self._candidates()
        engine = self._engine()
        methods = []
        for model in models:  # of all the copies of the rows one is kept
            method, cohort, ids = plan(model, engine, X, y, clients, sample_weight)
            methods.append(method)
        search = self._search(methods, scoring, False, seed_of(self.random_state))
        try:
            outcome = run(
                search,
                engine,
                cohort,
                seed=search.fit_seed,  # of what the engine itself draws
                n_jobs=self.n_jobs,
                on_round=_Printer(params) if self.verbose else None,
            )
        except MessageError as error:
            raise ValueError(
                f"a fit overflowed ({error}): scale the columns of X, or leave extreme "
                f"values out of param_grid"
            ) from error
        figures, history = outcome.state["figures"], outcome.history
        results = results_table(
            params, **summary(figures, scoring), scoring=scoring, history=history
        )
        index = int(np.argmax(results["mean_test_score"]))
        best = None
        if self.refit:
            best = models[index]
            for step in (last_step(best), scaler_of(best)):
                if step is not None:
                    step.set_params(engine=_without_file(engine), n_jobs=self.n_jobs)
            call(best, "fit", X, y, clients=clients, sample_weight=sample_weight)

        names, order = sorted_names(ids)
        own = score(merge(figures, axis=1), scoring)
        self.client_scores_ = own if order is None else own[:, order]
        self.clients_ = names
        self._set_results(results, params, history, search.n_folds)
        self._set_best(best)
        return self

    def _search(self, methods, scoring, refit, seed) -> Search:
        return Search(
            candidates=tuple(methods),
            cv=int(self.cv) if isinstance(self.cv, Integral) else float(self.cv),
            scoring=scoring,
            refit=bool(refit),
            seed=seed,
            fit_seed=seed_of(last_step(self.estimator).random_state),
        )

    def _set_results(self, results, params, history, n_folds) -> None:
        index = int(np.argmax(results["mean_test_score"]))
        self.cv_results_ = results
        self.best_index_, self.best_params_ = index, params[index]
        self.best_score_ = float(results["mean_test_score"][index])
        self.n_splits_ = n_folds
        self.n_rounds_ = len(history["round"])
        self.history_ = history

    def _set_best(self, best) -> None:
        for name in ("best_estimator_", *OF_BEST):
            vars(self).pop(name, None)
        if best is not None:
            self.best_estimator_ = best
            for name in OF_BEST:
                if hasattr(best, name):
                    setattr(self, name, getattr(best, name))

    def _deployed_algorithm(self, engine):
        """Choose the method from parameters alone; the best is fitted in the same run.

        Every message asks anew, and must get the same folds.
        """
        _, models, scoring = self._candidates()
        methods = [
            scaled(model, last_step(model)._deployed_algorithm(engine))
            for model in models
        ]
        fixed = isinstance(self.random_state, Integral)
        seed = seed_of(self.random_state if fixed else 0)
        return self._search(methods, scoring, self.refit, seed)

    def _deployed_cohort(self, X, y, clients):
        """Check a site's rows; lay them out by the sorted names of its clients."""
        cohort, names = last_step(self.estimator)._deployed_cohort(X, y, clients)
        scaler = scaler_of(self.estimator)
        if scaler is not None:
            scaler._check_sparse(cohort.X)
        return cohort, names

    def _deployed_result(self, algorithm, found, personal, names, history, agreement):
        """Make a fitted copy; without `personal`, of the best shared model alone."""
        fitted = clone(self)
        params, models, scoring = fitted._candidates()
        is_search = history["fold"] != ALL
        searched = {name: column[is_search] for name, column in history.items()}
        results = results_table(
            params, found["folds"], found["worst"], scoring, searched
        )
        fitted._set_results(results, params, searched, algorithm.n_folds)
        fitted.clients_ = names
        if personal is None:  # a site keeps to itself
            fitted.client_scores_ = score(merge(found["figures"], axis=1), scoring)
        best = None
        if self.refit:
            index = fitted.best_index_
            last = {name: column[~is_search] for name, column in history.items()}
            last["round"] = last["round"] - fitted.n_rounds_
            best = deployed(
                *(models[index], algorithm.candidates[index], found["inner"]),
                *(personal, names, last, agreement["candidates"][index][ALL]),
            )
        fitted._set_best(best)
        return fitted

    def _check_parameters(self) -> None:
        check_plannable(self.estimator)
        if isinstance(self.cv, Integral) and not isinstance(self.cv, bool):
            check_scalar(self.cv, "cv", Integral, min_val=2)
        else:
            limits = {"min_val": 0, "max_val": 1, "include_boundaries": "neither"}
            check_real(self.cv, "cv", **limits)
        if self.scoring is not None:
            check_choice("scoring", self.scoring, SCORINGS)
        check_engine(self.engine)
        check_bool(self.refit, "refit")
        check_n_jobs(self.n_jobs)
        check_scalar(self.verbose, "verbose", Integral, min_val=0)

    def _candidates(self) -> tuple[list[dict[str, Any]], list[Any], str]:
        """Check the parameters; give the candidates', their models and the scoring."""
        self._check_parameters()
        params = list(ParameterGrid(self.param_grid))
        if not params:
            raise ValueError("param_grid is empty, expected one candidate or more")
        for name in sorted(set().union(*params)):
            if name.rpartition("__")[2] in NOT_TUNED:
                raise ValueError(
                    f"param_grid has {name!r}, which is no parameter of the model; set "
                    f"it in the estimator"
                )
        models = [clone(self.estimator).set_params(**own) for own in params]
        return params, models, self._scoring(models)

    def _engine(self) -> Any:
        engine = self.engine
        if engine is None:
            engine = last_step(self.estimator).engine
        return LocalEngine() if engine is None else engine

    def _scoring(self, models: list[Any]) -> str:
        kinds = {is_classifier(model) for model in models}
        if len(kinds) > 1:
            raise ValueError(
                "param_grid has classifiers and regressors, expected one of the two"
            )
        mine, other = ("accuracy", "r2") if kinds.pop() else ("r2", "accuracy")
        if self.scoring == other:
            raise ValueError(
                f"scoring == {other!r} with {self.estimator!r}, expected {mine!r} or "
                f"'neg_loss'"
            )
        return mine if self.scoring is None else self.scoring

    @available_if(_best_has("decision_function"))
    def decision_function(self, X, clients=None):
        """Score rows by the best estimator; arguments as its own."""
        return self._ask("decision_function", X, clients)

    @available_if(_best_has("predict_proba"))
    def predict_proba(self, X, clients=None):
        """Give probabilities by the best estimator; arguments as its own."""
        return self._ask("predict_proba", X, clients)

    def predict(self, X, clients=None):
        """Predict by the best estimator; arguments as its own."""
        return self._ask("predict", X, clients)

    def score(self, X, y, clients=None, sample_weight=None):
        """Return the accuracy or R^2 of the best estimator, whatever `scoring` is."""
        known = {"clients": clients, "sample_weight": sample_weight}
        return call(self._best("score"), "score", X, y, **known)

    def _ask(self, name: str, X: Any, clients: Any) -> Any:
        return call(self._best(name), name, X, clients=clients)

    def _best(self, name: str) -> Any:
        check_is_fitted(self, "cv_results_")
        if not hasattr(self, "best_estimator_"):
            raise AttributeError(
                f"{name} needs the best estimator, fitted to all rows: expected "
                f"refit=True"
            )
        return self.best_estimator_

    def __sklearn_is_fitted__(self):
        return hasattr(self, "cv_results_")

    def __sklearn_tags__(self):
        tags, own = super().__sklearn_tags__(), get_tags(self.estimator)
        tags.estimator_type = own.estimator_type
        tags.classifier_tags, tags.regressor_tags = (
            own.classifier_tags,
            own.regressor_tags,
        )
        tags.target_tags, tags.input_tags = own.target_tags, own.input_tags
        return tags


def _without_file(engine: Any) -> Any:
    """Give an engine that leaves the checkpoint to the search."""
    if getattr(engine, "checkpoint", None) is None:
        return engine
    engine = copy(engine)
    engine.checkpoint, engine.resume = None, False
    return engine


class _Printer:
    """Prints a line when a fit begins."""

    def __init__(self, params: list[dict[str, Any]]):
        self._params, self._last = params, None

    def __call__(self, round: int, figures: dict[str, float]) -> None:
        fit = int(figures["candidate"]), int(figures["fold"])
        if fit != self._last:
            self._last = fit
            print(f"[fedcore] round {round}, fold {fit[1]}: {self._params[fit[0]]}")
