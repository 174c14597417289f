"""Loads: every format, compressed or not; upserts and inserts."""

import gzip

import numpy as np
import pyarrow as pa
import pytest

from tests.support.service.bodies import (
    TYPES,
    arrow,
    bodies,
    fixed,
    items,
    load,
    ndjson,
    npy,
    rows,
    vector_of,
)
from tests.support.service.client import Client, Json, Serve, assert_problem, chunked, count
from tests.support.service.queries import URL as PLANTS

pytestmark = pytest.mark.served(front="few", cluster="few")

GZIP = {"Content_Encoding": "gzip"}


@pytest.mark.parametrize("kind", TYPES)
def test_every_format_loads(empty: Client, kind: str) -> None:
    body = bodies(10)[kind]
    members = gzip.compress(body[:100]) + gzip.compress(b"") + gzip.compress(body[100:])
    packed = gzip.compress(body)
    for content, encoding in ((body, {}), (packed, {}), (members, {}), (packed, GZIP)):
        for size in (1, 7, 10_000):
            empty.delete(PLANTS)
            empty.put(PLANTS, json={"dim": 4})
            answer = load(empty, kind, chunked(content, size), **encoding)
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert told.pop("seconds") > 0
            assert told == {
                "inserted": 10, "updated": 0, "rejected": [], "rejected_count": 0,
            } | ({"ids": {"first": "0", "last": "9"}} if kind == "npy" else {})  # fmt: skip
            assert count(empty) == 10
            assert vector_of(empty, "9") == rows(10)[9].tolist()
            hits = empty.post(f"{PLANTS}/query", json={"vector": rows(10)[6].tolist()})
            assert hits.json()["hits"][0]["id"] == "6"


def test_npy_of_any_number_and_version_loads(empty: Client) -> None:
    for dtype in ("<f2", "<f4", ">f4", "<f8", ">f8", "|i1", "|u1", ">i2", "<u8"):
        for version in ((1, 0), (2, 0), (3, 0)):
            body = npy(np.abs(rows(6)).astype(dtype), version)
            told = load(empty, "npy", body, "?id_start=0").json()
            assert told["inserted"] + told["updated"] == 6, (dtype, version)
            assert vector_of(empty, "5") == [6.0, 6.0, 1.0, 0.0]
            empty.post(f"{PLANTS}/items/delete", json={"ids": ["5"]})


def test_npy_in_fortran_order_loads(empty: Client) -> None:
    body = npy(np.asfortranarray(rows(10)))
    assert body != npy(rows(10))
    assert load(empty, "npy", chunked(body, 7), "?id_start=5").json()["inserted"] == 10
    for row in range(10):
        assert vector_of(empty, str(5 + row)) == rows(10)[row].tolist()
    for wrong in (body[:-3], body + b"x"):
        assert_problem(load(empty, "npy", wrong), 400, "malformed_body")
    bools = npy(np.array([[True, False, True, True], [False, True, False, False]]))
    odd = bools[:-8] + bytes([0, 2, 0, 255, 1, 0, 0, 0])  # bytes numpy would not write
    for content, vector in ((bools, [1, 0, 1, 1]), (odd, [0, 1, 0, 1])):
        assert load(empty, "npy", content, "?id_start=0").status_code == 200
        assert vector_of(empty, "0") == vector


def test_a_long_npy_in_fortran_order_is_refused_with_what_makes_it_shorter(serve: Serve) -> None:
    client = serve(max_arrow_batch_bytes=159)
    client.put(PLANTS, json={"dim": 4})
    array = np.asfortranarray(rows(10))
    words = ["numpy.ascontiguousarray", "159 bytes", "160 bytes", "Fortran order"]
    assert_problem(load(client, "npy", npy(array)), 422, "invalid_vector", *words)
    assert load(client, "npy", npy(np.ascontiguousarray(array))).json()["inserted"] == 10
    assert load(client, "npy", npy(array[:1]), "?id_start=0").json()["updated"] == 1
    assert load(client, "npy", npy(array[:9]), "?id_start=0").json()["updated"] == 9


def payloads(client: Client) -> dict[str, Json]:
    """Return the payload of every item."""
    items = client.get(f"{PLANTS}/items").json()["items"]
    return {item["id"]: item["payload"] for item in items}


