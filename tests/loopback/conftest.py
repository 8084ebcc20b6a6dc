"""Deployments that the tests of a module share."""

import pytest

pytest.importorskip("flwr")

from .certificates import write_certificates, write_node_key
from .deployment import Deployment


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Give a SuperLink without TLS."""
    with Deployment(tmp_path_factory.mktemp("plain")) as deployment:
        yield deployment


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    """Give a SuperLink with TLS that lets in registered SuperNodes only."""
    folder = tmp_path_factory.mktemp("secure")
    certificates = write_certificates(folder / "certificates")
    with Deployment(folder, certificates) as deployment:
        yield deployment


@pytest.fixture
def node_key(tmp_path):
    """Give a function that writes a SuperNode's keys; the public one has .pub added."""
    return lambda name: write_node_key(tmp_path / name)
