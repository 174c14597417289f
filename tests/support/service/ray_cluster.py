"""Nodes of a Ray cluster as processes of this machine, and the commands that place replicas."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from gcws_search.service.cluster.contract import Replica
from gcws_search.service.cluster.database import Database
from tests.support.service.ports import HOST, free_port
from tests.support.service.shards import KEY
from tests.support.waiting import wait_until

BUCKETS: Final = 12
SECONDS: Final = 120.0
"""Bounds every command."""
_RAY_OPTION: Final = "--object-store-memory=80000000"


class RayCluster:
    """A head and nodes, each a process of ``gcws-search cluster node`` with its processes."""

    def __init__(self, database_url: str) -> None:
        # Short: paths of Unix sockets are.
        self.folder = Path(tempfile.mkdtemp(prefix="gcws-ray-", dir="/tmp"))
        self.address = f"{HOST}:{free_port()}"
        self.nodes: list[subprocess.Popen[bytes]] = []
        self.head: subprocess.Popen[bytes] | None = None
        self.database = Database.open(database_url, buckets=BUCKETS)
        self.variables = {
            **os.environ,
            "GCWS_DATABASE_URL": database_url,
            "GCWS_CLUSTER_KEY": KEY,
            "GCWS_BUCKETS": str(BUCKETS),
            "GCWS_THREADS": "1",
            "RAY_AUTH_TOKEN": secrets.token_hex(),
            "RAY_ADDRESS": self.address,
            "RAY_TMPDIR": str(self.folder),
        }

    def start_head(self) -> None:
        """Start the head, or start it again; return when nodes may join it."""
        words = ["--head", f"--head-port={self.address.rpartition(':')[2]}"]
        self.head = self.start_node("head", words, [])

    def start_nodes(self, count: int) -> None:
        """Start more nodes, one after the other: on one machine they would take the same ports."""
        for number in range(len(self.nodes), len(self.nodes) + count):
            self.nodes.append(self.start_node(f"node-{number}", [], ["--num-cpus=1"]))

    def restart_node(self, number: int) -> None:
        """Start a node again that has ended, with the files that it had."""
        self.nodes[number] = self.start_node(f"node-{number}", [], ["--num-cpus=1"])

    def start_node(
        self, name: str, words: list[str], options: list[str]
    ) -> subprocess.Popen[bytes]:
        """Start a node, and wait until it has begun; ``options`` go to Ray."""
        command = [sys.executable, "-m", "gcws_search", "cluster", "node", *words]
        command += [f"--data-dir={self.folder / name}", "--", _RAY_OPTION, *options]
        path = self.folder / f"{name}.log"
        with path.open("wb") as log:
            node = subprocess.Popen(
                command, env=self.variables, stdout=log, stderr=log, start_new_session=True
            )

        def is_started() -> bool:
            assert node.poll() is None, self.logs()
            return "Ray runtime started" in path.read_text()

        wait_until(is_started, self.logs)
        return node

    def run(
        self,
        *words: str,
        code: int = 0,
        prelude: str = "",
        group: str = "cluster",
        **variables: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the cluster, and return what it says."""
        program = f"{prelude}\nfrom gcws_search.commands.app import main\nmain()"
        command = [sys.executable, "-c", program, group, *words]
        done = subprocess.run(
            command, env=self.variables | variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def up(self, shards: int = 2) -> str:
        """Place what is missing, and return what is said of it."""
        words = ["up", f"--shards={shards}", f"--seconds={SECONDS}"]
        return self.run(*words).stdout

    def listed(self) -> list[Replica]:
        """Return the replicas that routers ask."""
        shards, found = self.database.shards("main"), self.database.replicas("main")
        return [each for each in found if each.shards == shards and each.seen < 5]

    def wait_until_whole(self, but: Collection[str] = ()) -> list[Replica]:
        """Return the replicas once each shard has two, filled, and none at some addresses."""

        def whole() -> list[Replica]:
            found = [each for each in self.listed() if each.is_filled]
            expected = sorted([*range(self.database.shards("main") or 0)] * 2)
            is_whole = sorted(each.shard for each in found) == expected
            return found if is_whole and not {each.address for each in found} & {*but} else []

        return wait_until(whole, self.logs)

    def node_of(self, process: int) -> subprocess.Popen[bytes]:
        """Return the node that a replica's process runs on."""
        above = {each.pid for each in psutil.Process(process).parents()}
        [found] = [each for each in self.nodes if each.pid in above]
        return found

    def logs(self) -> str:
        """Return the end of what all nodes have said."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"{log.name}: {log.read_text()[-2000:]}" for log in logs)

    def stop(self) -> None:
        """End all processes, and remove their files."""
        for node in [*self.nodes, self.head]:
            if node is not None:
                kill_all(node)
        self.database.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def kill_all(node: subprocess.Popen[bytes]) -> None:
    """Kill a node and all its processes, as if its machine were lost."""
    with suppress(psutil.NoSuchProcess):
        found = psutil.Process(node.pid)
        for each in [*found.children(recursive=True), found]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
    node.wait(30)


def process_of(replica: Replica) -> int:
    """Return the process that listens where a replica is asked."""
    port = int(replica.address.rpartition(":")[2])
    for each in psutil.net_connections("tcp"):
        is_here = each.status == psutil.CONN_LISTEN and each.laddr[1:] == (port,)
        if is_here and each.pid is not None:
            return int(each.pid)
    raise AssertionError(f"nobody listens at {replica.address}")
