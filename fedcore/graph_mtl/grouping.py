"""Which clients belong together: spectral groups of a matrix of similarities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import eigh, qr
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, ArpackNoConvergence, eigsh
from sklearn.utils import check_array

from .._estimators import check_choice
from .._rows import check_real

DENSE_BELOW = 400  # clients in a component, up to which all eigenvectors are computed
N_LEADING = 32  # eigenvectors that are computed above
SAME_GAP = 1e-10
MOST_LLOYD_STEPS = 50
OTSU_SHARE = 0.35
N_BINS = 256


@dataclass(frozen=True, slots=True)
class Grouping:
    """Groups of clients.

    Attributes
    ----------
    labels : ndarray of shape (n_clients,), int64
        Group of each client, numbered from 0 by their first members.
    n_groups : int
    eigenvalues : ndarray of shape (n_eigenvalues,)
        Of the Laplacian, ascending: all of them, except that of components of 400
        clients and more with ``method="auto"`` only the smallest.
    W : ndarray of shape (n_clients, n_clients)
        Doubly stochastic: one over the size of their group for two clients of the
        same group, else 0.
    """

    labels: np.ndarray
    n_groups: int
    eigenvalues: np.ndarray
    W: np.ndarray


def group_clients(
    Z: Any, *, method: str = "auto", background: float | str = "auto"
) -> Grouping:
    r"""Group clients by their similarities, and find out how many groups there are.

    Parameters
    ----------
    Z : array-like of shape (n_clients, n_clients)
        ``Z[i, j]`` says how much client `i` helps client `j`: such as the
        transference, or the cosine of their gradients. It need not be symmetric.
        Entries that are negative or not finite count as no similarity.
    method : {"auto", "paper"}, default="auto"
        "paper": the number of groups is that of the eigenvalues of :math:`D - Z` below
        1, with :math:`D` the degrees [1]_. So it depends on the unit of `Z`.

        "auto": `Z` is divided by the roots of its diagonal, if that makes cosines of
        it, else by its largest entry; the background is taken off, and the root of
        what is left are the weights of a graph. Each connected component with more
        than two clients is split where the eigenvalues of its normalised Laplacian
        have their largest gap.
    background : float or "auto", default="auto"
        What unrelated clients have in common by chance, after the division. "auto":
        0.35 of Otsu's threshold of all pairs, at least 0. Used by ``method="auto"``.

    Returns
    -------
    grouping : Grouping

    Raises
    ------
    ValueError, TypeError
        If `Z` is not square, or another argument is not as described.

    References
    ----------
    .. [1] M. Mortaheb, S. Ulukus, "Personalized decentralized multi-task learning over
       dynamic communication graphs".

    Examples
    --------
    >>> import numpy as np
    >>> from fedcore.graph_mtl import group_clients
    >>> Z = np.kron(np.eye(2), np.ones((3, 3)))
    >>> group_clients(Z).labels
    array([0, 0, 0, 1, 1, 1])
    """
    check_choice("method", method, ("auto", "paper"))
    if not (isinstance(background, str) and background == "auto"):
        check_real(background, "background")
    Z = check_array(Z, dtype=np.float64, ensure_all_finite=False, input_name="Z")
    if Z.shape[0] != Z.shape[1]:
        raise ValueError(
            f"Z has shape {Z.shape}, expected a row and a column for each client"
        )
    S = _symmetric(Z)
    if method == "paper":
        labels, eigenvalues = paper_groups(S)
    else:
        labels, eigenvalues = spectral_groups(affinity(S, background))
    return grouping_of(labels, eigenvalues)


def grouping_of(labels: np.ndarray, eigenvalues: np.ndarray) -> Grouping:
    """Give labels their lasting numbers, and the weights of mixing."""
    labels = by_first_member(labels)
    return Grouping(labels, int(labels.max()) + 1, eigenvalues, mixing_matrix(labels))


def by_first_member(labels: np.ndarray) -> np.ndarray:
    """Renumber groups: 0 is that of client 0, and so on."""
    _, first, label = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[label]


def mixing_matrix(labels: np.ndarray) -> np.ndarray:
    """Give W: to mix is to take the mean of one's group."""
    share = 1 / np.bincount(labels)[labels]
    return np.where(labels[:, None] == labels, share, 0.0)


def _symmetric(Z: np.ndarray) -> np.ndarray:
    """Give the mean of Z and its transpose; what is not finite is no similarity."""
    known = np.isfinite(Z) & np.isfinite(Z.T)
    S = np.where(known, Z, 0) / 2  # first, for the sum of large numbers overflows
    return S + S.T


def affinity(S: np.ndarray, background: float | str) -> np.ndarray:
    """Make non-negative weights of a symmetric matrix, whatever its scale."""
    if len(S) == 1:
        return np.zeros((1, 1))
    diagonal = S.diagonal().copy()
    C = S - np.diag(diagonal)
    largest = np.abs(C).max()
    if largest == 0:
        return C
    scaled = None
    if diagonal.min() > 0:
        root = np.sqrt(diagonal)
        with np.errstate(over="ignore"):
            scaled = C / root / root[:, None]
    if scaled is None or np.abs(scaled).max() > 1 + 1e-9:
        scaled = C / largest
    tau = _background(scaled) if background == "auto" else float(background)
    P = np.sqrt(np.maximum(scaled - tau, 0))
    np.fill_diagonal(P, 0)
    return (P + P.T) / 2  # the two divisions above round apart


