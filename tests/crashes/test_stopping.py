"""The order to stop, SIGTERM: while clients write, beside long requests, amid background work."""

import gzip
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from tests.crashes.checking import held
from tests.crashes.servers import Asking, Ended, Running, serving, start
from tests.crashes.states import SHARED, config_of
from tests.crashes.trial import Trial
from tests.support.index.items import opened_catalog
from tests.support.paths import REPOSITORY
from tests.support.service.bodies import TYPES, arrow, fixed, npy
from tests.support.service.ports import HOST, free_port
from tests.support.waiting import wait_until

URL: Final = f"/v1/collections/{SHARED}"
JSON: Final = "application/json"
CHUNK: Final = 4
CHUNKS: Final = {"GCWS_LOAD_CHUNK_ROWS": str(CHUNK)}
ENDS: Final = (http.client.IncompleteRead, ConnectionError, json.JSONDecodeError)
"""What a client sees of an answer that breaks off."""
DIM: Final = 16
FEW: Final = 3000
MANY: Final = 60_000
SNAPSHOT: Final = "s"
SOON: Final = {"GCWS_SHUTDOWN_SECONDS": "1"}
TRIES: Final = 20
"""The reading may have ended when the order comes: then it is started again."""
LEFT_TO_THE_DEADLINE: Final = "would not stop"
"""What the log says where work is cut off."""


def stop(server: Running, *, in_time: bool = False) -> str:
    """Order a server to stop; return the log when it has ended well.

    ``in_time``: whether its work must have been left before the deadline.
    """
    server.stop()
    log = server.log_of_good_end()
    assert not in_time or LEFT_TO_THE_DEADLINE not in log
    return log


def filled(folder: Path, rows: int, *, has_index: bool) -> Path:
    """Make a folder of one collection and its snapshot."""
    catalog = Catalog.open(folder)
    catalog.load()
    if not has_index:
        catalog.pause_optimizing()
    stored = catalog.create(SHARED, CollectionConfig(dim=DIM, backend=GcwsParams()))[0]
    vectors = np.random.default_rng(1).normal(size=(rows, DIM)).astype(np.float32)
    ids = [f"i{n}" for n in range(rows)]
    stored.put(ItemBatch(ids, stored.space.from_dense(vectors), [None] * rows))
    if has_index:
        catalog.snapshot(SHARED, SNAPSHOT)
    catalog.close()
    return folder


# While clients write


class Sending:
    """A load whose lines are sent one by one."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection(HOST, port, timeout=60)
        self._connection.putrequest("POST", f"{URL}/load")
        for name in ("Content-Type", "Accept"):
            self._connection.putheader(name, "application/x-ndjson")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()
        self._answer: http.client.HTTPResponse | None = None

    def send(self, rows: Sequence[int]) -> None:
        lines = [json.dumps({"id": f"load-{row}", "vector": [row + 1] * 8}) + "\n" for row in rows]
        body = "".join(lines).encode()
        self._connection.send(b"%x\r\n%s\r\n" % (len(body), body))

    def end(self) -> None:
        self._connection.send(b"0\r\n\r\n")

    def line(self) -> dict[str, object]:
        if self._answer is None:
            self._answer = self._connection.getresponse()
        found: dict[str, object] = json.loads(self._answer.readline())
        return found

    def close(self) -> None:
        self._connection.close()


def loading(server: Running) -> Sending:
    """Return a load of which one chunk is committed."""
    with Asking(server.port) as asking:
        asking.success("PUT", URL, config_of(0))
    sending = Sending(server.port)
    sending.send(range(CHUNK))
    assert sending.line() == {"committed": CHUNK, "rejected": 0}
    return sending


def test_after_the_order_to_stop_nobody_is_let_in_and_requests_in_flight_finish(
    tmp_path: Path,
) -> None:
    with serving(tmp_path / "data", **CHUNKS, GCWS_SHUTDOWN_SECONDS="60") as server:
        sending = loading(server)
        server.stop()
        while server.phase() == "ready":
            assert not server.ended()
        sending.send(range(CHUNK, 2 * CHUNK))
        assert sending.line() == {"committed": 2 * CHUNK, "rejected": 0}
        sending.end()
        assert sending.line()["inserted"] == 2 * CHUNK
        sending.close()
        server.log_of_good_end()
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        assert set(held(asking, SHARED)) == {f"load-{row}" for row in range(2 * CHUNK)}


def send_half(port: int, path: str, kind: str, body: bytes) -> http.client.HTTPConnection:
    """Send half of a request's body."""
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    length = {"Content-Type": kind, "Content-Length": str(2 * len(body))}
    connection.request("POST", f"{URL}{path}", body, length)
    return connection


