"""FedHT, FedIterHT and DistributedIHT: the published hard-thresholding methods."""

from __future__ import annotations

import warnings
from numbers import Integral

from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_scalar

from .._rows import check_real
from ._base import Problem, Solution, SparseLinearModel
from .protocol import IHT


class _HardThresholding(SparseLinearModel):
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

    def _solve(self, problem: Problem) -> Solution:
        automatic = isinstance(self.step_size, str)
        algorithm = IHT(
            rule=self._rule,
            loss=problem.loss,
            n_nonzero=problem.n_nonzero,
            l2=problem.l2,
            weights=problem.weights,
            fit_intercept=problem.fit_intercept,
            step_size="auto" if automatic else float(self.step_size),
            local_steps=int(getattr(self, "local_steps", 1)),
            batch_size=0 if isinstance(self.batch_size, str) else int(self.batch_size),
            control_variates=bool(getattr(self, "control_variates", False)),
            refit=bool(self.refit),
            tol=float(self.tol),
            max_rounds=int(self.max_rounds),
        )
        outcome = self._run(algorithm, problem, _print_round)
        state = outcome.state
        coef, intercept, objective = algorithm.result(state)
        self._warn_unless_converged(state)
        history = outcome.history
        # An exchange measures the point that it sends: the one of the round before.
        history["objective"] = state["objectives"][1 : len(history["round"]) + 1]
        return Solution(coef, intercept, objective, history)

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
                stacklevel=4,
            )
        elif not state["converged"]:
            warnings.warn(
                f"{name} stopped after max_rounds={self.max_rounds} rounds at an "
                f"{figure}, which had still fallen by more than tol={self.tol:.1e} of "
                f"itself in the last rounds. Raise max_rounds, or scale the columns "
                f"of X.",
                ConvergenceWarning,
                stacklevel=4,
            )


def _print_round(round: int, figures: dict[str, float]) -> None:
    print(f"[fedcore] round {round}, objective {figures['objective']:.6g}")


class FedIterHT(_HardThresholding):
    """x."""

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
    """x."""

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
    """x."""

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
