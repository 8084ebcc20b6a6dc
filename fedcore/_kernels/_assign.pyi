from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def assign(
    C: NDArray[_Real],
    warm: bool,
    s: NDArray[np.int32],
    u: NDArray[np.float64],
    v: NDArray[np.float64],
    cost: NDArray[np.float64],
    slack: NDArray[np.float64],
) -> int: ...
