"""Compare transport, barycenters and dictionary steps with POT, SciPy, lapx, torch."""

import argparse
import itertools
import statistics
from time import thread_time

import lap
import numpy as np
import ot
import torch
from numpy.testing import assert_allclose
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from fedcore.dadil.reference import project
from fedcore.dadil.steps import Stepper
from fedcore.ot import emd_batch, labelled_barycenter
from fedcore.ot.batch import squared_distances


def turns(repeats, ours, others, name):
    """Time in turns; print each rival's ratio to ours."""
    times = {who: [] for who in ["ours", *others]}
    for _ in range(repeats):
        for who, run in {"ours": ours, **others}.items():
            begin = thread_time()
            run()
            times[who].append(thread_time() - begin)
    mine = statistics.median(times["ours"])
    print(f"{name}: ours {1e3 * mine:.2f} ms", flush=True)
    for who in others:
        ratios = [a / b for a, b in zip(times[who], times["ours"], strict=True)]
        print(
            f"    {who:24} {1e3 * statistics.median(times[who]):8.2f} ms   "
            f"{statistics.median(ratios):6.1f} times "
            f"[{min(ratios):.1f} .. {max(ratios):.1f}]",
            flush=True,
        )


def compare_batch(repeats, d, b=32, n=128):
    """Solve a batch cold, then again after a move of 1%."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((b, n, d)), rng.standard_normal((b, n, d)) + 0.3
    C = squared_distances(X, Y)
    near = squared_distances(X + 0.01 * rng.standard_normal(X.shape), Y)
    w, prices = np.full(n, 1 / n), emd_batch(C).v

    def pot(C=C):
        return [ot.emd2(w, w, c) for c in C]

    def scipy():
        return [c[linear_sum_assignment(c)].mean() for c in C]

    rivals = {"POT ot.emd": pot, "SciPy": scipy}
    for solve in (lap.lapjvx_batch, lap.lapjvs_batch):
        rivals[f"lapx {solve.__name__}"] = lambda f=solve: f(C, n_threads=1)[0] / n
    for run in rivals.values():
        assert_allclose(run(), emd_batch(C).cost, rtol=1e-9)
    rivals["POT ot.emd"] = lambda: [ot.emd(w, w, c) for c in C]
    turns(repeats, lambda: emd_batch(C), rivals, f"{b} problems, n {n}, d {d}, cold")
    assert_allclose(pot(near), emd_batch(near, prices=prices).cost, rtol=1e-9)
    cold = {"POT ot.emd, cold": lambda: [ot.emd(w, w, c) for c in near]}
    turns(
        repeats, lambda: emd_batch(near, prices=prices), cold, "    moved by 1%, warm"
    )


def torch_barycenter(X, Y, alpha, max_iter=10, tol=1e-9):
    """Average after plans of POT, in turns, the straightforward way."""
    X, Y, alpha = torch.from_numpy(X), torch.from_numpy(Y), torch.from_numpy(alpha)
    n, start = X.shape[1], int(alpha.argmax())
    X_B, Y_B, w = X[start], Y[start], np.full(X.shape[1], 1 / X.shape[1])
    beta = max(float((torch.cdist(X_B, X_k) ** 2).max()) for X_k in X)
    objective = []
    for _ in range(max_iter):
        plans, total = [], 0.0
        for k in range(len(X)):
            C = torch.cdist(X_B, X[k]) ** 2 + beta * torch.cdist(Y_B, Y[k]) ** 2
            plans.append(torch.from_numpy(ot.emd(w, w, C.numpy())))
            total += float(alpha[k] * (plans[k] * C).sum())
        X_B = sum(a * n * p @ X_k for a, p, X_k in zip(alpha, plans, X, strict=True))
        Y_B = sum(a * n * p @ Y_k for a, p, Y_k in zip(alpha, plans, Y, strict=True))
        objective.append(total)
        if (
            len(objective) > 1
            and abs(objective[-2] - objective[-1]) <= tol * objective[0]
        ):
            break
    return X_B.numpy(), Y_B.numpy(), objective


def compare_barycenter(repeats, d, K=4, n=128):
    """One labelled barycenter."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((K, n, d)) + 0.3 * rng.standard_normal((K, 1, d))
    Y = np.eye(5)[rng.integers(0, 5, (K, n))]
    alpha = np.array([0.4, 0.3, 0.2, 0.1])
    ours = labelled_barycenter(X, Y, alpha)
    X_B, Y_B, objective = torch_barycenter(X, Y, alpha)
    assert_allclose(ours.objective, objective, rtol=1e-8)
    assert_allclose(ours.X, X_B, atol=1e-9)
    assert_allclose(ours.Y, Y_B, atol=1e-9)
    turns(
        repeats,
        lambda: labelled_barycenter(X, Y, alpha),
        {"torch + POT": lambda: torch_barycenter(X, Y, alpha)},
        f"barycenter, K {K}, n {n}, d {d}, {len(objective)} turns",
    )


