"""Writes on a version of an item: the last one read, or refused as a whole."""

from typing import Any

import pytest

from tests.support.service.bodies import load, ndjson
from tests.support.service.client import URL, Client, Json, assert_problem, put

pytestmark = pytest.mark.served(front="one", cluster="all")

ITEMS = f"{URL}/items"


@pytest.fixture
def things(empty: Client) -> Client:
    """Return a client of a collection of the items a and b, which are of versions 2 and 1."""
    put(empty, item("a"), item("b"))
    put(empty, item("a"))
    return empty


def item(item_id: Any, **more: Any) -> Json:  # noqa: ANN401
    return {"id": item_id, "vector": [1, -2, 0, 0], **more}


def versions(client: Client) -> dict[str, int]:
    items = client.get(ITEMS).json()["items"]
    for each in items:
        assert client.get(f"{ITEMS}/{each['id']}").json()["version"] == each["version"]
    return {each["id"]: each["version"] for each in items}


def test_each_write_of_an_item_counts(things: Client) -> None:
    assert versions(things) == {"b": 1, "a": 2}
    things.request("PATCH", f"{ITEMS}/a", json={"payload": {"n": 1}})
    things.request("PATCH", ITEMS, json={"ids": ["b", "a"], "payload": {"n": 2}})
    assert versions(things) == {"b": 2, "a": 4}
    assert load(things, "ndjson", ndjson(item("a"), item("c"))).json()["updated"] == 1
    assert versions(things) == {"b": 2, "a": 5, "c": 1}
    things.delete(f"{ITEMS}/a")
    put(things, item("a"))
    assert versions(things) == {"b": 2, "c": 1, "a": 1}


def test_a_put_on_versions_is_made_or_refused_as_a_whole(things: Client) -> None:
    assert put(things, item("a", if_version=2), item("c", if_version=0)).json() == {
        "inserted": 1, "updated": 1,
    }  # fmt: skip
    before = things.get(ITEMS).text
    for wrong, expected, got in (
        (item("a", if_version=2), 2, 3),
        (item("b", if_version=0), 0, 1),
        (item("d", if_version=1), 1, 0),
    ):
        answer = put(things, item("e"), item("f", if_version=0), wrong)
        problem = assert_problem(answer, 409, "version_conflict")
        assert (problem["expected"], problem["got"]) == (expected, got)
        assert repr(wrong["id"]) in problem["detail"]
        assert "item 2" in problem["detail"]
    assert things.get(ITEMS).text == before


def test_changes_and_deletes_on_a_version(things: Client) -> None:
    wrong = things.request("PATCH", f"{ITEMS}/a", json={"payload": {}, "if_version": 1})
    problem = assert_problem(wrong, 409, "version_conflict")
    assert (problem["expected"], problem["got"]) == (1, 2)
    right: Json = {"payload": {"n": 1}, "if_version": 2}
    assert things.request("PATCH", f"{ITEMS}/a", json=right).json() == {"updated": 1}
    assert_problem(things.request("PATCH", f"{ITEMS}/nobody", json=right), 409, "version_conflict")
    assert_problem(things.delete(f"{ITEMS}/a?if_version=2"), 409, "version_conflict")
    assert versions(things) == {"b": 1, "a": 3}
    assert things.delete(f"{ITEMS}/a?if_version=3").status_code == 204
    assert_problem(things.delete(f"{ITEMS}/a?if_version=3"), 409, "version_conflict")
    assert versions(things) == {"b": 1}


def test_of_writes_on_one_version_at_once_one_is_made(things: Client) -> None:
    asked: list[tuple[str, Json]] = [
        (ITEMS, {"items": [item("a", if_version=2, payload={"n": n}), item(f"only {n}")]})
        for n in range(20)
    ]
    answers = [answer.json() for answer in things.at_once("PUT", asked)]
    won = [n for n, answer in enumerate(answers) if "inserted" in answer]
    assert [answer["code"] for answer in answers if "code" in answer] == ["version_conflict"] * 19
    assert versions(things) == {"b": 1, "a": 3, f"only {won[0]}": 1}
    assert things.get(f"{ITEMS}/a").json()["payload"] == {"n": won[0]}


def test_an_item_can_be_put_as_it_is_shown(things: Client) -> None:
    shown = things.get(ITEMS, params={"with_vector": True}).json()["items"]
    assert put(things, *shown).json() == {"inserted": 0, "updated": 2}
    assert load(things, "ndjson", ndjson(*shown)).json()["updated"] == 2
    assert versions(things) == {"b": 3, "a": 4}
