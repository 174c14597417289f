"""What one iteration of the event loop writes goes out together, and nothing is held back."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from gcws_search.service.server import JoinedWrites
from tests.service.http.test_timeouts import HEAD, connected, ended
from tests.support.service.live_server import URL, listening

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


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
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
    ],
)
def test_two_writes_of_a_turn_are_one_and_none_waits_longer(
    pieces: tuple[bytes | str, ...], expected: list[bytes]
) -> None:
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
