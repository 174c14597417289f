"""Names in queries, samples and comparisons that no coordinate of a fixed dim has."""

import numpy as np
import pyarrow as pa
import pytest

from tests.support.service.bodies import arrow
from tests.support.service.client import Client, Json, Serve, assert_problem
from tests.support.service.naming import FOUR, hits, put
from tests.support.service.queries import URL

pytestmark = pytest.mark.served(cluster="few")

TRANSFORMS: list[dict[str, Json]] = [
    {"power": 1}, {"power": 0.5}, {"normalize": "l1"}, {"normalize": "l2"},
    {"center": [0.5, -1, 0, 2]}, {"center": [0.5, -1, 0, 2], "normalize": "l2", "power": 2},
]  # fmt: skip
SPACES = [(4, each) for each in TRANSFORMS] + [
    (5000, each)
    for each in TRANSFORMS
    if "center" not in each  # for at most 4096 coordinates
]
WIDE = "/v1/collections/wide"


def two_spaces(client: Client, dim: int, transform: Json, kind: str = "gcws") -> list[Json]:
    """Make plants with names, and wide, which has three more coordinates; return the vectors."""
    rows = np.random.default_rng(1).integers(-3, 4, (40, 4)) + 0.5
    vectors = [{"indices": [0, 1, 2, 3], "values": row} for row in rows.tolist()]
    for url, more in ((URL, 0), (WIDE, 3)):
        center = {"center": transform["center"] + [0] * more} if "center" in transform else {}
        client.delete(url)
        config = {"dim": dim + more, "transform": transform | center, "backend": {"kind": kind}}
        assert client.put(url, json=config).status_code == 201
        items = [
            {"id": str(i), "vector": vector, "payload": {"i": i}}
            for i, vector in enumerate(vectors)
        ]
        client.put(f"{url}/items", json={"items": items})
        client.delete(f"{url}/items/7")
    client.put(f"{URL}/names", json={"names": FOUR})
    return vectors


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


@pytest.mark.parametrize(("dim", "transform"), SPACES, ids=str)
def test_samples_and_scores_of_unknown_names_are_those_of_coordinates_beyond(
    serve: Serve, dim: int, transform: Json
) -> None:
    """They are those of the same vectors in a space that has coordinates for all names."""
    client = serve()
    two_spaces(client, dim, transform)
    sent = [
        {"names": ["body", "sweetness"], "values": [1, 2]},
        {"names": ["colour", "body", "smell"], "values": [2, -1, 3]},
        {"indices": [0, 3], "values": [1, 1]},
    ]
    places = [
        {"indices": [1, 2], "values": [1, 2]},
        {"indices": [dim, 1, dim + 1], "values": [2, -1, 3]},
        sent[2],
    ]
    for encoding in ("full", "zero_bit", "b_bit"):
        found = client.post(f"{URL}/sketch", json={"vectors": sent, "encoding": encoding})
        assert found.status_code == 200, found.text
        wide = client.post(f"{WIDE}/sketch", json={"vectors": places, "encoding": encoding})
        assert found.json() == wide.json()
    values = [1.5, -2, 0.5, 3, -1]
    named = {"names": ["colour", "body", "smell", "acidity", "taste"], "values": values}
    placed = {"indices": [dim, 1, dim + 1, 0, dim + 2], "values": values}
    where = {"must": {"key": "i", "range": {"gte": 4}}}
    for options in ({"limit": 5}, {"limit": 50}, {"limit": 3, "recall": 0.5}):
        for filtered in ({}, {"filter": where}):
            asked = {**options, **filtered, "explain": True}
            found = client.post(f"{URL}/query", json={"vector": named, **asked}).json()
            assert found["explain"]["unknown_names"] == ["colour", "smell", "taste"]
            assert found["explain"]["method"] == "scan"
            wide = client.post(f"{WIDE}/query", json={"vector": placed, **asked, "recall": 1})
            scores = [hit["score"] for hit in wide.json()["hits"]]
            assert [hit["score"] for hit in found["hits"]] == pytest.approx(scores, abs=1e-6)
            assert len(found["hits"]) == len(scores) > 0
            assert all(hit["payload"]["i"] >= (4 if filtered else 0) for hit in found["hits"])


@pytest.mark.parametrize(("dim", "transform"), SPACES, ids=str)
def test_unknown_names_count_in_a_comparison(serve: Serve, dim: int, transform: Json) -> None:
    """Neighbours are as similar as where all names have coordinates, and recall is by these."""
    client = serve()
    for kind in ("gcws", "rff"):
        vectors = two_spaces(client, dim, transform, kind)
        client.post(f"{URL}/backends", json={"kind": "exact"})
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
        wide = client.post(f"{WIDE}/compare", json={"queries": placed, **asked}).json()
        similarities = wide["mean_similarity"]
        assert found.json()["mean_similarity"] == pytest.approx(similarities, abs=1e-6)
        assert len(set(similarities)) > 2
        primary, exact = found.json()["backends"]
        assert (primary["kind"], primary["recall"]) == (kind, 1)
        assert exact["recall"] > 0.5


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
