"""Nodes of Ray on machines of their own: one more of them, replicas restarted, a node cut off."""

import subprocess
from collections.abc import Iterator

import psutil
import pytest

from gcws_search.service.cluster.contract import Replica
from tests.service.cluster.partitions.clients import Load, Things
from tests.support.service.machines import SECONDS, MachineCluster
from tests.support.service.network import Machine, unavailable
from tests.support.service.ray_cluster import RayCluster, process_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long
HEAD = "head"


class MachineNodes(RayCluster):
    """A head and nodes of Ray, each on a machine.

    ``cluster``: whose database they follow.
    """

    def __init__(self, cluster: MachineCluster) -> None:
        super().__init__(cluster.database_url)
        self._network = cluster.network
        head = self._network.add(HEAD)
        self.address = f"{head.address}:{6379}"
        self.variables |= {**cluster.variables, "RAY_ADDRESS": self.address}

    def start_node(
        self, name: str, words: list[str], options: list[str]
    ) -> subprocess.Popen[bytes]:
        machine = self._network.machines.get(name) or self._network.add(name)
        options = [*options, f"--node-ip-address={machine.address}"]
        with machine.entered():
            return super().start_node(name, words, options)

    def machine_of(self, replica: Replica) -> Machine:
        host = replica.address.rpartition(":")[0]
        [found] = [each for each in self._network.machines.values() if each.address == host]
        return found

    def process_of(self, replica: Replica) -> int:
        """Return the process of a replica; called in the first thread, which is looked at."""
        with self.machine_of(replica).entered():
            return process_of(replica)


class RayMachineCluster(MachineCluster):
    """A database, nodes of Ray that have the replicas, two routers, and the clients' machine."""

    def start_nodes(self, count: int) -> None:
        """Start a head and nodes, place all replicas, and start the routers."""
        self._open()
        with self.client.entered():
            self.ray = MachineNodes(self)
        self.ray.start_head()
        self.ray.start_nodes(count)
        self.up()
        self._start_routers()

    def up(self) -> None:
        with self.network.machines[HEAD].entered():
            self.ray.up()

    def wait_until_whole(self, but: tuple[str, ...] = ()) -> list[Replica]:
        """Return the replicas once all are filled, none at some addresses, and routers ask all."""

        def whole() -> list[Replica]:
            found = self.ray.wait_until_whole(but)
            return found if self.routers_ask([2, 2]) else []

        return wait_until(whole, self.said)

    def said(self) -> str:
        """Return the end of what all have said."""
        return f"{super().said()}\n{self.ray.logs()}"

    def stop(self) -> None:
        """End all processes, and remove the machines and all files."""
        if hasattr(self, "ray"):
            self.ray.stop()
        super().stop()


@pytest.fixture(scope="module")
def things() -> Iterator[Things]:
    if (reason := unavailable()) is not None:
        pytest.skip(reason)
    cluster = RayMachineCluster()
    try:
        cluster.start_database()
        cluster.start_nodes(2)
        yield Things(cluster)
    finally:
        cluster.stop()


@pytest.fixture
def cluster(things: Things) -> Iterator[RayMachineCluster]:
    assert isinstance(things.cluster, RayMachineCluster)
    with things.cluster.client.entered():
        yield things.cluster


def test_growth_from_two_nodes_to_three_fails_no_request(
    cluster: RayMachineCluster, things: Things
) -> None:
    before = cluster.wait_until_whole()
    load = Load(things)
    with load.running():
        cluster.ray.start_nodes(1)
        cluster.up()
        moved = next(each for each in before if each.shard == 1)
        with cluster.network.machines[HEAD].entered():
            cluster.ray.run("move", f"1/{moved.replica}", f"--seconds={SECONDS}")
        found = cluster.wait_until_whole(but=(moved.address,))
        load.go_on()
    machines = {cluster.ray.machine_of(each).name for each in found}
    assert machines == {"node-0", "node-1", "node-2"}


def test_a_node_that_is_cut_off_is_replaced_and_does_no_harm_when_it_is_back(
    cluster: RayMachineCluster, things: Things
) -> None:
    network, ray, load = cluster.network, cluster.ray, Load(things)
    before = cluster.wait_until_whole()
    victim = ray.machine_of(before[0])
    lost = {each.address: ray.process_of(each) for each in before if ray.machine_of(each) is victim}
    others = [each for each in network.machines.values() if each is not victim]
    with load.running():
        with network.without(victim, *others):
            found = cluster.wait_until_whole(but=tuple(lost))
            addresses = [each.address for each in found]
            assert victim not in [ray.machine_of(each) for each in found]
            load.go_on(times=20)
        wait_until(lambda: not any(psutil.pid_exists(each) for each in lost.values()))
        load.go_on(times=20)
        assert {each.address for each in cluster.wait_until_whole()} == {*addresses}
