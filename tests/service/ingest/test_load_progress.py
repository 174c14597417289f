"""Loads under way: progress, backpressure, senders and stores that fail."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from starlette.requests import ClientDisconnect

from gcws_search import index as ix
from gcws_search.service.ingest import source
from gcws_search.service.ingest.job import Account, Load
from gcws_search.service.ingest.source import ItemRows
from tests.support.service.bodies import TYPES, URL, load, npy, rows
from tests.support.service.client import Client, Json, Serve, assert_problem, chunked, count, fill

pytestmark = pytest.mark.served(front="one", cluster="one")


def progress(client: Client, kind: str, body: Json, query: str = "") -> tuple[int, list[Json]]:
    answer = load(client, kind, body, query, Accept="application/x-ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    return answer.status_code, [json.loads(line) for line in answer.text.splitlines()]


def test_progress_comes_one_line_a_chunk_and_a_summary(empty: Client) -> None:
    status, lines = progress(empty, "npy", chunked(npy(rows(10))))
    assert status == 200
    assert lines[:-1] == [{"committed": n, "rejected": 0} for n in (4, 8, 10)]
    assert lines[-1]["inserted"] == 10
    assert progress(empty, "npy", npy(rows(0)))[1][0]["inserted"] == 0


def test_progress_tells_of_an_early_end(empty: Client) -> None:
    array = rows(10)
    array[6] = 0
    status, lines = progress(empty, "npy", npy(array))
    assert status == 200
    assert lines[0] == {"committed": 4, "rejected": 0}
    assert lines[-1]["inserted"] == 4
    assert (lines[-1]["error"]["code"], lines[-1]["error"]["status"]) == ("invalid_vector", 422)
    assert count(empty) == 4
    answer = load(empty, "npy", npy(rows(3) * 0), Accept="application/x-ndjson")
    assert_problem(answer, 422, "invalid_vector", "row 0")


def test_rows_are_committed_and_told_while_the_body_still_flows(empty: Client) -> None:
    """The sender sends the second half only after it has heard of the first commit."""
    body = npy(rows(8))
    heard = asyncio.Event()
    sent: list[Json] = []

    async def receive() -> Json:
        if not sent:
            sent.append(len(body) - 64)
            return {"type": "http.request", "body": body[: sent[0]], "more_body": True}
        await asyncio.wait_for(heard.wait(), 60)
        return {"type": "http.request", "body": body[sent[0] :], "more_body": False}

    lines: list[Json] = []

    async def send(message: Json) -> None:
        if message.get("body"):
            lines.append(json.loads(message["body"]))
            heard.set()

    empty.speak("POST", URL, receive, send, content_type=TYPES["npy"], accept=TYPES["ndjson"])
    assert [line.get("committed") for line in lines] == [4, 8, None]


# ---- what happens around a load


def test_a_sender_that_goes_away_leaves_whole_chunks(empty: Client) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield npy(rows(10))[:-20]
        raise ClientDisconnect

    assert_problem(load(empty, "npy", broken()), 400, "malformed_body", "went away")
    assert count(empty) in (0, 4, 8)
    assert load(empty, "npy", npy(rows(3))).status_code == 200


def test_more_loads_than_permitted_get_429(serve: Serve) -> None:
    client = serve(max_loads=1)
    fill(client)
    began = asyncio.Event()
    go_on = asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        began.set()
        await go_on.wait()
        yield npy(rows(3))

    async def both() -> tuple[httpx.Response, httpx.Response]:
        headers = {"Content-Type": TYPES["npy"]}
        first = asyncio.create_task(client.http.post(URL, content=slow(), headers=headers))
        await began.wait()
        second = await client.http.post(URL, content=npy(rows(3)), headers=headers)
        go_on.set()
        return await first, second

    first, second = client.run(both())
    assert first.json()["inserted"] == 3
    assert_problem(second, 429, "queue_full", "loads")
    assert second.headers["retry-after"]


def test_a_full_pipe_makes_the_sender_wait() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        pipe = source.BodyPipe(10)

        async def sender() -> None:
            for number in range(4):
                await pipe.put(b"x" * 6)
                events.append(f"put {number}")
            pipe.end()

        task = asyncio.create_task(sender())
        for _ in range(5):
            await asyncio.sleep(0)
        events.append("waiting")
        while await asyncio.to_thread(pipe.take):
            pass
        await task
        return events

    events = asyncio.run(scenario())
    assert events.index("waiting") == 1
    assert events[-1] == "put 3"


def test_an_aborted_pipe_frees_both_ends() -> None:
    async def scenario() -> None:
        pipe = source.BodyPipe(1)
        waiting = asyncio.create_task(asyncio.to_thread(pipe.take))
        pipe.abort()
        with pytest.raises(source.BodyAborted):
            await waiting
        await pipe.put(b"abc")
        await pipe.put(b"abc")

    asyncio.run(scenario())


def test_a_chunk_is_read_beside_storing_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = ix.Catalog.open(tmp_path)
    stored, _ = catalog.create("beside", ix.CollectionConfig(dim=4))
    read = threading.Event()
    before: list[int] = []
    commit = stored.commit

    def committed(write: ix.Put) -> ix.WriteResult:
        assert read.wait(60)
        return commit(write)

    def chunks(_source: source.Source, _counting: Json) -> Iterator[ItemRows]:
        for number in range(2):
            before.append(len(stored))
            if number:
                read.set()
            vectors = ix.InputVectors(rows(1))
            yield ItemRows(np.arange(1), [str(number)], [None], vectors)

    monkeypatch.setattr(stored, "commit", committed)
    account = Account(None, max_listed=1)
    load = Load(stored, account, "upsert", "stop", lambda: None)
    load.run(chunks, lambda: b"", lambda *_: None)
    assert account.state.inserted == 2
    assert before == [0, 0]
    catalog.close()
