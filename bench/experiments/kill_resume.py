"""Kill a fit at random moments, resume it, and compare the model that it ends with.

python bench/experiments/kill_resume.py --cycles 200

A cycle begins a fit that saves itself after every round, kills it (SIGKILL) up to three
times after a random time, goes on from the checkpoint each time, and lets the last one
end. All its bits must be those of a fit that was never interrupted.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
import warnings
from hashlib import blake2b
from itertools import cycle
from pathlib import Path

import numpy as np
from scipy import sparse, stats

from fedcore import FedBestSubset, FedIterHT, FedMTLSVC, LocalEngine, Timing
from fedcore.datasets import make_mtl_classification

MOST_KILLS = 3
LATE = {"timing": Timing(stats.gamma(2, scale=0.5), wait=2e-4, dropout=0.1, trace=True)}
SVM = {"tol": 0, "max_rounds": 60, "random_state": 0}
FITS = {
    "sequential": (FedMTLSVC(aggregation="sequential", **SVM), {}),
    "envelope": (FedMTLSVC(aggregation="envelope", **{**SVM, "max_rounds": 12}), {}),
    "late replies": (FedMTLSVC(aggregation="auto", **SVM), LATE),
    "half of the clients": (
        FedMTLSVC(aggregation="line_search", **SVM),
        {"client_fraction": 0.5},
    ),
    "early stopping": (
        FedMTLSVC(
            aggregation="line_search", early_stopping=True, n_iter_no_change=60, **SVM
        ),
        {},
    ),
    "hard thresholding": (
        FedIterHT(
            8,
            loss="logistic",
            control_variates=True,
            refit=True,
            tol=0,
            max_rounds=60,
            random_state=0,
        ),
        {},
    ),
    "best subset": (FedBestSubset(8, loss="logistic", l2=1e-3), {}),
}


def digest(model) -> str:
    """Hash all that was fitted, but for the seconds that passed."""
    sums = blake2b(digest_size=16)

    def feed(value):
        if isinstance(value, dict):
            for name, column in value.items():
                if name != "time":
                    sums.update(name.encode())
                    feed(column)
        elif sparse.issparse(value):
            feed(value.data), feed(value.indices), feed(value.indptr)
        elif hasattr(value, "outcome"):
            for name in value.__dataclass_fields__:
                feed(getattr(value, name))
        else:
            sums.update(np.asarray(value).tobytes())

    for name, value in sorted(vars(model).items()):
        if name.endswith("_"):
            sums.update(name.encode())
            feed(value)
    return sums.hexdigest()


def fit(name: str, table: tuple, **options) -> str:
    """Fit, and give the hash of the model."""
    model, engine = FITS[name]
    X, y, clients = table
    model.set_params(engine=LocalEngine(**engine, **options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return digest(model.fit(X, y, clients))


def one_cycle(name: str, table: tuple, folder: Path, seconds: float, rng) -> dict:
    """Kill and resume one fit; tell how often, in which round, and what came out."""
    path, result = folder / "run.ckpt", folder / "result"
    for left in (path, result):
        left.unlink(missing_ok=True)
    options = {"checkpoint": path, "every": 1, "resume": True}
    kills, resumed = 0, 0
    for attempt in range(MOST_KILLS + 1):
        resumed += path.exists()
        child = os.fork()
        if not child:
            try:
                result.write_text(fit(name, table, **options))
            finally:
                os._exit(0)
        if attempt < MOST_KILLS:
            time.sleep(rng.uniform(0, seconds))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            break
        kills += 1
        result.unlink(missing_ok=True)
    ended = result.read_text() if result.exists() else "nothing"
    return {"digest": ended, "kills": kills, "resumed": resumed}


def main() -> None:
    """Run the cycles, a fit after another in turn, and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--rows", type=int, default=60, help="of each of 12 clients")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    # Other threads, those of BLAS, do nothing here.
    warnings.filterwarnings("ignore", "This process", DeprecationWarning)
    rng = np.random.default_rng(arguments.seed)
    table = make_mtl_classification(12, arguments.rows, 20, random_state=0)
    whole, seconds = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        for name in FITS:
            begun = time.perf_counter()
            saved = Path(folder, "first.ckpt")
            whole[name] = fit(name, table, checkpoint=saved, every=1)
            seconds[name] = time.perf_counter() - begun
            assert fit(name, table) == whole[name]
        kills = resumed = same = 0
        for number, name in zip(range(arguments.cycles), cycle(FITS), strict=False):
            ended = one_cycle(name, table, Path(folder), seconds[name], rng)
            kills, resumed = kills + ended["kills"], resumed + ended["resumed"]
            if ended["digest"] == whole[name]:
                same += 1
            else:
                print(f"cycle {number}, {name}: {ended}, expected {whole[name]}")
    print(
        f"{arguments.cycles} cycles, {kills} kills, {resumed} resumed from a "
        f"checkpoint: {same} of {arguments.cycles} final models are identical"
    )


if __name__ == "__main__":
    main()
