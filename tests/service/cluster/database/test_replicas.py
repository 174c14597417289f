"""What replicas follow, and when the past is forgotten."""

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedChoice
from gcws_search.service.cluster.contract import HistoryLost, Position, Replica
from gcws_search.service.cluster.database import Database
from tests.support.service.shards import Copy, contents, put_of


def stored(database: Database, number: int) -> dict[str, int]:
    return {item_id: row.key for item_id, row in contents(database, number).items()}


def test_changes_are_of_one_moment(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put_of("a", "b"))
    with database.changes(number, range(4), None, 1) as (head, _, chunks, _):
        committer.commit(put_of("c"))
        assert [row.id for rows in chunks for row in rows] == ["a", "b"]
        assert head.key == 2


def test_another_history_is_lost(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put_of("a"))
    copy = Copy(database, number)
    copy.follow()
    known = copy.position
    for unknown in ((1, bytes(16)), (9, known.stamp), (0, b"")):
        copy.position = Position(1, *unknown)
        with pytest.raises(HistoryLost):
            copy.follow()
    with pytest.raises(ix.CollectionNotFound):
        Copy(database, number + 1).follow()


def announced(key: int, number: int, replica: int = 0, cell: str = "cell") -> Replica:
    return Replica(cell, 0, replica, "host:1", {number: key}, 10, 0.5, 0.0, 1)


def test_the_past_is_forgotten_when_all_live_replicas_have_it(
    database: Database, number: int, committer: Committer
) -> None:
    copy, slow = Copy(database, number), Copy(database, number)
    committer.commit(put_of("a", "b"))
    slow.follow()
    committer.commit(PreparedChoice(ids=["a"]))
    committer.commit(put_of("c"))
    copy.follow()

    def announce_slow(key: int) -> None:
        database.announce(announced(key, number, 1, "other cell"))
        database.trim(keep_seconds=0)

    database.trim(keep_seconds=0)  # no replica lives
    database.announce(announced(copy.position.key, number))
    database.trim()  # younger than an hour
    announce_slow(slow.position.key)
    slow.follow()
    assert slow.items == copy.items == stored(database, number)

    slow.position = Position(2, *slow.position[1:])
    announce_slow(slow.position.key)
    slow.follow()

    slow.position = Position(2, *slow.position[1:])
    announce_slow(copy.position.key)
    with pytest.raises(HistoryLost):
        slow.follow()
    copy.follow()
    committer.commit(put_of("d"))
    copy.follow()
    fresh = Copy(database, number)
    fresh.follow()
    assert copy.items == fresh.items == stored(database, number)
    with database.connections.use() as connection:
        assert connection.column("SELECT count(*) FROM gone") == [0]
        assert connection.column("SELECT count(*) FROM commits") == [2]


def test_a_replica_without_the_collection_holds_the_past(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("a"))
    committer.commit(PreparedChoice(ids=["a"]))
    database.announce(announced(2, number))
    database.announce(announced(2, number + 1, 1))
    database.trim(keep_seconds=0)
    with database.connections.use() as connection:
        assert connection.column("SELECT count(*) FROM gone") == [1]
        connection.run("UPDATE replicas SET seen = now() - interval '2 minutes' WHERE replica = 1")
    database.trim(keep_seconds=0)
    with database.connections.use() as connection:
        assert connection.column("SELECT count(*) FROM gone") == [0]


def test_replicas_are_listed_by_cell(database: Database, number: int) -> None:
    for replica in (announced(3, number, 1), announced(4, number), announced(5, number, 0, "b")):
        database.announce(replica)
    database.announce(announced(6, number, 1))
    found = database.replicas("cell")
    positions = [(each.replica, each.positions) for each in found]
    assert positions == [(0, {number: 4}), (1, {number: 6})]
    assert all(0 <= each.seen < 60 for each in found)


def test_a_replica_gives_another_sign_of_life_once_the_clock_was_set_back(
    database: Database, number: int
) -> None:
    for replica in (0, 1):
        database.announce(announced(3, number, replica))
    with database.connections.use() as connection:
        connection.run("UPDATE replicas SET seen = seen + interval '1 hour'")
    database.announce(announced(3, number, 1))
    assert [each.is_alive for each in database.replicas("cell")] == [False, True]
