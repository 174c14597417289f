"""What writes do: one by one, in groups, of items without ids, and of several routers at once."""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from queue import SimpleQueue
from threading import Thread

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import (
    Committer,
    PreparedChoice,
    PreparedPut,
    PreparedWrite,
)
from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.postgres import postgres
from tests.support.service.shards import Copy, contents, put_of
from tests.support.waiting import wait_until
from tests.support.waiting_writes import together

IDS = [f"item {place}" for place in range(60)]
WRITES = 60
WRITERS = 4


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
    assert [*contents(database, number).values()] == [Row(*row, 2) for row in columns]
    assert {*database.fetch(number, ids)} == {*ids}
    assert committer.commit(PreparedChoice(ids=[*ids, "none", ids[0]])) == count
    assert contents(database, number) == {}


def test_a_delete_chooses_with_the_lock(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("a", "b", "c"))
    heads = []

    def choose(head: int) -> list[str]:
        heads.append(head)
        return ["a", "c", "none"]

    assert committer.commit(PreparedChoice(choose=choose)) == 2
    assert heads == [3]
    assert {*contents(database, number)} == {"b"}
    assert database.last_moment(number).key == 5

    def fails(_: int) -> list[str]:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        committer.commit(PreparedChoice(choose=fails))
    assert committer.commit(PreparedChoice(ids=["none"])) == 0
    assert database.last_moment(number).key == 5
    assert committer.commit(PreparedChoice(ids=["b"])) == 1


def test_progress_is_stored_with_the_items_or_not_at_all(
    database: Database, number: int, committer: Committer
) -> None:
    def progress(result: ix.WriteResult) -> ix.LoadRecord:
        return ix.LoadRecord("key", 5, f"[{result.inserted}, {result.updated}]")

    committer.commit(put_of("a"))
    committer.commit(put_of("a", "b", progress=progress))
    assert database.loads(number, 0) == [ix.LoadRecord("key", 5, "[1, 1]")]

    def fails(_: ix.WriteResult) -> ix.LoadRecord:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        committer.commit(put_of("c", progress=fails))
    assert {*contents(database, number)} == {"a", "b"}
    with pytest.raises(ix.ItemExists):
        committer.commit(put_of("d", "a", mode="insert", progress=progress))
    assert database.loads(number, 0, "key") == [ix.LoadRecord("key", 5, "[1, 1]")]


def commits(database: Database) -> int:
    with database.connections.use() as connection:
        [count] = connection.column("SELECT count(*) FROM commits")
    return int(count)


def test_writes_of_a_group_succeed_and_fail_by_themselves(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("old", "plain", payload=b"{}"))
    writes: list[PreparedWrite] = [
        PreparedChoice(ids=["nothing"]),
        put_of("a", "b", payload=b"[]"),
        put_of("c", "a", mode="insert"),
        put_of("a", "old", keeps_payloads=True),
        PreparedChoice(ids=["b", "old", "b"]),
        put_of("b", keeps_payloads=True),
        put_of("old", mode="insert", keeps_payloads=True),
        put_of("plain"),
    ]
    results = together(committer, *(partial(committer.commit, each) for each in writes))
    assert isinstance(results.pop(2), ix.ItemExists)
    one, two, both = ix.WriteResult(1, 0), ix.WriteResult(2, 0), ix.WriteResult(0, 2)
    assert results == [0, two, both, 2, one, one, ix.WriteResult(0, 1)]
    assert commits(database) <= 3  # the first, the leader's, and all others'
    found = contents(database, number)
    payloads = {each: row.payload for each, row in found.items()}
    assert payloads == {"a": b"[]", "b": None, "old": None, "plain": None}
    keys = [row.key for row in found.values()]
    assert keys == sorted(keys)
    assert database.count(number) == 4


def test_an_item_that_a_group_deletes_leaves_its_number_and_its_key(
    database: Database, number: int, committer: Committer
) -> None:
    writes: list[PreparedWrite] = [put_of(None, "x"), PreparedChoice(ids=["0", "x"])]
    results = together(committer, *(partial(committer.commit, each) for each in writes))
    assert results == [ix.WriteResult(2, 0, ("0", "0")), 2]
    assert commits(database) == 1
    assert contents(database, number) == {}
    assert committer.last.key == database.last_moment(number).key == 4  # readers wait for it
    assert committer.commit(put_of(None)) == ix.WriteResult(1, 0, ("1", "1"))


