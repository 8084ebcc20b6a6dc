"""Fit the cost model of Timing, c (m + d + n) + c0 a pass, to the kernel."""

from itertools import product
from time import perf_counter

import numpy as np
from scipy import sparse
from scipy.optimize import least_squares, nnls
from sklearn.metrics import r2_score

from fedcore.federation.contract import Cohort
from fedcore.mtl_svm import participant
from fedcore.mtl_svm.protocol import MTLSVM

PASSES = 5  # of a visit under "line_search"
SIZES = (10, 30, 100, 300, 1000, 3000)
WIDTHS = {"dense": (5, 20, 50, 100, 300, 1000), "sparse": (300, 3000, 30000)}
DENSITIES = {"dense": (1.0,), "sparse": (0.003, 0.01, 0.03)}
LEAST_ENTRIES = 300_000  # in one call, so that the clock is fine enough
MOST_ENTRIES = 3_000_000


def seconds_a_pass(n, d, density, seed, repeats=5):
    """Time one pass of one client of n rows, and count its entries."""
    rng = np.random.default_rng(seed)
    entries = n * d * density
    K = int(np.clip(LEAST_ENTRIES / entries, 1, 20_000 / n))
    if density < 1:
        X = sparse.random_array((n * K, d), density=density, format="csr", rng=rng)
        X.indptr, X.indices = X.indptr.astype(np.int32), X.indices.astype(np.int32)
    else:
        X = rng.normal(size=(n * K, d))
    y = rng.integers(2, size=n * K, dtype=np.int32)
    cohort = Cohort(X, y, None, np.arange(K + 1) * n, np.array([0, 1]))
    svm = MTLSVM("hinge", 1.0, 1.0, 0.0, 1.0, "line_search", PASSES, 1e-6, 1)
    state, agreement = svm.start([svm.hello(cohort)], (0, 0))
    request, active = svm.broadcast(state, (0, 1)), np.arange(K, dtype=np.int32)
    message = dict(request.all) | {"step": np.ones((K, 1))}
    times = []
    for _ in range(repeats):
        clients = participant.join(cohort, svm, agreement)
        begun = perf_counter()
        svm.update(cohort, clients, message, active, (0, 1))
        times.append(perf_counter() - begun)
    return min(times) / (PASSES * K), (X.nnz if density < 1 else X.size) / K


def fit(parts, seconds):
    """Find weights, at least 0, of least squared relative error in both directions."""

    def errors(logarithms):
        return np.log(parts @ np.exp(logarithms)) - np.log(seconds)

    begin = nnls(parts / seconds[:, None], np.ones(len(seconds)))[0]
    return np.exp(least_squares(errors, np.log(np.maximum(begin, 1e-12))).x)


def report(name, parts, seconds, weights):
    predicted = parts @ weights
    low, middle, high = np.quantile(predicted / seconds, [0.1, 0.5, 0.9])
    fitted = ", ".join(f"{weight:.2g}" for weight in weights)
    print(
        f"  {name}: ({fitted}) s; predicted over measured {low:.2f} / {middle:.2f} / "
        f"{high:.2f} (10 / 50 / 90 %), R^2 of the logarithms "
        f"{r2_score(np.log(seconds), np.log(predicted)):.3f}"
    )


def main():
    for kind in WIDTHS:
        grid = [
            (n, d, q)
            for n, d, q in product(SIZES, WIDTHS[kind], DENSITIES[kind])
            if n * d * q < MOST_ENTRIES and d * q >= 1
        ]
        measured = [seconds_a_pass(*point, seed=0) for point in grid]
        seconds, entries = np.array(measured).T
        n, d, _ = np.array(grid).T
        one = np.ones(len(grid))
        if kind == "sparse":  # a client keeps its own columns only
            d = np.minimum(d, entries)
        print(f"{kind}, {len(grid)} sizes")
        paper = np.column_stack([entries + d + n, one])
        report("c (m + d + n) + c0", paper, seconds, fit(paper, seconds))
        rows = np.column_stack([entries + d, n, one])
        report("c (m + d) + r n + c0", rows, seconds, fit(rows, seconds))


if __name__ == "__main__":
    main()
