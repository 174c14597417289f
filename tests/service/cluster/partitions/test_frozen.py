"""Processes that stand still for a while, and do not know it."""

from tests.service.cluster.partitions.clients import Load
from tests.support.service.machines import MachineCluster, frozen


def test_a_frozen_replica_fails_no_request(cluster: MachineCluster, load: Load) -> None:
    with load.running() as history:
        with frozen(cluster.replicas[0][1].process.pid):
            load.go_on(times=20)
        load.go_on(times=20)
        assert history.failures == {}, history.refusals


def test_a_frozen_router_loses_nothing_and_the_other_one_goes_on(
    cluster: MachineCluster, load: Load
) -> None:
    with load.running() as history:
        with frozen(cluster.routers[0].process.pid):
            load.go_on("session", "strict", "base", routers=(1,), times=20)
        load.go_on(times=20)
        failed = {*history.failures}
    assert failed <= {(1, "put 503"), (1, "delete 503")}  # the frozen one may have had the lock
