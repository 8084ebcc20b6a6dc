"""Coordinator of "envelope": a quasi-Newton bundle method for each class.

Given w the clients decouple; phi_k(w), the optimum of client k, is convex, and the
coordinator minimises F(w) = 1/2 |w|^2 + sum_k phi_k(w) (math.md, section 1, "Envelope
rounds"). However roughly the clients solved, an evaluation at w brings

- a plane under phi = sum_k phi_k: phi(u) >= d - s . u for every u, with s = sum_k s_k;
- a value above F(w): P = 1/2 |w|^2 + sum_k P_k.

Maximising the lower model 1/2 |u|^2 + (highest plane) over weights of the planes gives
the dual bound, the best convex combination of all past duals. The next point minimises
this model plus the curvature that L-BFGS sees in phi, centred at the best point. Where
phi bends smoothly the last plane decides alone and this is a quasi-Newton step; where
it has kinks (large C2) the planes know them. A step that does not lower P still adds
its plane and its curvature, so there is no line search to fail.
"""

from __future__ import annotations

import numpy as np

MOST_PAIRS = 20
MOST_PLANES = 60
ETA = 0.1  # local gaps, as a share of the descent that the model promises
ROUNDING = 1e-15  # of P: smaller differences mean nothing
SMOOTHING_FROM = 1e4  # C2 above which a plain loss is smoothed along a path
FIRST_C_S = 1e3


def start(n_classes, n_features, n_clients, *, C2, plain_loss, has_absent):
    """Begin every class at w = 0, which the first round evaluates."""
    C, d = n_classes, n_features
    smoothed = plain_loss and C2 > SMOOTHING_FROM
    inv_C_s = 1 / FIRST_C_S
    return {
        "n_asked": n_clients,
        "true_inv_C2": 1 / C2,
        "inv_C2": np.full(C, inv_C_s if smoothed else 1 / C2),
        "inv_C2_absent": np.full(
            C, inv_C_s if smoothed or (plain_loss and has_absent) else 0.0
        ),
        "w": np.zeros((C, d)),
        "tol": np.full(C, np.inf),
        "working": np.ones(C, bool),
        "keep": np.zeros(C, bool),
        "gap": np.full(C, np.inf),
        "best_w": np.zeros((C, d)),
        "best_s": np.zeros((C, d)),
        "best_primal": np.full(C, np.inf),
        "best_dual": np.zeros(C),
        # b = 0 is feasible: the first plane is phi >= 0.
        "plane_s": np.zeros((C, 1, d)),
        "plane_d": np.zeros((C, 1)),
        "plane_use": np.zeros((C, 1)),
        "pair_w": np.zeros((C, 0, d)),
        "pair_g": np.zeros((C, 0, d)),
    }


def point(state):
    """Say what the next round evaluates, and how exactly."""
    names = ("w", "tol", "inv_C2", "inv_C2_absent", "working", "keep")
    return {name: state[name] for name in names}


def result(state):
    """Give the best primal point, with its relative gap and value."""
    return {
        "w": state["best_w"],
        "gap": state["gap"],
        "primal": state["best_primal"],
        "keep": state["keep"],
    }


def absorb(state, reply, *, tol):
    """Take the answers of a round; decide on the next point of each class."""
    state = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in state.items()}
    _make_room(state)
    for c in np.flatnonzero(state["working"]):
        answer = {name: value[c] for name, value in reply.items()}
        _add_plane(state, c, answer)
        _add_pair(state, c, answer)
        _judge(state, c, answer)
        promise = _move(state, c)
        if state["gap"][c] <= tol:
            state["working"][c] = False
        _smooth_less(state, c, answer, promise)
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
    if np.isinf(state["best_primal"][c]):
        return
    dw = state["w"][c] - state["best_w"][c]
    dg = dw - (answer["s"] - state["best_s"][c])
    if dw @ dg >= dw @ dw > 0:  # less is noise: F is 1-strongly convex
        state["pair_w"][c, -1], state["pair_g"][c, -1] = dw, dg


def _judge(state, c, answer):
    """Make the point just evaluated the best one if it is."""
    w, s = state["w"][c], answer["s"]
    P, best = w @ w / 2 + answer["true_primal"], state["best_primal"][c]
    noise = ROUNDING * P
    flatter = np.linalg.norm(w - s) < np.linalg.norm(
        state["best_w"][c] - state["best_s"][c]
    )
    keep = np.isinf(best) or P < best - noise or (P <= best + noise and flatter)
    if keep:
        state["best_w"][c], state["best_s"][c], state["best_primal"][c] = w, s, P
    state["keep"][c] = keep


