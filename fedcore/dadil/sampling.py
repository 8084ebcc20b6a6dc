"""Which points of an atom and which rows of a domain make a batch."""

from __future__ import annotations

import numpy as np

# What random numbers are drawn for; with seed and round they name a generator.
START, ATOMS, ROWS, PICK = range(4)


def generator(*key: int) -> np.random.Generator:
    """Give the generator of these numbers, whoever asks and in whatever order."""
    return np.random.default_rng(key)


def atom_classes(n: int, n_classes: int) -> np.ndarray:
    """Class (n,) at which each point of an atom starts: as many of each as can be."""
    return np.arange(n) % n_classes


def strata(codes: np.ndarray) -> list[np.ndarray]:
    """Rows of each class that occurs."""
    order = np.argsort(codes, kind="stable")
    cuts = np.flatnonzero(np.diff(codes[order])) + 1
    return np.split(order, cuts)


def balanced(parts: list[np.ndarray], n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw n rows, from each part as many as can be; a short part's come again."""
    counts = np.full(len(parts), n // len(parts))
    counts[rng.permutation(len(parts))[: n % len(parts)]] += 1
    drawn = [
        rng.choice(rows, count, replace=count > len(rows))
        for rows, count in zip(parts, counts.tolist(), strict=True)
    ]
    return np.concatenate(drawn)


def batch_of_atoms(
    n_atoms: int, atom_size: int, n_classes: int, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw n points (n_atoms, n) of each atom, class-balanced, none of them twice."""
    codes = atom_classes(atom_size, n_classes)
    chosen = []
    for _ in range(n_atoms):
        order = np.lexsort((rng.random(atom_size), codes))
        rank = np.empty(atom_size, np.int64)  # of each point within its class
        rank[order] = np.arange(atom_size) - np.searchsorted(codes[order], codes[order])
        chosen.append(np.lexsort((rng.random(atom_size), rank))[:n])
    return np.array(chosen)
