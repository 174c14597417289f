"""Loads: every format, told or not; bad rows, broken and foreign bodies."""

import codecs
import gzip
import io
import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from tests.support.service.bodies import (
    TYPES,
    URL,
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
from tests.support.service.client import (
    URL as PLANTS,
    Client,
    Json,
    Serve,
    assert_problem,
    chunked,
    count,
)

in_each_way = pytest.mark.served(front="one", cluster="one")
"""Of tests of what a front or a router does; what a body holds is read by one code in all."""

GZIP = {"Content_Encoding": "gzip"}


@in_each_way
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
    items = client.get(f"{PLANTS}/items").json()["items"]
    return {item["id"]: item["payload"] for item in items}


@in_each_way
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
    answer = load(empty, kind, body)
    assert (answer.status_code, answer.json()["inserted"]) == (200, 0)
    assert empty.post(f"{PLANTS}/load", content=body if kind == "arrow" else b"").is_success


@in_each_way
@pytest.mark.parametrize(
    ("asked", "listed"), [("", 1000), ("&max_rejected=2", 2), ("&max_rejected=9999", 1200)]
)
def test_as_many_rejected_rows_are_listed_as_are_asked_for_and_all_are_counted(
    empty: Client, asked: str, listed: int
) -> None:
    body = npy(np.zeros((1200, 4), np.float32))
    answer = load(empty, "npy", body, f"?on_error=skip{asked}").json()
    assert [each["row"] for each in answer["rejected"]] == [*range(listed)]
    assert answer["rejected_count"] == 1200


def test_ndjson_may_begin_with_a_byte_order_mark(empty: Client) -> None:
    for lines in (b"%b\n%b\n", b"%b\n%b", b"\n%b\n%b"):
        body = lines % (b'{"id":"a","vector":[1,2,3,4]}', b'{"vector":[4,3,2,1]}')
        for size in (1, 10_000):
            told = load(empty, "ndjson", chunked(codecs.BOM_UTF8 + body, size)).json()
            assert told["inserted"] + told["updated"] == 2, told
    assert empty.get(f"{PLANTS}/items/a").json()["vector"] == [1, 2, 3, 4]


@in_each_way
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


@in_each_way
@pytest.mark.parametrize(
    "query", ["?mode=replace", "?payloads=drop", "?on_error=ignore", "?id_start=-1", "?x=1"]
)
def test_bad_load_parameters_are_refused(empty: Client, query: str) -> None:
    word = query[1:].partition("=")[0]
    assert_problem(load(empty, "npy", npy(rows(1)), query), 422, "invalid_parameter", word)


# Bad rows: stop names the first, skip stores the others


def with_bad_rows(kind: str) -> bytes:
    """Return 10 rows in a format, of which 2 and 9 are bad."""
    array = rows(10)
    array[2], array[9, 1] = 0, np.nan
    if kind == "npy":
        return npy(array)
    if kind == "arrow":
        return arrow({"id": [str(i) for i in range(10)], "vector": fixed(array)}, 4)
    return ndjson(*({"id": str(i), "vector": row} for i, row in enumerate(array.tolist())))


@in_each_way
@pytest.mark.parametrize("kind", TYPES)
def test_skip_stores_the_good_rows_and_names_the_bad(empty: Client, kind: str) -> None:
    answer = load(empty, kind, with_bad_rows(kind), "?on_error=skip").json()
    assert answer["inserted"] == 8
    assert answer["rejected_count"] == 2
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [
        (2, "invalid_vector"),
        (9, "invalid_vector"),
    ]
    assert "row 2: expected a vector with a non-zero value" in answer["rejected"][0]["detail"]
    assert "row 9: expected a finite" in answer["rejected"][1]["detail"]
    assert count(empty) == 8


@in_each_way
@pytest.mark.parametrize("kind", TYPES)
def test_stop_names_the_row_and_keeps_what_was_committed(empty: Client, kind: str) -> None:
    body = with_bad_rows(kind)
    problem = assert_problem(load(empty, kind, body), 422, "invalid_vector", "row 2")
    assert (problem["row"], problem["committed"]) == (2, 0)
    assert problem["errors"][0]["loc"][:2] == ["rows", 2]
    assert count(empty) == 0
    load(empty, "ndjson", ndjson(*items(10)))  # now only the last row of the same load is bad
    array = rows(10)
    array[9, 1] = np.inf
    answer = load(empty, "npy", npy(array), "?id_start=0")
    problem = assert_problem(answer, 422, "invalid_vector", "row 9")
    assert (problem["row"], problem["committed"], problem["updated"]) == (9, 8, 8)


BAD_LINES: list[tuple[bytes, int, str, str]] = [
    (b'{"id": "x", "vector": [1, 2, 3]}', 422, "invalid_vector", "4 values"),
    (b'{"id": "", "vector": [1, 2, 3, 4]}', 422, "invalid_id", "id"),
    (b'{"id": null, "vector": [1, 2, 3, 4]}', 422, "invalid_id", "id"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "payload": 3}', 422, "invalid_payload", "payload"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "payload": {"a": NaN}}', 422, "invalid_payload", "NaN"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "note": 1}', 422, "invalid_parameter", "note"),
    (b"[1, 2, 3, 4]", 422, "invalid_parameter", "an object"),
    (b'{"id": "x", "vec', 400, "malformed_body", "row 1"),
    (b"\xff", 400, "malformed_body", "row 1"),
]


