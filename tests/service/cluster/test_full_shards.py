"""A replica that has no memory or disk for more: its sister takes writes, or they are refused."""

import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from pydantic import SecretStr

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import name_of
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.server import ShardServer
from gcws_search.service.settings import Settings
from tests.support.service.client import assert_problem, fill, running
from tests.support.service.cluster import ClusterClient
from tests.support.service.shards import BUCKETS, KEY, QUICK, Written, ask, follow, together
from tests.support.waiting import wait_until

URL = "/v1/collections/plants"
ITEM = {"items": [{"id": "new", "vector": [1, 2, 3, 4]}]}
FULL: Final = "no space left"


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> list[ShardHost]:
    """Return the hosts that say they can store nothing more."""
    hosts: list[ShardHost] = []
    said = property(lambda host: FULL if host in hosts else "")
    monkeypatch.setattr(ShardHost, "refusal", said)
    return hosts


@pytest.fixture
def cluster(database_url: str, data_dir: Path) -> Iterator[ClusterClient]:
    with running(ClusterClient(database_url, data_dir, replicas=2)) as client:
        fill(client)
        client.app.state.service.room.max_age_seconds = 0
        yield client


def test_a_sister_takes_the_writes_of_a_full_replica(
    cluster: ClusterClient, full: list[ShardHost], caplog: pytest.LogCaptureFixture
) -> None:
    last = cluster.shards.replicas[1][1]
    full.append(last.host)
    assert cluster.put(f"{URL}/items", json=ITEM).status_code == 200
    assert "shard 1, replica shard-1-1 is left out: no space left" in caplog.text
    before = last.asked
    for _ in range(4):
        hits = cluster.post(f"{URL}/query", json={"id": "a"}).json()["hits"]
        assert {hit["id"] for hit in hits} == {"b", "c", "7", "new"}
    assert last.asked == before
    text = cluster.get("/metrics").text
    assert 'gcws_router_full_replicas{shard="1"} 1.0' in text
    assert 'gcws_router_replicas{shard="1"} 1.0' in text
    full.clear()
    for _ in range(4):
        assert cluster.post(f"{URL}/query", json={"id": "a"}).status_code == 200
    assert last.asked > before
    assert "shard 1, replica shard-1-1: can store again" in caplog.text


