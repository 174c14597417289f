"""Batches of queries, as JSON and as matrices."""

import itertools

import numpy as np
import pytest

from tests.support.service.bodies import npy
from tests.support.service.client import Client, Json, Serve, assert_problem, fill
from tests.support.service.queries import URL, VECTOR

pytestmark = pytest.mark.served(front="all", cluster="few")


def test_a_batch_answers_each_query_as_if_alone(client: Client) -> None:
    queries: list[dict[str, Json]] = [
        {"vector": [2, 1, 0, 0], "with_payload": False},
        {"vector": VECTOR},
        {"vector": [2, 1, 0, 1], "with_vector": True},
        {"id": "b", "limit": 2},
        {"vector": {"indices": [3], "values": [1]}, "limit": 1, "with_payload": False},
        {"vector": [1, 1, 1, 1], "filter": {"must": [{"key": "label", "match": {"value": 1}}]}},
        {"vector": [1, 0, 0, 1]},
        {"vector": [1, 0, 0, 1], "offset": 2, "limit": 8},
        {"id": "b", "offset": 1, "limit": 1},
    ]
    results = client.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
    alone = [client.post(f"{URL}/query", json=query).json() for query in queries]
    assert results == alone
    assert client.post(f"{URL}/query/batch", json={"queries": []}).json() == {"results": []}


NPY = {"Content-Type": "application/x-npy"}


def test_a_matrix_of_queries_answers_as_json_does(client: Client) -> None:
    rows = [[1, -2, 0, 3], [1, 0, 0, 1], [-1, -1, -1, -1]]
    dtypes, orders = ("<f4", ">f4", "<f8", "<f2", "<i8", "|i1", "|b1"), [*"CF"]
    order: Json
    for dtype, order in itertools.product(dtypes, orders):
        array = np.array(rows, dtype=dtype, order=order)
        url = f"{URL}/query/batch?limit=2&offset=1&recall=1"
        found = client.post(url, content=npy(array), headers=NPY)
        asked = {"limit": 2, "offset": 1, "recall": 1}
        queries = [{"vector": row, **asked} for row in array.astype(float).tolist()]
        assert found.json() == client.post(f"{URL}/query/batch", json={"queries": queries}).json()
    none = client.post(f"{URL}/query/batch", content=npy(np.ones((0, 4))), headers=NPY)
    assert none.json() == {"results": []}


BAD: list[tuple[str, Json, str, list[str]]] = [
    ("", np.ones((2, 3)), "invalid_vector", ["query 0", "4 values", "got 3"]),
    ("", np.zeros((2, 4)), "invalid_vector", ["query 0", "zero"]),
    ("", np.array([[1, 1, 1, 1], [1, np.nan, 1, 1]]), "invalid_vector", ["query 1", "[1]"]),
    ("", np.full((1, 4), 1e39), "invalid_vector", ["query 0", "finite"]),
    ("", np.ones(4), "invalid_vector", ["two dimensions"]),
    ("", np.ones((1, 4), complex), "invalid_vector", ["floats, integers or bools"]),
    ("?limit=0", np.ones((1, 4)), "invalid_parameter", ["limit"]),
    ("?recall=nan", np.ones((1, 4)), "invalid_parameter", ["recall"]),
    ("?ef=1", np.ones((1, 4)), "invalid_parameter", ["ef"]),
    ("?backend=nrff", np.ones((1, 4)), "backend_not_found", ["nrff"]),
]


def test_a_bad_matrix_is_refused(client: Client) -> None:
    for url, array, code, words in BAD:
        answer = client.post(f"{URL}/query/batch{url}", content=npy(array), headers=NPY)
        assert_problem(answer, 404 if code == "backend_not_found" else 422, code, *words)


def test_a_truncated_matrix_is_malformed(client: Client) -> None:
    body = npy(np.ones((3, 4)))
    for length in (0, 5, 9, 50, len(body) - 1):
        answer = client.post(f"{URL}/query/batch", content=body[:length], headers=NPY)
        assert_problem(answer, 400, "malformed_body")
    answer = client.post(f"{URL}/query/batch", content=body + b"x", headers=NPY)
    assert_problem(answer, 400, "malformed_body")


def test_batches_are_bounded(serve: Serve) -> None:
    client = serve(max_queries_per_request=2, max_body_bytes=400)
    fill(client)
    batch = {"queries": [{"id": "a"}] * 3}
    answer = client.post(f"{URL}/query/batch", json=batch)
    assert_problem(answer, 422, "invalid_parameter", "at most 2")
    answer = client.post(f"{URL}/query/batch", content=npy(np.ones((3, 4))), headers=NPY)
    assert_problem(answer, 422, "invalid_parameter", "at most 2")
    answer = client.post(f"{URL}/query/batch", content=npy(np.ones((30, 4))), headers=NPY)
    assert_problem(answer, 413, "body_too_large")
    answer = client.post(f"{URL}/query/batch", content=b"", headers={"Content-Type": "text/csv"})
    assert_problem(answer, 415, "unsupported_media_type", "text/csv")


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_a_query_that_is_left_out_has_a_problem_of_its_own(serve: Serve, power: float) -> None:
    client = serve()
    client.put(URL, json={"dim": 2, "transform": {"power": power}})
    client.put(f"{URL}/items", json={"items": [{"id": "a", "vector": [1, 2]}]})
    tiny = 1e-30  # its square is none
    good = {"vector": [1, 2], "with_payload": False}
    queries = [good, {"vector": [0, 0]}, {"vector": [1]}, {"vector": [tiny, 0]},
               {"vector": [1, 2], "limit": -1}, good]  # fmt: skip
    batch = {"queries": queries}
    stopped = client.post(f"{URL}/query/batch", json=batch)
    assert_problem(stopped, 422, "invalid_vector", "query 1")
    found = client.post(f"{URL}/query/batch", json=batch | {"on_error": "skip"})
    assert found.status_code == 200, found.text
    results = found.json()["results"]
    codes = [each.get("error", {}).get("code") for each in results]
    vanishes = "invalid_vector" if power == 2 else None
    assert codes == [None, "invalid_vector", "invalid_vector", vanishes, "invalid_parameter", None]
    assert results[0] == results[5] == {"hits": [{"id": "a", "score": 1.0}]}
    assert results[2]["hits"] == []
    assert results[2]["error"]["errors"][0]["loc"][:2] == ["queries", 2]
    wrong = client.post(f"{URL}/query/batch", json=batch | {"on_error": "ignore"})
    assert_problem(wrong, 422, "invalid_parameter", "on_error")
