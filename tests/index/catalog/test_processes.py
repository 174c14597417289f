"""A second process on a directory, and a process that is killed while it writes."""

import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.contracts.errors import DirectoryLocked
from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams
from tests.support.paths import REPOSITORY

EXACT = CollectionConfig(dim=3, backend=ExactParams())


def opened(directory: Path) -> Catalog:
    catalog = Catalog.open(directory, threads=1)
    catalog.load()
    return catalog


# Two processes, and one that is killed


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:  # noqa: ANN401
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        **options,
    )


def output_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield whole lines: a killed process may have written a part of its last one."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith("\n"):
            yield line.rstrip("\n")


OWN = """
    import sys
    from pathlib import Path
    from gcws_search.index.collection.catalog import Catalog
    catalog = Catalog.open(Path(sys.argv[1]))
    print("open", flush=True)
    sys.stdin.read()
"""


def test_a_second_process_is_refused_and_told_who_holds_the_directory(tmp_path: Path) -> None:
    with python(OWN, tmp_path) as owner:
        assert next(output_of(owner)) == "open"
        with pytest.raises(DirectoryLocked) as caught:
            Catalog.open(tmp_path)
        assert caught.value.holder == f"process {owner.pid} on {socket.gethostname()}"
        assert str(owner.pid) in str(caught.value)
        owner.kill()
    opened(tmp_path).close()  # a killed owner holds nothing


def test_one_process_cannot_open_a_directory_twice(catalog: Catalog, tmp_path: Path) -> None:
    with pytest.raises(DirectoryLocked, match=f"process {os.getpid()}"):
        Catalog.open(tmp_path)
    catalog.create("things", EXACT)
    with pytest.raises(DirectoryLocked):  # the first attempt has not let go of the lock
        Catalog.open(tmp_path)


WRITE = """
    import sys, threading
    from pathlib import Path
    import numpy as np
    from gcws_search.index.collection.catalog import Catalog
    from gcws_search.index.collection.items import ItemBatch
    from gcws_search.index.contracts.parameters import CollectionConfig, ExactParams

    catalog = Catalog.open(Path(sys.argv[1]), threads=1)
    catalog.load()
    stored = catalog.create("things", CollectionConfig(dim=3, backend=ExactParams()))[0]
    printing = threading.Lock()

    def write(thread):
        for turn in range(100_000):
            ids = [f"{thread}.{turn % 50}.{place}" for place in range(3)]
            raw = stored.space.from_dense(np.full((3, 3), turn + 1, np.float32))
            if turn % 10 == 9:
                stored.delete(ids)
            else:
                stored.put(ItemBatch(ids, raw, [b'{"turn":%d}' % turn] * 3))
            with printing:
                print(thread, turn, flush=True)

    for thread in range(3):
        threading.Thread(target=write, args=(thread,), daemon=True).start()
    sys.stdin.read()
"""


@pytest.mark.parametrize("lines", [1, 40, 500])
def test_a_kill_loses_nothing_acknowledged_and_leaves_nothing_half_done(
    tmp_path: Path, lines: int
) -> None:
    acknowledged: dict[int, int] = {}
    with python(WRITE, tmp_path) as writer:
        for count, line in enumerate(output_of(writer), 1):
            thread, turn = map(int, line.split())
            acknowledged[thread] = turn
            if count == lines:
                writer.send_signal(signal.SIGKILL)
    catalog = opened(tmp_path)
    stored = catalog.get("things")
    turns = {
        item.id: (int(item.vector[0]) - 1, item.payload)
        for item in stored.page(limit=10_000, with_vector=True).items
        if isinstance(item.vector, list)
    }
    assert len(turns) == len(stored)
    for thread in range(3):
        last = acknowledged.get(thread, -1)
        expected = _state_after(thread, last)
        one_more = _state_after(thread, last + 1)  # committed, but not told any more
        found = {name: entry for name, entry in turns.items() if name.startswith(f"{thread}.")}
        assert found in (expected, one_more)
    catalog.close()


def _state_after(thread: int, last: int) -> dict[str, tuple[int, bytes]]:
    state: dict[str, tuple[int, bytes]] = {}
    for turn in range(last + 1):
        for place in range(3):
            name = f"{thread}.{turn % 50}.{place}"
            if turn % 10 == 9:
                state.pop(name, None)
            else:
                state[name] = (turn, b'{"turn":%d}' % turn)
    return state
