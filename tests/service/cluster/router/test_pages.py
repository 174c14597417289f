"""Pages of a filter, and items that a text finds, which another router changes meanwhile."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedChoice
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from tests.support.service.client import Json, running
from tests.support.service.cluster import BUCKETS, ClusterClient
from tests.support.service.postgres import postgres

URL = "/v1/collections/plants"
RED = '{"must": [{"key": "colour", "match": {"value": "red"}}]}'
ALONE = HostOptions(poll_seconds=600)
"""Follows what it is told of, or asked for."""


class Both:
    """A router, and another one whose writes the shards are not told of."""

    def __init__(self, client: ClusterClient, committer: Committer) -> None:
        self.client = client
        self.committer = committer

    def paint(self, item_id: str, colour: str) -> None:
        payload = f'{{"colour": "{colour}"}}'.encode()
        change = ix.PayloadChange(payload, merge=False)
        assert self.committer.commit(PreparedChoice(change=change, ids=[item_id])) == 1

    def delete(self, item_id: str) -> None:
        assert self.committer.commit(PreparedChoice(ids=[item_id])) == 1

    def list(self, **asked: Json) -> Json:
        """Return a page of the router that knows nothing of the other one."""
        answer = self.client.get(f"{URL}/items", params=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def red(self) -> dict[str, int]:
        """Return the versions of all red items, page by page."""
        found, more = dict[str, int](), dict[str, str]()
        while True:
            page = self.list(filter=RED, limit=2, **more)
            found |= {item["id"]: item["version"] for item in page["items"]}
            if page["next_cursor"] is None:
                return found
            more = {"cursor": page["next_cursor"]}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    with (
        postgres().database() as url,
        running(ClusterClient(url, tmp_path, options=ALONE)) as client,
        closing(Database.open(url, buckets=BUCKETS)) as database,
    ):
        assert client.put(URL, json={"dim": 2}).status_code == 201
        items = [{"id": i, "vector": [1, 1], "payload": {"colour": "red"}} for i in "abcd"]
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        found = database.find("plants")
        assert found is not None
        yield Both(client, Committer(database, found.number, "plants"))


@pytest.mark.parametrize("changed", ["a", "b", "c", "d", "ad", "abcd"])
def test_an_item_that_another_router_changes_is_on_a_page_of_a_filter(
    both: Both, changed: str
) -> None:
    for item_id in changed:
        both.paint(item_id, "red")
    assert both.red() == {each: 1 + (each in changed) for each in "abcd"}


def test_pages_of_a_filter_leave_out_what_another_router_deleted_or_changed(both: Both) -> None:
    both.paint("a", "blue")
    both.delete("d")
    assert both.red() == {"b": 1, "c": 1}


def test_items_that_a_filter_changes_keep_their_order(both: Both) -> None:
    change = {"filter": json.loads(RED), "payload": {"is_seen": True}}
    answer = both.client.request("PATCH", f"{URL}/items", json=change)
    assert answer.json() == {"updated": 4}, answer.text
    assert [*both.red()] == [*"abcd"]


@pytest.mark.parametrize("text", ["a", "red"])
def test_a_text_finds_items_as_another_router_left_them(both: Both, text: str) -> None:
    both.paint("a", "dark red")
    both.paint("b", "blue")
    both.delete("c")
    found = both.list(q=text)["items"]
    assert [(each["id"], each["payload"]["colour"]) for each in found] == {
        "a": [("a", "dark red")],
        "red": [("a", "dark red"), ("d", "red")],
    }[text]
