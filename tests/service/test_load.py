"""Loads: every format, compressed or not, whole or broken, stopping or skipping."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pyarrow as pa
import pytest
from starlette.requests import ClientDisconnect

import index as ix
from service.loading import source
from tests.served import Client, Json, Serve, assert_problem, chunked, count, fill

URL = "/v1/collections/plants/load"
TYPES = {
    "ndjson": "application/x-ndjson",
    "npy": "application/x-npy",
    "arrow": "application/vnd.apache.arrow.stream",
}


def rows(n: int, first: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Return (n, 4) vectors, all different."""
    counted = np.arange(first + 1, first + n + 1, dtype=np.float32)
    return np.stack([counted, -counted, np.ones(n, np.float32), np.zeros(n, np.float32)], axis=1)


def ndjson(*items: Json) -> bytes:
    return b"".join(json.dumps(item).encode() + b"\n" for item in items)


def npy(array: Json, version: tuple[int, int] | None = None) -> bytes:
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def arrow(columns: dict[str, Json], batch_rows: int | None = None) -> bytes:
    table = pa.table(columns)
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    return out.getvalue()


def fixed(array: Json, kind: Json = None) -> Json:
    flat = pa.array(np.asarray(array).reshape(-1), type=kind)
    return pa.FixedSizeListArray.from_arrays(flat, np.asarray(array).shape[1])


def load(client: Client, kind: str, body: Json, query: str = "", **headers: str) -> httpx.Response:
    headers = {"Content-Type": TYPES[kind]} | {k.replace("_", "-"): v for k, v in headers.items()}
    return client.post(f"{URL}{query}", content=body, headers=headers)


def items(n: int, first: int = 0) -> list[dict[str, Json]]:
    return [
        {"id": str(first + i), "vector": row, "payload": {"row": first + i}}
        for i, row in enumerate(rows(n, first).tolist())
    ]


def bodies(n: int) -> dict[str, bytes]:
    """Return the same vectors in every format."""
    ids = [str(i) for i in range(n)]
    return {
        "ndjson": ndjson(*items(n)),
        "npy": npy(rows(n)),
        "arrow": arrow({"id": ids, "vector": fixed(rows(n))}, batch_rows=3),
    }


@pytest.fixture
def empty(serve: Serve) -> Client:
    """Return a client with an empty collection, loaded in chunks of 4 rows."""
    client = serve(load_chunk_rows=4)
    client.put("/v1/collections/plants", json={"dim": 4})
    return client


def vector_of(client: Client, item_id: str) -> list[float]:
    vector: list[float] = client.get(f"/v1/collections/plants/items/{item_id}").json()["vector"]
    return vector


# ---- formats


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("packed", ["plain", "header", "magic", "members", "both"])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_every_format_loads(empty: Client, kind: str, packed: str, size: int) -> None:
    body = bodies(10)[kind]
    headers = {"Content_Encoding": "gzip"} if packed in ("header", "both") else {}
    match packed:
        case "members":
            body = gzip.compress(body[:100]) + gzip.compress(b"") + gzip.compress(body[100:])
        case "header" | "magic" | "both":
            body = gzip.compress(body)
    answer = load(empty, kind, chunked(body, size), **headers)
    assert answer.status_code == 200, answer.text
    assert answer.json().pop("seconds") > 0
    assert {k: v for k, v in answer.json().items() if k != "seconds"} == {
        "inserted": 10, "updated": 0, "rejected": [], "rejected_count": 0
    }  # fmt: skip
    assert count(empty) == 10
    assert vector_of(empty, "9") == rows(10)[9].tolist()
    hits = empty.post("/v1/collections/plants/query", json={"vector": rows(10)[6].tolist()})
    assert hits.json()["hits"][0]["id"] == "6"


@pytest.mark.parametrize("dtype", ["<f2", "<f4", ">f4", "<f8", ">f8", "|i1", "|u1", ">i2", "<u8"])
@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_npy_of_any_number_and_version_loads(
    empty: Client, dtype: str, version: tuple[int, int]
) -> None:
    array = np.abs(rows(6)).astype(dtype)
    assert load(empty, "npy", npy(array, version)).json()["inserted"] == 6
    assert vector_of(empty, "5") == [6.0, 6.0, 1.0, 0.0]


