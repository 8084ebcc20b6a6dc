"""The command `fedcore`, also as `python -m fedcore`."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "POT")
# Widest first: flag in /proc/cpuinfo, and what people call it.
VECTORS = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX"), ("sse2", "SSE2"))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments after the program's name; None takes those of the process.

    Returns
    -------
    int
        0 if all went well, 130 if it was interrupted.

    Raises
    ------
    SystemExit
        With code 2 if an argument is wrong, with 0 after `--help` and `--version`.
    """
    args = _parser().parse_args(argv)
    try:
        args.command(args)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("fedcore", description="Federated learning.")
    parser.add_argument("--version", action="version", version=f"fedcore {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command")

    demo = commands.add_parser(
        "demo", help="global, local and multi-task models on real people's data"
    )
    demo.add_argument(
        "--jobs", type=threads, metavar="N", help="threads, -1 for all processors"
    )
    demo.add_argument(
        "--seed", type=seed, default=0, metavar="N", help="draws the splits [0]"
    )
    demo.add_argument(
        "--splits",
        type=int,
        choices=(2, 3, 4),
        default=4,
        help="into training and test rows [4]",
    )
    demo.set_defaults(command=_demo)

    info = commands.add_parser("info", help="versions, and how the kernels were built")
    info.set_defaults(command=_info)
    return parser


def threads(text: str) -> int:
    value = int(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 threads, expected 1 or more, or -1")
    return value


def seed(text: str) -> int:
    value = int(text)
    if not 0 <= value < 2**32:
        raise argparse.ArgumentTypeError(f"{value}, expected 0 to {2**32 - 1}")
    return value


def _demo(args: argparse.Namespace) -> None:
    from . import demo  # only now: it imports much that `info` does not need

    def say(line: str) -> None:
        print(line, flush=True)

    demo.run(n_splits=args.splits, n_jobs=args.jobs, seed=args.seed, say=say)


def _info(args: argparse.Namespace) -> None:
    for name, value in _facts():
        print(f"{name:13} {value}")


def _facts() -> Iterator[tuple[str, str]]:
    yield "fedcore", __version__
    system = f"{platform.system()} {platform.machine()}"
    yield "python", f"{platform.python_version()}, {system}"
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:
            yield package, "not installed"
    from ._kernels import _svm

    stable = ".abi3." in Path(_svm.__file__).name
    yield "kernels", "stable ABI" if stable else "for this version of Python alone"
    vectors = _widest_vectors()
    if vectors:
        yield "vectors", vectors


def _widest_vectors() -> str | None:
    """Name the processor's widest vector set; None where that is not easily seen."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return None
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return next((name for flag, name in VECTORS if flag in flags.split()), None)


if __name__ == "__main__":
    sys.exit(main())
