"""Links of replicas that are cut, both ways and one way, or slow."""

import pytest

from tests.service.cluster.partitions.clients import Load
from tests.support.service.machines import MachineCluster


def test_a_replica_cut_from_a_router_fails_no_request(cluster: MachineCluster, load: Load) -> None:
    network, router = cluster.network, cluster.routers[0]
    replica = cluster.replicas[0][0]
    with load.running() as history:
        with network.without(router.machine, replica.machine):
            load.go_on(times=20)
        load.go_on()
        assert history.failures == {}
