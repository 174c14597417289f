"""Links and connections with the database that are cut, and a database that is frozen."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import httpx
import pytest

from gcws_search.service.cluster.database import Database
from tests.service.cluster.partitions.clients import IDS, URL, Load, query
from tests.support.service.machines import BUCKETS, SECONDS, MachineCluster, frozen, reached
from tests.support.waiting import wait_until

REFUSED = {(router, f"{kind} 503") for router in (0, 1) for kind in ("put", "delete", "strict")}
"""What needs the database."""
EVERY = REFUSED | {(router, f"{kind} 503") for router in (0, 1) for kind in ("session", "base")}
_THERE = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'gcws-search visitor'"


def test_a_replica_cut_from_the_database_gives_no_stale_answer_and_catches_up(
    cluster: MachineCluster, load: Load
) -> None:
    network, replica, key = cluster.network, cluster.replicas[0][0], 0
    with load.running():
        with network.without(replica.machine, cluster.store):
            # What both routers send it, it applies until two changes come in another order.
            def is_left_behind() -> bool:
                nonlocal key
                key = reached(replica)
                load.go_on()
                return reached(replica) == key < reached(cluster.replicas[0][1])

            wait_until(is_left_behind)
            load.go_on(times=8)
        load.go_on()
        wait_until(lambda: reached(replica) > key)


@pytest.mark.long
def test_a_replica_long_cut_from_the_database_is_not_asked_until_it_is_back(
    cluster: MachineCluster, load: Load
) -> None:
    network, replica = cluster.network, cluster.replicas[0][0]
    with load.running():
        with network.without(replica.machine, cluster.store):
            wait_until(lambda: [each.listed()[0] for each in cluster.routers] == [1, 1])
            load.go_on(times=8)
        wait_until(lambda: [each.listed()[0] for each in cluster.routers] == [2, 2])
        load.go_on(times=8)


def test_a_router_cut_from_the_database_searches_and_refuses_the_rest_until_it_is_back(
    cluster: MachineCluster, load: Load
) -> None:
    network, router = cluster.network, cluster.routers[0]
    # It may have had the lock of the collection when it was cut off.
    with load.running(REFUSED - {(1, "strict 503")}):
        with network.without(router.machine, cluster.store):
            load.fail("put", 0)
            load.fail("strict", 0)
            wait_until(
                lambda: "unreachable" in httpx.get(f"{router.url}/readyz", timeout=SECONDS).text
            )
            load.go_on("session", "base", routers=(0,), times=8)
            load.go_on(routers=(1,))
        load.go_on()


def test_what_a_router_cut_from_the_database_cannot_answer_holds_up_no_search(
    cluster: MachineCluster, load: Load
) -> None:
    router = cluster.routers[0]
    asked: list[tuple[str, str, object]] = [
        ("GET", f"{URL}/items/{IDS[0]}", None),
        ("GET", f"{URL}/items", None),
        ("POST", f"{URL}/query", query("base", consistency="strict")),
        ("POST", "/v1/collections/unknown/query", query("base")),
    ]

    def answered(request: tuple[str, str, object]) -> httpx.Response:
        method, path, body = request
        with cluster.client.entered():
            return httpx.request(method, f"{router.url}{path}", json=body, timeout=SECONDS)

    with load.running(EVERY) as history, cluster.network.without(router.machine, cluster.store):
        start = time.monotonic()
        with ThreadPoolExecutor() as threads:
            answers = [*threads.map(answered, asked)]
        taken = time.monotonic() - start
    codes = [(each.status_code, each.json()["code"]) for each in answers]
    assert codes == [(503, "store_unavailable")] * len(asked)
    assert history.longest(0, "base") < taken / 2


def test_searches_go_on_while_the_database_is_frozen(cluster: MachineCluster, load: Load) -> None:
    with load.running(REFUSED):
        with ExitStack() as stack:
            with load.without_writes():
                stack.enter_context(frozen(cluster.server.pid))
            load.go_on("session", "base", times=12)
        load.go_on()


@pytest.mark.long
def test_a_database_frozen_amid_writes_loses_nothing(cluster: MachineCluster, load: Load) -> None:
    # A write that was acknowledged just before may be on no replica yet: searches wait for it.
    with load.running(EVERY):
        with frozen(cluster.server.pid):
            for router in (0, 1):
                load.fail("put", router)
        load.go_on()


def test_connections_that_were_cut_are_given_up_at_both_ends(cluster: MachineCluster) -> None:
    visitor = cluster.network.add("visitor")
    with visitor.entered():
        database = Database.open(cluster.database_url, buckets=BUCKETS, application="visitor")
    with closing(database), database.connections.use() as idle:
        with visitor.entered(), database.connections.use() as asking:
            asking.run("SELECT 1")
            asking.pgconn.send_query(b"SELECT pg_sleep(1)")
            with cluster.network.without(visitor, cluster.store):
                # One owes the other nothing, and one an answer.
                with cluster.client.entered():
                    wait_until(lambda: not cluster.server.execute(_THERE))
                wait_until(lambda: not idle.is_usable)
            asking.close()
        with visitor.entered():
            assert database.shards("main") is None
