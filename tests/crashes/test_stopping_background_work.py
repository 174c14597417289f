"""SIGTERM while a start compiles or reads, or an index is made: the work is left in time."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from gcws_search.index.catalog.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST, free_port

DIM: Final = 16
ROWS: Final = 60_000
START_SECONDS: Final = 300.0
TRIES: Final = 5
"""The reading may have ended when the order comes: then it is started again."""
LEFT_TO_THE_DEADLINE: Final = "would not stop"
"""What the log says where work is cut off."""


class Server:
    """A server in a process of its own, from its first moment on."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
        self.process = process
        self.http = httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60)
        self.log = log

    def wait_for(self, is_reached: Callable[[Any], bool]) -> None:
        """Wait until what ``/readyz`` says is so."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                if is_reached(self.http.get("/readyz").json()):
                    return
            except httpx.TransportError:  # it does not listen yet
                time.sleep(0.01)
        raise AssertionError(self.log.read_text())

    def stop(self) -> str:
        """Order it to stop; return its log when it has ended well."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        log = self.log.read_text()
        assert status == 0, log
        assert "Traceback" not in log
        assert LEFT_TO_THE_DEADLINE not in log
        return log


@contextmanager
def serving(data: Path, **variables: str) -> Iterator[Server]:
    port, log = free_port(), data.parent / "log"
    environment = {"PYTHONPATH": str(REPOSITORY), "GCWS_SHUTDOWN_SECONDS": "1", **variables}
    command = [sys.executable, "-m", "gcws_search.service", "serve"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--port", str(port), "--data-dir", str(data)],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
    server = Server(process, port, log)
    try:
        yield server
    finally:
        server.http.close()
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of one collection, which has no index yet."""
    folder = tmp_path_factory.mktemp("template") / "data"
    catalog = Catalog.open(folder)
    catalog.load()
    catalog.pause_optimizing()
    stored = catalog.create("things", CollectionConfig(dim=DIM, backend=GcwsParams()))[0]
    vectors = np.random.default_rng(1).normal(size=(ROWS, DIM)).astype(np.float32)
    ids = [f"i{n}" for n in range(ROWS)]
    stored.put(ItemBatch(ids, stored.space.from_dense(vectors), [None] * ROWS))
    catalog.close()
    return folder


@pytest.fixture
def data(template: Path, tmp_path: Path) -> Path:
    return shutil.copytree(template, tmp_path / "data")


def test_a_start_that_compiles_kernels_is_left(data: Path, tmp_path: Path) -> None:
    kernels = tmp_path / "kernels"
    with serving(data, NUMBA_CACHE_DIR=str(kernels)) as server:
        server.wait_for(lambda told: told["phase"] == "compiling" and any(kernels.rglob("*.nbc")))
        server.stop()


def test_a_start_that_reads_collections_is_left(data: Path) -> None:
    logs = list[str]()
    while len(logs) < TRIES and all("startup: ready" in log for log in logs):
        with serving(data) as server:
            server.wait_for(lambda told: told["phase"] == "loading" and told["loaded"] < ROWS)
            logs.append(server.stop())
    assert "startup: ready" not in logs[-1]


def test_an_index_that_is_being_made_is_left(data: Path) -> None:
    with serving(data) as server:
        server.wait_for(lambda told: told["phase"] == "ready")
        time.sleep(1)
        server.stop()


def test_a_compaction_is_left(data: Path) -> None:
    with serving(data) as server:
        server.wait_for(lambda told: told["phase"] == "ready")
        body = {"ids": [f"i{n}" for n in range(0, ROWS, 2)]}
        assert server.http.post("/v1/collections/things/items/delete", json=body).is_success
        server.stop()
    with serving(data) as server:
        server.wait_for(lambda told: told["phase"] == "ready")
        told = server.http.get("/v1/collections/things").json()
        assert told["items"] == ROWS // 2
