"""The multi-domain sets: rows as every arm gets them, before it scales each domain."""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.preprocessing import normalize

N_COMPONENTS = 60  # of office, whose 800 columns are counts

SETS = (
    "office_caltech10_surf",
    "cwru4_fft256",
    "digits3_64",
    "cstr7",
    "amazon_reviews400",
    "music_genre5",
    "music_speech5",
)


# Columns in different units: each is standardised, in each domain by itself.
UNITS = ("cstr7", "amazon_reviews400", "music_genre5", "music_speech5")


def load(folder, name):
    """Give X, y (0 .. c - 1) and the domain of each row; no label is looked at."""
    with np.load(folder / f"dadil_{name}.npz") as data:
        X, y, domain = data["X"].astype(float), data["y"], data["domain"]
    if name.startswith("office"):
        X = _standardised(normalize(X, norm="l1"), domain)
        X = PCA(N_COMPONENTS, random_state=0).fit_transform(X)
    elif name in UNITS:
        X = _standardised(X, domain)
    return X, y.astype(int), domain.astype(int)


def _standardised(X, domain):
    X = X.copy()
    for k in np.unique(domain):
        own = domain == k
        spread = X[own].std(axis=0)
        X[own] = (X[own] - X[own].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return X