def test_a_bad_line_is_named(empty: Client) -> None:
    first, rest = ndjson(*items(3)).split(b"\n", 1)
    for line, status, code, word in BAD_LINES:
        body = b"\n".join([first, line, rest])
        problem = assert_problem(load(empty, "ndjson", body), status, code, "row 1", word)
        assert problem["row"] == 1
        assert count(empty) == 0
        answer = load(empty, "ndjson", body, "?on_error=skip").json()
        assert answer["inserted"] == 3
        assert [(one["row"], one["code"]) for one in answer["rejected"]] == [(1, code)]
        empty.post(f"{PLANTS}/items/delete", json={"ids": [*"012"]})


def test_an_arrow_payload_is_stored_as_it_is_unless_it_is_too_deep(empty: Client) -> None:
    columns = {"id": ["a"], "vector": fixed(rows(1))}
    for depth in (300, 990, 1020, 100_000):
        deep = '{"a":' + "[" * depth + "]" * depth + "}"
        answer = load(empty, "arrow", arrow({**columns, "payload": [deep]}))
        assert_problem(answer, 422, "invalid_payload", "row 0")
        assert count(empty) == 0
    payload = {"a": 10**29 + 1, "b": [2**64]}
    assert load(empty, "arrow", arrow({**columns, "payload": [json.dumps(payload)]})).is_success
    assert empty.get(f"{PLANTS}/items/a").json()["payload"] == payload


def test_arrow_names_bad_ids_payloads_and_missing_values(empty: Client) -> None:
    columns = {
        "id": ["a", None, "", "d", "e", "f", "g", "h"],
        "vector": pa.array(
            [[1, 1, 1, 1]] * 4 + [None, [1, None, 1, 1], [1, 2, 3], [1, 1, 1, 1]],
            pa.list_(pa.float32()),
        ),
        "payload": ["{}", None, None, "[1]", None, None, None, '{"a": NaN}'],
    }
    answer = load(empty, "arrow", arrow(columns), "?on_error=skip").json()
    assert answer["inserted"] == 1
    kinds = ["id", "id", "payload", "vector", "vector", "vector", "payload"]
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [
        (row, f"invalid_{kind}") for row, kind in enumerate(kinds, 1)
    ]


def test_arrow_names_bad_sparse_rows(serve: Serve) -> None:
    client = serve()
    client.put(PLANTS, json={"dim": 9})
    indices = [[1, 2], [1, 1], [-1], [9], [3, 4], [5], [None], []]
    values = [[1, 2], [1, 2], [1], [1], [1], [0], [1], []]
    columns = {
        "id": [str(i) for i in range(8)],
        "indices": pa.array(indices, pa.list_(pa.int32())),
        "values": pa.array(values, pa.list_(pa.float64())),
    }
    answer = load(client, "arrow", arrow(columns), "?on_error=skip").json()
    assert answer["inserted"] == 1
    assert [one["row"] for one in answer["rejected"]] == [1, 2, 3, 4, 5, 6, 7]
    assert all(one["code"] == "invalid_vector" for one in answer["rejected"])


