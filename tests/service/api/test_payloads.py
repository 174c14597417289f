"""Payloads of stored items, changed without their vectors."""

import pytest

from tests.support.service.client import URL, Client, Json, assert_problem, hits, put

pytestmark = pytest.mark.served(front="one", cluster="all")

ITEMS = f"{URL}/items"


@pytest.fixture
def things(empty: Client) -> Client:
    for number, item_id in enumerate(["a", "b/c", "c"]):
        payload = {"n": number, "even": not number % 2}
        put(empty, {"id": item_id, "vector": [number + 1, -1, 0, 0], "payload": payload})
    return empty


def where(key: str, value: object) -> Json:
    return {"must": [{"key": key, "match": {"value": value}}]}


def payload_of(client: Client, item_id: str) -> Json:
    return client.get(f"{ITEMS}/{item_id}").json()["payload"]


def changed(client: Client, path: str, body: Json) -> int:
    answer = client.request("PATCH", f"{ITEMS}{path}", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json().keys() - {"hints"} == {"updated"}
    return int(answer.json()["updated"])


def test_a_payload_is_merged_replaced_and_removed(things: Client) -> None:
    assert changed(things, "/b%2Fc", {"payload": {"n": None, "label": "x"}}) == 1
    assert payload_of(things, "b%2Fc") == {"n": None, "even": False, "label": "x"}
    assert changed(things, "/a", {"payload": {"label": "x"}, "merge": False}) == 1
    assert payload_of(things, "a") == {"label": "x"}
    found = things.post(f"{URL}/query", json={"id": "c", "filter": where("label", "x")}).json()
    assert {hit["id"]: hit["payload"] for hit in found["hits"]} == {
        "a": {"label": "x"},
        "b/c": {"n": None, "even": False, "label": "x"},
    }
    assert changed(things, "/a", {"payload": None, "merge": False}) == 1
    assert payload_of(things, "a") is None
    assert changed(things, "/a", {"payload": {"again": 1}}) == 1
    shown = things.get(ITEMS, params={"with_vector": True}).json()["items"]
    vectors = {each["id"]: each["vector"] for each in shown}
    assert vectors == {"a": [1, -1, 0, 0], "b/c": [2, -1, 0, 0], "c": [3, -1, 0, 0]}


def test_payloads_change_by_a_filter_and_by_ids(things: Client) -> None:
    assert changed(things, "", {"filter": where("even", True), "payload": {"even": "yes"}}) == 2
    assert changed(things, "", {"filter": where("even", True), "payload": {"x": 1}}) == 0
    assert changed(things, "", {"ids": ["c", "nobody", "c"], "payload": {"x": 1}}) == 1
    assert payload_of(things, "a") == {"n": 0, "even": "yes"}
    assert payload_of(things, "c") == {"n": 2, "even": "yes", "x": 1}
    assert changed(things, "", {"ids": [], "payload": {}}) == 0


def test_changes_of_other_keys_at_once_lose_none(things: Client) -> None:
    asked: list[tuple[str, Json]] = [
        (ITEMS, {"filter": where("n", 0), "payload": {f"k{number}": number}})
        if number % 10 == 0
        else (f"{ITEMS}/a", {"payload": {f"k{number}": number}})
        for number in range(80)
    ]
    for answer in things.at_once("PATCH", asked):
        assert answer.json() == {"updated": 1}, answer.text
    expected = {f"k{number}": number for number in range(80)}
    assert payload_of(things, "a") == {"n": 0, "even": True, **expected}


def test_a_payload_that_gets_too_long_is_refused(things: Client) -> None:
    half = "x" * 600_000
    assert changed(things, "/a", {"payload": {"one": half}}) == 1
    for path, more in (("/a", {}), ("", {"ids": ["c", "a"]}), ("", {"filter": where("n", 0)})):
        answer = things.request("PATCH", f"{ITEMS}{path}", json={"payload": {"two": half}, **more})
        assert_problem(answer, 422, "invalid_payload")
        assert "'a'" in answer.json()["detail"]
    assert payload_of(things, "c") == {"n": 2, "even": True}


def test_filters_compare_dates_whatever_their_zones(things: Client) -> None:
    seen = ["2024-03-01T00:30:00+02:00", "2024-03-01", "2024-03-31T23:59:59Z", "March", 20240315]
    for n, date in enumerate(seen):
        put(things, {"id": str(n), "vector": [n + 1, 5, 0, 0], "payload": {"seen": date}})
    march = {"must": [{"key": "seen", "range": {"gte": "2024-03-01", "lt": "2024-04-01"}}]}
    found = hits(things, [1, 5, 0, 0], limit=99, filter=march)
    assert {hit["id"] for hit in found} == {"1", "2"}
    assert things.post(f"{URL}/count", json={"filter": march}).json() == {"count": 2}
    change = {"filter": march, "payload": {"spring": True}}
    assert things.request("PATCH", ITEMS, json=change).status_code == 200
    assert things.get(f"{URL}/items/2").json()["payload"] == {"seen": seen[2], "spring": True}
    deleted = things.post(f"{URL}/items/delete", json={"filter": march})
    assert deleted.json() == {"deleted": 2}
