"""Commands that ask a server of this process."""

from collections.abc import Callable, Iterator

import pytest
from typer.testing import CliRunner, Result

import gcws_search
from gcws_search.commands.app import app
from tests.support.service.live_server import listening

Call = Callable[..., Result]
"""Takes the words of a command line, and perhaps its standard input."""


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server of this process."""
    with listening(tmp_path_factory.mktemp("data")) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def call(url: str) -> Call:
    """Return what runs a command that asks the server."""

    def run(*words: str, input: bytes | None = None) -> Result:
        return CliRunner(env={"GCWS_URL": url}).invoke(app, [*words], input=input)

    return run


@pytest.fixture
def server(url: str) -> Iterator[gcws_search.Server]:
    """Yield the server that the commands ask, without collections."""
    with gcws_search.connect(url) as found:
        for each in found.collections():
            found.drop(each["name"])
        yield found
