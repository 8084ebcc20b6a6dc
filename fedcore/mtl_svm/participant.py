"""What a client of the multi-task SVM keeps and computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from .._clients import codes_of
from .._kernels._compact import compact
from .._kernels._svm import N_SOLVE_FIGURES, N_UPDATE_FIGURES, SVMCohort
from ..federation.check import check_kept
from ..federation.contract import Cohort, Entries, Key
from . import certificate, contact
from .warm import feasible

LOSSES = (
    "hinge",
    "squared_hinge",
    "epsilon_insensitive",
    "squared_epsilon_insensitive",
)  # in the order of fc_svm_loss
MIRROR_LIMIT = 1e60  # of |x|^2, above which float32 might not hold a row
# What visits change: arrays that the kernel or this module fills, and others.
IN_PLACE = ("b", "s", "b_before", "s_before", "rest", "violation", "kept", "met")
REPLACED = ("tried", "best")
COUNTED_ROWS = 1000  # a count of entries need not be exact
SOLVE_PASSES = 2000  # at most, for one client at one w: a call must end soon


@dataclass(slots=True)
class Clients:
    """The state of a cohort: one long array for each quantity, client after client.

    Local vectors hold a client's own columns only: `starts` cuts them, `columns`
    tells where each entry belongs (None for dense rows: everywhere).
    """

    kernel: SVMCohort
    b: np.ndarray
    n_classes: int
    length: int  # of w: columns of X, and the constant column if there is one
    starts: np.ndarray
    columns: np.ndarray | None
    s: np.ndarray
    kept: np.ndarray | None  # s of the best round, under "envelope"
    absent: np.ndarray | None
    inv_C2: np.ndarray  # (2, C) 1 / C2, and 0 where a class is absent
    mirrored: bool  # there is a float32 copy of the rows for rough passes
    rest: np.ndarray  # which rows passes leave out for now
    violation: np.ndarray  # (K, C) of the last pass
    b_before: np.ndarray | None = None  # b and s as before the last visit
    s_before: np.ndarray | None = None
    met: np.ndarray | None = None  # (2, K, C) gaps at the last w, before and after work
    personal: np.ndarray | None = None  # (length) 0: there v_k is 0; None: nowhere
    held_code: np.ndarray | None = None  # labels of held-out rows
    tried: Any = None  # s that was scored last
    best: Any = None  # s that was scored best, if that was not the last

    def widths(self, active: np.ndarray) -> np.ndarray:
        """Count the entries of the active clients' local vectors."""
        return self.starts[active + 1] - self.starts[active]


