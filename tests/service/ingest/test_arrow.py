"""Arrow streams as libraries write them unasked, and columns that items do not have."""

import datetime
import io
import json
from decimal import Decimal

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from tests.support.service.bodies import ARROW, arrow, fixed, items, load, ndjson, rows, vector_of
from tests.support.service.client import URL as PLANTS, Client, Json, Serve, assert_problem, fill

in_each_way = pytest.mark.served(cluster="one")
"""Of tests of what a front or a router does; what a body holds is read by one code in all."""

LISTS = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view()]
NUMBERS = [np.float16, np.float32, np.float64, np.int16, np.int64, np.int8]
LIST = pa.list_(pa.float64())


def payload_of(client: Client, item_id: str) -> Json:
    return client.get(f"{PLANTS}/items/{item_id}").json()["payload"]


# Types


@in_each_way
@pytest.mark.parametrize("lists", LISTS)
def test_every_type_of_list_number_and_text_loads(empty: Client, lists: Json) -> None:
    for text, number in zip([*TEXTS, *BYTES], NUMBERS, strict=True):
        ids = [f"an id of {text} that is too long for a view itself, {i}" for i in range(9)]
        payloads = [json.dumps({"row": i}) if i % 2 else None for i in range(9)]
        vectors = rows(9).astype(np.float16)
        columns = {
            "id": pa.array(ids, pa.string()).cast(text),
            "vector": pa.array([list(row.astype(number)) for row in vectors],
                               lists(pa.from_numpy_dtype(number))),
            "payload": pa.array(payloads, pa.string()).cast(text),
        }  # fmt: skip
        assert load(empty, "arrow", arrow(columns, 2)).json()["inserted"] == 9
        for i in range(9):
            assert vector_of(empty, ids[i]) == rows(9)[i].tolist()
            assert payload_of(empty, ids[i]) == ({"row": i} if i % 2 else None)
    numbered = {"id": pa.array([7], pa.int64()), "vector": pa.array([[1, 2, 3, 4]], LIST)}
    assert load(empty, "arrow", arrow(numbered)).json()["inserted"] == 1
    assert vector_of(empty, "7") == [1, 2, 3, 4]
    columns = {
        "id": ["a", "b", "c"],
        "indices": pa.array([[3, 1], [0], [2, 1, 0]], lists(pa.uint8())),
        "values": pa.array([[1, -2], [3], [4, 5, 6]], lists(pa.float64())),
    }
    assert load(empty, "arrow", arrow(columns)).json()["inserted"] == 3
    assert [vector_of(empty, each) for each in "abc"] == [[0, -2, 0, 1], [3, 0, 0, 0], [6, 5, 4, 0]]


def test_views_in_any_order_are_what_they_show(empty: Client) -> None:
    vectors = pa.ListViewArray.from_arrays(
        pa.array([4, 0, None, 2], pa.int32()),
        pa.array([4, 4, 0, 4], pa.int32()),
        pa.array(np.arange(1, 9, dtype=np.float32)),
    )
    answer = load(
        empty, "arrow", arrow({"id": list("abcd"), "vector": vectors}), "?on_error=skip"
    ).json()
    assert (answer["inserted"], [one["row"] for one in answer["rejected"]]) == (3, [2])
    expected = {"a": [5, 6, 7, 8], "b": [1, 2, 3, 4], "d": [3, 4, 5, 6]}
    assert {each: vector_of(empty, each) for each in "abd"} == expected


@pytest.mark.parametrize("level", ["newest", "oldest"])
def test_a_frame_of_polars_loads_as_it_is(empty: Client, level: Json) -> None:
    frame = pl.DataFrame(
        {
            "id": ["a", "b"],
            "vector": [[1.0, 2.0, 0.0, 1.0], [3.0, 4.0, 1.0, 0.0]],
            "kind": pl.Series(["x", "y"], dtype=pl.Categorical),
            "price": [1, None],
        }
    )
    out = io.BytesIO()
    frame.write_ipc_stream(out, compat_level=getattr(pl.CompatLevel, level)())
    assert load(empty, "arrow", out.getvalue(), "?columns=payload").json()["inserted"] == 2
    assert vector_of(empty, "b") == [3, 4, 1, 0]
    assert payload_of(empty, "a") == {"kind": "x", "price": 1}
    assert payload_of(empty, "b") == {"kind": "y", "price": None}