def test_npy_ids_are_row_numbers_from_id_start(empty: Client) -> None:
    load(empty, "npy", npy(rows(6)), "?id_start=100")
    assert vector_of(empty, "105") == rows(6)[5].tolist()


def test_npy_in_fortran_order_is_refused_where_it_differs(empty: Client) -> None:
    answer = load(empty, "npy", npy(np.asfortranarray(rows(6))))
    assert_problem(answer, 422, "invalid_vector", "C order", "Fortran")
    assert load(empty, "npy", npy(np.asfortranarray(rows(1)))).json()["inserted"] == 1


@pytest.mark.parametrize("kind", TYPES)
def test_a_load_of_nothing_is_no_error(empty: Client, kind: str) -> None:
    body = {"ndjson": b"\n \r\n", "npy": npy(rows(0))}.get(kind) or arrow(
        {"id": pa.array([], pa.string()), "vector": fixed(rows(0).reshape(0, 4))}
    )
    assert load(empty, kind, body).json()["inserted"] == 0


def test_ndjson_takes_everything_an_item_has(empty: Client) -> None:
    body = ndjson(
        {"id": 3, "vector": {"indices": [3, 0], "values": [1, -2]}, "payload": {"a": [1, None]}},
        {"id": "x", "vector": [1, 2, 3, 4], "payload": None},
    )
    assert load(empty, "ndjson", b"\n" + body.rstrip()).json()["inserted"] == 2
    found = empty.get("/v1/collections/plants/items/3").json()
    assert found == {"id": "3", "vector": [-2.0, 0.0, 0.0, 1.0], "payload": {"a": [1, None]}}


@pytest.mark.parametrize("list_type", [pa.list_, pa.large_list])
@pytest.mark.parametrize("number", [pa.float16(), pa.float32(), pa.float64(), pa.int16()])
def test_arrow_takes_lists_of_any_number(empty: Client, list_type: Json, number: Json) -> None:
    vectors = pa.array(rows(9).astype(np.float16).tolist(), type=list_type(pa.float64()))
    columns = {
        "id": pa.array(range(9), pa.int64()),
        "vector": vectors.cast(list_type(number)) if number != pa.float16() else vectors,
        "payload": [json.dumps({"row": i}) if i % 2 else None for i in range(9)],
    }
    assert load(empty, "arrow", arrow(columns, 2)).json()["inserted"] == 9
    assert vector_of(empty, "8") == rows(9)[8].tolist()
    assert empty.get("/v1/collections/plants/items/7").json()["payload"] == {"row": 7}
    assert empty.get("/v1/collections/plants/items/8").json()["payload"] is None


def test_arrow_takes_sparse_and_dictionary_columns(serve: Serve) -> None:
    client = serve(load_chunk_rows=2)
    client.put("/v1/collections/plants", json={"dim": None})
    columns = {
        "id": pa.array(["a", "b", "c"]).dictionary_encode(),
        "indices": pa.array([[5, 1], [2_000_000_000], [7]], pa.list_(pa.int64())),
        "values": pa.array([[1, -2], [3], [4]], pa.list_(pa.float32())),
    }
    assert load(client, "arrow", arrow(columns)).json()["inserted"] == 3
    found = client.get("/v1/collections/plants/items/a").json()["vector"]
    assert found == {"indices": [1, 5], "values": [-2.0, 1.0]}


# ---- what is wrong with rows


def with_bad_rows(kind: str) -> bytes:
    """Return 10 rows in a format, of which 2 and 9 are bad."""
    array = rows(10)
    array[2], array[9, 1] = 0, np.nan
    good = [row.tolist() for row in array]
    if kind == "npy":
        return npy(array)
    if kind == "arrow":
        return arrow({"id": [str(i) for i in range(10)], "vector": fixed(array)}, 4)
    lines = [json.dumps({"id": str(i), "vector": row}).encode() for i, row in enumerate(good)]
    return b"\n".join(lines)


