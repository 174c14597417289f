"""Links with the database that are cut, and a database that is frozen."""

import time

import httpx
import pytest

from tests.service.cluster.partitions.clients import IDS, URL, Load, asked, query
from tests.support.service.machines import (
    SECONDS,
    MachineCluster,
    frozen,
    listed,
    reached,
    until,
)


def test_a_replica_cut_from_the_database_gives_no_stale_answer_and_catches_up(
    cluster: MachineCluster, load: Load
) -> None:
    network, replica = cluster.network, cluster.replicas[0][0]
    with load.running() as history:
        with network.without(replica.machine, cluster.store):
            load.go_on(times=20)
            key = reached(replica)
            load.go_on(times=5)
            assert reached(replica) == key < reached(cluster.replicas[0][1])
        load.go_on()
        until(lambda: reached(replica) > key)
        assert history.failures == {}, history.refusals


@pytest.mark.long
def test_a_replica_long_cut_from_the_database_is_not_asked_until_it_is_back(
    cluster: MachineCluster, load: Load
) -> None:
    network, replica = cluster.network, cluster.replicas[0][0]
    with load.running() as history:
        with network.without(replica.machine, cluster.store):
            until(lambda: [listed(each)[0] for each in cluster.routers] == [1, 1])
            load.go_on(times=20)
        until(lambda: [listed(each)[0] for each in cluster.routers] == [2, 2])
        load.go_on(times=20)
        assert history.failures == {}, history.refusals


def test_a_router_cut_from_the_database_searches_and_refuses_the_rest_until_it_is_back(
    cluster: MachineCluster, load: Load
) -> None:
    network, router = cluster.network, cluster.routers[0]
    with load.running() as history:
        with network.without(router.machine, cluster.store):
            load.go_on("session", "base", routers=(0,), times=20)
            load.fail("put", 0)
            until(lambda: "unreachable" in httpx.get(f"{router.url}/readyz", timeout=SECONDS).text)
            refused = [
                httpx.get(f"{router.url}{URL}/items/{IDS[0]}", timeout=SECONDS),
                httpx.get(f"{router.url}{URL}/items", timeout=SECONDS),
                asked(router, query("base", consistency="strict")),
            ]
            load.go_on("session", "base", routers=(0,), times=20)
            load.go_on(routers=(1,))
        load.go_on()
        failed = {*history.failures}
    assert {(each.status_code, each.json()["code"]) for each in refused} == {
        (503, "store_unavailable")
    }
    assert failed <= {(0, f"{kind} 503") for kind in ("put", "delete", "strict")}


def test_a_name_that_nobody_knows_holds_up_no_search_of_a_router_cut_from_the_database(
    cluster: MachineCluster, load: Load
) -> None:
    router = cluster.routers[0]
    with load.running() as history, cluster.network.without(router.machine, cluster.store):
        start = time.monotonic()
        answer = httpx.post(
            f"{router.url}/v1/collections/others/query", json=query("base"), timeout=SECONDS
        )
        taken = time.monotonic() - start
    assert answer.status_code == 503
    assert history.longest(0, "base") < max(4, taken / 2)


@pytest.mark.parametrize("seconds", [3, pytest.param(25, marks=pytest.mark.long)])
def test_a_frozen_database_loses_nothing_and_searches_go_on(
    cluster: MachineCluster, load: Load, seconds: float
) -> None:
    with load.running() as history:
        with frozen(cluster.server.pid):
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                load.go_on("session", "base")
        load.go_on()
        failed = {*history.failures}
    kinds = ("put", "delete", "strict")
    assert failed <= {(router, f"{kind} 503") for router in (0, 1) for kind in kinds}
