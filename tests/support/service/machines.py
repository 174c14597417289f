"""A cluster without Ray of which each process has a machine of its own; see `network`."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil

from gcws_search.service.cluster.contract import Replica
from gcws_search.service.cluster.database import Database
from tests.support.service.network import Network
from tests.support.service.postgres import Postgres
from tests.support.service.programs import Program
from tests.support.service.shards import differing, tell
from tests.support.waiting import wait_until

BUCKETS: Final = 12
SECONDS: Final = 90.0
"""Bounds every answer."""
KEY: Final = secrets.token_hex()


class MachineCluster:
    """A database, replicas of two shards, two routers, and the machine of the clients.

    ``settings``: of the database's server.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gcws-machines-"))
        self.network = Network()
        self.client = self.network.add("client")
        self.store = self.network.add("database")
        self.replicas: list[list[Program]] = []
        self.routers: list[Program] = []
        self.standby: Postgres | None = None
        self.server = Postgres(listen_addresses=self.store.address, **settings)

    def start_database(self) -> None:
        """Make the database, and start it on its machine."""
        self.server.create()
        with (self.server.data / "pg_hba.conf").open("a") as access:
            access.write("host all,replication all 10.77.0.0/24 trust\n")
        with self.store.entered():
            self.server.start()
            self.server.execute("CREATE DATABASE things")
        self.database_url = self.server.url("things")

    def start_standby(self) -> Postgres:
        """Start a copy of the database on a machine of its own, which commits wait for."""
        self.second = self.network.add("standby")
        standby = self.standby = Postgres(**self.server.settings)
        standby.host = standby.settings["listen_addresses"] = self.second.address
        standby.port = self.server.port
        source = f"{self.server.url('postgres')}?application_name=standby&connect_timeout=2"
        with self.second.entered():
            words = ["-D", str(standby.data), "-d", source, "-X", "stream", "-R", "-c", "fast"]
            standby.run("pg_basebackup", words)
            standby.start()
        with self.store.entered():
            self.server.wait_for_standby("standby")
            state = "SELECT sync_state FROM pg_stat_replication"
            wait_until(lambda: self.server.execute(state) == [("sync",)])
        return standby

    def start(self, *, replicas: int = 2) -> None:
        """Start all replicas and routers; return once they can be asked."""
        self._open()
        for shard in range(2):
            self.replicas.append([])
            for replica in range(replicas):
                words = ["shard", f"--shard={shard}", f"--replica={replica}"]
                self.replicas[-1].append(self._started(f"shard{shard}-{replica}", words))
        self._start_routers()

    def _start_routers(self) -> None:
        self.routers += [self._started(f"router{each}", ["serve"]) for each in range(2)]
        with self.client.entered():
            for each in self.programs:
                each.wait_until_ready()
            self.wait_until_whole()

    def _open(self) -> None:
        """Open the database, and set what all processes have in common."""
        self.variables = {
            "GCWS_DATABASE_URL": self.database_url,
            "GCWS_CLUSTER_KEY": KEY,
            "GCWS_BUCKETS": str(BUCKETS),
            "GCWS_SHARDS": "2",
            "GCWS_THREADS": "1",
            "GCWS_SHARD_SECONDS": "6",
            "GCWS_ALLOW_NO_KEY": "true",
        }
        with self.client.entered():
            self.database = Database.open(self.database_url, buckets=BUCKETS)

    def _started(self, name: str, words: Sequence[str]) -> Program:
        return Program(name, words, self.folder, self.variables, self.network.add(name))

    @property
    def programs(self) -> list[Program]:
        """All replicas and routers."""
        return [*(each for shard in self.replicas for each in shard), *self.routers]

    def wait_until_whole(self) -> list[Replica]:
        """Return the replicas once all have what the database has, and routers ask all."""
        expected = sorted(each.address for shard in self.replicas for each in shard)

        def whole() -> list[Replica]:
            found = [each for each in self.database.replicas("main") if each.seen < 5]
            filled = sorted(each.address for each in found if each.is_filled)
            is_whole = filled == expected and self.routers_ask([*map(len, self.replicas)])
            return found if is_whole else []

        return wait_until(whole, self.said)

    def routers_ask(self, replicas: list[int]) -> bool:
        """Return whether each router asks so many replicas of each shard."""
        return all(router.listed() == replicas for router in self.routers)

    def check_replicas(self, number: int) -> None:
        """Compare all replicas with what the database has of a collection."""
        assert not differing(self.database, self.wait_until_whole(), number, KEY)

    def said(self) -> str:
        """Return the end of what all have said."""
        return "\n".join(each.said() for each in self.programs)

    def stop(self) -> None:
        """End all processes, and remove the machines and all files."""
        for each in self.programs:
            each.kill()
        if hasattr(self, "database"):
            self.database.close()
        self.server.remove()
        if self.standby is not None:
            self.standby.remove()
        self.network.remove()
        shutil.rmtree(self.folder, ignore_errors=True)


def reached(replica: Program, collection: int = 1) -> int:
    """Return the key of a collection that a replica has reached."""
    head = {"method": "follow", "collection": collection, "key": 0, "seconds": 0}
    return int(tell(replica.address, KEY, head).head["key"])


@contextmanager
def frozen(number: int) -> Iterator[None]:
    """Stop a process and all that it has started until the block ends; they do not notice."""
    process = psutil.Process(number)
    every = [process, *process.children(recursive=True)]
    for each in every:
        with suppress(psutil.NoSuchProcess):
            each.suspend()
    try:
        yield
    finally:
        for each in every:
            with suppress(psutil.NoSuchProcess):
                each.resume()