def test_requests_that_do_not_end_in_time_are_told_that_the_server_stops(tmp_path: Path) -> None:
    with serving(tmp_path / "data", **SOON, **CHUNKS) as server:
        streaming = loading(server)
        unanswered = [
            send_half(server.port, "/query", JSON, b'{"vector": ['),
            send_half(server.port, "/query/batch", JSON, b'{"queries": ['),
            send_half(server.port, "/load", TYPES["ndjson"], b'{"id": "a"'),
        ]
        while under_way(server) < len(unanswered) + 2:  # the load that streams, and this look
            assert not server.ended()
        server.stop()
        for connection in unanswered:
            with closing(connection), connection.getresponse() as answer:
                kind, retry = answer.getheader("Content-Type"), answer.getheader("Retry-After")
                assert (answer.status, kind, retry) == (503, "application/problem+json", "1")
                assert json.loads(answer.read())["code"] == "stopping"
        with pytest.raises(ENDS):  # an answer that has begun is not made to look complete
            streaming.line()
        streaming.close()
        # Whoever runs it sees one line about all of them.
        log = server.log_of_good_end().splitlines()
        [line] = [line for line in log if "ERROR" in line or "task" in line]
        assert "Cancel 4 running task(s)" in line
    with serving(tmp_path / "data") as server, Asking(server.port) as asking:
        assert set(held(asking, SHARED)) == {f"load-{row}" for row in range(CHUNK)}


def under_way(server: Running) -> int:
    """Return how many requests the server works on, the one that asks for it included."""
    with Asking(server.port) as asking:
        text = asking.success("GET", "/metrics")
    [line] = [line for line in text.splitlines() if line.startswith("gcws_requests_under_way ")]
    return int(float(line.split()[1]))


@pytest.mark.parametrize("seconds", [0.3, 0.6])
def test_a_server_stopped_while_many_write_ends_well_and_keeps_all(
    tmp_path: Path, seconds: float
) -> None:
    trial = Trial(tmp_path, seed=1)
    trial.stop_after(seconds)
    assert trial.acknowledged
    trial.check()


# Beside requests that take long


def compressed(piece: bytes, count: int) -> bytes:
    """Return gzip of many copies of a piece."""
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()


def npy_of_ones() -> bytes:
    return gzip.compress(npy(np.ones((1 << 21, DIM), np.float32)), 1)


def arrow_of_ones() -> bytes:
    ones = fixed(np.ones((4096, DIM), np.float32))
    return gzip.compress(
        arrow({"id": [f"n{n}" for n in range(4096)], "vector": ones}, times=400), 1
    )


def many_queries() -> dict[str, Any]:
    return {"queries": [{"vector": [1.0] * DIM, "limit": 1000, "recall": 1}] * 4000}


