"""Loads under a key that are sent again, and rows without ids: none is stored twice unasked."""

import asyncio
import gzip
import itertools
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import httpx
import pytest

from tests.support.service.bodies import (
    TYPES,
    URL,
    arrow,
    bodies,
    failing_at,
    fixed,
    items,
    load,
    ndjson,
    npy,
    rows,
    vector_of,
)
from tests.support.service.client import (
    URL as PLANTS,
    Client,
    Json,
    Serve,
    assert_problem,
    chunked,
    count,
)

pytestmark = pytest.mark.served(cluster="one")

ROWS = 23
BAD = {"id": "bad", "vector": [1, 2]}


def keyed(client: Client, kind: str, body: Json, query: str = "", key: str = "k") -> httpx.Response:
    return load(client, kind, body, query, Idempotency_Key=key)


def counts(answer: httpx.Response) -> tuple[int, int, int]:
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["inserted"], told["updated"], told["rejected_count"]


def broken_off(
    client: Client, monkeypatch: pytest.MonkeyPatch, commits: int, send: Callable[[], Any]
) -> None:
    """Send a load of which only the first chunks are committed."""
    with monkeypatch.context() as patched:
        failing_at(client.store, patched, commits)
        answer = send()
    assert_problem(answer, 507, "disk_full")
    assert answer.json()["committed"] == 4 * commits == count(client)


