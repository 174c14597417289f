"""A small HTTP client with little overhead: keep-alive connections, answers awaited in turn."""

import json
import socket
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

HOST: Final = "127.0.0.1"
CONNECTIONS: Final = 4
HEADER_END: Final = b"\r\n\r\n"


def request_bytes(
    method: str, path: str, body: bytes = b"", content_type: str = "application/json"
) -> bytes:
    """Return the bytes of one HTTP/1.1 request."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\n"
        f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection:
    """One keep-alive connection."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=600)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: bytes) -> None:
        """Send a whole request."""
        self._socket.sendall(request)

    def receive(self) -> bytes:
        """Return the body of the next answer; RuntimeError unless it is a success."""
        received = self._socket.recv(1 << 16)
        while HEADER_END not in received:
            received += self._more()
        head, _, body = received.partition(HEADER_END)
        length = int([*head.lower().split(b"content-length:"), b"0"][1].split(b"\r\n")[0])
        while len(body) < length:
            body += self._more()
        if not head.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"{head!r} {body[:500]!r}")
        return body

    def _more(self) -> bytes:
        received = self._socket.recv(1 << 16)
        if not received:
            raise RuntimeError("the server closed the connection")
        return received

    def ask(self, method: str, path: str, document: object = None) -> dict[str, Any]:
        """Send one JSON request; return the answer's JSON."""
        body = b"" if document is None else json.dumps(document).encode()
        self.send(request_bytes(method, path, body))
        answer: dict[str, Any] = json.loads(self.receive() or b"{}")
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


@dataclass(frozen=True, slots=True)
class Load:
    """What a run of requests gave.

    Attributes
    ----------
    rate : float
        Answers a second.
    p50_seconds, p99_seconds : float
        Of one request among those under way at once.
    """

    rate: float
    p50_seconds: float
    p99_seconds: float


def run(
    port: int, requests: Sequence[bytes], *, connections: int = CONNECTIONS, seconds: float = 4.0
) -> Load:
    """Send the requests round and round over several connections for some seconds."""
    pool = [Connection(port) for _ in range(connections)]
    sent = [0.0] * connections
    times: list[float] = []
    began = time.perf_counter()
    for i, connection in enumerate(pool):
        sent[i] = time.perf_counter()
        connection.send(requests[i % len(requests)])
    count = connections
    while time.perf_counter() - began < seconds:
        for i, connection in enumerate(pool):
            connection.receive()
            now = time.perf_counter()
            times.append(now - sent[i])
            sent[i] = now
            connection.send(requests[count % len(requests)])
            count += 1
    elapsed = time.perf_counter() - began
    for connection in pool:
        connection.receive()
        connection.close()
    return Load(len(times) / elapsed, *quantiles(times))


def quantiles(times: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    cuts = statistics.quantiles(times, n=100)
    return statistics.median(times), cuts[98]
