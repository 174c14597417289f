"""A front and its owner in this process: an application asked through Unix sockets."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from uvicorn.server import ServerState

from gcws_search.service.fronts.app import CHANNEL, HTTP, create_front
from gcws_search.service.fronts.processes import attach_channel
from gcws_search.service.server import server_options
from tests.support.service.client import Client, Json, application


class FrontClient(Client):
    """Sends requests to a front; its ``app`` is the owner's."""

    def __init__(self, data_dir: Path, **settings: Json) -> None:
        app, self._settings = application(data_dir, **settings)
        self._folder = Path(tempfile.mkdtemp(prefix="gcws-"))
        attach_channel(app, self._folder / CHANNEL)
        super().__init__(app)
        self.front = create_front(self._settings, self._folder)
        self._parts = AsyncExitStack()
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(self.front), base_url="http://test", timeout=60
        )

    def start(self) -> None:
        super().start()
        self.run(self._start())

    async def _start(self) -> None:
        await self._parts.enter_async_context(self._speaking_http())
        await self._parts.enter_async_context(self.front.router.lifespan_context(self.front))
        async with asyncio.timeout(60):
            while not self.front.state.service.link.is_connected:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    @asynccontextmanager
    async def _speaking_http(self) -> AsyncIterator[None]:
        """Let the owner speak HTTP at its socket."""
        config = uvicorn.Config(self.app, lifespan="off", log_config=None)
        config.load()
        self.speaking, speaker = ServerState(), server_options(self._settings)["http"]
        state = self.speaking

        def protocol() -> Json:
            return speaker(config=config, server_state=state, app_state={})

        path = str(self._folder / HTTP)
        server = await asyncio.get_running_loop().create_unix_server(protocol, path)
        try:
            yield
        finally:
            server.close()
            for connection in [*state.connections]:
                connection.shutdown()
            async with asyncio.timeout(60):
                while state.connections:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)

    def forget_http(self) -> None:
        """Let nobody find the socket at which the owner speaks HTTP."""
        (self._folder / HTTP).unlink()

    def stop(self) -> None:
        if not self._stopped:
            self.run(self._parts.aclose())
        super().stop()
        shutil.rmtree(self._folder, ignore_errors=True)
