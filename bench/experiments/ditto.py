"""Ditto: the global SVM first, then each client's own, drawn towards it.

T. Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization",
2021. Here with the losses of the multi-task SVM, and solved exactly instead of by
gradient steps: with `w` the global model, client k takes `u = w + v` of

    min_v  1/2 |v|^2 + C sum_i c_i loss(y_i, (w + v) . x_i)

which is the personal part of the multi-task SVM at a `w` that stays fixed.
"""

import numpy as np

from fedcore._clients import cohort_of, group_by_client
from fedcore._rows import kernel_rows
from fedcore.mtl_svm import participant
from fedcore.mtl_svm.protocol import CLASSIFICATION, MTLSVM

MOST_CALLS = 30  # of the solver, each with a tenth of the last tolerance or less


def personal_parts(
    w, X, y, clients, *, C, loss, epsilon=0.0, bias=0.0, class_weight=None, tol=1e-3
):
    """Solve the clients' problems at a fixed `w`.

    Parameters
    ----------
    w : ndarray of shape (n_problems, n_features + 1 or n_features)
        One row for two classes or a regression, else one a class; the last column
        belongs to the constant column if there is one.
    X, y, clients : ndarrays
        Rows, labels or float64 targets, identifiers.
    C, loss, epsilon, class_weight
        As in `FedMTLSVC`; "balanced" counts over all clients.
    bias : float, default=0
        Value of the constant column, 0 for none.
    tol : float, default=1e-3
        Relative duality gap of the clients' problems together, for each row of `w`.

    Returns
    -------
    names : ndarray of shape (n_clients,)
    v : ndarray of shape (n_clients, *w.shape)
        With more than two classes, zero for a class that a client has no row of.
    gap : float
        The relative gap that was reached, of the worst row of `w`.
    """
    svm = MTLSVM(loss, C, 1.0, epsilon, bias, "envelope", 1, tol, 1, class_weight)
    groups = group_by_client(clients)
    classes = None
    if loss in CLASSIFICATION:
        classes, y = np.unique(y, return_inverse=True)
        y = y.astype(np.int32)
    cohort = cohort_of(kernel_rows(X), y, None, groups, classes)
    _, agreement = svm.start([svm.hello(cohort)], (0, 0))
    cs = participant.join(cohort, svm, agreement)
    everybody = np.arange(cohort.n_clients, dtype=np.int32)
    message = {"w": np.ascontiguousarray(w), "working": np.ones(len(w), np.uint8)}
    message["certify"] = False

    def solve(local_tol, exchange):
        call = message | {"tol": local_tol}
        figures = participant.solve(cohort, cs, call, everybody, (0, exchange))
        return figures["figures"][:, :2].T

    # At v = 0 first: the optimum is some way below what the clients lose there.
    gap, primal = solve(np.full(len(w), -np.inf), 0)
    local_tol = 0.1 * tol * primal / cohort.n_clients
    for exchange in range(1, MOST_CALLS):
        gap, primal = solve(local_tol, exchange)
        if (gap <= tol * primal).all():
            break
        local_tol = np.minimum(0.1 * local_tol, 0.5 * tol * primal / cohort.n_clients)
    relative = np.divide(gap, primal, out=np.zeros(len(w)), where=primal > 0)
    return groups.names, participant.personal_models(cs, cs.s), float(relative.max())
