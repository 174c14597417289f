"""Opening a database, its collections, and what each keeps besides items."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.connections import Connection
from gcws_search.service.cluster.contract import ClusterMismatch, CollectionRow
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable, TooManyCollections
from tests.support.service.ports import HOST, free_port
from tests.support.service.postgres import postgres


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
        other.create("plants", {}, 1)
        assert database.collections() == []


def test_a_database_that_is_not_there_is_said_at_once() -> None:
    with pytest.raises(StoreUnavailable, match="refused"):
        Database.open(f"postgresql://gcws@{HOST}:{free_port()}/none")
    with pytest.raises(StoreUnavailable, match="does not exist"):
        Database.open(postgres().url("none"))


def test_a_closed_database_is_unavailable(database_url: str) -> None:
    database = Database.open(database_url, buckets=4)
    database.close()
    with pytest.raises(StoreUnavailable):
        database.collections()


def test_no_more_connections_than_permitted_are_open(database_url: str) -> None:
    with closing(
        Database.open(database_url, buckets=4, max_connections=1, seconds=0.2)
    ) as database:
        with database.connections.use(), pytest.raises(StoreUnavailable, match="in use"):
            database.collections()
        assert database.collections() == []


def test_a_name_is_created_once(database: Database) -> None:
    config = {"dim": 4, "names": ["ü"]}
    row, is_new = database.create("plants", config, 3)
    assert is_new
    assert row == CollectionRow(row.number, "plants", config, 3, 0)
    assert database.create("plants", {"dim": 5}, 3) == (row, False)
    assert database.find("plants") == row
    assert database.find("none") is None
    other, _ = database.create("animals", {}, 1)
    assert database.collections() == [other, row]
    with ThreadPoolExecutor(4) as pool:
        created = [*pool.map(lambda _: database.create("stones", {}, 1), range(4))]
    assert len({row.number for row, _ in created}) == 1
    assert sum(is_new for _, is_new in created) == 1


def test_a_collection_too_many_is_not_created(database: Database) -> None:
    def admit(count: int) -> None:
        if count >= 2:
            raise TooManyCollections(2)

    for name in ("a", "b"):
        database.create(name, {}, 1, admit)
    with pytest.raises(TooManyCollections):
        database.create("c", {}, 1, admit)
    assert not database.create("b", {}, 1, admit)[1]
    assert [row.name for row in database.collections()] == ["a", "b"]


def test_a_dropped_collection_leaves_nothing_and_its_number_is_not_used_again(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(PreparedPut(ids=["a"], vectors=[b"v"], payloads=[None]))
    database.reserve_names(number, ["x"])
    assert database.drop(number)
    assert not database.drop(number)
    assert database.collections() == []
    for reads in (database.last_moment, database.count, database.metadata):
        with pytest.raises(ix.CollectionNotFound):
            reads(number)
    with pytest.raises(ix.CollectionNotFound):
        database.fetch(number, ["a"])
    with database.connections.use() as connection:
        for table in ("commits", "names", "heads", "dropped"):
            assert connection.column(f"SELECT count(*) FROM {table}") == [0]
    assert database.create("plants", {}, 1)[0].number > number


def test_a_collection_is_dropped_while_somebody_reads_it(
    database: Database, number: int, committer: Committer
) -> None:
    ids = [*map(str, range(100))]
    committer.commit(PreparedPut(ids=ids, vectors=[b"v"] * 100, payloads=[None] * 100))
    reading = database.read_all(number, 10)
    assert len(next(reading)) == 10
    assert database.drop(number)
    assert database.collections() == []
    assert sum(map(len, reading)) == 90
    database.remove_dropped()
    with pytest.raises(ix.CollectionNotFound):
        database.fetch(number, ["1"])


def test_metadata_is_replaced_and_removed(database: Database, number: int) -> None:
    assert database.metadata(number) is None
    database.replace_metadata(number, b'{"a": 1}')
    assert database.metadata(number) == b'{"a": 1}'
    database.replace_metadata(number, None)
    assert database.metadata(number) is None
    with pytest.raises(ix.CollectionNotFound):
        database.replace_metadata(number + 1, b"{}")


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


def test_backends_are_listed_as_they_were_attached(database: Database, number: int) -> None:
    backends = [ix.BackendRecord(name, "exact", "{}", None) for name in ("z", "a")]
    for backend in backends:
        database.add_backend(number, backend)
    assert database.backends(number) == backends
    with pytest.raises(ix.BackendExists):
        database.add_backend(number, ix.BackendRecord("a", "other", "{}", None))
    database.remove_backend(number, "z")
    with pytest.raises(ix.BackendNotFound):
        database.remove_backend(number, "z")
    assert database.backends(number) == backends[1:]


def test_a_write_that_waits_too_long_for_the_collection_is_unavailable(
    database_url: str, database: Database, number: int
) -> None:
    put = PreparedPut(ids=["a"], vectors=[b"v"], payloads=[None])
    with closing(Database.open(database_url, buckets=4, seconds=0.3)) as hasty:
        committer = Committer(hasty, number, "plants")

        def choose(_: int) -> list[str]:
            with pytest.raises(StoreUnavailable, match="lock"):
                committer.commit(put)
            return ["none"]

        deleted = Committer(database, number, "plants").commit(PreparedDelete(choose=choose))
        assert deleted == 0
        assert committer.commit(put) == ix.WriteResult(1, 0)


def test_a_database_that_is_silent_is_given_up(database_url: str, database: Database) -> None:
    with closing(Database.open(database_url, buckets=4, seconds=0.3)) as hasty:
        inner: list[Callable[[Connection], AbstractContextManager[object]]]
        inner = [lambda _: nullcontext(), Connection.pipeline]
        for inside in inner:
            with (
                pytest.raises(StoreUnavailable, match=r"no answer within 0\.3 s"),
                hasty.connections.use() as connection,
                inside(connection),
            ):
                connection.run("SELECT pg_sleep(30)")
        assert hasty.collections() == database.collections()