@pytest.mark.parametrize("kind", TYPES)
def test_a_load_that_broke_off_goes_on_where_it_did(
    empty: Client, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    body = bodies(ROWS)[kind]
    for commits, packed in itertools.product((0, 1, 3, 5), (False, True)):
        empty.delete(PLANTS)
        empty.put(PLANTS, json={"dim": 4})
        first = gzip.compress(body) if packed else body
        mode = "?mode=insert" if packed else ""
        send = partial(keyed, empty, kind, chunked(first, 37), mode)
        broken_off(empty, monkeypatch, commits, send)
        empty.delete(f"{PLANTS}/items/0")  # what was committed is not looked at again
        for again in (chunked(body, 61), body):
            assert counts(keyed(empty, kind, again, mode)) == (ROWS, 0, 0)
            assert count(empty) == ROWS - (commits > 0)
            assert vector_of(empty, str(ROWS - 1)) == rows(ROWS)[-1].tolist()


def test_keys_outlive_the_process(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    body = bodies(ROWS)["ndjson"]
    client = serve(load_chunk_rows=4)
    client.put(PLANTS, json={"dim": 4})
    broken_off(client, monkeypatch, 2, lambda: keyed(client, "ndjson", body))
    client = serve(load_chunk_rows=7)  # chunks need not be those of before
    [entry] = client.get(f"{PLANTS}/loads").json()["loads"]
    assert (entry["key"], entry["state"], entry["rows"]) == ("k", "interrupted", 8)
    assert entry["total_bytes"] is None
    assert counts(keyed(client, "ndjson", body)) == (ROWS, 0, 0)
    client = serve()
    [entry] = client.get(f"{PLANTS}/loads").json()["loads"]
    assert (entry["key"], entry["state"], entry["rows"]) == ("k", "done", ROWS)
    assert entry["bytes"] == entry["total_bytes"] == len(body)


def test_rejected_rows_are_counted_once_and_a_bad_row_can_be_put_right(
    empty: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = ndjson(*items(2), BAD, *items(5, 2), BAD, *items(5, 7))

    def send() -> httpx.Response:
        return keyed(empty, "ndjson", wrong, "?on_error=skip")

    with monkeypatch.context() as patched:
        failing_at(empty.store, patched, 1)
        assert_problem(send(), 507, "disk_full")
    answer = send()
    assert counts(answer) == (12, 0, 2)
    assert [one["row"] for one in answer.json()["rejected"]] == [2, 8]
    assert send().json()["rejected"] == answer.json()["rejected"]
    stop = keyed(empty, "ndjson", wrong, key="stop")
    problem = assert_problem(stop, 422, "invalid_vector", "row 2")
    assert problem["committed"] == 0
    wrong = ndjson(*items(6), BAD)
    assert_problem(keyed(empty, "ndjson", wrong, key="x"), 422, "invalid_vector", "row 6")
    right = ndjson(*items(6), {"id": "good", "vector": [1, 2, 3, 4]})
    assert counts(keyed(empty, "ndjson", right, key="x")) == (1, 6, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_another_body_under_a_key_is_refused(
    empty: Client, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    body = bodies(ROWS)[kind]
    broken_off(empty, monkeypatch, 3, lambda: keyed(empty, kind, body))
    at = body.index(rows(ROWS)[7].tobytes()) if kind != "ndjson" else body.index(b"8.0")
    changed = body[:at] + bytes([body[at] ^ 1]) + body[at + 1 :]
    for other in (changed, body[:40], bodies(3)[kind], b"", b"rubbish, of no format" * 50):
        assert_problem(keyed(empty, kind, other), 409, "idempotency_mismatch", "'k'")
        assert count(empty) == 12
    assert counts(keyed(empty, kind, body)) == (ROWS, 0, 0)
    words = [f"of {ROWS} rows in {len(body)} bytes that", "+00:00, got another one of"]
    for other in (changed, bodies(ROWS + 1)[kind], body[:-1]):
        words[2:] = [f"of {len(other)} bytes at"]
        assert_problem(keyed(empty, kind, other), 409, "idempotency_mismatch", "'k'", *words)
    assert counts(keyed(empty, kind, body)) == (ROWS, 0, 0)


def test_other_parameters_under_a_key_are_refused(empty: Client) -> None:
    assert counts(keyed(empty, "npy", npy(rows(3)), "?id_start=5")) == (3, 0, 0)
    answer = keyed(empty, "npy", npy(rows(3)), "?id_start=6")
    assert_problem(answer, 409, "idempotency_mismatch", "id_start", "5", "6")
    assert counts(keyed(empty, "npy", npy(rows(3)), "?id_start=5&on_error=skip")) == (3, 0, 0)
    assert count(empty) == 3


def test_what_is_no_key_is_refused(empty: Client) -> None:
    for key in ("x" * 256, "caf\u00e9", "", "\t"):
        headers = {"Idempotency-Key": key.encode("latin-1"), "Content-Type": TYPES["npy"]}
        answer = empty.post(URL, content=npy(rows(1)), headers=headers)
        assert_problem(answer, 422, "invalid_parameter", "Idempotency-Key", "255")
    assert count(empty) == 0


def test_keys_are_of_one_collection_and_one_load(empty: Client) -> None:
    empty.put("/v1/collections/others", json={"dim": 4})
    long = "a key, as long as it may be " + "~" * 227
    for key in ("k", "K", long):
        assert keyed(empty, "npy", npy(rows(3)), key=key).status_code == 200
    headers = {"Content-Type": TYPES["npy"], "Idempotency-Key": "k"}
    answer = empty.post("/v1/collections/others/load", content=npy(rows(2)), headers=headers)
    assert counts(answer) == (2, 0, 0)


def test_keys_are_forgotten_after_a_while(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    client, now = serve(load_key_seconds=100), [1_000_000.0]
    client.put(PLANTS, json={"dim": 4})
    monkeypatch.setattr("gcws_search.service.ingest.job.time.time", lambda: now[0])
    keyed(client, "npy", npy(rows(3)), "?id_start=0", key="old")
    now[0] += 99
    again = keyed(client, "npy", npy(rows(2)), "?id_start=0", key="old")
    assert_problem(again, 409, "idempotency_mismatch")
    now[0] += 2
    assert counts(keyed(client, "npy", npy(rows(2)), "?id_start=0", key="old")) == (0, 2, 0)


def test_a_load_under_a_key_that_runs_keeps_another_from_it(empty: Client) -> None:
    begun, end = asyncio.Event(), asyncio.Event()
    line = bodies(1)["ndjson"]
    headers = {"Content-Type": TYPES["ndjson"], "Idempotency-Key": "k"}

    async def slow() -> AsyncIterator[bytes]:
        yield line
        begun.set()
        await end.wait()

    async def scenario() -> tuple[httpx.Response, list[Json], httpx.Response]:
        first = asyncio.create_task(empty.http.post(URL, content=slow(), headers=headers))
        await begun.wait()
        second = await empty.http.post(URL, content=line, headers=headers)
        watched = {**headers, "Accept": "application/x-ndjson"}
        third = await empty.http.post(URL, content=line, headers=watched)
        assert (third.status_code, third.text) == (409, second.text)
        listed = (await empty.http.get(f"{PLANTS}/loads")).json()["loads"]
        end.set()
        return second, listed, await first

    second, listed, first = empty.run(scenario())
    assert_problem(second, 409, "collection_busy", "'k'")
    assert second.headers["retry-after"] == "1"
    assert (listed[0]["key"], listed[0]["state"]) == ("k", "running")
    assert listed[0]["total_bytes"] is None
    assert counts(first) == (1, 0, 0)
    assert counts(empty.run(empty.http.post(URL, content=line, headers=headers))) == (1, 0, 0)


def test_a_refused_reuse_of_a_key_leaves_the_load_of_the_key_listed(serve: Serve) -> None:
    body = bodies(ROWS)["ndjson"]
    client = serve()
    client.put(PLANTS, json={"dim": 4})
    assert counts(keyed(client, "ndjson", body)) == (ROWS, 0, 0)
    for other, query in ((body[:-30], ""), (body * 2, ""), (body, "?mode=insert")):
        client = serve()
        answer = keyed(client, "ndjson", other, query)
        assert_problem(answer, 409, "idempotency_mismatch")
        refused, done = client.get(f"{PLANTS}/loads").json()["loads"]
        assert (refused["key"], refused["state"]) == ("k", "failed")
        assert (done["key"], done["state"], done["rows"]) == ("k", "done", ROWS)
        assert counts(keyed(client, "ndjson", body)) == (ROWS, 0, 0)
        states = [each["state"] for each in client.get(f"{PLANTS}/loads").json()["loads"]]
        assert states == ["done", "failed"]


def test_a_load_whose_client_has_gone_says_that(empty: Client) -> None:
    pieces: list[Json] = [{"type": "http.request", "body": ndjson(*items(6)), "more_body": True}]

    async def receive() -> Json:
        return pieces.pop() if pieces else {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        """Nobody hears it."""

    empty.speak("POST", URL, receive, send, content_type="application/x-ndjson")
    [failed] = empty.get(f"{PLANTS}/loads").json()["loads"]
    assert (failed["state"], failed["error"]) == ("failed", "the request ended early")


def test_the_last_loads_are_listed(empty: Client) -> None:
    for number in range(22):
        load(empty, "npy", npy(rows(1)), f"?id_start={number}")
    body = ndjson(*items(6), BAD)
    load(empty, "ndjson", body, "?on_error=skip")
    load(empty, "ndjson", ndjson(*items(4), BAD))
    answer = empty.get(f"{PLANTS}/loads").json()["loads"]
    assert len(answer) == 20
    failed, skipped, *others = answer
    assert (failed["state"], failed["rows"], failed["key"]) == ("failed", 4, None)
    assert "row 4" in failed["error"]
    assert (skipped["state"], skipped["rows"], skipped["rejected"]) == ("done", 7, 1)
    assert (skipped["bytes"], skipped["total_bytes"], skipped["error"]) == (len(body),) * 2 + (
        None,
    )
    zipped = gzip.compress(body)
    sent = {"Content-Type": TYPES["ndjson"], "Content-Encoding": "gzip"}
    empty.post(URL, content=zipped, headers=sent, params={"on_error": "skip"})
    [last, *_] = empty.get(f"{PLANTS}/loads").json()["loads"]
    assert (last["bytes"], last["total_bytes"]) == (len(body), None)
    assert all(entry["rate"] > 0 and entry["started"].endswith("+00:00") for entry in others)
    assert empty.get("/v1/collections/nowhere/loads").status_code == 404
    empty.delete(PLANTS)
    empty.put(PLANTS, json={"dim": 4})
    assert empty.get(f"{PLANTS}/loads").json() == {"loads": []}


def test_a_snapshot_has_the_keys_of_its_moment(
    empty: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = bodies(ROWS)["npy"]
    broken_off(empty, monkeypatch, 3, lambda: keyed(empty, "npy", body))
    half = empty.post(f"{PLANTS}/snapshots").json()["name"]
    answer = load(empty, "npy", body, Idempotency_Key="k", Accept="application/x-ndjson")
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["committed"] for line in told[:-1]] == [16, 20, 23]
    assert told[-1]["inserted"] == ROWS
    restored = empty.post(f"{PLANTS}/snapshots/{half}/restore?replace=true")
    assert restored.status_code == 200, restored.text
    assert count(empty) == 12
    assert counts(keyed(empty, "npy", body)) == (ROWS, 0, 0)
    assert count(empty) == ROWS


# Rows without ids are appended, and never twice under a key


def unnamed(kind: str, array: Json) -> bytes:
    if kind == "npy":
        return npy(array)
    if kind == "ndjson":
        return ndjson(*({"vector": row} for row in array.tolist()))
    return arrow({"vector": fixed(array)}, batch_rows=3)


def put(client: Client, *items: Json, mode: str = "upsert") -> httpx.Response:
    return client.put(f"{PLANTS}/items", json={"items": items, "mode": mode})


def given(answer: httpx.Response) -> tuple[int, int, int, int]:
    """Return how many were inserted and updated, and the first and last number."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["inserted"], told["updated"], int(told["ids"]["first"]), int(told["ids"]["last"])


@pytest.mark.parametrize("mode", ["upsert", "insert"])
@pytest.mark.parametrize("kind", TYPES)
def test_rows_without_ids_are_appended_however_often_they_come(
    empty: Client, kind: str, mode: str
) -> None:
    for array, expected in (
        (rows(10), (10, 0, 0, 9)),
        (rows(10), (10, 0, 10, 19)),
        (rows(5, 50), (5, 0, 20, 24)),
    ):
        assert given(load(empty, kind, unnamed(kind, array), f"?mode={mode}")) == expected
    assert count(empty) == 25
    assert vector_of(empty, "13") == rows(10)[3].tolist()
    assert vector_of(empty, "24") == rows(5, 50)[4].tolist()


@pytest.mark.parametrize("mode", ["upsert", "insert"])
@pytest.mark.parametrize("number", [1, 3, 20])  # committed with others, and alone
def test_items_without_ids_are_appended(empty: Client, mode: str, number: int) -> None:
    items = [{"vector": row} for row in rows(number).tolist()]
    assert given(put(empty, *items, mode=mode)) == (number, 0, 0, number - 1)
    assert given(put(empty, *items, mode=mode)) == (number, 0, number, 2 * number - 1)
    named = put(empty, {"id": 70, "vector": [1, 2, 3, 4]})
    assert named.json() == {"inserted": 1, "updated": 0}
    mixed = {"id": "0", "vector": [4, 3, 2, 1]}, {"vector": [1, 1, 1, 1]}
    assert given(put(empty, *mixed)) == (1, 1, 71, 71)
    assert vector_of(empty, "0") == [4, 3, 2, 1]
    assert count(empty) == 2 * number + 2
    problem = put(empty, {"vector": [1, 2, 3, 4]}, {"vector": [0, 0, 0, 0]})
    assert_problem(problem, 422, "invalid_vector", "item 1")
    assert given(put(empty, {"vector": [1, 2, 3, 4]}))[2] == 72


@pytest.mark.parametrize("kind", TYPES)
def test_rows_that_are_left_out_use_no_number(empty: Client, kind: str) -> None:
    array = rows(8)
    array[[1, 6]] = 0
    body = unnamed(kind, array)
    assert given(load(empty, kind, body, "?on_error=skip")) == (6, 0, 0, 5)
    assert assert_problem(load(empty, kind, body), 422, "invalid_vector")["row"] == 1


@pytest.mark.parametrize("kind", TYPES)
def test_a_load_under_a_key_that_is_sent_again_appends_nothing_twice(
    empty: Client, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    client, body = empty, unnamed(kind, rows(11))
    put(client, {"id": 6, "vector": [1, 2, 3, 4]})
    with monkeypatch.context() as patched:
        failing_at(client.store, patched, 2)
        problem = keyed(client, kind, body)
        assert problem.status_code == 507
        assert problem.json()["ids"] == {"first": "7", "last": "14"}
    put(client, {"vector": [9, 9, 9, 9]})  # another comes between
    again = keyed(client, kind, body)
    assert given(again) == (11, 0, 7, 18)
    before = again.json()["loaded_before"]
    assert (before["inserted"], before["updated"], before["complete"]) == (8, 0, False)
    for row, number in enumerate([*range(7, 15), 16, 17, 18]):
        assert vector_of(client, str(number)) == rows(11)[row].tolist()
    assert count(client) == 13
    assert given(keyed(client, kind, body)) == (11, 0, 7, 18)
    assert count(client) == 13


def test_a_load_that_was_done_before_says_so(empty: Client) -> None:
    body = npy(rows(5))
    assert "loaded_before" not in keyed(empty, "npy", body).json()
    empty.post(f"{PLANTS}/items/delete", json={"ids": [*"01234"]})
    assert count(empty) == 0
    again = keyed(empty, "npy", body).json()
    started = again["loaded_before"].pop("started")
    assert again["loaded_before"] == {
        "inserted": 5, "updated": 0, "rejected_count": 0, "complete": True
    }  # fmt: skip
    assert started.endswith("+00:00")
    assert count(empty) == 0
    anew = keyed(empty, "npy", body, key="another").json()
    assert "loaded_before" not in anew
    assert anew["ids"] == {"first": "5", "last": "9"}
    assert count(empty) == 5
