"""A participant's part: local steps, measurements, gradients and Hessians of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from .._clients import codes_of
from ..federation.check import check_kept
from ..federation.contract import Cohort, Entries, Key
from . import kernel
from .second_order import (
    CHUNK,
    Rows,
    client_gradients,
    rows_of,
    second_derivatives,
)
from .smoothness import columns_met, smoothness

if TYPE_CHECKING:
    from .protocol import IHT

# What an exchange asks for; it travels in the message as `work`.
SURVEY, STEPS, MEASURE, NEWTON = range(4)

# Places in the reply `figures`, each a sum over clients.
MASS, LOSS, SMOOTHNESS, BAD_POINT, BAD_STEPS = range(5)
N_FIGURES = 5

CHANGING = ("smoothness", "index", "value", "count", "intercept")


@dataclass(slots=True)
class Clients:
    """What the clients of a cohort keep.

    kernel     : their rows, bound for csrc/fc_iht
    y          : targets, or codes into the classes of all clients
    share      : (K,) p_k
    smoothness : (K,) bounds on the curvature each client meets, NaN before the survey
    index, value, count, intercept :
                 control variates c_k: the first count[k] of (K, tau) pairs, and (K, C)
    """

    kernel: Any
    y: np.ndarray
    share: np.ndarray
    n_outputs: int
    smoothness: np.ndarray
    index: np.ndarray
    value: np.ndarray
    count: np.ndarray
    intercept: np.ndarray


def join(cohort: Cohort, iht: IHT, agreement: dict) -> Clients:
    """Encode the labels, bind the rows and allocate."""
    K, C = cohort.n_clients, int(agreement["n_outputs"])
    y, target, code = cohort.y, None, None
    if cohort.classes is None:
        target = y
    else:
        y = code = codes_of(cohort, agreement["classes"])
    kept = iht.n_nonzero if iht.control_variates else 0
    return Clients(
        kernel=kernel.bind(
            cohort,
            loss=iht.loss,
            n_outputs=C,
            target=target,
            code=code,
            fit_intercept=iht.fit_intercept,
        ),
        y=y,
        share=agreement["share"][cohort.first : cohort.first + K],
        n_outputs=C,
        smoothness=np.full(K, np.nan),
        index=np.zeros((K, kept), np.int32),
        value=np.zeros((K, kept)),
        count=np.zeros(K, np.int64),
        intercept=np.zeros((K, C)),
    )


def dump(cs: Clients) -> dict[str, np.ndarray]:
    """Copy what visits change."""
    return {name: getattr(cs, name).copy() for name in CHANGING}


def restore(cs: Clients, kept: Mapping[str, np.ndarray]) -> None:
    """Put back what `dump` gave into clients that have just joined."""
    check_kept({name: getattr(cs, name) for name in CHANGING}, kept)
    for name, value in kept.items():
        getattr(cs, name)[...] = value


def update(
    cohort: Cohort, cs: Clients, iht: IHT, message: dict, active: np.ndarray, key: Key
) -> dict:
    """Do what the message asks of the active clients."""
    work = int(message["work"])
    if work == NEWTON:
        return _newton(cohort, cs, iht, message, active)
    figures = np.zeros(N_FIGURES)
    figures[MASS] = cs.share[active].sum()
    if work == SURVEY:
        figures[SMOOTHNESS] = _survey(cohort, cs, iht, message, active)
        return {"figures": figures}
    reply: dict[str, Any] = {"figures": figures}
    if work == STEPS and iht.rule == "DistributedIHT":
        reply |= _gradient(cohort, cs, iht, message, active, key, figures)
    else:
        # Clients with control variates find the objective along with their gradients.
        if work == MEASURE or not iht.control_variates:
            _measure(cs, message, active, figures)
        if work == STEPS:
            reply |= _steps(cohort, cs, iht, message, active, key, figures)
    return reply


def _point(message: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return message["index"], message["value"], message["intercept"]


def _measure(cs, message, active, figures) -> None:
    """Add up the loss at the point of the message over all rows."""
    share = cs.share[active]
    _, _, loss = kernel.gradient(
        cs.kernel, active, *_point(message), share, want_gradient=False
    )
    _add_loss(figures, share, loss)


def _add_loss(figures, share, loss) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        total = share @ loss
    # What is not finite may not travel: it is told by a count instead.
    if np.isfinite(total):
        figures[LOSS] = total
    else:
        figures[BAD_POINT] = 1


def _finite(figures, place, *arrays) -> tuple[np.ndarray, ...]:
    """Give the arrays if all is finite, else zeros, and count that."""
    if all(np.isfinite(a).all() for a in arrays):
        return arrays
    figures[place] = 1
    return tuple(np.zeros_like(a) for a in arrays)


def _gradient(cohort, cs, iht, message, active, key, figures) -> dict:
    """Gradient of the active clients' share of the objective, without the ridge."""
    share = cs.share[active]
    g, free, loss = kernel.gradient(
        cs.kernel,
        active,
        *_point(message),
        share,
        batch_size=iht.batch_size,
        key=key,
        first_client=cohort.first,
    )
    if iht.batch_size:
        _measure(cs, message, active, figures)
    else:
        _add_loss(figures, share, loss)
    g, free = _finite(figures, BAD_STEPS, g, free)
    return {"x": g, "intercept": free}


