"""Applications on a fresh data directory."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from gcws_search.index import compile_kernels
from gcws_search.service.execution import startup
from tests.support.service.client import Client, Json, Serve, fill, started


@pytest.fixture(autouse=True)
def kernels_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in the first application of the process, not in each."""

    def once(*arguments: Json, **more: Json) -> float:
        if not compiled:
            compiled.append(compile_kernels(*arguments, **more))
        return compiled[0]

    monkeypatch.setattr(startup, "compile_kernels", once)


compiled: list[float] = []


@pytest.fixture
def root_log() -> Iterator[None]:
    """Take all handlers off the root logger, and give them back: `serve` sets one of its own.

    Under a runner of commands that one writes to a stream that is closed with the command.
    """
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def serve(data_dir: Path) -> Iterator[Serve]:
    """Start applications, on the data directory unless told otherwise, one after the other."""
    running: list[Client] = []

    def start(**settings: Json) -> Client:
        while running:
            running.pop().stop()
        running.append(started(settings.pop("data_dir", data_dir), **settings))
        running[-1].wait_until_ready()
        return running[-1]

    yield start
    while running:
        running.pop().stop()


@pytest.fixture
def client(serve: Serve) -> Client:
    """Return a client of an application with a few items in the collection "plants" (dim 4)."""
    client = serve()
    fill(client)
    return client


@pytest.fixture
def empty(serve: Serve) -> Client:
    """Return a client with an empty collection, loaded in chunks of 4 rows."""
    client = serve(load_chunk_rows=4)
    client.put("/v1/collections/plants", json={"dim": 4})
    return client
