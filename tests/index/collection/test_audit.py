"""Recall asked against recall found, by exact answers to some queries, and what is kept of it."""

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search.index import POLICIES, Policies
from gcws_search.index.collection.audit import RecallAudit
from gcws_search.index.collection.catalog import Catalog
from gcws_search.index.collection.check import check_directory
from gcws_search.index.collection.items import ItemBatch, QueryResults
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.collection.stored_collection import StoredCollection
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import SCAN, TABLES, BatchHits
from gcws_search.index.contracts.parameters import (
    BackendParams,
    CollectionConfig,
    ExactParams,
    GcwsParams,
    SearchParams,
)
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.payload import parse_filter
from tests.support.index.items import opened_catalog, put
from tests.support.index.saved_graph import change_file
from tests.support.index.small_index import all_scores
from tests.support.statistics import assert_proportion

Doubles = npt.NDArray[np.float64]
DIM = 6
WEEK = 7 * 24 * 3600.0
ALL = Policies(audit_share=1.0, max_waiting=10_000)


class Clock:
    def __init__(self) -> None:
        self.now = 1_767_225_600.0  # Thursday of the first week of 2026

    def __call__(self) -> float:
        return self.now


def filled(
    rows: Doubles, backend: BackendParams | None = None, policies: Policies = POLICIES
) -> MemoryCollection:
    config = CollectionConfig(dim=rows.shape[1], backend=backend or GcwsParams())
    memory = MemoryCollection(config, threads=1, policies=policies)
    ids = [str(number) for number in range(len(rows))]
    payloads: list[bytes | None] = [b'{"odd":%d}' % (number % 2) for number in range(len(rows))]
    raw = memory.space.from_dense(rows.astype(np.float32))
    parts = memory.encode([ItemBatch(ids, raw, payloads)])
    parts[0].sequences = range(1, len(rows) + 1)
    memory.put(parts)
    return memory


def answered(memory: MemoryCollection, scores: Doubles) -> QueryResults:
    """Return answers of tables that give each query hits of these scores."""
    m, k = scores.shape
    work = np.zeros((m, 6), np.int64)
    work[:, 0] = TABLES
    hits = BatchHits(np.zeros((m, k), np.int64), scores, np.full(m, k), work, np.full(m, 0.9))
    return QueryResults(memory.view, hits, k)


def offering(
    memory: MemoryCollection, policies: Policies, size: int = 1
) -> tuple[RecallAudit, Callable[[], bool]]:
    """Return an audit, and what offers it so many queries that have found nothing."""
    audit = RecallAudit(memory, policies)
    rows, params = memory.view.vectors[:size], SearchParams(limit=1, recall=0.9)
    return audit, partial(audit.offer, rows, params, answered(memory, np.zeros((size, 1))))


def true_scores(rows: Doubles, query: Doubles, limit: int) -> Doubles:
    """Return the scores of the best rows, by definition."""
    [scores] = all_scores(query[None].astype(np.float32), rows.astype(np.float32), rows.shape[1])
    return np.sort(scores)[::-1][:limit]


def test_what_a_query_found_is_compared_with_its_true_hits(rng: np.random.Generator) -> None:
    rows, queries = rng.normal(size=(200, DIM)), rng.normal(size=(5, DIM))
    memory = filled(rows)
    audit = RecallAudit(memory, ALL, clock=Clock())
    params = SearchParams(limit=4, recall=0.8)
    for number, query in enumerate(queries):
        scores = true_scores(rows, query, 4)
        scores[4 - number :] = 0.0  # so many of four are missed
        prepared = memory.space.prepare(memory.space.from_dense(query[None].astype(np.float32)))
        assert audit.offer(prepared, params, answered(memory, scores[None]))
    assert audit.waiting == 5
    assert audit.results() == []
    while audit.step():
        pass
    [result] = audit.results()
    assert (result.week, result.recall, result.limit, result.queries) == ("2026-W01", 0.8, 4, 5)
    assert result.found == pytest.approx(0.5)
    assert 0 <= result.low < 0.5 < result.high <= 1
    assert audit.of(params) == result
    assert audit.of(replace(params, limit=5)) is None


