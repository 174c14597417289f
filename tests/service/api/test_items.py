"""Items: put, show, page, delete."""

import json

import pytest

from tests.support.service.client import Client, Json, Serve, assert_problem, count, fill, put

pytestmark = pytest.mark.served(front="all", cluster="one")

URL = "/v1/collections/plants/items"


def test_a_put_counts_inserts_and_updates(client: Client) -> None:
    answer = put(client, {"id": "a", "vector": [1, 1, 1, 1]}, {"id": "new", "vector": [1, 2, 3, 4]})
    assert answer.json() == {"inserted": 1, "updated": 1}
    assert put(client).json() == {"inserted": 0, "updated": 0}
    assert count(client) == 5


def test_an_item_comes_back_as_it_was_sent_by_its_id_as_text(client: Client) -> None:
    dense = {"id": "a", "vector": [0.1, -2.0, 0.0, 3.0], "payload": {"label": 3}, "version": 1}
    assert client.get(f"{URL}/a").json() == dense
    sparse = {"id": "c", "vector": [0.0, -2.0, 0.0, 2.5], "payload": None, "version": 1}
    assert client.get(f"{URL}/c").json() == sparse
    put(client, {"id": -5, "vector": [1, 1, 1, 1]}, {"id": 10**30, "vector": [1, 1, 1, 1]})
    for item_id in ("7", "-5", "1" + 30 * "0"):
        assert client.get(f"{URL}/{item_id}").json()["id"] == item_id


def test_any_text_is_an_id(client: Client) -> None:
    for item_id in ("x/y", "a?b", "ü", "delete", "..x", "%41", " ", "x" * 255, "\n", "a\n", "a\nb",
                    "\x00"):  # fmt: skip
        assert put(client, {"id": item_id, "vector": [1, 1, 1, 1]}).json()["inserted"] == 1
        path = "".join(f"%{byte:02X}" for byte in item_id.encode())
        assert client.get(f"{URL}/{path}").json()["id"] == item_id
        assert client.delete(f"{URL}/{path}").status_code == 204
        assert_problem(client.get(f"{URL}/{path}"), 404, "item_not_found")


def test_an_insert_of_a_known_id_stores_nothing(client: Client) -> None:
    new, known = ({"id": item_id, "vector": [1, 1, 1, 1]} for item_id in "na")
    answer = client.put(URL, json={"items": [new, known], "mode": "insert"})
    assert_problem(answer, 409, "item_exists", "item 1", "'a'")
    assert count(client) == 4


def test_another_content_type_or_encoding_is_unsupported(client: Client) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "image/png"):
        answer = client.put(URL, content=b"{}", headers={"Content-Type": kind})
        assert_problem(answer, 415, "unsupported_media_type", kind)
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = client.put(URL, content=b"{}", headers=headers)
    assert_problem(answer, 415, "unsupported_media_type", "gzip")


def test_limits_on_items_and_payloads_hold(serve: Serve) -> None:
    client = serve(max_items_per_request=4, max_payload_bytes=40)
    fill(client)
    five = [{"id": str(i), "vector": [1, 2, 3, 4]} for i in range(5)]
    assert_problem(put(client, *five), 422, "invalid_parameter", "items", "at most 4", "got 5")
    long = {"id": "x", "vector": [1, 2, 3, 4], "payload": {"a": "x" * 60}}
    assert_problem(put(client, long), 422, "invalid_payload", "item 0", "40 bytes")
    assert_problem(
        client.post(f"{URL}/delete", json={"ids": list("abcde")}), 422, "invalid_parameter", "ids"
    )


def paged(client: Client, **params: Json) -> list[str]:
    seen: list[str] = []
    cursor: Json = {}
    while cursor is not None:
        answer = client.get(URL, params=params | cursor)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        seen += [item["id"] for item in page["items"]]
        cursor = page["next_cursor"] and {"cursor": page["next_cursor"]}
    return seen


def test_pages_show_every_item_once_in_a_stable_order(client: Client) -> None:
    assert paged(client, limit=2) == paged(client) == ["a", "b", "c", "7"]
    [bare, *_] = client.get(URL).json()["items"]
    [whole, *_] = client.get(URL, params={"with_vector": True}).json()["items"]
    assert bare == {"id": "a", "payload": {"label": 3}, "version": 1}
    assert whole == bare | {"vector": [0.1, -2.0, 0.0, 3.0]}


LABEL_3 = json.dumps({"must": [{"key": "label", "match": {"value": 3}}]})


