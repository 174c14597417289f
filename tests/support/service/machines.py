"""A cluster without Ray of which each process has a machine of its own; see `network`."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import psutil

from gcws_search.service.cluster.contract import MESSAGES, Replica, Row, bucket_of, raise_error
from gcws_search.service.cluster.database import Database
from gcws_search.service.messages import Message, decode, decode_texts, encode
from tests.support.service.client import START_SECONDS
from tests.support.service.network import Machine, Network
from tests.support.service.postgres import Postgres

BUCKETS: Final = 12
PORT: Final = 8000
SECONDS: Final = 90.0
"""Bounds every wait."""
_KEY: Final = secrets.token_hex()


class Program:
    """A command of ``gcws-search`` that listens on a machine of its own.

    ``words``: of the command line. ``variables``: of its environment.
    """

    def __init__(
        self, machine: Machine, words: Sequence[str], folder: Path, variables: dict[str, str]
    ) -> None:
        self.machine = machine
        self.address = f"{machine.address}:{PORT}"
        self.url = f"http://{self.address}"
        self._log = folder / f"{machine.name}.log"
        self._command = [sys.executable, "-m", "gcws_search", *words, f"--port={PORT}"]
        self._command += [f"--host={machine.address}", f"--data-dir={folder / machine.name}"]
        self._variables = {**os.environ, **variables}
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        with self._log.open("ab") as log, self.machine.entered():
            self.process = subprocess.Popen(
                self._command, env=self._variables, stdout=log, stderr=log
            )

    def wait_until_ready(self) -> None:
        """Return once it can be asked for all collections."""
        end = time.monotonic() + START_SECONDS
        while True:
            with suppress(httpx.TransportError):
                if httpx.get(f"{self.url}/readyz", timeout=5).status_code == 200:
                    return
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        """Return the end of what it has said."""
        return f"{self.machine.name}: {self._log.read_text()[-3000:]}"

    def end(self) -> None:
        """Have it stop, and return when it has."""
        self.process.terminate()
        self.process.wait(SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


class MachineCluster:
    """A database, replicas of two shards, two routers, and the machine of the clients.

    ``settings``: of the database's server. ``replicas``: of each shard.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gcws-machines-", dir="/tmp"))
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
            self.server.execute("ALTER SYSTEM SET synchronous_standby_names = 'standby'")
            self.server.execute("SELECT pg_reload_conf()")
            state = "SELECT sync_state FROM pg_stat_replication"
            until(lambda: self.server.execute(state) == [("sync",)])
        return standby

    def start(self, url: str, *, shards: int = 2, replicas: int = 2, routers: int = 2) -> None:
        """Start all replicas and routers; return once they can be asked."""
        self._open(url, shards)
        for shard in range(shards):
            self.replicas.append([])
            for replica in range(replicas):
                words = ["shard", f"--shard={shard}", f"--replica={replica}"]
                self.replicas[-1].append(self._started(f"shard{shard}-{replica}", words))
        self.routers += [self._started(f"router{each}", ["serve"]) for each in range(routers)]
        with self.client.entered():
            for each in self.programs:
                each.wait_until_ready()
            self.wait_until_whole()

    def _open(self, url: str, shards: int) -> None:
        """Open the database, and set what all processes have in common."""
        self.variables = {
            "GCWS_DATABASE_URL": url,
            "GCWS_CLUSTER_KEY": _KEY,
            "GCWS_BUCKETS": str(BUCKETS),
            "GCWS_SHARDS": str(shards),
            "GCWS_THREADS": "1",
            "GCWS_SHARD_SECONDS": "6",
            "GCWS_ALLOW_NO_KEY": "true",
        }
        with self.client.entered():
            self.database = Database.open(url, buckets=BUCKETS)

    def _started(self, name: str, words: Sequence[str]) -> Program:
        return Program(self.network.add(name), words, self.folder, self.variables)

    @property
    def programs(self) -> list[Program]:
        """All replicas and routers."""
        return [*(each for shard in self.replicas for each in shard), *self.routers]

    def wait_until_whole(self) -> list[Replica]:
        """Return the replicas once all have what the database has, and routers ask all."""
        end = time.monotonic() + SECONDS
        expected = sorted(each.address for shard in self.replicas for each in shard)
        while True:
            found = [each for each in self.database.replicas("main") if each.seen < 5]
            if sorted(each.address for each in found if each.is_filled) == expected and all(
                listed(router) == [len(each) for each in self.replicas] for router in self.routers
            ):
                return found
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def check_replicas(self, rows: Sequence[Row], number: int, head: int) -> None:
        """Compare all replicas with what the database has."""
        asked = {"method": "rows", "collection": number, "at": head, "seconds": SECONDS}
        for each in self.wait_until_whole():
            mine = [
                (row.key, row.id)
                for row in rows
                if bucket_of(row.id, BUCKETS) % each.shards == each.shard
            ]
            assert mine
            assert keys_and_ids(told(each.address, asked)) == mine, each

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


def told(address: str, head: dict[str, Any]) -> Message:
    """Return a replica's answer to a message."""
    answer = httpx.post(
        f"http://{address}{MESSAGES}",
        content=encode(Message(head)),
        headers={"Authorization": f"Bearer {_KEY}"},
        timeout=2 * SECONDS,
    )
    message = decode(answer.content)
    raise_error(message)
    return message


def reached(replica: Program, collection: int = 1) -> int:
    """Return the key of a collection that a replica has reached."""
    head = {"method": "follow", "collection": collection, "key": 0, "seconds": 0}
    return int(told(replica.address, head).head["key"])


def keys_and_ids(answer: Message) -> list[tuple[int, str]]:
    """Return the keys and ids of an answer with rows."""
    keys = np.frombuffer(answer.blobs[0], np.int64).tolist()
    ids = [(each or b"").decode() for each in decode_texts(*answer.blobs[1:3])]
    return [*zip(keys, ids, strict=True)]


def listed(router: Program) -> list[int]:
    """Return how many replicas of each shard a router asks."""
    name, found = "gcws_router_replicas{", list[int]()
    for line in httpx.get(f"{router.url}/metrics", timeout=SECONDS).text.splitlines():
        if line.startswith(name):
            found.append(round(float(line.rpartition(" ")[2])))
    return found


def counted(router: Program, line: str) -> float:
    """Return the value of one line of a router's metrics; 0 where there is none."""
    for each in httpx.get(f"{router.url}/metrics", timeout=SECONDS).text.splitlines():
        name, _, value = each.rpartition(" ")
        if name == line:
            return float(value)
    return 0.0


@contextmanager
def frozen(*processes: int) -> Iterator[None]:
    """Stop processes and all that they have started until the block ends; they do not notice."""
    found = [psutil.Process(each) for each in processes]
    all_of_them = [*found, *(child for each in found for child in each.children(recursive=True))]
    for each in all_of_them:
        _send(each, signal.SIGSTOP)
    try:
        yield
    finally:
        for each in all_of_them:
            _send(each, signal.SIGCONT)


def _send(process: psutil.Process, what: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(what)


def until(holds: Any, said: Any = None) -> None:  # noqa: ANN401
    """Return once something holds."""
    end = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < end, said() if said else ""
        time.sleep(0.1)
