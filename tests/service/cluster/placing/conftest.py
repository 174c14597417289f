"""The Ray cluster of `tests.crashes`: a head and three nodes on this machine, two routers."""

import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crashes.cluster import ClusterTrial
from tests.support.service.ray_cluster import RayCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs Ray where it is not, and where other tests run at the same time."""
    reason = None
    if importlib.util.find_spec("ray") is None:
        reason = "ray is not installed: pip install 'gcws-search[cluster]'"
    elif "PYTEST_XDIST_WORKER" in os.environ:
        reason = "a Ray cluster takes the machine: pytest -n 0 tests/service/cluster/placing"
    for item in items:
        if reason is not None and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="package")
def trial() -> Iterator[ClusterTrial]:
    """Return the cluster of all tests of this folder, with clients that ask when they are let."""
    trial = ClusterTrial(7)
    try:
        yield trial
    finally:
        trial.stop()


@pytest.fixture(scope="package")
def cluster(trial: ClusterTrial) -> RayCluster:
    return trial.cluster
