"""The fixtures of the service's tests, their applications over a cluster of two shards."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from gcws_search.service.cluster.database import Database
from tests.support.service.postgres import Postgres, running_server
from tests.support.service.shards import BUCKETS, Start, Written, shards


@pytest.fixture
def way() -> str:
    return "cluster"


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        yield database


@pytest.fixture
def written(database: Database) -> Iterator[Written]:
    """Return a collection in a fresh database and on one node."""
    with closing(Written(database)) as written:
        yield written


@pytest.fixture
def start(database: Database, tmp_path: Path) -> Start:
    """Return what starts shards over the database and the folder of the test."""
    return partial(shards, database, tmp_path)


@pytest.fixture
def server() -> Iterator[Postgres]:
    """Return a database's server that no other test uses."""
    with running_server() as server:
        yield server


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
