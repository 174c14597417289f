"""Weights that a cluster learns, through several routers and shards, snapshots and starts."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer
from tests.support.pausing import paused_at
from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.client import Client, Json, Serve, assert_problem
from tests.support.service.http_shards import http_shards, router
from tests.support.waiting import wait_until

URL = "/v1/collections/wines"
FIT = f"{URL}/transform/fit"


def rows_of(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(size=(60, 3)) * [1, 100, 0.1] + [0, 9, 0]).astype(np.float32).astype(float)


def put(client: Client, rows: np.ndarray, first: int = 0) -> None:
    items = [{"id": first + number, "vector": row} for number, row in enumerate(rows.tolist())]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200


def found(client: Client, vector: Json) -> list[float]:
    """Return the scores of all items by id."""
    body = {"vector": vector, "limit": 1000, "recall": 1}
    answer = client.post(f"{URL}/query", json=body)
    assert answer.status_code == 200, answer.text
    hits = {hit["id"]: hit["score"] for hit in answer.json()["hits"]}
    return [hits[each] for each in sorted(hits, key=int)]


def scores(rows: np.ndarray, query: np.ndarray) -> list[float]:
    return [*map(float, gmm_of_rows(np.tile(query, (len(rows), 1)), rows))]


@pytest.mark.parametrize("kind", ["standard", "robust", "max", "idf"])
def test_all_kinds_are_learned_as_on_a_node(
    client: Client, rng: np.random.Generator, kind: ix.WeightKind
) -> None:
    rows = rows_of(rng)
    rows[::3, 1] = 0
    assert client.put(URL, json={"dim": 3, "transform": {"weights": kind}}).status_code == 201
    assert_problem(client.post(FIT, json={}), 422, "invalid_parameter", "items to learn from")
    put(client, rows)
    assert client.post(FIT, json={}).json()["items"] == 60
    config = ix.CollectionConfig(dim=3, transform=ix.Transform(weights=kind))
    node = ix.StoredCollection.in_memory("node", config, threads=1)
    raw = node.space.from_dense(rows)
    node.put(ix.ItemBatch([str(each) for each in range(60)], raw, [None] * 60))
    node.fit()
    weighted = node.space.weights
    assert weighted is not None
    own = (rows - (0 if weighted.center is None else weighted.center)) * weighted.weights
    node.close(dropped=True)
    for number in (0, 1, 2):
        expected = scores(own, own[number])
        np.testing.assert_allclose(
            found(client, rows[number].tolist()), expected, rtol=1e-5, atol=1e-6
        )


def test_learned_weights_outlive_starts_snapshots_and_later_writes(
    serve: Serve, rng: np.random.Generator
) -> None:
    client, rows = serve(), rows_of(rng)
    assert client.put(URL, json={"dim": 3}).status_code == 201
    put(client, rows[:40])
    assert client.post(FIT, json={"weights": "max"}).json()["version"] == 1
    assert client.post(FIT, json={"weights": "max"}).json()["version"] == 2
    weighted = rows / np.abs(rows[:40]).max(0)
    put(client, rows[40:], 40)
    expected = scores(weighted, weighted[0])

    def check(client: Client) -> None:
        np.testing.assert_allclose(found(client, rows[0].tolist()), expected, rtol=1e-5, atol=1e-6)
        shown = client.get(URL).json()
        assert (shown["weights"]["version"], shown["transform"]["weights"]) == (2, "max")

    check(client)
    name = client.post(f"{URL}/snapshots").json()["name"]
    client = serve()
    check(client)
    assert client.delete(URL).status_code == 204
    assert client.post(f"{URL}/snapshots/{name}/restore").status_code == 200
    check(client)


@pytest.fixture
def routers(database_url: str, tmp_path: Path) -> Iterator[tuple[Client, Client]]:
    with (
        http_shards(database_url, tmp_path / "shards", 2, 1),
        router(database_url, tmp_path / "one", 2, 1) as one,
        router(database_url, tmp_path / "two", 2, 1) as two,
    ):
        yield one, two


def test_each_answer_is_under_the_same_weights_of_all_shards(
    routers: tuple[Client, Client], rng: np.random.Generator
) -> None:
    """Another router is asked all the time, while one learns and items come and go."""
    one, two = routers
    rows = rows_of(rng)
    assert one.put(URL, json={"dim": 3}).status_code == 201
    put(one, rows)
    weights = [[1, 1, 1], [1, 0.01, 9], [5, 1, 1], [0.1, 3, 7]]
    possible = [np.array(scores(rows * each, rows[0] * each)) for each in weights]
    seen = set[int]()
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            got = np.array(found(two, rows[0].tolist()))
            kinds = [n for n, each in enumerate(possible) if np.allclose(got, each, atol=1e-5)]
            assert len(kinds) == 1, got
            seen.update(kinds)

    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(ask)
        try:
            for each in weights[1:]:
                assert one.post(FIT, json={"weights": each}).status_code == 200
                assert np.allclose(found(one, rows[0].tolist()), possible[weights.index(each)])
                put(one, rows[:7])
            wait_until(lambda: 3 in seen or asking.done())
        finally:
            done.set()
        asking.result()
    assert {0, 3} <= seen


def test_weights_that_leave_nothing_of_an_item_are_refused(routers: tuple[Client, Client]) -> None:
    """Of an item that is there, of one that comes later, and of one of a router that is behind."""
    one, two = routers
    assert one.put(URL, json={"dim": 2}).status_code == 201
    put(one, np.array([[1.0, 1.0], [3.0, 3.0], [2.0, 2.0]]))
    refused = one.post(FIT, json={"weights": "standard"})
    assert_problem(refused, 422, "invalid_parameter", "weights", "'2'")
    assert one.get(URL).json()["weights"] is None
    put(one, np.array([[3.0, 1.0], [9.0, 4.0]]), 2)
    assert one.post(FIT, json={"weights": "standard"}).status_code == 200
    mean = np.array([[1, 1], [3, 3], [3, 1], [9, 4]]).mean(0).tolist()
    for by in (one, two):
        answer = by.put(f"{URL}/items", json={"items": [{"id": "mean", "vector": mean}]})
        assert_problem(answer, 422, "invalid_vector")
    put(two, np.array([[5.0, 5.0]]), 7)
    assert len(found(one, [1, 1])) == len(found(two, [1, 1])) == 5


def test_a_write_that_was_prepared_before_a_change_is_checked_after_it(
    routers: tuple[Client, Client],
) -> None:
    one, two = routers
    assert one.put(URL, json={"dim": 2}).status_code == 201
    put(one, np.array([[1.0, 1.0], [3.0, 3.0]]))
    items = [{"id": "mean", "vector": [2, 2]}]
    put_mean = partial(two.put, f"{URL}/items", json={"items": items})
    with paused_at(Committer, "commit_group", put_mean) as putting:
        assert one.post(FIT, json={"weights": "standard"}).status_code == 200
    putting.join()
    assert_problem(putting.result, 422, "invalid_vector")
    assert len(found(one, [1, 1])) == 2
