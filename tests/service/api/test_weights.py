"""Weights of coordinates: given, learned, shown."""

import numpy as np
import pytest

from tests.support.reference.kernels import gmm_of_rows
from tests.support.service.client import Client, Json, assert_problem

URL = "/v1/collections/wines"
FIT = f"{URL}/transform/fit"
WEIGHTS = [1.0, 0.01, 3.0]


def made(client: Client, rows: np.ndarray, **transform: Json) -> None:
    answer = client.put(URL, json={"dim": rows.shape[1], "transform": transform})
    assert answer.status_code == 201, answer.text
    items = [{"id": number, "vector": row} for number, row in enumerate(rows.tolist())]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200


def rows_of(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(size=(60, 3)) * [1, 100, 0.1]).astype(np.float32).astype(float)


def check_scores(client: Client, rows: np.ndarray, weighted: np.ndarray) -> None:
    """Check the hits of an item and of a vector, an explanation, and that items are as sent."""
    scores = gmm_of_rows(np.tile(weighted[0], (len(rows), 1)), weighted)
    for asked in ({"id": "0"}, {"vector": rows[0].tolist()}):
        body = {**asked, "limit": len(rows), "recall": 1}
        hits = client.post(f"{URL}/query", json=body).json()["hits"]
        assert len(hits) == len(rows) - ("id" in asked)
        mine = [hit["score"] for hit in hits]
        np.testing.assert_allclose(
            mine, [scores[int(hit["id"])] for hit in hits], rtol=1e-5, atol=1e-6
        )
    told = client.post(f"{URL}/explain", json={"a": {"id": "0"}, "b": {"id": "1"}}).json()
    assert told["score"] == pytest.approx(scores[1], rel=1e-5)
    shown = client.get(f"{URL}/items/0").json()["vector"]
    assert np.array_equal(np.array(shown, np.float32), rows[0].astype(np.float32))


@pytest.mark.served(front="one", cluster="one")
def test_given_weights_are_applied_and_shown(client: Client, rng: np.random.Generator) -> None:
    rows = rows_of(rng)
    made(client, rows, weights=WEIGHTS)
    check_scores(client, rows, rows * WEIGHTS)
    shown = client.get(URL).json()
    assert shown["transform"]["weights"] == WEIGHTS
    assert shown["weights"] == {
        "kind": "list",
        "version": 0,
        "learned": None,
        "items": 0,
        "coordinates": 3,
    }
    same = client.put(URL, json={"dim": 3, "transform": {"weights": WEIGHTS}})
    assert same.status_code == 200
    other = client.put(URL, json={"dim": 3, "transform": {"weights": [1, 1, 1]}})
    assert_problem(other, 409, "collection_exists", "weights")


@pytest.mark.served(cluster="one")
def test_weights_are_learned_when_asked(client: Client, rng: np.random.Generator) -> None:
    rows = rows_of(rng)
    made(client, rows, weights="standard")
    check_scores(client, rows, rows)
    answer = client.post(FIT, json={})
    assert answer.status_code == 200
    assert answer.json() == client.get(URL).json()["weights"]
    assert (answer.json()["kind"], answer.json()["items"]) == ("standard", 60)
    check_scores(client, rows, (rows - rows.mean(0)) / rows.std(0))
    assert client.post(FIT, json={"weights": WEIGHTS}).json()["version"] == 2
    check_scores(client, rows, rows * WEIGHTS)
    assert client.get(URL).json()["transform"]["weights"] == WEIGHTS
