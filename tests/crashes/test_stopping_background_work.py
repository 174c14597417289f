"""SIGTERM while a start compiles or reads, or an index is made: the work is left in time."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.items import ItemBatch
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams
from tests.crashes.servers import Asking, Ended, Nursery, Running
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST, free_port

DIM: Final = 16
ROWS: Final = 60_000
START_SECONDS: Final = 300.0
SETTINGS: Final = {"GCWS_SHUTDOWN_SECONDS": "1"}
TRIES: Final = 5
"""The reading may have ended when the order comes: then it is started again."""
LEFT_TO_THE_DEADLINE: Final = "would not stop"
"""What the log says where work is cut off."""


def stop(server: Running) -> str:
    """Order a server to stop; return the log when it has ended well."""
    server.signal(signal.SIGTERM)
    status, log = server.status(), server.log.read_text()
    assert status == 0, log
    assert "Traceback" not in log
    assert LEFT_TO_THE_DEADLINE not in log
    return log


def phase_of(server: Running) -> str:
    with Asking(server.port) as asking:
        return str(asking.ask("GET", "/readyz")[1]["phase"])


def wait_for(ask: Callable[[], Any], is_reached: Callable[[Any], bool]) -> None:
    """Wait until what ``/readyz`` says is so."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with suppress(Ended, httpx.TransportError):  # it does not listen yet
            if is_reached(ask()):
                return
        time.sleep(0.005)
    raise AssertionError(deadline)


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


def test_a_start_that_compiles_kernels_is_left(tmp_path: Path) -> None:
    kernels, port, log = tmp_path / "kernels", free_port(), tmp_path / "log"
    variables = {"PYTHONPATH": str(REPOSITORY), "NUMBA_CACHE_DIR": str(kernels), **SETTINGS}
    words = ["-m", "gcws_search.service", "serve", f"--port={port}", f"--data-dir={tmp_path}"]
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, *words], env=os.environ | variables, stdout=output, stderr=output
        ) as process,
        httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60) as http,
    ):
        try:
            wait_for(
                lambda: http.get("/readyz").json(),
                lambda told: told["phase"] == "compiling" and any(kernels.rglob("*.nbc")),
            )
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
    assert "Traceback" not in log.read_text()
    assert LEFT_TO_THE_DEADLINE not in log.read_text()


def test_a_start_that_reads_collections_is_left(servers: Nursery, data: Path) -> None:
    for before in range(TRIES):
        server = servers.start(data, point=None, times=1, **SETTINGS)
        try:
            wait_for(partial(phase_of, server), lambda phase: phase in ("loading", "ready"))
            if stop(server).count("startup: ready") == before:
                return
        finally:
            server.kill()
    pytest.fail("the reading ended before each order")


def test_an_index_that_is_being_made_is_left(servers: Nursery, data: Path) -> None:
    with servers.serving(data, **SETTINGS) as server:
        time.sleep(1)
        stop(server)


def test_a_compaction_is_left(servers: Nursery, data: Path) -> None:
    with servers.serving(data, **SETTINGS) as server, Asking(server.port) as asking:
        ids = [f"i{n}" for n in range(0, ROWS, 2)]
        asking.success("POST", "/v1/collections/things/items/delete", {"ids": ids})
        stop(server)
    with servers.serving(data, **SETTINGS) as server, Asking(server.port) as asking:
        assert asking.success("GET", "/v1/collections/things")["items"] == ROWS // 2
