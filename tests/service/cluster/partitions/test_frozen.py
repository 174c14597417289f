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
            load.go_on(routers=(1,), times=20)
        load.go_on(times=20)
        failed = {*history.failures}
    # The frozen one may have had the lock, and have lost it. Searches that it was answering may be
    # out of time once it goes on.
    refused = {(router, f"{kind} 503") for router in (0, 1) for kind in ("put", "delete")}
    assert failed <= refused | {(0, f"{kind} 503") for kind in ("base", "session", "strict")}
