"""Replicas and routers whose links are cut or slow, that stand still, or are started again."""

import pytest

from tests.service.cluster.partitions.clients import BASE, Load, asked, query
from tests.support.service.machines import MachineCluster, frozen
from tests.support.waiting import wait_until

SLOW = 15_000
"""Bytes a second: an answer with all items that nobody changes takes longer than a sister waits."""


def late(cluster: MachineCluster, shard: int) -> float:
    """Return how often the first router asked a sister because a replica was late."""
    line = f'gcws_router_failures_total{{kind="Late",shard="{shard}"}}'
    return cluster.routers[0].metrics().get(line, 0.0)


def test_a_replica_cut_from_a_router_fails_no_request_and_is_asked_again(
    cluster: MachineCluster, load: Load
) -> None:
    network, router = cluster.network, cluster.routers[0].machine
    replica, sister = (each.machine for each in cluster.replicas[0])
    before = late(cluster, 0)
    with load.running():
        with network.without(router, replica):
            load.go_on(times=8)
            wait_until(lambda: late(cluster, 0) > before)
        with network.without(router, sister):
            load.go_on(times=8)


@pytest.mark.parametrize("lost", ["questions", "answers"])
def test_a_replica_cut_from_a_router_one_way_fails_no_request(
    cluster: MachineCluster, load: Load, lost: str
) -> None:
    network, router = cluster.network, cluster.routers[0].machine
    replica = cluster.replicas[1][1].machine
    before = late(cluster, 1)
    with load.running():
        network.cut_one_way(*((router, replica) if lost == "questions" else (replica, router)))
        load.go_on(times=10)
        wait_until(lambda: late(cluster, 1) > before)  # one late before is left out for a while
        network.mend(router, replica)


def test_a_replica_whose_link_is_slow_fails_no_request(cluster: MachineCluster, load: Load) -> None:
    before = late(cluster, 0)
    with load.running(), cluster.network.slow(cluster.replicas[0][1].machine, SLOW):
        load.go_on(times=8)
        wait_until(lambda: late(cluster, 0) > before)


def test_a_shard_cut_from_a_router_is_named_and_left_out_where_that_is_asked_for(
    cluster: MachineCluster, load: Load
) -> None:
    network, router = cluster.network, cluster.routers[0]
    kinds = ("put", "delete", "strict", "session", "base")
    with load.running({(0, f"{kind} 503") for kind in kinds}):
        with network.without(router.machine, *(each.machine for each in cluster.replicas[1])):
            load.go_on(routers=(1,))
            load.fail("base", 0)
            refused = asked(router, query("base"))
            partial = asked(router, query("base", allow_partial=True))
            load.go_on("put", routers=(0,), times=2)
        load.go_on(routers=(0,))
    assert refused.status_code == 503
    assert refused.json()["code"] == "shard_unavailable"
    assert "shard 1 (of 2)" in refused.json()["detail"]
    assert float(refused.headers["retry-after"]) > 0
    assert partial.json()["shards"] == {"total": 2, "answered": 1, "missing": [1]}
    found = {hit["id"] for hit in partial.json()["hits"]}
    assert found < BASE
    assert found


# Processes that stand still for a while, and do not know it


def test_a_frozen_replica_fails_no_request(cluster: MachineCluster, load: Load) -> None:
    with load.running():
        with frozen(cluster.replicas[0][1].process.pid):
            load.go_on(times=8)
        load.go_on(times=8)


def test_a_frozen_router_loses_nothing_and_the_other_one_goes_on(
    cluster: MachineCluster, load: Load
) -> None:
    # The frozen one may have had the lock, and have lost it. Searches that it was answering may be
    # out of time once it goes on.
    refused = {(router, f"{kind} 503") for router in (0, 1) for kind in ("put", "delete")}
    with load.running(refused | {(0, f"{kind} 503") for kind in ("base", "session", "strict")}):
        with frozen(cluster.routers[0].process.pid):
            load.go_on(routers=(1,), times=8)
        load.go_on(times=8)


@pytest.mark.long
def test_a_rolling_restart_of_all_replicas_fails_no_request(
    cluster: MachineCluster, load: Load
) -> None:
    with load.running():
        for each in [replica for shard in cluster.replicas for replica in shard]:
            each.end()
            each.start()
            each.wait_until_ready()
            cluster.wait_until_whole()
            load.go_on()
