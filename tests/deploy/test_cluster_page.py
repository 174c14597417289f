"""The cluster on one machine, and the database's page: their commands as they stand there."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from signal import SIGQUIT
from typing import Final

import psutil
import psycopg
import pytest
from typer.testing import CliRunner

from gcws_search.commands.app import app
from gcws_search.service.app import create_app
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.server import ShardServer
from gcws_search.service.settings import settings_from
from tests.support.documents.markdown import blocks
from tests.support.paths import REPOSITORY
from tests.support.service.client import Client, running
from tests.support.service.ports import HOST, free_port
from tests.support.service.postgres import other_user, programs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

PORTS: Final = ("5433", "5434", "5435", "5436")
URL: Final = "/v1/collections/plants"


class Page:
    """Runs the commands of PostgreSQL that pages have, in a folder of their own.

    ``shards``, ``router``: the words of the page's commands for these.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Pages' commands run as a user who may be another one than that of the tests.
        self.folder = Path(tempfile.mkdtemp(prefix="gcws-page-", dir="/tmp"))
        self.user = other_user() if os.geteuid() == 0 else None
        if self.user is not None:
            shutil.chown(self.folder, self.user)
        self.ports = {each: str(free_port()) for each in PORTS}
        self._monkeypatch = monkeypatch

    def start(self) -> None:
        """Run the ten commands, but those of shards and router."""
        monkeypatch = self._monkeypatch
        monkeypatch.setenv("PATH", f"{programs()}:{os.environ['PATH']}")
        monkeypatch.setenv("GCWS_BUCKETS", "4")
        monkeypatch.setenv("GCWS_THREADS", "1")
        monkeypatch.chdir(self.folder)
        lines = self.block("cluster.md", "initdb --pgdata=primary").splitlines()
        exported, ours = lines.pop(1), [line for line in lines if "gcws-search" in line]
        assert exported.startswith("export ")
        for each in exported.split()[1:]:
            monkeypatch.setenv(*each.split("=", 1))
        self.run("\n".join(line for line in lines if line not in ours))
        each_shard, serve = ours
        self.router = serve.split()[1:]
        [(numbers, words)] = re.findall(r"^for shard in (.*); do gcws-search (.*) & ", each_shard)
        self.shards = [words.replace("$shard", number).split() for number in numbers.split()]

    def block(self, page: str, part: str) -> str:
        """Return the block of a page with this in it: ports are free, and no disk is waited for."""
        text = (REPOSITORY / "docs" / page).read_text()
        [found] = [text for _, text in blocks(text) if part in text]
        for theirs, ours in self.ports.items():
            found = found.replace(theirs, ours)
        found = found.replace("--cluster_name", "--fsync=off --cluster_name")
        return found.replace("initdb ", "initdb --no-sync --wal-segsize=1 ")

    def run(self, script: str) -> None:
        """Run commands, none of which may fail."""
        with (self.folder / "said").open("a+b") as said:
            command = ["sh", "-ec", script]
            done = subprocess.run(command, user=self.user, stdout=said, stderr=said, check=False)
        logs = [path.read_text() for path in (self.folder / "said", *self.folder.glob("*.log"))]
        assert done.returncode == 0, "\n".join([script, *logs])

    def execute(self, port: str, statement: str) -> object:
        """Return the first value that a server says."""
        url = f"postgresql://gcws@{HOST}:{self.ports[port]}/gcws"
        with psycopg.connect(url, autocommit=True) as connection:
            [found, *_] = connection.execute(statement.encode()).fetchone() or [None]
        return found

    def wait_for_standby(self, port: str) -> None:
        """Return once commits are on the standby of a server."""
        state = "SELECT sync_state FROM pg_stat_replication"
        wait_until(lambda: self.execute(port, state) == "sync")

    def use(self, port: str) -> None:
        """Set the URL to one server."""
        url = f"postgresql://gcws@{HOST}:{self.ports[port]}/gcws"
        self._monkeypatch.setenv("GCWS_DATABASE_URL", url)

    @contextmanager
    def cluster(self) -> Iterator[Client]:
        """Run shards and router with the settings of their commands, but the ports."""
        with ThreadPoolExecutor() as threads, ExitStack() as stack:
            hosts = list[ShardHost]()
            for words in self.shards:
                given = _given(words[1:])
                shard = int(given.pop("shard"))
                server = ShardServer(settings_from(given), shard, 0)
                threads.submit(server.run)
                stack.callback(server.stop)
                hosts.append(server.host)
            wait_until(lambda: all(each.is_listed and each.is_ready for each in hosts))
            given = _given(self.router[1:]) | {"data_dir": "router"}
            yield stack.enter_context(running(Client(create_app(settings_from(given)))))

    def remove(self) -> None:
        """End all servers and delete the folder."""
        locks = [lock.read_text() for lock in self.folder.glob("*/postmaster.pid")]
        servers = [psutil.Process(int(lock.split()[0])) for lock in locks]
        for each in servers:
            each.send_signal(SIGQUIT)
        psutil.wait_procs(servers)
        shutil.rmtree(self.folder, ignore_errors=True)