def test_only_a_write_that_is_too_large_finds_the_disk_full(
    database: Database, database_url: str, number: int, committer: Committer
) -> None:
    for statement in (
        "CREATE FUNCTION gcws.full() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF NEW.id = 'big' THEN RAISE EXCEPTION 'full' USING ERRCODE = 'disk_full'; END IF;"
        " RETURN NEW; END $$",
        f"CREATE TRIGGER refuse BEFORE INSERT ON gcws.items_{number}"
        " FOR EACH ROW EXECUTE FUNCTION gcws.full()",
    ):
        postgres().execute(statement, database_url.rpartition("/")[2])
    writes = [put_of("a"), put_of("b"), put_of("c", "big"), put_of("d")]
    results = together(committer, *(partial(committer.commit, each) for each in writes))
    assert isinstance(results[2], ix.DiskFull)
    assert "plants" in str(results[2])
    assert {*contents(database, number)} == {"a", "b", "d"}
    assert database.last_moment(number).key == 3
    with pytest.raises(ix.DiskFull):
        committer.commit(put_of("big", *(f"x{place}" for place in range(300))))
    assert database.count(number) == 3


def test_submitted_puts_are_read_by_the_leader_and_end_with_their_results(
    database: Database, number: int, committer: Committer
) -> None:
    ended: SimpleQueue[object] = SimpleQueue()

    def unreadable() -> PreparedPut:
        raise ix.InvalidVector(expected="a vector", got="none")

    again = put_of("a", mode="insert")
    with committer.lock:
        for read in (lambda: put_of("a"), unreadable, lambda: again, lambda: put_of("b")):
            committer.submit(read, ended.put, lambda lead, _: Thread(target=lead).start())
    outcomes = [ended.get(timeout=60) for _ in range(4)]
    assert [each for each in outcomes if each == ix.WriteResult(1, 0)] == [ix.WriteResult(1, 0)] * 2
    assert {type(each) for each in outcomes} == {ix.WriteResult, ix.InvalidVector, ix.ItemExists}
    assert {*contents(database, number)} == {"a", "b"}
    assert commits(database) == 1


def test_what_was_submitted_is_cancelled_where_there_are_no_threads(committer: Committer) -> None:
    outcomes: list[object] = []
    committer.submit(lambda: put_of("a"), outcomes.append, lambda _, none: none())
    [outcome] = outcomes
    assert isinstance(outcome, CancelledError)
    assert committer.commit(put_of("b")) == ix.WriteResult(1, 0)


def test_writes_to_a_dropped_collection_find_none(
    database: Database, number: int, committer: Committer
) -> None:
    assert database.drop(number)
    with pytest.raises(ix.CollectionNotFound, match="plants"):
        committer.commit(put_of("a"))
    with pytest.raises(ix.CollectionNotFound, match="plants"):
        committer.commit(PreparedChoice(choose=lambda _: ["a"]))


def test_a_router_that_falls_silent_does_not_keep_the_lock_of_a_collection(
    database_url: str, database: Database, number: int
) -> None:
    with (
        closing(Database.open(database_url, buckets=4, seconds=3)) as other,
        suppress(StoreUnavailable),  # its transaction was ended
        database.connections.use() as silent,
        silent.pipeline(),  # between two statements of one round trip
    ):
        silent.run("BEGIN")
        silent.run("UPDATE heads SET items = items WHERE collection = %b", number)
        with other.connections.use() as connection:
            locked = "SELECT 1 FROM pg_locks WHERE relation = 'heads'::regclass AND mode = %b"
            wait_until(lambda: connection.column(locked, "RowExclusiveLock"))
        committer = Committer(other, number, "plants")
        with pytest.raises(StoreUnavailable, match="lock timeout"):
            committer.commit(put_of("a"))

        def is_stored() -> bool:
            with suppress(StoreUnavailable):
                committer.commit(put_of("b"))
            return bool(contents(database, number))

        wait_until(is_stored)
    assert {*contents(database, number)} == {"b"}


# Items without ids


def test_many_routers_append_at_once(database_url: str, database: Database, number: int) -> None:
    start = threading.Barrier(3)

    def work(append: bool) -> list[ix.WriteResult]:
        with closing(Database.open(database_url, buckets=4)) as own:
            committer = Committer(own, number, "plants")
            start.wait()
            if append:
                return [committer.commit(put_of(*[None] * size)) for size in [1, 2, 3] * 4]
            return [committer.commit(put_of(str(7 * each))) for each in range(12)]

    with ThreadPoolExecutor(3) as pool:
        appended = [*pool.map(work, [True, True, False])][:2]
    results = [each for results in appended for each in results]
    ranges = [range(int(ids[0]), int(ids[1]) + 1) for ids in (each.ids for each in results) if ids]
    given = [number for each in ranges for number in each]
    assert len(given) == len({*given}) == 48
    assert sum(each.updated for each in results) == 0
    assert {*map(str, given)} <= {*contents(database, number)}


