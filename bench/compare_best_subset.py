"""FedBestSubset against OMP, IHT, abess, skglm and scikit-learn's L1.

python bench/compare_best_subset.py [--part federated central ...] [--clients 100]

Objectives at the same number of coefficients and the same ridge; times are of the
processor, on one thread, in one process and in turns. abess and skglm are used where
they are installed; they are no part of this package. Real data are found by
FEDCORE_DATA or in ../shared/data.
"""

import argparse
import importlib.util
import os
import statistics
import warnings
from functools import partial
from pathlib import Path
from time import process_time

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.linear_model import LogisticRegression, orthogonal_mp_gram
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

from fedcore.datasets import make_iht_simulation
from fedcore.iht.best_subset import FedBestSubset

DATA = Path(os.environ.get("FEDCORE_DATA") or Path(__file__).parents[2] / "shared/data")
SEEDS = (0, 1, 2)
ROUGH = 0.05  # a tolerance that stops where others end


def timed(work):
    """Return what `work` gives, and the seconds of the processor it took."""
    start = process_time()
    result = work()
    return result, process_time() - start


def half_mse(X, y, x):
    """Return half the mean squared error."""
    return np.mean((y - X @ x) ** 2) / 2


def omp(X, y, tau):
    """Return the objective of orthogonal matching pursuit."""
    x = orthogonal_mp_gram(X.T @ X, X.T @ y, n_nonzero_coefs=tau)
    return half_mse(X, y, x)


def first(objectives, goal):
    """Return the first round, from 1, with an objective of at most `goal`, or 0."""
    reached = np.flatnonzero(objectives <= goal)
    return int(reached[0]) + 1 if len(reached) else 0


def simulation_1(tau=200):
    """Print rounds, exchanges and bytes to OMP's objective, in a federation."""
    for seed in SEEDS:
        X, y, clients = make_iht_simulation(1, random_state=seed)
        K, d = clients.max() + 1, X.shape[1]
        goal = omp(X, y, tau)
        model = FedBestSubset(tau, fit_intercept=False).fit(X, y, clients)
        history = model.history_
        objectives = history["objective"]
        sent = np.cumsum(history["bytes_up"] + history["bytes_down"]) / K / 1e3
        exchanges = np.cumsum(history["n_exchanges"])
        ratios = " ".join(f"{r:.4f}" for r in objectives / goal)
        r = first(objectives, goal)
        print(
            f"simulation I, seed {seed}: objective by round, as a part of OMP's "
            f"({goal:.4f}): {ratios}\n  OMP's reached in round {r}, exchange "
            f"{exchanges[r - 1]}, {sent[r - 1]:.0f} kB a client; in all {sent[-1]:.0f} "
            f"kB. Gram matrix once: {8 * (d * (d + 1) / 2 + d) / 1e3:.0f} kB",
            flush=True,
        )
        for rounds in (30, 200):
            best = iht("squared", X, y, tau, rounds)
            print(
                f"  {rounds} rounds of dense gradients (IHT, {8e-3 * d * rounds:.0f} "
                f"kB up): {best / goal:.4f} of OMP's",
                flush=True,
            )


def simulation_2(n_clients, tau=200):
    """Print rounds and bytes to the objective of 200 rounds of pooled IHT."""
    X, y, clients = make_iht_simulation(2, n_clients=n_clients, random_state=0)
    goal, steps = iht("logistic", X, 2.0 * y - 1, tau, 200), 200
    model = FedBestSubset(tau, loss="logistic", fit_intercept=False, max_rounds=15)
    model.fit(X, y, clients)
    objectives = model.history_["objective"]
    sent = model.history_["bytes_up"] + model.history_["bytes_down"]
    sent = np.cumsum(sent) / n_clients / 1e3
    r = first(objectives, goal)
    print(
        f"simulation II, {n_clients} clients: objective by round "
        f"{' '.join(f'{v:.4f}' for v in objectives)}\n  {steps} rounds of pooled IHT: "
        f"{goal:.4f} ({8e-3 * X.shape[1] * steps:.0f} kB up), reached in round {r}, "
        f"{sent[r - 1]:.0f} kB a client; in {len(sent)} rounds {sent[-1]:.0f} kB",
        flush=True,
    )


