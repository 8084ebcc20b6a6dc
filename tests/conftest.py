"""Fixtures for all tests."""

import os
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from numpy.testing import assert_array_equal
from scipy import sparse


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


@pytest.fixture(scope="session")
def assert_same_fit():
    """Return a function that compares two fitted models bit by bit."""

    def assert_same_fit(one, other):
        """Compare all fitted attributes bit by bit, but for the seconds that passed."""
        names = [name for name in vars(one) if name.endswith("_")]
        assert names == [name for name in vars(other) if name.endswith("_")]
        for name in names:
            a, b = getattr(one, name), getattr(other, name)
            if isinstance(a, dict):
                assert list(a) == list(b)
                for column in a.keys() - {"time"}:
                    assert_array_equal(a[column], b[column], err_msg=column)
            elif sparse.issparse(a):
                for part in ("data", "indices", "indptr"):
                    assert_array_equal(getattr(a, part), getattr(b, part), err_msg=name)
            elif hasattr(a, "outcome"):
                for field in a.__dataclass_fields__:
                    assert_array_equal(getattr(a, field), getattr(b, field))
            else:
                assert_array_equal(a, b, err_msg=name)

    return assert_same_fit


@pytest.fixture(scope="session")
def grid_of():
    """Give the class of grids without Flower's processes."""
    spec = spec_from_file_location("fake_grid", Path(__file__).parent / "fake_grid.py")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.FakeGrid


collect_ignore = ["fake_grid.py"]  # a helper, which needs flwr