def _given(words: list[str]) -> dict[str, str]:
    flags = (flag.removeprefix("--").replace("-", "_") for flag in words[::2])
    return dict(zip(flags, words[1::2], strict=True)) | {"port": "0"}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Iterator[Page]:
    page = Page(monkeypatch)
    try:
        page.start()
        yield page
    finally:
        page.remove()


def put(client: Client, *ids: str) -> None:
    """Put items; return once that is acknowledged."""
    items = {"items": [{"id": each, "vector": [1, 2]} for each in ids]}
    wait_until(lambda: client.put(f"{URL}/items", json=items).is_success)


def found(client: Client) -> set[str]:
    """Return the ids that all shards find."""
    query = {"vector": [1, 2], "limit": 100, "recall": 1, "consistency": "strict"}
    answers = []

    def is_answered() -> bool:
        answers.append(client.post(f"{URL}/query", json=query))
        return answers[-1].is_success

    wait_until(is_answered)
    return {hit["id"] for hit in answers[-1].json()["hits"]}


def test_a_standby_takes_over_and_the_former_primary_becomes_the_next_one(page: Page) -> None:
    before = [f"b{number}" for number in range(9)]
    with page.cluster() as client:
        assert client.put(URL, json={"dim": 2}).status_code == 201
        put(client, *before)
        page.run("pg_ctl --pgdata=primary --mode=immediate stop")
        page.run(page.block("database.md", "--pgdata=standby promote"))
        put(client, "after")
        page.run(page.block("database.md", "rm -r primary"))
        page.wait_for_standby("5434")
        put(client, "on both")
        assert found(client) == {*before, "after", "on both"}
    count = "SELECT items FROM gcws.heads"
    assert page.execute("5433", count) == page.execute("5434", count) == len(before) + 2


def test_a_server_goes_back_to_a_moment_and_to_a_later_version(page: Page) -> None:
    page.run(page.block("database.md", "mkdir log"))
    page.wait_for_standby("5433")
    with page.cluster() as client:
        assert client.put(URL, json={"dim": 2}).status_code == 201
        put(client, "early")
        moment = page.execute("5433", "SELECT clock_timestamp()::text")
        put(client, "late")
    page.run("pg_ctl --pgdata=primary --mode=fast stop && pg_ctl --pgdata=standby stop")
    script = page.block("database.md", "recovery_target_time")
    told = re.sub(r"recovery_target_time = '.*'", f"recovery_target_time = '{moment}'", script)
    assert told != script
    page.run(told)
    wait_until(lambda: page.execute("5435", "SELECT pg_is_in_recovery()") is False)
    page.use("5435")
    with page.cluster() as client:
        assert found(client) == {"early"}
        put(client, "other")
        assert found(client) == {"early", "other"}
    upgrade = page.block("database.md", "pg_upgrade")
    page.run(re.sub(r"--old-bindir=\S+", f"--old-bindir={programs()}", upgrade))
    page.use("5436")
    assert CliRunner().invoke(app, ["cluster", "adopt"]).exit_code == 0
    with page.cluster() as client:
        assert found(client) == {"early", "late"}
