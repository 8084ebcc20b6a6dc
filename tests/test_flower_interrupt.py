"""Ctrl-C at the coordinator of a deployed run: it ends at once, and can go on."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("flwr", minversion="1.42")

from fedcore import load

SCRIPT = """
import sys, time, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from fake_grid import FakeGrid
from flwr.app import Context, RecordDict
from fedcore import FedMTLSVC
from fedcore.datasets import make_mtl_classification
from fedcore.federation.flower import client_app, server_app

folder, waits = Path(sys.argv[2]), sys.argv[3] == "waits"
X, y, clients = make_mtl_classification(3, 20, 4, random_state=0)
model = FedMTLSVC(C2=4.0, max_rounds=6, tol=0, random_state=0)
apps = {}
for k in range(3):
    mine = clients == k
    data = X[mine], y[mine]
    app = client_app(model, lambda _, data=data: data, state_dir=folder)
    apps[k] = app, {"name": f"s{k}"}
grid = FakeGrid(apps)

def tamper(node, push, message, answer):
    if waits and push == 5:
        print("waits", flush=True)
        return []  # and the coordinator waits a minute
    return [answer()]

grid.tamper = tamper
server = server_app(
    model, sites=3, deadline=60.0, patience=60.0, checkpoint=folder / "run.ckpt",
    resume=True, out=folder,
)
server(grid, Context(1, 0, {}, RecordDict(), {}))
print("done", flush=True)
"""


def begin(folder, how):
    folder.mkdir(exist_ok=True)
    command = [sys.executable, "-c", SCRIPT, Path(__file__).parent, folder, how]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_ctrl_c_ends_the_coordinator_and_leaves_its_checkpoint_whole(tmp_path):
    interrupted, whole = tmp_path / "interrupted", tmp_path / "whole"
    run = begin(interrupted, "waits")
    assert run.stdout.readline() == "waits\n"
    time.sleep(0.5)
    begun = time.monotonic()
    run.send_signal(signal.SIGINT)
    _, said = run.communicate(timeout=20)
    assert time.monotonic() - begun < 1
    assert run.returncode != 0 and "KeyboardInterrupt" in said
    for folder in (interrupted, whole):
        out, said = begin(folder, "goes on").communicate(timeout=60)
        assert out == "done\n", said
    ours, expected = (load(folder / "model.npz") for folder in (interrupted, whole))
    assert_array_equal(ours.coef_, expected.coef_)
    for site in ("s0", "s1", "s2"):
        own, other = (load(f / f"{site}.npz") for f in (interrupted, whole))
        assert_array_equal(own.client_coef_, other.client_coef_)
