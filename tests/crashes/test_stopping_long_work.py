"""SIGTERM beside each request that takes long: the server ends, and a restart finds all."""

import gzip
import http.client
import io
import json
import shutil
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from tests.crashes.servers import Asking, Nursery
from tests.crashes.test_stopping import under_way
from tests.support.service.ports import HOST

URL: Final = "/v1/collections/things"
DIM: Final = 16
ROWS: Final = 3000
SNAPSHOT: Final = "s"
SETTINGS: Final = {"GCWS_SHUTDOWN_SECONDS": "1"}
PATIENCE: Final = 60.0
"""Far more than the 13 seconds that a server takes at most, for machines that do much else."""


def compressed(piece: bytes, count: int) -> bytes:
    """Return gzip of many copies of a piece."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()


def npy_of_ones() -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        file, {"descr": "<f4", "fortran_order": False, "shape": (1 << 22, DIM)}
    )
    row = np.ones((1 << 14, DIM), np.float32).tobytes()
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    pieces = [packer.compress(file.getvalue()), *(packer.compress(row) for _ in range(256))]
    return b"".join(pieces) + packer.flush()


def arrow_of_ones() -> bytes:
    ones = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4096 * DIM, np.float32)), DIM)
    ids = pa.array([f"n{n}" for n in range(4096)])
    batch = pa.record_batch({"id": ids, "vector": ones})
    file = io.BytesIO()
    with pa.ipc.new_stream(file, batch.schema) as stream:
        for _ in range(400):
            stream.write_batch(batch)
    return gzip.compress(file.getvalue(), 1)


def many_queries() -> bytes:
    query = {"vector": [1.0] * DIM, "limit": 1000, "recall": 1}
    return json.dumps({"queries": [query] * 4000}).encode()


Request = tuple[str, Callable[[], bytes], str]
LONG: Final[dict[str, Request]] = {
    "a load of wrong lines": (
        "/load?on_error=skip", lambda: compressed(b"{}\n" * 2**16, 256), "application/x-ndjson"
    ),
    "a load of empty lines": (
        "/load", lambda: compressed(b"\n" * 2**16, 1 << 12), "application/x-ndjson"
    ),
    "a load of one line": (
        "/load", lambda: compressed(b" " * 2**16, 1 << 12), "application/x-ndjson"
    ),
    "a load of an array": ("/load", npy_of_ones, "application/x-npy"),
    "a load of Arrow": ("/load", arrow_of_ones, "application/vnd.apache.arrow.stream"),
    "a batch": ("/query/batch", many_queries, "application/json"),
    "pairs": ("/pairs", lambda: b'{"min_score": 0.01, "recall": 1}', "application/json"),
    "a comparison": (
        "/compare", lambda: b'{"sample": 1000, "recall": 1, "limit": 100}', "application/json"
    ),
    "a map": ("/map", lambda: b'{"sample": 2000}', "application/json"),
    "a profile": ("/profile", lambda: b'{"sample": 2000}', "application/json"),
    "a snapshot": ("/snapshots", lambda: b"", "application/json"),
    "a restore": (
        f"/snapshots/{SNAPSHOT}/restore?replace=true", lambda: b"", "application/json"
    ),
    "a backend": (
        "/backends",
        lambda: b'{"kind": "gmm_nystroem", "params": {"landmarks": 2000}}',
        "application/json",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of one collection and its snapshot."""
    folder = tmp_path_factory.mktemp("template") / "data"
    catalog = Catalog.open(folder)
    catalog.load()
    config = CollectionConfig(dim=DIM, backend=GcwsParams())
    stored = catalog.create("things", config)[0]
    vectors = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    ids = [f"i{n}" for n in range(ROWS)]
    stored.put(ItemBatch(ids, stored.space.from_dense(vectors), [None] * ROWS))
    catalog.snapshot("things", SNAPSHOT)
    catalog.close()
    return folder


def send(port: int, request: Request) -> threading.Thread:
    """Send a request whose answer nobody reads."""
    path, make_body, kind = request
    body = make_body()

    def ask() -> None:
        connection = http.client.HTTPConnection(HOST, port, timeout=PATIENCE)
        try:
            connection.request("POST", f"{URL}{path}", body, {"Content-Type": kind})
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass  # the server has ended
        finally:
            connection.close()

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


def all_ids(asking: Asking) -> Iterator[str]:
    cursor: Any = ""
    while cursor is not None:
        page = asking.success("GET", f"{URL}/items?limit=1000{cursor and f'&cursor={cursor}'}")
        yield from (item["id"] for item in page["items"] if item["id"].startswith("i"))
        cursor = page["next_cursor"]


@pytest.mark.parametrize("what", LONG)
def test_a_server_ends_beside_long_work_and_starts_again_with_all(
    what: str, servers: Nursery, template: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(template, tmp_path / "data")
    with servers.serving(data, **SETTINGS) as server:
        sent = send(server.port, LONG[what])
        while under_way(server) < 2 and sent.is_alive():
            assert not server.ended()
        server.signal(signal.SIGTERM)
        assert server.status(PATIENCE) == 0, server.log.read_text()
        assert "Traceback" not in server.log.read_text()
        sent.join()
    with servers.serving(data, **SETTINGS) as server, Asking(server.port) as asking:
        assert set(all_ids(asking)) == {f"i{n}" for n in range(ROWS)}
