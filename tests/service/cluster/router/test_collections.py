"""What a router knows of collections while it reads what others have changed."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Semaphore, Thread, current_thread
from typing import Any

import pytest

from gcws_search.service.cluster.database import Database
from tests.support.service.client import Client, Serve
from tests.support.service.cluster import BUCKETS
from tests.support.waiting import wait_until

URL = "/v1/collections"
NAMES = "new", "replaced", "restored", "weighted"


class Readings:
    """Holds the router before it takes what it has read of the list of collections."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.begun, self.ended = Semaphore(0), Semaphore(0)

    def wait(self) -> None:
        """Return when the list was read; what was read before is taken by then."""
        # Requests have the router's event loop go on.
        wait_until(lambda: self.client.get("/healthz") and self.begun.acquire(blocking=False))


@contextmanager
def held(client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[Readings]:
    readings, read = Readings(client), Database.collections

    def collections(database: Database) -> Any:  # noqa: ANN401
        rows = read(database)
        if database.connections.confirm is not None:  # it is a router's
            readings.begun.release()
            readings.ended.acquire(timeout=60)
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(Database, "collections", collections)
        try:
            readings.wait()
            yield readings
        finally:
            patched.undo()
            readings.ended.release(2)


def fill(client: Client, *names: str) -> None:
    for name in names:
        assert client.put(f"{URL}/{name}", json={"dim": 4}).status_code == 201
        put(client, name, "old")


def put(client: Client, name: str, item_id: str) -> None:
    items = [{"id": item_id, "vector": [1, 0, 0, 1]}]
    answer = client.put(f"{URL}/{name}/items", json={"items": items})
    assert answer.status_code == 200, answer.text


def commits(client: Client, name: str) -> int:
    """Return how many writes of a collection were stored through what the router knows of it."""
    number: int = client.get(f"{URL}/{name}").json()["commits"]
    return number


def test_what_changes_while_the_list_of_collections_is_read_stays(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = serve()
    fill(client, "dropped", "replaced", "restored", "weighted")
    with held(client, monkeypatch) as readings:
        for name in ("dropped", "replaced"):
            assert client.delete(f"{URL}/{name}").status_code == 204
        fill(client, "new", "replaced")
        snapshot = client.post(f"{URL}/restored/snapshots").json()["name"]
        for path, body in (
            (f"restored/snapshots/{snapshot}/restore?replace=true", None),
            ("weighted/transform/fit", {"weights": "max"}),
        ):
            assert client.post(f"{URL}/{path}", json=body).status_code == 200
        before = {name: commits(client, name) for name in NAMES}
        readings.ended.release()
        readings.wait()
        for name in NAMES:
            put(client, name, "last")
        assert {name: commits(client, name) - 1 for name in NAMES} == before, "all are as known"
        listed = client.get(URL).json()["collections"]
        assert {each["name"]: each["items"] for each in listed} == dict.fromkeys(NAMES, 2)
        for answer in (client.get(f"{URL}/dropped"), client.delete(f"{URL}/dropped")):
            assert answer.status_code == 404


def test_names_that_are_set_while_former_ones_are_read_stay(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, database_url: str
) -> None:
    client, read = serve(), Database.names_from
    fill(client, "plants")
    collection = client.app.state.service.collection("plants")
    begun, ended = Semaphore(0), Semaphore(0)

    def names_from(database: Database, *place: int) -> Any:  # noqa: ANN401
        found = read(database, *place)
        if current_thread() is reader:
            begun.release()
            ended.acquire(timeout=60)
        return found

    reader = Thread(target=collection.load_names)
    with (
        held(client, monkeypatch),
        monkeypatch.context() as patched,
        closing(Database.open(database_url, buckets=BUCKETS)) as database,
    ):
        patched.setattr(Database, "names_from", names_from)
        database.replace_names(collection.number, [(1, "leaf")])  # by another router
        reader.start()
        begun.acquire(timeout=60)
        assert client.put(f"{URL}/plants/names", json={"names": ["leaf"]}).status_code == 200
        ended.release()
        reader.join()
        query = {"vector": {"names": ["leaf"]}}
        [hit] = client.post(f"{URL}/plants/query", json=query).json()["hits"]
        assert hit["score"] == 0.5


def test_a_damaged_collection_keeps_no_other_one_from_its_work(
    serve: Serve, database_url: str
) -> None:
    """Names are read and freed, and what has expired is deleted, one collection after another."""
    client, names = serve(), ("damaged", "sound")
    for name in names:
        assert client.put(f"{URL}/{name}", json={"dim": None}).status_code == 201
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        damaged, sound = (client.app.state.service.collection(name).number for name in names)

        def put_three(name: str) -> None:
            more: list[dict[str, Any]] = [{}, {}, {"expires": 1}]
            vectors = [{"names": [each]} for each in "abc"]
            items = [{"id": str(n), "vector": vectors[n]} | more[n] for n in range(3)]
            answer = client.put(f"{URL}/{name}/items", json={"items": items})
            assert answer.status_code == 200, answer.text
            assert client.delete(f"{URL}/{name}/items/0").status_code == 204

        put_three("damaged")
        with database.connections.use() as connection:
            connection.run(f"UPDATE items_{damaged} SET checksum = checksum + 1")
            connection.run(f"UPDATE names SET checksum = 0 WHERE collection = {damaged}")
        put_three("sound")
        wait_until(lambda: client.get("/healthz") and database.count(sound) == 1)
        wait_until(lambda: client.get("/healthz") and len(database.names(sound)) == 1)
