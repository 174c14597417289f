"""A vector in any form is the same vector, wherever one is taken; queries as `.npy` or Arrow."""

import itertools
import json
import threading
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gcws_search.index import AnyArray
from gcws_search.service.api import query
from gcws_search.service.ingest.npy import read_matrix
from tests.support.service.bodies import ARROW, NPY, arrow, ndjson, npy, packed
from tests.support.service.client import FOUR, URL, VECTOR, Client, Json, assert_problem

pytestmark = pytest.mark.served(cluster="one")


FORMS: dict[str, tuple[Json, list[float]]] = {
    "sparse": ({"indices": [3, 0, 1], "values": [3, 0.5, -2]}, [0.5, -2, 0, 3]),
    "a set": ({"indices": [3, 1]}, [0, 1, 0, 1]),
    "a set of no values": ({"indices": [0, 2], "values": None}, [1, 0, 1, 0]),
    "names": ({"names": ["bitterness", "acidity"], "values": [2, -1]}, [-1, 0, 0, 2]),
    "base64": (packed([4, 0, -1, 0.5]), [4, 0, -1, 0.5]),
}
V = "the vector"
PLACES: dict[str, Json] = {
    f"{URL}/query": {"vector": V, "with_vector": True},
    f"{URL}/query/batch": {"queries": [{"vector": V}, {"vector": V, "limit": 2}]},
    f"{URL}/sketch": {"vectors": [V]},
    f"{URL}/sketch?": {"vectors": [V, VECTOR]},
    f"{URL}/explain": {"a": {"vector": V}, "b": {"id": "a"}},
    f"{URL}/map": {"also": [V]},
    f"{URL}/compare": {"queries": [V], "limit": 1},
    "/v1/similarity": {"a": V, "b": VECTOR},
}


@pytest.mark.parametrize("form", FORMS)
def test_a_vector_of_any_form_is_the_same_wherever_it_is_sent(client: Client, form: str) -> None:
    sent, dense = FORMS[form]
    client.put(f"{URL}/names", json={"names": FOUR})
    for path, body in PLACES.items():
        if form == "names" and path == "/v1/similarity":
            continue  # which knows no collection's names
        text = json.dumps(body)
        one, other = (
            client.post(path, content=text.replace(f'"{V}"', json.dumps(each)))
            for each in (sent, dense)
        )
        assert one.status_code == 200, one.text
        if path.endswith("compare"):
            assert one.json()["mean_similarity"] == other.json()["mean_similarity"]
        else:
            assert one.json() == other.json()
    stored = [{"id": item_id, "vector": sent} for item_id in "xyz"]
    assert client.put(f"{URL}/items", json={"items": stored[:1]}).json()["inserted"] == 1
    more = {"items": [stored[1], {"id": "other", "vector": [1, 1, 0, -1]}]}
    assert client.put(f"{URL}/items", json=more).json()["inserted"] == 2
    assert client.post(f"{URL}/load", content=ndjson(stored[2])).json()["inserted"] == 1
    for item_id in "xyz":
        assert client.get(f"{URL}/items/{item_id}").json()["vector"] == dense


def test_one_query_may_be_a_file_of_numpy_or_an_arrow_stream(client: Client) -> None:
    asked = {"vector": VECTOR, "limit": 2, "offset": 1, "recall": 1, "explain": True}
    expected = client.post(f"{URL}/query", json=asked).json()
    del expected["explain"]["seconds"]
    streams = (
        {"vector": pa.array([VECTOR], pa.list_(pa.float32()))},
        {"indices": [[3, 0, 1]], "values": [[3.0, 0.1, -2.0]]},
    )
    bodies = [(arrow(columns), ARROW) for columns in streams]
    for shape, dtype in itertools.product(((4,), (1, 4)), ("<f4", "<f8", ">f4")):
        bodies.append((npy(np.array(VECTOR, dtype).reshape(shape)), NPY))
    for body, headers in bodies:
        url = f"{URL}/query?limit=2&offset=1&recall=1&explain=true"
        found = client.post(url, content=body, headers=headers).json()
        del found["explain"]["seconds"]
        assert found == expected


NOT_ONE: list[tuple[str, bytes, int, str, str]] = [
    ("", npy(np.ones((2, 4), np.float32)), 422, "invalid_parameter", "one vector, got 2"),
    ("", npy(np.ones((0, 4), np.float32)), 422, "invalid_parameter", "one vector, got 0"),
    ("", npy(np.ones(3, np.float32)), 422, "invalid_vector", "expected 4 values, got 3"),
    ("", npy(np.ones((1, 1, 4), np.float32)), 422, "invalid_vector", "two dimensions"),
    ("", npy(np.zeros(4, np.float32)), 422, "invalid_vector", "zero"),
    ("", b"\x93NUMPY\x01", 400, "malformed_body", ".npy"),
    ("", b"PAR1\x15" * 9, 400, "malformed_body", "Parquet"),
    ("?limit=x", npy(np.ones(4)), 422, "invalid_parameter", "limit"),
    ("?limit=0", npy(np.ones(4)), 422, "invalid_parameter", "limit"),
    ("?offset=-1", npy(np.ones(4)), 422, "invalid_parameter", "offset"),
    ("?limits=1", npy(np.ones(4)), 422, "invalid_parameter", "limits"),
]


def test_what_is_no_single_query_is_refused_in_words(client: Client) -> None:
    for url, body, status, code, told in NOT_ONE:
        answer = client.post(f"{URL}/query{url}", content=body, headers=NPY)
        assert_problem(answer, status, code, told)
    body = arrow({"vector": pa.array([None], pa.list_(pa.float32()))})
    answer = client.post(f"{URL}/query", content=body, headers=ARROW)
    problem = assert_problem(answer, 422, "invalid_vector", "vector: expected a vector, got null")
    assert problem["errors"][0]["loc"] == ["vector"]
    client.put("/v1/collections/open", json={"dim": None})
    answer = client.post("/v1/collections/open/query", json={"vector": packed([1.0])})
    assert_problem(answer, 422, "invalid_vector", "no fixed dim")


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
