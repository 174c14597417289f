"""A cluster answers what one node answers: the same ids and scores, to the bit."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.support.service.client import Client, Json, started
from tests.support.service.cluster import ClusterClient

ROWS = 300
URL = "/v1/collections/plants"
FILTER = {"must": [{"key": "group", "match": {"value": 3}}]}


def dense_signed(rng: np.random.Generator) -> list[Json]:
    centres = rng.normal(size=(6, 12))
    rows = centres[rng.integers(6, size=ROWS)] + 0.3 * rng.normal(size=(ROWS, 12))
    return [row.tolist() for row in rows]


def counts(rng: np.random.Generator) -> list[Json]:
    rows = rng.poisson(1.2, (ROWS, 12))
    rows[:, 0] += 1
    return [row.tolist() for row in rows]


def words(rng: np.random.Generator) -> list[Json]:
    found = []
    for _ in range(ROWS):
        chosen = np.unique(rng.zipf(1.4, 20) % 500)
        values = rng.gamma(1.0, 1.0, len(chosen)) * rng.choice([1, 1, 1, -1], len(chosen))
        found.append({"indices": chosen.tolist(), "values": values.tolist()})
    return found


def copies(rng: np.random.Generator) -> list[Json]:
    rows = rng.integers(-2, 3, (7, 12)) + np.eye(7, 12, dtype=int) * 5
    return [row.tolist() for row in rows[rng.integers(7, size=ROWS)]]


KINDS: dict[str, tuple[int | None, Callable[[np.random.Generator], list[Json]]]] = {
    "dense": (12, dense_signed),
    "counts": (12, counts),
    "words": (None, words),
    "copies": (12, copies),
}


@pytest.fixture(params=[(kind, shards) for kind in KINDS for shards in (1, 2, 4, 8)], ids=str)
def pair(
    request: pytest.FixtureRequest, database_url: str, tmp_path: Path
) -> Iterator[tuple[Client, Client, list[Json]]]:
    """Return one node and a cluster that were told the same, and vectors to ask for."""
    kind, shards = request.param
    dim, make = KINDS[kind]
    node = started(tmp_path / "node")
    cluster = ClusterClient(database_url, tmp_path / "cluster", shards=shards)
    cluster.start()
    vectors = make(np.random.default_rng(11))
    for client in (node, cluster):
        client.wait_until_ready()
        client.put(URL, json={"dim": dim})
        told(client, vectors)
    yield node, cluster, vectors
    node.stop()
    cluster.stop()


def told(client: Client, vectors: list[Json]) -> None:
    """Put items, replace some, delete some by id and some by a filter."""
    items = [
        {"id": i, "vector": vector, "payload": {"group": i % 5, "n": i}}
        for i, vector in enumerate(vectors)
    ]
    for first in range(0, len(items), 90):
        put(client, items[first : first + 90])
    put(client, [{**items[i], "vector": vectors[i + 1]} for i in range(40, 80)])
    assert client.post(f"{URL}/items/delete", json={"ids": [*range(100, 110)]}).json() == {
        "deleted": 10
    }
    gone = {"must": [{"key": "n", "range": {"gte": 200, "lt": 220}}]}
    assert client.post(f"{URL}/items/delete", json={"filter": gone}).json() == {"deleted": 20}
    put(client, items[100:103])


def put(client: Client, items: list[Json]) -> None:
    answer = client.put(f"{URL}/items", json={"items": items})
    assert answer.status_code == 200, answer.text


def both(pair: tuple[Client, Client, list[Json]], path: str, body: Json) -> Json:
    """Return the answer of the node, after checking that the cluster's is the same."""
    node, cluster, _ = pair
    expected, got = (client.post(URL + path, json=body) for client in (node, cluster))
    assert expected.status_code == got.status_code == 200, got.text
    assert got.json() == expected.json()
    return expected.json()


def test_searches_that_are_exact(pair: tuple[Client, Client, list[Json]]) -> None:
    vectors = pair[2]
    for body in (
        {"vector": vectors[0], "limit": 10},
        {"vector": vectors[7], "limit": 1},
        {"vector": vectors[8], "limit": 300},
        {"vector": vectors[9], "limit": 20, "offset": 15},
        {"vector": vectors[3], "limit": 30, "filter": FILTER, "with_payload": True},
        {"vector": vectors[4], "limit": 30, "min_score": 0.3},
        {"id": "17", "limit": 10, "with_vector": True},
        {"id": "41", "limit": 300},
    ):
        both(pair, "/query", {"recall": 1, **body})
    queries = [{"vector": vector, "limit": 5, "recall": 1} for vector in vectors[::20]]
    found = both(pair, "/query/batch", {"queries": [*queries, {"id": "3", "recall": 1}]})
    assert len(found["results"]) == len(queries) + 1


def test_counts_pages_and_items(pair: tuple[Client, Client, list[Json]]) -> None:
    both(pair, "/count", {})
    both(pair, "/count", {"filter": FILTER})
    node, cluster, _ = pair
    for parameters in (
        {"limit": 70},
        {"limit": 1000, "with_vector": "true"},
        {"ids": "3,101,5,nothing"},
        {"limit": 7, "filter": '{"must": [{"key": "group", "match": {"value": 2}}]}'},
    ):
        cursors: list[Json] = [None, None]
        while True:
            pages = [
                client.get(f"{URL}/items", params={**parameters, **({"cursor": at} if at else {})})
                for client, at in zip((node, cluster), cursors, strict=True)
            ]
            expected, got = (page.json() for page in pages)
            assert got["items"] == expected["items"]
            cursors = [expected["next_cursor"], got["next_cursor"]]
            assert (cursors[0] is None) == (cursors[1] is None)
            if cursors[0] is None:
                break
    assert node.get(f"{URL}/items/41").json() == cluster.get(f"{URL}/items/41").json()
    assert cluster.get(f"{URL}/items/105").status_code == 404


def test_pairs_and_explanations(pair: tuple[Client, Client, list[Json]]) -> None:
    node, cluster, vectors = pair
    for body in ({"min_score": 0.75, "recall": 1}, {"min_score": 0.6, "recall": 1, "limit": 40}):
        expected, got = (client.post(f"{URL}/pairs", json=body) for client in (node, cluster))
        assert got.status_code == 200
        assert got.text == expected.text
    both(pair, "/explain", {"a": {"id": "3"}, "b": {"vector": vectors[9]}})
