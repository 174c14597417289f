"""Replicas that Ray places: started, revived, moved, ended, and of another number of shards.

All tests share a cluster, one after the other; each leaves all replicas filled.
"""

import os
import signal
import time
from collections.abc import Collection

import numpy as np
import pytest

from gcws_search.service.cluster.contract import Replica
from tests.service.cluster.placing.conftest import URL, Load, Router
from tests.support.service.ray_cluster import SECONDS, RayCluster, kill_all, process_of


def nodes_of(cluster: RayCluster, replicas: Collection[Replica]) -> set[int]:
    """Return the nodes of some replicas."""
    return {cluster.node_of(process_of(each)).pid for each in replicas}


def inodes(cluster: RayCluster) -> set[int]:
    """Return which files replicas have: one that is filled again has others."""
    files = {each.stat().st_ino for each in cluster.folder.glob("node-*/cluster/main/*/c1.*")}
    assert files
    return files


def test_up_places_each_replica_of_a_shard_on_a_node_of_its_own(
    cluster: RayCluster, router: Router
) -> None:
    found = cluster.wait_until_whole()
    for shard in range(2):
        assert len(nodes_of(cluster, [each for each in found if each.shard == shard])) == 2
    shown = cluster.run("status").stdout
    assert shown.count("filled") == len(found) == 4
    assert "3 nodes may have replicas" in shown
    assert all(each.address in shown for each in found)
    assert router.found() == router.ids


def test_up_may_be_called_again(cluster: RayCluster, router: Router) -> None:
    before = [(each[:4], process_of(each)) for each in cluster.wait_until_whole()]
    said = cluster.up()
    assert "4 of 4 replicas are filled" in said
    assert "started" not in said
    assert [(each[:4], process_of(each)) for each in cluster.wait_until_whole()] == before
    assert router.found() == router.ids


def test_a_killed_replica_answers_again_from_its_file(
    cluster: RayCluster, router: Router, load: Load
) -> None:
    victim = cluster.wait_until_whole()[0]
    node, files = nodes_of(cluster, [victim]), inodes(cluster)
    with load.running():
        start = time.monotonic()
        os.kill(process_of(victim), signal.SIGKILL)
        found = cluster.wait_until_whole(but=[victim.address])
        print(f"a killed replica was listed again after {time.monotonic() - start:.1f} s")  # noqa: T201
    [same] = [each for each in found if each[1:3] == victim[1:3]]
    assert nodes_of(cluster, [same]) == node
    assert inodes(cluster) == files
    assert router.found() == router.ids


@pytest.mark.long
def test_a_move_fails_no_request(cluster: RayCluster, router: Router, load: Load) -> None:
    before = [each for each in cluster.wait_until_whole() if each.shard == 1]
    former, sister = before
    node = nodes_of(cluster, [former])
    with load.running():
        cluster.run("move", f"1/{former.replica}", f"--seconds={SECONDS}")
        found = cluster.wait_until_whole(but=[former.address])
    found = [each for each in found if each.shard == 1]
    assert sister.address in {each.address for each in found}
    assert len(nodes_of(cluster, found)) == 2
    assert not nodes_of(cluster, found) & node
    assert router.found() == router.ids


@pytest.mark.long
def test_the_replicas_of_a_lost_node_come_up_elsewhere(
    cluster: RayCluster, router: Router, load: Load
) -> None:
    before = cluster.wait_until_whole()
    victim = cluster.node_of(process_of(before[0]))
    lost = [each.address for each in before if nodes_of(cluster, [each]) == {victim.pid}]
    with load.running():
        start = time.monotonic()
        kill_all(victim)
        found = cluster.wait_until_whole(but=lost)
        print(f"the replicas of a lost node were there after {time.monotonic() - start:.1f} s")  # noqa: T201
    for shard in range(2):
        assert len(nodes_of(cluster, [each for each in found if each.shard == shard])) == 2
    assert router.found() == router.ids


@pytest.mark.long
def test_reads_and_writes_go_on_without_the_head_and_it_knows_all_when_it_is_back(
    cluster: RayCluster, router: Router, load: Load
) -> None:
    before = [(each[:4], process_of(each)) for each in cluster.wait_until_whole()]
    assert cluster.head is not None
    with load.running():
        kill_all(cluster.head)
        shown = cluster.run("status")
        assert "Ray cannot be joined" in shown.stderr
        assert shown.stdout.count("filled") == 4
        load.wait()
        cluster.start_head()
        assert "started" not in cluster.up()
    assert [(each[:4], process_of(each)) for each in cluster.wait_until_whole()] == before
    assert router.found() == router.ids


@pytest.mark.long
def test_another_number_of_shards_fails_no_request(
    cluster: RayCluster, router: Router, load: Load
) -> None:
    cluster.wait_until_whole()
    with load.running():
        assert "routers ask 3 shards from now on" in cluster.up(3)
        assert len(cluster.wait_until_whole()) == 6
    found = cluster.database.replicas("main")
    assert {each.shards for each in found if each.seen < 5} == {3}
    running = [number for number, node in enumerate(cluster.nodes) if node.poll() is None]
    folders = [cluster.folder / f"node-{number}" / "cluster" / "main" for number in running]
    assert not [each for folder in folders for each in folder.glob("*-of-2-*")]
    assert router.http.post(f"{URL}/count", json={}).json() == {"count": len(router.ids)}
    assert router.found() == router.ids


@pytest.mark.parametrize(
    ("prelude", "variables", "said"),
    [
        ("", {"GCWS_REPLICAS": "4"}, "expected 4 nodes for 4 replicas of a shard, got "),
        ("", {"RAY_AUTH_TOKEN": "another"}, "Ray cannot be joined"),
        ("import ray; ray.__version__ = '2.59.1'", {"RAY_AUTH_MODE": "token"}, "Ray: 2.59.1"),
    ],
    ids=["nodes", "token", "version"],
)
def test_what_cannot_be_is_refused(
    cluster: RayCluster, router: Router, prelude: str, variables: dict[str, str], said: str
) -> None:
    cluster.wait_until_whole()
    done = cluster.run("up", code=1, prelude=prelude, variables=variables)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_down_ends_all_replicas_and_leaves_the_items(
    cluster: RayCluster, router: Router, rng: np.random.Generator
) -> None:
    cluster.wait_until_whole()
    cluster.run("down")
    assert not [each for each in cluster.database.replicas("main") if each.seen < 5]
    assert "filled" not in cluster.run("status", code=1).stdout
    assert "shard_unavailable" in router.found()
    cluster.up()
    end = time.monotonic() + SECONDS
    while "shard_unavailable" in (found := router.found()):  # it reads the list each second
        assert time.monotonic() < end
    assert found == router.ids
    assert router.put(1, rng) == 200
    assert router.found() == router.ids
