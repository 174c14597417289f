"""One long life of a directory: operations, restarts, and copies as a kill leaves them."""

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

from gcws_search.service.cluster.follower import HostOptions
from tests.model.operations import Operations
from tests.support.index.policies import FEW_ROWS
from tests.support.service.client import Client, started
from tests.support.service.cluster import ClusterClient
from tests.support.service.postgres import postgres

OPERATIONS_A_START: Final = 400
"""On average."""

Start = Callable[[Path, random.Random], Client]
"""Starts an application on a directory; may draw how."""


def one_node(directory: Path, _: random.Random) -> Client:
    """Start an application on one machine."""
    return started(directory, policies=FEW_ROWS, load_chunk_rows=16)


OFFLOADING: Final = HostOptions(base_rows=1, base_seconds=0.05, offload=True, segment_bytes=200)
"""Moves vectors of a few items soon."""


def over_cluster(url: str) -> Start:
    """Return what starts a router over a database, and shards with their files in a directory.

    Beside it are bases, and vectors that were moved out of the database.
    """

    def start(directory: Path, drawn: random.Random) -> Client:
        counts = {"shards": drawn.randint(1, 4), "replicas": drawn.randint(1, 2)}
        more: Any = {"base": str(directory.parent / "bases"), "options": OFFLOADING, **counts}
        client = ClusterClient(url, directory, policies=FEW_ROWS, load_chunk_rows=16, **more)
        client.start()
        return client

    return start


class Life:
    """Applications on one directory, one after the other.

    ``folder``: Empty.
    """

    def __init__(self, folder: Path, seed: int, start: Start = one_node) -> None:
        self._folder = folder
        self._start = start
        self._random = random.Random(seed)
        self._lives = 0
        self.restarts = self.copies = 0
        self._client = self._started()
        self.operations = Operations(self._client, seed)

    @property
    def _directory(self) -> Path:
        return self._folder / f"life-{self._lives}"

    def _started(self) -> Client:
        client = self._start(self._directory, self._random)
        client.wait_until_ready()
        return client

    def run(self, count: int) -> None:
        for _ in range(count):
            if self._random.random() < 1 / OPERATIONS_A_START:
                self._restart()
            self.operations.step()
        self._restart()

    def _restart(self) -> None:
        """Stop and start, or go on with a copy of the files as they are without a stop."""
        old = self._directory
        if self._random.random() < 1 / 2:
            self._client.stop()
            self.restarts += 1
        else:
            self._lives += 1
            # The logs first: what a checkpoint moves meanwhile is then in both copies, not in none.
            for log in old.rglob("*-wal"):
                copy = self._directory / log.relative_to(old)
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(log, copy)
            others = shutil.ignore_patterns("*-shm", "*-wal", "bases")  # those are being sent
            shutil.copytree(old, self._directory, ignore=others, dirs_exist_ok=True)
            self._client.stop()
            shutil.rmtree(old)
            self.copies += 1
        self._client = self.operations.client = self._started()
        self.operations.check()

    def close(self) -> None:
        self._client.stop()


def live(seed: int, operations: int, *, is_cluster: bool = False) -> Counter[str]:
    """Return how often each operation was done, and how often a directory was opened again."""
    with ExitStack() as stack:
        start = over_cluster(stack.enter_context(postgres().database())) if is_cluster else one_node
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        lived = stack.enter_context(closing(Life(folder, seed, start)))
        lived.run(operations)
        starts = {"restart": lived.restarts, "start from files left as they were": lived.copies}
        return lived.operations.counts + Counter(starts)
