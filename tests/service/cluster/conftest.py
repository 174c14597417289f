"""The fixtures of the service's tests, their applications over a cluster of two shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service.client import Client, Json, Serve
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what tests of routes say of one process alone."""
    left_out = [
        item
        for item in items
        if item.path.name.endswith("_over_a_cluster.py")
        and item.get_closest_marker("one_process") is not None
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


@pytest.fixture
def database_url() -> Iterator[str]:
    with postgres().database() as url:
        yield url


@pytest.fixture
def serve(database_url: str, data_dir: Path) -> Iterator[Serve]:
    """Start routers with shards of their own, on one database, one after the other."""
    running: list[ClusterClient] = []

    def start(**settings: Json) -> Client:
        while running:
            running.pop().stop()
        folder = settings.pop("data_dir", data_dir)
        running.append(ClusterClient(database_url, folder, **settings))
        running[-1].start()
        running[-1].wait_until_ready()
        return running[-1]

    yield start
    while running:
        running.pop().stop()
