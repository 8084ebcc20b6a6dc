"""A long run takes no more memory than a short one."""

import os
import subprocess
import sys

import pytest

STATM = "/proc/self/statm"
LONG_FIT = """
import gc, sys, warnings
import numpy as np
from scipy import stats
from fedcore import FedIterHT, FedMTLSVC, LocalEngine, Timing
from fedcore.datasets import make_mtl_classification
from fedcore.federation.local import LocalRun

warnings.simplefilter("ignore")
late = Timing(stats.gamma(2, scale=0.5), wait=5e-4, dropout=0.1)
options = {"tol": 0, "max_rounds": 1000, "random_state": 0}
path = sys.argv[2]
model = {
    "sequential": FedMTLSVC(aggregation="sequential", **options),
    "late": FedMTLSVC(aggregation="line_search", **options),
    "hard thresholding": FedIterHT(
        20, loss="logistic", step_size=1e-3, batch_size=5, **options
    ),
}[sys.argv[1]]
timing = late if sys.argv[1] == "late" else None
model.set_params(engine=LocalEngine(timing=timing, checkpoint=path, every=100))
sizes, save = [], LocalRun.save

def measured(self, progress):
    save(self, progress)
    if progress.state["round"] in (100, 1000):
        gc.collect()
        with open("/proc/self/statm") as file:
            sizes.append(int(file.read().split()[1]))

LocalRun.save = measured
X, y, clients = make_mtl_classification(10, 15, 2000, random_state=0)
model.fit(X, y, clients)
print(model.n_rounds_, sizes[0], sizes[-1])
"""


@pytest.mark.skipif(not os.path.exists(STATM), reason="no /proc")
@pytest.mark.parametrize("kind", ["sequential", "late", "hard thresholding"])
def test_a_thousand_rounds_take_no_more_memory_than_a_hundred(kind, tmp_path):
    command = [sys.executable, "-c", LONG_FIT, kind, tmp_path / "run.ckpt"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr
    rounds, early, late = map(int, done.stdout.split())
    assert rounds == 1000
    assert late <= 1.05 * early
    print(kind, early, late, late / early)
