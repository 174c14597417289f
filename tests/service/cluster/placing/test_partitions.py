"""Nodes of Ray on machines of their own: one more of them, replicas restarted, a node cut off."""

import os
import signal
from collections.abc import Iterator

import psutil
import pytest

from tests.service.cluster.partitions.clients import Load, Things
from tests.support.service.machines import until
from tests.support.service.network import unavailable
from tests.support.service.ray_machines import RayMachineCluster

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def things() -> Iterator[Things]:
    """Return the collection of a cluster of two nodes."""
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
    with load.running() as history:
        cluster.ray.start_nodes(1)
        cluster.up()
        moved = next(each for each in before if each.shard == 1)
        cluster.move(f"1/{moved.replica}")
        found = cluster.wait_until_whole(but=(moved.address,))
        load.go_on()
        assert history.failures == {}, history.refusals
    machines = {cluster.ray.machine_of(each).name for each in found}
    assert machines == {"node-0", "node-1", "node-2"}


def test_replicas_killed_one_after_the_other_fail_no_request(
    cluster: RayMachineCluster, things: Things
) -> None:
    load = Load(things)
    with load.running() as history:
        for each in cluster.wait_until_whole():
            os.kill(cluster.ray.process_of(each), signal.SIGKILL)
            cluster.wait_until_whole(but=(each.address,))
            load.go_on()
        assert history.failures == {}, history.refusals


def test_a_node_that_is_cut_off_is_replaced_and_does_no_harm_when_it_is_back(
    cluster: RayMachineCluster, things: Things
) -> None:
    network, ray, load = cluster.network, cluster.ray, Load(things)
    before = cluster.wait_until_whole()
    victim = ray.machine_of(before[0])
    lost = {each.address: ray.process_of(each) for each in before if ray.machine_of(each) is victim}
    others = [each for each in network.machines.values() if each is not victim]
    with load.running() as history:
        with network.without(victim, *others):
            found = cluster.wait_until_whole(but=tuple(lost))
            assert victim not in [ray.machine_of(each) for each in found]
            load.go_on(times=20)
        until(lambda: not any(psutil.pid_exists(each) for each in lost.values()))
        load.go_on(times=20)
        assert {each.address for each in cluster.wait_until_whole()} == {
            each.address for each in found
        }
        assert history.failures == {}, history.refusals
