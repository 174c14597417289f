"""Reading items."""

from collections.abc import Callable
from contextlib import closing

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database import Database


def put(*ids: str) -> PreparedPut:
    vectors = [f"vector {item_id}".encode() for item_id in ids]
    return PreparedPut(ids=ids, vectors=vectors, payloads=[b"{}", *[None] * len(ids)][: len(ids)])


def test_items_are_read_by_id_by_key_and_in_order(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put("a", "b\0", "ü"))
    committer.commit(put("a"))
    committer.commit(PreparedDelete(ids=["ü", "none"]))
    b, a = Row(2, "b\0", b"vector b\0", None), Row(4, "a", b"vector a", b"{}")
    assert database.fetch(number, ["a"]) == {"a": a}
    assert database.fetch(number, ["a", "none", "b\0", "ü"]) == {"a": a, "b\0": b}
    assert database.rows_by_key(number, [4, 3, 2, 1]) == [b, a]
    assert database.page(number, after=0, limit=1, with_vector=True) == [b]
    assert database.page(number, after=2, limit=9, with_vector=False) == [Row(4, "a", b"", b"{}")]
    assert [*database.read_all(number, 1)] == [[b], [a]]
    assert database.count(number) == 2
    assert database.last_moment(number).key == committer.last.key == 5


def test_a_row_that_is_not_what_was_written_is_refused(
    database: Database, number: int, committer: Committer
) -> None:
    committer.commit(put("a", "b"))
    with database.connections.transaction() as connection:
        connection.run(f"UPDATE items_{number} SET vector = 'other' WHERE id = 'b'")
    assert {*database.fetch(number, ["a"])} == {"a"}
    reads: list[Callable[[], object]] = [
        lambda: database.fetch(number, ["b"]),
        lambda: database.fetch(number, ["a", "b"]),
        lambda: database.rows_by_key(number, [2]),
        lambda: database.page(number, after=0, limit=2, with_vector=True),
        lambda: [*database.read_all(number, 1)],
    ]
    for read in reads:
        with pytest.raises(ix.DamagedFile, match="row 2"):
            read()


def test_all_items_are_of_one_moment(database: Database, number: int, committer: Committer) -> None:
    committer.commit(put(*"abcdef"))
    reading = database.read_all(number, 2)
    found = next(reading)
    committer.commit(PreparedDelete(ids=["c"]))
    committer.commit(put("f", "g"))
    found += [row for rows in reading for row in rows]
    assert [(row.key, row.id) for row in found] == [*enumerate("abcdef", 1)]


def test_abandoned_rows_leave_the_connection_to_who_has_it_next(
    database_url: str, number: int, committer: Committer
) -> None:
    committer.commit(put(*"abcdef"))
    with closing(Database.open(database_url, buckets=4, max_connections=1)) as one:
        with one.changes(number, range(4), None, 2) as (_, _, rows, _):
            next(rows)
        with one.connections.transaction() as connection:
            del rows
            assert connection.column("SELECT 1") == [1]
        with closing(one.read_all(number, 2)) as reading:
            next(reading)
        assert one.count(number) == 6
