"""Recall asked against recall found, by exact answers to some queries, and what is kept of it."""

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pytest

from gcws_search import index as ix
from gcws_search.index.collection.audit import RecallAudit
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.collection.optimizer import optimize
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import SCAN, TABLES, BatchHits
from gcws_search.index.graph.lifecycle import GraphPolicy
from gcws_search.index.graph.search import GraphSearch
from tests.support.index.items import Clock, put, put_rows
from tests.support.index.saved_graph import Restart
from tests.support.index.small_index import all_scores
from tests.support.statistics import assert_proportion

Doubles = npt.NDArray[np.float64]
DIM = 6
WEEK = 7 * 24 * 3600.0
FIRST_WEEK = 1_767_225_600.0  # its Thursday, of 2026
ALL = ix.Policies(audit_share=1.0, max_waiting=10_000)


def filled(
    rows: Doubles, backend: ix.BackendParams | None = None, policies: ix.Policies = ix.POLICIES
) -> MemoryCollection:
    config = ix.CollectionConfig(dim=rows.shape[1], backend=backend or ix.GcwsParams())
    memory = MemoryCollection(config, threads=1, policies=policies)
    ids = [str(number) for number in range(len(rows))]
    payloads: list[bytes | None] = [b'{"odd":%d}' % (number % 2) for number in range(len(rows))]
    raw = memory.space.from_dense(rows.astype(np.float32))
    put_rows(memory, ids, raw, keys=range(1, len(rows) + 1), payloads=payloads)
    return memory


def answered(memory: MemoryCollection, scores: Doubles) -> ix.QueryResults:
    """Return answers of tables that give each query hits of these scores."""
    m, k = scores.shape
    work = np.zeros((m, 6), np.int64)
    work[:, 0] = TABLES
    hits = BatchHits(np.zeros((m, k), np.int64), scores, np.full(m, k), work, np.full(m, 0.9))
    return ix.QueryResults(memory.view, hits, k)


def offering(
    memory: MemoryCollection, policies: ix.Policies, size: int = 1
) -> tuple[RecallAudit, Callable[[], bool]]:
    """Return an audit, and what offers it so many queries that have found nothing."""
    audit = RecallAudit(memory, policies)
    rows, params = memory.view.vectors[:size], ix.SearchParams(limit=1, recall=0.9)
    return audit, partial(audit.offer, rows, params, answered(memory, np.zeros((size, 1))))


def true_scores(rows: Doubles, query: Doubles, limit: int) -> Doubles:
    """Return the scores of the best rows, by definition."""
    [scores] = all_scores(query[None].astype(np.float32), rows.astype(np.float32), rows.shape[1])
    return np.sort(scores)[::-1][:limit]


def test_what_a_query_found_is_compared_with_its_true_hits(rng: np.random.Generator) -> None:
    rows, queries = rng.normal(size=(200, DIM)), rng.normal(size=(5, DIM))
    memory = filled(rows)
    audit = RecallAudit(memory, ALL, clock=Clock(FIRST_WEEK))
    params = ix.SearchParams(limit=4, recall=0.8)
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
    audit = RecallAudit(memory, ALL)
    params = ix.SearchParams(limit=3, recall=0.9)
    where, skip = ix.parse_filter({"must": {"key": "odd", "match": {"value": 1}}}), np.array([7])
    others = np.delete(rows, 7, axis=0)[np.arange(99) + (np.arange(99) >= 7) & 1 == 1]
    prepared = memory.view.vectors[7:8]
    scores = true_scores(others, rows[7], 3)
    found = answered(memory, scores[None])
    assert audit.offer(prepared, params, found, where=where, skip=skip)
    assert audit.step()
    [result] = audit.results()
    assert result.found == 1.0


@pytest.mark.parametrize(
    ("backend", "params"),
    [
        (None, ix.SearchParams(recall=1.0)),
        (None, ix.SearchParams(guarantee="proven")),
        (None, ix.SearchParams(rerank="none")),
        (None, ix.SearchParams(rerank="own")),
        (ix.ExactParams(), ix.SearchParams(recall=0.9)),
    ],
)
def test_queries_that_are_promised_nothing_by_measure_are_not_drawn(
    backend: ix.BackendParams | None, params: ix.SearchParams, rng: np.random.Generator
) -> None:
    memory = filled(rng.normal(size=(20, DIM)), backend)
    audit = RecallAudit(memory, ALL)
    rows = memory.view.vectors[:4]
    assert not audit.offer(rows, params, answered(memory, np.zeros((4, 2))))
    assert audit.waiting == 0
    assert backend is None or audit.allowance == []


