"""The fixtures of the service's tests, their applications over a cluster of two shards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service.client import Client, Json, Serve
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres


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
