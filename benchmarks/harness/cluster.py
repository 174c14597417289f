"""A cluster on this machine: PostgreSQL with or without a standby, shards and a router."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.harness.server import Server, serving
from tests.support.service.postgres_pair import PostgresPair

DATABASE: Final = "bench"
_DURABLE: Final = {
    "fsync": "on",
    "full_page_writes": "on",
    "autovacuum": "on",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",
}
_PROGRAM: Final = ("-m", "gcws_search")


@dataclass(frozen=True, slots=True)
class Cell:
    """A number of shards over a database.

    Attributes
    ----------
    url : str
        Of the database.
    folder : Path
        Of the shards' files, a folder a shard.
    shards : int
    name : str
        Of the cluster, of those that follow one database.
    """

    url: str
    folder: Path
    shards: int
    name: str = "main"

    @property
    def settings(self) -> dict[str, str]:
        """Variables of all its processes."""
        return {
            "GCWS_DATABASE_URL": self.url,
            "GCWS_SHARDS": str(self.shards),
            "GCWS_CLUSTER_KEY": "of routers and shards of a benchmark",
            "GCWS_CELL": self.name,
        }

    def folder_of(self, shard: int) -> Path:
        """Return the folder of a shard's files."""
        return self.folder / f"{self.name}-{shard}"

    @contextmanager
    def shard(self, shard: int) -> Iterator[Server]:
        """Run one replica of a shard until the block ends."""
        program = (*_PROGRAM, "shard", "--shard", str(shard))
        folder = self.folder_of(shard)
        with serving(folder, program=program, settings=self.settings) as server:
            yield server

    @contextmanager
    def running(self) -> Iterator[tuple[Server, Sequence[Server]]]:
        """Run all shards and a router until the block ends."""
        with ExitStack() as stack:
            shards = [stack.enter_context(self.shard(each)) for each in range(self.shards)]
            yield stack.enter_context(self.router()), shards

    @contextmanager
    def router(self) -> Iterator[Server]:
        """Run a router until the block ends."""
        with serving(self.folder / f"{self.name}-router", settings=self.settings) as server:
            yield server


@contextmanager
def databases() -> Iterator[PostgresPair]:
    """Lend a primary that is as durable as it can be until the block ends."""
    found = PostgresPair(**_DURABLE)
    try:
        found.start(DATABASE)
        yield found
    finally:
        found.remove()


def kill(server: Server) -> None:
    """End a server as the loss of its machine would."""
    os.kill(server.pid, signal.SIGKILL)
