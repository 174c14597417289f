"""Snapshots through the API, and commands that look after a folder."""

import hashlib
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from gcws_search.commands.app import app
from tests.support.service.client import (
    Client,
    Json,
    Serve,
    assert_problem,
    chunked,
    count,
    fill,
    started,
)

pytestmark = pytest.mark.served(front="one", cluster="one")

URL = "/v1/collections/plants/snapshots"
SQLITE = {"Content-Type": "application/vnd.sqlite3"}
QUERY = {"vector": [0.1, -2, 0, 3], "limit": 4, "with_vector": True}


def made(client: Client) -> dict[str, Json]:
    response = client.post(URL)
    assert response.status_code == 201, response.text
    shown: dict[str, Json] = response.json()
    return shown


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Client]:
    """Return a client of an empty server."""
    client = started(tmp_path / "other")
    client.wait_until_ready()
    yield client
    client.stop()


def test_a_snapshot_moves_to_an_empty_server_that_answers_the_same(
    client: Client, other: Client
) -> None:
    snapshot = made(client)
    assert client.get(URL).json() == {"snapshots": [snapshot]}
    got = client.get(f"{URL}/{snapshot['name']}")
    assert got.headers["etag"] == f'"{snapshot["sha256"]}"'
    assert hashlib.sha256(got.content).hexdigest() == snapshot["sha256"]
    assert len(got.content) == snapshot["bytes"] == int(got.headers["content-length"])

    moved, pieces = f"{URL}/moved?sha256={snapshot['sha256']}", chunked(got.content, 5000)
    sent = other.put(moved, content=pieces, headers=SQLITE)
    assert (sent.status_code, sent.json()["sha256"]) == (201, snapshot["sha256"])
    restored = other.post(f"{URL}/moved/restore")
    assert (restored.status_code, restored.json()["items"]) == (200, 4)
    found, expected = (
        each.post("/v1/collections/plants/query", json=QUERY).json() for each in (other, client)
    )
    assert found == expected

    assert client.delete(f"{URL}/{snapshot['name']}").status_code == 204
    assert_problem(client.get(f"{URL}/{snapshot['name']}"), 404, "snapshot_not_found")
    assert client.get(URL).json() == {"snapshots": []}
    assert_problem(client.post("/v1/collections/none/snapshots"), 404, "collection_not_found")
    assert_problem(client.post(f"{URL}/none/restore"), 404, "snapshot_not_found")


def test_a_restore_replaces_what_exists_only_when_told(client: Client) -> None:
    name = made(client)["name"]
    client.delete("/v1/collections/plants/items/a")
    assert_problem(client.post(f"{URL}/{name}/restore"), 409, "collection_exists")
    assert count(client) == 3
    assert client.post(f"{URL}/{name}/restore?replace=true").status_code == 200
    assert count(client) == 4
    client.delete("/v1/collections/plants")
    assert client.post(f"{URL}/{name}/restore").json()["items"] == 4


def test_a_number_that_a_deleted_item_had_is_not_given_again(client: Client) -> None:
    items, new = "/v1/collections/plants/items", {"items": [{"vector": [1, 2, 3, 4]}]}
    given = client.put(items, json=new).json()["ids"]["first"]
    assert client.delete(f"{items}/{given}").status_code == 204
    name = made(client)["name"]
    assert client.post(f"{URL}/{name}/restore?replace=true").status_code == 200
    assert int(client.put(items, json=new).json()["ids"]["first"]) == int(given) + 1


def test_uploads_that_are_no_snapshots_are_refused(client: Client, serve: Serve) -> None:
    put: Callable[..., httpx.Response] = client.put
    assert_problem(put(f"{URL}/x", content=b"text", headers=SQLITE), 422, "damaged_snapshot")
    bad = put(f"{URL}/x?sha256={'0' * 64}", content=b"text", headers=SQLITE)
    assert_problem(bad, 422, "damaged_snapshot", "SHA-256")
    assert_problem(put(f"{URL}/x?sha256=0", headers=SQLITE), 422, "invalid_parameter", "sha256")
    assert_problem(put(f"{URL}/-x", headers=SQLITE), 422, "invalid_parameter", "snapshot")
    assert_problem(put(f"{URL}/x", json={}), 415, "unsupported_media_type")
    assert client.get(URL).json() == {"snapshots": []}
    small = serve(max_snapshot_bytes=1000)
    for body in (b"x" * 1001, chunked(b"x" * 1001)):
        refused = small.put(f"{URL}/x", content=body, headers=SQLITE)
        assert_problem(refused, 413, "body_too_large")
    assert small.get(URL).json() == {"snapshots": []}


def test_no_more_collections_are_restored_than_there_may_be(serve: Serve) -> None:
    client = serve(max_collections=1)
    fill(client)
    name = made(client)["name"]
    client.delete("/v1/collections/plants")
    fill(client, "others")
    refused = client.post(f"{URL}/{name}/restore")
    assert_problem(refused, 507, "too_many_collections")
    client.delete("/v1/collections/others")
    assert client.post(f"{URL}/{name}/restore").status_code == 200


# The command line


@pytest.mark.one_process
def test_the_command_line_checks_repairs_and_vacuums_a_folder(serve: Serve, data_dir: Path) -> None:
    client = serve()
    fill(client)
    client.stop()
    command = ["check", str(data_dir)]
    assert CliRunner().invoke(app, command).output == "plants: sound, 4 items\n"
    connection = sqlite3.connect(data_dir / "plants.sqlite", isolation_level=None)
    connection.execute("UPDATE items SET payload = '{}' WHERE id = 'a'")
    connection.close()
    damaged = CliRunner().invoke(app, command)
    assert damaged.exit_code == 1
    assert damaged.output.startswith("plants: damaged, 3 items, 1 lost\n")
    assert "'a'" in damaged.output
    repaired = CliRunner().invoke(app, [*command, "--repair"])
    assert (repaired.exit_code, repaired.output[:17]) == (0, "plants: repaired,")
    client, vacuum = serve(), ["vacuum", str(data_dir)]
    assert count(client) == 3
    for each in (command, vacuum):
        assert "in use" in CliRunner().invoke(app, each).output
    client.stop()
    done = CliRunner().invoke(app, [*vacuum, "--json"])
    size = (data_dir / "plants.sqlite").stat().st_size
    assert (done.exit_code, json.loads(done.output)["after"]) == (0, size)
    assert count(serve()) == 3
    missing = CliRunner().invoke(app, ["check", str(data_dir / "none")])
    assert (missing.exit_code, f"{data_dir / 'none'}:" in missing.output) == (1, True)


def test_a_snapshot_with_a_trigger_is_refused(client: Client, tmp_path: Path) -> None:
    file = tmp_path / "false.sqlite"
    file.write_bytes(client.get(f"{URL}/{made(client)['name']}").content)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("CREATE TRIGGER t AFTER DELETE ON items BEGIN DELETE FROM meta; END")
    url = "/v1/collections/false/snapshots/s"
    assert client.put(url, content=file.read_bytes(), headers=SQLITE).status_code == 201
    assert_problem(client.post(f"{url}/restore"), 422, "damaged_snapshot")
    names = [each["name"] for each in client.get("/v1/collections").json()["collections"]]
    assert names == ["plants"]
