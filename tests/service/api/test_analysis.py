"""Pairs, sketches, similarities."""

import asyncio
import json

import httpx
import numpy as np
import pytest

from tests.support.service.client import (
    FOUR,
    URL,
    VECTOR,
    Client,
    Json,
    Serve,
    assert_problem,
    fill,
    gmm,
)

pytestmark = pytest.mark.served(cluster="one")


def test_pairs_come_one_a_line_most_similar_first(client: Client) -> None:
    answer = client.post(f"{URL}/pairs", json={"min_score": 0.1, "recall": 1})
    assert answer.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert (lines[0]["a"], lines[0]["b"]) == ("a", "c")
    assert lines[0]["score"] == pytest.approx(gmm([0.1, -2, 0, 3], [0, -2, 0, 2.5]))
    assert all(line["a"] < line["b"] for line in lines)
    scores = [line["score"] for line in lines]
    assert scores == sorted(scores, reverse=True)
    limited = client.post(f"{URL}/pairs", json={"min_score": 0.1, "recall": 1, "limit": 1})
    assert limited.text.splitlines() == answer.text.splitlines()[:1]


LABEL_3 = {"must": {"key": "label", "match": {"value": 3}}}


def test_a_count_is_of_the_live_items_that_pass(client: Client) -> None:
    bodies: list[Json] = [{}, {"filter": None}, {"filter": {}}, {"filter": LABEL_3}]
    for number, expected in enumerate(([4, 4, 4, 2], [3, 3, 3, 0])):
        if number:
            client.delete(f"{URL}/items/a")
            client.put(f"{URL}/items", json={"items": [{"id": 7, "vector": VECTOR}]})  # no label
        answers = [client.post(f"{URL}/count", json=body).json()["count"] for body in bodies]
        assert answers == expected