def _background(C: np.ndarray) -> float:
    """Share of the threshold that parts low from high similarities best (Otsu)."""
    values = C[np.triu_indices(len(C), 1)]
    low, high = values.min(), values.max()
    if not high > 0:
        return 0.0
    if high - low <= SAME_GAP * high:
        return OTSU_SHARE * max(low, 0.0)
    count, edges = np.histogram(values, N_BINS, (low, high))
    centre = (edges[1:] + edges[:-1]) / 2
    below = np.cumsum(count)[:-1]
    above = len(values) - below
    total = np.cumsum(count * centre)
    gap = total[:-1] / below - (total[-1] - total[:-1]) / above
    best = np.argmax(below * above * gap**2)
    return OTSU_SHARE * max(edges[best + 1], 0.0)


def spectral_groups(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a graph of symmetric weights P >= 0 with an empty diagonal.

    Returns
    -------
    labels : ndarray of shape (n_clients,)
    eigenvalues : ndarray
        Of the normalised Laplacian of each component, merged.
    """
    n_components, component = connected_components(P, directed=False)
    labels = np.zeros(len(P), np.int64)
    eigenvalues, n_groups = [], 0
    by_component = np.argsort(component, kind="stable")
    sizes = np.bincount(component, minlength=n_components)
    for members in np.split(by_component, np.cumsum(sizes)[:-1]):
        if len(members) <= 2:  # to halve a pair leaves two that were linked alone
            labels[members] = n_groups
            eigenvalues.append([0.0, 2.0][: len(members)])
            n_groups += 1
            continue
        part, values = _split_component(P[np.ix_(members, members)])
        labels[members] = n_groups + part
        eigenvalues.append(values)
        n_groups += part.max() + 1
    return labels, np.sort(np.concatenate(eigenvalues))


def _split_component(P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split a connected graph at the largest gap of its eigenvalues."""
    root = np.sqrt(P.sum(axis=1))
    A = P / root / root[:, None]
    A = (A + A.T) / 2
    leading = _leading(A) if len(A) >= DENSE_BELOW else None
    values, vectors = eigh(A) if leading is None else leading
    values, vectors = 1 - values[::-1], vectors[:, ::-1]
    k = _n_below_gap(values)
    if k == 1:
        return np.zeros(len(P), np.int64), values
    V = vectors[:, :k]
    length = np.linalg.norm(V, axis=1, keepdims=True)
    return _cluster(V / np.where(length > 0, length, 1)), values


def _leading(A: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Eigenpairs at the upper end, ascending; None if the largest gap may be below."""
    # Away from the first eigenvector, for that spans an invariant space by itself.
    start = np.arange(1, len(A) + 1) * 0.6180339887498949 % 1 - 0.5
    try:
        values, vectors = eigsh(A, N_LEADING, which="LA", v0=start)
        lowest = eigsh(A, 1, which="SA", v0=start, return_eigenvectors=False, tol=1e-3)
    except (ArpackError, ArpackNoConvergence):
        return None
    order = np.argsort(values)
    values, vectors = values[order], vectors[:, order]
    # Of the eigenvalues that were not computed no two can lie further apart.
    if np.diff(values).max() <= values[0] - lowest[0] + 1e-2:
        return None
    return values, vectors


def _n_below_gap(values: np.ndarray) -> int:
    """Eigenvalues before the largest gap; the fewest, where gaps are alike."""
    gaps = np.diff(values)
    return int(np.argmax(gaps >= gaps.max() - SAME_GAP)) + 1


def paper_groups(S: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group by the eigenvectors of D - Z whose eigenvalues are below 1, as printed."""
    P = np.maximum(S, 0)  # else degrees cancel, or turn negative
    np.fill_diagonal(P, 0)
    values, vectors = eigh(np.diag(P.sum(axis=1)) - P)
    k = max(int(np.count_nonzero(values < 1)), 1)
    return _cluster(vectors[:, :k]), values


def _cluster(V: np.ndarray) -> np.ndarray:
    """k-means of rows (N, k) into k groups, none of them empty."""
    k = V.shape[1]
    if k == 1:
        return np.zeros(len(V), np.int64)
    seeds = qr(V.T, mode="r", pivoting=True)[1][:k]
    return lloyd(V, V[seeds])


def lloyd(V: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """Assign rows to their nearest centres and move those, until nothing changes.

    An emptied group takes the row that is furthest from its centre.
    """
    k, labels = len(centres), None
    for _ in range(MOST_LLOYD_STEPS):
        distance = (centres**2).sum(axis=1) - 2 * V @ centres.T
        nearest = distance.argmin(axis=1)
        served = distance[np.arange(len(V)), nearest] + (V**2).sum(axis=1)
        count = np.bincount(nearest, minlength=k)
        for empty in np.flatnonzero(count == 0):
            worst = np.argmax(np.where(count[nearest] > 1, served, -np.inf))
            count[nearest[worst]] -= 1
            nearest[worst], count[empty], served[worst] = empty, 1, -np.inf
        if labels is not None and np.array_equal(nearest, labels):
            break
        labels = nearest
        total = np.zeros_like(centres)
        np.add.at(total, labels, V)
        centres = total / count[:, None]
    return labels
