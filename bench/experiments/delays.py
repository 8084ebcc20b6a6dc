"""The paper's experiment: multi-task, local and centralised learning under delays.

python bench/experiments/delays.py --clients 5 10 20 40 80

Simulated clients with 40 to 200 rows. A client's time for a visit is random (gamma,
shape 2); its mean is the cost model's, so large clients are slow. The coordinator
collects for T_wait, given in mean visits of a client; what comes later is lost.
"Centralised": one machine, as fast as a client, holds all rows and solves the same
problem to the same gap. "One model": a single SVM over all rows. Time is virtual, for
both by the same model. Messages take none; the table gives the latency, in mean visits
like T_wait, at which the federation and the one machine would be even.
"""

from __future__ import annotations

import argparse
import warnings
from dataclasses import dataclass

import arms
import numpy as np
from choose import search
from real_sets import accuracy
from scipy.stats import gamma, uniform
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fedcore import FedMTLSVC, LocalEngine, Timing
from fedcore.datasets import make_mtl_classification

D, N_TEST = 50, 200  # columns; test rows, and as many to choose by, of each client
VISIT = 5  # local passes of a visit under "line_search"
NEAR = 0.5  # per cent of accuracy that count as near the centralised one
STEADY = Timing(uniform(1, 1e-9), wait=np.inf)  # the mean, whatever is drawn
AXES = {
    arms.GLOBAL: {"C": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)},
    arms.LOCAL: {"C": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)},
    arms.MULTI: {"C": (0.01, 0.03, 0.1, 0.3, 1.0, 3.0), "C2": (0.3, 1, 3, 10, 30)},
}
FIRST = {"C": 0.1, "C2": 1, "intercept_scaling": 1.0, "class_weight": None}


@dataclass(frozen=True, slots=True)
class Federation:
    """Rows of K clients, in three parts; `rows` counts the training rows."""

    train: tuple
    choose: tuple
    test: tuple

    @property
    def rows(self) -> np.ndarray:
        return np.bincount(self.train[2])


def federation(n_clients: int, seed: int) -> Federation:
    """Simulate clients whose numbers of rows differ by up to five times."""
    sizes = np.random.default_rng([n_clients, seed]).integers(40, 201, n_clients)
    X, y, clients = make_mtl_classification(
        n_clients, sizes + 2 * N_TEST, D, flip_y=0.05, random_state=seed
    )
    y = (y > 0).astype(int)
    # Rows of a client are alike in distribution: the last ones test.
    place = np.concatenate([np.arange(n + 2 * N_TEST) for n in sizes])
    size = np.repeat(sizes, sizes + 2 * N_TEST)
    part = np.where(place < size, 0, np.where(place < size + N_TEST, 1, 2))
    return Federation(
        *((X[part == p], y[part == p], clients[part == p]) for p in (0, 1, 2))
    )


def seconds(rows, passes: float) -> np.ndarray:
    """Give the mean time of passes over so many rows, by the model of `Timing`."""
    rows = np.atleast_1d(rows)
    return STEADY.seconds(rows, rows * D, D, passes, (0, 0), sparse=False)


def chosen(data: Federation, arm: str) -> dict:
    """Choose the arm's setting by rows that neither train nor test."""
    X, y, clients = data.choose

    def score(setting):
        model, _ = arms.FITS[arm](
            FIRST | setting, *data.train, regression=False, tol=arms.ROUGH
        )
        return accuracy(y, model(X, clients), clients)

    axes = AXES[arm]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        best, _, _ = search(axes, {name: FIRST[name] for name in axes}, score)
    return FIRST | best


def model_of(setting: dict, **how) -> FedMTLSVC:
    """Set up the multi-task SVM of a setting."""
    C, C2 = setting["C"], setting["C2"]
    return FedMTLSVC(C * C2 / (1 + C2), C2, random_state=0, **how)


