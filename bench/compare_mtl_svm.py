"""FedMTLSVC and FedMTLSVR against LIBLINEAR on augmented rows: times, and memory.

python bench/compare_mtl_svm.py [--repeats 5] [--problem dense-unit ...] [--C1 1 ...]

Both start from the raw rows and end with w and all v_k, on one thread, in one process,
in turns. Ours stops at a measured relative gap of 1e-3; LIBLINEAR runs at the loosest
tolerance at which its primal objective is no higher than ours. Its time holds the
augmentation, which is shown apart.
"""

import argparse
import functools
import os
import statistics
import subprocess
import sys
import warnings
from time import perf_counter

import mtl_svm_rivals as rivals
import numpy as np
import problems
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from fedcore import FedMTLSVC, FedMTLSVR
from fedcore.federation.contract import Cohort
from fedcore.mtl_svm import participant
from fedcore.mtl_svm.protocol import MTLSVM
from fedcore.mtl_svm.reference import ReferenceClients

C2 = 1.0


def ours(problem, task, C1, n_jobs=None):
    """Fit; return the model."""
    make = problems.classification if task == "svc" else problems.regression
    X, y, clients = make(problem)
    estimator = FedMTLSVC if task == "svc" else FedMTLSVR
    model = estimator(C1, C2, fit_intercept=False, random_state=0, n_jobs=n_jobs)
    return model.fit(X, y, clients)


def timed(work):
    """Return what `work` gives, and the seconds it took."""
    start = perf_counter()
    result = work()
    return result, perf_counter() - start


def compare(problem, task, C1, repeats):
    """Print one line of the table."""
    make = problems.classification if task == "svc" else problems.regression
    X, y, clients = make(problem)
    epsilon = None if task == "svc" else 0.1
    n_clients = len(np.unique(clients))
    model = ours(problem, task, C1)
    A = rivals.augment(X, clients, n_clients, C2)
    tol = rivals.loosest_tolerance(A, y, C1, model.objective_, epsilon)
    del A
    mine, theirs, augmenting = [], [], []
    for _ in range(repeats):
        model, seconds = timed(lambda: ours(problem, task, C1))
        mine.append(seconds)
        A, preparing = timed(lambda: rivals.augment(X, clients, n_clients, C2))
        _, fitting = timed(lambda A=A: rivals.liblinear(A, y, C1, tol, epsilon))
        del A
        augmenting.append(preparing)
        theirs.append(preparing + fitting)
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    median = statistics.median
    print(
        f"{task} {problem:12} C1={C1:<5g} ours {median(mine):.3f} s "
        f"(gap {model.dual_gap_:.1e}, {model.history_['passes'][-1]:.0f} passes)  "
        f"LIBLINEAR {median(theirs):.3f} s (tol {tol:g}, "
        f"augmentation {median(augmenting):.3f})  "
        f"ratio {median(ratios):.1f} [{min(ratios):.1f} .. {max(ratios):.1f}]",
        flush=True,
    )


