"""FedHT, FedIterHT and DistributedIHT: the published hard-thresholding methods."""

from __future__ import annotations

import warnings
from numbers import Integral

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar

from .._rows import check_real
from ._base import Solution, SparseLinearModel, Task
from .protocol import IHT


class _HardThresholding(SparseLinearModel):
    @staticmethod
    def _print_round(round: int, figures: dict[str, float]) -> None:
        print(f"[fedcore] round {round}, objective {figures['objective']:.6g}")

    def _check_method(self) -> None:
        if not isinstance(self.step_size, str) or self.step_size != "auto":
            check_real(
                self.step_size, "step_size", min_val=0, include_boundaries="neither"
            )
        if not isinstance(self.batch_size, str) or self.batch_size != "auto":
            check_scalar(self.batch_size, "batch_size", Integral, min_val=1)
        if hasattr(self, "local_steps"):
            check_scalar(
                self.local_steps, "local_steps", Integral, min_val=1, max_val=65535
            )

    def _method(self, task: Task) -> IHT:
        automatic = isinstance(self.step_size, str)
        batch_size, most = self.batch_size, task.most_rows
        if batch_size == "auto" or (most is not None and batch_size >= most):
            batch_size = 0  # all rows
        return IHT(
            rule=self._rule,
            loss=task.loss,
            n_nonzero=task.n_nonzero,
            l2=task.l2,
            weights=task.weights,
            fit_intercept=task.fit_intercept,
            step_size="auto" if automatic else float(self.step_size),
            local_steps=int(getattr(self, "local_steps", 1)),
            batch_size=int(batch_size),
            control_variates=bool(getattr(self, "control_variates", False)),
            refit=bool(self.refit),
            tol=float(self.tol),
            max_rounds=int(self.max_rounds),
        )

    def _solution(self, algorithm: IHT, state: dict, history: dict) -> Solution:
        coef, intercept, objective = algorithm.result(state)
        self._warn_unless_converged(state)
        # An exchange measures the point that it sends: the one of the round before.
        measured = state["objectives"][1 : len(history["round"]) + 1]
        return Solution(coef, intercept, objective, history | {"objective": measured})

    def _warn_unless_converged(self, state) -> None:
        """Say that a step was too long, or that the rounds ran out."""
        name, rounds = type(self).__name__, len(state["objectives"]) - 1
        figure = f"objective of {state['best_objective']:.6g}"
        if state["diverged"] or (state["rose"] and not isinstance(self.step_size, str)):
            what = "diverged" if state["diverged"] else "rose again"
            warnings.warn(
                f"{name} {what} with step_size={self.step_size:g} after {rounds} "
                f"rounds; the best point met, with an {figure}, is kept. Use a smaller "
                f'step_size or "auto", and scale the columns of X.',
                ConvergenceWarning,
                stacklevel=5,
            )
        elif not state["converged"]:
            warnings.warn(
                f"{name} stopped after max_rounds={self.max_rounds} rounds at an "
                f"{figure}, which had still fallen by more than tol={self.tol:.1e} of "
                f"itself in the last rounds. Raise max_rounds, or scale the columns "
                f"of X.",
                ConvergenceWarning,
                stacklevel=5,
            )


