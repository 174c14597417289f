"""A disk that does not sync, as strace plays it: what was refused is not there after a kill."""

import os
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from gcws_search.index.contracts.errors import StorageFailed
from gcws_search.index.storage.records import Change, RowBatch
from gcws_search.index.storage.schema import Identity
from gcws_search.index.storage.store import Store
from tests.support.paths import REPOSITORY

CALLS = "fsync,fdatasync"


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


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
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
        ["strace", "-f", "-o", str(tmp_path / "calls"), "-e", f"trace={CALLS}",
         "-e", f"inject={CALLS}:error=EIO", sys.executable, "-m", __name__, str(path), *refused],
        cwd=REPOSITORY, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "ptrace" in ended.stderr.lower() and "not permitted" in ended.stderr.lower():
        pytest.skip(f"strace may not trace here: {ended.stderr}")
    assert ended.returncode == 0, ended.stderr
    assert "(INJECTED)" in (tmp_path / "calls").read_text()
    assert ids(path) == ["a"]


if __name__ == "__main__":
    write_and_die(Path(sys.argv[1]), *sys.argv[2:])