def bomb(name: str) -> dict[str, Json]:
    """Return a few bytes that would be many without views or dictionaries, in one column."""
    n, long = 2000, "x" * 100_000
    columns: dict[str, Json] = {
        "id": [str(i) for i in range(n)],
        "vector": fixed(np.ones((n, 4), np.float32)),
    }
    match name:
        case "views":
            values = pa.array(np.ones(50_000, np.float32))
            zeros, sizes = np.zeros(n, np.int32), np.full(n, len(values), np.int32)
            columns["vector"] = pa.ListViewArray.from_arrays(zeros, sizes, values)
        case "texts":
            text = pa.array([long], pa.string_view())
            view, data = text.buffers()[1:]
            columns["payload"] = pa.Array.from_buffers(
                pa.string_view(), n, [None, pa.py_buffer(view.to_pybytes() * n), data]
            )
        case "dictionary":
            codes = pa.array(np.zeros(n, np.int32))
            columns["payload"] = pa.DictionaryArray.from_arrays(codes, pa.array([long]))
    return columns


def test_what_would_be_large_without_views_is_refused(serve: Serve) -> None:
    client = serve(max_arrow_batch_bytes=10_000_000)
    client.put(PLANTS, json={"dim": 4})
    for name in ("views", "texts", "dictionary"):
        body = arrow(bomb(name))
        assert len(body) < 1_000_000
        answer = load(client, "arrow", body)
        assert_problem(answer, 413, "body_too_large", "a record batch", "10000000")


# Payloads


@in_each_way
def test_other_columns_become_fields_of_the_payload(empty: Client) -> None:
    berlin = datetime.timezone(datetime.timedelta(hours=1))
    columns = {
        "id": ["a", "b"],
        "vector": fixed(rows(2)),
        "payload": [None, '{"own": [1]}'],
        "label": pa.array([7, None], pa.uint8()),
        "name": pa.array(["x", "y"]).dictionary_encode(),
        "single": pa.array([0.1, 2], pa.float32()),
        "price": [Decimal("1.25"), Decimal(3)],
        "sold": [True, False],
        "tags": [["p", "q"], []],
        "shares": pa.array([[0.1], None], pa.list_(pa.float32())),
        "size": [{"w": 1, "h": None}, {"w": 2, "h": 3}],
        "day": [datetime.date(2024, 5, 6), None],
        "at": pa.array([1, 2], pa.timestamp("ns")),
        "zoned": [datetime.datetime(2024, 5, 6, 7, tzinfo=berlin), None],
        "none": pa.nulls(2),
    }
    assert load(empty, "arrow", arrow(columns), "?columns=payload").json()["inserted"] == 2
    assert payload_of(empty, "a") == {
        "label": 7, "name": "x", "single": 0.1, "price": 1.25, "sold": True, "tags": ["p", "q"],
        "shares": [0.1], "size": {"w": 1, "h": None}, "day": "2024-05-06",
        "at": "1970-01-01T00:00:00.000000001",
        "zoned": "2024-05-06T07:00:00.000000+0100", "none": None,
    }  # fmt: skip
    assert payload_of(empty, "b") == {
        "own": [1], "label": None, "name": "y", "single": 2, "price": 3, "sold": False, "tags": [],
        "shares": None, "size": {"w": 2, "h": 3}, "day": None,
        "at": "1970-01-01T00:00:00.000000002", "zoned": None, "none": None,
    }  # fmt: skip
    where = {"must": {"key": "tags", "match": {"value": "q"}}}
    query = {"vector": [1, 1, 1, 1], "filter": where}
    hits = empty.post(f"{PLANTS}/query", json=query).json()["hits"]
    assert [hit["id"] for hit in hits] == ["a"]


def test_columns_that_json_has_no_words_for_are_refused_by_name(empty: Client) -> None:
    for column in (
        pa.array([b"x"]),
        pa.array([datetime.timedelta(1)]),
        pa.array([[b"x"]]),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[datetime.date(2024, 5, 6)]]),
    ):
        body = arrow({"id": ["a"], "vector": fixed(rows(1)), "odd": column})
        answer = load(empty, "arrow", body, "?columns=payload")
        assert_problem(answer, 422, "invalid_parameter", "odd", str(column.type)[:20])


def test_a_payload_that_cannot_be_stored_is_a_bad_row(empty: Client) -> None:
    columns = {
        "id": list("abc"),
        "vector": fixed(rows(3)),
        "payload": ['{"x": 1}', '{"y": 1}', None],
        "x": [1.0, 2.0, float("nan")],
    }
    answer = load(empty, "ndjson", ndjson(*items(1)), "?columns=payload")
    assert_problem(answer, 422, "invalid_parameter", "columns", "NDJSON")
    answer = load(empty, "arrow", arrow(columns), "?columns=payload&on_error=skip").json()
    rejected = [(one["row"], one["code"]) for one in answer["rejected"]]
    assert rejected == [(0, "invalid_payload"), (2, "invalid_payload")]
    assert "'x'" in answer["rejected"][0]["detail"]
    assert payload_of(empty, "b") == {"y": 1, "x": 2}


