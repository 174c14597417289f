"""Clients that dawdle over a real connection: they are shown the door, others are served."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest
import uvicorn

from service.app import create_app
from service.protocol import timed
from service.settings import Settings
from tests.served import START_SECONDS, Json

URL: Final = "/v1/collections/plants"
HEAD: Final = b"PUT /v1/collections/plants/items HTTP/1.1\r\nHost: localhost\r\n"


@contextmanager
def listening(
    data_dir: Path, *, seen: list[uvicorn.Server] | None = None, **more: Json
) -> Iterator[int]:
    """Serve over a port of loopback; yield the port once all is ready, put the server in `seen`."""
    settings = Settings(
        data_dir=data_dir, threads=1, durability="normal", max_memory_share=1, max_disk_share=1,
        **more,
    )  # fmt: skip
    app = create_app(settings)
    config = uvicorn.Config(
        app, log_level="critical", http=timed(settings), ws="none", lifespan="on"
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


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def ended(connection: socket.socket) -> bytes:
    """Return what still comes until the server ends the connection."""
    found = b""
    try:
        while piece := connection.recv(65_536):
            found += piece
    except ConnectionResetError:
        pass
    return found


def serves(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}{URL}", timeout=60).status_code == 200


@pytest.mark.parametrize("begun", [b"", b"GET / HT", HEAD, HEAD + b"X: " + b"a" * 100])
def test_a_head_that_does_not_end_ends_the_connection(tmp_path: Path, begun: bytes) -> None:
    with listening(tmp_path, header_seconds=0.2) as port, connected(port) as connection:
        connection.sendall(begun)
        assert serves(port)
        assert ended(connection) == b""


def test_a_second_head_on_a_connection_is_timed_as_well(tmp_path: Path) -> None:
    with listening(tmp_path, header_seconds=0.2) as port, connected(port) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\nGET ")
        assert ended(connection).startswith(b"HTTP/1.1 200")


def test_a_head_that_grows_without_end_is_cut_off(tmp_path: Path) -> None:
    with listening(tmp_path, max_header_bytes=2000) as port, connected(port) as connection:
        connection.sendall(HEAD)
        with pytest.raises(OSError, match=r"reset|pipe"):
            connection.sendall((b"X: " + b"a" * 1000 + b"\r\n") * 50_000)
        assert serves(port)


def test_a_long_body_is_no_long_head(tmp_path: Path) -> None:
    item = {"id": "a", "vector": [1, 2, 3, 4], "payload": {"text": "x" * 5000}}
    with (
        listening(tmp_path, max_header_bytes=2000) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        for _ in range(3):
            answer = client.put(f"{URL}/items", json={"items": [item]})
            assert answer.status_code == 200


def test_a_body_that_stops_is_408_and_the_connection_ends(tmp_path: Path) -> None:
    head = HEAD + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"
    with listening(tmp_path, body_seconds=0.2) as port, connected(port) as connection:
        connection.sendall(head)
        assert serves(port)
        answer = ended(connection)
        assert answer.startswith(b"HTTP/1.1 408")
        assert b"request_timeout" in answer


def test_an_answer_that_is_not_taken_ends_the_connection(tmp_path: Path) -> None:
    seen: list[uvicorn.Server] = []
    with listening(tmp_path, seen=seen, send_seconds=0.2) as port:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            items = [
                {"id": str(n), "vector": [1, 2, 3, 4], "payload": {"text": "x" * 500_000}}
                for n in range(40)
            ]
            assert client.put(f"{URL}/items", json={"items": items}).status_code == 200
        with socket.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(60)
            connection.connect(("127.0.0.1", port))
            connection.sendall(b"GET /v1/collections/plants/items HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
            assert serves(port)
            deadline = time.monotonic() + 60
            while seen[0].server_state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert len(ended(connection)) < 20_000_000
        assert serves(port)


def test_too_many_connections_are_closed_and_those_there_are_go_on(tmp_path: Path) -> None:
    with listening(tmp_path, max_connections=2) as port, connected(port) as first:
        first.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        assert first.recv(100).startswith(b"HTTP/1.1 200")
        with connected(port) as second, connected(port) as third:
            second.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert second.recv(100).startswith(b"HTTP/1.1 200")
            assert ended(third) == b""
