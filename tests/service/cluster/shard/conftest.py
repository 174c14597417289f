"""A fresh database, and a collection in it and on one node."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from gcws_search.service.cluster.database.database import Database
from tests.support.service.postgres import postgres
from tests.support.service.shards import BUCKETS, Written


@pytest.fixture
def url() -> Iterator[str]:
    with postgres().database() as url:
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database.open(url, buckets=BUCKETS)) as database:
        yield database


@pytest.fixture
def written(database: Database) -> Iterator[Written]:
    with closing(Written(database)) as written:
        yield written
