"""What DaDiL and FedDaDiL share: domains, targets, prediction, newcomers."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, is_classifier
from sklearn.metrics import accuracy_score
from sklearn.utils import check_array, check_scalar, check_X_y, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from .._client_column import check_client_column
from .._client_models import ClientScores
from .._clients import (
    by_name,
    client_ids,
    find_clients,
    group_by_client,
    missing,
    with_client,
)
from .._estimators import check_choice, check_classes, seed_of
from .._rows import check_labels, check_real
from ..federation.contract import Cohort
from .domains import join, move
from .inference import INFERENCES, RULES, reconstruct
from .sampling import ATOMS, ROWS, batch_of_atoms, generator
from .scaling import SCALERS
from .start import sizes
from .steps import Stepper

UNLABELLED = -1


@dataclass(frozen=True, slots=True)
class Problem:
    """A validated fit.

    cohort  : rows by client, in the order of `names`; y holds codes, -1 of a target
    names   : (N,) identifiers
    targets : (N,) whose labels are missing
    """

    cohort: Cohort
    names: np.ndarray
    targets: np.ndarray


@dataclass(frozen=True, slots=True)
class Solution:
    """Atoms X (K, n, d) with logits (K, n, c); of each domain alphas, mean, scale."""

    X: np.ndarray
    logits: np.ndarray
    alphas: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    history: dict[str, np.ndarray]
    objective: float


class DomainDictionary(ClientScores, ClassifierMixin, BaseEstimator, metaclass=ABCMeta):
    """Base of the estimators: a client is a domain.

    A subclass stores n_atoms, atom_size, batch_size, label_weight, classifier,
    inference, target, step_size, scaler, client_column, random_state and verbose, has
    `_n_steps`, `_check_method`, `_solve`.
    """

    _counted = "n_rounds_"
    _form = {"dtype": np.float64, "order": "C"}
    # Trained again from the atoms.
    _not_saved = ("_rules",)

    __metadata_request__fit = {"clients": True}
    __metadata_request__predict_proba = {"clients": True}

    @abstractmethod
    def _n_steps(self, n_rows: int, n_batch: int) -> int:
        """Count the steps that `fit` takes over a domain of so many rows."""

    def _check_method(self) -> None:
        """Check the parameters that only this method has."""

    @abstractmethod
    def _solve(self, problem: Problem, seed: int) -> Solution:
        """Fit validated rows, changing nothing of self."""

    def fit(self, X, y, clients=None):
        """Learn atoms, and the coordinates of every domain.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : array-like of shape (n_rows,)
            Labels. A client all of whose labels are missing (-1 among integers, NaN,
            None) is a target. With `target` the labels of those it names are ignored,
            whatever they are, and -1 is a label like others.
        clients : array-like of shape (n_rows,), default=None
            Identifier of the domain of each row; None: one domain.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError, TypeError
            If a parameter or an argument is not as described; the estimator stays as
            it was.
        """
        self._check_parameters()
        problem = self._problem(X, y, clients)
        found = self._solve(problem, seed_of(self.random_state))

        with unchanged_by_failure(self):
            validate_data(self, X, skip_check_array=True)  # n_features_in_ and names
            self.classes_, self.clients_ = problem.cohort.classes, problem.names
            self.targets_ = problem.names[problem.targets]
            self.atoms_ = found.X
            self.atom_labels_ = softmax(found.logits, axis=2)
            self.weights_ = found.alphas
            self.domain_mean_, self.domain_scale_ = found.mean, found.scale
            self.history_ = found.history
            setattr(self, self._counted, int(found.history["round"][-1]))
            self.objective_ = found.objective
            self._make_unsaved()
            self.agreement_ = self._agreement_of(problem.cohort)
            self.source_score_ = self._source_score_of(problem)
        return self

    # validation

    def _check_parameters(self) -> None:
        check_scalar(self.n_atoms, "n_atoms", Integral, min_val=1)
        check_scalar(self.batch_size, "batch_size", Integral, min_val=1)
        if not is_auto(self.atom_size):
            check_scalar(self.atom_size, "atom_size", Integral, min_val=1)
        if not is_auto(self.label_weight):
            check_real(self.label_weight, "label_weight", min_val=0)
        least = {"min_val": 0, "include_boundaries": "neither"}
        check_real(self.step_size, "step_size", **least)
        check_choice("inference", self.inference, INFERENCES)
        check_choice("scaler", self.scaler, SCALERS)
        check_scalar(self.verbose, "verbose", Integral, min_val=0)
        check_client_column(self.client_column)
        if self.classifier is not None and not is_classifier(self.classifier):
            raise ValueError(
                f"classifier == {self.classifier!r}, expected None or a classifier"
            )
        self._check_method()

    def _problem(self, X, y, clients, alone: bool = True) -> Problem:
        """Validate rows, find the targets, and lay rows out by client.

        With `alone` there are no rows but these: there must be sources, and all that
        `target` names.
        """
        rows, clients = self._split(X, clients)
        y, absent = _labels(y, rows, self, self._form)
        rows = check_array(rows, estimator=self, input_name="X", **self._form)
        _check_squares(rows)
        ids = client_ids(clients, len(rows), self._ids_name())
        groups = by_name(group_by_client(ids))
        y, absent = groups.take(y), groups.take(absent)
        sizes = np.diff(groups.offsets)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        if self.target is None:
            if y.dtype.kind == "i":
                none = y == UNLABELLED
                wholly = np.bincount(owner, none) == sizes
                absent = absent | wholly[owner]
            targets = np.bincount(owner, absent) == sizes
        else:
            targets = self._named_targets(groups.names, alone)
        partly = np.bincount(owner, absent & ~targets[owner], len(sizes))
        if partly.any():
            k = int(partly.argmax())
            raise ValueError(
                f"y has no label in {partly[k]:.0f} of the {sizes[k]} rows of client "
                f"{groups.names.tolist()[k]!r}, expected none missing, or all"
            )
        labelled = ~targets[owner]
        if alone and not labelled.any():
            raise ValueError("y has no labels but those of targets, expected a source")
        if labelled.any():
            check_classification_targets(y[labelled])
        classes, code = np.unique(y[labelled], return_inverse=True)
        if alone:
            check_classes(classes, "softmax")
        codes = np.full(len(y), UNLABELLED, np.int32)
        codes[labelled] = code
        cohort = Cohort(groups.take(rows), codes, None, groups.offsets, classes)
        return Problem(cohort, groups.names, targets)

    def _named_targets(self, names: np.ndarray, alone: bool) -> np.ndarray:
        given = self.target
        if isinstance(given, str) or np.ndim(given) == 0:
            given = [given]
        ids = client_ids(list(given), len(given), "target")
        places = find_clients(ids, names)
        if alone and (places < 0).any():
            raise ValueError(
                f"target names {ids[places < 0].tolist()[0]!r}, which is no client; "
                f"expected some of {names.tolist()[:10]}"
            )
        targets = np.zeros(len(names), bool)
        targets[places[places >= 0]] = True
        return targets

    # prediction

    def _predicted_places(self) -> list[int]:
        """Domains that predictions are for without `clients`: targets, or all."""
        wanted = self.targets_ if len(self.targets_) else self.clients_
        return find_clients(wanted, self.clients_).tolist()

    def _make_unsaved(self) -> None:
        """Forget the classifiers; each is trained when it is first asked for."""
        self._rules: dict = {}

    def _rule(self, place: int, inference: str | None = None) -> Any:
        """Give what labels the rows of a domain."""
        key = place, inference or self.inference
        if key not in self._rules:
            self._rules[key] = RULES[key[1]](
                *(self.classifier, self.atoms_, self.atom_labels_),
                *(self.weights_[place], self.label_weight),
            )
        return self._rules[key]

    def _fitted_rows(self, X, clients):
        """Validate X; rows without identifier are of the one target."""
        X, clients = super()._fitted_rows(X, clients)
        if clients is None and len(self.targets_) == 1:
            place = self._predicted_places()[0]
            clients = self.clients_[np.full(len(X), place)]
        return X, clients

    def _owners(self, clients, n):
        """Place of each row's domain in clients_."""
        if clients is None:
            places = self._predicted_places()
            if not places:
                raise ValueError(
                    "the model has atoms but no domain, as a coordinator's: let "
                    "fit_domain find the coordinates of one"
                )
            if len(places) > 1:
                kind = "targets" if len(self.targets_) else "clients"
                raise ValueError(
                    f"the model was fitted on {len(places)} {kind}: pass clients=, one "
                    f"identifier a row; or let them be a column of X, client_column="
                )
            return np.full(n, places[0])
        ids = client_ids(clients, n, self._ids_name())
        owners = find_clients(ids, self.clients_)
        unknown = np.flatnonzero(owners < 0)
        if len(unknown):
            raise ValueError(
                f"{self._ids_name()} has {ids[unknown].tolist()[0]!r} in row "
                f"{unknown[0]}, which was not there in fit ({len(unknown)} such rows); "
                f"expected one of clients_, or let fit_domain find its coordinates"
            )
        return owners

    def _scaled(self, X: np.ndarray, place: int) -> np.ndarray:
        return (X - self.domain_mean_[place]) / self.domain_scale_[place]

    def _scores_of(self, rows, owners):
        """Probabilities (n, c) by the rules of these domains."""
        out = np.empty((len(rows), len(self.classes_)))
        for k in np.unique(owners).tolist():
            at = owners == k
            out[at] = self._rule(k).predict_proba(self._scaled(rows[at], k))
        return out

    def _predicted(self, scores):
        return self.classes_[scores.argmax(axis=1)]

    @property
    def _score_of_rows(self):
        return accuracy_score, 1

    def predict_proba(self, X, clients=None):
        """Give the probability of each class.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        clients : array-like of shape (n_rows,), default=None
            Identifier of the domain of each row; None: the target, if there is one
            alone.

        Returns
        -------
        probabilities : ndarray of shape (n_rows, n_classes)

        Raises
        ------
        ValueError
            If `clients` is missing and there are several to choose from, or it names
            an unknown one.
        """
        return self._scores(X, clients)

    def predict(self, X, clients=None):
        """Predict labels; arguments as `predict_proba`.

        Returns
        -------
        y : ndarray of shape (n_rows,)
        """
        return self._predicted(self._scores(X, clients))

    def score(self, X, y, clients=None, sample_weight=None):
        """Return the accuracy; arguments as `predict_proba`.

        Rows without label (NaN or None, and, without `target`, -1 unless it is one of
        `classes_`) do not count.

        Returns
        -------
        score : float
            NaN if no row has a label.
        """
        predicted = self.predict(X, clients)
        y = column_or_1d(y)
        known = ~missing(y)
        if y.dtype.kind == "i" and UNLABELLED not in self.classes_.tolist():
            known &= y != UNLABELLED
        if not known.any():
            return np.nan
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return accuracy_score(
            np.asarray(y[known].tolist()), predicted[known], sample_weight=weight
        )

    # without labels

    def agreement_score(self, X, y=None, clients=None):
        """Share of rows that both ways of inference give the same label.

        It needs no label of a target: the higher, the more a fit can be trusted.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
        y : ignored
            For scikit-learn's searches: ``scoring=lambda model, X, y:
            model.agreement_score(X)``, with `client_column` set.
        clients : array-like of shape (n_rows,), default=None
            As for `predict`.

        Returns
        -------
        agreement : float
        """
        rows, clients = self._fitted_rows(X, clients)
        owners = self._owners(clients, len(rows))
        return self._agreement(rows, owners)

    def _agreement(self, rows, owners) -> float:
        agree = np.empty(len(rows))
        for k in np.unique(owners).tolist():
            at = owners == k
            scaled = self._scaled(rows[at], k)
            labels = [
                self._rule(k, inference).predict_proba(scaled).argmax(axis=1)
                for inference in INFERENCES
            ]
            agree[at] = labels[0] == labels[1]
        return float(agree.mean())

    def _agreement_of(self, cohort: Cohort) -> float:
        """Agreement over the rows of `fit` that predictions are for."""
        places = self._predicted_places()
        owner = np.repeat(np.arange(cohort.n_clients), np.diff(cohort.offsets))
        at = np.isin(owner, places)
        return self._agreement(cohort.X[at], owner[at])

    def _source_score_of(self, problem: Problem) -> float:
        """Mean over the sources of how well each one's reconstruction labels it."""
        cohort, scores = problem.cohort, []
        for k in np.flatnonzero(~problem.targets).tolist():
            rows = slice(*cohort.offsets[k : k + 2].tolist())
            owners = np.full(rows.stop - rows.start, k)
            scored = self._scores_of(cohort.X[rows], owners)
            scores.append(np.mean(scored.argmax(axis=1) == cohort.y[rows]))
        return float(np.mean(scores))

    # domains

    def _place(self, domain: Any) -> int:
        check_is_fitted(self)
        if domain is None:
            places = self._predicted_places()
            if len(places) != 1:
                raise ValueError(
                    f"domain is None, and there are {len(places)} to choose from"
                )
            return places[0]
        place = int(find_clients(client_ids([domain], 1, "domain"), self.clients_)[0])
        if place < 0:
            raise ValueError(
                f"domain == {domain!r}, which was not there in fit; expected one of "
                f"clients_"
            )
        return place

    def reconstruct(self, domain=None):
        """Give a domain as the atoms make it up: the barycenter at its coordinates.

        Parameters
        ----------
        domain : hashable, default=None
            One of `clients_`; None: the target.

        Returns
        -------
        X : ndarray of shape (atom_size, n_features)
            Points in the units of that domain's rows.
        Y : ndarray of shape (atom_size, n_classes)
            Their soft labels, in the order of `classes_`.

        Raises
        ------
        ValueError
            If there is no such domain, or none given and several targets.
        """
        k = self._place(domain)
        points, labels = reconstruct(
            self.atoms_, self.atom_labels_, self.weights_[k], self.label_weight
        )
        return points * self.domain_scale_[k] + self.domain_mean_[k], labels

    def fit_domain(self, X, domain=None, y=None):
        """Find the coordinates of a new domain; atoms and all others stay.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Its rows, without `client_column`.
        domain : hashable, default=None
            Its identifier, not one of `clients_`; None: ``"domain N"`` of the N-th.
        y : array-like of shape (n_rows,), default=None
            Its labels; None: it is another target.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the domain is there already, or rows are not like those of `fit`. The
            estimator stays as it was.
        """
        check_is_fitted(self)
        self._check_parameters()
        if domain is None:
            domain = f"domain {len(self.clients_)}"
        if find_clients(client_ids([domain], 1, "domain"), self.clients_)[0] >= 0:
            raise ValueError(f"domain == {domain!r} is there already")
        rows = check_array(X, estimator=self, input_name="X", **self._form)
        _check_squares(rows)
        d = self.atoms_.shape[2]
        if rows.shape[1] != d:
            raise ValueError(f"X has {rows.shape[1]} features, expected {d} as in fit")
        codes = np.full(len(rows), UNLABELLED)
        if y is not None:
            codes = find_clients(client_ids(y, len(rows), "y"), self.classes_)
            if (codes < 0).any():
                raise ValueError(
                    f"y has labels that are not of fit, expected some of "
                    f"{self.classes_.tolist()}"
                )
        own = self._locate(rows, codes)
        self.clients_ = with_client(self.clients_, domain)
        if y is None:
            self.targets_ = (
                with_client(self.targets_, domain)
                if len(self.targets_)
                else self.clients_[-1:]
            )
        self.weights_ = np.concatenate([self.weights_, own.alphas])
        self.domain_mean_ = np.concatenate([self.domain_mean_, own.mean])
        self.domain_scale_ = np.concatenate([self.domain_scale_, own.scale])
        self._make_unsaved()
        return self

    def _locate(self, rows, codes):
        """Move coordinates alone, as `fit` moves them with the atoms."""
        K, n, d = self.atoms_.shape
        c = len(self.classes_)
        cohort = Cohort(rows, codes, None, np.array([0, len(rows)]))
        own = join(cohort, codes, K, self.scaler)
        _, n_batch = sizes(n, self.batch_size, np.array([len(rows)]), c)
        stepper = Stepper(K, n_batch, d, c, label_weight=self.label_weight)
        logits = np.log(np.maximum(self.atom_labels_, 1e-300))
        seed = seed_of(self.random_state)
        for t in range(1, 1 + self._n_steps(len(rows), n_batch)):
            drawn = batch_of_atoms(K, n, c, n_batch, generator(seed, ATOMS, t))
            at = np.arange(K)[:, None], drawn
            copies = self.atoms_[at], logits[at]
            moments = [(np.zeros_like(Z), np.zeros_like(Z)) for Z in copies]
            rng = generator(seed, ROWS, t)
            move(stepper, own, [0], *copies, moments, 1, self.step_size, rng)
        return own

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _check_squares(rows: np.ndarray) -> None:
    with np.errstate(over="ignore"):
        finite = np.isfinite((rows**2).sum())
    if not finite:
        raise ValueError(
            f"X has an entry of {np.abs(rows).max():.1e}: squared distances overflow"
        )


@contextmanager
def unchanged_by_failure(estimator: Any) -> Iterator[None]:
    """Take back what was set if a classifier fails."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def is_auto(value: Any) -> bool:
    return isinstance(value, str) and value == "auto"


def _labels(y, rows, estimator, form) -> tuple[np.ndarray, np.ndarray]:
    """Validate labels; say which are missing, and fill those with one that is not."""
    if y is None:
        check_X_y(rows, y, estimator=estimator, **form)  # says it
    if isinstance(y, list) and any(label is None for label in y):
        filled = np.empty(len(y), object)
        filled[:] = y
        y = filled
    elif not hasattr(y, "dtype"):
        check_labels(y)
    y = column_or_1d(y, warn=True)
    absent = missing(y)
    if absent.any():
        known = [UNLABELLED] if absent.all() else y[~absent].tolist()
        y = np.asarray(known)[np.where(absent, 0, np.cumsum(~absent) - 1)]
    check_labels(y)
    _, y = check_X_y(rows, y, estimator=estimator, **form)
    return y, absent
