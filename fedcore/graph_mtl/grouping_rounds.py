"""How the coordinator learns who belongs together: requests, replies, regrouping."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..federation.contract import Each, Request, State
from . import participant, similarity
from .encoders import random_encoder
from .grouping import affinity, by_first_member, paper_groups, spectral_groups

if TYPE_CHECKING:
    from .protocol import GraphMTL

TRIAL_GAIN = 0.1  # share of its loss that a client's own trial step is to take off


def start(method: GraphMTL, n_clients: int, n_features: int) -> State:
    """Give what is known of similarities before anybody was asked."""
    state: State = {"heard": np.zeros(n_clients, bool), "eigenvalues": np.zeros(0)}
    if method.statistic == "models":
        size = n_features * (n_features + 1) // 2
        state["models"] = np.zeros((n_clients, n_features))
        state["covariances"] = np.zeros((n_clients, size))
    else:
        state["Z"] = np.zeros((n_clients, n_clients))
        state["n_seen"] = np.zeros((n_clients, n_clients))
        state["n_probes"] = 0
    return state


def probes_wanted(method: GraphMTL) -> int:
    """Random encoders that are tried before the first grouping."""
    return method.n_probes if method.statistic == "probes" else 1


def request(method: GraphMTL, state: State) -> Request:
    """Ask for what the next similarities need."""
    N, p = len(state["heard"]), state["base"].shape[1]
    if state["task"] == "models":
        kinds = {
            "model": Each(state["models"].shape[1:]),
            "covariance": Each(state["covariances"].shape[1:]),
        }
        missing = np.flatnonzero(~state["heard"]).astype(np.int32)
        clients = missing if len(missing) < N else None
        everything = {"work": participant.MODEL}
        return Request(everything, kinds, clients=clients, everyone=True)
    own = method.statistic == "paper"
    everything = {"own": own}
    each = {"s": (state["base"], state["labels"])} if own else {}
    if not own:
        everything["s"] = state["common"]
    if state["task"] == "trial":
        everything |= {"work": participant.TRIAL, "moves": state["moves"]}
        return Request(everything, {"after": Each((N,))}, each=each, everyone=True)
    everything["work"] = participant.PROBE
    kinds = {"gradient": Each((p,)), "loss": Each(())}
    return Request(everything, kinds, each=each, everyone=True)


def next_probe(method: GraphMTL, state: State) -> None:
    """Draw the next common point."""
    state["task"] = "probe"
    if method.statistic == "probes":
        rng = np.random.default_rng([state["seed"], 1, state["n_probes"]])
        state["common"] = random_encoder(
            method.encoder, state["n_features"], method.n_components, rng
        )


def combine(method: GraphMTL, state: State, reply: dict, who: np.ndarray) -> bool:
    """Fold what came; say whether this measurement is complete."""
    if state["task"] == "models":
        state["models"][who] = reply["model"][who]
        state["covariances"][who] = reply["covariance"][who]
        state["heard"] |= who
        return True
    if state["task"] == "trial":
        gain = 1 - reply["after"][who] / state["before"][who, None]
        _learn(method, state, gain.T, who)
        return True
    gradient, loss = reply["gradient"], reply["loss"]
    if method.transference == "exact":
        state["moves"] = _moves(method, state, gradient, loss, who)
        state["before"] = np.where(who, np.maximum(loss, np.finfo(float).tiny), 1.0)
        state["task"] = "trial"
        return False
    G = gradient[who]
    if method.statistic == "paper":
        Z = state["step_of"][who, None] * (G @ G.T)
        Z = Z / np.maximum(loss[who], np.finfo(float).tiny)
    else:
        length = np.linalg.norm(G, axis=1, keepdims=True)
        G = G / np.where(length > 0, length, 1)
        Z = G @ G.T
    _learn(method, state, Z, who, answered=True)
    return True


def _moves(method, state, gradient, loss, who):
    """Give the steps (N, p) that all peers try; zero for who is silent."""
    squares = np.where(who, (np.where(who[:, None], gradient, 0) ** 2).sum(axis=1), 0)
    if method.statistic == "paper":
        length = state["step_of"]
    else:
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.where(squares > 0, TRIAL_GAIN * loss / squares, 0)
    return np.where(squares[:, None] > 0, length[:, None] * gradient, 0)


def _learn(method, state, Z, who, answered=False):
    """Add similarities among those that answered to the running mean.

    Of a trial all columns of Z are there, and rows of those that answered.
    """
    places = np.flatnonzero(who)
    if not answered:
        Z = Z[places]
        if method.statistic == "probes":
            Z = _cosines(Z)
    at = np.ix_(places, places)
    state["n_seen"][at] += 1
    state["Z"][at] += (Z - state["Z"][at]) / state["n_seen"][at]
    state["n_probes"] += 1
    state["heard"] |= who


def _cosines(Z):
    """Make cosines of gains Z[i, j] of j by a step of i, whatever their lengths."""
    own = np.sqrt(np.maximum(Z.diagonal(), 0))
    mutual = np.sqrt(np.maximum(Z, 0) * np.maximum(Z.T, 0))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosine = mutual / own / own[:, None]
    return np.where(np.isfinite(cosine), np.minimum(cosine, 1), 0)


def regroup(method: GraphMTL, state: State) -> np.ndarray:
    """Give labels by all that is known.

    Clients of which nothing was heard go with most of their last group.
    """
    heard = state["heard"]
    known = np.flatnonzero(heard)
    if not len(known):
        return state["labels"]
    if method.statistic == "models":
        V = similarity.unpack(state["covariances"][known], state["n_features"])
        P = similarity.model_affinity(state["models"][known], V)
        part, state["eigenvalues"] = spectral_groups(P)
    else:
        S = state["Z"][np.ix_(known, known)]
        S = (S + S.T) / 2
        if method.statistic == "paper":
            part, state["eigenvalues"] = paper_groups(S)
        else:
            P = affinity(S, method.background)
            part, state["eigenvalues"] = spectral_groups(P)
    before, n_groups = state["labels"], part.max() + 1
    labels = np.empty(len(heard), np.int64)
    labels[known] = part
    for old in np.unique(before[~heard]):
        there = part[before[known] == old]
        group = np.argmax(np.bincount(there)) if len(there) else n_groups + old
        labels[~heard & (before == old)] = group
    if method.statistic == "paper":  # a mean over the rounds since the last regrouping
        state["Z"] = np.zeros_like(state["Z"])
        state["n_seen"] = np.zeros_like(state["n_seen"])
        state["heard"] = np.zeros_like(heard)
    return by_first_member(labels)