Request = tuple[str, Callable[[], bytes] | Any, str]
LONG: Final[dict[str, Request]] = {
    "a load of wrong lines": (
        "/load?on_error=skip", lambda: compressed(b"{}\n" * 2**16, 256), TYPES["ndjson"]
    ),
    "a load of empty lines": ("/load", lambda: compressed(b"\n" * 2**16, 1 << 12), TYPES["ndjson"]),
    "a load of one line": ("/load", lambda: compressed(b" " * 2**16, 1 << 12), TYPES["ndjson"]),
    "a load of an array": ("/load", npy_of_ones, TYPES["npy"]),
    "a load of Arrow": ("/load", arrow_of_ones, TYPES["arrow"]),
    "a batch": ("/query/batch", many_queries, JSON),
    "pairs": ("/pairs", {"min_score": 0.01, "recall": 1}, JSON),
    "a comparison": ("/compare", {"sample": 1000, "recall": 1, "limit": 100}, JSON),
    "a map": ("/map", {"sample": 2000}, JSON),
    "a profile": ("/profile", {"sample": 2000}, JSON),
    "a snapshot": ("/snapshots", None, JSON),
    "a restore": (f"/snapshots/{SNAPSHOT}/restore?replace=true", None, JSON),
    "a backend": ("/backends", {"kind": "gmm_nystroem", "params": {"landmarks": 2000}}, JSON),
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("small") / "data", FEW, has_index=True)


def send(port: int, request: Request) -> threading.Thread:
    """Send a request whose answer nobody reads."""
    path, made, kind = request
    body = made() if callable(made) else made

    def ask() -> None:
        with Asking(port) as asking, suppress(OSError, http.client.HTTPException, Ended):
            asking.ask("POST", f"{URL}{path}", body, Content_Type=kind)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize("what", LONG)
def test_a_server_ends_beside_long_work_and_starts_again_with_all(
    what: str, small: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(small, tmp_path / "data")
    with serving(data, **SOON) as server:
        sent = send(server.port, LONG[what])
        while under_way(server) < 2 and sent.is_alive():
            assert not server.ended()
        stop(server)
        sent.join()
    with closing(opened_catalog(data)) as catalog:
        for n in range(FEW):
            assert catalog.get(SHARED).get(f"i{n}").id == f"i{n}"


# Amid background work: it is left in time


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of one collection, which has no index yet."""
    return filled(tmp_path_factory.mktemp("large") / "data", MANY, has_index=False)


@pytest.fixture
def data(large: Path, tmp_path: Path) -> Path:
    return shutil.copytree(large, tmp_path / "data")


def test_a_start_that_compiles_kernels_is_left(tmp_path: Path) -> None:
    kernels, port, log = tmp_path / "kernels", free_port(), tmp_path / "log"
    variables = {"PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(kernels), **SOON}
    words = ["-m", "gcws_search.service", "serve", f"--port={port}", f"--data-dir={tmp_path}"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, *words], env=os.environ | variables, stdout=output, stderr=output
        ) as process,
        httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60) as http,
    ):
        try:

            def is_compiling() -> bool:
                with suppress(httpx.TransportError):  # it does not listen yet
                    told = http.get("/readyz").json()
                    return told["phase"] == "compiling" and any(kernels.rglob("*.nbc"))
                return False

            wait_until(is_compiling, seconds=300)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
    assert LEFT_TO_THE_DEADLINE not in log.read_text()


def test_a_start_that_reads_collections_is_left(data: Path) -> None:
    for before in range(TRIES):
        server = start(data, **SOON)
        try:
            while server.phase() not in ("loading", "ready"):
                assert not server.ended(0.005)
            if stop(server, in_time=True).count("startup: ready") == before:
                return
        finally:
            server.kill()
    pytest.fail("the reading ended before each order")


def test_an_index_that_is_being_made_is_left(data: Path) -> None:
    with serving(data, **SOON) as server:
        time.sleep(1)
        stop(server, in_time=True)


def test_a_compaction_is_left(data: Path) -> None:
    with serving(data, **SOON) as server, Asking(server.port) as asking:
        ids = [f"i{n}" for n in range(0, MANY, 2)]
        asking.success("POST", f"{URL}/items/delete", {"ids": ids})
        stop(server, in_time=True)
    with serving(data, **SOON) as server, Asking(server.port) as asking:
        assert asking.success("GET", URL)["items"] == MANY // 2
