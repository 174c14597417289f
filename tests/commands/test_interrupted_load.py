"""A load that is killed, and run again."""

import json
import socket
import socketserver
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

import gcws_search
from gcws_search.client.connection import RetryPolicy
from gcws_search.commands.app import app
from tests.support.paths import REPOSITORY

ROWS = 8000
LINES = [
    json.dumps({"id": str(row), "vector": [row + 1, 1], "payload": {"row": row}}).encode() + b"\n"
    for row in range(ROWS)
]


def loading(url: str) -> "subprocess.Popen[bytes]":
    """Start a load from standard input."""
    command = [sys.executable, "-m", "gcws_search", "load", "-", "--into", "plants"]
    return subprocess.Popen(
        [*command, "--key", "plants-1", "--url", url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    )


@pytest.mark.parametrize("sent", [1, ROWS - 1])
def test_a_load_that_is_killed_is_complete_after_the_next(
    server: gcws_search.Server, url: str, sent: int
) -> None:
    with loading(url) as first:
        assert first.stdin is not None
        first.stdin.write(b"".join(LINES[:sent]))
        first.stdin.flush()
        first.kill()
        first.communicate()
    words = ["load", "-", "--into", "plants", "--key", "plants-1", "--url", url]
    second = CliRunner().invoke(app, words, input=b"".join(LINES))
    plants = server.collection("plants")
    found = {item.id: (item.vector, item.payload) for item in plants}
    assert found == {str(row): ([row + 1.0, 1.0], {"row": row}) for row in range(ROWS)}
    assert second.stdout == f"plants: {ROWS} inserted, 0 updated\n", second.output


class _Mortal(socketserver.ThreadingTCPServer):
    """Hands on what comes to a server, until so many bytes have come; then nobody is there."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self, port: int, life_bytes: int) -> None:
        self.port = port
        self.left_bytes = life_bytes
        self.open: list[socket.socket] = []
        super().__init__(("127.0.0.1", 0), _HandOn)

    def die(self) -> None:
        self.shutdown()
        self.server_close()
        for each in self.open:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


class _HandOn(socketserver.BaseRequestHandler):
    server: _Mortal

    def handle(self) -> None:
        with socket.create_connection(("127.0.0.1", self.server.port)) as behind:
            self.server.open += [self.request, behind]
            back = threading.Thread(target=self._hand_on, args=(behind, self.request))
            back.start()
            self._hand_on(self.request, behind)
            back.join()

    def _hand_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if source is self.request:
                    self.server.left_bytes -= len(piece)
                    if self.server.left_bytes < 0:
                        self.server.die()
                target.sendall(piece)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def test_a_load_goes_on_after_its_server_went_away(
    server: gcws_search.Server,
    url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RetryPolicy, "wait_seconds", lambda *_: 0.0)
    path = tmp_path / "all.ndjson"
    path.write_bytes(b"".join(LINES))
    words = ["load", str(path), "--into", "plants", "--url"]
    mortal = _Mortal(int(url.rpartition(":")[2]), len(path.read_bytes()) * 3 // 4)
    living = threading.Thread(target=mortal.serve_forever)
    living.start()
    gone = CliRunner().invoke(app, [*words, f"http://127.0.0.1:{mortal.server_address[1]}"])
    living.join()
    assert gone.exit_code == 1, gone.output
    told = gone.stderr.splitlines()[-1]
    for word in (str(path), "expected a server", "serve", "the same command goes on"):
        assert word in told, told
    done = CliRunner().invoke(app, [*words, url])
    assert done.stdout == f"plants: {ROWS} inserted, 0 updated\n", done.output
    found = {item.id: item.payload for item in server.collection("plants")}
    assert found == {str(row): {"row": row} for row in range(ROWS)}
