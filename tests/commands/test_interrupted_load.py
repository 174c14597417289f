"""A load that is killed, and run again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import gcws_search
from gcws_search.client.connection import RetryPolicy
from gcws_search.commands.app import app
from tests.support.paths import REPOSITORY
from tests.support.service.client import Json

ROWS = 8000
LINES = [
    json.dumps({"id": str(row), "vector": [row + 1, 1], "payload": {"row": row}}).encode() + b"\n"
    for row in range(ROWS)
]


@pytest.mark.parametrize("sent", [1, ROWS - 1])
def test_a_load_that_is_killed_is_complete_after_the_next(
    server: gcws_search.Server, url: str, sent: int
) -> None:
    words = ["load", "-", "--into", "plants", "--key", "plants-1", "--url", url]
    command, pipe = [sys.executable, "-m", "gcws_search", *words], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=REPOSITORY) as first:
        assert first.stdin is not None
        first.stdin.write(b"".join(LINES[:sent]))
        first.stdin.flush()
        first.kill()
        first.communicate()
    second = CliRunner().invoke(app, words, input=b"".join(LINES))
    plants = server.collection("plants")
    found = {item.id: (item.vector, item.payload) for item in plants}
    assert found == {str(row): ([row + 1.0, 1.0], {"row": row}) for row in range(ROWS)}
    assert second.stdout == f"plants: {ROWS} inserted, 0 updated\n", second.output


def test_a_load_goes_on_after_its_server_went_away(
    server: gcws_search.Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off amid a body of which much is stored, and is not there after that."""
    request, path = httpx.Client.request, tmp_path / "all.ndjson"

    def broken(pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield b"".join(pieces)[: 3 * path.stat().st_size // 4]
        raise httpx.WriteError("reset")

    def break_off(client: httpx.Client, method: str, where: str, **more: Json) -> httpx.Response:
        if not where.endswith("/load"):
            return request(client, method, where, **more)
        content, more["content"] = more["content"], None
        if loads:
            raise httpx.ConnectError("refused")
        loads.append(where)
        return request(client, method, where, **(more | {"content": broken(content)}))

    loads: list[str] = []
    path.write_bytes(b"".join(LINES))
    words = ["load", str(path), "--into", "plants", "--url", url]
    with monkeypatch.context() as patched:
        patched.setattr(RetryPolicy, "wait_seconds", lambda *_: 0.0)
        patched.setattr(httpx.Client, "request", break_off)
        gone = CliRunner().invoke(app, words)
    assert gone.exit_code == 1, gone.output
    told = gone.stderr.splitlines()[-1]
    for word in (str(path), "expected a server", "serve", "the same command goes on"):
        assert word in told, told
    done = CliRunner().invoke(app, words)
    assert done.stdout == f"plants: {ROWS} inserted, 0 updated\n", done.output
    found = {item.id: item.payload for item in server.collection("plants")}
    assert found == {str(row): {"row": row} for row in range(ROWS)}