@pytest.mark.parametrize("kind", TYPES)
def test_skip_stores_the_good_rows_and_names_the_bad(empty: Client, kind: str) -> None:
    answer = load(empty, kind, with_bad_rows(kind), "?on_error=skip").json()
    assert answer["inserted"] == 8
    assert answer["rejected_count"] == 2
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [
        (2, "invalid_vector"), (9, "invalid_vector")
    ]  # fmt: skip
    assert "row 2: expected a vector with a non-zero value" in answer["rejected"][0]["detail"]
    assert "row 9: expected a finite" in answer["rejected"][1]["detail"]
    assert count(empty) == 8


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
    problem = assert_problem(load(empty, "npy", npy(array)), 422, "invalid_vector", "row 9")
    assert (problem["row"], problem["committed"], problem["updated"]) == (9, 8, 8)


BAD_LINES: list[tuple[bytes, int, str, str]] = [
    (b'{"id": "x", "vector": [1, 2, 3]}', 422, "invalid_vector", "4 values"),
    (b'{"id": "x", "vector": [1, 2, 3, true]}', 422, "invalid_vector", "vector[3]"),
    (b'{"id": "x", "vector": [1, 2, NaN, 4]}', 422, "invalid_vector", "vector[2]"),
    (b'{"id": "x", "vector": [1, 2, 1e39, 4]}', 422, "invalid_vector", "vector[2]"),
    (b'{"id": "x", "vector": {"indices": [4], "values": [1]}}', 422, "invalid_vector", "indices"),
    (b'{"id": "x", "vector": {"indices": [%d], "values": [1]}}' % 2**70, 422, "invalid_vector", ""),
    (b'{"id": "", "vector": [1, 2, 3, 4]}', 422, "invalid_id", "id"),
    (b'{"vector": [1, 2, 3, 4]}', 422, "invalid_id", "id"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "payload": 3}', 422, "invalid_payload", "payload"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "payload": {"a": NaN}}', 422, "invalid_payload", "NaN"),
    (b'{"id": "x", "vector": [1, 2, 3, 4], "note": 1}', 422, "invalid_parameter", "note"),
    (b"[1, 2, 3, 4]", 422, "invalid_parameter", "an object"),
    (b'{"id": "x", "vec', 400, "malformed_body", "row 1"),
    (b"\xff", 400, "malformed_body", "row 1"),
]


@pytest.mark.parametrize(("line", "status", "code", "word"), BAD_LINES, ids=repr)
def test_a_bad_line_is_named(empty: Client, line: bytes, status: int, code: str, word: str) -> None:
    good = ndjson(*items(3))
    first, rest = good.split(b"\n", 1)
    body = b"\n".join([first, line, rest])
    problem = assert_problem(load(empty, "ndjson", body), status, code, "row 1", word)
    assert problem["row"] == 1
    assert count(empty) == 0
    answer = load(empty, "ndjson", body, "?on_error=skip").json()
    assert answer["inserted"] == 3
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [(1, code)]


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
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [
        (1, "invalid_id"), (2, "invalid_id"), (3, "invalid_payload"), (4, "invalid_vector"),
        (5, "invalid_vector"), (6, "invalid_vector"), (7, "invalid_payload"),
    ]  # fmt: skip


def test_arrow_names_bad_sparse_rows(serve: Serve) -> None:
    client = serve()
    client.put("/v1/collections/plants", json={"dim": 9})
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


@pytest.mark.parametrize(
    ("columns", "word"),
    [
        ({"id": ["a"]}, "vector"),
        ({"vector": fixed(rows(1))}, "id"),
        ({"id": ["a"], "vector": fixed(rows(1)), "label": [3]}, "label"),
        ({"id": ["a"], "indices": [[1]]}, "values"),
        ({"id": ["a"], "vector": fixed(rows(1)), "indices": [[1]], "values": [[1]]}, "either"),
        ({"id": [1.5], "vector": fixed(rows(1))}, "id"),
        ({"id": ["a"], "vector": ["1,2,3,4"]}, "vector"),
        ({"id": ["a"], "vector": [["1"]]}, "vector"),
        ({"id": ["a"], "indices": [[1.5]], "values": [[1.0]]}, "indices"),
        ({"id": ["a"], "vector": fixed(rows(1)), "payload": [3]}, "payload"),
    ],
    ids=str,
)
def test_arrow_columns_are_checked(empty: Client, columns: dict[str, Json], word: str) -> None:
    assert_problem(load(empty, "arrow", arrow(columns)), 422, "invalid_parameter", word)


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (np.ones((3, 3), np.float32), "row 0: expected 4 values"),
        (np.ones(4), "two dimensions"),
        (np.ones((2, 2, 2)), "two dimensions"),
        (np.ones((3, 4), bool), "floats or integers"),
        (np.ones((3, 4), complex), "floats or integers"),
        (np.array([["a", "b"]]), "floats or integers"),
        (np.ones((3, 0)), "at least one value"),
        (np.full((3, 4), 1e39), "row 0"),
        (np.zeros((1, 4), [("a", "<f4")]), "floats or integers"),
    ],
    ids=str,
)
def test_npy_of_something_else_is_refused(empty: Client, array: Json, word: str) -> None:
    assert_problem(load(empty, "npy", npy(array)), 422, "invalid_vector", word)


