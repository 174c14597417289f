"""A Ray cluster whose nodes are machines of their own, and whose routers are, too."""

import subprocess
import time
from typing import Final

from gcws_search.service.cluster.contract import Replica
from tests.support.service.machines import SECONDS, MachineCluster, listed
from tests.support.service.network import Machine
from tests.support.service.ray_cluster import RayCluster, process_of

_HEAD: Final = "head"
_PORT: Final = 6379


class MachineNodes(RayCluster):
    """A head and nodes of Ray, each on a machine.

    ``cluster``: whose database they follow.
    """

    def __init__(self, cluster: MachineCluster) -> None:
        super().__init__(cluster.database_url)
        self._network = cluster.network
        head = self._network.add(_HEAD)
        self.address = f"{head.address}:{_PORT}"
        self.variables |= {**cluster.variables, "RAY_ADDRESS": self.address}

    def start_node(
        self, name: str, words: list[str], options: list[str]
    ) -> subprocess.Popen[bytes]:
        machines = self._network.machines
        machine = machines.get(name) or self._network.add(name)
        with machine.entered():
            return super().start_node(
                name, words, [*options, f"--node-ip-address={machine.address}"]
            )

    def machine_of(self, replica: Replica) -> Machine:
        """Return the machine of a replica."""
        host = replica.address.rpartition(":")[0]
        [found] = [each for each in self._network.machines.values() if each.address == host]
        return found

    def process_of(self, replica: Replica) -> int:
        """Return the process of a replica; called in the first thread, which is looked at."""
        with self.machine_of(replica).entered():
            return process_of(replica)


class RayMachineCluster(MachineCluster):
    """A database, nodes of Ray that have the replicas, two routers, and the clients' machine."""

    def start_nodes(self, count: int, *, shards: int = 2, routers: int = 2) -> None:
        """Start a head and nodes, place all replicas, and start the routers."""
        self._open(self.database_url, shards)
        with self.client.entered():
            self.ray = MachineNodes(self)
        self.ray.start_head()
        self.ray.start_nodes(count)
        self.up(shards)
        self.routers += [self._started(f"router{each}", ["serve"]) for each in range(routers)]
        with self.client.entered():
            for each in self.routers:
                each.wait_until_ready()
            self.wait_until_whole()

    def up(self, shards: int = 2) -> str:
        """Place what is missing, and return what is said of it."""
        with self.network.machines[_HEAD].entered():
            return self.ray.up(shards)

    def move(self, replica: str) -> str:
        """Have a replica on another node, and return what is said of it."""
        with self.network.machines[_HEAD].entered():
            return self.ray.run("move", replica, f"--seconds={SECONDS}").stdout

    def wait_until_whole(self, but: tuple[str, ...] = ()) -> list[Replica]:
        """Return the replicas once all are filled, none at some addresses, and routers ask all."""
        end = time.monotonic() + SECONDS
        while True:
            found = self.ray.wait_until_whole(but)
            if all(listed(router) == [2, 2] for router in self.routers):
                return found
            assert time.monotonic() < end, self.said()
            time.sleep(0.05)

    def said(self) -> str:
        """Return the end of what all have said."""
        return f"{super().said()}\n{self.ray.logs()}"

    def stop(self) -> None:
        """End all processes, and remove the machines and all files."""
        if hasattr(self, "ray"):
            self.ray.stop()
        super().stop()