def iht(loss, X, y, tau, rounds):
    """Return the best objective of pooled IHT with Barzilai-Borwein and backtracking.

    Every evaluation is a round, also of a step that is then refused.
    """
    n, d = X.shape

    def evaluate(x):
        z = X @ x
        if loss == "squared":
            return np.mean((z - y) ** 2) / 2, X.T @ (z - y) / n
        loss_at = np.logaddexp(0, -y * z).mean()
        return loss_at, -(X.T @ (y / (1 + np.exp(y * z)))) / n

    x = np.zeros(d)
    f, g = evaluate(x)
    S = np.argsort(-np.abs(g), kind="stable")[:tau]
    curvature = 1.0 if loss == "squared" else 0.25
    mu = 1 / (curvature * np.linalg.eigvalsh(X[:, S].T @ X[:, S] / n)[-1])
    recent = [f]
    best = f
    for _ in range(rounds):
        step = x - mu * g
        kept = np.argsort(-np.abs(step), kind="stable")[:tau]
        new = np.zeros(d)
        new[kept] = step[kept]
        moved = new - x
        value, gradient = evaluate(new)
        if value > max(recent[-5:]) - 1e-4 * (moved @ moved) / (2 * mu):
            mu *= 0.3
            continue
        bend = moved @ (gradient - g)
        mu = moved @ moved / bend if bend > 0 else 2 * mu
        x, f, g = new, value, gradient
        recent.append(f)
        best = min(best, f)
    return best


def central_1(repeats, tau=200):
    """Print time to OMP's objective on pooled rows beside abess and skglm."""
    for seed in SEEDS:
        X, y, _ = make_iht_simulation(1, random_state=seed)
        goal = omp(X, y, tau)
        ours, whole, theirs, reached, rough = [], [], [], [], []
        for _ in range(repeats):
            model = FedBestSubset(tau, fit_intercept=False)
            whole.append(timed(partial(model.fit, X, y))[1])
            rounds = first(model.history_["objective"], goal)
            short = FedBestSubset(tau, fit_intercept=False, max_rounds=rounds)
            ours.append(timed(partial(short.fit, X, y))[1])
            early = FedBestSubset(tau, fit_intercept=False, tol=ROUGH)
            rough.append(timed(partial(early.fit, X, y))[1])
            if importlib.util.find_spec("abess"):
                from abess import LinearRegression

                rival = LinearRegression(support_size=tau, fit_intercept=False)
                theirs.append(timed(partial(rival.fit, X, y))[1])
                reached.append(half_mse(X, y, rival.coef_))
        median = statistics.median
        line = (
            f"simulation I pooled, seed {seed}: OMP's objective in "
            f"{median(ours):.2f} s ({rounds} rounds), with tol={ROUGH:g} "
            f"{median(rough):.2f} s at {early.objective_ / goal:.4f} of it, to the end "
            f"{median(whole):.2f} s at {model.objective_ / goal:.4f}"
        )
        if theirs:
            ratios = [b / a for a, b in zip(ours, theirs, strict=True)]
            roughs = [b / a for a, b in zip(rough, theirs, strict=True)]
            ends = [b / a for a, b in zip(whole, theirs, strict=True)]
            line += (
                f"; abess {median(theirs):.2f} s at {median(reached) / goal:.4f}; "
                f"ratio {median(ratios):.1f} [{min(ratios):.1f} .. {max(ratios):.1f}], "
                f"with tol={ROUGH:g} {median(roughs):.1f} [{min(roughs):.1f} .. "
                f"{max(roughs):.1f}], to the end {median(ends):.1f} "
                f"[{min(ends):.1f} .. {max(ends):.1f}]"
            )
        print(line, flush=True)


def skglm_1(tau=200):
    """Print the objective of skglm's MCP on the first seed."""
    if not importlib.util.find_spec("skglm"):
        return
    X, y, _ = make_iht_simulation(1, random_state=SEEDS[0])
    objective, seconds = mcp(X, y, tau)
    print(
        f"skglm MCP, seed {SEEDS[0]}, refitted: {objective / omp(X, y, tau):.4f} of "
        f"OMP's, its last fit {seconds:.2f} s",
        flush=True,
    )


def mcp(X, y, tau):
    """Return the refitted objective of skglm's MCP, bisected; and its last time."""
    from skglm import MCPRegression

    scale = np.sqrt(np.mean(X**2, axis=0))
    low, high = 1e-4, np.abs(X.T @ y / scale).max() / len(y)
    best, last = np.inf, 0.0
    A = np.asfortranarray(X / scale)
    for _ in range(8):
        alpha = np.sqrt(low * high)
        model = MCPRegression(alpha=alpha, fit_intercept=False, max_iter=20, tol=1e-3)
        _, seconds = timed(partial(model.fit, A, y))
        support = np.flatnonzero(model.coef_)
        if len(support) > tau:
            low = alpha
        else:
            high, last = alpha, seconds
            used = X[:, support]
            best = min(best, half_mse(used, y, np.linalg.lstsq(used, y)[0]))
    return best, last


def load_sparse(name):
    """Return rows and labels of a CSR set."""
    with np.load(DATA / name) as file:
        parts = (file["data"].astype(float), file["indices"], file["indptr"])
        return sparse.csr_array(parts, shape=tuple(file["shape"])), file["y"]


