"""Near-duplicates over shards: those of one node, in bounded memory, while somebody waits."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from itertools import product
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
    items = [
        {"id": f"i{place}", "vector": vector, "payload": {"n": place % 7} if place % 3 else None}
        for place, vector in enumerate(vectors)
    ]
    assert client.put(f"{URL}/items", json={"items": items}).status_code == 200


@pytest.fixture
def start(database_url: str, tmp_path: Path) -> Iterator[Callable[[int], list[Client]]]:
    """Start a node and a cluster of three shards that list so many pairs, with the same items."""
    running: list[Client] = []

    def both(max_pairs: int) -> list[Client]:
        policies = Policies(pairs=PairPolicy(max_pairs=max_pairs, max_edges=max_pairs))
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


@pytest.mark.parametrize("score", ["gmm", "containment"])
@pytest.mark.parametrize("spare", [0, -1])
def test_more_pairs_than_one_node_lists_are_refused_in_the_same_words(
    start: Callable[[int], list[Client]], score: str, spare: int
) -> None:
    """Containment finds a pair across shards from both of its items, and counts it once."""
    every = COPIES + OTHERS
    node, cluster = start(every * (every - 1) // 2 + spare)
    for more in ({"min_score": 0.1}, {"min_score": 0.1, "limit": 10**9}):
        asked = {"recall": 1, "score": score, **more}
        expected, got = (each.post(f"{URL}/pairs", json=asked) for each in (node, cluster))
        if spare == 0:
            assert expected.status_code == got.status_code == 200
            assert expected.content == got.content
        else:
            assert expected.status_code == got.status_code == 422
            assert expected.json()["errors"] == got.json()["errors"]
    assert cluster.post(f"{URL}/pairs", json={"min_score": 1, "limit": 3}).status_code == 200


def groups_of(client: Client, **asked: Json) -> list[str]:
    answer = client.post(f"{URL}/groups", json={"recall": 1, **asked})
    assert answer.status_code == 200, answer.text
    return answer.text.splitlines()[:-1]  # the last line has seconds


def test_groups_are_those_of_one_node_and_equal_items_of_a_shard_are_no_pairs(
    start: Callable[[int], list[Client]],
) -> None:
    """Equal items alone would be twenty times as many pairs as are held."""
    shards = 3
    node, cluster = start(2 * (OTHERS + shards) ** 2)
    asked = product(
        ("components", "leaders"),
        ("first", "longest", "n"),
        ("gmm", "bray_curtis", "containment"),
        (0.97, 0.8, 0.999),
    )
    for mode, keep, score, least in asked:
        kinds = {"mode": mode, "keep": keep, "score": score, "min_score": least}
        assert groups_of(node, **kinds) == groups_of(cluster, **kinds), kinds
    only = {"filter": {"must": [{"key": "n", "match": {"value": 3}}]}, "min_score": 0.8}
    assert groups_of(node, **only) == groups_of(cluster, **only) != []


def test_more_pairs_than_groups_are_made_of_are_refused(
    start: Callable[[int], list[Client]],
) -> None:
    every = OTHERS * (OTHERS - 1) // 2
    for client in start(every - 1):
        refused = client.post(f"{URL}/groups", json={"min_score": 0.1, "recall": 1})
        assert refused.status_code == 422
        [error] = refused.json()["errors"]
        assert f"at most {every - 1} pairs" in error["msg"]


@pytest.mark.parametrize("gone", ["i0", "i1", f"i{COPIES}", f"i{COPIES + 7}"])
def test_items_deleted_while_groups_are_made_are_in_none(
    start: Callable[[int], list[Client]], monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    node, cluster = start(100_000)
    collection = cluster.app.state.service.collection("copies")
    one, rows = asyncio.Lock(), list[Json]()

    async def seen(_replica: ThreadReplica, head: Json) -> None:
        if head["method"] == "rows" and head["with_vector"]:  # their order is known by now
            async with one:
                if not rows:
                    await asyncio.to_thread(collection.delete, [gone])
                    await asyncio.to_thread(collection.ask, "count")  # shards have seen it
                rows.append(head)

    before_each_message(monkeypatch, seen)
    found = groups_of(cluster, min_score=0.9)
    assert node.delete(f"{URL}/items/{gone}").status_code == 204
    assert found == groups_of(node, min_score=0.9) != []


@pytest.mark.parametrize("limit", [None, 1000])
def test_pairs_stop_once_nobody_waits(
    start: Callable[[int], list[Client]], monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    _, cluster = start(100_000)
    stop, searches = threading.Event(), list[Json]()

    async def seen(_replica: ThreadReplica, head: Json) -> None:
        if head["method"] == "join":
            searches.append(head)
            stop.set()

    before_each_message(monkeypatch, seen)
    pairs = cluster.app.state.service.collection("copies").pairs
    whole = {"min_score": 0.2, "recall": 1.0, "limit": limit}
    assert cluster.run(asyncio.to_thread(pairs, **whole, stop=stop)) == []
    assert len(searches) in {1, 2}, "of the first items, one for each shard behind theirs"


def test_a_comparison_stops_once_nobody_waits(
    start: Callable[[int], list[Client]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the router, which waits for shards no longer, and of a node."""
    stop, left = threading.Event(), list[str]()
    both = start(100_000)

    async def hold(replica: ThreadReplica, head: Json) -> None:
        if head["method"] == "compare":
            stop.set()
            try:
                await asyncio.Event().wait()
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

        async def seen(_replica: ThreadReplica, head: Json) -> None:
            if head["method"] == "join":
                states.extend(state for (state,) in connection.execute(ours).fetchall())

        before_each_message(monkeypatch, seen)
        answer = cluster.post(f"{URL}/pairs", json={"min_score": 0.5, "limit": 10, "recall": 1})
    assert answer.status_code == 200
    assert states
    assert {*states} == {"idle"}
