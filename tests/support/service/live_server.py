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

from gcws_search.service.app import create_app
from gcws_search.service.server import server_options
from gcws_search.service.settings import Settings
from tests.support.service.client import START_SECONDS, Json

URL: Final = "/v1/collections/plants"


@contextmanager
def listening(
    data_dir: Path, *, seen: list[uvicorn.Server] | None = None, **more: Json
) -> Iterator[int]:
    """Serve over a port of loopback; yield the port once all is ready, put the server in `seen`."""
    defaults: dict[str, Json] = {"audit_share": 0.0}  # as of `client.application`
    settings = Settings(
        data_dir=data_dir,
        threads=1,
        durability="normal",
        max_memory_share=1,
        max_disk_share=1,
        **(defaults | more),
    )
    app = create_app(settings)
    config = uvicorn.Config(
        app, log_level="critical", http=server_options(settings)["http"], ws="none", lifespan="on"
    )
    server = uvicorn.Server(config)
    if seen is not None:
        seen.append(server)
    bound = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=asyncio.run, args=[server.serve(sockets=[bound])])
    thread.start()
    try:
        port = int(bound.getsockname()[1])
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            client.get("/livez")
            assert app.state.service.startup.wait(START_SECONDS)
            assert client.put(URL, json={"dim": 4}).status_code == 201
        yield port
    finally:
        server.should_exit = True
        thread.join()
        bound.close()
