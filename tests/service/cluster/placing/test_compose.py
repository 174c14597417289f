"""The compose file's profile "cluster", each of its commands as a process of this machine."""

import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.support.documents.compose import Rehearsal
from tests.support.service.ports import HOST, free_port
from tests.support.service.postgres import Postgres
from tests.support.service.ray_cluster import SECONDS, kill_all
from tests.support.waiting import wait_until

WORDS: Final = "docker compose exec head gcws-search "


class Profile:
    """All services of the profile, and where they listen."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal = rehearsal
        self.head = f"{HOST}:{free_port()}"
        self.starts: list[Callable[[], subprocess.Popen[bytes]]] = []
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, name: str) -> int:
        """Start a service; return its port."""
        number, port = len(self.processes), free_port()
        inside = ["--", f"--node-ip-address={HOST}"]
        if name == "head":
            inside.append(f"--temp-dir={self.rehearsal.folder / 'ray'}")
        exchanged = {
            "--": inside,
            "--head": ["--head", "--head-port", self.head.partition(":")[2]],
            "head:6379": [self.head],
            "--node-manager-port=6380": [f"--node-manager-port={free_port()}"],
        }
        files = self.rehearsal.folder / f"{name}-{number}"
        more = {"GCWS_DATA_DIR": str(files), "GCWS_PORT": str(port)}
        command, start = self.rehearsal.command(name), self.rehearsal.start
        self.starts.append(partial(start, command, name, exchanged=exchanged, more=more))
        self.processes.append(self.starts[-1]())
        return port

    def run_in_head(self, words: list[str]) -> int:
        """Run a command as in the container of the head; return its exit code."""
        more = {"RAY_ADDRESS": self.head}
        return self.rehearsal.start(words, "head", exchanged={}, more=more).wait(2 * SECONDS)

    def wait_for(self, holds: Callable[[], bool]) -> None:
        """Return once something holds; what ends meanwhile is started again."""

        def holds_now() -> bool:
            for place, each in enumerate(self.processes):
                if each.poll() is not None:
                    self.processes[place] = self.starts[place]()
            return holds()

        wait_until(holds_now, self.logs, seconds=SECONDS)

    def logs(self) -> str:
        """Return the end of what all have said."""
        logs = sorted(self.rehearsal.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-3000:]}" for log in logs)


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch) -> Iterator[Profile]:
    """Start all but the placement; paths are short, as those of Unix sockets must be."""
    folder = Path(tempfile.mkdtemp(prefix="gcws-compose-", dir="/tmp"))
    profile = Profile(Rehearsal(folder))
    commands = profile.rehearsal.make_secrets()
    server = Postgres()
    try:
        profile.rehearsal.create_database(server, monkeypatch)
        url = profile.rehearsal.secret("database_url")
        told = url.read_text()
        assert "@database/" in told
        url.chmod(0o644)
        url.write_text(told.replace("@database/", f"@{HOST}:{server.port}/"))
        profile.start("head")
        for _ in range(profile.rehearsal.services["node"]["deploy"]["replicas"]):
            profile.start("node")
        [words] = [line.removeprefix(WORDS) for line in commands if line.startswith(WORDS)]
        profile.wait_for(lambda: profile.run_in_head(words.split()) == 0)
        yield profile
    finally:
        for each in profile.processes:
            kill_all(each)
        server.remove()
        shutil.rmtree(folder, ignore_errors=True)


def is_ready(router: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{router}/readyz", timeout=SECONDS).status_code == 200
    return False


@pytest.mark.long
def test_what_one_router_stores_the_other_finds(profile: Profile) -> None:
    count = profile.rehearsal.services["router"]["deploy"]["replicas"]
    routers = [f"http://{HOST}:{profile.start('router')}" for _ in range(count)]
    for router in routers:
        profile.wait_for(partial(is_ready, router))
    first, last = (f"{router}/v1/collections/c" for router in (routers[0], routers[-1]))
    assert httpx.put(first, json={"dim": 2}, timeout=SECONDS).status_code == 201
    items = [{"id": str(row), "vector": [1 + row, -1]} for row in range(20)]
    stored = httpx.put(f"{first}/items", json={"items": items}, timeout=SECONDS)
    assert stored.json() == {"inserted": 20, "updated": 0}
    query = {"vector": [3, -1], "limit": 20, "recall": 1, "consistency": "strict", "explain": True}
    found = httpx.post(f"{last}/query", json=query, timeout=SECONDS).json()
    assert found["hits"][0] == {"id": "2", "score": 1.0, "payload": None}
    assert {hit["id"] for hit in found["hits"]} == {str(row) for row in range(20)}
    assert found["shards"] == {"total": 2, "answered": 2, "missing": []}