def explained(client: Client, a: Json, b: Json, **more: Json) -> Json:
    answer = client.post(f"{URL}/explain", json={"a": a, "b": b, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_an_explanation_adds_up_to_the_score_of_the_query_and_has_names(client: Client) -> None:
    [hit, *_] = client.post(f"{URL}/query", json={"vector": VECTOR}).json()["hits"]
    whole = explained(client, {"id": "a"}, {"id": "c"})
    assert whole["score"] == pytest.approx(gmm([0.1, -2, 0, 3], [0, -2, 0, 2.5]))
    assert whole["coordinates"] == [
        {"coordinate": 3, "a": 3.0, "b": 2.5, "min": 2.5, "max": 3.0},
        {"coordinate": 1, "a": -2.0, "b": -2.0, "min": 2.0, "max": 2.0},
        {"coordinate": 0, "a": np.float32(0.1), "b": 0, "min": 0, "max": np.float32(0.1)},
    ]
    assert whole["rest"] == {"coordinates": 0, "min": 0, "max": 0}
    for point, other in ("ac", "ca"):
        body = {"id": point, "score": "containment"}
        hits = client.post(f"{URL}/query", json=body).json()["hits"]
        [score] = [each["score"] for each in hits if each["id"] == other]
        assert whole["contained"]["a" if point == "a" else "b"] == score
    one = explained(client, {"vector": VECTOR}, {"id": hit["id"]}, limit=1)
    assert one["score"] == hit["score"] == one["shared"] / one["total"]
    assert one["coordinates"][0]["min"] + one["rest"]["min"] == pytest.approx(one["shared"])
    client.put(f"{URL}/names", json={"names": FOUR})
    vector = {"names": ["bitterness", "colour", "body"], "values": [1, 7, -1]}
    [hit] = client.post(f"{URL}/query", json={"vector": vector, "limit": 1}).json()["hits"]
    why = explained(client, {"vector": vector}, {"id": hit["id"]})
    assert why["score"] == hit["score"]
    found = {each["name"]: each for each in why["coordinates"]}
    assert found["colour"] == {
        "coordinate": 4, "name": "colour", "a": 7.0, "b": 0.0, "min": 0.0, "max": 7.0,
    }  # fmt: skip
    assert found["bitterness"]["coordinate"] == 3


MAP = f"{URL}/map"


def test_a_map_has_the_neighbours_of_each_item_by_exact_scores(client: Client) -> None:
    body = {"key": "label", "also": ["b", 7, VECTOR, {"indices": [1], "values": [-2]}]}
    found = client.post(MAP, json=body).json()
    assert (found["ids"], found["values"]) == (["a", "b", "c", "7"], [3, 1, None, 3])
    assert [found["neighbours"][0][0], found["neighbours"][2][0]] == [2, 0]
    assert found["scores"][0][0] == pytest.approx(gmm(VECTOR, [0, -2, 0, 2.5]))
    also = found["also"]
    assert also["scores"][0] == found["scores"][1]
    assert [*map(len, also["neighbours"])] == [3, 3, 4, 4]
    assert (also["neighbours"][2][0], also["scores"][2][0]) == (0, 1.0)
    for axis in ("x", "y"):
        expected = [found[axis][1], found[axis][3], found[axis][0]]
        assert also[axis][:3] == pytest.approx(expected, abs=1e-6)
    assert client.post(MAP, json=body).json() == found


def test_a_map_without_neighbours_has_the_same_places(client: Client) -> None:
    body = {"key": "label", "also": ["b"]}
    whole = client.post(MAP, json=body).json()
    found = client.post(MAP, json=body | {"neighbours": False}).json()
    empty: list[list[float]] = [[]] * 4
    assert found == whole | {"neighbours": empty, "scores": empty}


@pytest.mark.served
def test_places_wait_for_no_map_that_is_being_arranged(serve: Serve) -> None:
    client = serve(max_loads=1)
    fill(client)

    async def both() -> tuple[httpx.Response, httpx.Response]:
        bodies = {"places": "islands"}, {"places": "cached", "neighbours": False}
        first, second = (client.http.post(MAP, json=body) for body in bodies)
        return await asyncio.gather(first, second)

    assert [answer.status_code for answer in client.run(both())] == [200, 200]


@pytest.mark.served(cluster="all")
def test_a_map_is_arranged_once_until_items_change(client: Client) -> None:
    arranged = client.post(MAP, json={"places": "islands"}).json()
    assert "islands" in arranged
    assert client.post(MAP, json={"places": "cached"}).json() == arranged
    client.delete(f"{URL}/items/a")
    assert "islands" not in client.post(MAP, json={"places": "cached"}).json()


def test_a_map_is_of_a_sample_that_passes_a_filter(client: Client) -> None:
    found = client.post(MAP, json={"filter": LABEL_3}).json()
    assert (found["ids"], found["neighbours"]) == (["a", "7"], [[1], [0]])
    assert "values" not in found
    assert found["also"] == {"x": [], "y": [], "neighbours": [], "scores": []}
    seeds = ({*client.post(MAP, json={"sample": 2, "seed": n}).json()["ids"]} for n in range(20))
    assert len({frozenset(ids) for ids in seeds}) > 1
    client.post(f"{URL}/items/delete", json={"ids": ["a", "b", "c", "7"]})
    assert client.post(MAP).json()["ids"] == []


def test_a_profile_is_of_all_items_where_the_sample_has_room(client: Client) -> None:
    found = client.post(f"{URL}/profile").json()
    assert (found["items"], found["sample"], found["negative"]) == (4, 4, pytest.approx(6 / 11))
    assert 0 < sum(found["pairs"]["counts"]) < 40  # no item with itself
    assert sum(found["first"]["counts"]) == 4
    assert sum(found["tenth"]["counts"]) == 0
    assert (found["nonzeros"]["edges"], found["nonzeros"]["counts"]) == ([2, 3, 4, 5], [2, 1, 1])
    assert [each["samples"] for each in found["depths"]] == [*range(1, 17)]
    assert client.post(f"{URL}/profile", json={"sample": 4, "seed": 0}).json() == found
    assert client.post(f"{URL}/profile", json={"sample": 3}).json()["sample"] == 3


def test_a_sketch_shows_the_samples_of_each_vector(client: Client) -> None:
    vectors = [VECTOR, {"indices": [0, 1, 3], "values": [0.1, -2, 3]}, [1, 0, 0, 1]]
    full = client.post(f"{URL}/sketch", json={"vectors": vectors}).json()
    assert full.keys() == {"slots", "levels"}
    assert full["slots"][0] == full["slots"][1]
    assert full["levels"][0] == full["levels"][1]
    assert set(full["slots"][2]) <= {0, 6}
    zero = client.post(f"{URL}/sketch", json={"vectors": vectors, "encoding": "zero_bit"}).json()
    assert zero["slots"] == zero["codes"] == full["slots"]
    coded = client.post(f"{URL}/sketch", json={"vectors": vectors, "encoding": "b_bit"}).json()
    assert coded.keys() == {"codes"}
    assert coded["codes"][0] == coded["codes"][1]
    assert {code for row in coded["codes"] for code in row} <= set(range(256))


def test_a_collection_without_hashes_has_no_sketches(serve: Serve) -> None:
    client = serve()
    fill(client, backend={"kind": "exact"})
    answer = client.post(f"{URL}/sketch", json={"vectors": [VECTOR]})
    assert_problem(answer, 422, "invalid_parameter", "gcws")
    assert client.post(f"{URL}/query", json={"vector": VECTOR}).json()["hits"][0]["id"] == "a"


def test_the_similarity_of_two_vectors(client: Client) -> None:
    sparse = {"indices": [1, 3], "values": [-2, 2.5]}
    answer = client.post("/v1/similarity", json={"a": VECTOR, "b": sparse}).json()
    assert answer["score"] == pytest.approx(gmm(VECTOR, [0, -2, 0, 2.5]), rel=1e-6)
    both = {"a": sparse, "b": {"indices": [2_000_000_000], "values": [1]}}
    assert client.post("/v1/similarity", json=both).json() == {"score": 0.0}


@pytest.mark.parametrize(
    ("kernel", "params", "expected"),
    [
        ("gmm", {}, 1 / 7),
        ("rbf", {"gamma": 2}, np.exp(-2 * 0.4)),
        ("folded_rbf", {"gamma": 2}, (np.exp(-2 * 0.4) + np.exp(-2 * 1.6)) / 2),
        ("laplace", {"scale": 2}, np.exp(-6 / 2)),
        ("gaussian", {"scale": 2}, np.exp(-20 / 8)),
        ("polya", {"scale": 4}, np.exp(-6 / 2)),
        (
            "polya", {"distribution": "shifted_poisson", "shape": 1, "scale": 8},
            (1 - 0.5 * (1 - np.exp(-1))) * np.exp(-1),
        ),
    ],
    ids=str,
)  # fmt: skip
def test_two_vectors_are_compared_by_any_kernel(
    client: Client, kernel: str, params: Json, expected: float
) -> None:
    dense, sparse = [1, 0], {"indices": [0, 1], "values": [3, 4]}
    for a, b in ((dense, sparse), (sparse, dense), (dense, [3, 4])):
        body: dict[str, Json] = {"a": a, "b": b, "kernel": kernel, "params": params}
        score = client.post("/v1/similarity", json=body).json()["score"]
        assert score == pytest.approx(expected, rel=1e-6)
