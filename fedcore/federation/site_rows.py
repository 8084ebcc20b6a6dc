"""A site's validated rows, kept on disk between the messages of a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from scipy import sparse

from .checkpoint import pack_state, unpack_state
from .checkpoint_file import write_whole
from .contract import Cohort
from .deploy import Deployable

_CSR = ("data", "indices", "indptr")


class SiteRows:
    """Give a site's cohort and the names of its clients.

    Parameters
    ----------
    estimator : estimator
    name : str
        Of the site, and of its client if the data name none.
    load : callable
        Gives ``(X, y)`` or ``(X, y, clients)``.
    folder : path-like or None
        Where to keep the rows; None: load them for each message.
    """

    def __init__(
        self,
        estimator: Deployable,
        name: str,
        load: Callable[[], tuple],
        folder: Any,
    ):
        self._estimator, self._name, self._load = estimator, name, load
        self._folder = None
        if folder is not None:
            self._folder = Path(folder) / f"{quote(name, safe='')}.rows"

    def __call__(self, anew: bool) -> tuple[Cohort, np.ndarray]:
        """Load the rows anew, or read what was kept."""
        if not anew and self._folder is not None:
            try:
                return self._read(self._folder)
            except FileNotFoundError:
                pass
        loaded = self._load()
        if not isinstance(loaded, tuple) or len(loaded) not in (2, 3):
            told = f"{len(loaded)} parts" if isinstance(loaded, tuple) else type(loaded)
            raise ValueError(
                f"load_data gave {told}, expected (X, y) or (X, y, clients)"
            )
        X, y, *rest = loaded
        clients = rest[0] if rest else np.full(X.shape[0], self._name, object)
        cohort, names = self._estimator._deployed_cohort(X, y, clients)
        if self._folder is not None:
            self._write(self._folder, cohort, names)
        return cohort, names

    def _write(self, folder: Path, cohort: Cohort, names: np.ndarray) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        # The last file says that the others are whole.
        (folder / "rest").unlink(missing_ok=True)
        X = cohort.X
        if sparse.issparse(X):
            for part in _CSR:
                np.save(folder / f"{part}.npy", getattr(X, part))
        else:
            np.save(folder / "X.npy", X)
        rest = {
            "names": names,
            "y": cohort.y,
            "sample_weight": cohort.sample_weight,
            "offsets": cohort.offsets,
            "classes": cohort.classes,
            "shape": tuple(map(int, X.shape)),
            "sparse": bool(sparse.issparse(X)),
        }
        write_whole(folder / "rest", [pack_state(rest)], folder / "rest.tmp")

    def _read(self, folder: Path) -> tuple[Cohort, np.ndarray]:
        rest = unpack_state((folder / "rest").read_bytes())

        def mapped(name: str) -> np.ndarray:
            return np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)

        shape, names = rest.pop("shape"), rest.pop("names")
        if rest.pop("sparse"):
            X = sparse.csr_array(tuple(map(mapped, _CSR)), shape=shape)
        else:
            X = mapped("X")
        return Cohort(X, **rest), names