def threads(problem, task, C1, repeats):
    """Print the gain of a second thread."""
    one, two = [], []
    for _ in range(repeats):
        one.append(timed(lambda: ours(problem, task, C1, 1))[1])
        two.append(timed(lambda: ours(problem, task, C1, 2))[1])
    ratios = [a / b for a, b in zip(one, two, strict=True)]
    print(
        f"{task} {problem:12} C1={C1:<5g} two threads: {statistics.median(ratios):.2f} "
        f"[{min(ratios):.2f} .. {max(ratios):.2f}] times one; "
        f"machine load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def kernel_pass(problem, repeats):
    """Print the time of one pass over all clients: kernel against reference.py.

    The pass is the second one, with b no longer 0. The reference does three clients.
    """
    X, y, clients = problems.classification(problem)
    y, offsets = (y > 0).astype(np.int32), np.flatnonzero(np.diff(clients, prepend=-1))
    offsets = np.append(offsets, len(y))
    svm = MTLSVM("hinge", 1.0, C2, 0.0, 0.0, "sequential", "auto", 1e-6, 1)
    cohort = Cohort(X, y, None, offsets.astype(np.int64), np.array([-1, 1]))
    agreement = {"n_classes": 1, "classes": np.array([-1, 1]), "class_weight": None}
    call = {"inv_C2": np.ones((2, 1)), "working": np.ones(1, np.uint8), "seed": 0}
    call |= {"first_client": 0, "coupling": np.ones(1), "passes": 1, "hand_on": True}
    mine, theirs, few = [], [], 3
    for _ in range(repeats):
        cs = participant.join(cohort, svm, agreement)
        everybody = np.arange(len(offsets) - 1, dtype=np.int32)
        w = np.zeros((1, X.shape[1]))
        for exchange in (1, 2):
            figures = np.zeros((1, 3))
            work = functools.partial(
                cs.kernel.update, everybody, None, w, w.reshape(-1), figures, **call
            )
            _, seconds = timed(functools.partial(work, exchange=exchange))
        mine.append(seconds)
        parts = [slice(*offsets[k : k + 2]) for k in range(few)]
        reference = ReferenceClients(
            [(X[part], y[part], None) for part in parts],
            **{"loss": "hinge", "n_classes": 1, "C1": 1.0, "epsilon": 0.0},
            **{"bias": 0.0, "class_weight": None, "absent": None},
        )
        w = np.zeros((1, X.shape[1]))
        for exchange in (1, 2):
            work = functools.partial(reference.update, range(few), None, w, **call)
            _, seconds = timed(functools.partial(work, exchange=exchange))
        theirs.append(seconds * (len(offsets) - 1) / few)
    ratios = [b / a for a, b in zip(mine, theirs, strict=True)]
    print(
        f"pass {problem:13} kernel {1e3 * statistics.median(mine):.2f} ms  "
        f"reference.py {statistics.median(theirs):.2f} s  "
        f"ratio {statistics.median(ratios):.0f} "
        f"[{min(ratios):.0f} .. {max(ratios):.0f}]",
        flush=True,
    )


def peak_memory(problem, task, C1, who):
    """Peak memory of a fresh process above that with the rows loaded, in MiB."""
    code = (
        "import resource, sys, warnings; warnings.simplefilter('ignore')\n"
        "import numpy as np, problems, mtl_svm_rivals as r, compare_mtl_svm as c\n"
        f"X, y, k = (problems.classification if {task!r} == 'svc' "
        f"else problems.regression)({problem!r})\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "open('/proc/self/clear_refs', 'w').write('5')\n"
        "status = lambda key: int(next(line for line in open('/proc/self/status') "
        "if line.startswith(key)).split()[1])\n"
        "before = status('VmRSS')\n"
        + (
            f"m = c.ours({problem!r}, {task!r}, {C1})\n"
            if who == "ours"
            else f"A = r.augment(X, k, k.max() + 1, {C2}); "
            f"w = r.liblinear(A, y, {C1}, 0.1, {None if task == 'svc' else 0.1})\n"
        )
        + "print((status('VmHWM') - before) / 1024)"
    )
    here = os.path.dirname(os.path.abspath(__file__))
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=here,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main():
    """Run what the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = ["small", "dense-unit", "dense", "sparse-unit", "sparse"]
    parser.add_argument("--problem", nargs="+", default=names, choices=names)
    parser.add_argument("--task", nargs="+", default=["svc"], choices=["svc", "svr"])
    parser.add_argument("--C1", nargs="+", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-memory", action="store_true")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1):
        for task in arguments.task:
            for problem in arguments.problem:
                for C1 in arguments.C1:
                    compare(problem, task, C1, arguments.repeats)
                if task == "svc":
                    kernel_pass(problem, arguments.repeats)
                if problem.startswith("dense"):
                    threads(problem, task, 1.0, arguments.repeats)
                if not arguments.no_memory:
                    mine, theirs = (
                        peak_memory(problem, task, 1.0, who) for who in ("ours", "them")
                    )
                    print(
                        f"{task} {problem:12} peak memory above the rows: ours "
                        f"{mine:.0f} MiB, LIBLINEAR {theirs:.0f} MiB",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