def test_a_database_of_before_gets_the_number_and_looks_what_is_taken(
    database_url: str, database: Database, number: int, committer: Committer
) -> None:
    """Another program may write beside this one, and does not count."""
    committer.commit(put_of(*map(str, range(40)), "a", str(2**63)))
    with database.connections.transaction() as connection:
        connection.run("ALTER TABLE heads DROP COLUMN free_id")
        connection.run("DELETE FROM migrations WHERE name = 'free ids'")
    with closing(Database.open(database_url, buckets=4)) as upgraded:
        committer = Committer(upgraded, number, "plants")
        assert committer.commit(put_of(None, None)) == ix.WriteResult(2, 0, ("40", "41"))
        with upgraded.connections.transaction() as connection:
            connection.run("UPDATE heads SET free_id = 3")
        assert committer.commit(put_of(None)) == ix.WriteResult(1, 0, ("42", "42"))
        assert len(contents(upgraded, number)) == 45


@pytest.mark.parametrize("count", [1, 300])
def test_numbers_that_an_older_program_used_are_not_given_again(
    database: Database, number: int, committer: Committer, count: int
) -> None:
    """Neither alone nor beside a write that names one of them."""
    committer.commit(put_of("0", "1", "2"))
    with database.connections.transaction() as connection:
        connection.run("UPDATE heads SET free_id = 1")
    writes: list[PreparedWrite] = [put_of("a"), put_of(*[None] * count), put_of("1", payload=b"{}")]
    results = together(committer, *(partial(committer.commit, each) for each in writes))
    one, many = ix.WriteResult(1, 0), ix.WriteResult(count, 0, ("3", str(2 + count)))
    assert results == [one, many, ix.WriteResult(0, 1)]
    with database.connections.transaction() as connection:
        connection.run("UPDATE heads SET free_id = 1")
    ids = str(3 + count), str(2 + 2 * count)
    assert committer.commit(put_of(*[None] * count)) == ix.WriteResult(count, 0, ids)
    found = contents(database, number)
    assert len(found) == database.count(number) == 4 + 2 * count
    assert found["1"].version == 2


def test_items_have_versions_where_an_older_program_made_the_collection(
    database_url: str, database: Database, number: int, committer: Committer
) -> None:
    """Another program may write beside this one, and does not count."""
    committer.commit(put_of("a", "b"))
    with database.connections.transaction() as connection:
        connection.run(f"ALTER TABLE items_{number} DROP COLUMN version, DROP COLUMN expires")
    with closing(Database.open(database_url, buckets=4)) as upgraded:
        assert upgraded.find("plants") is not None
        committer = Committer(upgraded, number, "plants")
        committer.commit(put_of("b", "c"))
        assert {each: row.version for each, row in upgraded.fetch(number, [*"abc"]).items()} == {
            "a": 1, "b": 2, "c": 1,
        }  # fmt: skip
        [rows] = upgraded.read_all(number, 9)
        assert [(row.id, row.version) for row in rows] == [("a", 1), ("b", 2), ("c", 1)]
        conflict = PreparedChoice(ids=["b"], if_version=1)
        with pytest.raises(ix.VersionConflict) as caught:
            committer.commit(conflict)
        assert (caught.value.expected, caught.value.got) == (1, 2)


def test_items_expire_where_an_older_program_made_the_collection(
    database_url: str, database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("a", "b"))
    with database.connections.transaction() as connection:
        connection.run(f"ALTER TABLE items_{number} DROP COLUMN expires")
        connection.run("DROP TABLE expiries")
        connection.run("DELETE FROM migrations WHERE name = 'expiries'")
    with closing(Database.open(database_url, buckets=4)) as upgraded:
        assert upgraded.find("plants") is not None
        assert {*contents(upgraded, number)} == {"a", "b"}
        until = upgraded.now_ms + 10_000
        Committer(upgraded, number, "plants").commit(put_of("b", "c", expires=[until, None]))
        assert {each.id: each.expires for each in upgraded.fetch(number, [*"abc"]).values()} == {
            "a": None, "b": until, "c": None,
        }  # fmt: skip
        upgraded.clock = lambda: until / 1000
        assert {*contents(upgraded, number)} == {"a", "c"}
        assert upgraded.collections_due() == [number]


