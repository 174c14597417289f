"""What replicas follow, and when the past is forgotten."""

from itertools import chain

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.contract import (
    START,
    HistoryLost,
    Position,
    Replica,
    bucket_of,
    buckets_of,
)
from gcws_search.service.cluster.database import Database

ALL = range(4)


def put(*ids: str) -> PreparedPut:
    vectors = [f"vector {item_id}".encode() for item_id in ids]
    return PreparedPut(ids=ids, vectors=vectors, payloads=[None] * len(ids))


class Copy:
    """A replica as its follower has it."""

    def __init__(self, database: Database, number: int, buckets: range = ALL) -> None:
        self.database, self.number, self.buckets = database, number, buckets
        self.items: dict[str, int] = {}
        self.position: Position = START

    def follow(self, chunks: int | None = None) -> None:
        """Apply what has changed, or only the first chunks of two rows."""
        with self.database.changes(self.number, self.buckets, self.position, 2) as changes:
            for item_id in changes.deleted:
                self.items.pop(item_id, None)
            for number, rows in enumerate(changes.rows()):
                if number == chunks:
                    return
                self.items.update((row.id, row.key) for row in rows)
                self.position = Position(rows[-1].key, *changes.head[1:])
            self.position = changes.head


def stored(database: Database, number: int) -> dict[str, int]:
    return {row.id: row.key for row in chain.from_iterable(database.read_all(number, 100))}


def test_a_replica_follows_puts_and_deletes(
    database: Database, number: int, committer: Committer
) -> None:
    copy = Copy(database, number)
    copy.follow()
    assert copy.items == {}
    for write in (put("a", "b", "c", "d", "e"), PreparedDelete(ids=["b"]), put("a", "f")):
        committer.commit(write)
        for _ in range(2):
            copy.follow()
            assert copy.items == stored(database, number)
    committer.commit(PreparedDelete(ids=["a", "f"]))
    committer.commit(put("f"))
    copy.follow()
    assert copy.items == stored(database, number)
    assert copy.position.key == copy.position.commit == committer.last.key


def test_shards_share_the_items(database: Database, number: int, committer: Committer) -> None:
    ids = [f"item {place}" for place in range(40)]
    shards = [Copy(database, number, range(shard, 4, 3)) for shard in range(3)]
    for write in (put(*ids), PreparedDelete(ids=ids[:10]), put(*ids[5:15])):
        committer.commit(write)
        for shard in shards:
            shard.follow()
    for number_, shard in enumerate(shards):
        own = buckets_of(number_, 3, 4)
        assert shard.items
        assert all(bucket_of(item_id, 4) in own for item_id in shard.items)
    together = dict(chain.from_iterable(shard.items.items() for shard in shards))
    assert together == stored(database, number)


@pytest.mark.parametrize("chunks", [0, 1, 2, 3])
def test_a_replica_goes_on_where_it_was_stopped(
    database: Database, number: int, committer: Committer, chunks: int
) -> None:
    committer.commit(put("a", "b", "c"))
    copy = Copy(database, number)
    copy.follow()
    committer.commit(PreparedDelete(ids=["b", "c"]))
    committer.commit(put("c", "d", "e", "f", "g"))
    copy.follow(chunks)
    committer.commit(PreparedDelete(ids=["d", "g"]))
    committer.commit(put("e", "h"))
    copy.follow()
    assert copy.items == stored(database, number)


def test_changes_are_of_one_moment(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put("a", "b"))
    with database.changes(number, ALL, None, 1) as changes:
        committer.commit(put("c"))
        assert [row.id for rows in changes.rows() for row in rows] == ["a", "b"]
        assert changes.head.key == 2


def test_another_history_is_lost(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put("a"))
    copy = Copy(database, number)
    copy.follow()
    known = copy.position
    for unknown in (
        Position(1, 1, bytes(16)),
        Position(1, 9, known.stamp),
        Position(1, 0, b""),
    ):
        copy.position = unknown
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
    committer.commit(put("a", "b"))
    slow.follow()
    committer.commit(PreparedDelete(ids=["a"]))
    committer.commit(put("c"))
    copy.follow()

    database.trim(keep_seconds=0)  # no replica lives
    database.announce(announced(copy.position.key, number))
    database.trim()  # younger than an hour
    database.announce(announced(slow.position.key, number, 1, "other cell"))
    database.trim(keep_seconds=0)
    slow.follow()
    assert slow.items == copy.items == stored(database, number)

    slow.position = Position(2, *slow.position[1:])
    database.announce(announced(slow.position.key, number, 1, "other cell"))
    database.trim(keep_seconds=0)
    slow.follow()

    slow.position = Position(2, *slow.position[1:])
    database.announce(announced(copy.position.key, number, 1, "other cell"))
    database.trim(keep_seconds=0)
    with pytest.raises(HistoryLost):
        slow.follow()
    copy.follow()
    committer.commit(put("d"))
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
    committer.commit(put("a"))
    committer.commit(PreparedDelete(ids=["a"]))
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
    assert [(each.replica, each.positions) for each in found] == [
        (0, {number: 4}),
        (1, {number: 6}),
    ]
    assert all(0 <= each.seen < 60 for each in found)
