"""The command `fedcore`, also as `python -m fedcore`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from . import __version__
from .reproduce import PARTS


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
        "demo", help="the four methods on data that come with the package"
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
    demo.add_argument(
        "--report", type=Path, metavar="FILE", help="HTML file for the last table"
    )
    demo.set_defaults(command=_demo)

    reproduce = commands.add_parser(
        "reproduce", help="what the papers claim beside what is measured here"
    )
    reproduce.add_argument("part", choices=(*PARTS, "all"), help="which methods")
    reproduce.add_argument(
        "--quick", action="store_true", help="few seeds, small sizes: minutes"
    )
    reproduce.add_argument(
        "--data",
        type=Path,
        default=os.environ.get("FEDCORE_DATA"),
        metavar="DIR",
        help="sets that the package does not ship [$FEDCORE_DATA]",
    )
    reproduce.add_argument(
        "--out",
        type=Path,
        default=Path("fedcore-report"),
        metavar="DIR",
        help="for the report; finished measurements there are kept [fedcore-report]",
    )
    reproduce.set_defaults(command=_reproduce)

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

    demo.run(
        n_splits=args.splits,
        n_jobs=args.jobs,
        seed=args.seed,
        report_file=args.report,
        say=say,
    )


def _reproduce(args: argparse.Namespace) -> None:
    from .reproduce import reproduce

    parts = list(PARTS) if args.part == "all" else [args.part]
    try:
        reproduce(parts, quick=args.quick, data=args.data, out=args.out)
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"fedcore reproduce: {error}")


def _info(args: argparse.Namespace) -> None:
    from ._facts import facts

    for name, value in facts():
        print(f"{name:13} {value}")


if __name__ == "__main__":
    sys.exit(main())
