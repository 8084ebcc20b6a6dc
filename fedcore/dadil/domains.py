"""What each domain keeps for itself: rows, scale, coordinates, and how it learns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..federation.contract import Cohort
from .reference import adam, project
from .sampling import balanced, strata
from .scaling import moments_of
from .steps import Stepper

FIRST_DECAY = 0.9  # of Adam's first moment


@dataclass(frozen=True, slots=True)
class Domains:
    """The clients of a cohort.

    X          : (n, d) scaled rows
    y          : (n,) codes of classes, -1 without label
    offsets    : (N + 1,) rows of domain l are offsets[l]:offsets[l + 1]
    mean, scale: (N, d) X = (rows - mean) / scale
    parts      : for each domain its rows of each class, None for a target
    alphas     : (N, K) coordinates
    first, second, t : (N, K), (N, K), (N,) Adam's moments of these, and steps taken
    of_atoms   : (N, 2, K, n, d + c) those of the atoms, where a client keeps them
    """

    X: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    parts: list[list[np.ndarray] | None]
    alphas: np.ndarray
    first: np.ndarray
    second: np.ndarray
    t: np.ndarray
    of_atoms: np.ndarray

    @property
    def n_domains(self) -> int:
        """Number of domains."""
        return len(self.parts)

    def rows_of(self, domain: int) -> slice:
        """Place of a domain's rows."""
        return slice(self.offsets[domain], self.offsets[domain + 1])

    def batch(
        self, domain: int, n: int, n_classes: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Draw n points and their one-hot labels: class-balanced, or of a target."""
        at, parts = self.rows_of(domain), self.parts[domain]
        if parts is None:
            size = at.stop - at.start
            return self.X[at.start + rng.choice(size, n, replace=n > size)], None
        rows = balanced(parts, n, rng)
        return self.X[rows], np.eye(n_classes)[self.y[rows]]


def join(
    cohort: Cohort,
    codes: np.ndarray,
    n_atoms: int,
    scaler: str,
    n_kept: int = 0,
    p: int = 0,
) -> Domains:
    """Scale the rows of each domain by itself; all start in the middle.

    Clients keep moments of `n_kept` points of p numbers of each atom.
    """
    N, d = cohort.n_clients, cohort.X.shape[1]
    X, mean, scale = np.empty(cohort.X.shape), np.empty((N, d)), np.empty((N, d))
    parts: list[list[np.ndarray] | None] = []
    for domain in range(N):
        a, b = cohort.offsets[domain : domain + 2].tolist()
        mean[domain], scale[domain] = moments_of(cohort.X[a:b], scaler)
        X[a:b] = (cohort.X[a:b] - mean[domain]) / scale[domain]
        is_target = codes[a] < 0
        parts.append(None if is_target else [a + rows for rows in strata(codes[a:b])])
    alphas = np.full((N, n_atoms), 1 / n_atoms)
    return Domains(
        *(X, codes, cohort.offsets, mean, scale, parts, alphas),
        *(np.zeros_like(alphas), np.zeros_like(alphas), np.zeros(N, np.int64)),
        np.zeros((N, 2, n_atoms, n_kept, p)),
    )


def move(
    stepper: Stepper,
    domains: Domains,
    which: list[int],
    X: np.ndarray,
    logits: np.ndarray,
    moments: list[tuple[np.ndarray, np.ndarray]],
    t: int,
    rate: float,
    rng: np.random.Generator,
) -> list[float]:
    """Take step t of these points of the atoms, in place; return the losses.

    The coordinates move by their own count of steps, for they stay when atoms begin
    anew: the stepper gets copies of them, and zeros, which it leaves as gradients.
    """
    n, n_classes = X.shape[1], logits.shape[2]
    batches = [domains.batch(domain, n, n_classes, rng) for domain in which]
    alphas = domains.alphas[which]
    traces = np.zeros_like(alphas), np.zeros_like(alphas)
    losses = stepper.step(X, logits, alphas, batches, [*moments, traces], t, rate)
    gradients = traces[0] / (1 - FIRST_DECAY)
    for domain, gradient in zip(which, gradients, strict=True):
        alpha = domains.alphas[domain]
        domains.t[domain] += 1
        own = domains.first[domain], domains.second[domain]
        adam(alpha, gradient, own, int(domains.t[domain]), rate)
        alpha[:] = project(alpha)
    return losses
