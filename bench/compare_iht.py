"""Top-tau and local IHT steps against NumPy and SciPy: ratios of times in one process.

python bench/compare_iht.py [--repeats 15] [--part top step round width]

Every rival is asked for the same result, which is asserted before any clock runs. Ours
and the rivals take turns; a ratio is rival over ours in the same turn, and its median
is printed with the smallest and the largest.
"""

import argparse
import statistics
from time import thread_time

import iht_rivals as rivals
import numpy as np
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from threadpoolctl import threadpool_limits

from fedcore.federation.contract import Cohort
from fedcore.iht import kernel, threshold
from fedcore.iht.reference import ReferenceClient

ROW_NNZ, TAU = 1000, 200


def turns(repeats, ours, others, name):
    """Time all in turns and print each rival's ratio to ours."""
    times = {who: [] for who in ["ours", *others]}
    for _ in range(repeats):
        for who, run in {"ours": ours, **others}.items():
            loops = 5 if who == "ours" else 1
            begin = thread_time()
            for _ in range(loops):
                run()
            times[who].append((thread_time() - begin) / loops)
    mine = statistics.median(times["ours"])
    print(f"{name}: ours {1e6 * mine:.1f} us", flush=True)
    for who in others:
        ratios = [
            theirs / own for theirs, own in zip(times[who], times["ours"], strict=True)
        ]
        print(
            f"    {who:28} {1e6 * statistics.median(times[who]):10.1f} us   "
            f"{statistics.median(ratios):7.1f} times "
            f"[{min(ratios):.1f} .. {max(ratios):.1f}]",
            flush=True,
        )


def compare_top(repeats):
    """Select only: normal entries, and vectors that are mostly zero."""
    rng = np.random.default_rng(0)
    for dtype in (np.float64, np.float32):
        for d, tau in [(1000, 200), (150_000, 200), (150_000, 15_000)]:
            x = rng.standard_normal(d).astype(dtype)
            top_of(x, tau, f"top {tau} of {d}, {np.dtype(dtype)}", repeats)
        x = np.zeros(150_000, dtype)
        x[rng.choice(len(x), 1200, replace=False)] = rng.standard_normal(1200)
        top_of(x, TAU, f"top {TAU} of 1200 among 150000, {np.dtype(dtype)}", repeats)
    x = np.repeat([1.0, 2.0, 1.0], 1000)
    assert_array_equal(threshold.top(x, 1500)[:500], np.arange(500))


def top_of(x, tau, name, repeats):
    """One vector."""
    others = {
        "argpartition": lambda: rivals.argpartition(x, tau),
        "argpartition of non-zeros": lambda: rivals.argpartition_of_nonzeros(x, tau),
        "argsort": lambda: rivals.argsort(x, tau),
    }
    for run in others.values():
        assert_array_equal(np.sort(run()), threshold.top(x, tau))
    turns(repeats, lambda: threshold.top(x, tau), others, name)


def wide_rows(n, d, seed=0):
    """CSR rows of ROW_NNZ distinct columns each."""
    rng = np.random.default_rng(seed)
    columns = [np.sort(rng.choice(d, ROW_NNZ, replace=False)) for _ in range(n)]
    indptr = np.arange(n + 1, dtype=np.int32) * ROW_NNZ
    data = rng.standard_normal(n * ROW_NNZ) / np.sqrt(ROW_NNZ)
    indices = np.concatenate(columns).astype(np.int32)
    return sparse.csr_array((data, indices, indptr), shape=(n, d)), rng


def federation(n_clients, n_rows, d):
    """Clients with wide rows, their kernel, and where to start."""
    X, rng = wide_rows(n_clients * n_rows, d)
    y = rng.standard_normal(X.shape[0])
    offsets = np.arange(n_clients + 1, dtype=np.int64) * n_rows
    bound = kernel.bind(Cohort(X, y, None, offsets), loss="squared", target=y)
    index = np.sort(rng.choice(d, TAU, replace=False)).astype(np.int32)
    return X, y, bound, index, rng.standard_normal(TAU), np.zeros(1)


