"""FedBestSubset: a sparse model by federated splicing."""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar, column_or_1d

from ..federation.message import MAX_BYTES
from ._base import Solution, SparseLinearModel, Task
from .hello import check_always
from .splicing import Splicing

LEAST_MORE = 40  # coefficients of the first pool beyond those that are chosen


class FedBestSubset(SparseLinearModel):
    """Linear model with at most a given number of coefficients, by federated splicing.

    Fitting minimises

    ``sum_k p_k f_k(x) + l2/2 |x|^2`` subject to ``|x|_0 <= n_nonzero_coefs``,

    where f_k is the mean loss of client k, over the supports as well as the
    coefficients. In each round the clients send sums over their rows: the gradient at
    the coefficients, and second derivatives on a pool of promising ones. The
    coordinator searches the pool: it adds, drops and exchanges coefficients by the
    exact minimum of the quadratic model, as splicing [1]_ does with estimates. Rows
    never leave a client, and every message is a sum over rows.

    The model is a regressor for ``loss="squared"`` and a classifier else.

    Parameters
    ----------
    n_nonzero_coefs : int, default=None
        At most so many coefficients are not zero, intercepts aside; None is a tenth.
        For "softmax" counted over the coefficients of all classes.
    loss : {"squared", "logistic", "softmax"}, default="squared"
        Half the squared error; the logarithmic loss of two classes; of any number.
    always_select : array-like of int or str, default=None
        Columns, by place or name, that are chosen whatever they gain. They count
        among the `n_nonzero_coefs`, for "softmax" once a class. One that the other
        such columns determine is left out.
    pool_size : int or "auto", default="auto"
        Coefficients in the first pool, at least `n_nonzero_coefs`; "auto" is four
        fifths more than that for "squared", two fifths more else, and 40 more at least.
        Its square sets the cost.
    max_swaps : int, default=40
        Exchanges of a pair in a round at most.
    l2 : float, default=0.0
        Weight of the squared norm; the intercept is not penalised.
    weights : {"samples", "uniform"} or array-like of shape (n_clients,), \
default="samples"
        The p_k: in proportion to the rows (their sample weights), equal, or as given,
        in the order of `clients_`; scaled to sum 1.
    fit_intercept : bool, default=True
        Fit an intercept, which is never cut.
    tol : float, default=1e-4
        Stop when a round lowers the objective by less than this part of it.
    max_rounds : int, default=50
    engine : LocalEngine, default=None
        The machine that carries the federation; None simulates it in this process.
        All clients answer in every round.
    n_jobs : int, default=None
        Threads; None is 1, -1 all processors. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Not used: nothing is drawn at random.
    verbose : int, default=0
        Print a line a round.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Only for classifiers.
    coef_ : ndarray of shape (n_features,), (1, n_features) or (n_classes, n_features)
        For "squared", "logistic" and "softmax".
    intercept_ : float, or ndarray of shape (1,) or (n_classes,)
    support_ : ndarray of int
        Columns with a coefficient that is not zero.
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    objective_ : float
        The objective at the coefficients, measured over all rows.
    n_rounds_ : int
    history_ : dict of ndarray
        One entry a round: round, n_exchanges, time (seconds), bytes_down, bytes_up,
        n_active, n_late, objective (the least so far), pool (its size) and step.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only if X has column names.

    Warns
    -----
    ConvergenceWarning
        If `max_rounds` was not enough.

    See Also
    --------
    FedIterHT : The published method, of first order.

    Notes
    -----
    A column that is zero, or constant beside an intercept, is never chosen, nor one
    that others in the support determine; so there can be fewer coefficients than
    asked for. Of equal ones the first is chosen. The optimum is not proven: no
    addition, removal or exchange of a pair in the last pool improves the quadratic
    model.

    With "softmax" and ``l2=0`` intercepts may all shift by the same, and on rows that
    can be told apart by the support there is no least objective: coefficients then
    agree to some 1e-6 between data that say the same in another form.

    References
    ----------
    .. [1] J. Zhu, C. Wen, J. Zhu, H. Zhang, X. Wang, "A polynomial algorithm for
       best-subset selection problem", PNAS 117(52), 2020.

    Examples
    --------
    >>> from fedcore import FedBestSubset
    >>> from fedcore.datasets import make_iht_simulation
    >>> X, y, clients = make_iht_simulation(1, n_clients=10, random_state=0)
    >>> model = FedBestSubset(20).fit(X, y, clients)
    >>> len(model.support_)
    20
    """

    def __init__(
        self,
        n_nonzero_coefs=None,
        *,
        loss="squared",
        always_select=None,
        pool_size="auto",
        max_swaps=40,
        l2=0.0,
        weights="samples",
        fit_intercept=True,
        tol=1e-4,
        max_rounds=50,
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_nonzero_coefs = n_nonzero_coefs
        self.loss = loss
        self.always_select = always_select
        self.pool_size = pool_size
        self.max_swaps = max_swaps
        self.l2 = l2
        self.weights = weights
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    @staticmethod
    def _print_round(round: int, figures: dict[str, float]) -> None:
        print(
            f"[fedcore] round {round}, objective {figures['objective']:.6g}, "
            f"pool of {figures['pool']:.0f}"
        )

    def _check_method(self) -> None:
        check_scalar(self.max_swaps, "max_swaps", Integral, min_val=0)
        if not isinstance(self.pool_size, str) or self.pool_size != "auto":
            check_scalar(self.pool_size, "pool_size", Integral, min_val=1)

    def _method(self, task: Task) -> Splicing:
        return Splicing(
            loss=task.loss,
            n_nonzero=task.n_nonzero,
            l2=task.l2,
            weights=task.weights,
            fit_intercept=task.fit_intercept,
            always=self._columns(task),
            pool_size=self._pool_size(task),
            max_swaps=int(self.max_swaps),
            tol=float(self.tol),
            max_rounds=int(self.max_rounds),
        )

    def _solution(self, algorithm: Splicing, state: dict, history: dict) -> Solution:
        coef, intercept = algorithm.result(state)
        if not state["converged"]:
            warnings.warn(
                f"FedBestSubset stopped after max_rounds={self.max_rounds} rounds at "
                f"an objective of {state['objective']:.6g}, which still fell by more "
                f"than tol={self.tol:.1e} of itself. Raise max_rounds.",
                ConvergenceWarning,
                stacklevel=4,
            )
        return Solution(coef, intercept, state["objective"], history)

    def _columns(self, task: Task) -> tuple[int, ...]:
        """Places of the columns that are always selected."""
        if self.always_select is None:
            return ()
        asked = column_or_1d(self.always_select)
        places = {_place(column, task) for column in asked.tolist()}
        check_always(places, task.n_outputs, task.n_columns, task.n_nonzero)
        return tuple(sorted(places))

    def _pool_size(self, task: Task) -> int:
        tau = task.n_nonzero
        size = self.pool_size
        if isinstance(size, str):
            # The block of the squared loss is learnt once, others anew each round.
            share = 4 if task.loss == "squared" else 2
            size = tau + max(share * tau // 5, LEAST_MORE)
        elif size < tau:
            raise ValueError(
                f"pool_size == {size}, expected at least the {tau} of n_nonzero_coefs"
            )
        size = int(size)
        if task.n_columns is not None:
            size = min(size, task.n_outputs * task.n_columns)
        if 4 * size * (size + 1) > MAX_BYTES:
            raise ValueError(
                f"the second derivatives on a pool of {size} coefficients take "
                f"{4 * size * (size + 1)} bytes, expected at most {MAX_BYTES}: lower "
                f"n_nonzero_coefs ({tau}) or pool_size"
            )
        return size


def _place(column: Any, task: Task) -> int:
    """Find a column by its place or its name."""
    if isinstance(column, str):
        names = np.zeros(0, str) if task.columns is None else task.columns
        found = np.flatnonzero(names == column)
        if len(found) != 1:
            raise ValueError(f"always_select has {column!r}, which is no column of X")
        return int(found[0])
    check_scalar(column, "always_select", Integral, min_val=0)
    return int(column)
