"""Names in queries, samples and comparisons that no coordinate of a fixed dim has."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.service.bodies import arrow
from tests.support.service.client import Client, Json, Serve, assert_problem
from tests.support.service.naming import FOUR, hits, put
from tests.support.service.queries import URL

pytestmark = pytest.mark.served(cluster="few")

SHARES = [
    {"power": 1}, {"power": 0.5}, {"normalize": "l1"}, {"normalize": "l2"},
    {"center": [0.5, -1, 0, 2]}, {"center": [0.5, -1, 0, 2], "normalize": "l2", "power": 2},
]  # fmt: skip


def widened(transform: Json, dim: int, more: int) -> Json:
    """Return a transform for further coordinates; skip the test where there is none."""
    center = transform.get("center")
    if dim > 4 and center:
        pytest.skip("a centre is for spaces of at most 4096 coordinates")
    return {**transform, **({"center": center + [0] * more} if center else {})}


def test_items_with_names_that_no_coordinate_has_are_refused(client: Client) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    answer = put(client, {"id": "x", "vector": {"names": ["acidity", "colour"]}})
    assert_problem(answer, 422, "invalid_vector", "names[1]", "4 names", "'colour'")


def test_streams_of_queries_have_names_that_a_fixed_dim_has_not(client: Client) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    names = [["body"], ["colour", "acidity", "smell"], ["colour"], ["sweetness", "body"]]
    values = [[2.0], [1.5, -2.0, 0.5], [1.0], [1.0, -1.0]]
    body = arrow({"names": pa.array(names), "values": pa.array(values)})
    found = client.post(f"{URL}/query/batch?explain=true", content=body).json()["results"]
    for each, one, numbers in zip(found, names, values, strict=True):
        assert each["hits"] == hits(client, {"names": one, "values": numbers})
    told = [each["explain"].get("unknown_names") for each in found]
    assert told == [None, ["colour", "smell"], ["colour"], None]
    wrong = arrow(
        {"names": pa.array([["body"], ["colour", "body"]]), "values": pa.array([[1.0], [0.0, 0.0]])}
    )
    answer = client.post(f"{URL}/query/batch", content=wrong)
    assert_problem(answer, 422, "invalid_vector", "query 1", "non-zero")


@pytest.mark.parametrize("dim", [4, 5000])
@pytest.mark.parametrize("transform", SHARES, ids=str)
@pytest.mark.parametrize("encoding", ["full", "zero_bit", "b_bit"])
def test_samples_of_unknown_names_are_of_coordinates_beyond(
    serve: Serve, dim: int, transform: Json, encoding: str
) -> None:
    """They are those of the same vector in a space that has the coordinates."""
    client = serve()
    for name, more in (("plants", 0), ("wide", 2)):
        config = {"dim": dim + more, "transform": widened(transform, dim, more)}
        assert client.put(f"/v1/collections/{name}", json=config).status_code == 201
    client.put(f"{URL}/names", json={"names": FOUR})
    values = [2, -1, 3]
    sent = [
        {"names": ["body", "sweetness"], "values": [1, 2]},
        {"names": ["colour", "body", "smell"], "values": values},
        {"indices": [0, 3], "values": [1, 1]},
    ]
    places = [
        {"indices": [1, 2], "values": [1, 2]},
        {"indices": [dim, 1, dim + 1], "values": values},
        sent[2],
    ]
    body = {"vectors": sent, "encoding": encoding}
    found = client.post(f"{URL}/sketch", json=body)
    assert found.status_code == 200, found.text
    wide_body = {"vectors": places, "encoding": encoding}
    assert found.json() == client.post("/v1/collections/wide/sketch", json=wide_body).json()
    bad = {"vectors": [sent[1], {"names": ["colour"], "values": [0]}]}
    answer = client.post(f"{URL}/sketch", json=bad)
    assert_problem(answer, 422, "invalid_vector", "vector 1", "non-zero")


@pytest.mark.parametrize("dim", [4, 5000])
@pytest.mark.parametrize("transform", SHARES, ids=str)
def test_unknown_names_count_in_a_collection_of_fixed_dim(
    serve: Serve, dim: int, transform: Json
) -> None:
    """The same vectors in a space that has coordinates for all names give the same scores."""
    client = serve()
    rng = np.random.default_rng(0)
    rows = rng.integers(-3, 4, (40, 4)) + 0.5
    for name, more in (("plants", 0), ("wide", 3)):
        url = f"/v1/collections/{name}"
        client.put(url, json={"dim": dim + more, "transform": widened(transform, dim, more)})
        items = [
            {"id": str(i), "vector": {"indices": [0, 1, 2, 3], "values": row}, "payload": {"i": i}}
            for i, row in enumerate(rows.tolist())
        ]
        client.put(f"{url}/items", json={"items": items})
        client.delete(f"{url}/items/7")
    client.put(f"{URL}/names", json={"names": FOUR})
    names = ["colour", "body", "smell", "acidity", "taste"]
    values = [1.5, -2, 0.5, 3, -1]
    places = [dim, 1, dim + 1, 0, dim + 2]
    for options in ({"limit": 5}, {"limit": 50}, {"limit": 3, "recall": 0.5}):
        where = {"must": {"key": "i", "range": {"gte": 4}}}
        for filtered in ({}, {"filter": where}):
            asked = {**options, **filtered, "explain": True}
            found = client.post(
                f"{URL}/query", json={"vector": {"names": names, "values": values}, **asked}
            ).json()
            assert found["explain"]["unknown_names"] == ["colour", "smell", "taste"]
            assert found["explain"]["method"] == "scan"
            sparse = {"indices": places, "values": values}
            other = client.post(
                "/v1/collections/wide/query", json={"vector": sparse, **asked, "recall": 1}
            ).json()
            scores = [hit["score"] for hit in other["hits"]]
            assert [hit["score"] for hit in found["hits"]] == pytest.approx(scores, abs=1e-6)
            assert len(found["hits"]) == len(scores) > 0
            assert all(hit["payload"]["i"] >= (4 if filtered else 0) for hit in found["hits"])


@pytest.mark.parametrize("dim", [4, 5000])
@pytest.mark.parametrize("transform", SHARES, ids=str)
@pytest.mark.parametrize("kind", ["gcws", "rff"])
def test_unknown_names_count_in_a_comparison(
    serve: Serve, dim: int, transform: Json, kind: str
) -> None:
    """Neighbours are as similar as where all names have coordinates, and recall is by these."""
    client = serve()
    rows = np.random.default_rng(1).integers(-3, 4, (40, 4)) + 0.5
    for name, more in (("plants", 0), ("wide", 2)):
        wide = widened(transform, dim, more)
        config = {"dim": dim + more, "transform": wide, "backend": {"kind": kind}}
        url = f"/v1/collections/{name}"
        assert client.put(url, json=config).status_code == 201
        vectors = [{"indices": [0, 1, 2, 3], "values": row} for row in rows.tolist()]
        items = [{"id": str(i), "vector": vector} for i, vector in enumerate(vectors)]
        client.put(f"{url}/items", json={"items": items})
        client.delete(f"{url}/items/7")
        client.post(f"{url}/backends", json={"kind": "exact"})
    client.put(f"{URL}/names", json={"names": FOUR})
    named = [
        {"names": ["colour", "body", "smell"], "values": [3, -2, 1.5]},
        vectors[3],
        {"names": ["taste"], "values": [1]},
        {"names": ["acidity", "colour"], "values": [2, 9]},
    ]
    placed = [
        {"indices": [dim, 1, dim + 1], "values": [3, -2, 1.5]},
        vectors[3],
        {"indices": [dim], "values": [1]},
        {"indices": [0, dim], "values": [2, 9]},
    ]
    asked = {"limit": 5, "recall": 1}
    found = client.post(f"{URL}/compare", json={"queries": named, **asked})
    assert found.status_code == 200, found.text
    wide_url = "/v1/collections/wide/compare"
    other = client.post(wide_url, json={"queries": placed, **asked}).json()
    similarities = other["mean_similarity"]
    assert found.json()["mean_similarity"] == pytest.approx(similarities, abs=1e-6)
    assert len(set(similarities)) > 2
    primary, exact = found.json()["backends"]
    assert (primary["kind"], primary["recall"]) == (kind, 1)
    assert exact["recall"] > 0.5
    bad = {"queries": [named[0], vectors[0], {"names": ["taste"], "values": [0]}]}
    answer = client.post(f"{URL}/compare", json=bad)
    assert_problem(answer, 422, "invalid_vector", "query 2", "non-zero")


def test_a_query_of_unknown_names_alone_shares_nothing(client: Client) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    vector = {"names": ["colour", "smell"]}
    assert hits(client, vector, min_score=0.01) == []
    found = hits(client, vector, limit=3)
    assert [(hit["id"], hit["score"]) for hit in found] == [("7", 0), ("a", 0), ("b", 0)]
    batch = {"queries": [{"vector": vector, "limit": 1}, {"id": "a", "limit": 1}]}
    told = client.post(f"{URL}/query/batch", json=batch).json()["results"]
    assert [one["hits"][0]["id"] for one in told] == ["7", "c"]
    bad = client.post(f"{URL}/query", json={"vector": {**vector, "values": [1, 1e39]}})
    assert_problem(bad, 422, "invalid_vector", "finite")


def test_unknown_names_are_for_the_exact_similarity(client: Client) -> None:
    client.put(f"{URL}/names", json={"names": FOUR})
    client.post(f"{URL}/backends", json={"kind": "rff"})
    body = {"vector": {"names": ["colour", "body"]}}
    answer = client.post(f"{URL}/query", json={**body, "backend": "rff"})
    assert_problem(answer, 422, "invalid_parameter", "backend", "unknown names", "'rff'")
    answer = client.post(f"{URL}/query", json={**body, "rerank": "none"})
    assert_problem(answer, 422, "invalid_parameter", "rerank", "unknown names")
    assert client.post(f"{URL}/query", json={**body, "backend": "gcws"}).status_code == 200