def compare_steps(repeats, n_steps=20, d=150_000):
    """Time `n_steps` thresholded steps of one client in one call."""
    X, y, bound, index, value, b = federation(1, 100, d)
    x = np.zeros(d)
    x[index] = value
    for batch in (1, 10):
        call = {"step": 0.5, "n_steps": n_steps, "batch_size": batch, "tau": TAU}
        client = ReferenceClient(X[:1], y[:1], loss="squared")
        client.y = y  # only the draws are asked
        rows = [np.array(client.batch((0, 0), t, batch)) for t in range(n_steps)]

        def ours(call=call):
            return kernel.local_steps(
                *(bound, np.zeros(1, np.int32), index, value, b),
                step=np.array([call["step"]]),
                n_steps=n_steps,
                batch_size=call["batch_size"],
                n_nonzero=TAU,
                l2=0.0,
                key=(0, 0),
                first_client=0,
            )

        pairs = ours()
        others = {
            who: lambda run=run, rows=rows: run(X, y, x, 0.0, rows, 0.5, TAU)
            for who, run in rivals.STEPS.items()
        }
        for run in others.values():
            theirs, _ = run()
            assert_array_equal(np.flatnonzero(theirs), pairs.index)
            assert_allclose(theirs[pairs.index], pairs.value, rtol=1e-9, atol=1e-12)
        turns(repeats, ours, others, f"{n_steps} steps of batch {batch}, d {d}")
        plain = {"reference": lambda rows=rows: rivals.python(X, y, x, rows, 0.5, TAU)}
        turns(1, ours, plain, f"{n_steps} steps of batch {batch}, d {d}, plain Python")


def compare_round(repeats, n_clients=20, n_rows=100, d=150_000):
    """Time a round of FedIterHT: every client's steps, the sum, the threshold."""
    X, y, bound, index, value, b = federation(n_clients, n_rows, d)
    active, share = np.arange(n_clients, dtype=np.int32), np.full(n_clients, 0.05)
    client = ReferenceClient(X[:1], y[:1], loss="squared")
    client.y = y[:n_rows]
    x, draws = np.zeros(d), []
    x[index] = value
    for k in range(n_clients):
        client.number = k
        draws.append([np.array(client.batch((0, 0), t, 10)) for t in range(5)])

    def ours():
        pairs = kernel.local_steps(
            *(bound, active, index, value, b),
            step=np.full(n_clients, 0.5),
            n_steps=5,
            batch_size=10,
            n_nonzero=TAU,
            l2=0.0,
            key=(0, 0),
            first_client=0,
        )
        summed = kernel.weighted_sum(pairs, share, d)
        return threshold.top_pairs(*summed, TAU)

    def theirs(run):
        total = np.zeros(d)
        for k in range(n_clients):
            rows = slice(k * n_rows, (k + 1) * n_rows)
            total += 0.05 * run(parts[k], y[rows], x, 0.0, draws[k], 0.5, TAU)[0]
        out = np.zeros(d)
        kept = rivals.argpartition(total, TAU)
        out[kept] = total[kept]
        return out

    parts = [X[k * n_rows : (k + 1) * n_rows] for k in range(n_clients)]
    others = {who: lambda run=run: theirs(run) for who, run in rivals.STEPS.items()}
    kept, values = ours()
    for run in others.values():
        out = run()
        assert_array_equal(np.flatnonzero(out), kept)
        assert_allclose(out[kept], values, rtol=1e-9)
    turns(repeats, ours, others, f"round of {n_clients} clients, 5 steps of batch 10")


def compare_widths(repeats, n_steps=200):
    """Cost of a step at growing d, in turns: the slope between two step counts."""
    for batch in (1, 10):
        runs = {}
        for d in (100_000, 1_000_000, 10_000_000):
            bound, index, value, b = federation(1, 100, d)[2:]

            def run(n, bound=bound, index=index, value=value, b=b, batch=batch):
                kernel.local_steps(
                    *(bound, np.zeros(1, np.int32), index, value, b),
                    step=np.array([0.5]),
                    n_steps=n,
                    batch_size=batch,
                    n_nonzero=TAU,
                    l2=0.0,
                    key=(0, 0),
                    first_client=0,
                )

            runs[d] = run
        slopes = {d: [] for d in runs}
        for _ in range(repeats):
            for d, run in runs.items():
                marks = [thread_time()]
                for n in (n_steps // 10, n_steps):
                    run(n)
                    marks.append(thread_time())
                short, long = marks[1] - marks[0], marks[2] - marks[1]
                slopes[d].append((long - short) / (n_steps - n_steps // 10))
        for d, found in slopes.items():
            ratios = [a / b for a, b in zip(found, slopes[100_000], strict=True)]
            print(
                f"step of batch {batch}, d {d}: {1e6 * statistics.median(found):.2f} us"
                f", {statistics.median(ratios):.3f} times that at 100000 "
                f"[{min(ratios):.2f} .. {max(ratios):.2f}]",
                flush=True,
            )


PARTS = {
    "top": compare_top,
    "step": compare_steps,
    "round": compare_round,
    "width": compare_widths,
}


def main():
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", default=list(PARTS), choices=list(PARTS))
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    with threadpool_limits(1):
        for part in arguments.part:
            PARTS[part](arguments.repeats)


if __name__ == "__main__":
    main()
