"""What answers while the application is imported."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.types import Message

from gcws_search.service.server import StartingApplication
from tests.support.service.client import assert_problem


class _Scene:
    """A server's life around a `StartingApplication`, whose application opens when told to."""

    def __init__(self, why_not: Exception | None = None) -> None:
        self.may_open, self.lives = threading.Event(), False
        self.why_not = why_not
        self.starting = StartingApplication(self._opened)
        self.server = uvicorn.Server(uvicorn.Config(self.starting))
        self.starting.stop_on_failure(self.server)

    def _opened(self) -> FastAPI:
        assert self.may_open.wait(60)
        if self.why_not is not None:
            raise self.why_not

        @asynccontextmanager
        async def lifespan(_: FastAPI) -> AsyncIterator[None]:
            self.lives = True
            yield
            self.lives = False

        application = FastAPI(lifespan=lifespan)
        application.get("/livez")(lambda: "opened")
        application.get("/other")(lambda: "other")
        return application

    async def run(self, asks: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        """Ask while the server lives."""
        stops, started = asyncio.Event(), asyncio.Event()
        messages = iter([None, stops])

        async def receive() -> Message:
            waited = next(messages)
            if waited is not None:
                await waited.wait()
            return {"type": "lifespan"}

        async def send(message: Message) -> None:
            if message["type"] == "lifespan.startup.complete":
                started.set()

        living = asyncio.create_task(self.starting({"type": "lifespan"}, receive, send))
        await started.wait()
        transport = httpx.ASGITransport(self.starting)
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            await asks(client)
        stops.set()
        await living


@pytest.mark.parametrize("path", ["/livez", "/healthz"])
def test_it_tells_that_it_is_alive_while_the_application_opens(path: str) -> None:
    scene = _Scene()

    async def ask(client: httpx.AsyncClient) -> None:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.json() == {"status": "ok", "phase": "starting"}
        scene.may_open.set()

    asyncio.run(scene.run(ask))


def test_other_requests_wait_for_the_application_and_it_answers_all_from_then_on() -> None:
    scene = _Scene()

    async def ask(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(client.get("/other"))
        assert (await client.get("/livez")).json()["phase"] == "starting"
        assert not waiting.done()
        scene.may_open.set()
        assert (await waiting).json() == "other"
        assert scene.lives
        assert (await client.get("/livez")).json() == "opened"

    asyncio.run(scene.run(ask))
    assert not scene.lives
    assert scene.starting.error is None
    assert not scene.server.should_exit


def test_where_no_application_can_be_opened_the_server_ends() -> None:
    scene = _Scene(OSError("the folder is locked"))

    async def ask(client: httpx.AsyncClient) -> None:
        waiting = asyncio.create_task(client.get("/other"))
        scene.may_open.set()
        assert_problem(await waiting, 503, "not_ready")

    asyncio.run(scene.run(ask))
    assert scene.server.should_exit
    assert str(scene.starting.error) == "the folder is locked"
