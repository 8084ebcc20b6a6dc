"""Rivals of the dictionaries: estimators with the same call, `fit(X, y, clients)`.

The target is the client whose labels are -1; `predict(X)` is for its rows. Every domain
is scaled by itself, as DaDiL does it. What is chosen (a scale, a C) is chosen on the
sources: each in turn is predicted by the others.
"""

from itertools import product

import numpy as np
from ot.da import EMDTransport
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from fedcore.dadil.scaling import moments_of

STRENGTHS = (0.001, 0.01, 0.1, 1.0)  # of C
SCALERS = ("overall", "isotropic", "standard")
MOST_ROWS = 700  # of a source, for transport of all pooled


class Rival:
    """Base: splits domains, scales each by itself, and maps labels to numbers."""

    scaler = "isotropic"
    C = 0.1
    held_out = np.nan  # accuracy on sources that did not train

    def fit(self, X, y, clients):
        """Learn to label the target's rows."""
        rows = {k: np.flatnonzero(clients == k) for k in np.unique(clients)}
        (target,) = (k for k, at in rows.items() if (y[at] < 0).all())
        sources = [at for k, at in rows.items() if k != target]
        parts = [(X[at], y[at]) for at in sources]
        self._choose(parts)
        self._moments = moments_of(X[rows[target]], self.scaler)
        scaled = [(scaled_rows(Z, self.scaler), z) for Z, z in parts]
        self._learn(scaled, self._own(X[rows[target]]))
        return self

    def predict(self, X):
        """Label rows of the target."""
        return self._labels(self._own(X))

    def _own(self, X):
        return (X - self._moments[0]) / self._moments[1]

    def _choose(self, parts):
        """Take the scale and the C by which sources predict each other best."""

        def score(setting):
            scaler, C = setting
            scaled = [(scaled_rows(Z, scaler), z) for Z, z in parts]
            right = []
            for k, (Z, z) in enumerate(scaled):
                model = _logistic(C).fit(*pooled_rows(scaled[:k] + scaled[k + 1 :]))
                right.append(model.score(Z, z))
            return np.mean(right)

        settings = list(product(SCALERS, STRENGTHS))
        scores = [score(setting) for setting in settings]
        self.held_out = max(scores)
        self.scaler, self.C = settings[int(np.argmax(scores))]

    def _labels(self, X):
        return self._model.predict(X)


class SourceOnly(Rival):
    """Logistic regression on the pooled sources."""

    def _learn(self, sources, target):
        self._model = _logistic(self.C).fit(*pooled_rows(sources))


class SelfTraining(Rival):
    """The same, which then learns from its own surest labels of the target."""

    n_turns = 10

    def _learn(self, sources, target):
        X, y = pooled_rows(sources)
        self._model = _logistic(self.C).fit(X, y)
        for turn in range(1, self.n_turns + 1):
            P = self._model.predict_proba(target)
            labels, surest = self._model.predict(target), P.max(axis=1)
            kept = []  # of each class the same share, or the easy ones take over
            for label in np.unique(labels):
                own = np.flatnonzero(labels == label)
                order = own[np.argsort(-surest[own], kind="stable")]
                kept.append(order[: max(1, round(len(own) * turn / self.n_turns))])
            at = np.concatenate(kept)
            both = np.vstack([X, target[at]]), np.append(y, labels[at])
            self._model = _logistic(self.C).fit(*both)


class RefinedCentroids(Rival):
    """Centres of the sources' classes, moved by k-means on the target."""

    n_turns = 20

    def _choose(self, parts):
        """Take the scale by which sources find each other's centres best."""

        def score(scaler):
            scaled = [(scaled_rows(Z, scaler), z) for Z, z in parts]
            right = []
            for k, (Z, z) in enumerate(scaled):
                self._learn(scaled[:k] + scaled[k + 1 :], Z)
                right.append(np.mean(self._labels(Z) == z))
            return np.mean(right)

        scalers = (*SCALERS, "none")
        scores = [score(scaler) for scaler in scalers]
        self.held_out = max(scores)
        self.scaler = scalers[int(np.argmax(scores))]

    def _learn(self, sources, target):
        X, y = pooled_rows(sources)
        self._classes = np.unique(y)
        centres = np.array([X[y == label].mean(axis=0) for label in self._classes])
        for _ in range(self.n_turns):
            near = _nearest(target, centres)
            for k in np.unique(near):
                centres[k] = target[near == k].mean(axis=0)
        self._centres = centres

    def _labels(self, X):
        return self._classes[_nearest(X, self._centres)]


class OTDA(Rival):
    """Sources carried to the target by optimal transport, then logistic regression."""

    def _learn(self, sources, target):
        rng = np.random.default_rng(0)
        few = []
        for Z, z in sources:
            at = rng.permutation(len(z))[:MOST_ROWS]
            few.append((Z[at], z[at]))
        X, y = pooled_rows(few)
        carried = EMDTransport(max_iter=10_000_000).fit(Xs=X, Xt=target).transform(Xs=X)
        self._model = _logistic(self.C).fit(carried, y)


class FedAvg(Rival):
    """Softmax regression of the sources by federated averaging."""

    n_rounds, n_steps = 100, 5

    def _learn(self, sources, target):
        y = np.concatenate([z for _, z in sources])
        self._classes = np.unique(y)
        share = np.array([len(z) for _, z in sources]) / len(y)
        d = sources[0][0].shape[1]
        # 1/2 bounds the curvature of the loss in the scores.
        square = max((Z**2).sum(axis=1).mean() for Z, _ in sources) + 1
        step = 1 / (square / 2 + 1 / (self.C * len(y)))
        W = np.zeros((d + 1, len(self._classes)))
        for _ in range(self.n_rounds):
            W = sum(
                part * self._local(W.copy(), Z, z, len(y), step)
                for part, (Z, z) in zip(share, sources, strict=True)
            )
        self._W = W

    def _local(self, W, Z, z, n, step):
        one_hot = (z[:, None] == self._classes).astype(float)
        A = np.column_stack([Z, np.ones(len(Z))])
        for _ in range(self.n_steps):
            slope = A.T @ (softmax(A @ W, axis=1) - one_hot) / len(Z)
            slope[:-1] += W[:-1] / (self.C * n)
            W -= step * slope
        return W

    def _labels(self, X):
        return self._classes[(X @ self._W[:-1] + self._W[-1]).argmax(axis=1)]


RIVALS = {
    "source-only": SourceOnly,
    "self-training": SelfTraining,
    "centroids": RefinedCentroids,
    "OTDA": OTDA,
    "FedAvg": FedAvg,
}


def scaled_rows(X, scaler):
    mean, scale = moments_of(X, scaler)
    return (X - mean) / scale


def pooled_rows(parts):
    return np.vstack([Z for Z, _ in parts]), np.concatenate([z for _, z in parts])


def _nearest(X, centres):
    return ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)


def _logistic(C):
    return LogisticRegression(C=C, max_iter=500, tol=1e-3)
