"""The fixtures of the service's tests, their applications over a cluster of two shards."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service.client import Client, Json, Serve
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres

ALL_CASES = "TEST_ALL_CASES"
"""Set to 1: each test of routes runs over a cluster with all of its cases."""
CASES = 2
"""Of a test otherwise: what routers read is read by the code that one process has."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what tests of routes say of one process alone, and most cases of long lists."""
    over_a_cluster = [item for item in items if item.path.name.endswith("_over_a_cluster.py")]
    cases: dict[str, list[pytest.Item]] = {}
    for item in over_a_cluster:
        if item.get_closest_marker("one_process") is None:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = set[pytest.Item]()
    for several in cases.values():
        is_whole = ALL_CASES in os.environ or len(several) <= CASES
        places = range(len(several)) if is_whole else spread(len(several))
        chosen.update(several[place] for place in places)
    if left_out := [item for item in over_a_cluster if item not in chosen]:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def spread(cases: int) -> list[int]:
    """Return the first case, the last, and those between that are as far from each other."""
    return [round(place * (cases - 1) / (CASES - 1)) for place in range(CASES)]


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
