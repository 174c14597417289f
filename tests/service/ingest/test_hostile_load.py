"""What many clients ask of a server at once that takes long: the others are answered meanwhile.

Each kind of work is held where it is done until the others have had their answers, so this is about
who waits for whom, on a machine however slow.
"""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any, NamedTuple

import httpx
import numpy as np
import pytest

from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.collection.writer import Put
from gcws_search.service import models
from gcws_search.service.api import query
from tests.support.service.bodies import npy
from tests.support.service.client import ITEMS
from tests.support.service.live_server import URL, listening

CLIENTS = 12
"""More than there are threads for any kind of work."""


class Hostile(NamedTuple):
    """Work of one kind: the function that is held while it works, and the request for it.

    ``writes``: whether others cannot write meanwhile.
    """

    owner: Any
    name: str
    method: str
    path: str
    content: bytes | None = None
    kind: str = "application/json"
    writes: bool = False


LONG = b'{"items": [' + b'{"id": "long", "vector": [1, 2, 3, 4]},' * 8000 + b"3]}"
KINDS = {
    "long bodies": Hostile(models, "parse_in_pieces", "PUT", "/items", LONG),
    "batches": Hostile(
        query, "reads_names", "POST", "/query/batch",
        b'{"queries": [{"vector": [1, 2, 3, 4]}]}',
    ),
    "matrices": Hostile(
        query, "read_matrix", "POST", "/query/batch", npy(np.ones((2, 4), np.float32)),
        "application/x-npy",
    ),
    "sketches": Hostile(
        StoredCollection, "sketch", "POST", "/sketch", b'{"vectors": [[1, 2, 3, 4]]}'
    ),
    "pairs": Hostile(StoredCollection, "pairs", "POST", "/pairs", b'{"min_score": 0.5}'),
    "comparisons": Hostile(StoredCollection, "compare", "POST", "/compare", b'{"sample": 1}'),
    "snapshots": Hostile(StoredCollection, "copy_to", "POST", "/snapshots"),
    "backends": Hostile(StoredCollection, "attach", "POST", "/backends", b'{"kind": "rff"}'),
    "writes": Hostile(
        Put, "plan", "PUT", "/items",
        b'{"items": [{"id": "hostile", "vector": [1, 2, 3, 4]}]}', writes=True,
    ),
    "deletes": Hostile(
        StoredCollection, "delete", "POST", "/items/delete",
        b'{"filter": {"must": {"key": "label", "match": {"value": 99}}}}', writes=True,
    ),
}  # fmt: skip


def ask_as_others(port: int, *, writing: bool) -> None:
    """Do what other clients do; each waits for its answer."""
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        query = {"vector": [0.1, -2, 0, 3], "limit": 1}
        where = {"must": {"key": "label", "match": {"value": 1}}}
        for _ in range(3):
            for path in ("", "/items/a", "/items?limit=2", "/snapshots"):
                assert client.get(f"{URL}{path}").status_code == 200
            [hit] = client.post(f"{URL}/query", json=query).json()["hits"]
            assert hit["id"] == "a"
            [hit] = client.post(f"{URL}/query", json={**query, "filter": where}).json()["hits"]
            assert hit["id"] == "b"
            assert client.get("/metrics").status_code == 200
            if writing:
                items = {"items": [{"id": "other", "vector": [1, 1, 1, 1]}]}
                assert client.put(f"{URL}/items", json=items).status_code == 200
                assert client.delete(f"{URL}/items/other").status_code == 204


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with listening(tmp_path_factory.mktemp("data"), max_loads=CLIENTS) as found:
        url = f"http://127.0.0.1:{found}{URL}/items"
        assert httpx.put(url, json={"items": ITEMS}, timeout=60).status_code == 200
        yield found


@pytest.mark.parametrize("kind", KINDS)
def test_others_are_answered_while_work_of_one_kind_is_held_up(
    kind: str, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile = KINDS[kind]
    function = getattr(hostile.owner, hostile.name)
    reached, opened = threading.Event(), threading.Event()

    @wraps(function)
    def held(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401
        reached.set()
        assert opened.wait(300)
        return function(*arguments, **options)

    def ask() -> httpx.Response:
        headers = {"Content-Type": hostile.kind}
        url = f"http://127.0.0.1:{port}{URL}{hostile.path}"
        return httpx.request(
            hostile.method, url, content=hostile.content, headers=headers, timeout=300
        )

    monkeypatch.setattr(hostile.owner, hostile.name, held)
    with ThreadPoolExecutor(CLIENTS) as clients:
        try:
            asked = [clients.submit(ask) for _ in range(CLIENTS)]
            assert reached.wait(300)
            ask_as_others(port, writing=not hostile.writes)
        finally:
            opened.set()
        statuses = {future.result().status_code for future in asked}
    assert statuses <= {200, 201, 409, 422, 429}, statuses


def test_others_are_answered_while_loads_stand_still(port: int) -> None:
    going_on = threading.Event()

    def lines() -> Iterator[bytes]:
        yield b'{"id": "load", "vector": [1, 2, 3, 4]}\n'
        assert going_on.wait(300)

    def load() -> httpx.Response:
        url, kind = f"http://127.0.0.1:{port}{URL}/load", {"Content-Type": "application/x-ndjson"}
        return httpx.post(url, content=lines(), headers=kind, timeout=300)

    with ThreadPoolExecutor(CLIENTS) as clients:
        try:
            loads = [clients.submit(load) for _ in range(CLIENTS)]
            ask_as_others(port, writing=True)
            assert not any(each.done() for each in loads)
        finally:
            going_on.set()
        assert [each.result().status_code for each in loads] == [200] * CLIENTS
