"""A cluster answers what one node answers: the same ids, scores, order and counts, to the bit."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path

import numpy as np
import pytest

from gcws_search.index import Policies
from gcws_search.index.contracts.policies import ProbePolicy
from gcws_search.service.cluster.database import Database
from tests.support.data.generated import clustered, counts
from tests.support.service.bodies import npy
from tests.support.service.client import Client, Json, running, started
from tests.support.service.cluster import BUCKETS, ClusterClient
from tests.support.service.shards import offload_all

ROWS = 240
KEYS = {"scored": {"kind": "gcws"}, "scanned": {"kind": "exact"}}
"""Collections by the backend that searches them; all are told the same."""
FILTER = {"must": [{"key": "group", "match": {"value": 3}}]}
TABLES_ALONE = Policies(probe=ProbePolicy(scan_factor=1e12), max_delta_rows=0, max_pending=0)
"""No query is scanned for that tables can answer, and no row waits for its tables."""
TABLES = {
    "banded": {"kind": "gcws", "params": {"bands": 2, "band_width": 2}},
    "probed": {"kind": "gcws", "params": {"bands": 8}},
}
"""Collections by their tables: of one depth, and of all."""


def dense_signed(rng: np.random.Generator) -> list[Json]:
    return [row.tolist() for row in clustered(rng, ROWS, 0, dim=12)[0]]


def sparse_counts(rng: np.random.Generator) -> list[Json]:
    rows = map(counts(rng, ROWS, 0, words=60)[0].row, range(ROWS))
    return [{"indices": i.tolist(), "values": values.tolist()} for i, values in rows]


def tf_idf(rng: np.random.Generator) -> list[Json]:
    rows = sparse_counts(rng)
    for row in rows:
        count = len(row["values"])
        weights = rng.gamma(1.0, 1.0, count) * rng.choice([1, 1, 1, -1], count)
        row["values"] = (weights * row["values"]).tolist()
    return rows


def copies(rng: np.random.Generator) -> list[Json]:
    """Return vectors that are equal to many others: ids decide."""
    rows = rng.integers(-2, 3, (7, 12)) + np.eye(7, 12, dtype=int) * 5
    return [row.tolist() for row in rows[rng.integers(7, size=ROWS)]]


KINDS: dict[str, tuple[Json, Callable[[np.random.Generator], list[Json]]]] = {
    "dense": ({"dim": 12, "transform": {"center": [0.25] * 12}}, dense_signed),
    "counts": ({"dim": 60, "transform": {"power": 0.5, "normalize": "l2"}}, sparse_counts),
    "tf-idf": ({"dim": None}, tf_idf),
    "copies": ({"dim": 12}, copies),
}
"""Collections and their vectors."""


class Twins:
    """One node and a cluster that are told and asked the same.

    ``kind``: of the vectors. ``policies``: of the node; the cluster's are given at each start.
    """

    def __init__(
        self, kind: str, database_url: str, folder: Path, policies: Policies | None = None
    ) -> None:
        self.config, make = KINDS[kind]
        self.vectors = make(np.random.default_rng(11))
        self.url, self.folder = database_url, folder / "cluster"
        self.node = started(folder / "node", policies=policies or Policies())
        self.node.wait_until_ready()

    def cluster(self, shards: int, **more: Json) -> AbstractContextManager[ClusterClient]:
        return running(ClusterClient(self.url, self.folder, shards=shards, **more))

    def tell(
        self, client: Client, method: str, path: str, expected: Json = None, **more: Json
    ) -> None:
        answers = [
            each.request(method, f"/v1/collections{path}", **more) for each in (self.node, client)
        ]
        assert answers[0].status_code == answers[1].status_code < 300, answers[1].text
        if "items" in path:
            assert answers[0].json() == answers[1].json()
            assert expected is None or answers[0].json() == expected

    def put(self, client: Client, name: str, ids: Sequence[int], *, moved: int = 0) -> None:
        """Put some of the items, each with the vector of another where they are to move."""
        rows = ((i, self.vectors[(i + moved) % ROWS], {"group": i % 5, "n": i}) for i in ids)
        items = [dict(zip(("id", "vector", "payload"), row, strict=True)) for row in rows]
        self.tell(client, "PUT", f"/{name}/items", json={"items": items})

    def fill(self, client: Client, name: str, backend: Json) -> None:
        """Put items, replace some, delete some by id and some by a filter, and put some again."""
        self.tell(client, "PUT", f"/{name}", json={**self.config, "backend": backend})
        for first in range(0, ROWS, 90):
            self.put(client, name, range(first, min(first + 90, ROWS)))
        self.put(client, name, range(40, 80), moved=1)
        self.delete(client, name, [*range(100, 110)])
        gone = {"must": [{"key": "n", "range": {"gte": 180, "lt": 200}}]}
        self.tell(client, "POST", f"/{name}/items/delete", {"deleted": 20}, json={"filter": gone})
        self.put(client, name, range(100, 103))

    def delete(self, client: Client, name: str, ids: Sequence[int]) -> None:
        answer = {"deleted": len(ids)}
        self.tell(client, "POST", f"/{name}/items/delete", answer, json={"ids": [*ids]})

    def same(self, client: Client, path: str, **more: Json) -> Json:
        """Return the answer of the node to a question, after a check of the cluster's."""
        expected, got = (
            each.post(f"/v1/collections{path}", **more) for each in (self.node, client)
        )
        assert expected.status_code == got.status_code == 200, got.text
        assert got.content == expected.content
        return expected

    def check(self, client: Client) -> None:
        for name in KEYS:
            self.check_searches(client, name)
            self.check_batches(client, name)
        self.check_pages(client, "scored")
        for more in ({"min_score": 0.75}, {"min_score": 0.6, "limit": 40}):
            found = self.same(client, "/scored/pairs", json={"recall": 1, **more})
            assert found.text
        points = {"a": {"id": "3"}, "b": {"vector": self.vectors[9]}}
        self.same(client, "/scored/explain", json=points)

    def check_searches(self, client: Client, name: str) -> None:
        vectors = self.vectors
        for body in (
            {"vector": vectors[0]},
            {"vector": vectors[7], "limit": 1},
            {"vector": vectors[8], "limit": 2 * ROWS},
            {"vector": vectors[9], "limit": 20, "offset": 15},
            {"vector": vectors[9], "limit": 20, "offset": ROWS},
            {"vector": vectors[3], "limit": 30, "filter": FILTER, "with_payload": True},
            {"vector": vectors[4], "limit": 100, "min_score": 0.3},
            {"vector": vectors[4], "limit": 100, "min_score": 0.1, "filter": FILTER},
            {"id": "17", "with_vector": True},
            {"id": "41", "limit": ROWS, "filter": FILTER},
        ):
            found = self.same(client, f"/{name}/query", json={"recall": 1, **body}).json()
            assert found["hits"] or body.get("offset") == ROWS

    def check_batches(self, client: Client, name: str) -> None:
        queries = [{"vector": each, "limit": 5, "recall": 1} for each in self.vectors[::12]]
        others = [
            {"id": "3", "recall": 1},
            {"vector": self.vectors[5], "filter": FILTER, "recall": 1},
        ]
        found = self.same(client, f"/{name}/query/batch", json={"queries": queries + others}).json()
        assert len(found["results"]) == len(queries) + 2
        if isinstance(self.vectors[0], list):
            content, kind = npy(np.array(self.vectors[::9], np.float32)), "application/x-npy"
            url = f"/{name}/query/batch?limit=7&recall=1&offset=2"
            self.same(client, url, content=content, headers={"Content-Type": kind})

    def scores(self, client: Client, name: str, body: Json) -> list[list[float]]:
        """Return the scores of the node's hits and the cluster's; of ties others may be shown."""
        url = f"/v1/collections/{name}/query"
        found = [each.post(url, json=body).json()["hits"] for each in (self.node, client)]
        return [[hit["score"] for hit in hits] for hits in found]

    def check_no_less(self, client: Client, name: str, body: Json) -> None:
        """Check that the hits of each rank are as good as the node's or better."""
        least, got = self.scores(client, name, body)
        assert len(got) >= len(least)
        assert all(ours >= other for ours, other in zip(got, least, strict=False))

    def check_pages(self, client: Client, name: str) -> None:
        """Compare counts and pages: cursors differ, and what they lead to does not."""
        for body in ({}, {"filter": FILTER}):
            assert self.same(client, f"/{name}/count", json=body).json()["count"]
        url = f"/v1/collections/{name}/items"
        for parameters in (
            {"limit": 70},
            {"limit": 1000, "with_vector": "true"},
            {"ids": "3,101,5,nothing"},
            {"limit": 7, "filter": '{"must": [{"key": "group", "match": {"value": 2}}]}'},
        ):
            expected, got = (pages(each, url, parameters) for each in (self.node, client))
            assert expected
            assert got == expected
        one, other = (each.get(f"{url}/41") for each in (self.node, client))
        assert one.content == other.content
        assert client.get(f"{url}/105").status_code == 404


