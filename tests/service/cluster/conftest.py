"""The fixtures of the service's tests, their applications over a cluster of two shards."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from gcws_search.service.cluster.database import Database
from tests.support.service.shards import BUCKETS, Written


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
