"""Top-tau and IHT steps as one would write them with NumPy and SciPy."""

import numpy as np

from fedcore.iht import reference


def argpartition(x, tau):
    """Select by the usual one-liner."""
    return np.argpartition(np.abs(x), len(x) - tau)[len(x) - tau :]


def argpartition_of_nonzeros(x, tau):
    """Do the same on what is not zero."""
    there = np.flatnonzero(x)
    if len(there) <= tau:
        return there
    return there[argpartition(x[there], tau)]


def argsort(x, tau):
    """Sort all."""
    return np.argsort(np.abs(x))[len(x) - tau :]


def naive(X, y, x, b, rows, step, tau):
    """Dense iterate, sliced rows, the usual one-liner."""
    for batch in rows:
        B = X[batch]
        residual = B @ x + b - y[batch]
        moved = x - step * (B.T @ residual) / len(batch)
        b = b - step * residual.mean()
        kept = argpartition(moved, tau)
        x = np.zeros_like(x)
        x[kept] = moved[kept]
    return x, b


def _entries(X, batch):
    """Columns, values and row numbers of a minibatch, by slices of the CSR arrays."""
    ends = [(X.indptr[i], X.indptr[i + 1]) for i in batch]
    columns = np.concatenate([X.indices[a:e] for a, e in ends])
    values = np.concatenate([X.data[a:e] for a, e in ends])
    return columns, values, [e - a for a, e in ends]


def dense_iterate(X, y, x, b, rows, step, tau):
    """Change a dense iterate in place; select from support and touched columns."""
    x, support = x.copy(), np.flatnonzero(x)
    seen = np.zeros(len(x), bool)
    for batch in rows:
        columns, values, lengths = _entries(X, batch)
        products, start = values * x[columns], 0
        residual = np.add.reduceat(products, np.cumsum([0, *lengths[:-1]])) + b
        residual -= y[batch]
        slope = residual * (-step / len(batch))
        values = values * np.repeat(slope, lengths)
        for length in lengths:  # columns are distinct within a row only
            x[columns[start : start + length]] += values[start : start + length]
            start += length
        seen[columns] = True
        seen[support] = False
        fresh = columns
        if len(batch) > 1:  # keep one of each
            fresh = np.flatnonzero(seen) if len(columns) * 8 > len(x) else None
            if fresh is None:
                fresh = np.unique(columns)
        fresh = fresh[seen[fresh]]
        seen[columns] = False
        places = np.concatenate([support, fresh])
        moved = x[places]
        kept = argpartition(moved, tau)
        x[places] = 0
        support = places[kept]
        x[support] = moved[kept]
        b = b + slope.sum()
    return x, b


def sparse_iterate(X, y, x, b, rows, step, tau):
    """Hold the support and its values only; match columns by sorting."""
    support = np.flatnonzero(x)
    value, d = x[support], len(x)
    for batch in rows:
        columns, values, lengths = _entries(X, batch)
        at = np.searchsorted(support, columns)
        at[at == len(support)] = 0
        products = np.where(support[at] == columns, values * value[at], 0)
        residual = np.add.reduceat(products, np.cumsum([0, *lengths[:-1]])) + b
        residual -= y[batch]
        slope = residual * (-step / len(batch))
        values = values * np.repeat(slope, lengths)
        places, where = np.unique(
            np.concatenate([support, columns]), return_inverse=True
        )
        moved = np.bincount(where, np.concatenate([value, values]))
        kept = np.sort(argpartition(moved, tau))
        support, value = places[kept], moved[kept]
        b = b + slope.sum()
    out = np.zeros(d)
    out[support] = value
    return out, b


STEPS = {
    "naive": naive,
    "dense iterate": dense_iterate,
    "sparse iterate": sparse_iterate,
}


def python(X, y, x, rows, step, tau):
    """Run the loops of reference.py, on the rows of the steps alone."""
    used = np.unique(np.concatenate(rows))
    client = reference.ReferenceClient(X[used], y[used], loss="squared")
    x, b = x[None, :], np.zeros(1)
    for batch in rows:
        _, g, g_b = client.loss_and_gradient(x, b, np.searchsorted(used, batch))
        x, b = reference.threshold(x - step * g, tau), b - step * g_b
    return x, b
