import numpy as np
from numpy.typing import NDArray

def compact(
    offsets: NDArray[np.int64],
    indptr: NDArray[np.int32],
    indices: NDArray[np.int32],
    n_columns: int,
    constant: bool,
    place: NDArray[np.int32],
    bits: NDArray[np.uint64],
    local: NDArray[np.int32],
    columns: NDArray[np.int32],
    starts: NDArray[np.int64],
) -> int: ...
