"""The real data set in the wheel: shoulder exercises of ten people."""

from importlib.resources import files

import numpy as np

WATCH_EXERCISES = ("PEN", "ABD", "FEL", "IR", "ER", "TRAP", "ROW")
"""Names of the labels 0 to 6 of `load_watch`."""


def load_watch(*, as_frame=False, return_recordings=False):
    """Load the smart-watch data: ten people (the clients) doing seven exercises.

    Each person did each exercise with either arm while a smart-watch recorded
    acceleration and rotation at 50 Hz: 140 recordings of about 20 repetitions.
    A row describes four seconds of a recording. Windows do not overlap, so a random
    split of the rows shares no measurement between its parts; but rows of one
    recording resemble each other, and to judge unseen recordings, split by them.

    The labels are the positions in `WATCH_EXERCISES`: pendulum, abduction, forward
    elevation, internal and external rotation with a resistance band, lower trapezius
    row with a band, bent-over row.

    Parameters
    ----------
    as_frame : bool, default=False
        Return `X` as a pandas DataFrame with the names of the features.
    return_recordings : bool, default=False
        Return the recordings as well.

    Returns
    -------
    X : ndarray of shape (1149, 79), float32, or DataFrame
        Eight statistics (mean, standard deviation, four quantiles, mean absolute
        step, mean frequency) of the six channels and of the two norms, then the
        correlations of the channels. Columns have mean 0 and variance 1 over all
        rows. There is no intercept column.
    y : ndarray of shape (1149,), int64
        The exercise, 0 to 6.
    clients : ndarray of shape (1149,), int64
        The person, 1 to 10. Rows are sorted by it, 70 to 140 a person.
    recordings : ndarray of shape (1149,), int64
        Only if `return_recordings`: 0 to 139, in the order of the rows. Recording
        `r` is of the left arm if ``r // 7 % 2 == 0``, of the right arm otherwise.

    Notes
    -----
    Derived from the recordings in the Python package seglearn 1.2.5 [1]_, BSD-3-Clause,
    (c) 2018 David M. Burns; the licence is installed beside the data.

    References
    ----------
    .. [1] D. M. Burns et al., "Shoulder physiotherapy exercise recognition: machine
       learning the inertial signals from a smartwatch", Physiological Measurement
       39(7), 075007, 2018.

    Examples
    --------
    >>> from fedcore.datasets import load_watch
    >>> X, y, clients = load_watch()
    >>> X.shape
    (1149, 79)
    """
    source = files("fedcore.datasets") / "data" / "watch.npz"
    with source.open("rb") as stream, np.load(stream, allow_pickle=False) as data:
        X = data["X"].astype(np.float32)
        y, clients, recordings = (
            data[name].astype(np.int64) for name in ("y", "client", "recording")
        )
        names = data["features"]
    if as_frame:
        import pandas as pd

        X = pd.DataFrame(X, columns=names.tolist())
    return (X, y, clients, recordings) if return_recordings else (X, y, clients)
