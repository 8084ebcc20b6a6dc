"""Rounds and bytes to an objective: FedIterHT, FedHT and DistributedIHT.

python bench/rounds_iht.py [--part same best bytes clients steps] [--seeds 3]

same    : all with the same step: rounds of FedIterHT and FedHT to the objective of
          DistributedIHT after 100 (simulation I) or 200 rounds (II), as published
best    : each with its best step of a grid, and with step_size="auto"; FedBestSubset
steps   : local steps from 1 to 20, at the same step
clients : how far models (alpha) and rows (beta) of clients differ, at the same step
bytes   : a client's messages in a round at d = 150 000, tau = 200
"""

import argparse
import warnings

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from fedcore import DistributedIHT, FedBestSubset, FedHT, FedIterHT
from fedcore.datasets import make_iht_simulation

TAU, BATCH, LOCAL = 200, 20, 10
# loss, step, rounds of DistributedIHT
PUBLISHED = {1: ("squared", 3e-4, 100), 2: ("logistic", 3e-3, 200)}
SPREADS = ((0, 0), (0.1, 0.1), (1, 0), (0, 1), (1, 1), (10, 10))  # alpha, beta
STEPS = {1: (3e-4, 1e-3, 2e-3, 3e-3, 1e-2, 3e-2), 2: (3e-3, 1e-2, 3e-2, 1e-1, 3e-1)}


def simulation(which, seed, alpha=0.1, beta=0.1):
    """Rows as published, but for 30 clients in II."""
    n_clients = 100 if which == 1 else 30
    return make_iht_simulation(
        which, alpha=alpha, beta=beta, n_clients=n_clients, random_state=seed
    )


def fit(estimator, data, which, seed, **options):
    """Run all of max_rounds, as published: local steps on minibatches."""
    if estimator is not DistributedIHT:
        options.setdefault("local_steps", LOCAL)
    options = {"batch_size": BATCH, "tol": 0, "random_state": seed} | options
    model = estimator(TAU, loss=PUBLISHED[which][0], **options)
    return model.fit(*data)


def rounds_to(model, goal):
    """Round after which the objective is at most `goal`, and bytes up till then."""
    reached = np.flatnonzero(model.history_["objective"] <= goal)
    if not len(reached):
        return f">{model.n_rounds_}", np.nan
    return str(reached[0] + 1), model.history_["bytes_up"][: reached[0] + 1].sum()


def same(which, seeds, alpha=0.1, beta=0.1, **options):
    """Compare at the published step."""
    _, step, most = PUBLISHED[which]
    for seed in range(seeds):
        data = simulation(which, seed, alpha, beta)
        base = fit(DistributedIHT, data, which, seed, step_size=step, max_rounds=most)
        goal = base.objective_
        cells = []
        for estimator in (FedIterHT, FedHT):
            model = fit(
                estimator, data, which, seed, step_size=step, max_rounds=most, **options
            )
            rounds, up = rounds_to(model, goal)
            cells.append(f"{estimator.__name__} {rounds:>4} rounds {up / 1e6:6.1f} MB")
        up = base.history_["bytes_up"].sum() / 1e6
        print(
            f"  {'I' * which:3} seed {seed} {options or ''}: DistributedIHT {most} "
            f"rounds {up:.1f} MB to {goal:.5g}; " + "; ".join(cells),
            flush=True,
        )


def best(which, seeds):
    """Compare each at its best step of a grid: the least objective after 100 rounds.

    The goal is what the best step of DistributedIHT reaches in 100 rounds.
    """
    for seed in range(seeds):
        data = simulation(which, seed)
        goal = None
        for estimator in (DistributedIHT, FedIterHT, FedHT):
            runs = [
                (
                    step,
                    fit(estimator, data, which, seed, step_size=step, max_rounds=100),
                )
                for step in STEPS[which]
            ]
            step, model = min(runs, key=lambda run: run[1].objective_)
            goal = model.objective_ if goal is None else goal
            report(which, seed, f"{estimator.__name__:15} step {step:g}", model, goal)
        automatic(data, which, seed, goal)


