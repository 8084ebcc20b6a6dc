"""Hard-thresholded steps in plain Python: what csrc/fc_select.c and fc_iht.c compute.

Oracle of the tests and baseline of the benchmarks. Names are those of math.md, section
2. Sums are taken in another order than in C, so the last digits differ.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

WORD = 2**32
BATCHES = 5  # FC_RNG_BATCHES


def top(x, tau, place=None):
    """List the tau entries of largest magnitude, ascending; zeros are not listed."""
    place = range(len(x)) if place is None else place
    order = sorted(range(len(x)), key=lambda j: (-abs(x[j]), place[j]))
    return sorted(j for j in order[: max(tau, 0)] if x[j] != 0)


def threshold(x, tau):
    """Set all but the tau entries of largest magnitude to 0; x (C, d)."""
    flat, out = x.reshape(-1), np.zeros(x.size)
    kept = top(flat.tolist(), tau)
    out[kept] = flat[kept]
    return out.reshape(x.shape)


class ReferenceClient:
    """One client: does in loops what `IHTCohort` does in C.

    X (n, d) array or CSR; y (n,): targets, or codes of classes; weight (n,) or None.
    `number` is the client's number in the federation, of which its draws depend.
    """

    def __init__(
        self, X, y, weight=None, *, loss, n_outputs=1, fit_intercept=True, number=0
    ):
        X = X.toarray() if sparse.issparse(X) else np.asarray(X)
        weight = np.ones(len(y)) if weight is None else np.asarray(weight, float)
        there = weight > 0
        self.X, self.y = X[there].astype(float), np.asarray(y)[there]
        self.weight = weight[there]
        if there.any():
            self.weight = self.weight / self.weight.mean()
        self.loss, self.n_outputs, self.number = loss, n_outputs, number
        self.fit_intercept = fit_intercept

    def batch(self, key, step, size):
        """Draw the rows of a step without replacement; all of them if size is 0."""
        n = len(self.y)
        if not 0 < size < n:
            return list(range(n))
        order, words = list(range(n)), random_words(*key, self.number, step)
        for i in range(size):
            j = i + below(words, n - i)
            order[i], order[j] = order[j], order[i]
        return order[:size]

    def loss_and_gradient(self, x, b, rows):
        """Weighted mean over rows: loss, gradient (C, d), and in the intercept (C,)."""
        loss, g, g_b = 0.0, np.zeros(x.shape), np.zeros(len(b))
        for i in rows:
            share = self.weight[i] / len(rows)
            row_loss, slope = self.row_loss(self.y[i], x @ self.X[i] + b)
            loss += share * row_loss
            g += share * np.outer(slope, self.X[i])
            g_b += share * slope
        return loss, g, g_b * self.fit_intercept

    def row_loss(self, y, z):
        """Loss of a row with scores z (C,), and its slope in each of them."""
        if self.loss == "squared":
            return 0.5 * (z[0] - y) ** 2, z - y
        if self.loss == "logistic":
            sign = 1 if y else -1
            slope = -sign * np.exp(-np.logaddexp(0, sign * z[0]))
            return np.logaddexp(0, -sign * z[0]), np.array([slope])
        total = np.logaddexp.reduce(z)
        return total - z[y], np.exp(z - total) - (np.arange(len(z)) == y)

    def steps(
        self,
        x,
        b,
        *,
        step,
        n_steps,
        batch_size,
        tau,
        l2,
        key,
        correction=None,
        correction_b=0.0,
    ):
        """Run steps x <- H_tau(x - step grad); tau None: no threshold."""
        if tau is not None and (n_steps == 0 or len(self.y) == 0):
            x = threshold(x, tau)
        for t in range(n_steps if len(self.y) else 0):
            rows = self.batch(key, t, batch_size)
            _, g, g_b = self.loss_and_gradient(x, b, rows)
            x = (1 - step * l2) * x - step * g
            b = b - step * g_b
            if correction is not None:
                x = x - step * correction
                b = b - step * correction_b * self.fit_intercept
            if tau is not None:
                x = threshold(x, tau)
        return x, b


def random_words(seed, exchange, client, lane):
    """Yield the words of one stream of csrc/fc_rng.h."""
    for block in range(WORD):
        c0, c1, c2, c3 = block, client, BATCHES * 2**24 + exchange, lane
        k0, k1 = seed % WORD, seed // WORD
        for _ in range(10):
            high0, low0 = divmod(0xD2511F53 * c0, WORD)
            high1, low1 = divmod(0xCD9E8D57 * c2, WORD)
            c0, c1, c2, c3 = high1 ^ c1 ^ k0, low1, high0 ^ c3 ^ k1, low0
            k0, k1 = (k0 + 0x9E3779B9) % WORD, (k1 + 0xBB67AE85) % WORD
        yield from (c0, c1, c2, c3)


def below(words, n):
    """Draw one of 0 .. n - 1, leaving out the words that would favour some."""
    while (product := next(words) * n) % WORD < WORD % n:
        pass
    return product // WORD
