import numpy as np
from numpy.typing import NDArray

def steps(
    loss: int,
    starts: NDArray[np.int64],
    codes: NDArray[np.float64],
    target: NDArray[np.float64],
    weight: NDArray[np.float64],
    l2: NDArray[np.float64],
    A: NDArray[np.float64],
    c: NDArray[np.float64],
    n_steps: int,
) -> None: ...
def ridge(
    starts: NDArray[np.int64],
    codes: NDArray[np.float64],
    target: NDArray[np.float64],
    weight: NDArray[np.float64],
    l2: NDArray[np.float64],
    A: NDArray[np.float64],
    c: NDArray[np.float64],
) -> int: ...
