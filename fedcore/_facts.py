"""What this installation is: versions, how the kernels were built, the processor."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from . import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "POT")
# Widest first: flag in /proc/cpuinfo, and what people call it.
VECTORS = (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX"), ("sse2", "SSE2"))


def facts() -> Iterator[tuple[str, str]]:
    """Name versions, build and processor, a pair each."""
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
