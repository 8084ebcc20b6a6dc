from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Real = TypeVar("_Real", np.float32, np.float64)

def spread(gram: NDArray[np.float64], n_atoms: int, first: int) -> float: ...
def complete(
    gram: NDArray[np.float64], labels: NDArray[np.float64], weight: float
) -> None: ...
def barycenter(
    gram: NDArray[np.float64],
    weights: NDArray[np.float64],
    first: int,
    tol: float,
    s: NDArray[np.int32],
    objective: NDArray[np.float64],
) -> int: ...
def gathered_mean(
    X: NDArray[_Real],
    weights: NDArray[np.float64],
    s: NDArray[np.int32],
    out: NDArray[np.float64],
) -> None: ...
