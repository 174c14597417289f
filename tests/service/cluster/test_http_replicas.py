"""Which replicas a router asks: those that the database lists, of one number of shards."""

import asyncio
from typing import Any
from unittest.mock import Mock

import pytest

from gcws_search.service.cluster.contract import DEAD_SECONDS, Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.shards import HttpReplicas
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.shards import KEY
from tests.support.waiting import wait_until


def announce(database: Database, shard: int, replica: int = 0, shards: int = 2, **more: Any) -> Any:  # noqa: ANN401
    """List a replica, whose address tells its place unless it is given; return it."""
    place: dict[str, Any] = {"cell": "main", "shard": shard, "replica": replica, "shards": shards}
    state = {"positions": {1: 0}, "nbytes": 10, "share": 0.5, "seen": 0.0}
    address = {"address": f"{shard}-{replica}-of-{shards}:1"}
    listed = Replica(**(place | state | address | more))
    database.announce(listed)
    return listed


def asked(replicas: HttpReplicas) -> list[list[str]]:
    """Return the addresses that a router asks, by shard, once it has read the list."""
    replicas.refresh()
    return [sorted(each.address for each in shard) for shard in replicas.shards]


def replicas_of(
    database: Database, shards: int = 2, dead_seconds: float = DEAD_SECONDS
) -> HttpReplicas:
    return HttpReplicas(database, "main", shards, KEY, dead_seconds=dead_seconds)


def test_replicas_of_the_number_that_is_set_are_asked(database: Database) -> None:
    for shard in range(3):
        announce(database, shard, shards=3)
    for shard in range(2):
        announce(database, shard)
        announce(database, shard, 1, cell="other")
    assert asked(replicas_of(database)) == [["0-0-of-2:1"], ["1-0-of-2:1"]]
    assert len(asked(replicas_of(database, shards=3))) == 3


def test_prometheus_is_told_of_those_that_are_being_filled_too(database: Database) -> None:
    announce(database, 0)
    announce(database, 0, 1, positions={1: -1})
    replicas = replicas_of(database)
    assert asked(replicas) == [["0-0-of-2:1"], []]
    said = {each["targets"][0]: each["labels"] for each in replicas.targets()}
    assert said == {
        f"0-{replica}-of-2:1": {"__scheme__": "http", "shard": "0", "replica": str(replica)}
        for replica in range(2)
    }


def test_the_number_that_the_database_says_goes_before_that_of_the_settings(
    database: Database,
) -> None:
    for shards in (2, 3):
        for shard in range(shards):
            announce(database, shard, shards=shards)
    replicas = replicas_of(database)
    before = replicas.shards
    assert len(asked(replicas)) == 2
    database.set_shards("main", 3)
    assert asked(replicas) == [["0-0-of-3:1"], ["1-0-of-3:1"], ["2-0-of-3:1"]]
    database.set_shards("main", None)
    assert len(asked(replicas)) == len(before) == 2
    database.set_shards("other", 3)
    assert len(asked(replicas)) == 2


def test_a_replica_that_is_being_filled_is_asked_only_if_there_is_no_other(
    database: Database,
) -> None:
    announce(database, 0, 0, positions={1: -1})
    announce(database, 1, 0, positions={1: -1})
    announce(database, 1, 1)
    replicas = replicas_of(database)
    assert asked(replicas) == [["0-0-of-2:1"], ["1-1-of-2:1"]]
    announce(database, 1, 0, positions={1: 4})
    assert asked(replicas) == [["0-0-of-2:1"], ["1-0-of-2:1", "1-1-of-2:1"]]


def test_a_replica_that_withdraws_is_not_asked(database: Database) -> None:
    first, second = announce(database, 0, 0), announce(database, 0, 1)
    replicas = replicas_of(database, shards=1)
    database.set_shards("main", 2)
    assert asked(replicas) == [["0-0-of-2:1", "0-1-of-2:1"], []]
    database.withdraw(first)
    assert asked(replicas)[0] == ["0-1-of-2:1"]
    announce(database, 0, 1, address="of its successor")
    database.withdraw(second)
    assert asked(replicas)[0] == ["of its successor"]


@pytest.mark.parametrize(
    "statement",
    ["TRUNCATE replicas", "UPDATE replicas SET seen = now() - interval '2 minutes'"],
    ids=["crash", "pause"],
)
@pytest.mark.parametrize("dead_seconds", [60.0, 0.3])
def test_replicas_that_the_database_has_lost_are_asked_until_they_would_be_silent(
    database: Database, dead_seconds: float, statement: str
) -> None:
    """After a crash of the database the table is empty, and after a pause nobody was heard of."""
    replicas = replicas_of(database, dead_seconds=dead_seconds)
    for shard in range(2):
        announce(database, shard)
    replicas.refresh()
    listed = [["0-0-of-2:1"], ["1-0-of-2:1"]]
    with database.connections.use() as connection:
        connection.run(statement)
    if dead_seconds > 1:
        assert asked(replicas) == listed
    else:
        assert wait_until(lambda: asked(replicas) == [[], []])


def test_a_replica_at_another_address_is_another(database: Database) -> None:
    announce(database, 0)
    replicas = replicas_of(database)
    [[before], _] = replicas.shards if asked(replicas) else []
    asked(replicas)
    assert replicas.shards[0][0] is before
    announce(database, 0, address="elsewhere:1")
    assert asked(replicas)[0] == ["elsewhere:1"]


def test_all_who_want_the_list_at_once_read_it_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = replicas_of(database, shards=1)

    async def renew() -> None:
        for _ in range(3):  # the second and the third time at once after the first
            await asyncio.gather(*(replicas.renew() for _ in range(20)))

    announce(database, 0, shards=1)
    read = Mock(wraps=database.replicas)
    monkeypatch.setattr(database, "replicas", read)
    asyncio.run(renew())
    read.assert_called_once_with("main")
    assert [each.address for each in replicas.shards[0]] == ["0-0-of-1:1"]


def test_a_list_that_cannot_be_read_leaves_what_is_known(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce(database, 0, shards=1)
    replicas = replicas_of(database, shards=1)
    assert asked(replicas) == [["0-0-of-1:1"]]
    monkeypatch.setattr(database, "replicas", Mock(side_effect=StoreUnavailable("it is gone")))
    asyncio.run(replicas.renew())
    assert [each.address for each in replicas.shards[0]] == ["0-0-of-1:1"]
