"""A real SuperLink and its SuperNodes on this machine, ended without a trace."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fedcore

BIN = Path(sys.executable).parent
START = 300.0  # seconds: what takes 8 s on an idle machine may take long on a full one
OFFLINE = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
}


@dataclass(frozen=True, slots=True)
class Process:
    """A process by id and start time: an id alone may be given to another."""

    pid: int
    started: int

    def kill(self) -> None:
        if process(self.pid) == self:
            os.kill(self.pid, signal.SIGKILL)


def process(pid: int) -> Process | None:
    """Look a process up; None if there is none, or only its exit status is left."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat[stat.rindex(")") + 2 :].split()
    return None if state == "Z" else Process(pid, int(rest[18]))


def processes_with(variable: str) -> set[Process]:
    """Find the processes that inherited an environment variable, NAME=value.

    SuperExec leaves session and process group, and whoever outlives its parent leaves
    the tree of processes; the environment stays.
    """
    found = set()
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
            except OSError:  # gone, or somebody else's
                continue
            if variable.encode() in environment:
                found.add(process(int(folder.name)))
    return found - {None}


def wait_for(condition: Callable[[], Any], what: str, limit: float) -> Any:
    """Give the first true value of a condition; fail after `limit` seconds."""
    end = time.monotonic() + limit
    while not (value := condition()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what} took longer than {limit:g} s")
        time.sleep(0.2)
    return value


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Deployment:
    """SuperLink and SuperNodes; use it as a context manager.

    Parameters
    ----------
    folder : Path
        A fresh folder: the logs and all that Flower keeps.
    certificates : Path, optional
        Folder with ca.pem, server.pem and server.key; with it TLS is on, and only
        SuperNodes whose keys were registered are let in.
    """

    def __init__(self, folder: Path, certificates: Path | None = None):
        self.folder, self.certificates = folder, certificates
        self._home = f"FLWR_HOME={folder / 'flower'}"
        self._port = free_port()
        self._started: dict[str, subprocess.Popen] = {}
        package = str(Path(fedcore.__file__).parents[1])
        self._environment = {
            **os.environ,
            **OFFLINE,
            "FLWR_HOME": str(folder / "flower"),
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": package,
        }
        # Under pytest it tells warnings and the like, which are not the sites' affair.
        self._environment.pop("PYTHONWARNINGS", None)

    def __enter__(self) -> Deployment:
        home = self.folder / "flower"
        home.mkdir(parents=True)
        tls = self.certificates
        trust = (
            "insecure = true" if tls is None else f'root-certificates = "{tls}/ca.pem"'
        )
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "loopback"\n\n[superlink.loopback]\n'
            f'address = "127.0.0.1:{self._port}"\n{trust}\n'
        )
        secure = ["--insecure"]
        if tls is not None:
            secure = [
                f"--ssl-ca-certfile={tls}/ca.pem",
                f"--ssl-certfile={tls}/server.pem",
                f"--ssl-keyfile={tls}/server.key",
                "--enable-supernode-auth",
            ]
        try:
            self._start(
                "superlink",
                "flower-superlink",
                *secure,
                "--host=127.0.0.1",
                f"--port={self._port}",
                "--disable-runtime-dependency-installation",
            )
            self._wait_until_open("superlink", self._port)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error) -> None:
        """End everything that was started, and prove it."""
        # Nodes first: they take leave of the SuperLink, and would wait for it.
        *nodes, superlink = reversed(self._started.values())
        for group in (nodes, [superlink]):
            for child in group:
                child.terminate()
            try:
                wait_for(lambda g=group: all(c.poll() is not None for c in g), "", 10)
            except TimeoutError:
                pass
        # What is left was detached or does not listen.
        wait_for(self._kill_all, "the end of all processes", 30)
        for child in self._started.values():
            child.wait(10)
        left = processes_with(self._home)
        assert not left, f"processes left behind: {left}"

    def _kill_all(self) -> bool:
        left = processes_with(self._home)
        for one in left:
            one.kill()
        return not left

    def start_supernode(
        self, name: str, *, key: Path | None = None, **node_config: Any
    ) -> None:
        """Start a SuperNode; `key` is its private key, its app sees `node_config`."""
        tls, port = self.certificates, free_port()
        secure = (
            ["--insecure"] if tls is None else [f"--root-certificates={tls}/ca.pem"]
        )
        if key is not None:
            secure.append(f"--auth-supernode-private-key={key}")
        config = " ".join(
            f"{entry.replace('_', '-')}={json.dumps(value)}"
            for entry, value in {"name": name, **node_config}.items()
        )
        self._start(
            name,
            "flower-supernode",
            *secure,
            f"--superlink=127.0.0.1:{self._port}",
            "--host=127.0.0.1",
            f"--port={port}",
            f"--node-config={config}",
            FEDCORE_TEST_NODE=name,
        )

    def kill_supernode(self, name: str) -> None:
        """Kill a SuperNode and all that it started, as a power cut would."""
        mark = f"FEDCORE_TEST_NODE={name}"

        def kill() -> bool:
            left = processes_with(mark) & processes_with(self._home)
            for one in left:
                one.kill()
            return not left

        wait_for(kill, f"the end of {name}", 30)
        self._started.pop(name).wait(10)

    def has_ended(self, name: str) -> bool:
        return self._started[name].poll() is not None

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def flwr(self, *arguments: str) -> dict:
        """Call the command `flwr` and give its answer."""
        done = subprocess.run(
            [BIN / "flwr", *arguments, "--format", "json"],
            env=self._environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=START,
            check=False,
        )
        try:
            answer = json.loads(done.stdout)
        except ValueError:
            answer = {}
        # The exit status is 0 even for an app that was refused.
        if not answer.get("success"):
            raise RuntimeError(f"flwr {arguments[0]}: {done.stdout}{done.stderr}")
        return answer

    def submit(self, app: Path, **config: Any) -> int:
        """Submit an app; give the run's number."""
        settings = " ".join(f"{k}={json.dumps(v)}" for k, v in config.items())
        more = ["--run-config", settings] if config else []
        return int(self.flwr("run", str(app), "loopback", *more)["run-id"])

    def status(self, run: int) -> str:
        """Give the status of a run: pending, running, finished:completed ..."""
        answer = self.flwr("list", "loopback", "--run-id", str(run))
        return answer["runs"][0]["status"]

    def wait_until_finished(self, run: int, limit: float) -> str:
        """Give the status of a run once it is over."""
        end = time.monotonic() + limit

        def may_be_over() -> bool:
            # The command costs seconds of processor time: seldom, or when it is due.
            due = re.search(f"Finished task .* of run {run}", self.log("superlink"))
            return bool(due) or time.monotonic() > asked + 120

        while True:
            asked = time.monotonic()
            wait_for(may_be_over, f"run {run}", end - asked)
            status = self.status(run)
            if status.startswith("finished"):
                return status

    def _start(self, name: str, program: str, *arguments: str, **environment: str):
        with open(self.folder / f"{name}.log", "ab") as log:
            self._started[name] = subprocess.Popen(
                [BIN / program, *arguments],
                env={**self._environment, **environment},
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _wait_until_open(self, name: str, port: int) -> None:
        def ready() -> bool:
            if self.has_ended(name):
                raise RuntimeError(f"{name} ended:\n{self.log(name)}")
            return is_open(port)

        wait_for(ready, f"the start of {name}", START)
