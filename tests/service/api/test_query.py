"""Queries: alone, in batches, page by page."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service import searches
from gcws_search.service.api import query
from gcws_search.service.contract import QueryRequest
from tests.support.service.bodies import NPY, npy
from tests.support.service.client import URL, VECTOR, Client, Json, Serve, assert_problem, fill, gmm

pytestmark = pytest.mark.served(front="all", cluster="one")


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


@pytest.mark.parametrize("transform", [{}, {"power": 0.5, "normalize": "l2"}])
def test_vectors_and_payloads_are_shown_as_asked(serve: Serve, transform: Json) -> None:
    client = serve()
    fill(client, transform=transform)
    body = {"vector": VECTOR, "limit": 1, "with_payload": False, "with_vector": True}
    hits = client.post(f"{URL}/query", json=body).json()["hits"]
    assert hits[0].keys() == {"id", "score", "vector"}
    assert hits[0]["vector"] == VECTOR


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
    serve: Serve, monkeypatch: pytest.MonkeyPatch, more: Json, inline: bool
) -> None:
    client = serve(inline_seconds=60)
    fill(client)
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


# Batches, as JSON and as matrices


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


def test_queries_around_items_are_searched_together(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, calls = ix.StoredCollection.search_around, list[int]()

    def noting(self: Json, ids: Sequence[str], *more: Json, **others: Json) -> ix.QueryResults:
        calls.append(len(ids))
        return search(self, ids, *more, **others)

    ids = ["a", "c", "7", "a", "b"] * 60
    queries = [{"id": each, "limit": 3, "recall": 1} for each in ids]
    alone = {each["id"]: client.post(f"{URL}/query", json=each).json() for each in queries[1:5]}
    monkeypatch.setattr(ix.StoredCollection, "search_around", noting)
    results = client.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
    assert results == [alone[each] for each in ids]
    assert len(calls) <= 4  # two parts, in each of two shards
    queries[270]["id"] = "none"
    missing = client.post(f"{URL}/query/batch", json={"queries": queries})
    assert_problem(missing, 404, "item_not_found", "'none'")


def test_equal_filters_of_a_batch_are_parsed_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse, parsed = ix.parse_filter, list[object]()

    def noting(document: object, **limits: Json) -> ix.Filter:
        parsed.append(document)
        return parse(document, **limits)

    monkeypatch.setattr(ix, "parse_filter", noting)
    both = [{"must": [{"key": "label", "match": {"value": value}}]} for value in (1, 3)]
    queries = [
        {"filter": both[n % 2], **({"id": "c"} if n % 3 else {"vector": VECTOR})} for n in range(60)
    ]
    results = client.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
    assert [len(result["hits"]) for result in results] == [1, 2] * 30
    assert len(parsed) <= 6  # each filter once, and once by each of two shards


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


def test_a_bad_matrix_is_refused_and_a_truncated_one_is_malformed(client: Client) -> None:
    for url, array, code, words in BAD:
        answer = client.post(f"{URL}/query/batch{url}", content=npy(array), headers=NPY)
        assert_problem(answer, 404 if code == "backend_not_found" else 422, code, *words)
    body = npy(np.ones((3, 4)))
    for part in (*(body[:length] for length in (0, 5, 9, 50, len(body) - 1)), body + b"x"):
        answer = client.post(f"{URL}/query/batch", content=part, headers=NPY)
        assert_problem(answer, 400, "malformed_body")


def test_a_matrix_said_to_be_json_is_named(client: Client) -> None:
    sent = {"content": npy(np.ones((1, 4))), "headers": {"Content-Type": "application/json"}}
    assert_problem(
        client.post(f"{URL}/query/batch", **sent), 400, "malformed_body", "got .npy data"
    )


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


# Pages share no hit and leave none out, however searches of each depth differ


ITEMS = 3000


class LossySearch:
    """A collection whose searches miss hits, each depth others; ids fall by score."""

    config = SimpleNamespace(dim=4)

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.found: dict[int, set[str]] = {}

    async def search_batch(
        self, asked: Sequence[QueryRequest], show: Callable[[Sequence[ix.QueryResult]], Any]
    ) -> Any:  # noqa: ANN401
        [one] = asked
        limit, recall = one.params.limit, one.params.recall
        rng = np.random.default_rng([self.seed, limit])
        ranks = np.flatnonzero(rng.random(ITEMS) < recall)[:limit]
        ids = [f"{rank:05}" for rank in ranks]
        self.found[limit] = {*ids}
        scores = (1 - ranks / ITEMS).tolist()
        return show([ix.QueryResult(ids, scores)])


async def run(work: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
    return work(*arguments)


SERVICE: Any = SimpleNamespace(
    searches=SimpleNamespace(
        search_batch=lambda collection, asked, show: collection.search_batch(asked, show)
    ),
    workers=SimpleNamespace(batches=SimpleNamespace(run=run)),
    settings=SimpleNamespace(max_limit=100_000, max_answer_bytes=1 << 20),
)


def page(collection: Any, offset: int, limit: int, recall: float) -> ix.QueryResult:  # noqa: ANN401
    params = ix.SearchParams(limit=limit, recall=recall)
    asked = QueryRequest(None, "a", params, None, b"", None, False, False, False, offset)
    [found] = asyncio.run(query.search_page(SERVICE, collection, asked, list))
    return found


@pytest.mark.parametrize("limit", [1, 7, 10, 100, 130])
@pytest.mark.parametrize("recall", [0.5, 0.9])
def test_no_hit_is_on_two_pages_or_on_none(limit: int, recall: float) -> None:
    collection = LossySearch(seed=limit)
    offsets = range(0, 100 if limit == 1 else 1100, limit)
    found = [page(collection, offset, limit, recall) for offset in offsets]
    shown = [item_id for one in found for item_id in one.ids]
    assert len(shown) == len({*shown}) == len(offsets) * limit
    for one in found:
        assert [*one.scores] == sorted(one.scores, reverse=True)
    for depth, ids in collection.found.items():
        if depth <= len(shown):
            assert ids <= {*shown}


def test_a_deep_page_misses_about_as_many_hits_as_the_first() -> None:
    """Of 100 hits at 0.9, one is missed, so that the tenth page is shifted by one at most."""
    for offset in (10, 90, 500, 9990):
        asked = ix.SearchParams(limit=10, recall=0.9)
        deepest = ix.page_searches(asked, offset, 100_000)[-1]
        assert deepest.limit >= offset + 10
        assert deepest.limit * (1 - deepest.recall) == pytest.approx(1)


@pytest.mark.parametrize(
    ("asked", "offset", "limits"),
    [
        ({"recall": 1}, 20, [30]),  # nothing is missed: one search
        ({"candidates": 200, "rerank": "none"}, 20, [30]),
        ({}, 20, [10, 40]),  # no deeper than the settings permit
        ({}, 0, [10]),
    ],
)
def test_a_page_takes_as_few_searches_as_it_can(asked: Json, offset: int, limits: Json) -> None:
    found = ix.page_searches(ix.SearchParams(limit=10, **asked), offset, 40)
    assert [each.limit for each in found] == limits