def test_weights_that_shards_have_no_room_for_are_refused(
    database_url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = ix.StoredCollection.commit
    with running(ClusterClient(database_url, data_dir, shard_seconds=1.0)) as client:
        fill(client)
        present = name_of(client.app.state.service.collection("plants").number)

        def commit_where_room(collection: ix.StoredCollection, write: Any) -> Any:  # noqa: ANN401
            if collection.name != present:
                raise ix.DiskFull(collection.name)
            return commit(collection, write)

        monkeypatch.setattr(ix.StoredCollection, "commit", commit_where_room)
        answer = client.post(f"{URL}/transform/fit", json={"weights": [1, 2, 3, 4]})
        assert_problem(answer, 507, "shard_full", "no space")
        assert client.get(URL).json()["weights"] is None


def test_writes_are_refused_where_all_replicas_of_a_shard_are_full(
    cluster: ClusterClient, full: list[ShardHost]
) -> None:
    full += [each.host for each in cluster.shards.replicas[1]]
    for answer in (
        cluster.put(f"{URL}/items", json=ITEM),
        cluster.post(f"{URL}/load", content=b'{"id": "new", "vector": [1, 2, 3, 4]}'),
        cluster.put("/v1/collections/others", json={"dim": 4}),
    ):
        problem = assert_problem(answer, 507, "shard_full", "shard 1", "shard-1-", "space")
        assert int(answer.headers["retry-after"]) > 0
        assert problem["status"] == 507
    hits = cluster.post(f"{URL}/query", json={"id": "a"}).json()["hits"]
    assert {hit["id"] for hit in hits} == {"b", "c", "7"}
    assert cluster.delete(f"{URL}/items/c").status_code == 204
    full.pop()
    assert cluster.put(f"{URL}/items", json=ITEM).status_code == 200


def settings_of(url: str, data_dir: Path, **more: Any) -> Settings:  # noqa: ANN401
    more |= {"database_url": SecretStr(url), "cluster_key": SecretStr(KEY)}
    return Settings(data_dir=data_dir, port=0, buckets=BUCKETS, **more)


def test_a_shard_holds_its_own_limits(database_url: str, data_dir: Path) -> None:
    settings = settings_of(database_url, data_dir, max_memory_share=1e-9)
    server = ShardServer(settings, 0, 0)
    assert "bytes of memory in use" in server.host.refusal
    server.stop()
    server.run()


def test_replicas_of_one_host_share_its_memory(
    database_url: str, database: Database, data_dir: Path
) -> None:
    """The second has room for itself, and none beside the first."""
    settings = settings_of(database_url, data_dir)
    server = ShardServer(settings, 0, 1, shares_memory=True)
    host, port = server.address.rsplit(":", 1)

    def listed(replica: int, address: str, share: float) -> Replica:
        return Replica("main", 0, replica, address, {}, 0, share, 0.0, 1)

    beside = f"{host}:{int(port) + 1}"
    with ThreadPoolExecutor(1) as thread, ExitStack() as stack:
        thread.submit(server.run)
        stack.callback(server.stop)
        assert wait_until(lambda: server.host.is_listed)
        assert not server.host.refusal
        database.announce(listed(2, "10.9.8.7:1", 9.0))
        database.announce(listed(0, beside, 0.95))
        assert wait_until(lambda: "of memory in use" in server.host.refusal)
        database.announce(listed(0, beside, 0.1))
        assert wait_until(lambda: not server.host.refusal)


# Files that fill their disk

DISK_BYTES: Final = 3 << 20


@contextmanager
def sisters(database: Database, *folders: Path) -> Iterator[list[ShardHost]]:
    """Lend replicas of the one shard that are listed."""
    with ExitStack() as stack:
        hosts = []
        for number, folder in enumerate(folders):
            options = replace(QUICK, address=f"replica-{number}", replica=number, full_seconds=0.2)
            hosts.append(ShardHost(database, folder, 0, 1, threads=1, options=options))
            stack.callback(hosts[-1].close)
            hosts[-1].start()
        yield hosts


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Lend a disk of few bytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mounting, check=False).returncode:
        pytest.skip("no small disk can be made here: that takes Linux and root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def take_all(path: Path) -> None:
    """Write a file that leaves no byte of its disk."""
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def put(written: Written, first: int, last: int) -> None:
    written.put_some([f"i{place}" for place in range(first, last)])


def has_all(host: ShardHost, written: Written) -> bool:
    return not host.refusal and host.positions == {written.number: written.head}


def test_a_file_in_the_way_of_its_own_growth_is_dropped_and_filled_again(
    database: Database, written: Written, disk: Path, tmp_path: Path
) -> None:
    with sisters(database, disk / "full", tmp_path / "sister") as [full, sister]:
        rows = 0
        while not full.refusal:
            put(written, rows, rows + 1000)
            rows += 1000
            follow([sister], written)
            assert wait_until(lambda: bool(full.refusal) or has_all(full, written))
        assert FULL in full.refusal
        written.delete([f"i{place}" for place in range(500, rows)])
        assert wait_until(lambda: has_all(full, written))
        assert together([full], written) == together([sister], written) == written.rows()
        assert full.followers[0].fills > 0
        assert sister.followers[0].fills == 0


def test_a_replica_whose_disk_others_fill_is_filled_again_once_there_is_room(
    database: Database, written: Written, disk: Path, tmp_path: Path
) -> None:
    with sisters(database, disk / "full", tmp_path / "sister") as [full, sister]:
        put(written, 0, 100)
        follow([full, sister], written)
        take_all(disk / "other")
        put(written, 0, 4000)
        follow([sister], written)
        assert wait_until(lambda: full.followers[0].fills > 0 and bool(full.refusal))
        fills, failures = full.followers[0].fills, full.followers[0].failures
        assert wait_until(lambda: full.followers[0].failures > failures + 3)
        assert full.followers[0].fills == fills, "there was no more room than before"
        assert not full.is_ready
        (disk / "other").unlink()
        assert wait_until(lambda: has_all(full, written))
        assert full.is_ready
        assert together([full], written) == written.rows()


def test_a_replica_that_starts_on_a_full_disk_is_filled_once_there_is_room(
    database: Database, written: Written, disk: Path
) -> None:
    put(written, 0, 300)
    with sisters(database, disk / "full") as [host]:
        follow([host], written)
    put(written, 0, 4000)
    take_all(disk / "other")
    with sisters(database, disk / "full") as [host]:
        assert wait_until(lambda: bool(host.refusal))
        (disk / "other").unlink()
        assert wait_until(lambda: has_all(host, written))
        assert together([host], written) == written.rows()


def test_a_full_replica_without_a_sister_is_kept(
    database: Database, written: Written, tmp_path: Path
) -> None:
    with sisters(database, tmp_path) as [host]:
        put(written, 0, 5)
        follow([host], written)
        commits = ix.StoredCollection.commit
        with pytest.MonkeyPatch.context() as patched:

            def commit(collection: ix.StoredCollection, write: Any) -> ix.WriteResult:  # noqa: ANN401
                if collection is written.node:
                    return commits(collection, write)
                raise ix.DiskFull(collection.name)

            patched.setattr(ix.StoredCollection, "commit", commit)
            put(written, 0, 8)
            assert wait_until(lambda: host.followers[0].failures > 10)
            assert ask(host, "count", written.number).head == {"count": 5}
        assert wait_until(lambda: has_all(host, written))
        assert host.followers[0].fills == 0