def run(n_clients: int, seed: int, waits, max_rounds: int) -> dict:
    """Give accuracies, rounds and virtual times of one simulated federation."""
    data = federation(n_clients, seed)
    X, y, clients = data.test
    setting = chosen(data, arms.MULTI)
    alone = {}
    for arm in (arms.LOCAL, arms.GLOBAL):
        scores, _ = arms.FITS[arm](
            chosen(data, arm), *data.train, regression=False, tol=arms.EXACT
        )
        alone[arm] = accuracy(y, scores(X, clients), clients)
    central = model_of(setting, aggregation="sequential", max_rounds=5000)
    central.fit(*data.train)
    passes = central.history_["passes"][-1]
    visit = seconds(data.rows, VISIT + 1).mean()
    result = alone | {
        "visit": visit,
        "central": 100 * central.score(X, y, clients),
        "central_time": seconds(data.rows.sum(), passes)[0],
    }
    adding = seconds(n_clients, 1)[0]  # their replies are as many rows
    for wait in waits:
        delays = Timing(
            gamma(2, scale=0.5),
            wait=wait * visit,
            sum_time=adding,
        )
        model = model_of(
            setting,
            aggregation="line_search",
            local_epochs=VISIT,
            engine=LocalEngine(timing=delays),
            max_rounds=max_rounds,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # starved clients, rounds: in the table
            model.fit(*data.train)
        result[wait] = {
            "multi": 100 * model.score(X, y, clients),
            "time": model.history_["virtual_time"][-1],
            "rounds": model.n_rounds_,
            "exchanges": model.history_["n_exchanges"].sum(),
            "reached": model.dual_gap_ <= model.tol,
            "starved": len(getattr(model, "starved_", ())),
        }
    return result


def lines(n_clients: int, results: list[dict], waits):
    """Write the rows of one K, averaged over the seeds."""
    local, one_model, central, central_time, visit = (
        np.mean([r[name] for r in results])
        for name in (arms.LOCAL, arms.GLOBAL, "central", "central_time", "visit")
    )
    for wait in waits:
        of_wait = [r[wait] for r in results]
        multi, time, rounds, exchanges, starved = (
            np.mean([r[name] for r in of_wait])
            for name in ("multi", "time", "rounds", "exchanges", "starved")
        )
        reached = sum(r["reached"] for r in of_wait)
        even = (central_time - time) / (2 * exchanges) / visit
        yield (
            f"{n_clients:4d}  {wait:6g}  {multi:10.2f}  {local:5.2f}  "
            f"{one_model:9.2f}  {central:11.2f}  {rounds:6.0f}  {1e3 * time:7.2f}  "
            f"{1e3 * central_time:10.2f}  {time / central_time:5.2f}  "
            f"{f'{even:.1f}' if even > 0 else '-':>7}  {starved:7.1f}  "
            f"{reached}/{len(of_wait)}"
        )


def verdict(table: dict[int, list[dict]], waits):
    """Say what of the claim the table carries."""
    cells = []
    for n_clients, results in table.items():
        central = np.mean([r["central"] for r in results])
        central_time = np.mean([r["central_time"] for r in results])
        for wait in waits:
            multi, time = (
                np.mean([r[wait][name] for r in results]) for name in ("multi", "time")
            )
            near = multi >= central - NEAR
            cells.append((n_clients, wait, near, time / central_time))
    near = [cell for cell in cells if cell[2]]
    yield (
        f"Seen: multi-task is within {NEAR} % of the centralised accuracy in "
        f"{len(near)} of {len(cells)} lines."
    )
    faster = [cell for cell in near if cell[3] < 1]
    if not faster:
        yield (
            "In none of them in less time than one machine with all rows: the claim "
            "does not hold here."
        )
        return
    fewest = min(cell[0] for cell in faster)
    best = min(faster, key=lambda cell: cell[3])
    yield (
        f"In {len(faster)} of them it takes less time than one machine with all rows, "
        f"from {fewest} clients on; at best {best[3]:.2f} of it (K={best[0]}, "
        f"T_wait={best[1]:g}). That counts computation alone: where a message takes "
        f"longer than the latency in the table, the one machine is faster."
    )


def main(argv=None):
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", nargs="+", type=int, default=[5, 10, 20, 40, 80])
    parser.add_argument(
        "--waits", nargs="+", type=float, default=[0.5, 1.0, 2.0, np.inf]
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--max-rounds", type=int, default=2000)
    arguments = parser.parse_args(argv)
    waits = arguments.waits
    print(
        "   K  T_wait  multi-task  local  one model  centralised  rounds  time ms  "
        "central ms  ratio  latency  starved  gap 1e-3"
    )
    table = {}
    for n_clients in arguments.clients:
        with threadpool_limits(1):
            table[n_clients] = [
                run(n_clients, seed, waits, arguments.max_rounds)
                for seed in range(arguments.seeds)
            ]
        print("\n".join(lines(n_clients, table[n_clients], waits)), flush=True)
    print("\n".join(verdict(table, waits)))


if __name__ == "__main__":
    main()
