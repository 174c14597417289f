"""Commands that ask a server of this process."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import gcws_search
from gcws_search.commands.app import app
from tests.support.service.live_server import listening

Call = Callable[..., Result]
"""Takes the words of a command line, perhaps its standard input, and the code it must end by."""


def lines(done: Result) -> list[Any]:
    """Return what a command printed as JSON, an object a line."""
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server of this process."""
    with listening(tmp_path_factory.mktemp("data")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def call(url: str) -> Call:
    """Return what runs a command that asks the server."""

    def run(*words: str, code: int = 0, input: bytes | None = None) -> Result:
        done = CliRunner(env={"GCWS_URL": url}).invoke(app, [*words], input=input)
        assert done.exit_code == code, done.output
        return done

    return run


@pytest.fixture
def server(url: str) -> Iterator[gcws_search.Server]:
    """Yield the server that the commands ask, without collections."""
    with gcws_search.connect(url) as found:
        for each in found.collections():
            found.drop(each["name"])
        yield found


@dataclass(frozen=True)
class Bench:
    """A server, what runs commands that ask it, and a folder for files."""

    server: gcws_search.Server
    call: Call
    folder: Path

    def load(
        self, path: str | Path, *options: str, code: int = 0, input: bytes | None = None
    ) -> Result:
        """Load a file of the folder, or standard input, into the plants: it ends by ``code``."""
        place = "-" if path == "-" else str(self.folder / path)
        return self.call("load", place, "--into", "plants", *options, code=code, input=input)

    @property
    def plants(self) -> gcws_search.Collection:
        return self.server.collection("plants")


@pytest.fixture
def bench(server: gcws_search.Server, call: Call, tmp_path: Path) -> Bench:
    return Bench(server, call, tmp_path)
