"""What writes do, one by one and in groups."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from typing import Any

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.postgres import postgres
from tests.support.service.shards import wait_until
from tests.support.waiting_writes import together


def put(*ids: str, payload: bytes | None = None, **more: Any) -> PreparedPut:  # noqa: ANN401
    vectors = [f"{place} {item_id}".encode() for place, item_id in enumerate(ids)]
    return PreparedPut(ids=ids, vectors=vectors, payloads=[payload] * len(ids), **more)


def contents(database: Database, number: int) -> dict[str, Row]:
    return {row.id: row for rows in database.read_all(number, 1000) for row in rows}


def test_an_upsert_counts_new_items_and_replaced_ones(
    database: Database, number: int, committer: Committer
) -> None:
    assert committer.commit(put("a", "b")) == ix.WriteResult(2, 0)
    assert committer.commit(put("b", "c")) == ix.WriteResult(1, 1)
    assert database.count(number) == 3
    assert committer.last.key == database.last_moment(number).key == 4


def test_of_an_id_that_comes_twice_an_upsert_takes_the_last(
    database: Database, number: int, committer: Committer
) -> None:
    assert committer.commit(put("a", "b", "a")) == ix.WriteResult(2, 0)
    assert database.fetch(number, ["a"])["a"].vector == b"2 a"


@pytest.mark.parametrize(("ids", "row"), [(("new", "a"), 1), (("new", "other", "new"), 2)])
def test_an_insert_refuses_an_id_that_exists_or_comes_twice(
    database: Database, number: int, committer: Committer, ids: tuple[str, ...], row: int
) -> None:
    committer.commit(put("a"))
    with pytest.raises(ix.ItemExists) as caught:
        committer.commit(put(*ids, mode="insert"))
    assert (caught.value.item_id, caught.value.row) == (ids[row], row)
    with pytest.raises(ix.ItemExists) as caught:
        committer.commit(put(*ids, mode="insert", places=[10, 20, 30][: len(ids)]))
    assert caught.value.row == 10 * (row + 1)
    assert {*contents(database, number)} == {"a"}
    assert database.last_moment(number).key == 1


def test_payloads_are_kept_where_asked_for(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put("a", "b", payload=b"{}"))
    committer.commit(put("a", "new", keeps_payloads=True))
    committer.commit(put("b"))
    found = contents(database, number)
    assert {item_id: row.payload for item_id, row in found.items()} == {
        "a": b"{}",
        "b": None,
        "new": None,
    }


@pytest.mark.parametrize("count", [1, 255, 256, 3000])
def test_rows_are_stored_alike_however_many_they_are(
    database: Database, number: int, committer: Committer, count: int
) -> None:
    ids = [f"ü{place}\0" for place in range(count)]
    vectors = [bytes([place % 256]) * (place % 7000) for place in range(count)]
    payloads = [None if place % 3 else b'{"a":%d}' % place for place in range(count)]
    write = PreparedPut(ids=ids, vectors=vectors, payloads=payloads)
    assert committer.commit(write) == ix.WriteResult(count, 0)
    assert committer.commit(write) == ix.WriteResult(0, count)
    columns = zip(range(count + 1, 2 * count + 1), ids, vectors, payloads, strict=True)
    assert [*contents(database, number).values()] == [Row(*row) for row in columns]
    assert {*database.fetch(number, ids)} == {*ids}
    assert committer.commit(PreparedDelete(ids=[*ids, "none", ids[0]])) == count
    assert contents(database, number) == {}


def test_a_delete_chooses_with_the_lock(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put("a", "b", "c"))
    heads = []

    def choose(head: int) -> list[str]:
        heads.append(head)
        return ["a", "c", "none"]

    assert committer.commit(PreparedDelete(choose=choose)) == 2
    assert heads == [3]
    assert {*contents(database, number)} == {"b"}
    assert database.last_moment(number).key == 5

    def fails(_: int) -> list[str]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        committer.commit(PreparedDelete(choose=fails))
    assert committer.commit(PreparedDelete(ids=["b"])) == 1


def test_a_delete_of_nothing_changes_nothing(
    database: Database, number: int, committer: Committer
) -> None:
    assert committer.commit(PreparedDelete(ids=["none"])) == 0
    assert database.last_moment(number).key == 0


def test_progress_is_stored_with_the_items_or_not_at_all(
    database: Database, number: int, committer: Committer
) -> None:
    def progress(result: ix.WriteResult) -> ix.LoadRecord:
        return ix.LoadRecord("key", 5, f"[{result.inserted}, {result.updated}]")

    committer.commit(put("a"))
    committer.commit(put("a", "b", progress=progress))
    assert database.loads(number, 0) == [ix.LoadRecord("key", 5, "[1, 1]")]

    def fails(_: ix.WriteResult) -> ix.LoadRecord:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        committer.commit(put("c", progress=fails))
    assert {*contents(database, number)} == {"a", "b"}
    with pytest.raises(ix.ItemExists):
        committer.commit(put("d", "a", mode="insert", progress=progress))
    assert database.loads(number, 0, "key") == [ix.LoadRecord("key", 5, "[1, 1]")]


def commits(database: Database) -> int:
    with database.connections.use() as connection:
        [count] = connection.column("SELECT count(*) FROM commits")
    return int(count)


def test_writes_of_a_group_succeed_and_fail_by_themselves(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put("old", payload=b"{}"))
    results = together(
        committer,
        lambda: committer.commit(PreparedDelete(ids=["nothing"])),
        lambda: committer.commit(put("a", "b", payload=b"[]")),
        lambda: committer.commit(put("c", "a", mode="insert")),
        lambda: committer.commit(put("a", "old", keeps_payloads=True)),
        lambda: committer.commit(PreparedDelete(ids=["b", "old", "b"])),
        lambda: committer.commit(put("b", keeps_payloads=True)),
        lambda: committer.commit(put("old", mode="insert", keeps_payloads=True)),
    )
    assert [result for place, result in enumerate(results) if place != 2] == [
        0,
        ix.WriteResult(2, 0),
        ix.WriteResult(0, 2),
        2,
        ix.WriteResult(1, 0),
        ix.WriteResult(1, 0),
    ]
    assert isinstance(results[2], ix.ItemExists)
    assert commits(database) <= 3  # the first, the leader's, and all others'
    found = contents(database, number)
    assert {each: row.payload for each, row in found.items()} == {
        "a": b"[]",
        "b": None,
        "old": None,
    }
    keys = [row.key for row in found.values()]
    assert keys == sorted(keys)
    assert database.count(number) == 3


def test_only_a_write_that_is_too_large_finds_the_disk_full(
    database: Database, database_url: str, number: int, committer: Committer
) -> None:
    postgres().execute(
        "CREATE FUNCTION gcws.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 'big' THEN RAISE EXCEPTION 'full' USING ERRCODE = 'disk_full'; END IF;"
        " RETURN NEW; END $$",
        database_url.rpartition("/")[2],
    )
    postgres().execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON gcws.items_{number}"
        " FOR EACH ROW EXECUTE FUNCTION gcws.full()",
        database_url.rpartition("/")[2],
    )
    results = together(
        committer,
        lambda: committer.commit(put("a")),
        lambda: committer.commit(put("b")),
        lambda: committer.commit(put("c", "big")),
        lambda: committer.commit(put("d")),
    )
    assert isinstance(results[2], ix.DiskFull)
    assert "plants" in str(results[2])
    assert {*contents(database, number)} == {"a", "b", "d"}
    assert database.last_moment(number).key == 3
    with pytest.raises(ix.DiskFull):
        committer.commit(put("big", *(f"x{place}" for place in range(300))))
    assert database.count(number) == 3


def test_submitted_puts_are_read_by_the_leader_and_end_with_their_results(
    database: Database, number: int, committer: Committer
) -> None:
    outcomes: dict[str, object] = {}
    ended = threading.Semaphore(0)

    def run(lead: Callable[[], None], _: Callable[[], None]) -> None:
        threading.Thread(target=lead).start()

    def submit(name: str, read: Callable[[], PreparedPut]) -> None:
        def end(outcome: object) -> None:
            outcomes[name] = outcome
            ended.release()

        committer.submit(read, end, run)

    def unreadable() -> PreparedPut:
        raise ix.InvalidVector(expected="a vector", got="none")

    with committer.lock:
        submit("a", lambda: put("a"))
        submit("bad", unreadable)
        submit("again", lambda: put("a", mode="insert"))
        submit("b", lambda: put("b"))
    for _ in range(4):
        assert ended.acquire(timeout=60)
    assert outcomes["a"] == outcomes["b"] == ix.WriteResult(1, 0)
    assert isinstance(outcomes["bad"], ix.InvalidVector)
    assert isinstance(outcomes["again"], ix.ItemExists)
    assert {*contents(database, number)} == {"a", "b"}
    assert commits(database) == 1


def test_what_was_submitted_is_cancelled_where_there_are_no_threads(committer: Committer) -> None:
    outcomes: list[object] = []
    committer.submit(lambda: put("a"), outcomes.append, lambda _, none: none())
    [outcome] = outcomes
    assert isinstance(outcome, CancelledError)
    assert committer.commit(put("b")) == ix.WriteResult(1, 0)


def test_writes_to_a_dropped_collection_find_none(
    database: Database, number: int, committer: Committer
) -> None:
    assert database.drop(number)
    with pytest.raises(ix.CollectionNotFound, match="plants"):
        committer.commit(put("a"))
    with pytest.raises(ix.CollectionNotFound, match="plants"):
        committer.commit(PreparedDelete(choose=lambda _: ["a"]))


def has_lock(database: Database) -> bool:
    """Return whether somebody has the lock of a collection."""
    with database.connections.use() as connection:
        mode = "SELECT 1 FROM pg_locks WHERE relation = 'heads'::regclass AND mode = %b"
        return bool(connection.column(mode, "RowExclusiveLock"))


def test_a_router_that_falls_silent_does_not_keep_the_lock_of_a_collection(
    database_url: str, database: Database, number: int
) -> None:
    with (
        closing(Database.open(database_url, buckets=4, seconds=1)) as other,
        suppress(StoreUnavailable),  # its transaction was ended
        database.connections.use() as silent,
        silent.pipeline(),  # between two statements of one round trip
    ):
        silent.run("BEGIN")
        silent.run("UPDATE heads SET items = items WHERE collection = %b", number)
        wait_until(lambda: has_lock(other))
        committer = Committer(other, number, "plants")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            committer.commit(put("a"))
        end = time.monotonic() + 30
        while not contents(database, number):
            with suppress(StoreUnavailable):
                committer.commit(put("b"))
            assert time.monotonic() < end
    assert {*contents(database, number)} == {"b"}
