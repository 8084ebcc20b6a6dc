"""The compiled kernels, one module for each file of csrc; a check that they exist."""

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_here = Path(__file__).parent
# Each kernel has a stub beside it, so the stubs say what should have been built.
_missing = sorted(
    stub.stem
    for stub in _here.glob("*.pyi")
    if not any((_here / f"{stub.stem}{end}").exists() for end in EXTENSION_SUFFIXES)
)
if _missing:
    raise ImportError(
        f"The compiled kernels {', '.join(_missing)} are missing from {_here}: run "
        '"pip install -e ." in the checkout that holds this folder, or leave the '
        "checkout to use an installed fedcore."
    )
