"""Loads with bad rows: stop names the first, skip stores the others."""

import io
import json

import numpy as np
import pyarrow as pa
import pytest

from tests.support.service.bodies import TYPES, arrow, fixed, items, load, ndjson, npy, rows
from tests.support.service.client import Client, Json, Serve, assert_problem, count
from tests.support.service.queries import URL as PLANTS

pytestmark = pytest.mark.served(cluster="few")


def with_bad_rows(kind: str) -> bytes:
    """Return 10 rows in a format, of which 2 and 9 are bad."""
    array = rows(10)
    array[2], array[9, 1] = 0, np.nan
    if kind == "npy":
        return npy(array)
    if kind == "arrow":
        return arrow({"id": [str(i) for i in range(10)], "vector": fixed(array)}, 4)
    return ndjson(*({"id": str(i), "vector": row} for i, row in enumerate(array.tolist())))


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


def test_what_only_the_transform_shows_is_rejected_too(serve: Serve) -> None:
    client = serve()
    client.put(PLANTS, json={"dim": 4, "transform": {"center": [2, -2, 1, 0]}})
    answer = load(client, "npy", npy(rows(5)), "?on_error=skip").json()
    assert answer["inserted"] == 4
    assert [one["row"] for one in answer["rejected"]] == [1]
    problem = assert_problem(load(client, "npy", npy(rows(5))), 422, "invalid_vector", "row 1")
    assert problem["row"] == 1
