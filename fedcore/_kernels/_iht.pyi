from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

_Real = TypeVar("_Real", np.float32, np.float64)
_Correction: TypeAlias = tuple[
    NDArray[np.int64], NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]
]

@disjoint_base
class Space: ...

@disjoint_base
class IHTCohort:
    def __init__(
        self,
        offsets: NDArray[np.int64],
        starts: NDArray[np.int64] | None,
        columns: NDArray[np.int32] | None,
        ascending: NDArray[np.int32] | None,
        feature: NDArray[np.int32] | None,
        indptr: NDArray[np.int32] | None,
        indices: NDArray[np.int32] | None,
        data: NDArray[_Real],
        n_columns: int,
        *,
        loss: int,
        n_outputs: int,
        intercept: bool,
        code: NDArray[np.int32] | None,
        target: NDArray[np.float64] | None,
        weight: NDArray[np.float64] | None,
        kept: NDArray[np.int32] | None,
        kept_offsets: NDArray[np.int64] | None,
    ) -> None: ...
    @property
    def n_outputs(self) -> int: ...
    @property
    def n_columns(self) -> int: ...
    def iterate(
        self,
        active: NDArray[np.int32],
        start_index: NDArray[np.int32],
        start_value: NDArray[np.float64],
        start_intercept: NDArray[np.float64],
        step: NDArray[np.float64],
        index: NDArray[np.int32],
        value: NDArray[np.float64],
        counts: NDArray[np.int64],
        intercepts: NDArray[np.float64],
        *,
        n_steps: int,
        batch: int,
        tau: int,
        l2: float,
        seed: int,
        exchange: int,
        first_client: int,
        correction: _Correction | None = None,
    ) -> None: ...
    def descend(
        self,
        active: NDArray[np.int32],
        start_index: NDArray[np.int32],
        start_value: NDArray[np.float64],
        start_intercept: NDArray[np.float64],
        step: NDArray[np.float64],
        share: NDArray[np.float64],
        total: NDArray[np.float64],
        intercepts: NDArray[np.float64],
        *,
        n_steps: int,
        batch: int,
        l2: float,
        seed: int,
        exchange: int,
        first_client: int,
        correction: _Correction | None = None,
    ) -> None: ...
    def gradient(
        self,
        active: NDArray[np.int32],
        start_index: NDArray[np.int32],
        start_value: NDArray[np.float64],
        start_intercept: NDArray[np.float64],
        share: NDArray[np.float64],
        total: NDArray[np.float64] | None,
        intercept: NDArray[np.float64],
        losses: NDArray[np.float64],
        *,
        batch: int,
        seed: int,
        exchange: int,
        first_client: int,
    ) -> None: ...

def add_pairs(
    index: NDArray[np.int32],
    value: NDArray[np.float64],
    other_index: NDArray[np.int32],
    other_value: NDArray[np.float64],
    limit: int,
) -> int: ...
