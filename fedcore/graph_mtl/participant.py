"""What a participant computes: heads, gradients of the encoder, similarities."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _losses as losses
from .._clients import codes_of
from ..federation.contract import Cohort, Entries
from . import heads, similarity
from .encoders import encode, pull_back

if TYPE_CHECKING:
    from .protocol import GraphMTL

PROBE_RIDGE = 1e-3  # of heads at random encoders, in units of the codes' mean square

# What a message asks for.
TRAIN, MODEL, PROBE, TRIAL = range(4)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows by client as the method reads them.

    y      : (n,) targets, or codes of classes
    weight : (n,) sums to 1 over each client's rows
    """

    X: Any
    y: np.ndarray
    weight: np.ndarray
    offsets: np.ndarray

    def of(self, clients: np.ndarray) -> Rows:
        """Take the rows of some clients, in their order."""
        first, last = self.offsets[clients], self.offsets[clients + 1]
        sizes = last - first
        starts = np.concatenate([[0], np.cumsum(sizes)])
        if len(clients) and (first[1:] == last[:-1]).all():
            at: Any = slice(first[0], last[-1])
        else:
            at = np.arange(starts[-1]) + np.repeat(first - starts[:-1], sizes)
        return Rows(self.X[at], self.y[at], self.weight[at], starts)


@dataclass(frozen=True, slots=True)
class Peers:
    """What the clients of a cohort keep: their heads.

    A (K, r, C), c (K, C) : in use
    trial_A, trial_c      : those at the last common point
    rows                  : to learn from, and to measure similarities on
    """

    rows: Rows
    A: np.ndarray
    c: np.ndarray
    trial_A: np.ndarray
    trial_c: np.ndarray


def join(cohort: Cohort, agreement: dict) -> Peers:
    """Bind the rows, with heads of zeros."""
    K, r, C = cohort.n_clients, agreement["n_components"], agreement["n_outputs"]
    classes = agreement.get("classes")
    rows = rows_of(cohort, classes)
    A, c = np.zeros((K, r, C)), np.zeros((K, C))
    return Peers(rows, A, c, np.zeros_like(A), np.zeros_like(c))


def rows_of(cohort: Cohort, classes: np.ndarray | None) -> Rows:
    """Bring labels and weights of a cohort into the form of `Rows`."""
    y = cohort.y if classes is None else codes_of(cohort, classes)
    sizes = np.diff(cohort.offsets)
    weight = cohort.sample_weight
    if weight is None:
        weight = np.ones(len(y))
    owner = np.repeat(np.arange(cohort.n_clients), sizes)
    total = np.bincount(owner, weight, cohort.n_clients)
    return Rows(cohort.X, y, weight / total[owner], cohort.offsets)


def update(
    peers: Peers, method: GraphMTL, message: dict, active: np.ndarray
) -> dict[str, Any]:
    """Do what the message asks."""
    work = int(message["work"])
    if work == TRAIN:
        return _train(peers, method, message, active)
    if work == MODEL:
        return _models(peers, method, active)
    if work == PROBE:
        return _probe(peers, method, message, active)
    return _trial(peers, method, message, active)


def _by_label(labels: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Places of the members of each group, the groups ascending."""
    for label in np.unique(labels):
        yield int(label), np.flatnonzero(labels == label)


def _train(peers, method, message, active):
    """Move heads, and give gradients of the encoders: summed by group, or each."""
    labels, s = np.asarray(message["label"]), np.asarray(message["s"])
    p, kept_apart = s.shape[1], bool(message["each"])
    groups, sums = [], []
    each, each_loss = np.empty((len(active), p)), np.empty(len(active))
    for label, places in _by_label(labels):
        members = active[places]
        rows = peers.rows.of(members)
        H = encode(method.encoder, rows.X, s[places[0]])
        A, c = peers.A[members], peers.c[members]
        if message["heads"]:
            move_heads(method, rows, H, A, c)
            peers.A[members], peers.c[members] = A, c
        loss, slope = slopes(method.loss, rows, H, A, c)
        loss = loss + method.l2 / 2 * (A**2).sum(axis=(1, 2))
        if kept_apart:
            each[places] = _gradients(method, rows, H, slope)
            each_loss[places] = loss
            continue
        groups.append(label)
        gradient = pull_back(method.encoder, rows.X, H, slope)
        sums.append(np.concatenate([gradient, [loss.sum(), len(members)]]))
    if kept_apart:
        return {"gradient": each, "loss": each_loss}
    index = np.array(groups, np.int64)
    counts = np.ones(len(active), np.int64)
    return {"pull": Entries(index, np.array(sums).reshape(-1, p + 2), counts)}


def move_heads(
    method: GraphMTL, rows: Rows, H: np.ndarray, A: np.ndarray, c: np.ndarray
) -> None:
    """Step or solve heads in place at given codes."""
    l2 = np.full(len(A), method.l2)
    given = method.loss, H, rows.y, rows.weight, rows.offsets, l2, A, c
    if method.head_steps:
        heads.step_heads(*given, method.head_steps)
    else:
        heads.solve_heads(*given)


def head_objective(
    method: GraphMTL, rows: Rows, s: np.ndarray, A: np.ndarray, c: np.ndarray
) -> float:
    """Fit the head of one client's rows in place at an encoder; give its objective."""
    H = encode(method.encoder, rows.X, s)
    move_heads(method, rows, H, A, c)
    loss, _ = slopes(method.loss, rows, H, A, c)
    return float(loss[0] + method.l2 / 2 * (A**2).sum())


def slopes(loss, rows, H, A, c):
    """Mean loss of each head (K,), and the slope (n, r) of each in its codes."""
    F = heads.scores(H, A, c, rows.offsets)
    weighted = rows.weight * losses.values(loss, F, rows.y)
    E = rows.weight[:, None] * losses.slopes(loss, F, rows.y)
    slope = np.empty_like(H)
    for i, (a, b) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:], strict=True)):
        slope[a:b] = E[a:b] @ A[i].T
    return np.add.reduceat(weighted, rows.offsets[:-1]), slope


