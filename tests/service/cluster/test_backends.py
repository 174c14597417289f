"""Comparison backends of a cluster: all shards have the same one, and all their replicas."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index import BackendRecord, DiskFull, StoredCollection, notes_of_backend
from tests.support.service.client import Client, Json, assert_problem, fill, running
from tests.support.service.cluster import ClusterClient
from tests.support.service.shards import QUICK, SECONDS
from tests.support.waiting import wait_until

URL = "/v1/collections/plants"
SHARDS = 3
QUERY = {"vector": [1, 0, 2, 3], "recall": 1, "backend": "own"}


def test_all_shards_have_the_same_landmarks_and_snapshots_keep_them(
    database_url: str, data_dir: Path, rng: np.random.Generator
) -> None:
    with running(ClusterClient(database_url, data_dir, shards=SHARDS)) as client:
        client.put(URL, json={"dim": 5})
        rows = rng.standard_normal((40, 5)).tolist()
        items = [{"id": str(number), "vector": row} for number, row in enumerate(rows)]
        assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        body = {"kind": "gmm_nystroem", "params": {"landmarks": 16}, "name": "landmarks"}
        attached = client.post(f"{URL}/backends", json=body)
        assert attached.status_code == 201, attached.text
        before = landmarks(client)
        assert len(before) == SHARDS
        assert len({*before}) == 1
        asked = {"vector": rows[3], "limit": 40, "backend": "landmarks", "candidates": 40}
        hits = client.post(f"{URL}/query", json=asked).json()["hits"]
        assert {hit["id"] for hit in hits} == {str(number) for number in range(40)}
        snapshot = client.post(f"{URL}/snapshots").json()["name"]
        client.delete(URL)
        restored = client.post(f"{URL}/snapshots/{snapshot}/restore")
        assert restored.status_code == 200, restored.text
        assert client.post(f"{URL}/query", json=asked).json()["hits"] == hits
        assert landmarks(client) == before


def landmarks(client: ClusterClient) -> list[Json]:
    number = client.app.state.service.collection("plants").number
    found = []
    for [replica] in client.shards.replicas:
        memory = replica.host.collection(number, 0, SECONDS).memory
        found.append(notes_of_backend(memory.index_of(memory.view, "landmarks")))
    return found


# Replicas


def seen(client: Client) -> set[tuple[int, str]]:
    """Return what either replica answers: the status of a query, and the last backend shown."""
    answers = [(client.post(f"{URL}/query", json=QUERY), client.get(URL)) for _ in range(6)]
    return {(one.status_code, other.json()["backends"][-1]["name"]) for one, other in answers}


def test_a_backend_is_attached_to_all_replicas_and_dropped_from_all(
    database_url: str, tmp_path: Path
) -> None:
    with running(ClusterClient(database_url, tmp_path, replicas=2)) as client:
        fill(client)
        attached = client.post(f"{URL}/backends", json={"kind": "exact", "name": "own"})
        assert attached.status_code == 201, attached.text
        assert seen(client) == {(200, "own")}
        assert client.delete(f"{URL}/backends/own").status_code == 204
        assert seen(client) == {(404, "gcws")}


def test_a_backend_is_shown_before_shards_attach_it(database_url: str, tmp_path: Path) -> None:
    with running(ClusterClient(database_url, tmp_path)) as client:
        fill(client)
        collection = client.app.state.service.collection("plants")
        row = BackendRecord("own", "exact", "{}", None)
        collection.database.add_backend(collection.number, row)
        shown = client.get(URL).json()["backends"][-1]
        assert (shown["name"], shown["kind"], shown["status"]) == ("own", "exact", "building")
        assert client.post(f"{URL}/query", json=QUERY).status_code == 200
        assert client.get(URL).json()["backends"][-1]["status"] == "ready"


def test_a_backend_that_a_shard_cannot_attach_is_on_none(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(ClusterClient(database_url, tmp_path)) as client:
        fill(client)
        number = client.app.state.service.collection("plants").number
        full = client.shards.replicas[1][0].host.collection(number, 0, SECONDS)
        attach = StoredCollection.attach

        def attach_where_room(collection: StoredCollection, *given: Json) -> Json:
            if collection is full:
                raise DiskFull(collection.name)
            return attach(collection, *given)

        body = {"kind": "exact", "name": "own"}
        with monkeypatch.context() as patched:
            patched.setattr(StoredCollection, "attach", attach_where_room)
            refused = client.post(f"{URL}/backends", json=body)
        assert_problem(refused, 507, "shard_full", "shard 1", "'own'", "no space")
        assert seen(client) == {(404, "gcws")}
        assert client.post(f"{URL}/backends", json=body).status_code == 201
        assert seen(client) == {(200, "own")}


def test_a_replica_tries_again_to_attach_a_backend_and_its_sister_answers_meanwhile(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, attach = replace(QUICK, full_seconds=0.1), StoredCollection.attach
    with running(ClusterClient(database_url, tmp_path, replicas=2, options=options)) as client:
        fill(client)
        collection = client.app.state.service.collection("plants")
        hosts = [replica.host for [replica, _] in client.shards.replicas]
        full = [host.collection(collection.number, 0, SECONDS) for host in hosts]

        def attach_where_room(collection: StoredCollection, *given: Json) -> Json:
            if collection in full:
                raise DiskFull(collection.name)
            return attach(collection, *given)

        with monkeypatch.context() as patched:
            patched.setattr(StoredCollection, "attach", attach_where_room)
            row = BackendRecord("own", "exact", "{}", None)
            collection.database.add_backend(collection.number, row)
            wait_until(lambda: client.post(f"{URL}/query", json=QUERY).status_code == 200)
            assert {client.post(f"{URL}/query", json=QUERY).status_code for _ in range(8)} == {200}
        wait_until(lambda: all("own" in each.memory.view.attached for each in full))
