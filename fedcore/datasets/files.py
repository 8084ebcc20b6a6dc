"""Read files that say which client each row belongs to."""

from pathlib import Path
from zipfile import BadZipFile
from zlib import error as ZlibError

import numpy as np
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from fedcore.datasets.check import check_count


def load_clients(path, *, client_column=None):
    r"""Load rows, labels and clients from an ``.npz`` or svmlight file.

    A file whose name ends in ``.npz`` holds plain NumPy arrays: ``client`` (or
    ``domain``), one integer a row; ``y``; and either ``X`` or the parts ``data``,
    ``indices``, ``indptr``, ``shape`` of a CSR matrix.

    Every other file is read as svmlight / libsvm text, which may be compressed
    (``.gz``, ``.bz2``): lines ``label qid:3 1:0.5 7:2``. The client is the ``qid``, or
    the value of the feature that `client_column` names.

    Parameters
    ----------
    path : str or path-like
        The file.
    client_column : int, default=None
        For svmlight files: the number, as written in the file, of the feature that
        holds the client. It is taken out of `X`. None uses the ``qid``.

    Returns
    -------
    X : ndarray or csr_array of shape (n, d)
        float32 if that holds the stored values exactly or they are float32, float64
        otherwise. Missing values (NaN) are left in.
    y : ndarray of shape (n,) or (n, t)
        Integers as int64, floats as stored.
    clients : ndarray of shape (n,), int64
        The identifiers as stored: rows need not be sorted by them, and they need not
        start at 0.

    Raises
    ------
    ValueError
        If the file does not say which client a row belongs to, or its parts do not
        fit together.

    See Also
    --------
    partition_by_column : Clients from a column of any table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from fedcore.datasets import load_clients
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "rows.svm"
    ...     _ = path.write_text("1 qid:4 1:2.0\n-1 qid:9 2:1.0\n")
    ...     X, y, clients = load_clients(path)
    >>> clients
    array([4, 9])
    """
    path = Path(path)
    if path.suffix == ".npz":
        if client_column is not None:
            raise ValueError(
                f"{path.name}: client_column is for svmlight files, the clients of an "
                ".npz file are its array 'client'."
            )
        return _load_npz(path)
    return _load_svmlight(path, client_column)


def _load_npz(path):
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = dict(stored)
    except (BadZipFile, EOFError, TypeError, ValueError, ZlibError) as error:
        raise ValueError(
            f"{path.name} is not an .npz file of plain arrays: {error}"
        ) from error

    clients = arrays.get("client", arrays.get("domain"))
    if clients is None or "y" not in arrays:
        raise ValueError(
            f"{path.name} holds the arrays {', '.join(arrays)}; expected 'y' and "
            "'client' (or 'domain'), one entry a row, beside 'X'."
        )
    X, y = _matrix(arrays, path), arrays["y"]
    for name, array in (("y", y), ("client", clients)):
        if array.ndim == 0 or len(array) != X.shape[0]:
            raise ValueError(
                f"{path.name}: {name} has shape {array.shape}, X has {X.shape[0]} rows."
            )
    if clients.ndim != 1 or clients.dtype.kind not in "iu":
        raise ValueError(
            f"{path.name}: client is {clients.dtype} of shape {clients.shape}, "
            "expected one integer a row."
        )
    if y.dtype.kind in "iu":
        # Differences of unsigned or 8-bit labels would wrap around.
        y = y.astype(np.int64)
    return X, y, clients.astype(np.int64)


def _matrix(arrays, path):
    """Return X, dense or CSR, in the smallest float type that holds it exactly."""
    if "X" in arrays:
        X = arrays["X"]
        if X.ndim != 2 or X.dtype.kind not in "fiub":
            raise ValueError(
                f"{path.name}: X is {X.dtype} of shape {X.shape}, expected a table of "
                "numbers."
            )
        return X.astype(np.result_type(X, np.float32), copy=False)

    parts = ("data", "indices", "indptr", "shape")
    if not all(name in arrays for name in parts):
        raise ValueError(
            f"{path.name} holds the arrays {', '.join(arrays)}; expected 'X' or all of "
            f"{', '.join(parts)}."
        )
    data, indices, indptr, shape = (arrays[name] for name in parts)
    data = data.astype(np.result_type(data, np.float32), copy=False)
    try:
        # Signed offsets: the stored ones may be the smallest unsigned type that fits.
        index = np.result_type(indices, indptr, np.int32)
        X = csr_array(
            (data, indices.astype(index), indptr.astype(index)), shape=tuple(shape)
        )
        X.check_format(full_check=True)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path.name} is not a valid CSR matrix: {error}") from error
    return X


def _load_svmlight(path, client_column):
    try:
        X, y, qid = load_svmlight_file(str(path), query_id=True, zero_based=True)
    except ValueError as error:
        raise ValueError(f"{path.name} is not an svmlight file: {error}") from error
    X = X.tocsc()
    drop = []
    if X.shape[1] > 1 and X.indptr[1] == 0:
        drop.append(0)  # features are counted from 1

    if client_column is not None:
        check_count(client_column, "client_column", len(drop))
        if client_column >= X.shape[1]:
            raise ValueError(
                f"client_column is {client_column}, the features of {path.name} end at "
                f"{X.shape[1] - 1}."
            )
        values = X[:, [client_column]].toarray().ravel()
        clients = values.astype(np.int64)
        if not np.array_equal(clients, values):
            row = np.flatnonzero(clients != values)[0]
            raise ValueError(
                f"{path.name}: feature {client_column} is {values[row]} in row {row}, "
                "expected whole numbers as clients."
            )
        drop.append(client_column)
    elif len(qid) == X.shape[0] > 0:
        clients = qid.astype(np.int64)
    else:
        raise ValueError(
            f"{path.name} has {X.shape[0]} rows and a qid in {len(qid)} of them; "
            "expected a qid in each row, or client_column."
        )
    kept = np.delete(np.arange(X.shape[1]), drop)
    return csr_array(X[:, kept]), y, clients