def test_filters_and_rows_left_out_count(rng: np.random.Generator) -> None:
    rows = rng.normal(size=(100, DIM))
    memory = filled(rows)
    audit = RecallAudit(memory, ALL, clock=Clock())
    params = SearchParams(limit=3, recall=0.9)
    where, skip = parse_filter({"must": {"key": "odd", "match": {"value": 1}}}), np.array([7])
    others = np.delete(rows, 7, axis=0)[np.arange(99) + (np.arange(99) >= 7) & 1 == 1]
    prepared = memory.view.vectors[7:8]
    scores = true_scores(others, rows[7], 3)
    found = answered(memory, scores[None])
    assert audit.offer(prepared, params, found, where=where, skip=skip)
    assert audit.step()
    [result] = audit.results()
    assert result.found == 1.0


@pytest.mark.parametrize(
    "params",
    [
        SearchParams(recall=1.0),
        SearchParams(guarantee="proven"),
        SearchParams(rerank="none"),
        SearchParams(rerank="own"),
    ],
)
def test_queries_that_are_promised_nothing_by_measure_are_not_drawn(
    params: SearchParams, rng: np.random.Generator
) -> None:
    memory = filled(rng.normal(size=(20, DIM)))
    audit = RecallAudit(memory, ALL)
    rows = memory.view.vectors[:4]
    assert not audit.offer(rows, params, answered(memory, np.zeros((4, 2))))
    assert audit.waiting == 0


def test_backends_that_promise_nothing_are_not_audited(rng: np.random.Generator) -> None:
    memory = filled(rng.normal(size=(20, DIM)), ExactParams())
    audit = RecallAudit(memory, ALL)
    rows, params = memory.view.vectors[:4], SearchParams(recall=0.9)
    assert not audit.offer(rows, params, memory.search(memory.view, rows, params))
    assert audit.allowance == []


def test_scans_count_as_complete(rng: np.random.Generator) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    audit = RecallAudit(memory, ALL)
    rows, params = memory.view.vectors[:1], SearchParams(recall=0.9)
    results = memory.search(memory.view, rows, params)
    assert results.found.work[0, 0] == SCAN
    assert audit.offer(rows, params, results)
    assert audit.step()
    assert [each.found for each in audit.results()] == [1.0]


@pytest.mark.parametrize("size", [1, 7, 500])
def test_so_many_of_the_queries_are_drawn(size: int, rng: np.random.Generator) -> None:
    memory, calls = filled(rng.normal(size=(500, DIM))), 7000 // size
    _, offer = offering(memory, replace(ALL, audit_share=0.02), size)
    drawn = sum(offer() for _ in range(calls))
    if size == 500:  # one of a call at most
        assert drawn == calls
    else:
        assert_proportion(drawn, calls, 1 - (1 - 0.02) ** size)


