"""Hints on filters that no item passes."""

import json

import pytest

from tests.support.service.client import Client, Json

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/coffees"
ITEMS: list[Json] = [
    {"label": "dark", "price": 3, "farm": {"altitude": 1500}},
    {"label": ["light", "Medium"], "is_new": True, "n": None},
    {"tags": [{"colour": "red"}], "price": 9007199254740993},
    None,
]


@pytest.fixture
def filled(client: Client) -> Client:
    """Return a client of items whose ids lie on both shards of a cluster."""
    assert client.put(URL, json={"dim": 2}).status_code == 201
    items = [
        {"id": f"i{number + 4 * (number % 2)}", "vector": [1, number], "payload": payload}
        for number, payload in enumerate([*ITEMS, {"label": "brown", "gone": 1}])
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
    assert client.delete(f"{URL}/items/i4").status_code == 204
    return client


def match(key: str, value: Json) -> Json:
    return {"key": key, "match": {"value": value}}


def key(name: str, meant: str = "") -> str:
    return f"no item has the key '{name}'" + (f"; did you mean '{meant}'?" if meant else "")


def value(word: str, name: str, meant: str = "") -> str:
    return f"no item has {word} under '{name}'" + (f"; did you mean {meant}?" if meant else "")


CASES: list[tuple[Json, list[str]]] = [
    ({"must": match("labl", "dark")}, [key("labl", "label")]),
    ({"must": match("label", "drak")}, [value("'drak'", "label", "'dark'")]),
    ({"must": match("label", "medium")}, [value("'medium'", "label", "'Medium'")]),
    ({"must": match("price", "3")}, [value("'3'", "price", "3")]),
    ({"must": match("is_new", "true")}, [value("'true'", "is_new", "true")]),
    ({"must": match("label", "brown")}, [value("'brown'", "label")]),  # it is deleted
    ({"must": match("gone", 1)}, [key("gone")]),
    ({"must": match("farm.altitud", 1500)}, [key("farm.altitud", "farm.altitude")]),
    ({"must": match("tags.color", "red")}, [key("tags.color", "tags.colour")]),
    ({"must": {"key": "pirce", "range": {"gte": 1}}}, [key("pirce", "price")]),
    ({"must": {"key": "lable", "exists": True}}, [key("lable", "label")]),
    ({"must": {"key": "lable", "match": {"prefix": "d"}}}, [key("lable", "label")]),
    (
        {"should": [match("labl", 1), {"must": match("label", "lihgt")}]},
        [key("labl", "label"), value("'lihgt'", "label", "'light'")],
    ),
    (
        {"must": {"key": "label", "match": {"any": [f"x{each}" for each in range(9)]}}},
        [value(f"'x{each}'", "label") for each in range(5)],
    ),
    ({"must": match("label", "x" * 5000)}, [value(f"'{'x' * 64}…'", "label")]),
    (
        {"must": {"key": "label", "is_null": True}},
        ["no item has null under 'label'; 'exists': false finds what lacks it"],
    ),
    ({"must": [{"key": "n", "is_null": True}, match("price", 3)]}, []),
    # Each is there, but not together; and what is not wanted.
    ({"must": [match("label", "dark"), match("is_new", True)]}, []),
    ({"must": {"key": "price", "range": {"lt": 0}}}, []),
    ({"must": match("label", "dark"), "must_not": match("price", 3)}, []),
]


def test_each_answer_about_nothing_has_the_hints(filled: Client) -> None:
    """Items may be in several places, none of which has all keys and values."""
    for condition, hints in CASES:
        more = {"hints": hints} if hints else {}
        query = {"vector": [1, 1], "filter": condition}
        assert filled.post(f"{URL}/query", json=query).json() == {"hits": [], **more}
        page_of_query = filled.post(f"{URL}/query", json={**query, "cursor": True})
        assert page_of_query.json() == {"hits": [], **more}
        around = {"id": "i5", "filter": condition}
        batch = filled.post(f"{URL}/query/batch", json={"queries": [query, {"id": "i5"}, around]})
        first, plain, last = batch.json()["results"]
        assert first == last == {"hits": [], **more}
        assert plain.keys() == {"hits"}
        assert filled.post(f"{URL}/count", json={"filter": condition}).json() == {
            "count": 0,
            **more,
        }
        page = filled.get(f"{URL}/items", params={"filter": json.dumps(condition)}).json()
        assert page == {"items": [], "next_cursor": None, **more}
        answer = filled.post(f"{URL}/groups", json={"min_score": 0.5, "filter": condition})
        grouped = json.loads(answer.text)
        assert grouped.get("hints", []) == hints
        assert grouped["groups"] == 0
        shown = filled.post(f"{URL}/map", json={"filter": condition}).json()
        assert (shown["ids"], shown.get("hints", [])) == ([], hints)
        asked = {"collection": URL.rpartition("/")[2], "limit": 1, "filter": condition}
        joined = json.loads(filled.post(f"{URL}/join", json=asked).text)
        assert (joined["pairs"], joined.get("hints", [])) == (0, hints)
        body = {"filter": condition, "payload": {"seen": True}}
        changed = filled.request("PATCH", f"{URL}/items", json=body)
        assert changed.json() == {"updated": 0, **more}
        deleted = filled.post(f"{URL}/items/delete", json={"filter": condition})
        assert deleted.json() == {"deleted": 0, **more}


@pytest.mark.parametrize(
    ("name", "hints"),
    [("labl", [key("labl", "label")]), ("gone", [key("gone")]), ("label", None), ("n", None)],
)
def test_a_key_that_no_item_has_is_told_where_one_is_shown_or_kept(
    filled: Client, name: str, hints: Json
) -> None:
    answer = filled.post(f"{URL}/groups", json={"min_score": 0.1, "keep": name})
    *groups, last = map(json.loads, answer.text.splitlines())
    assert groups
    assert last.get("hints") == hints
    assert filled.post(f"{URL}/map", json={"key": name}).json().get("hints") == hints


@pytest.mark.parametrize("dim", [2, None])
def test_names_of_a_query_that_no_item_has_are_hints(client: Client, dim: int | None) -> None:
    assert client.put(URL, json={"dim": dim}).status_code == 201
    item: Json = {"id": "a", "vector": {"indices": [0, 1], "values": [1, 2]}}
    if dim is None:
        item["vector"] = {"names": ["body", "acid"], "values": [2, 1]}
    else:
        client.put(f"{URL}/names", json={"names": ["body", "acid"]})
    client.put(f"{URL}/items", json={"items": [item]})

    def hints(*names: str) -> Json:
        queries = [{"vector": {"names": names}, "filter": {}}]
        found = client.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
        alone = client.post(f"{URL}/query", json=queries[0]).json()
        assert found == [alone]
        assert len(alone["hits"]) == 1
        return alone.get("hints")

    meant = "no item has the name 'boby'; did you mean 'body'?"
    assert hints("boby", "xyz") == [meant, "no item has the name 'xyz'"]
    assert hints("boby", "acid") == (None if dim is None else [meant])
    assert hints("body", "acid") is None


def test_what_some_item_passes_has_no_hints(filled: Client) -> None:
    either = {"should": [match("labl", "dark"), match("label", "dark")]}
    for more in ({}, {"min_score": 1.0}, {"offset": 5}):
        found = filled.post(f"{URL}/query", json={"vector": [-1, 5], "filter": either, **more})
        assert found.json().keys() == {"hits"}
    assert filled.post(f"{URL}/count", json={"filter": either}).json() == {"count": 1}
    plain = filled.post(f"{URL}/query", json={"vector": [3, -1], "min_score": 1})
    assert plain.json() == {"hits": []}


def test_a_collection_without_items_has_no_hints(client: Client) -> None:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    asked = {"filter": {"must": match("label", 1)}}
    assert client.post(f"{URL}/count", json=asked).json() == {"count": 0}


def test_a_batch_has_hints_on_its_first_filters(filled: Client) -> None:
    queries = [
        {"vector": [1, 1], "filter": {"must": match(f"labl{number // 2}", 1)}}
        for number in range(20)
    ]
    found = filled.post(f"{URL}/query/batch", json={"queries": queries}).json()["results"]
    assert ["hints" in each for each in found] == [True] * 16 + [False] * 4


def test_payloads_that_changed_since_they_were_put_are_known(filled: Client) -> None:
    def hints(name: str, value: Json) -> Json:
        return filled.post(f"{URL}/count", json={"filter": {"must": match(name, value)}}).json()

    assert hints("colour", 1) == {"count": 0, "hints": [key("colour", "tags.colour")]}
    assert (
        filled.request("PATCH", f"{URL}/items/i7", json={"payload": {"colour": 2}}).status_code
        == 200
    )
    assert hints("colour", 1) == {"count": 0, "hints": ["no item has 1 under 'colour'"]}
    assert hints("colour", 2) == {"count": 1}
    none: Json = {"payload": None, "merge": False}
    assert filled.request("PATCH", f"{URL}/items/i7", json=none).status_code == 200
    assert hints("colour", 2) == {"count": 0, "hints": [key("colour", "tags.colour")]}
