from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import disjoint_base

_Real = TypeVar("_Real", np.float32, np.float64)

N_UPDATE_FIGURES: int
N_SOLVE_FIGURES: int

@disjoint_base
class SVMCohort:
    def __init__(
        self,
        offsets: NDArray[np.int64],
        starts: NDArray[np.int64],
        columns: NDArray[np.int32] | None,
        indptr: NDArray[np.int32] | None,
        indices: NDArray[np.int32] | None,
        data: NDArray[_Real],
        n_columns: int,
        *,
        loss: int,
        n_classes: int,
        C1: float,
        epsilon: float,
        bias: float,
        code: NDArray[np.int32] | None,
        target: NDArray[np.float64] | None,
        weight: NDArray[np.float64] | None,
        class_weight: NDArray[np.float64] | None,
        absent: NDArray[np.uint8] | None,
        sqnorm: NDArray[np.float64],
        b: NDArray[np.float64],
        s: NDArray[np.float64],
        b_before: NDArray[np.float64] | None,
        s_before: NDArray[np.float64] | None,
        rest: NDArray[np.uint8],
        violation: NDArray[np.float64],
        mirror: NDArray[np.float32] | None = None,
        personal: NDArray[np.uint8] | None = None,
        own_sqnorm: NDArray[np.float64] | None = None,
    ) -> None: ...
    def set_lone_apart(
        self,
        split: NDArray[np.int32],
        place: NDArray[np.int32],
        data: NDArray[np.float32],
        sqnorm: NDArray[np.float64],
        columns: NDArray[np.int32],
        starts: NDArray[np.int64],
    ) -> int: ...
    def update(
        self,
        active: NDArray[np.int32],
        step: NDArray[np.float64] | None,
        w: NDArray[np.float64],
        dw: NDArray[np.float64],
        figures: NDArray[np.float64],
        *,
        coupling: NDArray[np.float64],
        inv_C2: NDArray[np.float64],
        working: NDArray[np.uint8],
        passes: int,
        hand_on: bool,
        seed: int,
        exchange: int,
        first_client: int,
        packed: bool = False,
        rough: bool = False,
    ) -> None: ...
    def solve(
        self,
        active: NDArray[np.int32],
        step: NDArray[np.float64] | None,
        w: NDArray[np.float64],
        s_sum: NDArray[np.float64],
        figures: NDArray[np.float64],
        *,
        tol: NDArray[np.float64],
        inv_C2: NDArray[np.float64],
        true_inv_C2: NDArray[np.float64],
        working: NDArray[np.uint8],
        passes: int,
        seed: int,
        exchange: int,
        first_client: int,
        renew: bool = False,
        packed: bool = False,
    ) -> None: ...
    def interrupt(self) -> None: ...
    def gaps(
        self,
        active: NDArray[np.int32],
        step: NDArray[np.float64] | None,
        w: NDArray[np.float64],
        out: NDArray[np.float64],
        *,
        inv_C2: NDArray[np.float64],
        working: NDArray[np.uint8],
    ) -> None: ...
