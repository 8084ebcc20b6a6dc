import numpy as np
from numpy.typing import NDArray

def top_f64(
    x: NDArray[np.float64],
    tau: int,
    out: NDArray[np.int32],
    hint: int = 0,
    place: NDArray[np.int32] | None = None,
) -> int: ...
def top_f32(
    x: NDArray[np.float32],
    tau: int,
    out: NDArray[np.int32],
    hint: int = 0,
    place: NDArray[np.int32] | None = None,
) -> int: ...
