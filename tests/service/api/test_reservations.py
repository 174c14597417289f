"""Requests that meet on one name: 409 with a time to come again, never 500."""

from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gcws_search.index.collection import catalog as catalog_module
from gcws_search.index.storage.data_directory import DataDirectory
from gcws_search.index.storage.store import Store
from tests.support.pausing import Work, paused_at
from tests.support.service.client import Client, Json, Serve, assert_problem, count

URL = "/v1/collections/plants"
SQLITE = {"Content-Type": "application/vnd.sqlite3"}
CONFIG = {"dim": 4}
ITEMS = {"items": [{"id": "z", "vector": [1, 2, 3, 4]}]}

REQUESTS: dict[str, tuple[str, str, Json]] = {
    "create": ("PUT", URL, CONFIG),
    "drop": ("DELETE", URL, None),
    "snapshot": ("POST", f"{URL}/snapshots", None),
    "restore": ("POST", f"{URL}/snapshots/s/restore?replace=true", None),
}
"""Operations on one name: method, path and body."""


def ask(client: Client, operation: str) -> httpx.Response:
    method, path, body = REQUESTS[operation]
    return client.request(method, path, json=body)


@pytest.fixture
def catalog(client: Client) -> Any:  # noqa: ANN401
    """Return the catalog of an application whose "plants" have a snapshot "s"."""
    opened = client.app.state.service.collections
    opened.snapshot("plants", "s")
    return opened


def test_what_comes_meanwhile_is_told_to_come_again(client: Client, catalog: Any) -> None:  # noqa: ANN401
    with paused_at(DataDirectory, "remove", lambda: catalog.drop("plants")) as paused:
        for operation in REQUESTS:
            answer = ask(client, operation)
            assert_problem(answer, 409, "collection_busy", "plants", "try again")
            assert answer.headers["retry-after"] == "1"
    assert paused.error is None
    for operation in ("create", "snapshot", "restore", "drop"):
        assert ask(client, operation).is_success


def test_a_snapshot_sent_under_a_name_that_is_being_written_is_told_to_come_again(
    client: Client,
    catalog: Any,  # noqa: ANN401
) -> None:
    content = client.get(f"{URL}/snapshots/s").content
    incoming = catalog.snapshots.incoming("plants", "x")
    refused = client.put(f"{URL}/snapshots/x", content=content, headers=SQLITE)
    assert_problem(refused, 409, "collection_busy")
    incoming.discard()
    assert client.put(f"{URL}/snapshots/x", content=content, headers=SQLITE).status_code == 201
    for bad in (b"text", content):  # neither an upload that fails nor one refused keeps the name
        client.put(f"{URL}/snapshots/y", content=bad, headers=SQLITE)
    assert client.get(f"{URL}/snapshots/y").status_code == 200


def test_what_is_written_to_a_collection_that_is_being_replaced_may_be_sent_again(
    client: Client,
    catalog: Any,  # noqa: ANN401
) -> None:
    old = catalog.get("plants")

    restore = partial(catalog.restore, "plants", "s", replace=True)
    with paused_at(DataDirectory, "publish", restore), pytest.MonkeyPatch.context() as patched:
        answer = client.put(f"{URL}/items", json=ITEMS)
        assert_problem(answer, 503, "loading")
        patched.setattr(catalog_module.Catalog, "get", lambda *_: old)  # had before it was closed
        late = client.put(f"{URL}/items", json=ITEMS)
        assert_problem(late, 503, "loading")
        assert late.headers["retry-after"]
    assert client.put(f"{URL}/items", json=ITEMS).is_success
    assert count(client) == 5


def test_many_who_make_sure_of_one_collection_all_have_it(serve: Serve, data_dir: Path) -> None:
    client = serve()
    answers = client.at_once("PUT", [(URL, CONFIG)] * 8)
    assert sorted(answer.status_code for answer in answers) == [200] * 7 + [201]
    assert [path.name for path in data_dir.glob("*.sqlite")] == ["plants.sqlite"]


def test_of_many_new_collections_at_once_no_more_are_made_than_there_may_be(serve: Serve) -> None:
    client = serve(max_collections=2)
    asked = [(f"/v1/collections/c{number}", CONFIG) for number in range(6)]
    answers = client.at_once("PUT", asked)
    assert sorted(answer.status_code for answer in answers) == [201] * 2 + [507] * 4


def test_a_collection_is_created_while_another_one_is_being_created(serve: Serve) -> None:
    client = serve()
    service = client.app.state.service
    client.put(URL, json=CONFIG)
    config = service.catalog.get("plants").config
    with paused_at(Store, "create", lambda: service.create("others", config)):
        made = Work(lambda: client.put("/v1/collections/more", json=CONFIG))
        made.join()
        assert made.result.status_code == 201
