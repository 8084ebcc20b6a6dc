"""Coordinator of "envelope": a quasi-Newton bundle method for each class.

Given w the clients decouple; phi_k(w), the optimum of client k, is convex, and the
coordinator minimises F(w) = 1/2 |w|^2 + sum_k phi_k(w) (math.md, section 1, "Envelope
rounds"). However roughly the clients solve, an evaluation at w brings

- a plane under phi = sum_k phi_k: phi(u) >= d - s . u, with s = sum_k s_k;
- a value above F(w): P = 1/2 |w|^2 + sum_k P_k.

The minimum of the lower model 1/2 |u|^2 + (highest plane) is the dual bound, the best
convex combination of all past duals. The next point minimises the same model plus the
curvature that L-BFGS sees in phi, around the best point yet. Where phi bends smoothly
one plane decides and this is a quasi-Newton step; where phi has kinks (large C2) the
planes know them. A step that does not lower P still adds its plane and its curvature,
so there is no line search.

The state is a flat dict of numbers and arrays, one row a class.
"""

from __future__ import annotations

import numpy as np

MOST_PAIRS = 20
MOST_PLANES = 60
ETA = 0.1  # local gaps, as a share of the descent that the model promises
ROUNDING = 1e-15  # of P: smaller differences mean nothing
SMOOTHING_FROM = 1e9  # C2 above which a plain loss is smoothed along a path
FIRST_C_S = 1e5
HIDDEN = 0.2  # share of P - D that smoothing may hide
PATIENCE = 50  # rounds in which P - D must lose a hundredth


def start(
    n_classes, n_features, n_clients, *, C2, plain_loss, has_absent, first_tol=np.inf
):
    """Begin every class at w = 0, which the first round evaluates.

    Parameters
    ----------
    n_classes, n_features, n_clients : int
    C2 : float
        Of the model; may be infinite.
    plain_loss : bool
        Whether the loss is not squared, so that phi has kinks where C2 is infinite.
    has_absent : bool
        Whether some client holds some personal part at 0, as if C2 were infinite.
    first_tol : float, default=inf
        Local gap at which clients stop in the first round. A hundredth of a client's
        loss at 0 saves a round over the default, a single pass.

    Returns
    -------
    dict
        The state.
    """
    C, d = n_classes, n_features
    smoothed = plain_loss and C2 > SMOOTHING_FROM
    absent_smoothed = plain_loss and (smoothed or has_absent)
    return {
        "n_asked": n_clients,
        "true_inv_C2": 1 / C2,
        "inv_C2": np.full(C, 1 / FIRST_C_S if smoothed else 1 / C2),
        "inv_C2_absent": np.full(C, 1 / FIRST_C_S if absent_smoothed else 0.0),
        "working": np.ones(C, bool),
        "w": np.zeros((C, d)),
        "tol": np.full(C, float(first_tol)),
        "best_w": np.zeros((C, d)),
        "best_s": np.zeros((C, d)),
        "best_primal": np.full(C, np.inf),
        "best_dual": np.zeros(C),
        "gap": np.full(C, np.inf),
        "keep": np.zeros(C, bool),
        # b = 0 is feasible: the first plane is phi >= 0.
        "plane_s": np.zeros((C, 1, d)),
        "plane_d": np.zeros((C, 1)),
        "plane_use": np.zeros((C, 1)),
        "pair_w": np.zeros((C, 0, d)),
        "pair_g": np.zeros((C, 0, d)),
        "stiffness": np.ones(C),
        "idle": np.zeros(C, int),
        "idle_gap": np.full(C, np.inf),
    }


def point(state):
    """Say what the next round evaluates, and how exactly.

    Returns
    -------
    dict
        w (C, d); tol (C,), the local gap at which each client stops; inv_C2 and
        inv_C2_absent (C,), the curvature for clients with and without the class;
        working (C,), classes that are not done; keep (C,), whether the s_k with which
        a client comes into this round belong to the best point yet, so that it must
        copy them before it works on. For a class that is done keep stays as it is: its
        s_k no longer change.
    """
    names = ("w", "tol", "inv_C2", "inv_C2_absent", "working", "keep")
    return {name: state[name] for name in names}