def join(cohort: Cohort, svm: Any, agreement: dict) -> Clients:
    """Set up the clients of a cohort at b = 0."""
    X, offsets = cohort.X, cohort.offsets
    (n, d), K, C = X.shape, cohort.n_clients, agreement["n_classes"]
    has_bias = svm.bias != 0
    length = d + has_bias
    columns = indptr = indices = None
    if sparse.issparse(X):
        starts = np.empty(K + 1, np.int64)
        indices = np.empty(X.nnz, np.int32)
        columns = np.empty(X.nnz + has_bias * K, np.int32)
        place, bits = np.empty(d, np.int32), np.zeros(d // 64 + 1, np.uint64)
        n_places = compact(
            *(offsets, X.indptr, X.indices, d, has_bias),
            *(place, bits, indices, columns, starts),
        )
        columns, indptr, data = columns[:n_places], X.indptr, X.data
    else:
        starts = np.arange(K + 1, dtype=np.int64) * length
        data = X.reshape(-1)

    code = target = absent = None
    if cohort.classes is None:
        target = cohort.y
    else:
        code = codes_of(cohort, agreement["classes"])
        if C > 1:
            absent = _absent(code, cohort, C)
    personal = own_sqnorm = None
    if svm.own_columns is not None:
        personal, own_sqnorm = np.zeros(length, np.uint8), np.empty(n)
        personal[list(svm.own_columns)] = personal[d:] = 1
    # Passes are bound by memory: half the bytes, and the certificate stays exact.
    has_lone = svm.mirrors and svm.aggregation == "sequential"
    has_lone = has_lone and personal is None and _comes_once(columns, indices)
    mirror = None
    if svm.mirrors and not has_lone and data.dtype == np.float64:
        mirror = np.empty(len(data), np.float32)
    envelope = svm.aggregation == "envelope"
    auto = svm.aggregation == "auto"
    b = _zeros(C * n)
    if cohort.warm is not None:
        b = feasible(cohort, svm, code, agreement["class_weight"])
    s, sqnorm = _zeros(C * starts[-1]), np.empty(n)
    b_before = s_before = None
    if not envelope:  # a warm start steps from 0, where everything is feasible
        b_before, s_before = np.zeros(C * n), np.zeros(len(s))
    rest, violation = np.zeros(C * n, np.uint8), np.full((K, C), np.inf)
    kernel = SVMCohort(
        *(offsets, starts, columns, indptr, indices, data, d),
        loss=LOSSES.index(svm.loss),
        n_classes=C,
        C1=svm.C1,
        epsilon=svm.epsilon,
        bias=svm.bias,
        code=code,
        target=target,
        weight=cohort.sample_weight,
        class_weight=agreement["class_weight"],
        absent=absent,
        sqnorm=sqnorm,
        b=b,
        s=s,
        b_before=b_before,
        s_before=s_before,
        rest=rest,
        violation=violation,
        mirror=mirror,
        personal=personal,
        own_sqnorm=own_sqnorm,
    )
    if has_lone:
        _set_lone_apart(kernel, n, len(indices), len(columns), K)
    mirrored = has_lone or mirror is not None
    mirrored = mirrored and sqnorm.max(initial=0) < MIRROR_LIMIT
    inv_C2 = np.zeros((2, C))
    inv_C2[0] = 1 / svm.C2
    kept = _zeros(len(s)) if envelope or auto else None
    met = np.zeros((2, K, C)) if agreement.get("certify") else None
    cs = Clients(
        *(kernel, b, C, length, starts, columns, s, kept, absent, inv_C2, mirrored),
        *(rest, violation, b_before, s_before),
        met=met,
        personal=personal,
    )
    if cohort.held_out is not None and cohort.held_out.classes is not None:
        cs.held_code = codes_of(cohort.held_out, agreement["classes"])
    if cohort.warm is not None:
        _sum_up(cohort, cs)
    return cs


def dump(cs: Clients) -> dict[str, np.ndarray]:
    """Copy what visits change."""
    return {
        name: getattr(cs, name).copy()
        for name in (*IN_PLACE, *REPLACED)
        if getattr(cs, name) is not None
    }


def restore(cs: Clients, kept: Mapping[str, np.ndarray]) -> None:
    """Put back what `dump` gave into clients that have just joined."""
    own = {name: getattr(cs, name) for name in IN_PLACE}
    own = {name: array for name, array in own.items() if array is not None}
    check_kept(own | {name: cs.s for name in REPLACED if name in kept}, kept)
    for name, value in kept.items():
        if name in own:
            own[name][...] = value  # the kernel holds the address
        else:
            setattr(cs, name, value.copy())


def _sum_up(cohort: Cohort, cs: Clients) -> None:
    """Compute s = X' b of every client."""
    C = cs.n_classes
    cs.kernel.solve(
        *(np.arange(cohort.n_clients, dtype=np.int32), None),
        *(np.zeros((C, cs.length)), np.zeros(C * cs.length)),
        np.zeros((C, N_SOLVE_FIGURES)),
        tol=np.full(C, -np.inf),
        inv_C2=cs.inv_C2,
        true_inv_C2=cs.inv_C2,
        working=np.ones(C, np.uint8),
        passes=0,
        seed=0,
        exchange=0,
        first_client=cohort.first,
        renew=True,
    )


def _comes_once(columns: np.ndarray | None, indices: np.ndarray | None) -> bool:
    """Whether at least half of the entries are alone in their column at the client."""
    # Others share one: len(columns) <= lone + (len(indices) - lone) / 2.
    return columns is not None and 4 * len(columns) >= 3 * len(indices) > 0


def _set_lone_apart(kernel: SVMCohort, n: int, n_entries: int, n_columns, K) -> None:
    kernel.set_lone_apart(
        *(np.empty(n, np.int32), np.empty(n_entries, np.int32)),
        *(np.empty(n_entries, np.float32), np.empty(n)),
        *(np.empty(n_columns, np.int32), np.empty(K + 1, np.int64)),
    )


def _zeros(n: int) -> np.ndarray:
    # Written at once, large arrays get large pages; those of np.zeros fault in one by
    # one, which costs more than a pass over the rows.
    return np.full(n, 0.0)


def _absent(code: np.ndarray, cohort: Cohort, n_classes: int) -> np.ndarray | None:
    present = presence(code, cohort, n_classes)
    return None if present.all() else (~present).astype(np.uint8)


def presence(code: np.ndarray, cohort: Cohort, n_classes: int) -> np.ndarray:
    """Tell which classes each client has among its rows of positive weight."""
    K = cohort.n_clients
    owner = np.repeat(np.arange(K), np.diff(cohort.offsets))
    if cohort.sample_weight is not None:
        counts = cohort.sample_weight > 0
        owner, code = owner[counts], code[counts]
    cells = np.bincount(owner * n_classes + code, minlength=K * n_classes)
    return cells.reshape(K, n_classes) > 0


def count_entries(X: Any) -> int:
    """Count entries that are not zero, from about a thousand rows if there are more.

    It decides how to go about the rows, and must say the same of both their forms.
    """
    n = X.shape[0]
    step = max(1, n // COUNTED_ROWS)
    if sparse.issparse(X):
        counted = np.diff(X.indptr)[::step].sum()
    else:
        counted = np.count_nonzero(X[::step])
    return int(counted * n // max(1, len(range(0, n, step))))


def improve(
    cohort: Cohort, cs: Clients, message: dict, active: np.ndarray, key: Key
) -> dict:
    """Run local passes from the broadcast w; reply with the change of s."""
    hand_on = bool(message["hand_on"])
    figures = np.zeros((cs.n_classes, N_UPDATE_FIGURES))
    if hand_on:
        w, packed = message["w"].copy(), False
        total = w.reshape(-1)  # not used
    else:
        w = np.require(message["w"], requirements=["C", "W"])
        total, packed = _room(cs, active)
    step, gaps = message["step"], None
    if message["certify"]:
        gaps = np.zeros((cs.n_classes, certificate.N_FIGURES))
        gaps[:, certificate.OLD] = contact.last_gaps(cs, active, step)
        # The first one takes the step.
        gaps[:, certificate.BEFORE] = contact.meet(cs, 0, active, step, message)
        step = None
    cs.kernel.update(
        *(active, step, w, total, figures),
        coupling=message["coupling"],
        inv_C2=cs.inv_C2,
        working=message["working"],
        passes=message["passes"],
        hand_on=hand_on,
        seed=key[0],
        exchange=key[1],
        first_client=cohort.first,
        packed=packed,
        rough=cs.mirrored and bool(message["rough"]),
    )
    if hand_on:
        w -= message["w"]
        w /= message["coupling"][:, None]
    reply = {"ds": _reply_sum(cs, active, total, packed), "figures": figures}
    if gaps is not None:
        gaps[:, certificate.AFTER] = contact.meet(cs, 1, active, None, message)
        reply["gaps"] = gaps
    return reply


def solve(
    cohort: Cohort, cs: Clients, message: dict, active: np.ndarray, key: Key
) -> dict:
    """Solve the local duals at the broadcast w, or only measure; reply with s.

    A tolerance of minus infinity asks for the measure alone.
    """
    if "keep" in message:
        keep_best(cs, active, message["keep"])
    inv_C2 = np.ascontiguousarray(message.get("inv_C2", cs.inv_C2))
    figures = np.zeros((cs.n_classes, N_SOLVE_FIGURES))
    total, packed = _room(cs, active)
    cs.kernel.solve(
        *(active, message.get("step"), message["w"], total, figures),
        tol=message["tol"],
        inv_C2=inv_C2,
        true_inv_C2=cs.inv_C2,
        working=message["working"],
        passes=SOLVE_PASSES,
        seed=key[0],
        exchange=key[1],
        first_client=cohort.first,
        renew=cs.mirrored and bool(message.get("renew", False)),
        packed=packed,
    )
    if message["certify"]:
        contact.meet(cs, 0, active, None, message)
        cs.met[1, active] = cs.met[0, active]
    return {"s": _reply_sum(cs, active, total, packed), "figures": figures}


def settled(cs: Clients, step: np.ndarray) -> np.ndarray:
    """Give s as the coordinator's steps (K, C) leave it; nothing changes."""
    if cs.s_before is None:
        return cs.s.copy()
    share = np.repeat(step.reshape(-1), np.repeat(np.diff(cs.starts), cs.n_classes))
    return np.where(share == 1, cs.s, cs.s_before + share * (cs.s - cs.s_before))


def keep_best(cs: Clients, active: np.ndarray, keep: np.ndarray) -> None:
    """Copy s of the active clients aside, in the classes where it was the best yet."""
    if not keep.any():
        return
    for first, last in _stretches(active):
        place = slice(cs.n_classes * cs.starts[first], cs.n_classes * cs.starts[last])
        if keep.all():
            cs.kept[place] = cs.s[place]
        else:
            widths = cs.starts[first + 1 : last + 1] - cs.starts[first:last]
            chosen = np.repeat(
                np.tile(keep, last - first), np.repeat(widths, cs.n_classes)
            )
            np.copyto(cs.kept[place], cs.s[place], where=chosen)


def settle(cs: Clients, settled: np.ndarray) -> np.ndarray:
    """Give s, in the classes that are settled as it was kept."""
    widths = np.repeat(np.diff(cs.starts), cs.n_classes)
    chosen = np.repeat(np.tile(settled, len(cs.starts) - 1), widths)
    np.copyto(cs.s, cs.kept, where=chosen)
    return cs.s


def _stretches(active: np.ndarray) -> list[tuple[int, int]]:
    """Find the runs first .. last of neighbouring clients."""
    breaks = np.flatnonzero(np.diff(active) != 1) + 1
    return [(int(run[0]), int(run[-1]) + 1) for run in np.split(active, breaks)]


def personal_models(cs: Clients, s: Any) -> Any:
    """v_k = s_k / C2: (K, C, length), or CSR (K C, length) when the rows are sparse."""
    K, C = len(cs.starts) - 1, cs.n_classes
    v = s * cs.inv_C2[0, 0]
    widths = np.repeat(np.diff(cs.starts), C)
    if cs.absent is not None:
        v[np.repeat(cs.absent.reshape(-1) > 0, widths)] = 0
    if cs.columns is None:
        v = v.reshape(K, C, cs.length)
        if cs.personal is not None:
            v[:, :, cs.personal == 0] = 0
        return v
    columns = cs.columns
    if C > 1:
        columns = np.concatenate(
            [np.tile(cs.columns[a:b], C) for a, b in pairwise(cs.starts.tolist())]
        )
    indptr = np.concatenate([[0], np.cumsum(widths)])
    if cs.personal is not None:
        is_own = cs.personal[columns] > 0
        indptr = np.concatenate([[0], np.cumsum(is_own)])[indptr]
        v, columns = v[is_own], columns[is_own]
    return sparse.csr_array((v, columns, indptr), shape=(K * C, cs.length))


def _room(cs: Clients, active: np.ndarray) -> tuple[np.ndarray, bool]:
    """Room for the sum over the active clients, packed when that is much smaller."""
    if cs.columns is not None:
        n_entries = int(cs.widths(active).sum())
        if n_entries < cs.length // 4:
            return np.zeros(cs.n_classes * n_entries), True
    return np.zeros(cs.n_classes * cs.length), False


def _reply_sum(cs: Clients, active: np.ndarray, total: np.ndarray, packed: bool):
    """Bring the sum into the form that is sent: (length, C), sparse as the rows."""
    if cs.columns is None:
        return total.reshape(cs.n_classes, cs.length).T
    counts = cs.widths(active)
    if not packed:
        return Entries(None, total.reshape(cs.n_classes, cs.length).T, counts)
    columns = np.concatenate(
        [cs.columns[cs.starts[k] : cs.starts[k + 1]] for k in active]
    )
    index, place = np.unique(columns, return_inverse=True)
    rows = np.zeros((len(index), cs.n_classes))
    client = np.repeat(np.arange(len(active)), counts)
    ends = np.cumsum(counts)
    for c in range(cs.n_classes):
        at = np.arange(len(columns)) + (cs.n_classes - 1) * (ends - counts)[client]
        rows[:, c] = np.bincount(place, total[at + c * counts[client]], len(index))
    return Entries(index, rows, counts)
