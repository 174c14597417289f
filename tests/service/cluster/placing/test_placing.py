"""Replicas that Ray places: started, revived, moved, ended, and of another number of shards.

All tests share a cluster, one after the other; each leaves all replicas filled.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import gcws_search
from gcws_search.service.cluster.contract import Replica
from tests.crashes.cluster import ClusterTrial
from tests.service.cluster.partitions.clients import asked, query
from tests.support.service.ray_cluster import SECONDS, RayCluster, kill_all, process_of
from tests.support.service.shards import contents
from tests.support.waiting import wait_until


def nodes_of(cluster: RayCluster, replicas: Collection[Replica]) -> set[int]:
    return {cluster.node_of(process_of(each)).pid for each in replicas}


def processes(cluster: RayCluster) -> list[tuple[tuple[object, ...], int]]:
    """Return the place of each replica once all are filled, and its process."""
    return [(each[:4], process_of(each)) for each in cluster.wait_until_whole()]


def inodes(cluster: RayCluster) -> set[int]:
    """Return which files replicas have: one that is filled again has others."""
    files = {each.stat().st_ino for each in cluster.folder.glob("node-*/cluster/main/*/c1.*")}
    assert files
    return files


def test_up_places_each_replica_of_a_shard_on_a_node_of_its_own(cluster: RayCluster) -> None:
    found = cluster.wait_until_whole()
    for shard in range(2):
        assert len(nodes_of(cluster, [each for each in found if each.shard == shard])) == 2
    shown = cluster.run("status").stdout
    assert shown.count("filled") == len(found) == 4
    assert "3 nodes may have replicas" in shown
    assert all(each.address in shown for each in found)


def test_up_may_be_called_again(cluster: RayCluster, trial: ClusterTrial) -> None:
    before = processes(cluster)
    with trial.running("up"):
        said = cluster.up()
    assert "4 of 4 replicas are filled" in said
    assert "started" not in said
    assert processes(cluster) == before


def test_a_killed_replica_answers_again_from_its_file(
    cluster: RayCluster, trial: ClusterTrial
) -> None:
    victim = cluster.wait_until_whole()[0]
    node, files = nodes_of(cluster, [victim]), inodes(cluster)
    with trial.running("kill"):
        os.kill(process_of(victim), signal.SIGKILL)
        found = cluster.wait_until_whole(but=[victim.address])
    [same] = [each for each in found if each[1:3] == victim[1:3]]
    assert nodes_of(cluster, [same]) == node
    assert inodes(cluster) == files


def test_a_bulk_load_is_done_by_the_nodes(cluster: RayCluster, tmp_path: Path) -> None:
    cluster.wait_until_whole()
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.eye(20, 8) + 1)
    files = [str(tmp_path / f"{name}.npy") for name in ("a", "b")]
    words = ["load", *files, "--into", "bulk", "--ray", cluster.address, "--json"]
    found = json.loads(cluster.run(*words, group="bulk").stdout)
    assert (found["items"], found["parts"]) == (40, 2)
    row = cluster.database.find("bulk")
    assert row is not None
    assert [*contents(cluster.database, row.number)] == [*map(str, range(40))]
    assert cluster.database.drop(row.number)
    # What still runs when a row is bad ends without a word.
    np.save(tmp_path / "a.npy", np.full((20, 8), np.nan))
    np.save(tmp_path / "b.npy", np.ones((200_000, 8)))
    refused = cluster.run(*words, group="bulk", code=1).stderr.splitlines()
    assert refused[-1].startswith(f"gcws-search: {files[0]}: row 0: ")
    assert "was loaded is dropped" in cluster.run("drop", "bulk", group="bulk").stdout


@pytest.mark.long
def test_a_move_fails_no_request(cluster: RayCluster, trial: ClusterTrial) -> None:
    before = [each for each in cluster.wait_until_whole() if each.shard == 1]
    former, sister = before
    node = nodes_of(cluster, [former])
    with trial.running("move"):
        cluster.run("move", f"1/{former.replica}", f"--seconds={SECONDS}")
        found = cluster.wait_until_whole(but=[former.address])
    found = [each for each in found if each.shard == 1]
    assert sister.address in {each.address for each in found}
    assert len(nodes_of(cluster, found)) == 2
    assert not nodes_of(cluster, found) & node


@pytest.mark.long
def test_the_replicas_of_a_lost_node_come_up_elsewhere(
    cluster: RayCluster, trial: ClusterTrial
) -> None:
    before = cluster.wait_until_whole()
    victim = cluster.node_of(process_of(before[0]))
    lost = [each.address for each in before if nodes_of(cluster, [each]) == {victim.pid}]
    with trial.running("loss"):
        kill_all(victim)
        found = cluster.wait_until_whole(but=lost)
    for shard in range(2):
        assert len(nodes_of(cluster, [each for each in found if each.shard == shard])) == 2


@pytest.mark.long
def test_reads_and_writes_go_on_without_the_head_and_it_knows_all_when_it_is_back(
    cluster: RayCluster, trial: ClusterTrial
) -> None:
    before = processes(cluster)
    assert cluster.head is not None
    with trial.running("no head") as load:
        kill_all(cluster.head)
        shown = cluster.run("status")
        assert "cannot join Ray" in shown.stderr
        assert shown.stdout.count("filled") == 4
        load.go_on("base", times=10)
        cluster.start_head()
        assert "started" not in cluster.up()
    assert processes(cluster) == before


@pytest.mark.long
def test_another_number_of_shards_fails_no_request(
    cluster: RayCluster, trial: ClusterTrial
) -> None:
    cluster.wait_until_whole()
    with trial.running("shards"):
        assert "routers ask 3 shards from now on" in cluster.up(3)
        assert len(cluster.wait_until_whole()) == 6
    found = cluster.database.replicas("main")
    assert {each.shards for each in found if each.seen < 5} == {3}
    running = [number for number, node in enumerate(cluster.nodes) if node.poll() is None]
    folders = [cluster.folder / f"node-{number}" / "cluster" / "main" for number in running]
    assert not [each for folder in folders for each in folder.glob("*-of-2-*")]


@pytest.mark.parametrize(
    ("prelude", "variables", "said"),
    [
        ("", {"GCWS_REPLICAS": "4"}, "expected 4 nodes for 4 replicas of a shard, got "),
        ("", {"RAY_AUTH_TOKEN": "another"}, "cannot join Ray"),
        ("import ray; ray.__version__ = '2.59.1'", {"RAY_AUTH_MODE": "token"}, "Ray: 2.59.1"),
    ],
    ids=["nodes", "token", "version"],
)
def test_what_cannot_be_is_refused(
    cluster: RayCluster, prelude: str, variables: dict[str, str], said: str
) -> None:
    cluster.wait_until_whole()
    done = cluster.run("up", code=1, prelude=prelude, **variables)
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_nodes_find_the_duplicates_of_files(
    cluster: RayCluster, tmp_path: Path, rng: np.random.Generator
) -> None:
    rows = rng.integers(0, 3, (200, 30)).astype(np.float32)
    rows[150:] = rows[:50]
    for number, part in enumerate(np.split(rows, [80])):
        np.save(tmp_path / f"{number}.npy", part)
    # The token is where Ray itself keeps it.
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text(cluster.variables["RAY_AUTH_TOKEN"])
    done = subprocess.run(
        [sys.executable, "-m", "gcws_search", "dedupe", "0.npy", "1.npy", "--min-score=0.9",
         "--output=out", "--ray=auto"],
        cwd=tmp_path, env=cluster.variables | {"RAY_AUTH_TOKEN": "", "HOME": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    files = [tmp_path / "0.npy", tmp_path / "1.npy"]
    gcws_search.dedupe(files, tmp_path / "here", min_score=0.9)
    for name in ("groups", "kept", "removed"):
        found, wanted = (
            pq.read_table(tmp_path / out / f"{name}.parquet").drop_columns("file")
            for out in ("out", "here")
        )
        assert found.equals(wanted), name
    assert len(pq.read_table(tmp_path / "here" / "removed.parquet")) == 50


def test_down_ends_all_replicas_and_leaves_the_items(
    cluster: RayCluster, trial: ClusterTrial
) -> None:
    cluster.wait_until_whole()
    cluster.run("down")
    assert not [each for each in cluster.database.replicas("main") if each.seen < 5]
    assert "filled" not in cluster.run("status", code=1).stdout
    refused = asked(trial.routers[0], query("base"))
    assert (refused.status_code, refused.json()["code"]) == (503, "shard_unavailable")
    cluster.up()
    # Each router reads the list every second.
    wait_until(lambda: all(asked(each, query("base")).is_success for each in trial.routers))
    with trial.running("down"):
        pass
