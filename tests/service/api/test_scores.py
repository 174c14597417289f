"""Kinds of scores: one order, another number; `min_score` is of the same kind."""

import json

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.scores import OTHER_NAMES, least_ranked, score_of
from tests.support.service.bodies import sparse
from tests.support.service.client import Client, Json, assert_problem

pytestmark = pytest.mark.served(cluster="one")

URL = "/v1/collections/lakes"
KIND = {"score": "bray_curtis"}


@pytest.fixture
def rows(client: Client, rng: np.random.Generator) -> np.ndarray:
    """Store counts of 30 species in 40 lakes, whose scores reach far down."""
    made = rng.poisson(1.5, size=(40, 30)).astype(float)
    made[20:] = np.maximum(0, made[:20] + rng.integers(-1, 2, size=(20, 30)))
    assert client.put(URL, json={"dim": 30}).status_code == 201
    items = [{"id": f"i{number}", "vector": row} for number, row in enumerate(made.tolist())]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    return made


def bray_curtis(a: np.ndarray, b: np.ndarray) -> float:
    """Return 1 less the dissimilarity, by its own definition."""
    return float(1 - abs(a - b).sum() / (a + b).sum())


def number(item_id: str) -> int:
    return int(item_id[1:])


def test_hits_have_the_score_that_is_asked_for(client: Client, rows: np.ndarray) -> None:
    query = rows[3] + 0.5
    exact = {f"i{each}": bray_curtis(query, row) for each, row in enumerate(rows)}
    ranked = sorted(exact.values(), reverse=True)
    for least in (0.0, ranked[5] - 1e-9, ranked[5] + 1e-9, 1.0):
        asked = {"vector": query.tolist(), "limit": 40, "recall": 1, "min_score": least, **KIND}
        hits = client.post(f"{URL}/query", json=asked).json()["hits"]
        assert len(hits) == sum(score >= least for score in ranked)
        assert [hit["score"] for hit in hits] == pytest.approx(ranked[: len(hits)], abs=1e-12)
        assert all(hit["score"] == pytest.approx(exact[hit["id"]], abs=1e-12) for hit in hits)
    all_hits = {"vector": query.tolist(), "limit": 40, "recall": 1}
    answers = [client.post(f"{URL}/query", json=all_hits | more) for more in ({}, KIND)]
    plain, other = ([hit["id"] for hit in answer.json()["hits"]] for answer in answers)
    assert plain == other
    around: Json = {"id": "i1", "limit": 2, "recall": 1}
    both = [around, around | KIND]
    first, second = client.post(f"{URL}/query/batch", json={"queries": both}).json()["results"]
    for a, b in zip(first["hits"], second["hits"], strict=True):
        assert a["id"] == b["id"]
        assert b["score"] == pytest.approx(2 * a["score"] / (1 + a["score"]), abs=1e-15)
    page = {"vector": query.tolist(), "limit": 5, "offset": 5, "recall": 1, **KIND}
    paged = client.post(f"{URL}/query", json=page).json()["hits"]
    assert [hit["score"] for hit in paged] == pytest.approx(ranked[5:10], abs=1e-12)


def test_pairs_and_groups_have_it_too(client: Client, rows: np.ndarray) -> None:
    asked = {"min_score": 0.8, "recall": 1, **KIND}
    lines = client.post(f"{URL}/pairs", json=asked).text.splitlines()
    found = {(each["a"], each["b"]): each["score"] for each in map(json.loads, lines)}
    expected = {
        (f"i{a}", f"i{b}"): bray_curtis(rows[a], rows[b])
        for a in range(40)
        for b in range(40)
        if f"i{a}" < f"i{b}" and bray_curtis(rows[a], rows[b]) >= 0.8
    }
    assert found == pytest.approx(expected, abs=1e-12)
    assert len(found) > 10
    *groups, _ = map(json.loads, client.post(f"{URL}/groups", json=asked).text.splitlines())
    assert {each["id"] for group in groups for each in group["members"]} == {
        each for pair in expected for each in pair
    }
    for group in groups:
        first = rows[number(group["representative"])]
        for member in group["members"]:
            score = bray_curtis(first, rows[number(member["id"])])
            assert member["score"] == pytest.approx(score, abs=1e-12)
        assert group["weakest"] >= 0.8


