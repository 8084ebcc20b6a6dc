"""Save fitted estimators and load them, without pickle: numbers in, numbers out.

A saved model is a NumPy .npz archive: `header`, which is JSON in bytes, and the arrays
a0, a1, ... that it names. Nothing in it is ever run.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import fields
from importlib import import_module
from io import BytesIO
from os import PathLike
from pathlib import Path
from struct import error as StructError
from typing import Any
from zipfile import ZIP_STORED, BadZipFile, ZipFile

import numpy as np
from scipy import sparse, stats
from sklearn.pipeline import Pipeline

from ._clients import Groups
from .federation import LocalEngine, Timing
from .federation.checkpoint_file import write_whole
from .federation.message import MessageError
from .federation.record import Record
from .federation.trace import Trace
from .federation.values import decode, encode

# Only these are saved, and only these are ever made by `load`.
_CLASSES = {
    "FedMTLSVC": "fedcore.mtl_svm",
    "FedMTLSVR": "fedcore.mtl_svm",
    "FedIterHT": "fedcore.iht",
    "FedHT": "fedcore.iht",
    "DistributedIHT": "fedcore.iht",
    "FedBestSubset": "fedcore.iht",
    "FedStandardScaler": "fedcore.preprocessing",
    "FederatedSearchCV": "fedcore.model_selection",
    "FedGraphMTL": "fedcore.graph_mtl",
    "DaDiL": "fedcore.dadil",
    "FedDaDiL": "fedcore.dadil",
}
_RECORDS = {"Timing": Timing, "Trace": Trace, "Groups": Groups, "Record": Record}
_SPARSE = {"csr_array": sparse.csr_array, "csr_matrix": sparse.csr_matrix}
_FORM, _VERSION = "fedcore model", 1
_FITTED = re.compile(r"_?[A-Za-z]\w*", re.ASCII)
_BROKEN = (
    *(ValueError, LookupError, TypeError, AttributeError, OverflowError),
    *(BadZipFile, EOFError, NotImplementedError, RuntimeError, StructError),
)


class SavedModelError(ValueError):
    """A model that cannot be saved, or a file that cannot be loaded; says why."""


def save(path: str | PathLike, estimator: Any) -> None:
    """Write an estimator, fitted or not, into a file.

    Parameters
    ----------
    path : path-like
        Is overwritten at once or not at all; customarily ends in ``.npz``.
    estimator : estimator of fedcore

    Raises
    ------
    SavedModelError
        If the estimator is of a class that is not saved, or something in it is: a
        function as the delay of `Timing`, say, or an identifier that is no number,
        string or tuple. Other estimators, such as a Pipeline, are for joblib.

    See Also
    --------
    load

    Examples
    --------
    >>> import fedcore, os, tempfile
    >>> from fedcore.datasets import make_mtl_classification
    >>> X, y, clients = make_mtl_classification(n_clients=5, random_state=0)
    >>> model = fedcore.FedMTLSVC(random_state=0).fit(X, y, clients)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.npz")
    ...     fedcore.save(path, model)
    ...     again = fedcore.load(path)
    >>> bool((again.predict(X, clients) == model.predict(X, clients)).all())
    True
    """
    name = type(estimator).__name__
    if name not in _CLASSES or estimator.__class__ is not _class(name):
        raise SavedModelError(
            f"estimator is a {name}, expected one of {', '.join(_CLASSES)}"
        )
    arrays: list[np.ndarray] = []
    header = {"form": _FORM, "version": _VERSION, "class": name}
    try:
        parts = zip(("params", "fitted"), _take_apart(estimator), strict=True)
        for part, plain in parts:
            header[part] = encode(plain, arrays, part)
    except MessageError as error:
        raise SavedModelError(f"the {name} cannot be saved: {error}") from None
    text = json.dumps(header, allow_nan=False).encode("ascii")
    content = {"header": np.frombuffer(text, np.uint8)}
    content |= {f"a{place}": array for place, array in enumerate(arrays)}
    file, path = BytesIO(), Path(path)
    np.savez(file, **content)  # type: ignore[arg-type]
    write_whole(path, [file.getvalue()], path.with_name(f"{path.name}.tmp"))


def load(path: str | PathLike) -> Any:
    """Read an estimator that `save` has written; it predicts with the same bits.

    Files of strangers are safe to load: only estimators of fedcore are made, from
    numbers and strings, and no more memory is taken than a few times the file's size.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    estimator

    Raises
    ------
    SavedModelError
        If the file is anything else, or damaged.
    """
    data = Path(path).read_bytes()
    try:
        header, arrays = _read(data)
    except _BROKEN as error:
        raise SavedModelError(f"{path} is no saved model: {error!s:.120}") from None
    if header.get("form") != _FORM:
        raise SavedModelError(f"{path} is no saved model: its header is another")
    if header.get("version") != _VERSION:
        raise SavedModelError(
            f"{path} has version {header.get('version')!r:.20} of the form, this "
            f"fedcore reads {_VERSION}"
        )
    name = header.get("class")
    if not isinstance(name, str) or name not in _CLASSES:
        raise SavedModelError(
            f"{path} holds a {name!r:.40}, expected one of {', '.join(_CLASSES)}"
        )
    try:
        return _build(_class(name), header, iter(arrays))
    except _BROKEN as error:
        raise SavedModelError(
            f"{path} does not hold a {name} of this fedcore: {error!s:.120}"
        ) from None


def _class(name: str) -> type:
    return getattr(import_module(_CLASSES[name]), name)


def _take_apart(estimator: Any) -> tuple[dict, dict]:
    """Give parameters and fitted attributes."""
    params = estimator.get_params(deep=False)
    left_out = {*params, *getattr(estimator, "_not_saved", ())}
    fitted = {k: v for k, v in vars(estimator).items() if k not in left_out}
    params, fitted = (
        {k: _plain(v, k) for k, v in values.items()} for values in (params, fitted)
    )
    return params, fitted


def _plain(value: Any, name: str) -> tuple[str, Any]:
    """Take what is no plain value apart; say what it was."""
    kind = type(value).__name__
    if kind in _CLASSES and type(value) is _class(kind):
        return "estimator", (kind, *_take_apart(value))
    if type(value) is Pipeline:  # only within a search
        return kind, [(k, _plain(v, k)) for k, v in value.steps]
    if type(value) is np.ma.MaskedArray:
        return "masked", (value.data, np.ma.getmaskarray(value))
    if type(value) is dict and any(map(np.ma.isMaskedArray, value.values())):
        return "columns", {k: _plain(v, f"{name}.{k}") for k, v in value.items()}
    if type(value) is LocalEngine:
        path = value.checkpoint
        told = vars(value) | {"checkpoint": None if path is None else str(path)}
        return kind, {k: _plain(v, f"{name}.{k}") for k, v in told.items()}
    if type(value) in _RECORDS.values():
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        return kind, {k: _plain(v, f"{name}.{k}") for k, v in parts.items()}
    if _SPARSE.get(kind) is type(value):
        return kind, (value.shape, value.data, value.indices, value.indptr)
    if isinstance(value, np.random.RandomState):
        return "RandomState", value.get_state()
    family = getattr(value, "dist", None)
    if isinstance(family, stats.rv_continuous):
        if type(family) is type(getattr(stats, family.name, None)):
            return "scipy.stats", (family.name, value.args, value.kwds)
    if callable(value):
        raise MessageError(f"{name} is a function, expected numbers or a distribution")
    return "plain", value


def _rebuild(told: Any) -> Any:
    """Make again what `_plain` took apart."""
    kind, value = told
    if kind == "plain":
        return value
    if kind == "estimator":
        name, *parts = value
        return _make(_class(name), *parts)
    if kind == "Pipeline":
        return Pipeline([(name, _rebuild(step)) for name, step in value])
    if kind == "masked":
        return np.ma.masked_array(*value)
    if kind == "columns":
        return {k: _rebuild(v) for k, v in value.items()}
    if kind == "LocalEngine":
        return LocalEngine(**{k: _rebuild(v) for k, v in value.items()})
    if kind in _RECORDS:
        return _RECORDS[kind](**{k: _rebuild(v) for k, v in value.items()})
    if kind in _SPARSE:
        shape, *parts = value
        matrix = _SPARSE[kind](tuple(parts), shape=shape)
        matrix.check_format(full_check=True)
        return matrix
    if kind == "RandomState":
        state = np.random.RandomState()
        state.set_state(value)
        return state
    if kind == "scipy.stats":
        family, args, kwds = value
        distribution = getattr(stats, family, None)
        if isinstance(distribution, stats.rv_continuous):
            return distribution(*args, **kwds)
    raise MessageError(f"{kind!r:.40} stands for nothing")


def _build(cls: Any, header: dict, arrays: Any) -> Any:
    params, fitted = (decode(header[part], arrays) for part in ("params", "fitted"))
    if next(arrays, None) is not None:
        raise MessageError("there are more arrays than are named")
    return _make(cls, params, fitted)


def _make(cls: Any, params: dict, fitted: dict) -> Any:
    estimator = cls(**{name: _rebuild(told) for name, told in params.items()})
    for name, told in fitted.items():
        # What is fitted must not stand in for a method.
        if not _FITTED.fullmatch(name) or hasattr(cls, name):
            raise MessageError(f"{name!r:.40} is no fitted attribute")
        setattr(estimator, name, _rebuild(told))
    if fitted and hasattr(estimator, "_make_unsaved"):
        estimator._make_unsaved()
    return estimator


def _read(data: bytes) -> tuple[dict, list[np.ndarray]]:
    """Open the archive as `np.savez` writes it; sizes are measured, not believed."""
    with ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        names = ["header.npy", *(f"a{place}.npy" for place in range(len(members) - 1))]
        if [member.filename for member in members] != names:
            raise MessageError("its parts have other names")
        if any(member.compress_type != ZIP_STORED for member in members):
            raise MessageError("its parts are compressed")
        if sum(member.file_size for member in members) > len(data):
            raise MessageError("its parts are longer than the file")
        text, *arrays = (_read_array(archive.read(member)) for member in members)
    header = json.loads(text.astype(np.uint8, casting="no").tobytes().decode("ascii"))
    if not isinstance(header, dict):
        raise MessageError("its header is another")
    return header, arrays


def _read_array(data: bytes) -> np.ndarray:
    file = BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise MessageError("an array is of another version")
    shape, _, dtype = np.lib.format.read_array_header_1_0(file)
    size = dtype.itemsize * math.prod(shape)
    if dtype.kind not in "biuf" or size != len(data) - file.tell():
        raise MessageError(f"an array of {dtype} has the wrong length")
    return np.frombuffer(data, dtype, offset=file.tell()).reshape(shape)
