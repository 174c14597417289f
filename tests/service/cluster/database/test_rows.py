from gcws_search.service.cluster.contract import Row
from gcws_search.service.cluster.database.committer import Committer
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.database.writes import PreparedDelete, PreparedPut


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
    assert database.at(number, [4, 3, 2, 1]) == [b, a]
    assert database.page(number, after=0, limit=1, with_vector=True) == [b]
    assert database.page(number, after=2, limit=9, with_vector=False) == [Row(4, "a", b"", b"{}")]
    assert [*database.read_all(number, 1)] == [[b], [a]]
    assert database.count(number) == 2
    assert database.head(number) == committer.last_key == 5