def contained(a: np.ndarray, b: np.ndarray) -> float:
    """Return the share of ``a`` that ``b`` has."""
    return float(np.minimum(a, b).sum() / a.sum())


@pytest.mark.parametrize("is_sparse", [False, True])
def test_containment_ranks_by_the_share_of_the_query(
    client: Client, rng: np.random.Generator, is_sparse: bool
) -> None:
    made = rng.poisson(0.4, size=(60, 30)) + np.eye(60, 30, dtype=int)
    made[30:] += made[:30]  # each of the first is in another
    dim = None if is_sparse else 30
    assert client.put("/v1/collections/parts", json={"dim": dim}).status_code == 201

    def vector(row: np.ndarray) -> Json:
        return sparse(row) if is_sparse else row.tolist()

    items = [
        {"id": f"i{number}", "vector": vector(row), "payload": {"odd": number % 2}}
        for number, row in enumerate(made)
    ]
    assert client.put("/v1/collections/parts/items", json={"items": items}).status_code == 200
    odd = {"must": [{"key": "odd", "match": {"value": 1}}]}
    for place in range(3):
        query = made[place] + rng.integers(0, 2, 30)
        every = {f"i{number}": contained(query, row) for number, row in enumerate(made)}
        cases: list[tuple[range, Json]] = [
            (range(60), {"limit": 7}),
            (range(60), {"limit": 60, "min_score": 0.6}),
            (range(60), {"limit": 5, "offset": 5}),
            (range(1, 60, 2), {"limit": 7, "filter": odd}),
        ]
        for chosen, asked in cases:
            ranked = sorted((-every[f"i{number}"], f"i{number}") for number in chosen)
            first = asked.get("offset", 0)
            least = asked.get("min_score", 0)
            wanted = [hit for hit in ranked if -hit[0] >= least][first : first + asked["limit"]]
            body = {"vector": vector(query), "score": "containment", "explain": True, **asked}
            found = client.post("/v1/collections/parts/query", json=body).json()
            assert [hit["id"] for hit in found["hits"]] == [each for _, each in wanted]
            scores = [hit["score"] for hit in found["hits"]]
            assert scores == pytest.approx([-score for score, _ in wanted], abs=1e-12)
            assert found["explain"]["method"] == "scan"
            assert found["explain"]["expected_recall"] == 1
    around = {"id": "i2", "min_score": 1, "score": "containment"}
    found = client.post("/v1/collections/parts/query", json=around).json()["hits"]
    assert {hit["id"] for hit in found} >= {"i32"}
    assert "i2" not in {hit["id"] for hit in found}


def test_names_that_no_item_has_are_part_of_what_is_to_be_contained(client: Client) -> None:
    for name, dim in (("open", None), ("fixed", 3)):
        url = f"/v1/collections/{name}"
        assert client.put(url, json={"dim": dim}).status_code == 201
        if dim is not None:
            named = client.put(f"{url}/names", json={"names": ["x", "y", "z"]})
            assert named.status_code == 200, named.text
        item = {"id": "a", "vector": {"names": ["x", "y"], "values": [2, 5]}}
        stored = client.put(f"{url}/items", json={"items": [item]})
        assert stored.status_code == 200, stored.text
        query = {"names": ["x", "y", "unheard", "of"], "values": [3, 1, 2, 2]}
        asked = {"vector": query, "score": "containment"}
        answer = client.post(f"{url}/query", json=asked)
        assert answer.status_code == 200, answer.text
        assert [hit["score"] for hit in answer.json()["hits"]] == [3 / 8]