def result(state):
    """Give the best point (C, d), its relative gap, its primal, and the last keep."""
    return {
        "w": state["best_w"],
        "gap": state["gap"],
        "primal": state["best_primal"],
        "keep": state["keep"],
    }


def absorb(state, reply, *, tol):
    """Take the sums of a round; judge its point and choose the next one.

    Parameters
    ----------
    state : dict
        Not changed.
    reply : dict
        s (C, d); primal, dual, true_primal, true_dual (C,), the latter two at the C2 of
        the model. Rows of classes that are done are not read.
    tol : float
        A class is done when its relative gap is not above it, or no longer falls.

    Returns
    -------
    dict
        The new state.
    """
    state = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
    _make_room(state)
    for c in np.flatnonzero(state["working"]):
        answer = {name: value[c] for name, value in reply.items()}
        _add_plane(state, c, answer)
        _add_pair(state, c, answer)
        _judge(state, c, answer)
        _move(state, c)
        _smooth_less(state, c, answer)
        state["working"][c] = state["gap"][c] > tol and _hopes(state, c)
    return state


def _make_room(state):
    """Append an empty plane while there are fewer than allowed, and an empty pair."""
    vector = np.zeros_like(state["w"])[:, None]
    number = np.zeros_like(state["tol"])[:, None]
    grown = {"pair_w": vector, "pair_g": vector}
    if state["plane_d"].shape[1] < MOST_PLANES:
        grown |= {"plane_s": vector, "plane_d": number, "plane_use": number}
    for name, empty in grown.items():
        kept = state[name]
        if name.startswith("pair"):
            kept = kept[:, -(MOST_PAIRS - 1) :]
        state[name] = np.concatenate([kept, empty], axis=1)


def _add_plane(state, c, answer):
    s, d, use = (state[name][c] for name in ("plane_s", "plane_d", "plane_use"))
    place = len(use) - 1
    if s[place].any() or d[place] != 0:
        # No room: the two least used planes become one.
        place, other = np.argsort(use, kind="stable")[:2]
        if use[other] > 0:
            share = use[place] / (use[place] + use[other])
            s[other] += share * (s[place] - s[other])
            d[other] += share * (d[place] - d[other])
    s[place], d[place] = answer["s"], answer["true_dual"]


def _add_pair(state, c, answer):
    """Note how the gradient changed from the best point to this one."""
    dw = state["w"][c] - state["best_w"][c]
    dg = dw - (answer["s"] - state["best_s"][c])
    # F is 1-strongly convex: less is noise. Before a first best point dw is 0.
    if dw @ dg >= dw @ dw > 0:
        state["pair_w"][c, -1], state["pair_g"][c, -1] = dw, dg


def _judge(state, c, answer):
    """Make the point evaluated the best one if it is; the flatter of equal ones."""
    w, s = state["w"][c], answer["s"]
    P, best = w @ w / 2 + answer["true_primal"], state["best_primal"][c]
    noise = ROUNDING * abs(P)
    slope = np.linalg.norm(w - s)
    best_slope = np.linalg.norm(state["best_w"][c] - state["best_s"][c])
    keep = P < best - noise or (P <= best + noise and slope < best_slope)
    if keep:
        state["best_w"][c], state["best_s"][c], state["best_primal"][c] = w, s, P
    state["keep"][c] = keep


def _move(state, c):
    """Update bound and gap; choose the next point and how exactly to evaluate it."""
    w, P = state["best_w"][c], state["best_primal"][c]
    height = state["plane_d"][c] - state["plane_s"][c] @ w
    below = height.max() - height
    F = w @ w / 2 + height.max()  # at least
    slope = w - state["plane_s"][c]

    share = _best_weights(slope @ slope.T, below)
    fall = share @ below + np.sum((share @ slope) ** 2) / 2
    D = state["best_dual"][c] = max(state["best_dual"][c], F - fall)
    state["gap"][c] = max(P - D, 0.0) / P if P > 0 else 0.0

    pairs, stiffness = (state["pair_w"][c], state["pair_g"][c]), state["stiffness"][c]
    steps = _newton(*pairs, stiffness, slope)
    weights = _best_weights(steps @ slope.T, below)
    step = weights @ steps
    promise = P - F + weights @ below + weights @ slope @ step / 2
    state["w"][c] = w - step
    state["plane_use"][c] = share + weights
    tol = max(ETA * min(promise, P - D), 0.1 * ROUNDING * P)
    state["tol"][c] = tol / state["n_asked"]
    # P is nearly as low as it gets and D is not: planes from further off are wanted.
    stiffness *= 0.8 if 20 * promise < P - D else 1.2
    state["stiffness"][c] = min(max(stiffness, 0.05), 1.0)


