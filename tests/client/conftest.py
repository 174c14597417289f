"""Collections of every kind: of a server, in a file and in memory, waited for and awaited."""

import asyncio
import inspect
import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gcws_search
from tests.support.service.client import Json
from tests.support.service.live_server import listening

Open = Callable[..., Any]
"""Takes a dim and the rest of a configuration; returns an empty collection."""


class Awaited:
    """An `AsyncCollection` or `AsyncServer` whose operations are run to their end."""

    def __init__(self, runner: asyncio.Runner, inner: Json) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Json:
        found = getattr(self._inner, name)
        return partial(self._ended, found) if inspect.iscoroutinefunction(found) else found

    def _ended(self, operation: Json, *given: Json, **named: Json) -> Json:
        return self._runner.run(operation(*given, **named))

    def __len__(self) -> int:
        return int(self.count())

    def __iter__(self) -> Iterator[gcws_search.Item]:
        async def gathered() -> list[gcws_search.Item]:
            return [item async for item in self._inner]

        return iter(self._runner.run(gathered()))


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server of this process."""
    with listening(tmp_path_factory.mktemp("data")) as port:
        yield f"http://127.0.0.1:{port}"


_names = (f"collection-{number}" for number in itertools.count())


@pytest.fixture(params=["server", "server-async", "file", "memory-async"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Return what opens collections of one kind; all are closed at the end."""
    kind, _, is_async = request.param.partition("-")
    with ExitStack() as stack:
        runner = stack.enter_context(asyncio.Runner())

        def remote(dim: int | None, **config: Json) -> Json:
            url = request.getfixturevalue("url")
            if is_async:
                server = gcws_search.connect_async(url)
                stack.callback(lambda: runner.run(server.close()))
                return Awaited(runner, runner.run(server.collection(next(_names), dim, **config)))
            waiting = stack.enter_context(gcws_search.connect(url))
            return waiting.collection(next(_names), dim, **config)

        def embedded(dim: int | None, **config: Json) -> Json:
            path = ":memory:" if kind == "memory" else tmp_path / f"{next(_names)}.sqlite"
            if is_async:
                found = runner.run(gcws_search.AsyncCollection.open(path, dim=dim, **config))
                stack.callback(lambda: runner.run(found.close()))
                return Awaited(runner, found)
            return stack.enter_context(gcws_search.Collection.open(path, dim=dim, **config))

        yield remote if kind == "server" else embedded