@pytest.mark.parametrize("dim", [30, None])
def test_pairs_and_groups_are_by_the_containment_of_the_smaller(
    client: Client, rows: np.ndarray, dim: int | None
) -> None:
    url, made = "/v1/collections/parts", rows.copy()
    made[7:9] = made[5] * (np.arange(30) > 3), made[5] + made[6]  # a part of another, and a whole
    client.put(url, json={"dim": dim})
    items = [{"id": f"i{number}", "vector": sparse(row)} for number, row in enumerate(made)]
    client.put(f"{url}/items", json={"items": items})

    def contained(a: int, b: int) -> float:
        return float(np.minimum(made[a], made[b]).sum() / min(made[a].sum(), made[b].sum()))

    every = {(a, b): contained(a, b) for a in range(40) for b in range(a + 1, 40)}
    assert every[5, 7] == every[5, 8] == 1
    asked = {"score": "containment", "recall": 0.5}
    for least, limit in ((0.85, None), (0.01, 25), (0.999, None)):
        answer = client.post(f"{url}/pairs", json=asked | {"min_score": least, "limit": limit})
        found = [*map(json.loads, answer.text.splitlines())]
        ends = [sorted((number(each["a"]), number(each["b"]))) for each in found]
        scores = {(a, b): each["score"] for (a, b), each in zip(ends, found, strict=True)}
        expected = {pair: score for pair, score in every.items() if score >= least}
        best = sorted(expected.values(), reverse=True)[:limit]
        assert [each["score"] for each in found] == pytest.approx(best, abs=1e-12)
        assert scores == pytest.approx({pair: every[pair] for pair in scores}, abs=1e-12)
        assert len(scores) == len(best)
    least = 0.93
    for mode in ("components", "leaders"):
        answer = client.post(f"{url}/groups", json=asked | {"min_score": least, "mode": mode})
        *groups, end = map(json.loads, answer.text.splitlines())
        assert end["groups"] == len(groups) > 0
        for group in groups:
            first, *others = group["members"]
            assert first == {"id": group["representative"], "score": 1}
            for each in others:
                exact = contained(number(first["id"]), number(each["id"]))
                assert each["score"] == pytest.approx(exact, abs=1e-12)
                assert mode == "components" or exact >= least
        if mode == "components":
            joined = {each["id"] for group in groups for each in group["members"]}
            assert joined == {f"i{one}" for pair in every if every[pair] >= least for one in pair}


def test_what_is_no_kind_of_score_is_told_its_name_here(client: Client, rows: np.ndarray) -> None:
    vector = rows[0].tolist()
    for word, meant in [*OTHER_NAMES.items(), ("Ruzicka", "gmm"), ("cosine", "")]:
        bodies: list[tuple[str, Json]] = [
            ("query", {"vector": vector}),
            ("pairs", {"min_score": 0.5}),
            ("groups", {"min_score": 0.5}),
        ]
        for route, body in bodies:
            answer = client.post(f"{URL}/{route}", json={**body, "score": word})
            assert_problem(answer, 422, "invalid_parameter")
            assert "'bray_curtis'" in answer.json()["detail"]
            assert not meant or f"{word} is {meant}" in answer.json()["detail"]
    own = client.post(f"{URL}/query", json={"vector": vector, "rerank": "none", **KIND})
    assert_problem(own, 422, "invalid_parameter")
    high = client.post(f"{URL}/query", json={"vector": vector, "min_score": 1.5, **KIND})
    assert_problem(high, 422, "invalid_parameter")


@given(st.floats(0, 1), st.floats(0, 1))
def test_the_least_ranked_lets_through_what_scores_enough_and_no_more(
    least: float, gmm: float
) -> None:
    enough = score_of("bray_curtis", gmm) >= least
    assert (gmm >= least_ranked("bray_curtis", least)) == enough
    assert least_ranked("gmm", least) == least
