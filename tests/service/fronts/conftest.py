"""The fixtures of the service's tests, their applications asked through a front."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.service.client import Client, Json, Serve
from tests.support.service.fronts import FrontClient


@pytest.fixture
def serve(data_dir: Path) -> Iterator[Serve]:
    """Start owners with a front each, on the data directory, one after the other."""
    running: list[FrontClient] = []

    def start(**settings: Json) -> Client:
        while running:
            running.pop().stop()
        running.append(FrontClient(settings.pop("data_dir", data_dir), **settings))
        running[-1].start()
        running[-1].wait_until_ready()
        return running[-1]

    yield start
    while running:
        running.pop().stop()
