"""Barycenters of labelled point sets."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral

import numpy as np
from scipy.linalg.blas import dsyrk, ssyrk
from sklearn.utils import check_scalar

from .._kernels._barycenter import barycenter, complete, gathered_mean, spread
from .._rows import check_real
from ._check import check_stack, check_weights


@dataclass(frozen=True, slots=True, eq=False)
class Barycenter:
    """A labelled barycenter and the assignments that made it.

    Attributes
    ----------
    X : ndarray of shape (n, d)
    Y : ndarray of shape (n, c)
    assignments : ndarray of int32, shape (K, n)
        ``X[i]`` is the weighted mean of the atoms' points ``assignments[:, i]``.
    objective : ndarray of shape (n_iter,)
        Weighted mean of the atoms' costs, before each update; it never rises.
    label_weight : float
        The one that was used.
    """

    X: np.ndarray
    Y: np.ndarray
    assignments: np.ndarray
    objective: np.ndarray
    label_weight: float


def labelled_barycenter(
    X, Y, weights, *, label_weight="auto", max_iter=10, tol=1e-9
) -> Barycenter:
    """Find a labelled point set between atoms, in the sense of optimal transport.

    Starts from the heaviest atom; then assigns every atom to the barycenter and
    averages, in turns [1]_. The cost of a pair of points is ``|x - x'|^2 + label_weight
    |y - y'|^2``.

    Parameters
    ----------
    X : array-like of shape (K, n, d)
        Points of each atom. float32 makes the products in float32.
    Y : array-like of shape (K, n, c)
        Labels, soft or one-hot.
    weights : array-like of shape (K,)
        Not negative, summing to 1.
    label_weight : float or "auto", default="auto"
        "auto": the largest feature cost of the first turn, then fixed.
    max_iter : int, default=10
        Turns at most.
    tol : float, default=1e-9
        Stop when the objective moves by less than this part of its first value.

    Returns
    -------
    Barycenter

    Raises
    ------
    TypeError, ValueError
        If shapes disagree, an array is empty or holds NaN or infinity, weights are
        negative or do not sum to 1, or a number is out of range.

    References
    ----------
    .. [1] E. Montesuma et al., "Multi-Source Domain Adaptation through Dataset
       Dictionary Learning in Wasserstein Space", ECAI 2023, algorithm 1.

    Examples
    --------
    >>> from fedcore.ot import labelled_barycenter
    >>> X = [[[0.0], [4.0]], [[6.0], [2.0]]]
    >>> Y = [[[1, 0], [0, 1]], [[0, 1], [1, 0]]]
    >>> labelled_barycenter(X, Y, [0.5, 0.5]).X
    array([[1.],
           [5.]])
    """
    X, Y = check_stack(X, "X"), check_stack(Y, "Y")
    K, n, _ = X.shape
    if Y.shape[:2] != (K, n):
        raise ValueError(f"Y.shape == {Y.shape}, expected ({K}, {n}, n_classes)")
    weights = check_weights(weights, K, "weights")
    if label_weight != "auto":
        check_real(label_weight, "label_weight", min_val=0)
    check_scalar(max_iter, "max_iter", Integral, min_val=1)
    check_real(tol, "tol", min_val=0)

    gram = lower_gram(X)
    if not np.isfinite(np.trace(gram)):
        raise ValueError(
            f"X has an entry of {np.abs(X).max():.1e}: squared distances overflow"
        )
    return barycenter_of(gram, X, Y, weights, label_weight, int(max_iter), tol)


def barycenter_of(
    gram, X, Y, weights, label_weight="auto", max_iter=10, tol=1e-9
) -> Barycenter:
    """Find a barycenter of validated atoms; `gram` is theirs, and is overwritten."""
    K, n, d = X.shape
    heaviest = int(np.argmax(weights))
    if label_weight == "auto":
        label_weight = spread(gram, K, heaviest)
    labels = Y.reshape(K * n, -1).T.astype(np.float64, order="C")
    complete(gram, labels, label_weight)

    s, objective = np.empty((K, n), np.int32), np.empty(max_iter)
    turns = barycenter(gram, weights, heaviest, tol, s, objective)
    if turns < 0:
        raise ValueError("X, Y or label_weight is so large that costs overflow")
    points, classes = np.empty((n, d)), np.empty((n, Y.shape[2]))
    gathered_mean(X, weights, s, points)
    gathered_mean(Y, weights, s, classes)
    return Barycenter(points, classes, s, objective[:turns], float(label_weight))


def lower_gram(X: np.ndarray) -> np.ndarray:
    """Products of all pairs of points of X (K, n, d), below the diagonal and on it."""
    flat = X.reshape(-1, X.shape[2])
    with np.errstate(over="ignore", invalid="ignore"):
        flat = flat - flat.mean(0)  # or far from 0 digits are lost
    product = dsyrk if flat.dtype == np.float64 else ssyrk
    # BLAS counts along columns: what it puts above its diagonal is below ours.
    gram = product(1.0, flat.T, trans=1).T
    return np.ascontiguousarray(gram, np.float64)
