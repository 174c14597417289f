"""Limits: each held, each named, and what is refused leaves nothing behind."""

import asyncio
import json
import mmap
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import numpy as np
import pytest

from gcws_search.service import limits
from gcws_search.service.errors import Refusal, Refused
from gcws_search.service.settings import Settings
from tests.support.service.bodies import NDJSON, NPY, arrow, load, npy
from tests.support.service.client import (
    ITEMS,
    Client,
    Json,
    Serve,
    assert_problem,
    chunked,
    count,
    fill,
)

pytestmark = pytest.mark.served(front="all")

URL: Final = "/v1/collections/plants"
JSON: Final = {"Content-Type": "application/json"}


def nested(depth: int) -> Json:
    document: Json = {"key": "label", "match": {"value": 3}}
    for _ in range(depth):
        document = {"must": document}
    return document


ONE = {"vector": {"indices": [0, 1], "values": [1, 1]}}
TWO_CONDITIONS = {"filter": {"must": [nested(0), nested(0)]}}


@pytest.mark.parametrize(
    ("settings", "path", "body", "code", "words"),
    [
        ({"max_nonzeros": 3}, "query", {"vector": [1, 2, 3, 4]}, "invalid_vector", "at most 3"),
        ({"max_nonzeros": 1}, "query", ONE, "invalid_vector", "at most 1"),
        ({"max_nonzeros": 3}, "sketch", {"vectors": [[1, 2, 3, 4]]}, "invalid_vector", "vector 0"),
        ({"max_filter_depth": 2}, "count", {"filter": nested(3)}, "invalid_filter", "2 deep"),
        (
            {"max_filter_conditions": 1}, "items/delete", TWO_CONDITIONS,
            "invalid_filter", "at most 1",
        ),
        ({"max_answer_bytes": 8}, "query", {"id": "b"}, "answer_too_large", "fewer hits"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_beyond_a_limit_is_refused(
    serve: Serve, settings: Json, path: str, body: Json, code: str, words: str
) -> None:
    client = serve()
    fill(client)
    client = serve(**settings)
    assert_problem(client.post(f"{URL}/{path}", json=body), 422, code, words)
    assert count(client) == 4


def test_dimensions_and_collections_are_counted(serve: Serve) -> None:
    client = serve(max_dim=4, max_collections=2)
    assert_problem(client.put(URL, json={"dim": 5}), 422, "invalid_parameter", "dim", "1 to 4")
    assert client.put(URL, json={"dim": 4}).status_code == 201
    assert client.put("/v1/collections/open", json={"dim": None}).status_code == 201
    third = client.put("/v1/collections/third", json={"dim": 4})
    assert_problem(third, 507, "too_many_collections", "at most 2")
    assert client.put(URL, json={"dim": 4}).status_code == 200
    client.delete("/v1/collections/open")
    assert client.put("/v1/collections/third", json={"dim": 4}).status_code == 201


def test_ids_and_numbers_are_counted_in_writes_and_loads(serve: Serve) -> None:
    client = serve(max_id_length=3, max_nonzeros=4)
    fill(client)
    long_id = {"id": "abcd", "vector": [1, 2, 3, 4]}
    many = {"id": "abc", "vector": [1, 2, 3, 4, 5]}
    for item, code in ((long_id, "invalid_id"), (many, "invalid_vector")):
        put = client.put(f"{URL}/items", json={"items": [ITEMS[0], item]})
        assert_problem(put, 422, code, "item 1")
        line = json.dumps(item).encode()
        assert_problem(client.post(f"{URL}/load", content=line, headers=NDJSON), 422, code, "row 0")
    assert count(client) == 4


@pytest.mark.parametrize(
    "columns",
    [
        {"vector": [[1.0] * 4, [1.0] * 5, [2.0] * 4]},
        {"indices": [[1], [*range(5)], [2, 4]], "values": [[1.0], [1.0] * 5, [1.0, 2.0]]},
    ],
    ids=["dense", "sparse"],
)
def test_the_numbers_of_arrays_and_of_arrow_rows_are_counted(serve: Serve, columns: Json) -> None:
    client = serve(max_nonzeros=4)
    dim = 4 if "vector" in columns else None
    client.put(URL, json={"dim": dim})
    wide = npy(np.ones((2, 5), np.float32))
    for path in ("load", "query/batch"):
        answer = client.post(f"{URL}/{path}", content=wide, headers=NPY)
        assert_problem(answer, 422, "invalid_vector", "at most 4 values", "5 values")
    body = arrow({"id": ["a", "b", "c"], **columns})
    answer = load(client, "arrow", body, "?on_error=skip").json()
    assert [(each["row"], each["code"]) for each in answer["rejected"]] == [(1, "invalid_vector")]
    assert "at most 4 values, got 5 values" in answer["rejected"][0]["detail"]
    assert answer["inserted"] == 2


def test_bodies_are_counted_as_they_arrive(serve: Serve) -> None:
    client = serve(max_body_bytes=200)
    client.put(URL, json={"dim": 4})
    for content in (b" " * 201, chunked(b" " * 201)):
        answer = client.put(f"{URL}/items", content=content, headers=JSON)
        assert_problem(answer, 413, "body_too_large", "200 bytes", "POST …/load")


async def never(first: bytes) -> AsyncIterator[bytes]:
    """Yield the beginning of a body that does not end."""
    yield first
    await asyncio.Event().wait()


def asked_during(client: Client, begun: bytes, *requests: tuple[str, str, Json]) -> list[Json]:
    """Return answers to requests that are made while a body has begun and does not end."""
    held = client.app.state.service.admission

    async def scenario() -> list[Json]:
        body = never(begun)
        slow = asyncio.create_task(client.http.put(f"{URL}/items", content=body, headers=JSON))
        while not held.requests or held.held_bytes < len(begun):  # noqa: ASYNC110  # told by nothing
            await asyncio.sleep(0)
        found = [
            await client.http.request(method, path, content=content, headers=JSON)
            for method, path, content in requests
        ]
        slow.cancel()
        await asyncio.gather(slow, return_exceptions=True)
        return found

    answers: list[Json] = client.run(scenario())
    return answers


@pytest.mark.served  # each process of fronts counts its own
def test_bodies_under_way_are_counted_together_and_given_back(serve: Serve) -> None:
    client = serve(max_held_bytes=300)
    fill(client)
    query = ("POST", f"{URL}/query", b'{"id": "a"}')
    refused, served = asked_during(client, b" " * 200, ("PUT", f"{URL}/items", b" " * 200), query)
    assert_problem(refused, 503, "overloaded")
    assert refused.headers["retry-after"]
    assert served.status_code == 200
    held = client.app.state.service.admission
    assert (held.held_bytes, held.requests) == (0, 0)


def test_requests_under_way_are_counted_and_health_answers_all_the_same(serve: Serve) -> None:
    client = serve(max_requests=1)
    fill(client)
    paths = (URL, "/livez", "/readyz")
    refused, *healthy = asked_during(client, b"", *(("GET", path, None) for path in paths))
    assert_problem(refused, 503, "overloaded", "1 requests")
    assert refused.headers["retry-after"]
    assert [answer.status_code for answer in healthy] == [200, 200]
    assert client.get(URL).status_code == 200


def test_a_body_that_comes_too_slowly_is_given_up(serve: Serve) -> None:
    client = serve(body_seconds=0.5)
    fill(client)
    asked = {"items": (client.put, b"{", JSON), "load": (client.post, b"\n", NDJSON)}
    for route, (send, start, headers) in asked.items():
        answer = send(f"{URL}/{route}", content=never(start), headers=headers)
        assert_problem(answer, 408, "request_timeout")
    assert client.app.state.service.admission.held_bytes == 0


@pytest.mark.parametrize("code", ["memory_full", "disk_full"])
def test_without_room_nothing_more_is_stored_and_all_else_goes_on(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, code: Refusal
) -> None:
    client = serve()
    fill(client)
    room = client.app.state.service.room
    room.max_age_seconds = -1
    monkeypatch.setattr(room, "look", lambda: Refused(code, "nothing more"))
    item = {"id": "z", "vector": [1, 2, 3, 4]}
    refused = [
        client.put(f"{URL}/items", json={"items": [item]}),
        client.post(f"{URL}/load", content=json.dumps(item).encode(), headers=NDJSON),
        client.put("/v1/collections/stones", json={"dim": 4}),
        client.post(f"{URL}/backends", json={"kind": "rff"}),
    ]
    for answer in refused:
        assert_problem(answer, 507, code, "nothing more")
        assert answer.headers["retry-after"]
    assert client.post(f"{URL}/query", json={"id": "a"}).status_code == 200
    assert client.delete(f"{URL}/items/a").status_code == 204
    assert count(client) == 3
    monkeypatch.undo()
    assert client.put(f"{URL}/items", json={"items": [item]}).status_code == 200


def test_shares_are_of_what_there_is(tmp_path: Path) -> None:
    limits.Room(Settings(data_dir=tmp_path, max_memory_share=1, max_disk_share=1)).require()
    with pytest.raises(Refused, match=r"bytes of memory in use, got .*this write stored nothing"):
        limits.Room(Settings(data_dir=tmp_path, max_memory_share=1e-9)).require()
    with pytest.raises(Refused, match=r"of the disk's .*this write stored nothing"):
        limits.Room(Settings(data_dir=tmp_path, max_disk_share=1e-9, max_memory_share=1)).require()


def test_a_small_disk_keeps_room_for_the_log_of_deletes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    total = 256 << 20
    for free, share, is_refused in (
        (15 << 20, 0.97, True),
        (17 << 20, 0.97, False),
        (15 << 20, 1, False),  # all of it, as asked
        (15 << 20, 0.5, True),
    ):
        usage = SimpleNamespace(total=total, free=free, used=total - free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        room = limits.Room(Settings(data_dir=tmp_path, max_disk_share=share, max_memory_share=1))
        refused = pytest.raises(Refused, match="this write stored nothing")
        with refused if is_refused else nullcontext():
            room.require()


def test_pages_of_files_are_not_held_against_the_share_of_memory(tmp_path: Path) -> None:
    with tempfile.TemporaryFile(dir=tmp_path) as file:
        file.truncate(64 << 20)
        before, unmapped = limits.resident_bytes(), limits.unmapped_bytes()
        pages = np.frombuffer(mmap.mmap(file.fileno(), 64 << 20), np.uint8)
        assert pages[::4096].sum() == 0  # reads each
        assert limits.resident_bytes() >= before + (60 << 20)
        assert limits.unmapped_bytes() <= unmapped + (30 << 20)


def test_the_write_queue_has_a_length_of_its_own(serve: Serve) -> None:
    client = serve(max_write_queue=1, max_queue=2)
    fill(client)
    client.app.state.service.workers.writes.waiting = 1
    item = {"items": [{"id": "z", "vector": [1, 2, 3, 4]}]}
    answer = client.put(f"{URL}/items", json=item)
    assert_problem(answer, 429, "queue_full", "1 writes")
    assert answer.headers["retry-after"]
    assert client.get(f"{URL}/items").status_code == 200
    client.app.state.service.workers.writes.waiting = 0
    assert client.put(f"{URL}/items", json=item).status_code == 200


STORED: Final = 150
LIMIT: Final = 4000


GROWING: Final = (
    "query", "query with_vector", "batch", "batch min_score", "batch with_vector", "matrix",
    "matrix min_score", "page", "page with_vector", "sketch",
)  # fmt: skip


def ask_for(client: Client, kind: str, count: int) -> Json:
    """Ask for an answer that grows with ``count``."""
    path, _, option = kind.partition(" ")
    vectors = [[1, 2, 3, 4]] * count
    more = {option: 1e-6 if option == "min_score" else True} if option else {}
    hits = {"limit": count, "with_payload": False, **more}
    match path:
        case "query":
            return client.post(f"{URL}/query", json={"id": "item 0", **hits})
        case "batch":
            queries = [{"vector": vector, **hits} for vector in vectors]
            return client.post(f"{URL}/query/batch", json={"queries": queries})
        case "matrix":
            body = npy(np.array(vectors, np.float32))
            return client.post(f"{URL}/query/batch", params=hits, content=body, headers=NPY)
        case "page":
            return client.get(f"{URL}/items", params={"limit": count, **more})
    return client.post(f"{URL}/sketch", json={"vectors": vectors})


@pytest.mark.served
def test_an_answer_is_refused_where_it_would_be_longer_than_permitted(serve: Serve) -> None:
    client = serve(max_answer_bytes=LIMIT)
    client.put(URL, json={"dim": 4, "backend": {"kind": "gcws", "params": {"bands": 16}}})
    items = [
        {"id": f"item {row}", "vector": [1, 2, 3, 0.123 + row], "payload": {"row": "x" * 20}}
        for row in range(STORED)
    ]
    client.put(f"{URL}/items", json={"items": items})
    for kind in GROWING:
        sizes = []
        for rows in (1, 2, 3, 5, 8, 12, 20, 30, 45, 60, 90, STORED):
            answer = ask_for(client, kind, rows)
            if answer.status_code == 422:
                assert_problem(answer, 422, "answer_too_large", str(LIMIT))
                break
            assert answer.status_code == 200
            sizes.append(len(answer.content))
        else:
            pytest.fail(f"{sizes} are all answered: {kind}")
        assert LIMIT / 4 < max(sizes) < 1.1 * LIMIT, kind
    # Hits before a page are no part of its answer.
    body = {"vector": [1, 1, 1, 1], "limit": 9, "offset": STORED - 9, "with_vector": True}
    whole = body | {"limit": STORED, "offset": 0}
    assert client.post(f"{URL}/query", json=whole).status_code == 422
    for path, asked in (("query", body), ("query/batch", {"queries": [body, body]})):
        answer = client.post(f"{URL}/{path}", json=asked)
        assert answer.status_code == 200, answer.text


@pytest.mark.served
def test_a_batch_of_more_hits_than_are_found_at_once_has_the_same_answers(
    serve: Serve, rng: np.random.Generator
) -> None:
    client = serve()
    client.put(URL, json={"dim": 4})
    vectors = rng.normal(size=(500, 4)).astype(np.float32)
    client.post(f"{URL}/load", content=npy(vectors), headers=NPY)
    queries = rng.normal(size=(2200, 4)).astype(np.float32)

    def results(rows: Json) -> Json:
        url = f"{URL}/query/batch?limit=500&recall=1&with_payload=false"
        return client.post(url, content=npy(queries[rows]), headers=NPY).json()["results"]

    assert len(queries) * len(vectors) > 1 << 20
    found, some = results(slice(None)), [0, 1, 2096, 2097, 2098, 2199]
    assert len(found) == len(queries)
    assert [found[row] for row in some] == results(some)
