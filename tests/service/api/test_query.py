"""Queries."""

import itertools
import threading

import numpy as np
import pytest

from gcws_search.service import searches
from tests.support.service.bodies import npy
from tests.support.service.client import Client, Json, Serve, assert_problem, fill
from tests.support.service.queries import URL, VECTOR, gmm

pytestmark = pytest.mark.served(front="all", cluster="few")


def test_hits_come_by_falling_exact_score(client: Client) -> None:
    answer = client.post(f"{URL}/query", json={"vector": VECTOR, "recall": 1}).json()
    dense: list[list[float]] = [[0.1, -2, 0, 3], [0, -2, 0, 2.5], [1, 0, 0, 1], [-1, -1, -1, -1]]
    expected = {i: gmm(VECTOR, v) for i, v in zip("acb7", dense, strict=True)}
    assert [hit["id"] for hit in answer["hits"]] == sorted(expected, key=lambda i: -expected[i])
    for hit in answer["hits"]:
        assert hit["score"] == pytest.approx(expected[hit["id"]], rel=1e-6)
        assert set(hit) == {"id", "score", "payload"}
    assert answer["hits"][0]["payload"] == {"label": 3}
    assert set(answer) == {"hits"}


def test_a_stored_item_is_left_out_of_its_own_hits(client: Client) -> None:
    hits = client.post(f"{URL}/query", json={"id": "a", "recall": 1}).json()["hits"]
    assert hits[0]["id"] == "c"
    assert "a" not in [hit["id"] for hit in hits]
    assert_problem(client.post(f"{URL}/query", json={"id": "no"}), 404, "item_not_found", "'no'")


@pytest.mark.parametrize("transform", [{}, {"power": 0.5, "normalize": "l2"}])
def test_vectors_and_payloads_are_shown_as_asked(serve: Serve, transform: Json) -> None:
    client = serve()
    fill(client, transform=transform)
    body = {"vector": VECTOR, "limit": 1, "with_payload": False, "with_vector": True}
    hits = client.post(f"{URL}/query", json=body).json()["hits"]
    assert hits[0].keys() == {"id", "score", "vector"}
    assert hits[0]["vector"] == VECTOR


def test_limit_and_min_score_cut_the_hits(client: Client) -> None:
    body = {"vector": VECTOR, "recall": 1}
    assert len(client.post(f"{URL}/query", json=body | {"limit": 2}).json()["hits"]) == 2
    hits = client.post(f"{URL}/query", json=body | {"min_score": 0.99}).json()["hits"]
    assert [hit["id"] for hit in hits] == ["a"]


FORMS: dict[str, Json] = {
    "vector": {"vector": VECTOR},
    "id": {"id": "a"},
    "min_score": {"vector": VECTOR, "min_score": 0.2},
    "vectors shown": {"vector": VECTOR, "with_vector": True, "with_payload": False},
    "filter": {"vector": VECTOR, "filter": {"must_not": {"key": "label", "match": {"value": 1}}}},
    "another backend": {"vector": VECTOR, "backend": "exact"},
}


def test_an_offset_shows_the_ranking_from_there(client: Client) -> None:
    client.post(f"{URL}/backends", json={"kind": "exact"})
    for form, more in FORMS.items():
        body = {"recall": 1, **more}
        whole = client.post(f"{URL}/query", json=body).json()["hits"]
        assert len(whole) >= 2
        for offset, limit in itertools.product(range(5), (1, 2, 10)):
            asked = body | {"offset": offset, "limit": limit}
            hits = client.post(f"{URL}/query", json=asked).json()["hits"]
            assert hits == whole[offset : offset + limit], (form, asked)


def test_an_offset_pages_through_ties_by_id(client: Client) -> None:
    items = [{"id": f"t{n:02}", "vector": [1, 1, 1, 1]} for n in range(20)]
    client.put(f"{URL}/items", json={"items": items[::-1]})
    seen: list[str] = []
    for offset in range(0, 20, 3):
        body = {"vector": [1, 1, 1, 1], "recall": 1, "offset": offset, "limit": min(3, 20 - offset)}
        hits = client.post(f"{URL}/query", json=body).json()["hits"]
        seen += [hit["id"] for hit in hits]
    assert seen == [item["id"] for item in items]


def test_a_filter_holds_for_every_hit(client: Client) -> None:
    where = {"must": [{"key": "label", "match": {"value": 3}}]}
    hits = client.post(f"{URL}/query", json={"vector": VECTOR, "filter": where}).json()["hits"]
    assert {hit["id"] for hit in hits} == {"a", "7"}


@pytest.mark.parametrize("guarantee", ["measured", "proven"])
def test_explain_says_what_a_query_cost(client: Client, guarantee: str) -> None:
    body = {"vector": VECTOR, "explain": True, "guarantee": guarantee}
    explained = client.post(f"{URL}/query", json=body).json()["explain"]
    assert {*explained} == {
        "method", "bands", "depth", "candidates", "scored", "beam", "expected_recall", "seconds",
    }  # fmt: skip
    assert explained["seconds"] > 0
    assert explained["expected_recall"] >= 0.9


@pytest.mark.one_process
@pytest.mark.parametrize(
    ("more", "inline"),
    [
        ({}, True),
        ({"with_vector": True}, False),
        ({"filter": {"must": [{"key": "label", "match": {"value": 3}}]}}, False),
    ],
)
def test_only_a_search_that_waits_for_nothing_runs_on_the_event_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch, more: Json, inline: bool
) -> None:
    search, threads = searches.search, []

    def watched(*arguments: Json) -> Json:
        threads.append(threading.current_thread().name)
        return search(*arguments)

    monkeypatch.setattr(searches, "search", watched)
    for _ in range(3):
        client.post(f"{URL}/query", json={"vector": VECTOR} | more)
    assert [not name.startswith("gcws-searches") for name in threads] == [inline] * 3


def test_an_empty_collection_has_no_hits(serve: Serve) -> None:
    client = serve()
    client.put(URL, json={"dim": 4})
    assert client.post(f"{URL}/query", json={"vector": VECTOR}).json() == {"hits": []}
    assert client.post(f"{URL}/pairs", json={"min_score": 0.1}).content == b""


def test_what_only_the_transform_shows_is_named(serve: Serve) -> None:
    client = serve()
    fill(client, transform={"center": [9, 9, 9, 9]})
    nines = {"vector": [9, 9, 9, 9]}
    batch = {"queries": [{"id": "a"}, {"vector": VECTOR}, nines]}
    kind = {"Content-Type": "application/x-npy"}
    matrix = npy(np.full((1, 4), 9.0))
    for answer, place in (
        (client.post(f"{URL}/query", json=nines), "vector: expected"),
        (client.post(f"{URL}/query/batch", json=batch), "query 2"),
        (client.post(f"{URL}/query/batch", content=matrix, headers=kind), "query 0"),
        (client.put(f"{URL}/items", json={"items": [{"id": "x", **nines}]}), "item 0"),
    ):
        assert_problem(answer, 422, "invalid_vector", place, "after the transform")
