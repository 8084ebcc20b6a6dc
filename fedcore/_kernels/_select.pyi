from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def top(
    x: NDArray[_Real],
    tau: int,
    out: NDArray[np.int32],
    work: NDArray[np.int32],
    hint: int = 0,
    place: NDArray[np.int32] | None = None,
) -> tuple[int, int]: ...
