"""Rows without ids: appended by every route and format, and never twice under a key."""

import httpx
import pytest

from tests.support.service.bodies import (
    arrow,
    failing_at,
    fixed,
    load,
    ndjson,
    npy,
    rows,
    vector_of,
)
from tests.support.service.client import Client, Json, Serve, assert_problem, count
from tests.support.service.queries import URL as PLANTS

pytestmark = pytest.mark.served(cluster="few")


def body_of(kind: str, n: int, first: int = 0) -> bytes:
    match kind:
        case "npy":
            return npy(rows(n, first))
        case "ndjson":
            return ndjson(*({"vector": row} for row in rows(n, first).tolist()))
    return arrow({"vector": fixed(rows(n, first))}, batch_rows=3)


def put(client: Client, *items: Json, mode: str = "upsert") -> httpx.Response:
    return client.put(f"{PLANTS}/items", json={"items": items, "mode": mode})


def given(answer: httpx.Response) -> tuple[int, int, int, int]:
    """Return how many were inserted and updated, and the first and last number."""
    assert answer.status_code == 200, answer.text
    told = answer.json()
    return told["inserted"], told["updated"], int(told["ids"]["first"]), int(told["ids"]["last"])


@pytest.mark.parametrize("mode", ["upsert", "insert"])
@pytest.mark.parametrize("kind", ["ndjson", "npy", "arrow"])
def test_rows_without_ids_are_appended_however_often_they_come(
    serve: Serve, kind: str, mode: str
) -> None:
    client = serve(load_chunk_rows=4)
    client.put(PLANTS, json={"dim": 4})
    assert given(load(client, kind, body_of(kind, 10), f"?mode={mode}")) == (10, 0, 0, 9)
    assert given(load(client, kind, body_of(kind, 10), f"?mode={mode}")) == (10, 0, 10, 19)
    assert given(load(client, kind, body_of(kind, 5, 50), f"?mode={mode}")) == (5, 0, 20, 24)
    assert count(client) == 25
    assert vector_of(client, "13") == rows(10)[3].tolist()
    assert vector_of(client, "24") == rows(5, 50)[4].tolist()


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


@pytest.mark.parametrize("kind", ["ndjson", "npy", "arrow"])
def test_rows_that_are_left_out_use_no_number(serve: Serve, kind: str) -> None:
    client = serve(load_chunk_rows=3)
    client.put(PLANTS, json={"dim": 4})
    array = rows(8)
    array[[1, 6]] = 0
    body = {
        "npy": npy(array),
        "ndjson": ndjson(*({"vector": row} for row in array.tolist())),
        "arrow": arrow({"vector": fixed(array)}),
    }[kind]
    assert given(load(client, kind, body, "?on_error=skip")) == (6, 0, 0, 5)
    problem = assert_problem(load(client, kind, body), 422, "invalid_vector")
    if kind == "ndjson":
        assert problem["row"] == 1


@pytest.mark.parametrize("kind", ["ndjson", "npy", "arrow"])
def test_a_load_under_a_key_that_is_sent_again_appends_nothing_twice(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    client = serve(load_chunk_rows=4)
    client.put(PLANTS, json={"dim": 4})
    put(client, {"id": 6, "vector": [1, 2, 3, 4]})
    with monkeypatch.context() as patched:
        failing_at(client.store, patched, 2)
        problem = load(client, kind, body_of(kind, 11), Idempotency_Key="k")
        assert problem.status_code == 507
        assert problem.json()["ids"] == {"first": "7", "last": "14"}
    put(client, {"vector": [9, 9, 9, 9]})  # another comes between
    again = load(client, kind, body_of(kind, 11), Idempotency_Key="k")
    assert given(again) == (11, 0, 7, 18)
    before = again.json()["loaded_before"]
    assert (before["inserted"], before["updated"], before["complete"]) == (8, 0, False)
    for row, number in enumerate([*range(7, 15), 16, 17, 18]):
        assert vector_of(client, str(number)) == rows(11)[row].tolist()
    assert count(client) == 13
    whole = load(client, kind, body_of(kind, 11), Idempotency_Key="k")
    assert given(whole) == (11, 0, 7, 18)
    assert count(client) == 13


def test_a_load_that_was_done_before_says_so(empty: Client) -> None:
    body = npy(rows(5))
    first = load(empty, "npy", body, Idempotency_Key="k").json()
    assert "loaded_before" not in first
    empty.post(f"{PLANTS}/items/delete", json={"filter": {"must_not": [
        {"key": "none", "match": {"value": 1}}]}})  # fmt: skip
    assert count(empty) == 0
    again = load(empty, "npy", body, Idempotency_Key="k").json()
    started = again["loaded_before"].pop("started")
    assert again["loaded_before"] == {
        "inserted": 5, "updated": 0, "rejected_count": 0, "complete": True
    }  # fmt: skip
    assert started.endswith("+00:00")
    assert count(empty) == 0
    anew = load(empty, "npy", body, Idempotency_Key="another").json()
    assert "loaded_before" not in anew
    assert anew["ids"] == {"first": "5", "last": "9"}
    assert count(empty) == 5