def test_a_transaction_deletes_what_has_expired_and_is_none_where_nothing_has(
    database: Database, number: int, committer: Committer
) -> None:
    start = database.now_ms
    database.clock = lambda: start / 1000
    expires = [start + 1000, start + 2000, start + 2000, None]
    committer.commit(put_of("a", "b", "c", "d", expires=expires, payload=b"{}"))
    committer.commit(put_of("b"))  # stays from now on
    committer.commit(PreparedChoice(ids=["c"]))
    database.clock = lambda: (start + 999) / 1000
    assert database.collections_due() == []
    assert {*contents(database, number)} == {"a", "b", "d"}
    database.clock = lambda: (start + 1000) / 1000
    assert {*contents(database, number)} == {"b", "d"}
    copy, before = Copy(database, number), database.last_moment(number)
    copy.follow()
    assert {*copy.items} == {"a", "b", "d"}, "shards hide it themselves"
    with pytest.raises(ix.VersionConflict):
        committer.commit(put_of("a", if_versions=[1]))
    copy.follow()
    assert {*copy.items} == {"b", "d"}, "of a write that fails, too"
    assert database.count(number) == 2
    assert database.last_moment(number) > before
    assert committer.commit(put_of("a", mode="insert")) == ix.WriteResult(1, 0)
    assert database.fetch(number, ["a"])["a"].version == 1
    database.clock = lambda: (start + 2000) / 1000
    assert database.collections_due() == [], "nothing is left of replaced and deleted items"
    last = database.last_moment(number)
    committer.commit(PreparedChoice())
    assert database.last_moment(number) == last


def test_a_program_that_knows_no_times_leaves_nothing_that_is_due_for_ever(
    database: Database, number: int, committer: Committer
) -> None:
    until = database.now_ms + 1000
    committer.commit(put_of("a", "b", expires=[until] * 2))
    with database.connections.transaction() as connection:
        connection.run(f"UPDATE items_{number} SET expires = NULL WHERE id = 'a'")
    database.clock = lambda: until / 1000
    assert database.collections_due() == [number]
    committer.commit(PreparedChoice())
    assert {*contents(database, number)} == {"a"}
    assert database.collections_due() == []


def test_an_item_whose_time_is_past_meets_no_other_write_of_its_group(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("b"))
    writes: list[PreparedWrite] = [
        put_of("a", "b", "c", expires=[database.now_ms, database.now_ms, None]),
        PreparedChoice(ids=["b"]),
        put_of("a", if_versions=[0]),
        put_of("a", "b", mode="insert"),
    ]
    results = together(committer, *(partial(committer.commit, each) for each in writes))
    assert isinstance(results.pop(), ix.ItemExists)
    assert results == [ix.WriteResult(2, 1), 0, ix.WriteResult(1, 0)]
    found = contents(database, number)
    assert {each: row.version for each, row in found.items()} == {"c": 1, "a": 1}


@pytest.mark.parametrize("count", [3, 300, 9000])
def test_times_are_stored_alike_however_many_they_are(
    database: Database, number: int, committer: Committer, count: int
) -> None:
    ids, start = [str(each) for each in range(count)], database.now_ms + 60_000
    committer.commit(put_of(*ids, expires=[start + each % 2 for each in range(count)]))
    database.clock = lambda: start / 1000
    assert {*contents(database, number)} == {*ids[1::2]}
    while database.collections_due():
        committer.commit(PreparedChoice())
    assert database.count(number) == count // 2
    assert committer.commits <= 3


# Two routers


def some_write(rng: np.random.Generator, database: Database, number: int) -> PreparedWrite:
    ids = rng.permutation(IDS)[: rng.integers(1, len(IDS))].tolist()
    match rng.integers(4):
        case 0:
            return PreparedChoice(ids=ids)
        case 1:
            return PreparedChoice(choose=lambda _: ids)
    names = database.reserve_names(number, [f"name {rng.integers(100)}", "all"])
    return PreparedPut(
        ids=ids,
        vectors=[rng.bytes(8) for _ in ids],
        payloads=[None] * len(ids),
        mode="upsert" if rng.integers(4) else "insert",
        names=[*names.values()],
        coordinates=max(names.values()) + 1,
    )


def test_keys_rise_with_commits_and_nobody_waits_for_ever(
    database_url: str, database: Database, number: int, rng: np.random.Generator
) -> None:
    """A replica that follows all the while has all: no key comes behind the head it has seen."""

    def write(committer: Committer, router: Database, rng: np.random.Generator) -> int:
        """Return how many items there are more."""
        more = 0
        for _ in range(WRITES):
            with suppress(ix.ItemExists):
                result = committer.commit(some_write(rng, router, number))
                more += result.inserted if isinstance(result, ix.WriteResult) else -result
        return more

    copy = Copy(database, number)
    with (
        closing(Database.open(database_url, buckets=4)) as other,
        ThreadPoolExecutor(WRITERS) as threads,
    ):
        committers = [Committer(router, number, "plants") for router in (database, other)]
        work = zip(committers * 2, [database, other] * 2, rng.spawn(WRITERS), strict=True)
        writing = [threads.submit(write, *given) for given in work]
        while not all(each.done() for each in writing):
            copy.follow()
        copy.follow()
        assert max(each.last.key for each in committers) == copy.position.key
    found = {item_id: row.key for item_id, row in contents(database, number).items()}
    assert copy.items == found
    assert len(found) == database.count(number) == sum(each.result() for each in writing)
    assert database.last_moment(number).key > WRITES
