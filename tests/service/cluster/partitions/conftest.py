"""A cluster whose processes are on machines of their own, and the collection of its clients."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.cluster.partitions.clients import Load, Things
from tests.support.service.machines import MachineCluster
from tests.support.service.network import unavailable


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs machines where there can be none, and beside other tests."""
    folder = f"{Path(__file__).parent}/"
    ours = [
        item
        for item in items
        if str(item.path).startswith(folder) and item.path.name != "test_history.py"
    ]
    reason = None
    if "PYTEST_XDIST_WORKER" in os.environ:
        reason = "a cluster takes the machine: pytest -n 0 tests/service/cluster/partitions"
    elif ours:
        reason = unavailable()
    for item in ours:
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def things() -> Iterator[Things]:
    """Return the collection of a running cluster, which all tests share one after the other."""
    cluster = MachineCluster()
    try:
        cluster.start_database()
        cluster.start()
        yield Things(cluster)
    finally:
        cluster.stop()


@pytest.fixture
def cluster(things: Things) -> Iterator[MachineCluster]:
    """Return the cluster, and let the test be on its clients' machine."""
    with things.cluster.client.entered():
        yield things.cluster


@pytest.fixture
def load(things: Things) -> Load:
    return Load(things)