def torch_step(X, logits, alphas, batches, optimizer):
    """Take one step the straightforward way: plans of POT, gradients of torch."""
    w = np.full(X.shape[1], 1 / X.shape[1])
    optimizer.zero_grad()
    total, Y = 0.0, torch.softmax(logits, -1)
    for alpha, (X_Q, Y_Q) in zip(alphas, batches, strict=True):
        atoms = [Z.detach().numpy() for Z in (X, Y, alpha)]
        X_B, Y_B, beta, s = plans_of_torch(*atoms)
        X_B = sum(a * X_k[s_k] for a, X_k, s_k in zip(alpha, X, s, strict=True))
        Y_B = sum(a * Y_k[s_k] for a, Y_k, s_k in zip(alpha, Y, s, strict=True))
        C = torch.cdist(X_B, X_Q) ** 2
        if Y_Q is not None:
            beta = C.max().detach()
            C = C + beta * torch.cdist(Y_B, Y_Q) ** 2
        plan = torch.from_numpy(ot.emd(w, w, C.detach().numpy()))
        total = total + (plan * C).sum()
    total.backward()
    optimizer.step()
    with torch.no_grad():
        for alpha in alphas:
            alpha.copy_(torch.from_numpy(project(alpha.numpy())))
    return float(total.detach())


def plans_of_torch(X, Y, alpha):
    """Barycenter as above, with the permutations that its plans are."""
    X, Y, alpha = map(torch.from_numpy, (X, Y, alpha))
    start = int(alpha.argmax())
    X_B, Y_B, w, objective = X[start], Y[start], np.full(X.shape[1], 1 / X.shape[1]), []
    beta = max(float((torch.cdist(X_B, X_k) ** 2).max()) for X_k in X)
    for _ in range(10):
        s, total = [], 0.0
        for k in range(len(X)):
            C = torch.cdist(X_B, X[k]) ** 2 + beta * torch.cdist(Y_B, Y[k]) ** 2
            plan = torch.from_numpy(ot.emd(w, w, C.numpy()))
            s.append(plan.argmax(1))
            total += float(alpha[k] * (plan * C).sum())
        X_B = sum(a * X_k[s_k] for a, X_k, s_k in zip(alpha, X, s, strict=True))
        Y_B = sum(a * Y_k[s_k] for a, Y_k, s_k in zip(alpha, Y, s, strict=True))
        objective.append(total)
        if (
            len(objective) > 1
            and abs(objective[-2] - objective[-1]) <= 1e-9 * objective[0]
        ):
            break
    return X_B, Y_B, beta, s


def compare_step(repeats, d, N=4, K=3, n=128, c=5):
    """One step of a dictionary over four domains, the last without labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((K, n, d))
    logits = 2 * np.eye(c)[rng.integers(0, c, (K, n))]
    alphas = rng.dirichlet(np.full(K, 3.0), N)
    batches = [
        (
            rng.standard_normal((n, d)) + 0.2 * rng.standard_normal(d),
            np.eye(c)[rng.integers(0, c, n)] if k < N - 1 else None,
        )
        for k in range(N)
    ]
    ours = [X.copy(), logits.copy(), alphas.copy()]
    moments = [(np.zeros_like(Z), np.zeros_like(Z)) for Z in ours]
    stepper, count = Stepper(K, n, d, c), itertools.count(1)

    def step():
        return stepper.step(*ours, batches, moments, next(count), 1e-4)

    theirs = [torch.from_numpy(Z.copy()).requires_grad_() for Z in (X, logits)]
    own = [torch.from_numpy(a.copy()).requires_grad_() for a in alphas]
    rows = [tuple(Z if Z is None else torch.from_numpy(Z) for Z in b) for b in batches]
    optimizer = torch.optim.Adam([*theirs, *own], lr=1e-4)

    def rival():
        return torch_step(*theirs, own, rows, optimizer)

    assert_allclose(sum(step()), rival(), rtol=1e-7)
    turns(repeats, step, {"torch + POT": rival}, f"step, {N} domains, K {K}, d {d}")


def main():
    """Run all, on one thread."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    with threadpool_limits(1):
        for d in (64, 2):
            compare_batch(repeats, d)
        for d in (64, 2048):
            compare_barycenter(repeats, d)
        for d in (64, 800):
            compare_step(repeats, d)


if __name__ == "__main__":
    main()
