import numpy as np
from numpy.typing import NDArray

def scatter(
    scale: float,
    X: NDArray[np.float64],
    B: NDArray[np.float64],
    Q: NDArray[np.float64],
    alpha: NDArray[np.float64],
    s: NDArray[np.int32],
    p: NDArray[np.int32],
    g: NDArray[np.float64],
    dX: NDArray[np.float64],
    dalpha: NDArray[np.float64],
) -> None: ...
def adam(
    gradient: NDArray[np.float64],
    x: NDArray[np.float64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    rate: float,
    t: float,
) -> None: ...
