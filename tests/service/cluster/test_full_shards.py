"""A shard that has no memory or disk for more: writes are refused, searches go on."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from gcws_search.service.cluster.shard.host import ShardHost
from gcws_search.service.cluster.shard.server import ShardServer
from gcws_search.service.settings import Settings
from tests.support.service.client import assert_problem, fill
from tests.support.service.cluster import ClusterClient

URL = "/v1/collections/plants"
ITEM = {"items": [{"id": "new", "vector": [1, 2, 3, 4]}]}


def test_writes_are_refused_and_the_replica_is_named(
    database_url: str, data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = ClusterClient(database_url, data_dir, replicas=2)
    client.start()
    try:
        client.wait_until_ready()
        fill(client)
        client.app.state.service.room.max_age_seconds = 0
        last = client.shards.replicas[1][1].host

        def refusal(host: ShardHost) -> str:
            return "no space left" if host is last else ""

        with monkeypatch.context() as patched:
            patched.setattr(ShardHost, "refusal", property(refusal))
            for answer in (
                client.put(f"{URL}/items", json=ITEM),
                client.post(f"{URL}/load", content=b'{"id": "new", "vector": [1, 2, 3, 4]}'),
                client.put("/v1/collections/others", json={"dim": 4}),
            ):
                problem = assert_problem(answer, 507, "shard_full", "shard 1", "shard-1-1", "space")
                assert int(answer.headers["retry-after"]) > 0
                assert problem["status"] == 507
            hits = client.post(f"{URL}/query", json={"id": "a"}).json()["hits"]
            assert {hit["id"] for hit in hits} == {"b", "c", "7"}
            assert client.delete(f"{URL}/items/c").status_code == 204
        assert client.put(f"{URL}/items", json=ITEM).status_code == 200
    finally:
        client.stop()


def test_a_shard_holds_its_own_limits(database_url: str, data_dir: Path) -> None:
    url = SecretStr(database_url)
    settings = Settings(
        data_dir=data_dir, database_url=url, port=0, buckets=8, max_memory_share=1e-9
    )
    server = ShardServer(settings, 0, 0, "between us")
    assert "bytes of memory in use" in server.host.refusal
    server.stop()
    server.run()
