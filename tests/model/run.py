"""One long life of a directory: operations, restarts, and copies as a kill leaves them."""

import random
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.model.operations import Operations
from tests.support.index.policies import FEW_ROWS
from tests.support.service.client import Client, started

OPERATIONS_A_START: Final = 400
"""On average."""


class Life:
    """Applications on one directory, one after the other.

    Parameters
    ----------
    folder : Path
        Empty.
    seed : int
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._random = random.Random(seed)
        self._lives = 0
        self.restarts = self.copies = 0
        self._client = self._started()
        self.operations = Operations(self._client, seed)

    @property
    def _directory(self) -> Path:
        return self._folder / f"life-{self._lives}"

    def _started(self) -> Client:
        client = started(self._directory, policies=FEW_ROWS, load_chunk_rows=16)
        client.wait_until_ready()
        return client

    def run(self, count: int) -> None:
        """Do so many operations."""
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
            self._directory.mkdir()
            for log in old.glob("*-wal"):
                shutil.copy(log, self._directory)
            others = shutil.ignore_patterns("*-shm", "*-wal")
            shutil.copytree(old, self._directory, ignore=others, dirs_exist_ok=True)
            self._client.stop()
            shutil.rmtree(old)
            self.copies += 1
        self._client = self.operations.client = self._started()
        self.operations.check()

    def close(self) -> None:
        """Stop."""
        self._client.stop()


@contextmanager
def life(folder: Path, seed: int) -> Iterator[Life]:
    """Live in a folder."""
    lived = Life(folder, seed)
    try:
        yield lived
    finally:
        lived.close()


def live(seed: int, operations: int) -> tuple[int, int, dict[str, int]]:
    """Return the restarts, the starts from files left without a stop, and what was done."""
    with tempfile.TemporaryDirectory() as name, life(Path(name), seed) as lived:
        lived.run(operations)
        return lived.restarts, lived.copies, lived.operations.counts