@pytest.mark.parametrize(("found_little", "share"), [(False, 0.01), (True, 0.1)])
def test_more_are_drawn_while_queries_find_too_little(
    found_little: bool, share: float, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    monkeypatch.setattr(memory.backend, "finds_too_little", lambda: found_little)
    _, offer = offering(memory, replace(ALL, audit_share=0.01, low_recall_factor=10.0))
    drawn = sum(offer() for _ in range(20_000))
    assert_proportion(drawn, 20_000, share)


def test_queries_drawn_besides_are_left_out_of_the_results(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A week's mean would have more of the queries that find little than were asked."""
    memory, judged = filled(rng.normal(size=(50, DIM))), list[float]()
    monkeypatch.setattr(memory.backend, "finds_too_little", lambda: True)
    monkeypatch.setattr(
        memory.backend, "take_audit", lambda limit, asked, found: judged.append(found)
    )
    audit, offer = offering(memory, replace(ALL, audit_share=0.02, low_recall_factor=10.0))
    for _ in range(10_000):
        offer()
        audit.step()
    [result] = audit.results()
    assert_proportion(len(judged), 10_000, 0.2)
    assert_proportion(result.queries, 10_000, 0.02)


def test_none_are_drawn_of_no_share_and_only_so_many_wait(rng: np.random.Generator) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    _, offer = offering(memory, replace(ALL, audit_share=0.0), 50)
    assert not any(offer() for _ in range(1000))
    _, offer = offering(memory, replace(ALL, max_waiting=3))
    assert [offer() for _ in range(5)] == [True] * 3 + [False] * 2


class Interrupted(VectorBatch):
    """A batch during whose count another thread runs."""

    meanwhile: Callable[[], object]

    def __len__(self) -> int:
        self.meanwhile()
        return super().__len__()


def test_threads_that_draw_at_once_draw_queries_that_there_are(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    audit, params = RecallAudit(memory, replace(ALL, audit_share=0.5)), SearchParams(recall=0.9)
    one, answers = memory.view.vectors[:1], answered(memory, np.zeros((1, 1)))
    interrupted = Interrupted("dense", dense=one.dense, norms=one.norms)
    monkeypatch.setattr(
        Interrupted, "meanwhile", lambda _: audit.offer(one, params, answers), raising=False
    )
    assert any([audit.offer(interrupted, params, answers) for _ in range(100)])


def owner(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    """Return the array that has the memory of this one."""
    return array if not isinstance(array.base, np.ndarray) else owner(array.base)


def test_a_query_that_waits_does_not_hold_its_batch(rng: np.random.Generator) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    audit = RecallAudit(memory, ALL)
    asked = memory.space.from_dense(rng.normal(size=(40, DIM)).astype(np.float32))
    queries, answers = memory.space.prepare(asked), answered(memory, np.zeros((40, 9)))
    held = [weakref.ref(owner(each)) for each in (queries.dense, answers.found.scores)]
    assert audit.offer(queries, SearchParams(recall=0.9), answers)
    del asked, queries, answers
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert audit.step()


def asked_in_weeks(weeks: int) -> tuple[RecallAudit, Clock]:
    memory, clock = filled(np.eye(DIM)), Clock()
    audit = RecallAudit(memory, ALL, clock=clock)
    rows, params = memory.view.vectors[:1], SearchParams(limit=1, recall=0.9)
    for _ in range(weeks):
        answers = answered(memory, np.ones((1, 1)))
        audit.offer(rows, params, answers)
        audit.step()
        clock.now += WEEK
    return audit, clock


def test_weeks_are_kept_apart_the_last_first_and_forgotten_in_the_end() -> None:
    audit, clock = asked_in_weeks(3)
    assert [each.week for each in audit.results()] == ["2026-W03", "2026-W02", "2026-W01"]
    assert audit.this_week() == []
    clock.now -= WEEK
    assert [each.week for each in audit.this_week()] == ["2026-W03"]
    audit, _ = asked_in_weeks(60)
    weeks = [each.week for each in audit.results()]
    assert (len(weeks), weeks[0], weeks[-1]) == (53, "2027-W07", "2026-W08")


def test_results_are_saved() -> None:
    audit, _ = asked_in_weeks(3)
    again = RecallAudit(filled(np.eye(DIM)), ALL)
    again.restore(audit.to_json())
    assert again.results() == audit.results()
    again.restore(None)
    assert again.results() == audit.results()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"audited":1}',
        '{"audited":[[1,0.9,1,1,1,1]]}',
        '{"audited":[["2026-W01",2,1,1,1,1]]}',
        '{"audited":[["2026-W01",0.9,0,1,1,1]]}',
        '{"audited":[["2026-W01",0.9,1,0,0,0]]}',
        '{"audited":[["2026-W01",0.9,1,1,2,1]]}',
        '{"audited":[["2026-W01",0.9,1,1,1]]}',
        '{"audited":[["2026-W01",0.9,1,1,1,null]]}',
    ],
)
def test_false_results_are_refused_and_change_nothing(text: str) -> None:
    audit, _ = asked_in_weeks(1)
    before = audit.results()
    with pytest.raises((ValueError, KeyError)):
        audit.restore(text)
    assert audit.results() == before


def test_the_interval_holds_the_mean_in_19_of_20_cases(rng: np.random.Generator) -> None:
    memory = filled(np.eye(DIM))
    rows, params = memory.view.vectors[:1], SearchParams(limit=1, recall=0.9)
    inside, tries = 0, 200
    for _ in range(tries):
        audit = RecallAudit(memory, ALL)
        for hit in rng.random(60) < 0.85:
            scores = np.full((1, 1), 1.0 if hit else 0.5)
            audit.offer(rows, params, answered(memory, scores))
            audit.step()
        [result] = audit.results()
        inside += result.low <= 0.85 <= result.high
    assert inside / tries > 0.88


def test_queries_unlike_the_items_find_what_is_asked_once_some_were_audited(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One cluster is much larger than all others, and all queries are beside that one."""
    monkeypatch.setattr(GraphSearch, "scan_nanoseconds", lambda *_: np.inf)  # else it scans so few
    centres = rng.standard_t(3, (60, 48))
    small = centres[rng.integers(60, size=4000)]
    rows = np.concatenate([small, np.repeat(centres[:1], 2000, axis=0)])
    rows *= 1 + 0.1 * rng.standard_normal(rows.shape)
    queries = centres[:1] * (1 + 0.1 * rng.standard_normal((400, 48)))
    memory = filled(rows, policies=Policies(graph=GraphPolicy(growth=10.0)))
    assert optimize(memory, lambda adopt: adopt(), threading.Event())
    audit, params = RecallAudit(memory, ALL), SearchParams(limit=10, recall=0.9)
    asked = memory.space.prepare(memory.space.from_dense(queries.astype(np.float32)))
    means = []
    for first in range(0, 400, 100):
        for number in range(first, first + 100):
            query = asked[number : number + 1]
            audit.offer(query, params, memory.search(memory.view, query, params))
        before = audit.results()
        while audit.step():
            pass
        [now] = audit.results()
        total = now.found * now.queries - sum(each.found * each.queries for each in before)
        means.append(total / 100)
    assert means[0] < 0.85
    assert means[-1] > 0.9
    [shares] = [share for limit, share in audit.allowance if limit == 10]
    assert shares < 1


LIVE = Policies(audit_share=1.0, audit_busy=1.0)
PARAMS = SearchParams(limit=2, recall=0.9)


def audited(stored: StoredCollection) -> list[tuple[float, int, int, float]]:
    return [(each.recall, each.limit, each.queries, each.found) for each in stored.audit.results()]


def made(catalog: Catalog) -> StoredCollection:
    stored, _ = catalog.create("things", CollectionConfig(dim=4))
    put(stored, {f"i{n}": float(n + 1) for n in range(12)})
    return stored


def ask(stored: StoredCollection, times: int) -> None:
    for x in range(times):
        stored.search(stored.space.from_dense(np.full((1, 4), x + 1.5, np.float32)), PARAMS)
        stored.search_around("i3", replace(PARAMS, limit=1))
        stored.finish_background_work()


def test_queries_are_audited_and_the_results_outlast_a_restart(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=LIVE)
    ask(made(catalog), 3)
    expected = [(0.9, 1, 3, 1.0), (0.9, 2, 3, 1.0)]
    assert audited(catalog.get("things")) == expected
    assert [each.limit for each in catalog.list()[0].audited] == [1, 2]
    catalog.close()
    again = opened_catalog(tmp_path, policies=LIVE)
    assert audited(again.get("things")) == expected
    ask(again.get("things"), 1)
    assert audited(again.get("things")) == [(0.9, 1, 4, 1.0), (0.9, 2, 4, 1.0)]


def test_attached_backends_and_exact_queries_are_not_audited(tmp_path: Path) -> None:
    stored = made(opened_catalog(tmp_path, policies=LIVE))
    query = stored.space.from_dense(np.ones((1, 4), np.float32))
    stored.search(query, SearchParams(recall=1.0))
    stored.attach(ExactParams())
    stored.search(query, PARAMS, backend="exact")
    stored.finish_background_work()
    assert audited(stored) == []
    stored.search(query, PARAMS, backend="gcws")
    stored.finish_background_work()
    assert len(audited(stored)) == 1


def test_a_repair_keeps_the_results(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=LIVE)
    ask(made(catalog), 1)
    expected = audited(catalog.get("things"))
    catalog.close()
    change_file(tmp_path, "INSERT INTO meta (name, value) VALUES ('metadata', 'false')")
    [report] = check_directory(tmp_path, repair=True)
    assert report.repaired
    assert audited(opened_catalog(tmp_path, policies=LIVE).get("things")) == expected


def test_results_that_are_unreadable_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = opened_catalog(tmp_path, policies=LIVE)
    ask(made(catalog), 1)
    catalog.close()
    change_file(tmp_path, "UPDATE meta SET value = '[' WHERE name = 'audit'")
    with caplog.at_level(logging.WARNING):
        stored = opened_catalog(tmp_path, policies=LIVE).get("things")
    assert "audit is unreadable" in caplog.text
    assert len(stored) == 12
    assert audited(stored) == []
    ask(stored, 1)
    assert len(audited(stored)) == 2


def test_a_query_that_cannot_be_audited_is_told_and_others_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made(opened_catalog(tmp_path, policies=LIVE))
    step, failures = RecallAudit.step, [MemoryError()]

    def failing(audit: RecallAudit) -> bool:
        done = step(audit)
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(RecallAudit, "step", failing)
    with caplog.at_level(logging.ERROR):
        ask(stored, 2)
    assert "could not be audited" in caplog.text
    assert sum(queries for _, _, queries, _ in audited(stored)) == 4


def test_nothing_is_audited_once_it_is_closed(tmp_path: Path) -> None:
    catalog = opened_catalog(tmp_path, policies=LIVE)
    stored = made(catalog)
    catalog.close()
    stored.auditor.start()
    assert stored.auditor.thread is None