def _steps(cohort, cs, iht, message, active, key, figures) -> dict:
    """Local steps of FedHT or FedIterHT from the point of the message."""
    share, point = cs.share[active], _point(message)
    step = np.full(len(active), float(message["step"]))
    if iht.step_size == "auto":
        curvature = cs.smoothness[active] + iht.l2
        step = np.minimum(step, 1 / np.where(curvature > 0, curvature, 1 / step))
    options = {
        "step": step,
        "n_steps": iht.local_steps,
        "batch_size": iht.batch_size,
        "l2": iht.l2,
        "key": key,
        "first_client": cohort.first,
    }
    reply = {}
    if iht.control_variates:
        options["correction"] = _correction(cs, message, active)
        reply = _renew_control(cohort, cs, iht, message, active, figures)
    if iht.rule == "FedHT":
        x, intercepts = kernel.local_steps_dense(
            cs.kernel, active, *point, share, **options
        )
        x, free = _finite(figures, BAD_STEPS, x, share @ intercepts)
        return reply | {"x": x, "intercept": free}
    pairs = kernel.local_steps(
        cs.kernel, active, *point, n_nonzero=iht.n_nonzero, **options
    )
    index, value = kernel.weighted_sum(pairs, share)
    value, free = _finite(figures, BAD_STEPS, value, share @ pairs.intercepts)
    return reply | {"x": Entries(index, value, pairs.counts), "intercept": free}


def _correction(cs, message, active):
    """Give c - c_k of each active client, as pairs."""
    n, C = len(active), cs.n_outputs
    shared = message["control_index"].astype(np.int64)
    size = 2**31  # above any place
    counts = cs.count[active]
    kept = np.arange(cs.index.shape[1]) < counts[:, None]
    owner = np.repeat(np.arange(n), counts)
    place = np.concatenate(
        [
            (np.arange(n)[:, None] * size + shared).reshape(-1),
            owner * size + cs.index[active][kept],
        ]
    )
    value = np.concatenate(
        [np.tile(message["control_value"], n), -cs.value[active][kept]]
    )
    place, where = np.unique(place, return_inverse=True)
    value = np.bincount(where, value, minlength=len(place)).astype(float)
    offsets = np.searchsorted(place, np.arange(n + 1) * size)
    free = message["control_intercept"] - cs.intercept[active]
    return offsets, (place % size).astype(np.int32), value, free.reshape(n, C)


