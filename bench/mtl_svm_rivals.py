"""The multi-task SVM by scikit-learn alone: LIBLINEAR on augmented rows.

The row x of client k becomes ``[x ; 0 .. x / sqrt(C2) (block k) .. 0]``; one linear SVM
without intercept on such rows has the optimum of FedMTLSVC.
"""

import numpy as np
from scipy import sparse
from sklearn.svm import LinearSVC, LinearSVR

TOLERANCES = (1e-1, 5e-2, 2e-2, 1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 1e-5, 1e-6)


def augment(X, owner, n_clients, C2):
    """Augmented rows as CSR, written in one go (faster than hstack or block_diag)."""
    n, d = X.shape
    if sparse.issparse(X):
        counts, columns, data = np.diff(X.indptr), X.indices, X.data
    else:
        counts = np.full(n, d)
        columns = np.broadcast_to(np.arange(d, dtype=np.int32), (n, d)).reshape(-1)
        data = X.reshape(-1)
    starts = np.concatenate([[0], np.cumsum(counts)])
    within = np.arange(starts[-1]) - np.repeat(starts[:-1], counts)
    first = 2 * np.repeat(starts[:-1], counts) + within
    second = first + np.repeat(counts, counts)
    width = d * (n_clients + 1)
    index_type = np.int32 if width < 2**31 else np.int64
    indices = np.empty(2 * starts[-1], index_type)
    values = np.empty(2 * starts[-1])
    indices[first] = columns
    indices[second] = columns + np.repeat(owner + 1, counts).astype(index_type) * d
    values[first] = data
    values[second] = data / np.sqrt(C2)
    indptr = (2 * starts).astype(index_type)
    return sparse.csr_matrix((values, indices, indptr), shape=(n, width))


def liblinear(A, y, C1, tol, epsilon=None):
    """Fit the augmented rows; return the long weight vector."""
    shared = {"fit_intercept": False, "tol": tol, "max_iter": 10**6, "random_state": 0}
    if epsilon is None:
        model = LinearSVC(C=C1, loss="hinge", dual=True, **shared)
    else:
        model = LinearSVR(C=C1, epsilon=epsilon, dual=True, **shared)
    return np.ravel(model.fit(A, y).coef_)


def objective(A, y, coef, C1, epsilon=None):
    """Compute the primal objective of a long weight vector."""
    scores = A @ coef
    if epsilon is None:
        losses = np.maximum(0, 1 - np.where(y > 0, 1, -1) * scores)
    else:
        losses = np.maximum(0, abs(scores - y) - epsilon)
    return coef @ coef / 2 + C1 * losses.sum()


def loosest_tolerance(A, y, C1, target, epsilon=None):
    """Find the loosest tolerance at which LIBLINEAR reaches an objective.

    To a billionth: where ours stopped at the optimum itself, the two may part by the
    rounding of their sums.
    """
    for tol in TOLERANCES:
        coef = liblinear(A, y, C1, tol, epsilon)
        if objective(A, y, coef, C1, epsilon) <= target * (1 + 1e-9):
            return tol
    raise ValueError(f"LIBLINEAR does not reach {target} at tol={TOLERANCES[-1]}")
