"""Items that expire, and collections of which all do."""

from typing import Any

import pytest

from tests.support.service.bodies import arrow, load, ndjson
from tests.support.service.client import URL, Client, Json, Serve, assert_problem, hits, put

pytestmark = pytest.mark.served(front="one", cluster="one")

ITEMS = f"{URL}/items"
PAST, FUTURE = "2001-01-01T00:00:00Z", "2127-01-01T00:00:00.500Z"


def item(item_id: Any, **more: Any) -> Json:  # noqa: ANN401
    return {"id": item_id, "vector": [1, -2, 0, 0], **more}


def expiries(client: Client) -> dict[str, str | None]:
    """Return when each item expires, after all ways to find items agree."""
    items = client.get(ITEMS).json()["items"]
    for each in items:
        shown = client.get(f"{ITEMS}/{each['id']}").json()
        assert shown.get("expires") == each.get("expires")
    ids = {each["id"] for each in items}
    assert client.get(URL).json()["items"] == len(ids)
    assert client.post(f"{URL}/count", json={}).json()["count"] == len(ids)
    found = hits(client, [1, -2, 0, 0], limit=99, recall=1)
    assert {hit["id"] for hit in found} == ids
    return {each["id"]: each.get("expires") for each in items}


def test_an_item_that_has_expired_is_found_by_nothing(empty: Client) -> None:
    assert put(
        empty, item("a", expires=PAST), item("b", expires=FUTURE), item("c", expires=None)
    ).json() == {"inserted": 3, "updated": 0}
    assert expiries(empty) == {"b": FUTURE, "c": None}
    assert empty.get(f"{ITEMS}/a").status_code == 404
    assert empty.delete(f"{ITEMS}/a").status_code == 404
    answer = empty.post(f"{URL}/query", json={"id": "a"})
    assert_problem(answer, 404, "item_not_found")
    assert put(empty, item("a", if_version=0)).json() == {"inserted": 1, "updated": 0}
    assert expiries(empty) == {"b": FUTURE, "c": None, "a": None}


def test_a_payload_keeps_the_time_and_an_upsert_takes_it_away(empty: Client) -> None:
    put(empty, item("a", expires=FUTURE), item("b", expires=FUTURE))
    assert empty.request("PATCH", f"{ITEMS}/a", json={"payload": {"n": 1}}).json()["updated"] == 1
    put(empty, item("b"))
    assert expiries(empty) == {"a": FUTURE, "b": None}


def test_times_come_with_loads(empty: Client) -> None:
    body = ndjson(item("a", expires=FUTURE), item("b"), item("c", expires="soon"))
    summary = load(empty, "ndjson", body, f"?expires={PAST}&on_error=skip").json()
    assert summary["inserted"] == 2
    assert [each["row"] for each in summary["rejected"]] == [2]
    assert expiries(empty) == {"a": FUTURE}
    vectors = [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]]
    body = arrow({"id": ["d", "e"], "vector": vectors, "expires": [FUTURE, None]})
    for params, found in (("", {"d": FUTURE, "e": None}), ("?columns=payload", {"d": None})):
        summary = load(empty, "arrow", body, params).json()
        assert summary["inserted"] + summary["updated"] == 2
        assert expiries(empty).items() >= found.items()
    assert empty.get(f"{ITEMS}/d").json()["payload"] == {"expires": FUTURE}


def test_a_collections_ttl_is_shown_and_taken(serve: Serve) -> None:
    client = serve()
    assert client.put(URL, json={"dim": 4, "ttl": 3600}).status_code == 201
    assert client.get(URL).json()["ttl"] == 3600
    put(client, item("a"), item("b", expires=FUTURE), item("c", expires=PAST))
    found = expiries(client)
    assert found["a"] is not None
    assert found == {"a": found["a"], "b": FUTURE}
    assert_problem(client.put(URL, json={"dim": 4, "ttl": 60}), 409, "collection_exists")
    for ttl in (0, -1, 1e10):
        answer = client.put("/v1/collections/others", json={"dim": 2, "ttl": ttl})
        assert_problem(answer, 422, "invalid_parameter", "ttl")


@pytest.mark.parametrize("expires", ["2027-01-01", "soon", 0, -5, 1e12])
def test_what_is_no_time_is_refused_and_nothing_stored(empty: Client, expires: Any) -> None:  # noqa: ANN401
    answer = put(empty, item("a"), item("b", expires=expires))
    assert_problem(answer, 422, "invalid_parameter", "item 1", "expires")
    answer = load(empty, "ndjson", ndjson(item("a")), f"?expires={expires}")
    assert_problem(answer, 422, "invalid_parameter", "expires")
    assert expiries(empty) == {}
