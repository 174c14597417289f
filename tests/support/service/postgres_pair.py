"""A PostgreSQL and its synchronous standby, which may take its place."""

import shutil
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil

from tests.support.service.ports import HOST
from tests.support.service.postgres import Postgres
from tests.support.waiting import wait_until

NAMES: Final = ("east", "west")
"""What the servers call themselves."""
_SECONDS: Final = 60.0


class PostgresPair:
    """Two servers: a primary, and one that may be its standby.

    ``settings``: of both servers. ``primary``, ``standby``: they swap when the standby is promoted.
    """

    def __init__(self, **settings: str) -> None:
        self.primary, self.standby = (
            Postgres(**settings, cluster_name=name, wal_retrieve_retry_interval="500ms")
            for name in NAMES
        )
        self._ports = self.primary.port, self.standby.port

    def url(self, name: str) -> str:
        """Return the URL of a database, on whichever server takes writes."""
        hosts = ",".join(f"{HOST}:{port}" for port in self._ports)
        return f"postgresql://gcws@{hosts}/{name}"

    def start(self, name: str) -> None:
        """Start the primary, with an empty database."""
        self.primary.create()
        self.primary.start()
        self.primary.execute(f"CREATE DATABASE {name}")

    def add_standby(self) -> None:
        """Copy the primary to the standby; on return commits wait for it."""
        primary, standby = self.primary, self.standby
        shutil.rmtree(standby.data, ignore_errors=True)  # of a primary that was lost
        options = ["-R", "--checkpoint=fast", "--no-sync", "-D", str(standby.data)]
        primary.run("pg_basebackup", ["-d", primary.url("postgres"), *options])
        standby.start()
        self._wait_until_it_is("streaming", "state")
        primary.wait_for_standby(standby.settings["cluster_name"])
        self._wait_until_it_is("sync", "sync_state")

    def promote_standby(self) -> None:
        """Let the standby take the place of a primary that is gone, and wait for no other."""
        self.standby.wait_for_standby("")
        self.standby.promote()
        self.primary, self.standby = self.standby, self.primary

    @contextmanager
    def asynchronous(self) -> Iterator[None]:
        """Have commits wait for no standby until the block ends, which may have ended it."""
        self.primary.wait_for_standby("")
        try:
            yield
        finally:
            self.standby.stop()
            self.standby.start()
            self.primary.wait_for_standby(self.standby.settings["cluster_name"])

    def _wait_until_it_is(self, expected: str, column: str) -> None:
        statement = f"SELECT {column} FROM pg_stat_replication"
        wait_until(lambda: (expected,) in self.primary.execute(statement))

    def remove(self) -> None:
        """End both and delete their folders."""
        self.standby.remove()
        self.primary.remove()


def kill_server(server: Postgres, how: signal.Signals) -> None:
    """End a server as its loss would; return once none of its processes is left."""
    processes = psutil.Process(server.pid).children(recursive=True)
    server.stop(how)
    # After SIGKILL its children see by themselves that it is gone.
    left = psutil.wait_procs(processes, timeout=_SECONDS)[1]
    assert not left, left
