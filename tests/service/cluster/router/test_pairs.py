"""Near-duplicate pairs over shards: those of one node, in bounded memory, while somebody waits."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from gcws_search.index import Policies, SearchParams
from gcws_search.index.contracts.policies import PairPolicy
from tests.support.service.client import Client, Json, started
from tests.support.service.cluster import ClusterClient, ThreadReplica, before_each_message

URL = "/v1/collections/copies"
COPIES = 300
"""Equal items: a shard has more partners of each than are asked for at first."""
OTHERS = 40


def fill(client: Client) -> None:
    assert client.put(URL, json={"dim": 3}).status_code == 201
    vectors = [[1, 2, -3]] * COPIES + [[1 + place / 50, 2, -3] for place in range(OTHERS)]
    items = [{"id": f"i{place}", "vector": vector} for place, vector in enumerate(vectors)]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Callable[[int], list[Client]]]:
    """Start a node and a cluster of three shards that list so many pairs, with the same items."""
    running: list[Client] = []

    def both(max_pairs: int) -> list[Client]:
        policies = Policies(pairs=PairPolicy(max_pairs=max_pairs))
        cluster = ClusterClient(database_url, tmp_path / "cluster", shards=3, policies=policies)
        cluster.start()
        running.extend([started(tmp_path / "node", policies=policies), cluster])
        for each in running:
            each.wait_until_ready()
            fill(each)
        return running

    yield both
    for each in running:
        each.stop()


def test_pairs_are_those_of_one_node_where_items_have_many_partners(
    start: Callable[[int], list[Client]],
) -> None:
    node, cluster = start(100_000)
    limits = [(0.2, limit) for limit in (None, 1, 5000, COPIES * (COPIES - 1) // 2 + 7)]
    for min_score, limit in [*limits, (1, None), (0.9, 10**9)]:
        asked = {"recall": 1, "min_score": min_score, **({"limit": limit} if limit else {})}
        expected, got = (each.post(f"{URL}/pairs", json=asked) for each in (node, cluster))
        assert expected.status_code == got.status_code == 200
        assert expected.content == got.content


def test_more_pairs_than_one_node_lists_are_refused_in_the_same_words(
    start: Callable[[int], list[Client]],
) -> None:
    within = COPIES * (COPIES - 1) // 2
    node, cluster = start(within - 1)
    for more in ({"min_score": 0.999}, {"min_score": 0.5, "limit": 10**9}):
        asked = {"recall": 1, **more}
        expected, got = (each.post(f"{URL}/pairs", json=asked) for each in (node, cluster))
        assert expected.status_code == got.status_code == 422
        assert expected.json()["errors"] == got.json()["errors"]
    assert cluster.post(f"{URL}/pairs", json={"min_score": 1, "limit": 3}).status_code == 200


def test_pairs_stop_once_nobody_waits(
    start: Callable[[int], list[Client]], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cluster = start(100_000)
    stop, searches = threading.Event(), list[Json]()

    async def seen(_replica: ThreadReplica, head: Json, _seconds: float) -> None:
        if head["method"] == "search":
            searches.append(head)
            stop.set()

    before_each_message(monkeypatch, seen)
    pairs = cluster.app.state.service.collection("copies").pairs
    whole = {"min_score": 0.2, "recall": 1.0, "limit": None}
    assert cluster.run(asyncio.to_thread(pairs, **whole, stop=stop)) == []
    assert len(searches) in {1, 2}, "of the first items, one for each shard behind theirs"


def test_a_comparison_stops_once_nobody_waits(
    start: Callable[[int], list[Client]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the router, which waits for shards no longer, and of a node."""
    stop, left = threading.Event(), list[str]()
    both = start(100_000)

    async def hold(replica: ThreadReplica, head: Json, seconds: float) -> None:
        if head["method"] == "compare":
            stop.set()
            try:
                await asyncio.sleep(seconds)
            finally:
                left.append(replica.address)

    before_each_message(monkeypatch, hold)
    sampled = {"sample": 20, "seed": 0, "backends": None, "stop": stop}
    for client in reversed(both):
        compare = client.app.state.service.collection("copies").compare
        with pytest.raises(asyncio.CancelledError):
            client.run(asyncio.to_thread(compare, None, SearchParams(limit=3), **sampled))
    assert sorted(left) == [f"shard-{shard}-0" for shard in range(3)]


def test_no_transaction_is_open_while_shards_search(
    start: Callable[[int], list[Client]], database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, cluster = start(100_000)
    states = list[str]()
    ours = "SELECT state FROM pg_stat_activity WHERE application_name LIKE 'gcws-search router%'"
    with psycopg.connect(database_url, autocommit=True) as connection:

        async def seen(_replica: ThreadReplica, head: Json, _seconds: float) -> None:
            if head["method"] == "search":
                states.extend(state for (state,) in connection.execute(ours).fetchall())

        before_each_message(monkeypatch, seen)
        answer = cluster.post(f"{URL}/pairs", json={"min_score": 0.5, "limit": 10, "recall": 1})
    assert answer.status_code == 200
    assert states
    assert {*states} == {"idle"}