class FedIterHT(_HardThresholding):
    """Sparse linear model of all clients by local hard thresholding: FedIter-HT.

    Fitting seeks the minimum of

    ``sum_k p_k f_k(x) + l2/2 |x|^2`` subject to ``|x|_0 <= n_nonzero_coefs``

    where ``f_k`` is the mean loss over the rows of client `k`. In a round each client
    takes `local_steps` gradient steps from the common point, keeps the largest entries
    after each, and sends what is left; the coordinator averages and keeps the largest
    entries again [1]_. Rows never leave their clients.

    A regressor for the squared loss, a classifier for the others.

    Parameters
    ----------
    n_nonzero_coefs : int, default=None
        Number of coefficients that may differ from 0, with "softmax" over all classes
        together. None: a tenth of the features, at least one (with "softmax" times the
        classes). With 0 the intercept alone is fitted; with all of them or more
        nothing is thresholded.
    loss : {"squared", "logistic", "softmax"}, default="squared"
        ``1/2 (y - z)^2``; the log loss of two classes; the cross entropy of any number.
    step_size : float or "auto", default="auto"
        A number is the step of every client, as published. It may be too long: then
        the fit warns and returns the best point that it met.

        "auto" knows the clients' mean curvature, on the columns that their first step
        would choose, and the objective at each point that is sent. Clients take short
        steps, whose mean stands for a gradient; along it the coordinator goes as far as
        the rule of Barzilai and Borwein says [3]_, and back where the objective rises.
        With a `batch_size`, or from the first missing reply on, the mean is taken as
        published: local steps begin with one over the mean curvature and grow while
        the objective falls. No client steps further than one over its own curvature.
        So the fit cannot diverge.
    local_steps : int, default=5
        Steps of a client in a round.
    batch_size : int or "auto", default="auto"
        Rows that a client draws for each step. "auto": all of them.
    control_variates : bool, default=False
        Correct local steps by the difference between the gradient of all clients and
        the client's own, as SCAFFOLD does [2]_: then clients that differ do not pull
        apart. Kept on the support of the common point, so that what a client keeps is
        no longer than `n_nonzero_coefs`. Costs one more gradient a round and sends as
        many further numbers as there are coefficients.
    refit : bool, default=False
        Minimise the objective on the final support by Newton's method, of which
        clients send gradient and Hessian there (above 1000 coefficients by L-BFGS,
        from gradients alone). Adds a few rounds.
    l2 : float, default=0.0
        Weight of ``1/2 |x|^2``. The intercept is free.
    weights : {"samples", "uniform"} or array-like of shape (n_clients,), \
default="samples"
        The weights ``p_k`` of the clients, up to a factor: their numbers of rows
        (added sample weights, if there are), all the same, or the given numbers in
        the order of `clients_`.
    fit_intercept : bool, default=True
        The intercept is never thresholded.
    tol : float, default=1e-4
        Stop when the best objective has not fallen by more than this part of itself in
        10 rounds. 0: go on to `max_rounds`.
    max_rounds : int, default=200
        Rounds at most, without those of `refit`.
    engine : LocalEngine, default=None
        The machine that carries the federation; None simulates it in this process.
    n_jobs : int, default=None
        Threads; None is 1, -1 all processors. The result does not depend on it.
    random_state : int, RandomState instance or None, default=None
        Draws the rows of each step.
    verbose : int, default=0
        Print a line a round.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,), (1, n_features) or (n_classes, n_features)
        For the squared, logistic and softmax loss.
    intercept_ : float, or ndarray of shape (1,) or (n_classes,)
    support_ : ndarray of int
        The features with a coefficient other than 0.
    objective_ : float
        The objective at the returned point, over all rows.
    classes_ : ndarray of shape (n_classes,)
        Not for the squared loss.
    clients_ : ndarray of shape (n_clients,)
        Identifiers of the clients, sorted if they can be.
    n_rounds_ : int
    history_ : dict of ndarray
        One entry a round: round, n_exchanges, time (seconds), bytes_down, bytes_up,
        n_active, n_late, objective after the round, and step. `pandas.DataFrame` takes
        it as it is.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)

    Warns
    -----
    ConvergenceWarning
        If a given step was too long, or the rounds ran out before `tol` was met.

    Notes
    -----
    Where clients differ, local steps end beside the optimum of the common objective:
    a limit of the published method. `control_variates` and `refit` lessen it;
    `FedBestSubset` does not have it.

    With ``step_size="auto"`` local steps are too short to change the support often
    after the first rounds. Where that matters, give a step, or take `FedHT`.

    References
    ----------
    .. [1] Q. Tong, G. Liang, J. Ding, T. Zhu, M. Pan, J. Bi, "Federated optimization
       of l0-norm regularized sparse learning", Algorithms 15(9), 2022, algorithm 2.
    .. [2] S. P. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for
       Federated Learning", 2020.
    .. [3] J. Barzilai, J. M. Borwein, "Two-Point Step Size Gradient Methods", 1988.

    Examples
    --------
    >>> from fedcore import FedIterHT
    >>> from fedcore.datasets import make_iht_simulation
    >>> X, y, clients = make_iht_simulation(1, n_clients=5, random_state=0)
    >>> model = FedIterHT(20, tol=1e-2, random_state=0).fit(X, y, clients)
    >>> model.support_.size
    20
    """

    _rule = "FedIterHT"

    def __init__(
        self,
        n_nonzero_coefs=None,
        *,
        loss="squared",
        step_size="auto",
        local_steps=5,
        batch_size="auto",
        control_variates=False,
        refit=False,
        l2=0.0,
        weights="samples",
        fit_intercept=True,
        tol=1e-4,
        max_rounds=200,
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_nonzero_coefs = n_nonzero_coefs
        self.loss = loss
        self.step_size = step_size
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.control_variates = control_variates
        self.refit = refit
        self.l2 = l2
        self.weights = weights
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


class FedHT(_HardThresholding):
    """Sparse linear model of all clients by one hard thresholding a round: Fed-HT.

    As `FedIterHT`, but local steps are not thresholded: clients send dense vectors,
    and only their mean is [1]_.

    Parameters
    ----------
    n_nonzero_coefs, loss, batch_size, local_steps, control_variates, refit, l2, \
weights, fit_intercept, tol, max_rounds, engine, n_jobs, random_state, verbose
        See `FedIterHT`.
    step_size : float or "auto", default="auto"
        See `FedIterHT`; the curvature is that of all columns, since the local steps
        move along them all.

    Attributes
    ----------
    coef_, intercept_, support_, objective_, classes_, clients_, n_rounds_, history_, \
n_features_in_, feature_names_in_
        See `FedIterHT`.

    Warns
    -----
    ConvergenceWarning
        If a given step was too long, or the rounds ran out before `tol` was met.

    References
    ----------
    .. [1] Q. Tong, G. Liang, J. Ding, T. Zhu, M. Pan, J. Bi, "Federated optimization
       of l0-norm regularized sparse learning", Algorithms 15(9), 2022, algorithm 1.

    Examples
    --------
    >>> from fedcore import FedHT
    >>> from fedcore.datasets import make_mtl_regression
    >>> X, y, clients = make_mtl_regression(n_clients=5, random_state=0)
    >>> model = FedHT(20, random_state=0).fit(X, y, clients)
    >>> model.support_.size
    20
    """

    _rule = "FedHT"

    def __init__(
        self,
        n_nonzero_coefs=None,
        *,
        loss="squared",
        step_size="auto",
        local_steps=5,
        batch_size="auto",
        control_variates=False,
        refit=False,
        l2=0.0,
        weights="samples",
        fit_intercept=True,
        tol=1e-4,
        max_rounds=200,
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_nonzero_coefs = n_nonzero_coefs
        self.loss = loss
        self.step_size = step_size
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.control_variates = control_variates
        self.refit = refit
        self.l2 = l2
        self.weights = weights
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose


class DistributedIHT(_HardThresholding):
    """Sparse linear model of all clients by hard thresholding of each gradient step.

    The baseline of `FedIterHT`: clients send the gradient at the common point, the
    coordinator takes one step and keeps the largest entries, and that is a round [1]_.
    With all clients and rows this is iterative hard thresholding on the pooled rows.

    Parameters
    ----------
    n_nonzero_coefs, loss, refit, l2, weights, fit_intercept, tol, max_rounds, engine, \
n_jobs, random_state, verbose
        See `FedIterHT`.
    step_size : float or "auto", default="auto"
        A number is taken as given. "auto" is the rule of Barzilai and Borwein, taken
        back where the thresholded point does not lower the objective [2]_; it asks
        every client in each round. With a `batch_size` it is that of `FedIterHT`.
    batch_size : int or "auto", default="auto"
        Rows that a client draws for each gradient. "auto": all of them.

    Attributes
    ----------
    coef_, intercept_, support_, objective_, classes_, clients_, n_rounds_, history_, \
n_features_in_, feature_names_in_
        See `FedIterHT`.

    Warns
    -----
    ConvergenceWarning
        If a given step was too long, or the rounds ran out before `tol` was met.

    References
    ----------
    .. [1] Q. Tong, G. Liang, J. Ding, T. Zhu, M. Pan, J. Bi, "Federated optimization
       of l0-norm regularized sparse learning", Algorithms 15(9), 2022.
    .. [2] J. Barzilai, J. M. Borwein, "Two-Point Step Size Gradient Methods", 1988.

    Examples
    --------
    >>> from fedcore import DistributedIHT
    >>> from fedcore.datasets import make_iht_simulation
    >>> X, y, clients = make_iht_simulation(1, n_clients=5, random_state=0)
    >>> model = DistributedIHT(20, tol=1e-2, random_state=0).fit(X, y, clients)
    >>> model.support_.size
    20
    """

    _rule = "DistributedIHT"

    def __init__(
        self,
        n_nonzero_coefs=None,
        *,
        loss="squared",
        step_size="auto",
        batch_size="auto",
        refit=False,
        l2=0.0,
        weights="samples",
        fit_intercept=True,
        tol=1e-4,
        max_rounds=200,
        engine=None,
        n_jobs=None,
        random_state=None,
        verbose=0,
    ):
        self.n_nonzero_coefs = n_nonzero_coefs
        self.loss = loss
        self.step_size = step_size
        self.batch_size = batch_size
        self.refit = refit
        self.l2 = l2
        self.weights = weights
        self.fit_intercept = fit_intercept
        self.tol = tol
        self.max_rounds = max_rounds
        self.engine = engine
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
