"""Items that expire, and collections of which all do."""

from typing import Any

import pyarrow as pa
import pytest

from tests.model.shelf import lines
from tests.support.service.client import Client, Json, assert_problem

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/things"
NDJSON = {"content-type": "application/x-ndjson"}
ARROW = {"content-type": "application/vnd.apache.arrow.stream"}
ITEMS = f"{URL}/items"
PAST, FUTURE = "2001-01-01T00:00:00Z", "2127-01-01T00:00:00.500Z"


@pytest.fixture
def things(client: Client) -> Client:
    assert client.put(URL, json={"dim": 2}).status_code == 201
    return client


def item(item_id: Any, **more: Any) -> Json:  # noqa: ANN401
    return {"id": item_id, "vector": [1, -2], **more}


def put(client: Client, *items: Json) -> Any:  # noqa: ANN401
    return client.put(ITEMS, json={"items": items})


def expiries(client: Client) -> dict[str, str | None]:
    """Return when each item expires, after all ways to find items agree."""
    items = client.get(ITEMS).json()["items"]
    for each in items:
        shown = client.get(f"{ITEMS}/{each['id']}").json()
        assert shown.get("expires") == each.get("expires")
    ids = {each["id"] for each in items}
    assert client.get(URL).json()["items"] == len(ids)
    assert client.post(f"{URL}/count", json={}).json()["count"] == len(ids)
    hits = client.post(f"{URL}/query", json={"vector": [1, -2], "limit": 99, "recall": 1}).json()
    assert {hit["id"] for hit in hits["hits"]} == ids
    return {each["id"]: each.get("expires") for each in items}


def test_an_item_that_has_expired_is_found_by_nothing(things: Client) -> None:
    assert put(
        things, item("a", expires=PAST), item("b", expires=FUTURE), item("c", expires=None)
    ).json() == {"inserted": 3, "updated": 0}
    assert expiries(things) == {"b": FUTURE, "c": None}
    assert things.get(f"{ITEMS}/a").status_code == 404
    assert things.delete(f"{ITEMS}/a").status_code == 404
    answer = things.post(f"{URL}/query", json={"id": "a"})
    assert_problem(answer, 404, "item_not_found")
    assert put(things, item("a", if_version=0)).json() == {"inserted": 1, "updated": 0}
    assert expiries(things) == {"b": FUTURE, "c": None, "a": None}


def test_a_payload_keeps_the_time_and_an_upsert_takes_it_away(things: Client) -> None:
    put(things, item("a", expires=FUTURE), item("b", expires=FUTURE))
    assert things.request("PATCH", f"{ITEMS}/a", json={"payload": {"n": 1}}).json()["updated"] == 1
    put(things, item("b"))
    assert expiries(things) == {"a": FUTURE, "b": None}


def test_times_come_with_loads(things: Client) -> None:
    body = lines([item("a", expires=FUTURE), item("b"), item("c", expires="soon")])
    params = f"?expires={PAST}&on_error=skip"
    summary = things.post(f"{URL}/load{params}", content=body, headers=NDJSON).json()
    assert summary["inserted"] == 2
    assert [each["row"] for each in summary["rejected"]] == [2]
    assert expiries(things) == {"a": FUTURE}
    batch = pa.record_batch(
        {
            "id": pa.array(["d", "e"]),
            "vector": pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32())),
            "expires": pa.array([FUTURE, None]),
        }
    )
    for params, found in (("", {"d": FUTURE, "e": None}), ("?columns=payload", {"d": None})):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue().to_pybytes()
        summary = things.post(f"{URL}/load{params}", content=content, headers=ARROW).json()
        assert summary["inserted"] + summary["updated"] == 2
        assert expiries(things).items() >= found.items()
    assert things.get(f"{ITEMS}/d").json()["payload"] == {"expires": FUTURE}


def test_a_collections_ttl_is_shown_and_taken(client: Client) -> None:
    assert client.put(URL, json={"dim": 2, "ttl": 3600}).status_code == 201
    assert client.get(URL).json()["ttl"] == 3600
    put(client, item("a"), item("b", expires=FUTURE), item("c", expires=PAST))
    found = expiries(client)
    assert found["a"] is not None
    assert found == {"a": found["a"], "b": FUTURE}
    assert_problem(client.put(URL, json={"dim": 2, "ttl": 60}), 409, "collection_exists")
    for ttl in (0, -1, 1e10):
        answer = client.put("/v1/collections/others", json={"dim": 2, "ttl": ttl})
        assert_problem(answer, 422, "invalid_parameter", "ttl")


@pytest.mark.parametrize("expires", ["2027-01-01", "soon", 0, -5, 1e12])
def test_what_is_no_time_is_refused_and_nothing_stored(things: Client, expires: Any) -> None:  # noqa: ANN401
    answer = put(things, item("a"), item("b", expires=expires))
    assert_problem(answer, 422, "invalid_parameter", "item 1", "expires")
    answer = things.post(
        f"{URL}/load?expires={expires}", content=lines([item("a")]), headers=NDJSON
    )
    assert_problem(answer, 422, "invalid_parameter", "expires")
    assert expiries(things) == {}
