"""A load that is killed, and run again."""

import json
import subprocess
import sys

import pytest

import gcws_search
from tests.support.paths import REPOSITORY

ROWS = 20_000
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


@pytest.mark.parametrize("sent", [1, ROWS // 2, ROWS - 1])
def test_a_load_that_is_killed_is_complete_after_the_next(
    server: gcws_search.Server, url: str, sent: int
) -> None:
    with loading(url) as first:
        assert first.stdin is not None
        first.stdin.write(b"".join(LINES[:sent]))
        first.stdin.flush()
        first.kill()
        first.communicate()
    with loading(url) as second:
        out, error = second.communicate(b"".join(LINES))
    assert second.returncode == 0, error.decode()
    plants = server.collection("plants")
    found = {item.id: (item.vector, item.payload) for item in plants}
    assert found == {str(row): ([row + 1.0, 1.0], {"row": row}) for row in range(ROWS)}
    assert out.decode() == f"plants: {ROWS} inserted, 0 updated\n"
