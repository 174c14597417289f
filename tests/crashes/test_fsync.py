"""What the operating system is asked before a write is acknowledged, as strace sees it."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.crashes.servers import Asking, Nursery, Running

URL = "/v1/collections/things"
WRITES = 20

_SYNC = re.compile(
    r"(?:fsync|fdatasync)\(\d+<.*\.sqlite-wal>\) = 0|<\.\.\. f(?:data)?sync resumed>"
)
_ANSWER = re.compile(r'(?:write|writev|send|sendto|sendmsg)\(.*"HTTP/1\.1 20')


def traced(server: Running, log: Path) -> "subprocess.Popen[str]":
    """Trace all threads of a server; strace says so when it has begun."""
    calls = "fsync,fdatasync,write,writev,sendto,sendmsg"
    command = ["strace", "-f", "-y", "-s", "16", "-e", f"trace={calls}", "-o", str(log)]
    process = subprocess.Popen([*command, "-p", str(server.pid)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    if "attached" not in said:
        process.kill()
        pytest.skip(f"strace may not trace here: {said}")
    return process


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
@pytest.mark.parametrize(("durability", "synced"), [("full", True), ("normal", False)])
def test_a_write_is_synced_before_it_is_acknowledged(
    servers: Nursery, tmp_path: Path, durability: str, synced: bool
) -> None:
    log = tmp_path / "calls"
    with (
        servers.serving(tmp_path / "data", GCWS_DURABILITY=durability) as server,
        Asking(server.port) as asking,
    ):
        asking.success("PUT", URL, {"dim": 2})
        asking.success("PUT", f"{URL}/items", {"items": [{"id": "first", "vector": [1, 2]}]})
        with traced(server, log) as strace:
            for turn in range(WRITES):
                items = [{"id": f"{turn}", "vector": [turn + 1, 1]}]
                asking.success("PUT", f"{URL}/items", {"items": items})
            asking.success("POST", f"{URL}/items/delete", {"ids": ["0"]})
            asking.success("DELETE", f"{URL}/items/1")
            strace.terminate()
    events = "".join(
        "s" if _SYNC.search(line) else "a" if _ANSWER.search(line) else ""
        for line in log.read_text().splitlines()
    )
    answers = WRITES + 2
    assert events.count("a") == answers, log.read_text()
    assert (len(re.findall("s+a", events)) == answers) is synced, events
