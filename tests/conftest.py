"""Fixtures for all tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def data_path():
    """Return a function from the name of a real data file to its path, or skip."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("FEDCORE_DATA") or default)

    def path_of(name):
        path = folder / name
        if not path.exists():
            pytest.skip(f"{name} is not in FEDCORE_DATA or ../shared/data")
        return path

    return path_of
