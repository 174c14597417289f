"""Vectors that come as base64, and single queries as `.npy` or Arrow."""

import base64
import io
import itertools
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gcws_search.index import AnyArray
from gcws_search.service.api import query
from gcws_search.service.ingest.npy import read_matrix
from tests.support.service.bodies import npy
from tests.support.service.client import Client, Json, Serve, assert_problem, fill
from tests.support.service.queries import URL, VECTOR

pytestmark = pytest.mark.served(cluster="few")

NPY = {"Content-Type": "application/x-npy"}
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}


def packed(values: list[float]) -> Json:
    return {"base64": base64.b64encode(np.array(values, "<f4").tobytes()).decode()}


def stream(columns: dict[str, Any]) -> bytes:
    table = pa.table(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def test_a_packed_vector_is_the_list_of_its_numbers(client: Client) -> None:
    for body in ({}, {"explain": False, "with_vector": True}):
        answers = [
            client.post(f"{URL}/query", json={"vector": vector, **body}).json()
            for vector in (VECTOR, packed(VECTOR))
        ]
        assert answers[0] == answers[1]
        assert answers[0]["hits"]


def test_packed_vectors_are_taken_wherever_vectors_are(client: Client) -> None:
    other = [4.0, 0.0, -1.0, 0.5]
    item = {"id": "packed", "vector": packed(other), "payload": {"x": 1}}
    assert client.put(f"{URL}/items", json={"items": [item]}).json()["inserted"] == 1
    assert client.get(f"{URL}/items/packed").json()["vector"] == other
    items = [{"id": f"p{n}", "vector": packed([n, 1, 0, -1])} for n in range(3)]
    items[1]["vector"] = [1, 1, 0, -1]
    assert client.put(f"{URL}/items", json={"items": items}).json()["inserted"] == 3
    assert client.get(f"{URL}/items/p2").json()["vector"] == [2, 1, 0, -1]
    lines = b'{"id": "line", "vector": {"base64": "%s"}}\n' % packed(other)["base64"].encode()
    assert client.post(f"{URL}/load", content=lines).json()["inserted"] == 1
    assert client.get(f"{URL}/items/line").json()["vector"] == other

    def both(path: str, body: Any) -> list[Json]:  # noqa: ANN401
        """Return the answers to a body of lists, and to the same packed."""
        return [client.post(path, json=body(form)).json() for form in (list, packed)]

    for path, body in (
        (f"{URL}/query/batch", lambda form: {"queries": [{"vector": form(other)}] * 2}),
        (f"{URL}/sketch", lambda form: {"vectors": [form(other), form(VECTOR)]}),
        (f"{URL}/sketch", lambda form: {"vectors": [form(other)]}),
        ("/v1/similarity", lambda form: {"a": form(other), "b": form(VECTOR)}),
        (f"{URL}/explain", lambda form: {"a": {"vector": form(other)}, "b": {"id": "a"}}),
    ):
        first, second = both(path, body)
        assert first == second
        assert "code" not in first
    compared = client.post(f"{URL}/compare", json={"queries": [packed(other)], "limit": 1})
    assert compared.json()["queries"] == 1


def test_open_slot_spaces_refuse_packed_vectors(serve: Serve) -> None:
    client = serve()
    client.put("/v1/collections/open", json={"dim": None})
    answer = client.post("/v1/collections/open/query", json={"vector": packed([1.0])})
    assert_problem(answer, 422, "invalid_vector", "no fixed dim")


def test_one_query_may_be_a_file_of_numpy(client: Client) -> None:
    vector = [1, -2, 0, 3]
    asked = {"vector": vector, "limit": 2, "offset": 1, "recall": 1, "explain": True}
    expected = client.post(f"{URL}/query", json=asked).json()
    assert expected["explain"].pop("seconds") > 0
    url = f"{URL}/query?limit=2&offset=1&recall=1&explain=true"
    for shape, dtype in itertools.product(((4,), (1, 4)), ("<f4", "<f8", ">f4", "<i4")):
        body = npy(np.array(vector, dtype).reshape(shape))
        found = client.post(url, content=body, headers=NPY).json()
        assert found["explain"].pop("seconds") > 0
        assert found == expected


def test_one_query_may_be_an_arrow_stream(client: Client) -> None:
    for columns in (
        {"vector": pa.array([VECTOR], pa.list_(pa.float32()))},
        {"indices": [[3, 0, 1]], "values": [[3.0, 0.1, -2.0]]},
    ):
        answer = client.post(f"{URL}/query", content=stream(columns), headers=ARROW).json()
        assert answer == client.post(f"{URL}/query", json={"vector": VECTOR}).json()


def test_a_vector_that_is_missing_in_a_stream_is_refused_at_its_place(client: Client) -> None:
    body = stream({"vector": pa.array([None], pa.list_(pa.float32()))})
    answer = client.post(f"{URL}/query", content=body, headers=ARROW)
    assert_problem(answer, 422, "invalid_vector", "vector: expected a vector, got null")
    assert answer.json()["errors"][0]["loc"] == ["vector"]


def test_names_that_no_coordinate_has_count_in_a_stream(serve: Serve) -> None:
    client = serve()
    fill(client)
    client.put(f"{URL}/names", json={"names": ["leaf", "stem"]})
    columns = {"names": [["leaf", "bark"]], "values": [[1.0, 2.0]]}
    url = f"{URL}/query?explain=true"
    answer = client.post(url, content=stream(columns), headers=ARROW).json()
    assert answer["explain"]["unknown_names"] == ["bark"]


NOT_ONE: list[tuple[str, bytes, int, str, str]] = [
    ("", npy(np.ones((2, 4), np.float32)), 422, "invalid_parameter", "one vector, got 2"),
    ("", npy(np.ones((0, 4), np.float32)), 422, "invalid_parameter", "one vector, got 0"),
    ("", npy(np.ones(3, np.float32)), 422, "invalid_vector", "expected 4 values, got 3"),
    ("", npy(np.ones((1, 1, 4), np.float32)), 422, "invalid_vector", "two dimensions"),
    ("", npy(np.zeros(4, np.float32)), 422, "invalid_vector", "zero"),
    ("", b"\x93NUMPY\x01", 400, "malformed_body", ".npy"),
    ("", b"PAR1" * 9, 400, "malformed_body", "Parquet"),
    ("?limit=x", npy(np.ones(4)), 422, "invalid_parameter", "limit"),
    ("?limit=0", npy(np.ones(4)), 422, "invalid_parameter", "limit"),
    ("?offset=-1", npy(np.ones(4)), 422, "invalid_parameter", "offset"),
    ("?limits=1", npy(np.ones(4)), 422, "invalid_parameter", "limits"),
]


def test_what_is_no_single_query_is_refused_in_words(client: Client) -> None:
    for url, body, status, code, told in NOT_ONE:
        answer = client.post(f"{URL}/query{url}", content=body, headers=NPY)
        assert_problem(answer, status, code, told)


def test_long_bodies_are_not_read_on_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def watched(*args: Any, **options: Any) -> AnyArray:  # noqa: ANN401
        threads.append(threading.current_thread())
        return read_matrix(*args, **options)

    monkeypatch.setattr(query, "read_matrix", watched)
    for rows in (1, 1, 20_000):
        body = npy(np.ones((rows, 4), np.float32))
        answer = client.post(f"{URL}/query", content=body, headers=NPY)
        assert answer.status_code == (200 if rows == 1 else 422)
    loop, same, other = threads
    assert loop is same
    assert other is not loop


def test_keys_are_asked_for(serve: Serve) -> None:
    client = serve(api_key="secret")
    body = npy(np.ones(4))
    assert client.post(f"{URL}/query", content=body, headers=NPY).status_code == 401