def test_scans_count_as_complete(rng: np.random.Generator) -> None:
    memory = filled(rng.normal(size=(50, DIM)))
    audit = RecallAudit(memory, ALL)
    rows, params = memory.view.vectors[:1], ix.SearchParams(recall=0.9)
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
    audit, params = RecallAudit(memory, replace(ALL, audit_share=0.5)), ix.SearchParams(recall=0.9)
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
    assert audit.offer(queries, ix.SearchParams(recall=0.9), answers)
    del asked, queries, answers
    gc.collect()
    assert [each() for each in held] == [None, None]
    assert audit.step()


def asked_in_weeks(weeks: int) -> tuple[RecallAudit, Clock]:
    memory, clock = filled(np.eye(DIM)), Clock(FIRST_WEEK)
    audit = RecallAudit(memory, ALL, clock=clock)
    rows, params = memory.view.vectors[:1], ix.SearchParams(limit=1, recall=0.9)
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
    audit, _ = asked_in_weeks(4100)
    weeks = [each.week for each in audit.results()]
    assert (len(weeks), weeks[-1]) == (4096, "2026-W05")


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
    rows, params = memory.view.vectors[:1], ix.SearchParams(limit=1, recall=0.9)
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
    memory = filled(rows, policies=ix.Policies(graph=GraphPolicy(growth=10.0)))
    assert optimize(memory, lambda adopt: adopt(), threading.Event())
    audit, params = RecallAudit(memory, ALL), ix.SearchParams(limit=10, recall=0.9)
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


LIVE = ix.Policies(audit_share=1.0, audit_busy=1.0)
live = pytest.mark.parametrize("policies", [LIVE])
PARAMS = ix.SearchParams(limit=2, recall=0.9)


def audited(stored: ix.StoredCollection) -> list[tuple[float, int, int, float]]:
    return [(each.recall, each.limit, each.queries, each.found) for each in stored.audit.results()]


def made(catalog: ix.Catalog) -> ix.StoredCollection:
    stored, _ = catalog.create("things", ix.CollectionConfig(dim=4))
    put(stored, {f"i{n}": float(n + 1) for n in range(12)})
    return stored


def ask(stored: ix.StoredCollection, times: int) -> None:
    for x in range(times):
        stored.search(stored.space.from_dense(np.full((1, 4), x + 1.5, np.float32)), PARAMS)
        stored.search_around(["i3"], replace(PARAMS, limit=1))
        stored.finish_background_work()


@live
def test_queries_are_audited_and_the_results_outlast_a_restart(
    catalog: ix.Catalog, restart: Restart
) -> None:
    ask(made(catalog), 3)
    expected = [(0.9, 1, 3, 1.0), (0.9, 2, 3, 1.0)]
    assert audited(catalog.get("things")) == expected
    assert [each.limit for each in catalog.list()[0].audited] == [1, 2]
    with restart(policies=LIVE) as again:
        assert audited(again) == expected
        ask(again, 1)
        assert audited(again) == [(0.9, 1, 4, 1.0), (0.9, 2, 4, 1.0)]


@live
def test_attached_backends_and_exact_queries_are_not_audited(catalog: ix.Catalog) -> None:
    stored = made(catalog)
    query = stored.space.from_dense(np.ones((1, 4), np.float32))
    stored.search(query, ix.SearchParams(recall=1.0))
    stored.attach(ix.ExactParams())
    stored.search(query, PARAMS, backend="exact")
    stored.finish_background_work()
    assert audited(stored) == []
    stored.search(query, PARAMS, backend="gcws")
    stored.finish_background_work()
    assert len(audited(stored)) == 1


@live
def test_results_that_are_unreadable_are_left_out(
    catalog: ix.Catalog, restart: Restart, caplog: pytest.LogCaptureFixture
) -> None:
    ask(made(catalog), 1)
    with restart("UPDATE meta SET value = '[' WHERE name = 'audit'", policies=LIVE) as stored:
        assert "audit is unreadable" in caplog.text
        assert len(stored) == 12
        assert audited(stored) == []
        ask(stored, 1)
        assert len(audited(stored)) == 2


@live
def test_a_query_that_cannot_be_audited_is_told_and_others_are(
    catalog: ix.Catalog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = made(catalog)
    step, failures = RecallAudit.step, [MemoryError()]

    def failing(audit: RecallAudit) -> bool:
        done = step(audit)
        if failures:
            raise failures.pop()
        return done

    monkeypatch.setattr(RecallAudit, "step", failing)
    ask(stored, 2)
    assert "could not be audited" in caplog.text
    assert sum(queries for _, _, queries, _ in audited(stored)) == 4


@live
def test_nothing_is_audited_once_it_is_closed(catalog: ix.Catalog) -> None:
    stored = made(catalog)
    catalog.close()
    stored.search(stored.space.from_dense(np.ones((1, 4), np.float32)), PARAMS)
    assert stored.audit.waiting == 1
    assert stored.auditor.thread is None
