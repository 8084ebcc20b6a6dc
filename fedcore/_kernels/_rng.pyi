import numpy as np
from numpy.typing import NDArray

MAX_ROUND: int
SAMPLING: int
CLIENTS: int
ROWS: int
DELAYS: int
DROPOUTS: int
FOLDS: int

def uniform(
    seed: int, round: int, purpose: int, first: int, out: NDArray[np.float64]
) -> None: ...
def permutation(
    seed: int, round: int, purpose: int, client: int, out: NDArray[np.int32]
) -> None: ...
