"""Search by tables: exact scores, and answers that depend on nothing else."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.harness.engine import RowHits
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from tests.support.data.generated import Csr
from tests.support.index.known_rows import (
    DIM,
    FLOAT32_TIES,
    KINDS,
    QUERIES,
    RELATIVE,
    ROWS,
    asked,
    config_of,
    made,
)
from tests.support.index.small_index import Mask, Rows, SmallIndex, all_scores, answer, answers

# --- exact scores ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 3])
def test_scores_of_hits_are_exact(rng: np.random.Generator, kind: str, width: int | None) -> None:
    rows, queries, dim = made(kind, rng)
    index = asked(config_of(kind, GcwsParams(band_width=width))).add(rows)
    truth = all_scores(queries, rows, dim)
    for m, hits in enumerate(index.search(queries, SearchParams(limit=20, recall=0.8))):
        found, scores = answer(hits)
        assert len(found) == len(set(found))
        assert scores == pytest.approx(truth[m, found].tolist(), rel=RELATIVE)
        assert sorted(zip(scores, found, strict=True), key=lambda hit: (-hit[0], hit[1])) == list(
            zip(scores, found, strict=True)
        )


def test_a_score_equal_to_the_least_one_wanted_is_found(rng: np.random.Generator) -> None:
    """GMM k/10 of counts, probed: float32 rounds 3/10 and 7/10 down, 1/10 and 9/10 up."""
    for tenths in (3, 6, 7, 9):
        query = np.zeros((1, DIM), np.float32)
        query[0, :10] = 1
        row = np.zeros((300, DIM), np.float32)
        row[:, :tenths] = 1
        strangers = -np.abs(rng.standard_normal((5000, DIM))).astype(np.float32)
        rows = np.concatenate([row, strangers])
        for width in (None, 1):
            index = asked(config_of("dense", GcwsParams(band_width=width, bands=64))).add(rows)
            params = SearchParams(limit=299, recall=0.9, min_score=tenths / 10)
            [hits] = index.search(query, params)
            assert len(hits.rows) >= 299
            assert set(hits.scores.tolist()) == {tenths / 10}


def test_a_stored_vector_is_its_own_best_hit(rng: np.random.Generator) -> None:
    for kind in KINDS:
        rows, _, _ = made(kind, rng, 3000)
        index = asked(config_of(kind, GcwsParams())).add(rows)
        for i, hits in enumerate(index.search(rows[:50], SearchParams(limit=1, recall=0.5))):
            assert hits.scores[0] == 1.0
            assert hits.rows[0] <= i


def test_a_row_to_skip_is_left_out_while_probing(rng: np.random.Generator) -> None:
    for kind in KINDS:
        rows, _, _ = made(kind, rng)
        index = asked(config_of(kind, GcwsParams())).add(rows)
        params = SearchParams(limit=5, recall=0.7)
        skipped = index.search(rows[:QUERIES], params, skip=list(range(QUERIES)))
        for i, hits in enumerate(skipped):
            assert i not in hits.rows
            everything: Mask = np.ones(ROWS, np.uint8)
            everything[i] = 0
            [masked] = index.search(rows[i : i + 1], params, permitted=everything)
            if masked.explanation.method == hits.explanation.method:
                assert answer(masked) == answer(hits)


@pytest.mark.parametrize("kind", KINDS)
def test_only_permitted_rows_are_hits(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    index = asked(config_of(kind, GcwsParams())).add(rows)
    for share in (0.002, 0.1, 0.9):
        permitted = (rng.random(ROWS) < share).astype(np.uint8)
        for limit in (1, 20):
            params = SearchParams(limit=limit, recall=0.7)
            for hits in index.search(queries, params, permitted=permitted):
                assert permitted[hits.rows].all()
                # Places left free are charged to the promise in full.
                assert len(hits.rows) >= 0.7 * min(limit, permitted.sum())


# --- answers depend on nothing else ------------------------------------------------------------


def assert_same_answers(a: SmallIndex, b: SmallIndex, queries: Rows, params: SearchParams) -> None:
    left, right = a.search(queries, params), b.search(queries, params)
    assert answers(left) == answers(right)
    for one, other in zip(left, right, strict=True):
        promised = one.explanation.expected_recall
        assert other.explanation.expected_recall == pytest.approx(promised, rel=RELATIVE)
        assert other.explanation[:6] == one.explanation[:6]


SOME_SIZES = [
    [1, 1, 1, 5000],
    [100] * 50,
    [512, 511, 513, 1],
    [3000, 2999],
    [0, 17, 0, 4096, 900],
]
QUESTIONS = [
    SearchParams(limit=1, recall=0.6),
    SearchParams(limit=10, recall=0.9),
    SearchParams(limit=30, recall=0.8, min_score=0.5),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [None, 4])
def test_the_sizes_of_batches_change_no_answer(
    rng: np.random.Generator, kind: str, width: int | None
) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8, band_width=width))
    whole = asked(config).add(rows)
    for sizes in SOME_SIZES:
        parts = asked(config).add(rows, sizes)
        for params in QUESTIONS:
            assert_same_answers(whole, parts, queries, params)


@pytest.mark.parametrize("kind", KINDS)
def test_a_compaction_keeps_the_answers(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    for stays_share in (0.1, 0.7):
        stays = rng.random(ROWS) < stays_share
        numbers = np.flatnonzero(stays)
        compacted = asked(config).add(rows, [2500, 40])
        compacted.compact(stays)
        fresh = asked(config)
        dense = rows if not isinstance(rows, Csr) else None
        kept = dense[stays] if dense is not None else _take(rows, numbers)
        fresh.add(kept)
        for params in QUESTIONS:
            assert_same_answers(compacted, fresh, queries, params)


def _take(rows: Rows, numbers: npt.NDArray[np.int64]) -> Csr:
    assert isinstance(rows, Csr)
    pieces = [rows.row(int(i)) for i in numbers]
    lengths = [len(indices) for indices, _ in pieces]
    return Csr(
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.concatenate([indices for indices, _ in pieces]),
        np.concatenate([values for _, values in pieces]),
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stays_share", [0.3, 0.7])
def test_rows_that_are_not_permitted_change_no_answer(
    rng: np.random.Generator, kind: str, stays_share: float
) -> None:
    """Deleted rows stay in the tables until a compaction; a restart leaves them out.

    Rows that a filter leaves out make a scan longer, so that fewer queries are scanned.
    """
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    stays = rng.random(ROWS) < stays_share
    numbers = np.flatnonzero(stays)
    index = asked(config).add(rows)
    kept = _take(rows, numbers) if isinstance(rows, Csr) else rows[stays]
    fresh = asked(config).add(kept)
    same = []
    for params in QUESTIONS:
        masked = index.search(queries, params, permitted=stays.astype(np.uint8))
        for before, after in zip(masked, fresh.search(queries, params), strict=True):
            same.append(before.explanation.method == after.explanation.method)
            if same[-1]:
                found, scores = answer(after)
                assert answer(before) == (numbers[found].tolist(), scores)
            else:
                assert "scan" in (before.explanation.method, after.explanation.method)
    assert np.mean(same) > 0.5


def alike(one: RowHits, other: RowHits) -> bool:
    """Whether two answers were found in the same way, and are then the same in all."""
    if one.explanation.method != other.explanation.method:
        assert "scan" in (one.explanation.method, other.explanation.method)
        return False
    assert answer(one) == answer(other)
    assert one.explanation == other.explanation
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_queries_and_threads_change_no_answer_but_what_is_scanned(
    rng: np.random.Generator, kind: str
) -> None:
    """Of many queries in a call a scan takes less time, so more are scanned."""
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    index = asked(config).add(rows, [4000])
    threaded = asked(config, threads=2).add(rows, [4000])
    same = []
    for params in QUESTIONS:
        together = index.search(queries, params)
        same += [
            alike(*both) for both in zip(together, threaded.search(queries, params), strict=True)
        ]
        for m in (0, 7, QUERIES - 1):
            [alone] = index.search(queries[m : m + 1], params)
            same.append(alike(alone, together[m]))
    assert np.mean(same) > 0.5


@pytest.mark.parametrize("kind", KINDS)
def test_many_readers_at_once_get_the_answers_of_one(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    config = config_of(kind, GcwsParams(bands=8))
    shared = asked(config, threads=2).add(rows, [4000])
    expected = [answers(shared.search(queries, params)) for params in QUESTIONS]

    def ask(_: int) -> list[list[tuple[list[int], list[float]]]]:
        return [answers(shared.search(queries, params)) for params in QUESTIONS]

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(ask, range(8)):
            assert found == expected


@pytest.mark.parametrize("kind", KINDS)
def test_a_state_held_by_a_reader_answers_as_before(rng: np.random.Generator, kind: str) -> None:
    rows, queries, _ = made(kind, rng)
    index = asked(config_of(kind, GcwsParams(bands=8))).add(rows[:2000], [1500])
    held = asked(index.config)
    held.backend, held.state = index.backend, index.state
    held.rows.append(index.rows.view())
    before = [answers(held.search(queries, params)) for params in QUESTIONS]
    index.add(rows[2000:], [10, 700])
    index.compact(rng.random(ROWS) < 0.5)
    assert [answers(held.search(queries, params)) for params in QUESTIONS] == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_recall_of_1_is_a_scan(rng: np.random.Generator, kind: str) -> None:
    rows, queries, dim = made(kind, rng, 2000)
    index = asked(config_of(kind, GcwsParams(bands=4))).add(rows)
    truth = all_scores(queries, rows, dim)
    for m, hits in enumerate(index.search(queries, SearchParams(limit=10, recall=1.0))):
        assert hits.explanation.method == "scan"
        assert hits.explanation.expected_recall == 1.0
        best = np.sort(truth[m])[::-1][:10]
        assert hits.scores[:10] == pytest.approx(best, rel=RELATIVE)


@pytest.mark.parametrize("kind", KINDS)
def test_a_higher_target_probes_on_from_where_a_lower_one_stops(
    rng: np.random.Generator, kind: str
) -> None:
    rows, queries, _ = made(kind, rng)
    index = asked(config_of(kind, GcwsParams(bands=16))).add(rows)
    params = SearchParams(limit=10)
    best = np.zeros((QUERIES, 2))
    for recall in (0.2, 0.5, 0.8, 0.9, 0.99):
        for m, hits in enumerate(index.search(queries, replace(params, recall=recall))):
            if hits.explanation.method == "tables":
                now = np.array([hits.scores[:10].sum(), hits.explanation.scored])
                assert np.all(now >= best[m] - FLOAT32_TIES)
                best[m] = now