def _renew_control(cohort, cs, iht, message, active, figures) -> dict:
    """Take the gradients at the point of the message as the new c_k, on its support."""
    index, value, intercept = _point(message)
    share = cs.share[active]
    parts = [
        client_gradients(iht.loss, rows, index, value, intercept)
        for _, rows in _batches(cohort, cs, active, len(index) + 1)
    ]
    loss, own, free = (np.concatenate(a) for a in zip(*parts, strict=True))
    if not iht.fit_intercept:
        free[:] = 0
    _add_loss(figures, share, loss)
    own, free = _finite(figures, BAD_POINT, own, free)
    cs.index[active, : len(index)] = index
    cs.value[active, : len(index)] = own
    cs.count[active] = len(index)
    cs.intercept[active] = free
    return {"control": share @ own, "control_intercept": share @ free}


def _survey(cohort, cs, iht, message, active) -> float:
    """Bound the curvature that each client's steps meet; give the mean by share.

    FedHT moves along all columns. The others move along a support: the one in the
    message, or, when that is empty, the one that the client's first step would take.
    """
    n, d = cohort.X.shape
    shared = np.unique(message["index"] % d)
    width = cohort.X.nnz // n + 1 if sparse.issparse(cohort.X) else d
    for clients, rows in _batches(cohort, cs, active, width):
        if iht.rule == "FedHT":
            counts, features = columns_met(rows)
        elif len(shared):
            counts = np.full(len(clients), len(shared))
            features = np.tile(shared, len(clients))
        else:
            counts, features = _first_supports(cs, iht, clients, d)
        cs.smoothness[clients] = smoothness(
            iht.loss, rows, counts, features, iht.fit_intercept
        )
    return float(cs.share[active] @ cs.smoothness[active])


def _first_supports(cs, iht, clients, d) -> tuple[np.ndarray, np.ndarray]:
    """Columns that a step from 0 would take each client to, and how many."""
    pairs = kernel.local_steps(
        cs.kernel,
        clients,
        *(np.zeros(0, np.int32), np.zeros(0), np.zeros(cs.n_outputs)),
        step=np.ones(len(clients)),
        n_steps=1,
        batch_size=0,
        n_nonzero=iht.n_nonzero,
        l2=0.0,
        key=(0, 0),
        first_client=0,
    )
    whose = np.repeat(np.arange(len(clients)), pairs.counts)
    columns = np.unique(whose * d + pairs.index % d)
    return np.bincount(columns // d, minlength=len(clients)), columns % d


def _batches(cohort, cs, active, width) -> Iterator[tuple[np.ndarray, Rows]]:
    """Give clients and their rows, of which so many columns fit the cache together."""
    size = np.diff(cohort.offsets)[active] * width
    large = size > CHUNK
    batch = np.cumsum(np.where(large, 0, size)) // CHUNK
    ends = (np.diff(batch) > 0) | large[1:] | large[:-1]
    for clients in np.split(active, np.flatnonzero(ends) + 1):
        yield clients, rows_of(cohort, cs.y, clients, np.ones(len(clients)))


def _newton(cohort, cs, iht, message, active) -> dict:
    """Objective, gradient and, if asked, Hessian on the support of the message."""
    index, value, intercept = _point(message)
    share = cs.share[active]
    figures = np.zeros(N_FIGURES)
    figures[MASS] = share.sum()
    total, free, loss = kernel.gradient(cs.kernel, active, *_point(message), share)
    _add_loss(figures, share, loss)
    g = total[index]
    if iht.fit_intercept:
        g = np.concatenate([g, free])
        index = np.concatenate([index, np.arange(len(free)) + len(total)])
        value = np.concatenate([value, intercept])
    (g,) = _finite(figures, BAD_POINT, g)
    reply = {"figures": figures, "gradient": g}
    if message["curved"]:
        rows = rows_of(cohort, cs.y, active, share)
        none = np.zeros(0, np.int32)
        H = second_derivatives(
            iht.loss, rows, index, value, cs.n_outputs, known=none, new=index
        )
        (reply["hessian"],) = _finite(figures, BAD_POINT, H)
    return reply
