"""From atoms to labels: classifiers of a reconstructed domain, or one an atom."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from ..ot import labelled_barycenter

INFERENCES = ("reconstruct", "ensemble")
LEAST_WEIGHT = 1e-3  # of a label, or of an atom: with less it has no say
STRENGTH = 10.0  # C of the default classifier, times the points


def reconstruct(
    X: np.ndarray, Y: np.ndarray, alpha: np.ndarray, label_weight: float | str
) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, d) and soft labels (n, c) of the barycenter at alpha."""
    found = labelled_barycenter(X, Y, alpha, label_weight=label_weight)
    return found.X, found.Y


def fit_classifier(classifier: Any, X: np.ndarray, Y: np.ndarray) -> Any:
    """Fit to points with soft labels: to each label with its probability as weight.

    A classifier that takes no weights gets the likeliest label of each point. The
    classes are numbers of columns of Y.
    """
    if classifier is None:
        classifier = LogisticRegression(C=STRENGTH / len(X), max_iter=1000)
    fitted = clone(classifier)
    likeliest = Y.argmax(axis=1)
    if len(np.unique(likeliest)) == 1 and not (Y > LEAST_WEIGHT).all():
        return OneClass(int(likeliest[0]))
    if not has_fit_parameter(fitted, "sample_weight"):
        return fitted.fit(X, likeliest)
    point, label = np.nonzero(Y > LEAST_WEIGHT)
    return fitted.fit(X[point], label, sample_weight=Y[point, label])


class OneClass:
    """What is learnt from points of one class."""

    def __init__(self, label: int):
        self.classes_ = np.array([label])

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Be sure."""
        return np.ones((len(X), 1))


def probabilities(classifier: Any, X: np.ndarray, n_classes: int) -> np.ndarray:
    """Give the probability (n, c) of each class; of a plain predictor 0 or 1."""
    out = np.zeros((len(X), n_classes))
    if hasattr(classifier, "predict_proba"):
        out[:, classifier.classes_] = classifier.predict_proba(X)
    else:
        out[np.arange(len(X)), classifier.predict(X)] = 1
    return out


class Reconstructed:
    """DaDiL-R: one classifier, trained on the reconstructed domain."""

    def __init__(self, classifier, X, Y, alpha, label_weight):
        self.n_classes = Y.shape[2]
        points, labels = reconstruct(X, Y, alpha, label_weight)
        self.classifier = fit_classifier(classifier, points, labels)

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Give the probability (n, c) of each class."""
        return probabilities(self.classifier, X, self.n_classes)


class Ensemble:
    """DaDiL-E: one classifier an atom, weighted by the coordinates."""

    def __init__(self, classifier, X, Y, alpha, label_weight):
        self.n_classes = Y.shape[2]
        self.members = [
            (weight, fit_classifier(classifier, X[k], Y[k]))
            for k, weight in enumerate(alpha.tolist())
            if weight > LEAST_WEIGHT
        ]

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Average the atoms' probabilities."""
        total = sum(w * probabilities(h, X, self.n_classes) for w, h in self.members)
        return total / sum(w for w, _ in self.members)


RULES = {"reconstruct": Reconstructed, "ensemble": Ensemble}
