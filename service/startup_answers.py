"""Answers while the application is imported and opened: ``/livez`` at once, all else after that.

Without data, importing is the longest part of a start. A supervisor that asks whether the process
lives does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import orjson

if TYPE_CHECKING:
    import uvicorn
    from fastapi import FastAPI
    from starlette.types import Receive, Scope, Send

_ALIVE: Final = ("/livez", "/healthz")
_JSON: Final = b"application/json"
_BODY: Final = orjson.dumps({"status": "ok", "phase": "starting"})
_PROBLEM: Final = b"application/problem+json"
_FAILED: Final = orjson.dumps(
    {
        "type": "urn:gcws:problem:not_ready",
        "title": "Service Unavailable",
        "status": 503,
        "detail": "the service could not start, and ends; its log says why",
        "code": "not_ready",
        "errors": [],
    }
)


class StartingApplication:
    """ASGI: opens an application in a thread, and hands all requests on to it from then on.

    ``error``: why the application could not be opened.
    """

    def __init__(self, open_application: Callable[[], FastAPI]) -> None:
        self._open_application = open_application
        self._application: FastAPI | None = None
        self._server: uvicorn.Server | None = None
        self._tried = asyncio.Event()
        self.error: Exception | None = None

    def stop_on_failure(self, server: uvicorn.Server) -> None:
        """Name the server that stops if the application cannot be opened."""
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or hand on."""
        if self._application is not None:
            await self._application(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["path"] in _ALIVE and scope["method"] == "GET":
            await _answer(send, 200, _JSON, _BODY)
        else:
            await self._tried.wait()
            if self._application is None:
                await _answer(send, 503, _PROBLEM, _FAILED)
            else:
                await self._application(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        """Open the application once the server listens, and close it when that stops."""
        await receive()
        async with AsyncExitStack() as living:
            opening = asyncio.create_task(self._open(living))
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await opening
        await send({"type": "lifespan.shutdown.complete"})

    async def _open(self, living: AsyncExitStack) -> None:
        try:
            opened = await asyncio.to_thread(self._open_application)
            await living.enter_async_context(opened.router.lifespan_context(opened))
            self._application = opened
        except Exception as error:  # who started the server tells of it
            self.error = error
            if self._server is not None:
                self._server.should_exit = True
        finally:
            self._tried.set()


async def _answer(send: Send, status: int, content_type: bytes, body: bytes) -> None:
    headers = [
        (b"content-type", content_type),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", uuid4().hex.encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
