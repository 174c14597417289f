"""Results of several queries: each as it is alone, equal scores by id, what they cost in all."""

from collections import Counter

import numpy as np
import pytest

from gcws_search.index.collection.items import QueryResult, QueryResults
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.hits import Explanation
from gcws_search.index.contracts.parameters import CollectionConfig, GcwsParams, SearchParams
from tests.support.data.payloads import encode_payload
from tests.support.index.items import put_rows
from tests.support.index.policies import FREE_HASHING

DIM = 24
ITEMS = 12_000
Shown = list[tuple[str, float, bytes | None]]


def searched(rng: np.random.Generator) -> tuple[QueryResults, list[QueryResult]]:
    """Return results of one batch, and of its queries asked one by one.

    Queries near stored items are answered by tables; those far from all are by scans, some of
    which end in more ties than hits are wanted.
    """
    collection = MemoryCollection(
        CollectionConfig(dim=DIM, backend=GcwsParams(bands=16)), threads=1, policies=FREE_HASHING
    )
    rows = np.repeat(rng.gamma(1.0, size=(ITEMS // 4, DIM)), 4, axis=0).astype(np.float32)
    rows[:40] = rows[0]
    ids = [str(i) for i in rng.permutation(ITEMS)]
    payloads = [encode_payload({"id": item_id}) for item_id in ids]
    raw = collection.space.from_dense(rows)
    put_rows(collection, ids, raw, keys=range(1, ITEMS + 1), payloads=payloads)
    tied = rows[:1] + 100 * np.eye(DIM, dtype=np.float32)[3:5]
    sent = np.concatenate([rows[100:110], tied, np.eye(DIM, dtype=np.float32)[:5], rows[200:210]])
    queries = collection.space.prepare(collection.space.from_dense(sent))
    params = SearchParams(limit=3)
    alone = [
        collection.search(collection.view, queries[m : m + 1], params)[0] for m in range(len(sent))
    ]
    return collection.search(collection.view, queries, params), alone


def shown(result: QueryResult) -> Shown:
    return [*zip(result.ids, result.scores, result.payloads or (), strict=True)]


def cost(result: QueryResult) -> Explanation:
    assert result.explanation is not None
    return result.explanation


def test_results_of_a_batch_are_those_of_each_query_however_they_are_taken(
    rng: np.random.Generator,
) -> None:
    results, alone = searched(rng)
    truth = [shown(result) for result in alone]
    n = len(alone)
    assert len(results) == n
    assert [shown(result) for result in results] == truth
    assert [shown(results[number]) for number in range(n)] == truth
    assert [shown(results[number - n]) for number in range(n)] == truth
    assert [shown(result) for result in results[5:15]] == truth[5:15]
    assert [result.explanation for result in results] == [one.explanation for one in alone]
    for number in (n, -n - 1):
        with pytest.raises(IndexError):
            results[number]


def test_no_more_hits_than_wanted_and_equal_scores_by_id(rng: np.random.Generator) -> None:
    results, _ = searched(rng)
    for result in results:
        assert len(result.ids) == 3
        ranks = [
            (-score, item_id) for item_id, score in zip(result.ids, result.scores, strict=True)
        ]
        assert ranks == sorted(ranks)
        assert [results.view.ids[row] for row in result.rows] == result.ids
        assert result.payloads == [encode_payload({"id": item_id}) for item_id in result.ids]
    first = sorted(results.view.ids[:40])[:3]
    scanned = [result for result in results if cost(result).method == "scan"]
    assert any(result.ids == first for result in scanned)


def test_totals_are_sums_over_the_queries_of_each_method(rng: np.random.Generator) -> None:
    results, alone = searched(rng)
    sums: Counter[tuple[str, str]] = Counter()
    for result in alone:
        found = cost(result)
        sums[found.method, "searches"] += 1
        sums[found.method, "candidates"] += found.candidates
        sums[found.method, "scored"] += found.scored
    assert {method for method, _ in sums} == {"tables", "scan"}
    expected = [
        (method, *(sums[method, name] for name in ("searches", "candidates", "scored")))
        for method in ("scan", "tables")
    ]
    assert [total[:-1] for total in results.totals()] == expected
    for method, *_, recall in results.totals():
        explained = map(cost, alone)
        each = [one.expected_recall for one in explained if one.method == method]
        assert recall == pytest.approx(sum(each), abs=1e-9)
    assert [results[number : number + 1].totals() for number in range(len(alone))] == [
        [(one.method, 1, one.candidates, one.scored, one.expected_recall)]
        for one in map(cost, alone)
    ]