BAD_COLUMNS: list[tuple[dict[str, Json], str]] = [
    ({"id": ["a"]}, "vector"),
    (
        {"id": ["a"], "vector": fixed(rows(1)), "label": [3]},
        "?columns=payload, which makes others fields of the payload, got 'label'",
    ),
    ({"id": ["a"], "values": [[1]]}, "indices"),
    ({"id": ["a"], "vector": fixed(rows(1)), "indices": [[1]], "values": [[1]]}, "or columns"),
    ({"id": [1.5], "vector": fixed(rows(1))}, "id"),
    ({"id": ["a"], "vector": ["1,2,3,4"]}, "vector"),
    ({"id": ["a"], "vector": [["1"]]}, "vector"),
    ({"id": ["a"], "indices": [[1.5]], "values": [[1.0]]}, "indices"),
    ({"id": ["a"], "vector": fixed(rows(1)), "payload": [3]}, "payload"),
]


def test_arrow_columns_are_checked(empty: Client) -> None:
    for columns, word in BAD_COLUMNS:
        assert_problem(load(empty, "arrow", arrow(columns)), 422, "invalid_parameter", word)


BAD_ARRAYS: list[tuple[Json, str]] = [
    (np.ones((3, 3), np.float32), "row 0: expected 4 values"),
    (np.ones(4), "two dimensions"),
    (np.ones((2, 2, 2)), "two dimensions"),
    (np.ones((3, 4), complex), "floats, integers or bools"),
    (np.array([["a", "b"]]), "floats, integers or bools"),
    (np.ones((3, 0)), "at least one value"),
    (np.full((3, 4), 1e39), "row 0"),
    (np.zeros((1, 4), [("a", "<f4")]), "floats, integers or bools"),
]


def test_npy_of_something_else_is_refused_and_never_unpickled(empty: Client) -> None:
    for array, word in BAD_ARRAYS:
        assert_problem(load(empty, "npy", npy(array)), 422, "invalid_vector", word)
    body = io.BytesIO()
    np.save(body, np.array([[{}]], dtype=object), allow_pickle=True)
    refused = load(empty, "npy", body.getvalue())
    assert_problem(refused, 422, "invalid_vector", "floats, integers or bools")


@in_each_way
def test_what_only_the_transform_shows_is_rejected_too(serve: Serve) -> None:
    client = serve()
    client.put(PLANTS, json={"dim": 4, "transform": {"center": [2, -2, 1, 0]}})
    answer = load(client, "npy", npy(rows(5)), "?on_error=skip").json()
    assert answer["inserted"] == 4
    assert [one["row"] for one in answer["rejected"]] == [1]
    problem = assert_problem(load(client, "npy", npy(rows(5))), 422, "invalid_vector", "row 1")
    assert problem["row"] == 1


# Broken and oversize bodies