def _move(state, c):
    """Update the bounds, choose the next point; return the descent it promises."""
    w, P = state["best_w"][c], state["best_primal"][c]
    heights = state["plane_d"][c] - state["plane_s"][c] @ w
    below = heights.max() - heights
    F_low = w @ w / 2 + heights.max()
    slopes = w - state["plane_s"][c]

    share = _best_weights(slopes @ slopes.T, below)
    fall = share @ below + np.sum((share @ slopes) ** 2) / 2
    D = state["best_dual"][c] = max(state["best_dual"][c], F_low - fall)
    state["gap"][c] = max(P - D, 0.0) / P if P > 0 else 0.0

    steps = _newton(state["pair_w"][c], state["pair_g"][c], slopes)
    weights = _best_weights(steps @ slopes.T, below)
    step = weights @ steps
    state["w"][c] = w - step
    state["plane_use"][c] = share + weights
    promise = P - F_low + weights @ below + weights @ slopes @ step / 2
    tol = max(ETA * min(promise, P - D), 0.1 * ROUNDING * P)
    state["tol"][c] = tol / state["n_asked"]
    return promise


def _smooth_less(state, c, answer, promise):
    """Follow the smoothing path when the bias hides what is left to gain."""
    bias = answer["true_dual"] - answer["dual"]
    if bias <= max(promise, 0.0) / 2:
        return
    shrink = np.clip(promise / 2 / bias, 0.1, 0.5)
    for name, floor in (("inv_C2", state["true_inv_C2"]), ("inv_C2_absent", 0.0)):
        if state[name][c] > floor:
            state[name][c] = max(state[name][c] * shrink, floor)


def _newton(pair_w, pair_g, rows):
    """Multiply rows by the inverse Hessian of L-BFGS; without pairs by 1."""
    used = np.flatnonzero(pair_w.any(axis=1))
    if not len(used):
        return rows
    W, G = pair_w[used], pair_g[used]
    bend = np.einsum("ij,ij->i", W, G)
    rows, a = rows.copy(), np.empty((len(used), len(rows)))
    for i in range(len(used))[::-1]:
        a[i] = rows @ W[i] / bend[i]
        rows -= np.outer(a[i], G[i])
    # A median: one step over a kink must not set the scale of all directions.
    rows /= np.median(np.einsum("ij,ij->i", G, G) / bend)
    for i in range(len(used)):
        rows += np.outer(a[i] - rows @ G[i] / bend[i], W[i])
    return rows


def _best_weights(gram, below):
    """Minimise 1/2 l' gram l + below . l over the simplex, by an active set.

    Whatever the rounding, the weights returned are of the simplex.
    """
    on = np.zeros(len(below), bool)
    on[np.argmin(below + gram.diagonal() / 2)] = True
    weights = on.astype(float)
    for _ in range(10 * len(below)):
        slope = below + gram @ weights
        gain = weights @ slope - slope
        if on.sum() > 1:
            put_off = _within(gram, slope, weights, on)
            if put_off is None:
                break
            if put_off:
                continue
            slope = below + gram @ weights
            gain = weights @ slope - slope
        gain[on] = 0
        new = gain.argmax()
        if gain[new] <= 1e-9 * (weights @ (below + slope) / 2):
            break
        on[new] = True
    return weights


def _within(gram, slope, weights, on):
    """Move to the minimum over the weights that are on, as far as the simplex goes.

    True if one of them ended at 0 and was put off, None if there is no such minimum.
    """
    inside = np.flatnonzero(on)
    heaviest = weights[inside].argmax()
    base, others = inside[heaviest], np.delete(inside, heaviest)
    cross = gram[others, base]
    bend = gram[np.ix_(others, others)] - cross[:, None] - cross + gram[base, base]
    # Equal planes make it singular; so much is lost in its rounding.
    size = gram.diagonal()[others] + gram[base, base]
    bend[np.diag_indices_from(bend)] += 1e-15 * size + 1e-300
    try:
        move = np.linalg.solve(bend, slope[base] - slope[others])
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(move).all():
        return None
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
