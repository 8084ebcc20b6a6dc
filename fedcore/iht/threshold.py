"""Hard thresholding: keep the entries of largest magnitude."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from sklearn.utils import check_array, check_scalar

from .._kernels._select import top_f32, top_f64


def hard_threshold(x, n_nonzero):
    """Keep the `n_nonzero` entries of largest magnitude, set the others to 0.

    Exactly `n_nonzero` entries stay; among equal magnitudes the one that comes first
    wins. With `n_nonzero` at least the size of `x`, all stay.

    Parameters
    ----------
    x : array-like of any shape
        Taken as one long vector in C order. float32 stays float32.
    n_nonzero : int
        Number of entries that stay, at least 0.

    Returns
    -------
    ndarray of the shape of x
        A new array.

    Raises
    ------
    TypeError, ValueError
        If `n_nonzero` is no such number, or `x` holds NaN or infinity.

    Examples
    --------
    >>> from fedcore import hard_threshold
    >>> hard_threshold([1.0, -3.0, 1.0, 0.5], 2)
    array([ 1., -3.,  0.,  0.])
    """
    check_scalar(n_nonzero, "n_nonzero", Integral, min_val=0)
    x = check_array(
        x,
        dtype=[np.float64, np.float32],
        order="C",
        ensure_2d=False,
        allow_nd=True,
        ensure_min_samples=0,
        ensure_min_features=0,
        input_name="x",
    )
    flat, out = x.reshape(-1), np.zeros_like(x)
    kept = top(flat, int(n_nonzero))
    out.reshape(-1)[kept] = flat[kept]
    return out


def top(x: np.ndarray, n_nonzero: int, place: np.ndarray | None = None) -> np.ndarray:
    """List what `hard_threshold` keeps of a vector, ascending; zeros are not listed.

    `place` (n,) int32, all different, says which of two equal magnitudes comes first;
    None: the position.
    """
    n_nonzero = min(n_nonzero, len(x))
    out = np.empty(n_nonzero, np.int32)
    select = top_f32 if x.dtype.itemsize == 4 else top_f64
    return out[: select(x, n_nonzero, out, 0, place)]


def top_pairs(
    index: np.ndarray, value: np.ndarray, n_nonzero: int
) -> tuple[np.ndarray, np.ndarray]:
    """Apply `hard_threshold` to pairs with distinct ascending places."""
    kept = top(value, n_nonzero)
    return index[kept], value[kept]