def pages(client: Client, url: str, parameters: Json) -> list[Json]:
    found: list[Json] = []
    cursor: str | None = ""
    while cursor is not None:
        more = {"cursor": cursor} if cursor else {}
        page = client.get(url, params={**parameters, **more}).json()
        found.append(page["items"])
        cursor = page["next_cursor"]
    return found


@pytest.fixture(params=KINDS)
def twins(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Iterator[Twins]:
    twins = Twins(request.param, database_url, tmp_path)
    yield twins
    twins.node.stop()


def test_answers_are_those_of_one_node_whatever_the_number_of_shards(
    twins: Twins, tmp_path: Path
) -> None:
    """Shards are filled by writes, then since their number has changed, at last from segments."""
    base = str(tmp_path / "bases")
    for turn, shards in enumerate((2, 8, 1)):
        if shards == 1:
            with closing(Database.open(twins.url, buckets=BUCKETS, base=base)) as database:
                assert offload_all(database) > ROWS
        with twins.cluster(shards, base=base) as cluster:
            for name, backend in KEYS.items():
                if not turn:
                    twins.fill(cluster, name, backend)
                    continue
                twins.put(cluster, name, range(10 * turn, 10 * turn + 8), moved=turn)
                twins.delete(cluster, name, [110 + turn, 120 + turn])
            twins.check(cluster)


@pytest.mark.parametrize("twins", ["copies"], indirect=True)
def test_answers_are_those_of_one_node_from_either_replica(twins: Twins) -> None:
    """Also after a restart, and after the files of one replica were lost."""
    with twins.cluster(2, replicas=2) as cluster:
        for name, backend in KEYS.items():
            twins.fill(cluster, name, backend)
        twins.check(cluster)
    [*folders] = twins.folder.glob("shard-*-1")
    assert len(folders) == 2
    for folder in folders:
        shutil.rmtree(folder)
    with twins.cluster(2, replicas=2) as cluster:
        for replica in (0, 1):
            for each in cluster.shards.replicas:
                each[replica].broken = None
                each[1 - replica].broken = ConnectionRefusedError("nobody listens")
            twins.check(cluster)
        replicas = [replica for each in cluster.shards.replicas for replica in each]
        assert min(replica.asked for replica in replicas) > 10
        assert not sum(one.fills for each in replicas for one in each.host.followers)


@pytest.mark.parametrize(
    ("kind", "shards"), [("dense", 8), ("counts", 4), ("tf-idf", 1), ("copies", 2)]
)
def test_tables_of_shards_find_what_those_of_one_node_find(
    request: pytest.FixtureRequest, kind: str, shards: int, database_url: str, tmp_path: Path
) -> None:
    """The same where all tables are probed, and at each rank no less where they may stop.

    Hits of a shard are no better than those of all items, so that it stops no sooner.
    """
    twins = Twins(kind, database_url, tmp_path, TABLES_ALONE)
    request.addfinalizer(twins.node.stop)
    bodies = [{"vector": each, "limit": 7, "recall": 0.5} for each in twins.vectors[::24]]
    missed = 0
    with twins.cluster(shards, policies=TABLES_ALONE) as cluster:
        for name, backend in TABLES.items():
            twins.fill(cluster, name, backend)
        for body in bodies:
            whole = twins.scores(cluster, "banded", {**body, "recall": 1})
            found = twins.scores(cluster, "banded", {**body, "recall": 0.999})
            assert found[0] == found[1]
            missed += found[0] != whole[0]
            for more in ({}, {"filter": FILTER}):
                twins.check_no_less(cluster, "banded", {**body, **more})
                twins.check_no_less(cluster, "probed", {**body, **more, "guarantee": "proven"})
    assert missed or kind == "copies", "equal items share all buckets"
    with twins.cluster(shards) as cluster:
        for body in bodies:
            twins.check_no_less(cluster, "banded", body)
