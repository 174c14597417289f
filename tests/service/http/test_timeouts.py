"""Real connections: clients that dawdle are shown the door, and writes go out together."""

import asyncio
import gc
import socket
import time
from pathlib import Path
from typing import Final

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gcws_search.service.server import JoinedWrites
from tests.support.service.live_server import URL, listening

HEAD: Final = b"PUT /v1/collections/plants/items HTTP/1.1\r\nHost: localhost\r\n"


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


def test_a_head_that_does_not_end_ends_the_connection(tmp_path: Path) -> None:
    with listening(tmp_path, header_seconds=0.2) as port:
        for begun in (b"", b"GET / HT", HEAD, HEAD + b"X: " + b"a" * 100):
            with connected(port) as connection:
                connection.sendall(begun)
                assert serves(port)
                assert ended(connection) == b""


def test_a_second_head_on_a_connection_is_timed_as_well(tmp_path: Path) -> None:
    with listening(tmp_path, header_seconds=0.2) as port, connected(port) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET ")  # ends the wait of a connection that is kept alive
        ended(connection)


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


def test_a_request_leaves_nothing_that_only_the_garbage_collector_frees(tmp_path: Path) -> None:
    """Requests that held themselves stopped the process for 50 ms every 2,000 of them."""
    with listening(tmp_path) as port, connected(port) as connection:
        gc.collect()
        gc.disable()
        try:
            for _ in range(50):
                connection.sendall(b"GET /v1/collections/plants HTTP/1.1\r\nHost: x\r\n\r\n")
                assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
            alive = sum(type(each) is RequestResponseCycle for each in gc.get_objects())
        finally:
            gc.enable()
        assert alive <= 2  # the last one of each connection


# What one turn of the event loop writes goes out together

LONG: Final = bytes(100_000)


class Recorded(asyncio.Transport):
    """A transport that takes down what goes out, by its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.is_closed
        self.sent.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def sent(*pieces: bytes | str) -> list[bytes]:
    """Return the calls for pieces written one after the other, or methods called among them."""

    async def written() -> list[bytes]:
        transport = Recorded()
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        for piece in pieces:
            if piece == "turn":
                await asyncio.sleep(0)
            elif isinstance(piece, str):
                getattr(joined, piece)()
            else:
                joined.write(piece)
        await asyncio.sleep(0)
        assert joined.is_closing() == transport.is_closed
        return transport.sent

    return asyncio.run(written())


JOINED: Final[list[tuple[tuple[bytes | str, ...], list[bytes]]]] = [
    ((b"head", b"body"), [b"headbody"]),
    ((b"head", b"a", b"b", b"c"), [b"heada", b"bc"]),
    ((b"head", b"a", b"b"), [b"heada", b"b"]),
    ((b"head", "turn", b"body"), [b"head", b"body"]),
    ((b"head", b""), [b"head"]),
    ((b"head", b"", "close"), [b"head"]),
    ((b"head", LONG), [b"head", LONG]),
    ((b"",), []),
    ((b"head", "close"), [b"head"]),
    ((b"head", b"body", "close"), [b"headbody"]),
    ((b"head", "abort"), []),
    ((b"head", b"body", "abort"), [b"headbody"]),
]


def test_two_writes_of_a_turn_are_one_and_none_waits_longer() -> None:
    for pieces, expected in JOINED:
        assert sent(*pieces) == expected


def test_a_transport_that_was_closed_below_gets_nothing() -> None:
    async def closed() -> list[bytes]:
        transport = Recorded()
        JoinedWrites(transport, asyncio.get_running_loop()).write(b"head")
        transport.close()  # as by the other side
        await asyncio.sleep(0)
        return transport.sent

    assert asyncio.run(closed()) == []


def test_a_client_that_waits_to_be_told_to_go_on_is_told(tmp_path: Path) -> None:
    body = b'{"items": [{"id": "a", "vector": [1, 2, 3, 4]}]}'
    more = b"Content-Type: application/json\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
    with listening(tmp_path) as port, connected(port) as connection:
        connection.sendall(HEAD + more % len(body))
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")


def test_an_answer_without_a_body_goes_out_and_its_connection_ends(tmp_path: Path) -> None:
    head = f"DELETE {URL} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with listening(tmp_path) as port, connected(port) as connection:
        connection.sendall(head.encode())
        assert ended(connection).startswith(b"HTTP/1.1 204")