def _gradients(method, rows, H, slope):
    """Gradient (K, p) of each head's own loss."""
    out = np.empty((len(rows.offsets) - 1, (rows.X.shape[1] + 1) * H.shape[1]))
    for i, (a, b) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:], strict=True)):
        out[i] = pull_back(method.encoder, rows.X[a:b], H[a:b], slope[a:b])
    return out


def _models(peers, method, active):
    """Give local linear models and the lower triangles of their covariances."""
    models, packed = [], []
    for k in active:
        rows = peers.rows.of(np.array([k]))
        weight = rows.weight * len(rows.y)
        theta, V = similarity.local_model(rows.X, rows.y, weight)
        models.append(theta)
        packed.append(similarity.pack(V))
    return {"model": np.array(models), "covariance": np.array(packed)}


def _probe(peers, method, message, active):
    """Give loss and gradient at a common point with solved heads, or at one's own."""
    s, rows = np.asarray(message["s"]), peers.rows.of(active)
    if message["own"]:
        gradient, loss = np.empty(s.shape), np.empty(len(active))
        for i, k in enumerate(active):
            part = peers.rows.of(np.array([k]))
            H = encode(method.encoder, part.X, s[i])
            A, c = peers.A[k : k + 1], peers.c[k : k + 1]
            loss[i : i + 1], slope = slopes(method.loss, part, H, A, c)
            gradient[i] = pull_back(method.encoder, part.X, H, slope)
        return {"gradient": gradient, "loss": loss}
    H = encode(method.encoder, rows.X, s)
    A, c = np.zeros_like(peers.A[active]), np.zeros_like(peers.c[active])
    squares = rows.weight * (H**2).mean(axis=1)
    l2 = PROBE_RIDGE * np.add.reduceat(squares, rows.offsets[:-1])
    heads.solve_heads(method.loss, H, rows.y, rows.weight, rows.offsets, l2, A, c)
    peers.trial_A[active], peers.trial_c[active] = A, c
    loss, slope = slopes(method.loss, rows, H, A, c)
    return {"gradient": _gradients(method, rows, H, slope), "loss": loss}


def _trial(peers, method, message, active):
    """Give the loss (K, N) after a step of each peer from one's own point."""
    moves, rows = np.asarray(message["moves"]), peers.rows.of(active)
    s = np.asarray(message["s"])
    table = np.broadcast_to(s, (len(active), s.shape[-1]))
    if message["own"]:
        A, c = peers.A[active], peers.c[active]
    else:
        A, c = peers.trial_A[active], peers.trial_c[active]
    out = np.empty((len(active), len(moves)))
    for i, (a, b) in enumerate(zip(rows.offsets[:-1], rows.offsets[1:], strict=True)):
        for j, move in enumerate(moves):
            H = encode(method.encoder, rows.X[a:b], table[i] - move)
            value = losses.values(method.loss, H @ A[i] + c[i], rows.y[a:b])
            out[i, j] = rows.weight[a:b] @ value
    return {"after": out}


def personal(
    peers: Peers, method: GraphMTL, message: dict, n_clients: int
) -> dict[str, np.ndarray]:
    """Fit heads to the final encoders; give them."""
    table = np.asarray(message["s"])
    for k in range(n_clients):
        rows = peers.rows.of(np.array([k]))
        H = encode(method.encoder, rows.X, table[k])
        move_heads(method, rows, H, peers.A[k : k + 1], peers.c[k : k + 1])
    return {"A": peers.A, "c": peers.c}