# Queries


DENSE = [[1, -2, 0, 3], [1, 0, 0, 1], [-1, -1, -1, -1]]


@in_each_way
@pytest.mark.parametrize("lists", LISTS)
def test_an_arrow_stream_of_queries_answers_as_json_does(client: Client, lists: Json) -> None:
    queries = [{"vector": row, "limit": 2, "recall": 1} for row in DENSE]
    expected = client.post(f"{PLANTS}/query/batch", json={"queries": queries}).json()
    dense = {"vector": pa.array(DENSE, lists(pa.float32()))}
    sparse = {
        "indices": pa.array([[3, 0, 1], [0, 3], [0, 1, 2, 3]], lists(pa.int64())),
        "values": pa.array([[3, 1, -2], [1, 1], [-1] * 4], lists(pa.int8())),
    }
    url = f"{PLANTS}/query/batch?limit=2&recall=1"
    for columns in (dense, sparse):
        for headers in (ARROW, {}):
            assert client.post(url, content=arrow(columns, 2), headers=headers).json() == expected
    none = client.post(url, content=arrow({"vector": dense["vector"][:0]}), headers=ARROW)
    assert none.json() == {"results": []}
    client.delete(PLANTS)
    client.put(PLANTS, json={"dim": None})
    sets = pa.array([[5, 70_000], [1]], lists(pa.uint32()))
    load(client, "arrow", arrow({"id": ["a", "b"], "indices": sets}))
    found = client.post(url, content=arrow({"indices": sets}), headers=ARROW).json()["results"]
    assert [(one["hits"][0]["id"], one["hits"][0]["score"]) for one in found] == [
        ("a", 1),
        ("b", 1),
    ]


BAD_QUERIES: list[tuple[dict[str, Json], str, list[str]]] = [
    ({"vector": pa.array([[1, 2, 3, 4], [1, 2, 3]], LIST)}, "vector", ["query 1", "4 v", "got 3"]),
    ({"vector": pa.array([[1.0] * 4, [0.0] * 4])}, "vector", ["query 1", "zero"]),
    ({"vector": pa.array([[1.0] * 4, None])}, "vector", ["query 1", "null"]),
    ({"vector": pa.array([[1.0] * 4, [1, 2, None, 3]])}, "vector", ["query 1"]),
    ({"vector": pa.array([[1, 2, 3, float("nan")]])}, "vector", ["query 0"]),
    ({"indices": pa.array([[1], [4]])}, "vector", ["query 1", "0 to 3", "got 4"]),
    ({"indices": pa.array([[-1]])}, "vector", ["query 0", "got -1"]),
    ({"id": ["a"], "vector": pa.array([[1.0] * 4])}, "parameter", ["id"]),
    ({"values": pa.array([[1.0] * 4])}, "parameter", ["indices"]),
    ({"vector": ["a"]}, "parameter", ["lists of numbers"]),
]


def test_a_bad_stream_of_queries_is_refused(client: Client) -> None:
    for columns, kind, words in BAD_QUERIES:
        answer = client.post(f"{PLANTS}/query/batch", content=arrow(columns), headers=ARROW)
        assert_problem(answer, 422, f"invalid_{kind}", *words)


def test_a_truncated_stream_of_queries_is_malformed(client: Client) -> None:
    body = arrow({"vector": pa.array([[1.0] * 4] * 9, LIST)}, 3)
    for length in range(0, len(body) - 8, 31):
        answer = client.post(f"{PLANTS}/query/batch", content=body[:length], headers=ARROW)
        assert_problem(answer, 400, "malformed_body")
    answer = client.post(f"{PLANTS}/query/batch", content=body + b"x", headers=ARROW)
    assert_problem(answer, 400, "malformed_body", "more")


@in_each_way
def test_streams_of_queries_are_bounded(serve: Serve) -> None:
    client = serve(max_queries_per_request=200, max_body_bytes=20_000)
    fill(client)
    for batch_rows in (201, 67):
        body = arrow({"vector": pa.array([[1.0] * 4] * 201)}, batch_rows)
        answer = client.post(f"{PLANTS}/query/batch", content=body, headers=ARROW)
        assert_problem(answer, 422, "invalid_parameter", "at most 200")
    row = pa.array([[1.0] * 20])  # one for all rows of a batch
    vectors = pa.DictionaryArray.from_arrays(pa.array(np.zeros(180, np.int8)), row)
    for batch_rows, said in ((60, "all record batches"), (180, "a record batch")):
        body = arrow({"vector": vectors}, batch_rows)
        answer = client.post(f"{PLANTS}/query/batch", content=body, headers=ARROW)
        assert_problem(answer, 413, "body_too_large", said)
