"""Opening a database, what it has of each collection, and how that is read."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from itertools import pairwise

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedChoice, PreparedWrite
from gcws_search.service.cluster.connections import Connection
from gcws_search.service.cluster.contract import ClusterMismatch, CollectionRow
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import Refused, StoreUnavailable
from tests.support.service.ports import HOST, free_port
from tests.support.service.postgres import postgres
from tests.support.service.shards import Copy, contents, put_of, replace_by_partitions


def test_a_connection_that_comes_back_while_others_are_closed_is_closed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections = database.connections

    def is_usable(connection: Connection) -> bool:
        connections.close()
        return not connection.closed

    with connections.use() as connection:
        monkeypatch.setattr(Connection, "is_usable", property(is_usable))
    assert connection.closed


def test_several_may_open_a_new_database_at_once(database_url: str) -> None:
    with ThreadPoolExecutor(6) as pool:
        opened = [*pool.map(lambda _: Database.open(database_url, buckets=4), range(6))]
    assert len({database.identity for database in opened}) == 1
    for database in opened:
        database.close()


def test_a_database_of_other_buckets_or_another_format_is_refused(
    database_url: str, database: Database
) -> None:
    with pytest.raises(ClusterMismatch, match=r"buckets.* expected 8, got 4"):
        Database.open(database_url, buckets=8)
    with database.connections.transaction() as connection:
        connection.run("UPDATE cluster SET format = 99")
    with pytest.raises(ClusterMismatch, match=r"format.* expected 2, got 99"):
        Database.open(database_url, buckets=4)


def test_clusters_of_two_schemas_are_two(database_url: str, database: Database) -> None:
    with closing(Database.open(database_url, buckets=8, schema_name="other")) as other:
        assert other.identity != database.identity
        other.create("plants", {})
        assert database.collections() == []


def test_a_database_that_is_not_there_is_said_at_once(database_url: str) -> None:
    with pytest.raises(StoreUnavailable, match="refused"):
        Database.open(f"postgresql://gcws@{HOST}:{free_port()}/none")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        Database.open(postgres().url("none"))
    database = Database.open(database_url, buckets=4)
    database.close()
    with pytest.raises(StoreUnavailable):
        database.collections()


def test_no_more_connections_than_permitted_are_open(database_url: str) -> None:
    with closing(Database.open(database_url, buckets=4, max_connections=1, seconds=2)) as one:
        with one.connections.use(), pytest.raises(StoreUnavailable, match="in use"):
            one.collections()
        assert one.collections() == []


def test_a_name_is_created_once(database: Database) -> None:
    config = {"dim": 4, "names": ["ü"]}
    row, is_new = database.create("plants", config)
    assert is_new
    assert row == CollectionRow(row.number, "plants", config, 0)
    assert database.create("plants", {"dim": 5}) == (row, False)
    assert database.find("plants") == row
    assert database.find("none") is None
    other, _ = database.create("animals", {})
    assert database.collections() == [other, row]
    with ThreadPoolExecutor(4) as pool:
        created = [*pool.map(lambda _: database.create("stones", {}), range(4))]
    assert len({row.number for row, _ in created}) == 1
    assert sum(is_new for _, is_new in created) == 1


def test_a_collection_too_many_is_not_created(database: Database) -> None:
    def admit(count: int) -> None:
        if count >= 2:
            raise Refused("too_many_collections", "2")

    for name in ("a", "b"):
        database.create(name, {}, admit)
    with pytest.raises(Refused, match="2"):
        database.create("c", {}, admit)
    assert not database.create("b", {}, admit)[1]
    assert [row.name for row in database.collections()] == ["a", "b"]


def test_a_dropped_collection_leaves_nothing_and_its_number_is_not_used_again(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("a"))
    database.reserve_names(number, ["x"])
    assert database.drop(number)
    assert not database.drop(number)
    assert database.collections() == []
    fetch = partial(database.fetch, ids=["a"])
    for reads in (database.last_moment, database.count, database.metadata, fetch):
        with pytest.raises(ix.CollectionNotFound):
            reads(number)
    with database.connections.use() as connection:
        for table in ("commits", "names", "heads", "dropped"):
            assert connection.column(f"SELECT count(*) FROM {table}") == [0]
    assert database.create("plants", {})[0].number > number


def test_a_collection_is_dropped_while_somebody_reads_it(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of(*map(str, range(100))))
    reading = database.read_all(number, 10)
    assert len(next(reading)) == 10
    assert database.drop(number)
    assert database.collections() == []
    assert sum(map(len, reading)) == 90
    database.remove_dropped()
    with pytest.raises(ix.CollectionNotFound):
        database.fetch(number, ["1"])


def test_nothing_is_replaced_by_a_collection_that_was_dropped_meanwhile(database: Database) -> None:
    number, before = (database.create(name, {})[0].number for name in ("hidden", "plants"))
    database.drop(number)
    with pytest.raises(ix.CollectionNotFound):
        database.rename(number, "plants", before)
    assert [each.number for each in database.collections()] == [before]


def test_a_collection_takes_six_relations_which_go_with_it(database: Database) -> None:
    """Its table, three indexes, and long values with theirs: 1,000 collections have 6,000."""
    names = [f"c{place:02}" for place in range(20)]

    def count_relations() -> int:
        with database.connections.use() as connection:
            return int(connection.column("SELECT count(*) FROM pg_class")[0])

    before = count_relations()
    rows = [database.create(name, {"dim": 4})[0] for name in names]
    assert database.collections() == rows
    assert count_relations() - before == 6 * len(names)
    assert all(database.drop(row.number) for row in rows)
    assert database.collections() == []
    assert count_relations() == before


def test_loads_are_saved_replaced_and_forgotten(database: Database, number: int) -> None:
    first, second = ix.LoadRecord("a", 10, "{}"), ix.LoadRecord("b", 20, "[1]")
    for record in (first, second):
        database.save_load(number, record, 0)
    assert database.loads(number, 0) == [second, first]
    assert database.loads(number, 11) == [second]
    assert database.loads(number, 0, "a") == [first]
    assert database.loads(number, 0, "none") == []
    replaced = ix.LoadRecord("b", 30, "[2]")
    database.save_load(number, replaced, 11)
    assert database.loads(number, 0) == [replaced]
    with database.connections.transaction() as connection:
        connection.run("UPDATE loads SET progress = '[3]'")
    with pytest.raises(ix.DamagedFile, match="load 'b'"):
        database.loads(number, 0)


def test_a_write_that_waits_too_long_for_the_collection_is_unavailable(
    database_url: str, database: Database, number: int
) -> None:
    put = put_of("a")
    with closing(Database.open(database_url, buckets=4, seconds=2)) as hasty:
        committer = Committer(hasty, number, "plants")

        def choose(_: int) -> list[str]:
            with pytest.raises(StoreUnavailable, match="lock"):
                committer.commit(put)
            return ["none"]

        deleted = Committer(database, number, "plants").commit(PreparedChoice(choose=choose))
        assert deleted == 0
        assert committer.commit(put) == ix.WriteResult(1, 0)


def test_a_database_that_is_silent_is_given_up(database_url: str, database: Database) -> None:
    silent = pytest.raises(StoreUnavailable, match=r"no answer within 2 s")
    with closing(Database.open(database_url, buckets=4, seconds=2)) as hasty:
        with silent, hasty.connections.use() as connection:
            connection.run("SELECT pg_sleep(30)")
        with silent, hasty.connections.use() as connection, connection.pipeline():
            connection.run("SELECT pg_sleep(30)")
        assert hasty.collections() == database.collections()


# Items


def test_a_table_that_an_older_program_made_has_the_same_items(
    database: Database, number: int, committer: Committer
) -> None:
    """It was partitioned by bucket."""
    older, _ = database.create("older", {"dim": 4})
    replace_by_partitions(database, older.number)
    committers = committer, Committer(database, older.number, "older")
    copies = [Copy(database, each) for each in (number, older.number)]
    expires = [None, database.now_ms + 60_000]
    writes: list[PreparedWrite] = [
        put_of(*map(str, range(300)), expires=expires * 150),
        put_of("7", "x", None, payload=b"{}"),
        PreparedChoice(ids=["3", "none"]),
        PreparedChoice(change=ix.PayloadChange(b'{"a":1}'), ids=["7", "299"]),
        PreparedChoice(choose=lambda head: [str(head % 300)]),
    ]
    for write in writes:
        results = [each.commit(write) for each in committers]
        assert results[0] == results[1]
        for copy in copies:
            copy.follow()
        assert copies[0].items == copies[1].items
    ids = [*map(str, range(400)), "x"]
    for read in (
        partial(database.fetch, ids=ids),
        partial(database.rows_by_key, keys=range(0, 400, 3)),
        partial(database.page, after=17, limit=40, with_vector=True),
        partial(database.bucket_rows, bucket=1, after="2", limit=9, now_ms=database.now_ms),
        partial(contents, database),
        database.count,
    ):
        assert read(number=number) == read(number=older.number)
    assert len(contents(database, number)) == 300
    assert database.drop(older.number)
    with database.connections.use() as connection:
        assert connection.column("SELECT to_regclass(%b) IS NULL", f"items_{older.number}") == [
            True
        ]


def test_many_items_that_are_put_at_once_lie_by_bucket(
    database: Database, number: int, committer: Committer
) -> None:
    """A shard that reads its own reads few pages of others."""
    committer.commit(put_of(*map(str, range(4000))))
    page = "(ctid::text::point)[0]"
    statement = f"SELECT bucket, count(DISTINCT {page}), min({page}), max({page})"
    with database.connections.use() as connection:
        found = connection.run(f"{statement} FROM items_{number} GROUP BY bucket ORDER BY 3")
        spans = found.fetchall()
    assert len(spans) == database.buckets
    for _, pages, first, last in spans:
        assert pages == last - first + 1
    for (*_, last), (_, _, first, _) in pairwise(spans):
        assert first >= last


def test_a_row_that_is_not_what_was_written_is_refused(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put_of("a", "b"))
    with database.connections.transaction() as connection:
        connection.run(f"UPDATE items_{number} SET vector = 'other' WHERE id = 'b'")
    assert {*database.fetch(number, ["a"])} == {"a"}
    for ids in (["b"], ["a", "b"]):
        with pytest.raises(ix.DamagedFile, match="row 2"):
            database.fetch(number, ids)
    with pytest.raises(ix.DamagedFile, match="row 2"):
        database.rows_by_key(number, [2])
    with pytest.raises(ix.DamagedFile, match="row 2"):
        database.page(number, after=0, limit=2, with_vector=True)
    with pytest.raises(ix.DamagedFile, match="row 2"):
        [*database.read_all(number, 1)]
    change = PreparedChoice(change=ix.PayloadChange(b'{"a":1}'), ids=["b"])
    with pytest.raises(ix.DamagedFile, match="row 2"):
        committer.commit(change)
    with database.connections.transaction() as connection:
        connection.run(f"UPDATE items_{number} SET vector = NULL WHERE id = 'b'")
    with pytest.raises(ix.DamagedFile, match="no vector"):
        database.fetch(number, ["b"])
    assert {*database.fetch(number, ["a"])} == {"a"}


def test_all_items_are_of_one_moment(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put_of(*"abcdef"))
    reading = database.read_all(number, 2)
    found = next(reading)
    committer.commit(PreparedChoice(ids=["c"]))
    committer.commit(put_of("f", "g"))
    found += [row for rows in reading for row in rows]
    assert [(row.key, row.id) for row in found] == [*enumerate("abcdef", 1)]


def test_abandoned_rows_leave_the_connection_to_who_has_it_next(
    database_url: str, number: int, committer: Committer
) -> None:
    committer.commit(put_of(*"abcdef"))
    with closing(Database.open(database_url, buckets=4, max_connections=1)) as one:
        with one.changes(number, range(4), None, 2) as (_, _, rows, _):
            next(rows)
        with one.connections.transaction() as connection:
            del rows
            assert connection.column("SELECT 1") == [1]
        with closing(one.read_all(number, 2)) as reading:
            next(reading)
        assert one.count(number) == 6


# Names of coordinates


def test_new_names_get_coordinates_above_all_that_have_names(
    database: Database, number: int
) -> None:
    database.replace_names(number, [(7, "a"), (900, "b")])
    assert database.reserve_names(number, ["c", "b"]) == {"c": 901, "b": 900}


def test_a_name_that_is_not_what_was_written_is_refused(database: Database, number: int) -> None:
    database.replace_names(number, [(0, "oak")])
    with database.connections.transaction() as connection:
        connection.run("UPDATE names SET name = 'ash'")
    with pytest.raises(ix.DamagedFile, match="coordinate 0"):
        database.names(number)


def test_two_routers_never_give_one_coordinate_twice(
    database_url: str, database: Database, number: int
) -> None:
    with closing(Database.open(database_url, buckets=4)) as other, ThreadPoolExecutor(4) as pool:
        wanted = [[f"{place % 40}", f"only {place}"] for place in range(200)]
        routers = [database, other] * 100
        reserve = partial(Database.reserve_names, number=number)
        found = [*pool.map(lambda one, names: reserve(one, names=names), routers, wanted)]
    together = {name: coordinate for names in found for name, coordinate in names.items()}
    assert all(together.items() >= names.items() for names in found)
    assert sorted(together.values()) == [*range(240)]


def test_weights_that_were_overtaken_are_not_used(database: Database, number: int) -> None:
    row = database.find("plants")
    assert row is not None
    first, second = (database.add_generation(row, row.config, each) for each in ("1", "2"))
    checked: list[int] = []
    database.use_generation(second, lambda rows: checked.append(len(rows)), 0)
    for overtaken in (first, second):
        with pytest.raises(ix.CollectionBusy):
            database.use_generation(overtaken, lambda rows: checked.append(len(rows)), 0)
    assert checked == [0]
    current = database.find("plants")
    assert current is not None
    assert current.generation == second.generation