def _smooth_less(state, c, answer):
    """Follow the smoothing path when it hides too much of what is left."""
    bias = answer["true_dual"] - answer["dual"]
    bias = max(bias, answer["true_primal"] - answer["primal"] - bias)
    most = HIDDEN * max(state["best_primal"][c] - state["best_dual"][c], 0.0)
    if bias <= most:
        return
    shrink = min(max(most / bias, 0.1), 0.5)
    for name, floor in (("inv_C2", state["true_inv_C2"]), ("inv_C2_absent", 0.0)):
        state[name][c] = max(shrink * state[name][c], floor)


def _hopes(state, c):
    """Whether the gap still falls, and the next point is one."""
    gap = max(state["best_primal"][c] - state["best_dual"][c], 0.0)
    if gap < 0.99 * state["idle_gap"][c]:
        state["idle"][c], state["idle_gap"][c] = 0, gap
    else:
        state["idle"][c] += 1
    return state["idle"][c] < PATIENCE and np.isfinite(state["w"][c]).all()


def _newton(pair_w, pair_g, stiffness, rows):
    """Multiply rows by the inverse of I + stiffness (L-BFGS Hessian of F - I)."""
    used = np.flatnonzero(pair_w.any(axis=1))
    if not len(used):
        return rows
    W = pair_w[used]
    G = (1 - stiffness) * W + stiffness * pair_g[used]
    bend = np.einsum("ij,ij->i", W, G)
    rows, a = rows.copy(), np.empty((len(used), len(rows)))
    for i in reversed(range(len(used))):
        a[i] = rows @ W[i] / bend[i]
        rows -= np.outer(a[i], G[i])
    # A median: one step over a kink must not set the scale of all directions.
    rows /= np.median(np.einsum("ij,ij->i", G, G) / bend)
    for i in range(len(used)):
        rows += np.outer(a[i] - rows @ G[i] / bend[i], W[i])
    return rows


def _best_weights(gram, below):
    """Minimise 1/2 l' gram l + below . l over the simplex by an active set.

    Whatever the rounding, the weights returned are of the simplex.
    """
    on = np.zeros(len(below), bool)
    on[np.argmin(below + gram.diagonal() / 2)] = True
    weights = on.astype(float)
    for _ in range(10 * len(below)):
        if on.sum() > 1 and _within(gram, below, weights, on):
            continue
        slope = below + gram @ weights
        gain = np.where(on, 0.0, weights @ slope - slope)
        if not gain.max() > 1e-9 * (weights @ (below + slope)):
            break
        on[gain.argmax()] = True
    return weights


def _within(gram, below, weights, on):
    """Move to the minimum over the weights that are on, as far as the simplex goes.

    True if one of them ended at 0 and was put off.
    """
    inside = np.flatnonzero(on)
    slope = below[inside] + gram[inside] @ weights
    heaviest = weights[inside].argmax()
    base, others = inside[heaviest], np.delete(inside, heaviest)
    cross = gram[others, base]
    bend = gram[np.ix_(others, others)] - cross[:, None] - cross + gram[base, base]
    # Equal planes make it singular; so much is lost in its rounding.
    size = gram.diagonal()[others] + gram[base, base]
    bend[np.diag_indices_from(bend)] += ROUNDING * size + 1e-300
    try:
        move = np.linalg.solve(bend, slope[heaviest] - np.delete(slope, heaviest))
    except np.linalg.LinAlgError:
        return False
    if not np.isfinite(move).all():
        return False
    move = np.insert(move, heaviest, -move.sum())
    old, falls = weights[inside], move < 0
    room = np.where(falls, old / np.where(falls, -move, 1), np.inf)
    share = min(room.min(), 1.0)
    weights[inside] = np.maximum(old + share * move, 0)
    weights /= weights.sum()
    if share == 1:
        return False
    out = inside[room.argmin()]
    weights[out], on[out] = 0, False
    return True