@in_each_way
@pytest.mark.parametrize("kind", ["npy", "arrow"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_body_keeps_whole_chunks_alone(empty: Client, kind: str, packed: bool) -> None:
    body = bodies(10)[kind]
    body = gzip.compress(body) if packed else body
    stored, query = set(), "?id_start=0" if kind == "npy" else ""
    for length in range(0, len(body) - 8, 9):
        answer = load(empty, kind, body[:length], query)
        problem = assert_problem(answer, 400, "malformed_body")
        assert problem["committed"] % 4 == 0
        stored.add(count(empty))
    assert stored <= {0, 4, 8}
    if not packed:
        assert_problem(load(empty, kind, body + b"x", query), 400, "malformed_body", "more")


@in_each_way
def test_what_is_no_whole_gzip_is_malformed(empty: Client) -> None:
    body = gzip.compress(bodies(10)["ndjson"])
    for length in (3, 11, len(body) // 2, len(body) - 1):
        assert_problem(load(empty, "ndjson", body[:length]), 400, "malformed_body", "gzip")
    for content in (b"{}", gzip.compress(b"\n") + b"rubbish"):
        answer = load(empty, "ndjson", content, Content_Encoding="gzip")
        assert_problem(answer, 400, "malformed_body", "gzip")
    answer = load(empty, "npy", b"", Content_Encoding="br")
    assert_problem(answer, 415, "unsupported_media_type", "br")


def test_an_arrow_stream_with_changed_bytes_is_refused(empty: Client) -> None:
    body = bodies(10)["arrow"]
    for at in range(0, 600, 3):
        changed = bytearray(body)
        changed[at] ^= 0xFF
        assert load(empty, "arrow", bytes(changed)).status_code in (200, 400, 413, 422), at


NO_NPY = (
    (b"", "an empty body"),
    (b"PK\x03\x04\x14\x00\x00\x00", "a zip archive, such as an .npz"),
    (b"1,2,3,4\n", "CSV"),
    (b"words, no", "CSV"),
    (b"some words", "starts with 'some wo"),
    (b"[1, 2, 3]", "starts with '[1, 2, 3'"),
    (b"\x93NUM", "ends inside"),
    (b"\x00\x01\x02\x03\x04\x05\x06\x07", "the bytes 00 01 02"),
    (b"ARROW1\0\0", "Arrow file"),
)


def test_a_body_that_is_no_npy_is_named(empty: Client) -> None:
    for body, words in NO_NPY:
        assert_problem(load(empty, "npy", body), 400, "malformed_body", "expected .npy data", words)
    for body in (b"", b"\x93NUMPY", b"\x93NUMPY\x04\x00", b"{}", b"\x00" * 64):
        for kind in ("npy", "arrow"):
            assert_problem(load(empty, kind, body), 400, "malformed_body")


HEADERS = [
    *((text, 400) for text in (
        "{}", "{'descr': '<f4'}", "[", "(" * 999, "__import__('os')",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 4}",
    )),
    (f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({10**15}, 4)}}", 400),
    (f"{{'descr': '<f4', 'fortran_order': False, 'shape': (2, {10**15})}}", 422),
]  # fmt: skip


def test_a_bad_npy_header_is_refused_and_reserves_nothing(empty: Client) -> None:
    for header, status in HEADERS:
        body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
        assert load(empty, "npy", body).status_code == status, header


@pytest.mark.served(cluster="one")
def test_loads_are_bounded(serve: Serve) -> None:
    client = serve(load_chunk_rows=4, max_load_bytes=1000, max_line_bytes=200)
    client.put("/v1/collections/plants", json={"dim": 4})
    body = bodies(40)["ndjson"]
    assert len(body) > 1000
    assert_problem(load(client, "ndjson", body), 413, "body_too_large", "1000 bytes")
    problem = assert_problem(load(client, "ndjson", chunked(body)), 413, "body_too_large")
    assert problem["committed"] == count(client) > 0
    bomb = gzip.compress(b"\n" * 10_000_000)
    assert_problem(load(client, "ndjson", chunked(bomb)), 413, "body_too_large")
    assert_problem(load(client, "ndjson", b" " * 300), 413, "body_too_large", "a line")
    client = serve(max_rejected_listed=3)
    answer = load(client, "ndjson", b"rubbish\n" * 50, "?on_error=skip").json()
    assert ([one["row"] for one in answer["rejected"]], answer["rejected_count"]) == ([0, 1, 2], 50)


# Bodies whose content type says nothing of them, and such as no route reads


UNSAID = [None, "application/octet-stream", "application/x-www-form-urlencoded"]
COMMAND = "gcws-search load FILE"


def headers(kind: str | None) -> dict[str, str]:
    return {} if kind is None else {"Content-Type": kind}


@in_each_way
@pytest.mark.parametrize("kind", TYPES)
def test_a_load_of_no_type_is_known_by_its_first_bytes(empty: Client, kind: str) -> None:
    for said, size, packed in itertools.product(UNSAID, (1, 10_000), (False, True)):
        body = gzip.compress(bodies(10)[kind]) if packed else bodies(10)[kind]
        answer = empty.post(URL, content=chunked(body, size), headers=headers(said))
        assert answer.status_code == 200, answer.text
        assert answer.json()["inserted"] + answer.json()["updated"] == 10


def test_parameters_of_a_format_are_for_a_body_known_to_have_it(empty: Client) -> None:
    assert empty.post(f"{URL}?id_start=7", content=npy(rows(2))).json()["inserted"] == 2
    assert empty.get(f"{PLANTS}/items/8").status_code == 200
    answer = empty.post(f"{URL}?id_start=7", content=bodies(2)["ndjson"])
    assert_problem(answer, 422, "invalid_parameter", "id_start", "NDJSON")
    answer = empty.post(f"{PLANTS}/query/batch?limit=3", content=b'{"queries": []}')
    assert_problem(answer, 422, "invalid_parameter", "limit")
    lines = b'rubbish\n{"id": "a", "vector": [1, 2, 3, 4]}\n'
    told = empty.post(f"{URL}?on_error=skip", content=lines).json()
    assert (told["inserted"], told["rejected_count"]) == (1, 1)


def written(kind: str) -> bytes:
    """Return a file of a format that no route reads, as its library writes it."""
    out, table = io.BytesIO(), pa.table({"id": ["a"], "x": [1.0]})
    match kind:
        case "Arrow file":
            with pa.ipc.new_file(out, table.schema) as writer:
                writer.write_table(table)
        case "Parquet":
            pyarrow.parquet.write_table(table, out)
        case ".npz":
            np.savez(out, X=rows(3))
        case "CSV":
            out.write(b"id,x,y\na,1,2\n")
        case "zstd":
            return bytes(pa.compress(b"{}" * 99, "zstd", asbytes=True))
        case "svmlight":
            out.write(b"-1 3:0.5 17:1\n+1 2:4\n")
        case "pickle":
            out.write(b"\x80\x04K\x01.")
        case "JSON array":
            out.write(b'[{"id": "a", "vector": [1, 2, 3, 4]}]')
    return out.getvalue()


LOADED = ["Arrow file", "Parquet", ".npz", "CSV", "zstd", "svmlight"]


def test_a_body_of_another_format_is_named(empty: Client) -> None:
    for said, kind in itertools.product(UNSAID, [*LOADED, "pickle", "JSON array"]):
        answer = empty.post(URL, content=written(kind), headers=headers(said))
        words = [kind, "NDJSON or .npy data or an Arrow stream"]
        problem = assert_problem(answer, 415, "unsupported_media_type", *words)
        hint = "the content type text/csv says" if kind == "CSV" else COMMAND
        assert (hint in problem["detail"]) == (kind in LOADED)
        if kind in ("Parquet", "CSV"):
            batch = empty.post(
                f"{PLANTS}/query/batch", content=written(kind), headers=headers(said)
            )
            assert_problem(batch, 415, "unsupported_media_type", kind, COMMAND, "JSON")
    for said, kind in itertools.product(TYPES, ["Arrow file", "Parquet", ".npz"]):
        assert_problem(load(empty, said, written(kind)), 400, "malformed_body", kind, COMMAND)
    for said, body, told in (
        ("npy", "arrow", "expected .npy data, got an Arrow stream"),
        ("arrow", "npy", "expected an Arrow stream, got .npy data"),
    ):
        assert_problem(load(empty, said, bodies(2)[body]), 400, "malformed_body", told)
    for said in ("text/html", "application/gzip", "application/vnd.apache.parquet", "image/png"):
        answer = empty.post(URL, content=b"1,2\n", headers=headers(said))
        assert_problem(answer, 415, "unsupported_media_type", said, COMMAND)
    assert count(empty) == 0


@in_each_way
def test_a_batch_of_no_type_is_known_by_its_first_bytes(client: Client) -> None:
    vectors = np.array([[1, -2, 0, 3], [1, 0, 0, 1]])
    url = f"{PLANTS}/query/batch"
    queries = {"queries": [{"vector": row} for row in vectors.tolist()]}
    expected = client.post(url, json=queries).json()
    body = b'\n {"queries": [{"vector": [1, -2, 0, 3]}, {"vector": [1, 0, 0, 1]}]}'
    for said, content in itertools.product(UNSAID, (npy(vectors), body)):
        assert client.post(url, content=content, headers=headers(said)).json() == expected
