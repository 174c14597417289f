"""What a front does by itself: it gathers queries, rewrites batches, and misses its owner."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any, cast

import httpx
import pytest

from gcws_search.service import searches
from gcws_search.service.api.query import BatchBody, QueryBody
from gcws_search.service.fronts.channel import encode_matrix, encode_query
from gcws_search.service.settings import Settings
from tests.support.service.client import URL, Client, Json, Serve, assert_problem, fill
from tests.support.service.fronts import FrontClient

LIMITS = Settings()
SAME: list[Json] = [{"vector": [1, -2, 0, 3], "limit": 2}, {"vector": [0, 1, 1, 0], "limit": 2}]


@pytest.fixture
def way() -> str:
    return "front"


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many vectors each search of the index had."""
    search, counts = searches.search, list[int]()

    def counted(collection: Json, query: Json) -> Json:
        counts.append(1 if query.vectors is None else len(query.vectors))
        return search(collection, query)

    monkeypatch.setattr(searches, "search", counted)
    return counts


def alone(client: Client, path: str, document: Json) -> httpx.Response:
    """Return the answer of the owner itself, without a front."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(client.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            return await http.post(path, json=document)

    return cast(httpx.Response, client.run(ask()))


def test_queries_that_come_together_are_searched_together(
    client: Client, searched: list[int]
) -> None:
    documents = [{"vector": [1, 0, number, 2]} for number in range(1, 9)]
    found = client.at_once("POST", [(f"{URL}/query", each) for each in documents])
    assert sum(searched) == 8
    assert max(searched) > 1
    for document, answer in zip(documents, found, strict=True):
        assert answer.json() == alone(client, f"{URL}/query", document).json()


def test_a_query_that_is_refused_leaves_those_beside_it_alone(serve: Serve) -> None:
    client = serve()
    fill(client, transform={"center": [9, 9, 9, 9]})
    documents = [{"vector": [1, 0, 1, 2]}, {"vector": [9, 9, 9, 9]}, {"vector": [0, 1, 1, 2]}]
    first, refused, last = client.at_once("POST", [(f"{URL}/query", each) for each in documents])
    assert_problem(refused, 422, "invalid_vector", "vector: ")
    assert (first.status_code, last.status_code) == (200, 200)
    assert first.json() == alone(client, f"{URL}/query", documents[0]).json()


ASKED: list[Json] = [
    {},
    {"limit": 2, "offset": 1, "recall": 1, "min_score": 0.1},
    {"filter": {"must": [{"key": "label", "match": {"value": 3}}]}},
    {"guarantee": "proven", "with_payload": False},
    {"rerank": "none", "candidates": 3},
    {"with_vector": True},
    {"limit": 5000},
    {"backend": "nowhere"},
    {"score": "containment", "allow_partial": True, "consistency": "strict"},
    {"cursor": True, "limit": 2},
    {"cursor": False},
    {"group_by": "label"},
    {"group_by": "label", "group_size": 2},
    {"text": "one"},
    {"id": "a"},
]
ALIKE: list[Json] = [each for each in ASKED if "id" not in each and "filter" not in each]


def answers(client: Client, path: str, document: Json) -> list[Json]:
    """Return status and body of the answer of a front, and of the owner without one."""
    ours, theirs = client.post(path, json=document), alone(client, path, document)
    return [(each.status_code, each.json()) for each in (ours, theirs)]


@pytest.mark.parametrize(
    "vector",
    [
        [1, -2, 0, 3],
        {"indices": [3, 1], "values": [2.5, -2]},
        {"indices": [0, 2]},
        {"base64": "zczMPQAAAMAAAAAAAABAQA=="},
    ],
)
def test_every_form_of_query_is_answered_as_by_the_owner(client: Client, vector: Json) -> None:
    for more in ASKED:
        ours, theirs = answers(client, f"{URL}/query", {"vector": vector} | more)
        assert ours == theirs, more
    for more in ALIKE:
        queries = {"queries": [{"vector": vector} | more] * 2}
        ours, theirs = answers(client, f"{URL}/query/batch", queries)
        assert ours == theirs, more


def test_each_field_of_a_query_is_asked_for_behind_a_front() -> None:
    told = {"vector", "explain"}  # the latter says how long it took
    assert told.union(*ASKED) == {*QueryBody.model_fields}


@pytest.mark.parametrize(
    ("queries", "is_matrix"),
    [
        (SAME, True),
        ([query | {"recall": 1, "with_payload": False} for query in SAME], True),
        ([query | {"backend": "gcws", "guarantee": "proven"} for query in SAME], True),
        ([SAME[0], SAME[1] | {"limit": 3}], False),
        ([SAME[0], {"id": "a", "limit": 2}], False),
        ([query | {"filter": {"must": []}} for query in SAME], False),
        ([query | {"id": "a"} for query in SAME], False),
        ([SAME[0], SAME[1] | {"vector": [1, 2]}], False),
        ([SAME[0], SAME[1] | {"vector": [1e39, 0, 0, 0]}], False),
        ([SAME[0], SAME[1] | {"vector": [0, 0, 0, 0]}], True),
        ([query | {"vector": [1, 2]} for query in SAME], True),
    ],
)
def test_a_batch_is_answered_as_by_the_owner_be_it_a_matrix_or_not(
    client: Client, queries: list[Json], is_matrix: bool
) -> None:
    body = BatchBody.model_validate({"queries": queries})
    assert (encode_matrix(body.queries, LIMITS) is not None) == is_matrix
    ours, theirs = answers(client, f"{URL}/query/batch", {"queries": queries})
    assert ours == theirs


def test_a_query_that_no_message_can_hold_is_asked_as_it_came() -> None:
    refused: list[Any] = [
        {"id": "a"},
        {"vector": [1e39]},
        {"vector": {"names": ["x"], "values": [1]}},
        {"vector": {"indices": [1, 2], "values": [1]}},
        {"vector": {"indices": [2**31], "values": [1]}},
    ]
    for document in refused:
        assert encode_query("plants", QueryBody.model_validate(document), LIMITS) is None


def test_without_its_owner_a_front_is_alive_and_not_ready(client: Client) -> None:
    assert isinstance(client, FrontClient)
    client.run(client.front.state.service.link.stop())
    client.forget_http()
    assert client.get("/livez").json() == {"status": "ok", "phase": "starting"}
    ready = client.get("/readyz")
    assert ready.status_code == 503
    assert ready.headers["retry-after"] == "1"
    assert ready.json() == {"phase": "starting", "loaded": 0, "total": 0}
    for answer in (
        client.get("/v1/collections"),
        client.post(f"{URL}/query", json=SAME[0]),
        client.post(f"{URL}/query/batch", json={"queries": SAME}),
        client.get(f"{URL}/items/a"),
    ):
        assert_problem(answer, 503, "owner_unavailable")
        assert answer.headers["retry-after"] == "1"


def test_a_body_that_breaks_off_leaves_no_connection_to_the_owner(client: Client) -> None:
    assert isinstance(client, FrontClient)

    async def lines() -> AsyncIterator[bytes]:
        yield b'{"id": "x", "vector": [1, 2, 3, 4]}\n'
        raise ZeroDivisionError

    async def load() -> None:
        kind = {"Content-Type": "application/x-ndjson"}
        async with asyncio.timeout(30):  # half of what a body may take to arrive
            with suppress(ZeroDivisionError):
                await client.http.post(f"{URL}/load", content=lines(), headers=kind)
            while client.speaking.connections:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    client.run(load())


def test_head_is_answered_as_get_without_the_body(client: Client) -> None:
    fill(client)
    for path in (URL, f"{URL}/items", f"{URL}/items/a", f"{URL}/items/none", "/v1"):
        got, told = client.get(path), client.request("HEAD", path)
        assert (told.status_code, told.content) == (got.status_code, b"")
        for name in ("content-length", "content-type"):
            assert told.headers[name] == got.headers[name]
