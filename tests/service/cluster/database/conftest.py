"""A collection in a fresh database."""

import pytest

from gcws_search.service.cluster.committer import Committer
from gcws_search.service.cluster.database import Database


@pytest.fixture
def number(database: Database) -> int:
    return database.create("plants", {"dim": 4})[0].number


@pytest.fixture
def committer(database: Database, number: int) -> Committer:
    return Committer(database, number, "plants")
