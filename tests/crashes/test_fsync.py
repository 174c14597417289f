"""What is synced before it is named or acknowledged, and a disk that does not: by strace."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from gcws_search.index.contracts.errors import StorageFailed
from gcws_search.index.storage.schema import Change, Identity, RowBatch
from gcws_search.index.storage.store import Store
from tests.crashes.servers import Asking, Running, serving
from tests.support.paths import REPOSITORY
from tests.support.service.ports import HOST
from tests.support.waiting import wait_until

needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
URL = "/v1/collections/things"
WRITES = 20

_SYNC = re.compile(r"(?:fsync|fdatasync)\(\d+<.*\.sqlite-wal>\) = 0")
_ANSWER = re.compile(r'(?:write|writev|send|sendto|sendmsg)\(.*"HTTP/1\.1 20')
_CALL = re.compile(r"\d+ +((\w+)\(.*)")
_OPENED = re.compile(r"<(/[^>]*)>")
_NAMED = re.compile(r'"(/[^"]*)"')
_HIDDEN = re.compile(r"\.(creating|dropping)-|.*-(wal|shm)$")
"""Files that the next start removes, or that SQLite sees to."""

_BYTECODE = "/__pycache__/"
"""Files that the interpreter keeps of what it imports, and makes anew where one is damaged."""

WRITING = ("fsync", "fdatasync", "write", "writev", "sendto", "sendmsg")
FILLING = ("pwrite64", "sendfile")
NAMING = ("rename", "renameat2", "link", "linkat", "unlink", "mkdir")


def calls(log: Path) -> list[tuple[str, str]]:
    """Return the name of each call that succeeded and what strace wrote of it, as they ended."""
    found = filter(None, map(_CALL.match, log.read_text().splitlines()))
    return [(call[2], call[1]) for call in found if _BYTECODE not in call[1]]


def too_early(log: Path) -> list[str]:
    """Return what was named before its content was on the disk, or answered before its name was."""
    contents: set[Path] = set()
    folders: set[Path] = set()
    said = []
    for name, text in calls(log):
        opened = [Path(path) for path in _OPENED.findall(text)]
        named = [Path(path) for path in _NAMED.findall(text)]
        seen = [path for path in named if not _HIDDEN.match(path.name)]
        if _ANSWER.match(text):
            said += [f"answered before the names in {folder} were synced" for folder in folders]
            folders.clear()
        elif name in ("write", *FILLING):
            contents.update(opened[:1])
        elif name in ("fsync", "fdatasync"):
            contents.difference_update(opened)
            folders.difference_update(opened)
        elif name in NAMING:
            folders.update(path.parent for path in seen)
            if named[0] in contents and named[-1] in seen and len(named) > 1:
                said.append(f"{named[0]} was not synced before it became {named[-1]}")
            contents.discard(named[0])
    return said


def traced(server: Running, log: Path, names: tuple[str, ...] = WRITING) -> "subprocess.Popen[str]":
    """Trace all threads of a server; strace says so when it has begun."""
    known = ",".join(f"?{name}" for name in names)  # no machine has all of them
    # What succeeded, each call in one line once it has ended.
    command = ["strace", "-f", "-y", "-z", "-s", "16", "-e", f"trace={known}", "-o", str(log)]
    process = subprocess.Popen([*command, "-p", str(server.pid)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = process.stderr.readline()
    if "attached" not in said:
        process.kill()
        pytest.skip(f"strace may not trace here: {said}")
    return process


def test_what_is_named_or_answered_too_early_is_told(tmp_path: Path) -> None:
    log = tmp_path / "calls"
    log.write_text(
        '7 write(3</d/a>, "x", 1) = 1\n'
        '7 rename("/d/a", "/d/b") = 0\n'
        '7 sendto(4<socket:[1]>, "HTTP/1.1 200 O"..., 16, 0, NULL, 0) = 16\n'
    )
    assert too_early(log) == [
        "/d/a was not synced before it became /d/b",
        "answered before the names in /d were synced",
    ]


@needs_strace
@pytest.mark.parametrize(("durability", "synced"), [("full", True), ("normal", False)])
def test_a_write_is_synced_before_it_is_acknowledged(
    tmp_path: Path, durability: str, synced: bool
) -> None:
    log = tmp_path / "calls"
    with (
        serving(tmp_path / "data", GCWS_DURABILITY=durability) as server,
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
            wait_until(lambda: "HTTP/1.1 204" in log.read_text())  # strace may be behind
            strace.terminate()
    events = "".join(
        "s" if _SYNC.match(text) else "a" if _ANSWER.match(text) else "" for _, text in calls(log)
    )
    answers = WRITES + 2
    assert events.count("a") == answers, log.read_text()
    assert (len(re.findall("s+a", events)) == answers) is synced, events


@needs_strace
def test_files_are_synced_before_they_are_named_and_folders_before_the_answer(
    tmp_path: Path,
) -> None:
    log = tmp_path / "calls"
    made = f"{URL}/snapshots"
    with (
        serving(tmp_path / "data") as server,
        Asking(server.port) as asking,
        traced(server, log, WRITING + FILLING + NAMING) as strace,
    ):
        asking.success("PUT", URL, {"dim": 2})
        asking.success("PUT", f"{URL}/items", {"items": [{"id": "first", "vector": [1, 2]}]})
        first = asking.success("POST", made)["name"]
        second = asking.success("POST", made)["name"]
        asking.success("DELETE", f"{made}/{first}")
        snapshots = f"http://{HOST}:{server.port}{made}"
        sent = httpx.put(f"{snapshots}/sent", content=httpx.get(f"{snapshots}/{second}").content)
        assert sent.is_success, sent.text
        asking.success("POST", f"{made}/{second}/restore?replace=true")
        asking.success("DELETE", URL)
        asking.success("POST", f"{made}/sent/restore")

        def is_answered() -> bool:  # strace may be behind
            return sum(1 for _, text in calls(log) if _ANSWER.match(text)) == 10

        wait_until(is_answered)
        strace.terminate()
    assert is_answered(), log.read_text()  # once a request
    renamed = [text for name, text in calls(log) if name.startswith("rename")]
    # Two collections made, three snapshots, a file replaced, a collection dropped.
    assert len(renamed) >= 7, log.read_text()
    assert too_early(log) == []


# A disk that does not sync: what was refused is not there after a kill

SYNCS = "fsync,fdatasync"


def change(*ids: str) -> Change:
    count = len(ids)
    return Change([], RowBatch([*ids], [b"vector"] * count, [b"codes"] * count, [None] * count))


def ids(path: Path) -> list[str]:
    with closing(Store(path, "things")) as store:
        return [item_id for chunk in store.chunks() for item_id in chunk.ids]


def write_and_die(path: Path, *refused: str) -> None:
    """Write items, of which none may be stored, and end without closing the file."""
    store = Store(path, "things")
    with pytest.raises(StorageFailed):
        store.write([change(*refused)])
    os._exit(0)


@needs_strace
@pytest.mark.parametrize("refused", [["b"], ["b", "c"]])
def test_a_write_that_could_not_be_synced_is_not_there_after_a_kill(
    refused: list[str], tmp_path: Path
) -> None:
    first, path = tmp_path / "first.sqlite", tmp_path / "things.sqlite"
    Store.create(first, "things", Identity({"dim": 2}, 1))
    with closing(Store(first, "things")) as store:
        store.write([change("a")])
        for suffix in ("", "-wal"):  # the next write is added to a log, and makes none
            shutil.copyfile(f"{first}{suffix}", f"{path}{suffix}")
    ended = subprocess.run(
        ["strace", "-f", "-o", str(tmp_path / "calls"), "-e", f"trace={SYNCS}",
         "-e", f"inject={SYNCS}:error=EIO", sys.executable, "-m", __name__, str(path), *refused],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in ended.stderr.lower() and "not permitted" in ended.stderr.lower():
        pytest.skip(f"strace may not trace here: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    assert "(INJECTED)" in (tmp_path / "calls").read_text()
    assert ids(path) == ["a"]


if __name__ == "__main__":
    write_and_die(Path(sys.argv[1]), *sys.argv[2:])