def test_payloads_of_items_that_exist_are_kept_where_that_is_asked(serve: Serve) -> None:
    client = serve(load_chunk_rows=4)
    client.put(PLANTS, json={"dim": 4})
    load(client, "ndjson", ndjson(*items(3), {"id": "3", "vector": [1, 2, 3, 4]}))
    answer = load(client, "npy", npy(-rows(6)), "?payloads=keep")
    assert_problem(answer, 422, "invalid_parameter", "id_start", "rows without ids")
    answer = load(client, "npy", npy(-rows(6)), "?payloads=keep&id_start=0")
    assert (answer.json()["inserted"], answer.json()["updated"]) == (2, 4)
    assert vector_of(client, "1") == (-rows(6))[1].tolist()
    query = {"vector": [1] * 4, "filter": {"must": {"key": "row", "match": {"value": 2}}}}
    hits = client.post(f"{PLANTS}/query", json=query).json()["hits"]
    assert [hit["id"] for hit in hits] == ["2"]
    old, new = {"id": "0", "vector": [1] * 4}, {"id": "1", "vector": [1] * 4, "payload": {"n": 1}}
    assert load(client, "ndjson", ndjson(old, new), "?payloads=keep").json()["updated"] == 2
    columns = {"id": ["2", "3"], "vector": fixed(rows(2)), "payload": [None, '{"n": 2}']}
    assert load(client, "arrow", arrow(columns), "?payloads=keep").json()["updated"] == 2
    expected = {"0": {"row": 0}, "1": {"n": 1}, "2": {"row": 2}, "3": {"n": 2}}
    for _ in range(2):
        assert payloads(client) == expected | dict.fromkeys("45")
        client = serve()
    load(client, "npy", npy(rows(3)), "?id_start=0")
    load(client, "npy", npy(rows(1)), "?id_start=3&payloads=replace")
    assert payloads(client) == dict.fromkeys("012345")


@pytest.mark.parametrize("kind", TYPES)
def test_a_load_of_nothing_is_no_error(empty: Client, kind: str) -> None:
    columns = {"id": pa.array([], pa.string()), "vector": fixed(rows(0).reshape(0, 4))}
    body = {"ndjson": b"\n \r\n", "npy": npy(rows(0))}.get(kind) or arrow(columns)
    assert load(empty, kind, body).json()["inserted"] == 0
    assert empty.post(f"{PLANTS}/load", content=body if kind == "arrow" else b"").is_success


@pytest.mark.parametrize(
    ("asked", "listed"), [("", 1000), ("&max_rejected=2", 2), ("&max_rejected=9999", 3000)]
)
def test_as_many_rejected_rows_are_listed_as_are_asked_for_and_all_are_counted(
    empty: Client, asked: str, listed: int
) -> None:
    body = npy(np.zeros((3000, 4), np.float32))
    answer = load(empty, "npy", body, f"?on_error=skip{asked}").json()
    assert [each["row"] for each in answer["rejected"]] == [*range(listed)]
    assert answer["rejected_count"] == 3000


def test_ndjson_takes_everything_an_item_has(empty: Client) -> None:
    body = ndjson(
        {"id": 3, "vector": {"indices": [3, 0], "values": [1, -2]}, "payload": {"a": [1, None]}},
        {"id": "x", "vector": [1, 2, 3, 4], "payload": None},
    )
    assert load(empty, "ndjson", b"\n" + body.rstrip()).json()["inserted"] == 2
    found = empty.get(f"{PLANTS}/items/3").json()
    assert found == {"id": "3", "vector": [-2.0, 0.0, 0.0, 1.0], "payload": {"a": [1, None]}}


def test_insert_stops_at_a_known_id_or_skips_it(empty: Client) -> None:
    load(empty, "npy", npy(rows(2)), "?id_start=6")
    answer = load(empty, "npy", npy(rows(10)), "?mode=insert&id_start=0")
    problem = assert_problem(answer, 409, "item_exists", "item 6", "'6'")
    assert (problem["row"], problem["committed"]) == (6, 4)
    assert count(empty) == 6
    body = ndjson(*items(8), *items(3))
    answer = load(empty, "ndjson", body, "?mode=insert&on_error=skip").json()
    assert answer["inserted"] == 2
    rejected = [(one["row"], one["code"]) for one in answer["rejected"]]
    assert rejected == [(row, "item_exists") for row in (0, 1, 2, 3, 6, 7, 8, 9, 10)]
    assert count(empty) == 8


@pytest.mark.parametrize(
    "query", ["?mode=replace", "?payloads=drop", "?on_error=ignore", "?id_start=-1", "?x=1"]
)
def test_bad_load_parameters_are_refused(empty: Client, query: str) -> None:
    word = query[1:].partition("=")[0]
    assert_problem(load(empty, "npy", npy(rows(1)), query), 422, "invalid_parameter", word)