def report(which, seed, name, model, goal):
    """Print objectives, and rounds and bytes of a client to the goal."""
    least = np.minimum.accumulate(model.history_["objective"])
    rounds, up = rounds_to(model, goal)
    print(
        f"  {'I' * which:2} seed {seed} {name:34}: {least[19]:9.5g} after 20 rounds, "
        f"{model.objective_:9.5g} after {model.n_rounds_}; {goal:.5g} in {rounds:>4} "
        f"rounds, {up / 1e3 / len(model.clients_):6.0f} kB up",
        flush=True,
    )


def automatic(data, which, seed, goal):
    """Print the same for step_size="auto", with all rows in each step."""
    for estimator, options in (
        (DistributedIHT, {}),
        (FedIterHT, {}),
        (FedIterHT, {"control_variates": True}),
        (FedHT, {}),
        (FedHT, {"control_variates": True}),
    ):
        options = {"batch_size": "auto", "max_rounds": 100, **options}
        model = fit(estimator, data, which, seed, **options)
        extra = " control" * ("control_variates" in options)
        name = f"{estimator.__name__:15} auto{extra}"
        report(which, seed, name, model, goal)
        refitted = fit(estimator, data, which, seed, refit=True, **options)
        print(f"{'':13}refitted: {refitted.objective_:.5g}", flush=True)
    options = {"loss": PUBLISHED[which][0], "max_rounds": 20}
    subset = FedBestSubset(TAU, **options, tol=0).fit(*data)
    sent = subset.history_["bytes_up"].cumsum() / 1e3 / len(subset.clients_)
    reached = np.flatnonzero(subset.history_["objective"] <= goal)
    print(
        f"  {'I' * which:2} seed {seed} FedBestSubset: {subset.objective_:.5g} after "
        f"{subset.n_rounds_} rounds, {sent[-1]:.0f} kB up; {goal:.5g} in "
        f"{reached[0] + 1} rounds, {sent[reached[0]]:.0f} kB up",
        flush=True,
    )


def message_sizes():
    """Weigh the messages of one client in one round, by the ledger."""
    rng = np.random.default_rng(0)
    X = sparse.random_array((400, 150_000), density=1e-3, rng=rng, format="csr")
    y = rng.normal(size=400)
    for estimator, options in (
        (FedIterHT, {}),
        (FedIterHT, {"control_variates": True}),
        (FedHT, {}),
        (DistributedIHT, {}),
        (FedBestSubset, {}),
    ):
        model = estimator(TAU, max_rounds=8, tol=0, **options)
        model.fit(X, y, np.arange(400) // 20)
        history = model.history_
        exchanges = history["n_active"]
        print(
            f"  {estimator.__name__:15} {options or ''}: up "
            f"{history['bytes_up'][3] / 20:,.0f} bytes a client in round 4, down "
            f"{history['bytes_down'][3] / 20:,.0f}; up in all {model.n_rounds_} "
            f"rounds {history['bytes_up'].sum() / 20:,.0f} "
            f"({exchanges.sum() // 20} exchanges)",
            flush=True,
        )


def main():
    """Print the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["same", "best", "steps", "clients", "bytes"]
    parser.add_argument("--part", nargs="+", default=parts, choices=parts)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for part in arguments.part:
        print(part)
        if part == "bytes":
            message_sizes()
        elif part == "steps":
            for n in (1, 5, 10, 20):
                same(1, arguments.seeds, local_steps=n)
        elif part == "clients":
            for alpha, beta in SPREADS:
                print(f"  alpha {alpha:g}, beta {beta:g}")
                same(1, arguments.seeds, alpha, beta)
        else:
            for which in (1, 2):
                {"same": same, "best": best}[part](which, arguments.seeds)


if __name__ == "__main__":
    main()
