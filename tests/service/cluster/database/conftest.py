"""Fresh databases, and a collection in one."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from gcws_search.service.cluster.database.committer import Committer
from gcws_search.service.cluster.database.database import Database
from tests.support.service.postgres import postgres

BUCKETS = 4


@pytest.fixture
def url() -> Iterator[str]:
    with postgres().database() as url:
        yield url


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    with closing(Database.open(url, buckets=BUCKETS)) as database:
        yield database


@pytest.fixture
def number(database: Database) -> int:
    return database.create("plants", {"dim": 4}, 1)[0].number


@pytest.fixture
def committer(database: Database, number: int) -> Committer:
    return Committer(database, number, "plants")