@pytest.mark.parametrize("transform", [{}, {"normalize": "l2"}])
@pytest.mark.parametrize("with_vector", [False, True])
def test_pages_show_the_items_that_pass_a_filter(
    serve: Serve, transform: Json, with_vector: bool
) -> None:
    client = serve()
    fill(client, transform=transform)
    shown = {"with_vector": with_vector, "limit": 1}
    assert paged(client, filter=LABEL_3, **shown) == ["a", "7"]
    assert paged(client, filter='{"must_not": ' + LABEL_3 + "}", **shown) == ["b", "c"]
    assert paged(client, filter="{}", **shown) == paged(client, filter="null", **shown)
    put(client, {"id": "a", "vector": [1, 1, 1, 1], "payload": {"label": 3, "n": 2**70}})
    assert paged(client, filter=LABEL_3, **shown) == ["7", "a"]  # an update puts it at the end
    exact = json.dumps({"must": {"key": "n", "match": {"value": 2**70 + 1}}})
    assert paged(client, filter=exact) == []
    [item] = client.get(URL, params={"filter": LABEL_3, "limit": 1, "with_vector": True}).json()[
        "items"
    ]
    assert item == client.get(f"{URL}/7").json()


@pytest.mark.parametrize("with_vector", [False, True])
def test_pages_show_the_items_that_are_named(client: Client, with_vector: bool) -> None:
    put(client, {"id": "x,y", "vector": [1, 1, 1, 1]})
    shown = {"with_vector": with_vector, "limit": 2}
    assert paged(client, ids="c,a,absent,7,a", **shown) == ["a", "c", "7"]
    assert paged(client, ids=["7", "x,y", "absent", "a"], **shown) == ["a", "7", "x,y"]
    assert paged(client, ids="x,y") == []
    assert paged(client, ids="absent") == []
    client.delete(f"{URL}/a")
    assert paged(client, ids="a,b") == ["b"]


PLANTS = "/v1/collections/plants"


@pytest.mark.parametrize("replaced", ["dropped", "restored", "never"])
def test_a_cursor_continues_in_the_collection_that_returned_it(serve: Serve, replaced: str) -> None:
    client = serve()
    fill(client)
    snapshot = client.post(f"{PLANTS}/snapshots").json()["name"]
    asked = {"limit": 2, "cursor": client.get(URL, params={"limit": 2}).json()["next_cursor"]}
    if replaced == "dropped":
        client.delete(PLANTS)
        fill(client)
    elif replaced == "restored":
        client.post(f"{PLANTS}/snapshots/{snapshot}/restore?replace=true")
    else:
        client = serve()
        put(client, {"id": "new", "vector": [1, 1, 1, 1]})
    answer = client.get(URL, params=asked)
    if replaced == "never":
        assert [item["id"] for item in answer.json()["items"]] == ["c", "7"]
    else:
        assert_problem(answer, 422, "invalid_parameter", "cursor", "created or restored")


def test_items_can_be_deleted_by_ids_or_by_filter(client: Client) -> None:
    answer = client.post(f"{URL}/delete", json={"ids": ["a", 7, "unknown", "a"]})
    assert answer.json() == {"deleted": 2}
    assert count(client) == 2
    assert client.post(f"{URL}/delete", json={"ids": []}).json() == {"deleted": 0}
    assert_problem(client.delete(f"{URL}/a"), 404, "item_not_found", "'a'")
    body = {"filter": {"must": [{"key": "label", "match": {"value": 1}}]}}
    assert client.post(f"{URL}/delete", json=body).json() == {"deleted": 1}
    assert client.get(f"{URL}/c").status_code == 200


def test_an_over_long_id_in_a_path_is_refused(client: Client) -> None:
    assert_problem(client.get(f"{URL}/{'x' * 256}"), 422, "invalid_id", "256")
    assert client.get(f"{URL}/").json() == client.get(URL).json()


def test_what_is_not_utf_8_in_a_url_is_refused(client: Client) -> None:
    put(client, {"id": "\ufffd", "vector": [1, 1, 1, 1]})
    assert client.get(f"{URL}/%EF%BF%BD").json()["id"] == "\ufffd"
    for method in ("GET", "DELETE"):
        answer = client.request(method, f"{URL}/%FF")
        assert_problem(answer, 422, "invalid_parameter", "expected UTF-8", "%FF")
    assert len(client.get(f"{URL}?q=%EF%BF%BD").json()["items"]) == 1
    for query in ("q=%FF", "limit=3&q=a%C3"):
        answer = client.get(f"{URL}?{query}")
        assert_problem(answer, 422, "invalid_parameter", "expected UTF-8", query)


@pytest.mark.parametrize("limit", ["1_0", "1_0.0"])
def test_a_number_with_underscores_in_a_url_is_refused(client: Client, limit: str) -> None:
    assert_problem(client.get(URL, params={"limit": limit}), 422, "invalid_parameter", limit)
    curve = client.get(URL.replace("/items", "/curve"), params={"limit": limit})
    assert_problem(curve, 422, "invalid_parameter", limit)


def test_of_an_id_that_comes_twice_the_last_item_is_stored(client: Client) -> None:
    items = [{"id": "twice", "vector": [n, 1, 0, 0], "payload": {"n": n}} for n in (1, 2)]
    assert client.put(URL, json={"items": items}).json() == {"inserted": 1, "updated": 0}
    found = client.get(f"{URL}/twice").json()
    assert (found["vector"], found["payload"], found["version"]) == ([2, 1, 0, 0], {"n": 2}, 1)
    again = client.put(URL, json={"items": items, "mode": "insert"})
    assert_problem(again, 409, "item_exists", "'twice'")
