"""Items without ids: the database orders the numbers that they are given."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.database import Database
from tests.support.service.shards import BUCKETS


def put(*ids: str | None, mode: ix.Mode = "upsert") -> PreparedPut:
    vectors = [f"{place}".encode() for place in range(len(ids))]
    return PreparedPut(ids=ids, vectors=vectors, payloads=[None] * len(ids), mode=mode)


def ids_of(database: Database, number: int) -> list[str]:
    return [row.id for rows in database.read_all(number, 1000) for row in rows]


def test_items_without_ids_get_the_next_numbers(
    database: Database, number: int, committer: Committer
) -> None:
    assert committer.commit(put(None, None)) == ix.WriteResult(2, 0, ("0", "1"))
    assert committer.commit(put("a", "7")) == ix.WriteResult(2, 0)
    assert committer.commit(put(None, "a", None, "30")) == ix.WriteResult(3, 1, ("31", "32"))
    assert committer.commit(PreparedDelete(ids=["32", "31"])) == 2
    with pytest.raises(ix.ItemExists):
        committer.commit(put(None, "a", mode="insert"))
    result = committer.commit(put(None, mode="insert"))
    assert result.ids is not None
    assert int(result.ids[0]) >= 33
    assert len(ids_of(database, number)) == 6
    many = committer.commit(put(*[None] * 300))
    assert (many.inserted, many.updated) == (300, 0)


def test_many_routers_append_at_once(database_url: str, database: Database, number: int) -> None:
    start = threading.Barrier(3)

    def work(append: bool) -> list[ix.WriteResult]:
        with closing(Database.open(database_url, buckets=BUCKETS)) as own:
            committer = Committer(own, number, "plants")
            start.wait()
            if append:
                return [committer.commit(put(*[None] * size)) for size in [1, 2, 3] * 4]
            return [committer.commit(put(str(7 * each))) for each in range(12)]

    with ThreadPoolExecutor(3) as pool:
        appended = [*pool.map(work, [True, True, False])][:2]
    results = [each for results in appended for each in results]
    ranges = [range(int(ids[0]), int(ids[1]) + 1) for ids in (each.ids for each in results) if ids]
    given = [number for each in ranges for number in each]
    assert len(given) == len({*given}) == 48
    assert sum(each.updated for each in results) == 0
    assert {*map(str, given)} <= {*ids_of(database, number)}


def test_a_database_of_before_gets_the_number_and_looks_what_is_taken(
    database_url: str, database: Database, number: int, committer: Committer
) -> None:
    """Another program may write beside this one, and does not count."""
    committer.commit(put(*map(str, range(40)), "a", str(2**63)))
    with database.connections.transaction() as connection:
        connection.run("ALTER TABLE heads DROP COLUMN free_id")
        connection.run("DELETE FROM migrations WHERE name = 'free ids'")
    with closing(Database.open(database_url, buckets=BUCKETS)) as upgraded:
        committer = Committer(upgraded, number, "plants")
        assert committer.commit(put(None, None)) == ix.WriteResult(2, 0, ("40", "41"))
        with upgraded.connections.transaction() as connection:
            connection.run("UPDATE heads SET free_id = 3")
        assert committer.commit(put(None)) == ix.WriteResult(1, 0, ("42", "42"))
        assert len(ids_of(upgraded, number)) == 45