def test_npy_of_objects_is_never_unpickled(empty: Client) -> None:
    body = io.BytesIO()
    np.save(body, np.array([[{}]], dtype=object), allow_pickle=True)
    assert_problem(load(empty, "npy", body.getvalue()), 422, "invalid_vector", "floats or integers")


def test_what_only_the_transform_shows_is_rejected_too(serve: Serve) -> None:
    client = serve()
    client.put("/v1/collections/plants", json={"dim": 4, "transform": {"center": [2, -2, 1, 0]}})
    answer = load(client, "npy", npy(rows(5)), "?on_error=skip").json()
    assert answer["inserted"] == 4
    assert [one["row"] for one in answer["rejected"]] == [1]
    problem = assert_problem(load(client, "npy", npy(rows(5))), 422, "invalid_vector", "row 1")
    assert problem["row"] == 1


# ---- modes


def test_upsert_counts_updates(empty: Client) -> None:
    load(empty, "npy", npy(rows(6)))
    answer = load(empty, "npy", npy(rows(6)), "?id_start=3").json()
    assert (answer["inserted"], answer["updated"]) == (3, 3)
    assert count(empty) == 9


def test_insert_stops_at_a_known_id(empty: Client) -> None:
    load(empty, "npy", npy(rows(2)), "?id_start=6")
    answer = load(empty, "npy", npy(rows(10)), "?mode=insert")
    problem = assert_problem(answer, 409, "item_exists", "item 6", "'6'")
    assert (problem["row"], problem["committed"]) == (6, 4)
    assert count(empty) == 6


def test_insert_can_skip_known_and_repeated_ids(empty: Client) -> None:
    load(empty, "npy", npy(rows(2)), "?id_start=6")
    body = ndjson(*items(8), *items(3))
    answer = load(empty, "ndjson", body, "?mode=insert&on_error=skip").json()
    assert answer["inserted"] == 6
    assert [(one["row"], one["code"]) for one in answer["rejected"]] == [
        (row, "item_exists") for row in (6, 7, 8, 9, 10)
    ]
    assert count(empty) == 8


@pytest.mark.parametrize("query", ["?mode=replace", "?on_error=ignore", "?id_start=-1", "?x=1"])
def test_bad_load_parameters_are_refused(empty: Client, query: str) -> None:
    word = query[1:].partition("=")[0]
    assert_problem(load(empty, "npy", npy(rows(1)), query), 422, "invalid_parameter", word)


def test_id_start_is_for_npy_alone(empty: Client) -> None:
    answer = load(empty, "ndjson", b"", "?id_start=3")
    assert_problem(answer, 422, "invalid_parameter", "id_start")


# ---- broken bodies


