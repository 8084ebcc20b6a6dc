"""How large the atoms are, and where they start."""

from __future__ import annotations

import numpy as np

from .sampling import atom_classes

N_BATCHES = 4  # in an atom of automatic size
FIRST = 0.9  # probability of a point's first class


def sizes(
    atom_size: int, batch_size: int, n_rows: np.ndarray, n_classes: int
) -> tuple[int, int]:
    """Settle the points of an atom (0: of automatic size) and of a batch.

    "auto": as many as four batches, but no more than the largest client has rows.
    """
    n = atom_size or min(N_BATCHES * batch_size, int(n_rows.max()))
    n = max(n, n_classes)
    return n, min(batch_size, n)


def column_sums(X: np.ndarray) -> np.ndarray:
    """Give counts, sums and sums of squares (3, d), which `first_atoms` needs."""
    return np.array([np.full(X.shape[1], float(len(X))), X.sum(0), (X**2).sum(0)])


def first_atoms(
    n_atoms: int, n: int, n_classes: int, sums: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw points from a normal with the rows' moments, and classes that stand out."""
    count = np.maximum(sums[0], 1)  # nobody may have answered
    mean = sums[1] / count
    spread = np.sqrt(np.maximum(sums[2] / count - mean**2, 0))
    spread = np.where(sums[0] > 0, spread, 1.0)
    X = mean + spread * rng.normal(size=(n_atoms, n, len(mean)))
    return X, first_logits(n_atoms, n, n_classes)


def first_logits(n_atoms: int, n: int, n_classes: int) -> np.ndarray:
    """Give logits by which the first class of each point has a probability of 0.9."""
    logits = np.zeros((n_atoms, n, n_classes))
    odds = FIRST / (1 - FIRST) * max(n_classes - 1, 1)
    logits[:, np.arange(n), atom_classes(n, n_classes)] = np.log(odds)
    return logits
