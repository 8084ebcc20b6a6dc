"""Shared encoders: h = act(x W + b), and what a slope in h means for W and b.

The parameters of one encoder are a row of p = (d + 1) r numbers: W (d, r), then b (r).
"""

from __future__ import annotations

from typing import Any

import numpy as np

ENCODERS = ("linear", "relu", "tanh")


def n_parameters(n_features: int, n_components: int) -> int:
    """Give p."""
    return (n_features + 1) * n_components


def encode(encoder: str, X: Any, s: np.ndarray) -> np.ndarray:
    """Encode rows (n, d) by parameters (p,): (n, r)."""
    W = s.reshape(X.shape[1] + 1, -1)
    H = np.asarray(X @ W[:-1]) + W[-1]
    if encoder == "relu":
        return np.maximum(H, 0)
    return np.tanh(H) if encoder == "tanh" else H


def pull_back(encoder: str, X: Any, H: np.ndarray, slope: np.ndarray) -> np.ndarray:
    """Differentiate by the parameters, given the slope (n, r) in the codes H."""
    if encoder == "relu":
        slope = np.where(H > 0, slope, 0)
    elif encoder == "tanh":
        slope = slope * (1 - H**2)
    return np.append(np.asarray(X.T @ slope), slope.sum(axis=0))


def random_encoder(
    encoder: str, n_features: int, n_components: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw parameters: orthonormal columns for "linear" if they fit, else N(0, 1/d)."""
    W = rng.standard_normal((n_features, n_components))
    if encoder == "linear" and n_components <= n_features:
        W = np.linalg.qr(W)[0]
    else:
        W /= np.sqrt(n_features)
    return np.append(W, np.zeros(n_components))