@pytest.mark.parametrize("kind", ["npy", "arrow"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_truncated_body_keeps_whole_chunks_alone(empty: Client, kind: str, packed: bool) -> None:
    body = bodies(10)[kind]
    body = gzip.compress(body) if packed else body
    stored = set()
    for length in range(0, len(body) - 8, 9):
        answer = load(empty, kind, body[:length])
        problem = assert_problem(answer, 400, "malformed_body")
        assert problem["committed"] % 4 == 0
        stored.add(count(empty))
    assert stored <= {0, 4, 8}


def test_truncated_gzip_of_lines_is_malformed(empty: Client) -> None:
    body = gzip.compress(bodies(10)["ndjson"])
    for length in (3, 11, len(body) // 2, len(body) - 1):
        assert_problem(load(empty, "ndjson", body[:length]), 400, "malformed_body", "gzip")


@pytest.mark.parametrize("kind", ["npy", "arrow"])
def test_bytes_after_the_end_are_malformed(empty: Client, kind: str) -> None:
    assert_problem(load(empty, kind, bodies(10)[kind] + b"x"), 400, "malformed_body", "more")


def test_gzip_that_is_none_is_malformed(empty: Client) -> None:
    answer = load(empty, "ndjson", b"{}", Content_Encoding="gzip")
    assert_problem(answer, 400, "malformed_body", "gzip")
    answer = load(empty, "ndjson", gzip.compress(b"\n") + b"rubbish")
    assert_problem(answer, 400, "malformed_body", "gzip")


@pytest.mark.parametrize("kind", ["npy", "arrow"])
@pytest.mark.parametrize("body", [b"", b"\x93NUMPY", b"\x93NUMPY\x04\x00", b"{}", b"\x00" * 64])
def test_a_body_of_another_format_is_malformed(empty: Client, kind: str, body: bytes) -> None:
    assert_problem(load(empty, kind, body), 400, "malformed_body")


@pytest.mark.parametrize(
    "header",
    ["{}", "{'descr': '<f4'}", "[", "{'descr': '<f4', 'fortran_order': 0, 'shape': (1, 4)}",
     "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 4)}",
     "{'descr': '<f4', 'fortran_order': False, 'shape': 4}", "(" * 999, "__import__('os')"],
)  # fmt: skip
def test_a_bad_npy_header_is_malformed(empty: Client, header: str) -> None:
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()
    assert_problem(load(empty, "npy", body), 400, "malformed_body")


def test_an_npy_header_that_promises_too_much_reserves_nothing(empty: Client) -> None:
    header = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d)}"
    for shape, status in (((10**15, 4), 400), ((2, 10**15), 413)):
        text = (header % shape).encode()
        body = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
        assert load(empty, "npy", body).status_code == status


@pytest.mark.parametrize("kind", ["text/csv", "application/json", "application/gzip"])
def test_an_unknown_content_type_is_unsupported(empty: Client, kind: str) -> None:
    answer = empty.post(URL, content=b"", headers={"Content-Type": kind})
    assert_problem(answer, 415, "unsupported_media_type", kind)


def test_an_unknown_encoding_is_unsupported(empty: Client) -> None:
    answer = load(empty, "npy", b"", Content_Encoding="br")
    assert_problem(answer, 415, "unsupported_media_type", "br")


def test_an_unknown_collection_is_404(empty: Client) -> None:
    answer = empty.post(URL.replace("plants", "nowhere"), content=b"")
    assert_problem(answer, 404, "collection_not_found", "nowhere")


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


def test_the_rejected_list_is_bounded_and_all_are_counted(serve: Serve) -> None:
    client = serve(max_rejected_listed=3)
    fill(client)
    answer = load(client, "ndjson", b"rubbish\n" * 50, "?on_error=skip").json()
    assert [one["row"] for one in answer["rejected"]] == [0, 1, 2]
    assert answer["rejected_count"] == 50


# ---- progress


def progress(client: Client, kind: str, body: Json, query: str = "") -> tuple[int, list[Json]]:
    answer = load(client, kind, body, query, Accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    return answer.status_code, [json.loads(line) for line in answer.text.splitlines()]


def test_progress_comes_one_line_a_chunk_and_a_summary(empty: Client) -> None:
    status, lines = progress(empty, "npy", chunked(npy(rows(10))))
    assert status == 200
    assert lines[:-1] == [{"committed": n, "rejected": 0} for n in (4, 8, 10)]
    assert lines[-1]["inserted"] == 10
    assert progress(empty, "npy", npy(rows(0)))[1][0]["inserted"] == 0


def test_progress_tells_of_an_early_end(empty: Client) -> None:
    array = rows(10)
    array[6] = 0
    status, lines = progress(empty, "npy", npy(array))
    assert status == 200
    assert lines[0] == {"committed": 4, "rejected": 0}
    assert lines[-1]["inserted"] == 4
    assert lines[-1]["error"]["code"] == "invalid_vector"
    assert lines[-1]["error"]["status"] == 422
    assert count(empty) == 4


def test_an_end_before_the_first_chunk_is_a_problem(empty: Client) -> None:
    answer = load(empty, "npy", npy(rows(3) * 0), Accept="application/x-ndjson")
    assert_problem(answer, 422, "invalid_vector", "row 0")
    answer = load(empty, "npy", b"", Accept="application/x-ndjson")
    assert_problem(answer, 400, "malformed_body")


def test_rows_are_committed_and_told_while_the_body_still_flows(empty: Client) -> None:
    """The sender sends the second half only after it has heard of the first commit."""
    body = npy(rows(8))
    heard = asyncio.Event()
    sent: list[Json] = []

    async def receive() -> Json:
        if not sent:
            sent.append(len(body) - 64)
            return {"type": "http.request", "body": body[: sent[0]], "more_body": True}
        await asyncio.wait_for(heard.wait(), 60)
        return {"type": "http.request", "body": body[sent[0] :], "more_body": False}

    lines: list[Json] = []

    async def send(message: Json) -> None:
        if message.get("body"):
            lines.append(json.loads(message["body"]))
            heard.set()

    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": "POST", "path": URL, "raw_path": URL.encode(), "query_string": b"",
        "headers": [(b"content-type", b"application/x-npy"), (b"accept", b"application/x-ndjson")],
        "scheme": "http", "server": ("test", 80), "client": ("test", 1), "root_path": "",
    }  # fmt: skip
    empty.run(empty.app(scope, receive, send))
    assert [line.get("committed") for line in lines] == [4, 8, None]


# ---- what happens around a load


def test_a_sender_that_goes_away_leaves_whole_chunks(empty: Client) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield npy(rows(10))[:-20]
        raise ClientDisconnect

    assert_problem(load(empty, "npy", broken()), 400, "malformed_body", "went away")
    assert count(empty) in (0, 4, 8)
    assert load(empty, "npy", npy(rows(3))).status_code == 200


def test_a_failing_store_ends_the_load(empty: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    put = ix.StoredCollection.put
    calls: list[int] = []

    def full(self: ix.StoredCollection, *arguments: Json) -> ix.WriteResult:
        calls.append(1)
        if len(calls) > 2:
            raise ix.DiskFull("plants")
        return put(self, *arguments)

    monkeypatch.setattr(ix.StoredCollection, "put", full)
    answer = load(empty, "npy", npy(rows(20)), "?on_error=skip")
    problem = assert_problem(answer, 507, "disk_full")
    assert problem["committed"] == 8
    assert answer.headers["retry-after"]


def test_an_unforeseen_error_in_a_load_is_a_bare_500(
    empty: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Json) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(ix.StoredCollection, "put", fail)
    answer = load(empty, "npy", npy(rows(20)))
    assert_problem(answer, 500, "internal_error")
    assert "secret" not in answer.text


def test_more_loads_than_permitted_get_429(serve: Serve) -> None:
    client = serve(max_loads=1)
    fill(client)
    began = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        began.set()
        await go_on.wait()
        yield npy(rows(3))

    async def both() -> tuple[httpx.Response, httpx.Response]:
        headers = {"Content-Type": TYPES["npy"]}
        first = asyncio.create_task(client.http.post(URL, content=slow(), headers=headers))
        await began.wait()
        second = await client.http.post(URL, content=npy(rows(3)), headers=headers)
        go_on.set()
        return await first, second

    first, second = client.run(both())
    assert first.json()["inserted"] == 3
    assert_problem(second, 429, "queue_full", "loads")
    assert second.headers["retry-after"]


def test_a_full_pipe_makes_the_sender_wait() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        pipe = source.BodyPipe(10)

        async def sender() -> None:
            for number in range(4):
                await pipe.put(b"x" * 6)
                events.append(f"put {number}")
            pipe.end()

        task = asyncio.create_task(sender())
        for _ in range(5):
            await asyncio.sleep(0)
        events.append("waiting")
        while await asyncio.to_thread(pipe.take):
            pass
        await task
        return events

    events = asyncio.run(scenario())
    assert events.index("waiting") == 1
    assert events[-1] == "put 3"


def test_an_aborted_pipe_frees_both_ends() -> None:
    async def scenario() -> None:
        pipe = source.BodyPipe(1)
        waiting = asyncio.create_task(asyncio.to_thread(pipe.take))
        pipe.abort()
        with pytest.raises(source.BodyAborted):
            await waiting
        await pipe.put(b"abc")
        await pipe.put(b"abc")

    asyncio.run(scenario())
