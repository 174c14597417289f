"""An application behind a port of this machine, served by a thread of this process."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import uvicorn
from starlette.types import ASGIApp

from gcws_search.service.app import create_app
from gcws_search.service.server import server_options
from gcws_search.service.settings import Settings
from tests.support.service.client import START_SECONDS, Json
from tests.support.service.ports import HOST

URL: Final = "/v1/collections/plants"


@contextmanager
def serving(app: ASGIApp, bound: socket.socket, **options: Json) -> Iterator[uvicorn.Server]:
    """Serve an application at a socket, by a thread, until the block ends."""
    config = uvicorn.Config(app, log_level="critical", ws="none", lifespan="on", **options)
    server = uvicorn.Server(config)

    def run() -> None:
        # The loop of the product: asyncio's keeps pieces of an answer back for 40 ms, for the
        # socket does not tell that it is of TCP.
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(server.serve(sockets=[bound]))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join()
        bound.close()


@contextmanager
def listening(
    data_dir: Path, *, seen: list[uvicorn.Server] | None = None, **more: Json
) -> Iterator[int]:
    """Serve over a port of loopback; yield the port once all is ready, put the server in `seen`."""
    defaults: dict[str, Json] = {"audit_share": 0.0}  # as of `client.application`
    defaults |= {"threads": 1, "durability": "normal", "max_memory_share": 1, "max_disk_share": 1}
    settings = Settings(data_dir=data_dir, **(defaults | more))
    app, bound = create_app(settings), socket.create_server((HOST, 0))
    port = int(bound.getsockname()[1])
    with serving(app, bound, http=server_options(settings)["http"]) as server:
        if seen is not None:
            seen.append(server)
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=60) as client:
            client.get("/livez")
            assert app.state.service.startup.wait(START_SECONDS)
            assert client.put(URL, json={"dim": 4}).status_code == 201
        yield port