def ridge_refit(A, code, C, l2, mask):
    """Return the least objective of softmax (or logistic, C = 1) within a mask."""
    n, s = A.shape

    def evaluate(flat):
        coef = np.zeros((C, s))
        coef[mask] = flat[: mask.sum()]
        z = A @ coef.T + flat[mask.sum() :]
        if C == 1:
            sign = 2.0 * code - 1
            value = np.logaddexp(0, -sign * z[:, 0]).mean()
            slope = (-sign / (1 + np.exp(sign * z[:, 0])))[:, None] / n
        else:
            log_p = log_softmax(z, axis=1)
            value = -log_p[np.arange(n), code].mean()
            slope = np.exp(log_p)
            slope[np.arange(n), code] -= 1
            slope /= n
        gradient = (A.T @ slope).T + l2 * coef
        value += l2 / 2 * (coef**2).sum()
        return value, np.concatenate([gradient[mask], slope.sum(axis=0)])

    flat = np.zeros(mask.sum() + C)
    options = {"maxiter": 2000, "maxfun": 5000}
    return minimize(evaluate, flat, jac=True, method="L-BFGS-B", options=options).fun


def l1_refit(X, code, C, tau, l2, solver, *, low=1e-4, high=1e3, bisections=10):
    """Return the refitted objective of L1, bisected to `tau`; and the last fit's time.

    That is of the penalty alone: neither the search for it nor the refit is counted.
    """
    best, last = np.inf, 0.0
    for _ in range(bisections):
        strength = np.sqrt(low * high)
        model = LogisticRegression(
            l1_ratio=1.0,
            C=strength,
            solver=solver,
            tol=1e-3,
            max_iter=1000,
            random_state=0,
        )
        _, seconds = timed(lambda m=model: m.fit(X, code))
        mask = model.coef_ != 0
        if mask.sum() > tau:
            high = strength
        elif mask.sum() < tau // 2:
            low = strength
        else:
            low, last = strength, seconds
            used = mask.any(axis=0)
            value = ridge_refit(X[:, used], code, C, l2, mask[:, used])
            best = min(best, value)
    return best, last


def text(name, tau, l2, rows):
    """Print the objectives of a logistic model on a text set, and L1's refitted."""
    X, y = load_sparse(name)
    X = sparse.csr_array(rows(X))
    code = (y > 0).astype(int)
    for fit_intercept in (False, True):
        model = FedBestSubset(tau, loss="logistic", l2=l2, fit_intercept=fit_intercept)
        _, seconds = timed(lambda m=model: m.fit(X, y))
        print(
            f"{name} {X.shape}, tau {tau}, l2 {l2:g}, intercept {fit_intercept}: "
            f"{model.objective_:.4f} in {model.n_rounds_} rounds, {seconds:.2f} s",
            flush=True,
        )
    best, seconds = l1_refit(X, code, 1, tau, l2, "liblinear")
    print(f"  L1 (liblinear) refitted: {best:.4f}, one fit {seconds:.2f} s", flush=True)


def mnist(tau=500, l2=1e-4):
    """Print objective and time of softmax on 5 000 digits beside saga's L1."""
    with np.load(DATA / "iht_mnist_t10k.npz") as file:
        X, y = file["X"][:5000] / 255.0, file["y"][:5000].astype(int)
    model = FedBestSubset(tau, loss="softmax", l2=l2)
    _, mine = timed(lambda: model.fit(X, y))
    objectives, times = model.history_["objective"], model.history_["time"]
    print(
        f"MNIST 5000 rows, tau {tau}, l2 {l2:g}: {model.objective_:.4f} in "
        f"{model.n_rounds_} rounds, {mine:.2f} s; by round "
        f"{' '.join(f'{v:.4f}' for v in objectives)}",
        flush=True,
    )
    best, seconds = l1_refit(
        *(X, y, 10, tau, l2, "saga"), low=1e-2, high=0.1, bisections=4
    )
    r = max(first(objectives, best), 1)
    print(
        f"  L1 (saga) refitted: {best:.4f}, one fit {seconds:.2f} s, "
        f"{seconds / mine:.1f} times ours; ours is there in round {r}, "
        f"{times[r - 1]:.2f} s of {times[-1]:.2f}",
        flush=True,
    )


def unit_tfidf(X):
    """Return unit rows of term frequency times inverse document frequency."""
    return TfidfTransformer().fit_transform(X)


PARTS = {
    "federated": lambda a: simulation_1(),
    "logistic": lambda a: simulation_2(a.clients),
    "central": lambda a: central_1(a.repeats),
    "skglm": lambda a: skglm_1(),
    "rcv1": lambda a: text("iht_rcv1_ccat_1k.npz", 50, 1e-3, normalize),
    "movies": lambda a: [
        text("iht_moviereviews_counts.npz", 200, 1e-3, rows)
        for rows in (unit_tfidf, normalize)
    ],
    "mnist": lambda a: mnist(),
}


def main():
    """Run the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        for part in arguments.part:
            PARTS[part](arguments)


if __name__ == "__main__":
    main()
