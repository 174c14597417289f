"""Scans by inverted lists: what can make no hit is left out, and hits equal the slow truth."""

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner, scan, scan_work
from gcws_search.index.kernels.sparse.postings import COLUMN_WORK, PostingSegment
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import VectorSpace
from tests.support.data.strategies import sparse_vectors
from tests.support.reference import mathematics

DIM = 12
ONE = Workers(1)
SPACE = VectorSpace.of(CollectionConfig(dim=None))
SHORT = InvertedIndex(min_rows=8, max_rows=24)
"""Few rows are enough for several segments and a tail."""
Vector = dict[int, float]


def _batch(vectors: list[Vector]) -> VectorBatch:
    indptr = np.cumsum([0] + [len(each) for each in vectors])
    indices = np.array([i for each in vectors for i in each], np.int64)
    values = np.array([v for each in vectors for v in each.values()])
    return SPACE.prepare(SPACE.from_sparse(indptr, indices, values))


def _index(rows: VectorBatch, empty: InvertedIndex = SHORT) -> InvertedIndex:
    return empty.cover(rows, ONE)


counts = sparse_vectors(DIM, values=st.sampled_from([-1.0, 1.0, 2.0, 3.0]), max_size=6)
any_size = sparse_vectors(DIM)
lopsided = st.dictionaries(
    st.sampled_from([0, 0, 0, 1, 1, 2, 5, 9]), st.sampled_from([2.0**-7, 0.5, 40.0]), min_size=1
)


@pytest.mark.parametrize("kind", [counts, any_size, lopsided], ids=["ties", "any size", "lopsided"])
@given(data=st.data(), random=st.randoms(use_true_random=False))
def test_hits_are_those_of_brute_force_ties_included(
    kind: st.SearchStrategy[Vector], data: st.DataObject, random: Random
) -> None:
    vectors = data.draw(st.lists(kind, min_size=8, max_size=50))
    queries = data.draw(st.lists(kind, min_size=1, max_size=3))
    limit = data.draw(st.sampled_from([1, 2, 5, 80]))
    least = data.draw(st.sampled_from([0.0, 0.0, 1 / 3, 0.9]))
    share = data.draw(st.sampled_from([0.2, 0.6, 1.0]))
    mask = [random.random() < share for _ in vectors]
    rows, asked = _batch(vectors), _batch(queries)
    view = RowView(rows, np.array(mask, np.uint8), sum(mask))
    skip = np.array([random.randrange(-1, len(vectors)) for _ in queries])
    found = scan(
        view,
        asked,
        SearchParams(limit=limit, recall=1.0, min_score=least),
        skip=skip,
        inverted=_index(rows),
        workers=ONE,
    )
    for number, query in enumerate(queries):
        allowed = [ok and row != skip[number] for row, ok in enumerate(mask)]
        whole = mathematics.brute_force(
            query, vectors, limit=len(vectors), min_score=least, permitted=allowed
        )
        whole = [hit for hit in whole if hit[1] > 0]
        last = whole[limit - 1][1] if len(whole) > limit else 0.0
        surely = {row for row, score in whole if score > last * (1 + 1e-9)}
        perhaps = {row for row, score in whole if score >= last * (1 - 1e-9)}
        found_rows, found_scores = found.hits(number)
        assert surely <= set(found_rows.tolist()) <= perhaps
        scores = dict(whole)
        assert found_scores.tolist() == pytest.approx(
            [scores[row] for row in found_rows.tolist()], rel=1e-9
        )


@given(
    vectors=st.lists(counts, min_size=8, max_size=50),
    query=counts,
    bound=st.sampled_from([-0.001, 0.05, 0.3, 0.6, 0.99]),
    first=st.integers(0, 50),
)
def test_all_rows_that_reach_a_score_are_collected(
    vectors: list[Vector], query: Vector, bound: float, first: int
) -> None:
    rows = _batch(vectors)
    view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
    scanner = Scanner(view, _index(rows), 0.0)
    found = scanner.collect(_batch([query]), -1, bound, first=first).tolist()
    every = {row: mathematics.gmm(query, vector) for row, vector in enumerate(vectors)}
    least = max(0.0, bound + 1e-4)
    assert {row for row in every if every[row] > least and row >= first} <= set(found)
    assert all(every[row] > 0 for row in found)
    assert all(every[row] >= bound - 1e-4 for row in found)
    assert found == sorted(set(found))


@pytest.mark.parametrize("least", [0.0, 0.05, 0.3])
def test_rows_that_have_rare_terms_alone_are_found_among_many(
    least: float, rng: np.random.Generator
) -> None:
    """Few rows share a slot with a query, so that the others are not looked at."""
    slots = np.array([rng.choice(3000, 4, replace=False) for _ in range(3000)])
    values = rng.lognormal(0, 2, slots.shape).astype(np.float32)
    vectors: list[Vector] = [
        dict(zip(own.tolist(), some.tolist(), strict=True))
        for own, some in zip(slots, values, strict=True)
    ]
    for vector, value in zip(vectors[:100], values[100:200, 0].tolist(), strict=True):
        vector[5000] = value
    rows = _batch(vectors)
    index = _index(rows, InvertedIndex(min_rows=8, max_rows=4096))
    view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
    truth = [
        sorted((mathematics.gmm(query, each) for each in vectors), reverse=True)
        for query in vectors[92:108]
    ]
    for limit in (1, 5, 60):
        params = SearchParams(limit=limit, recall=1.0, min_score=least)
        skip = np.full(16, -1)
        hits = scan(view, rows[92:108], params, skip=skip, inverted=index, workers=ONE)
        for number, scores in enumerate(truth):
            wanted = [score for score in scores if score > 0 and score >= least]
            found = hits.hits(number)[1].tolist()
            assert found[:limit] == pytest.approx(wanted[:limit], rel=1e-9)


def test_terms_are_left_out_where_few_rows_come_near(rng: np.random.Generator) -> None:
    frequent = [{i: 2.0**-9 for i in range(60)} for _ in range(4000)]
    vectors = [
        {**each, 100 + int(rare): 1.0}
        for each, rare in zip(frequent, rng.integers(0, 300, 4000), strict=True)
    ]
    rows = _batch(vectors)
    index = _index(rows, InvertedIndex(min_rows=8, max_rows=4096))
    view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
    work = scan_work(view, rows[:20], 1, skip=np.full(20, -1), inverted=index)
    assert np.median(work) < 0.5 * len(rows) * 60 / COLUMN_WORK  # of adding what all rows share


MIN_ROWS = InvertedIndex().min_rows


@pytest.fixture
def rows(rng: np.random.Generator) -> VectorBatch:
    counts = rng.integers(1, 6, 3 * MIN_ROWS)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    indices = np.concatenate([rng.permutation(30)[:count] for count in counts])
    space = VectorSpace.of(CollectionConfig(dim=None))
    return space.prepare(space.from_sparse(indptr, indices, rng.random(len(indices)) + 0.1))


def _postings(index: InvertedIndex) -> list[tuple[int, int, float]]:
    """Return (row, slot, value) of every posting, sorted."""
    found: list[tuple[int, int, float]] = []
    for postings in index.segments:
        first, slots, starts, _, column_of, rows, values, columns, _ = postings
        of_entry = np.repeat(slots, np.diff(starts)).tolist()
        found += zip(
            (rows.astype(np.int64) + first).tolist(), of_entry, values.tolist(), strict=True
        )
        for slot, column in zip(slots.tolist(), column_of.tolist(), strict=True):
            if column >= 0:
                having = np.flatnonzero(columns[column])
                magnitudes = columns[column, having].tolist()
                found += [
                    (first + i, slot, v) for i, v in zip(having.tolist(), magnitudes, strict=True)
                ]
    return sorted(found)


def _entries_of(postings: PostingSegment) -> int:
    return len(postings.rows) + int(np.count_nonzero(postings.columns))


def _entries(rows: VectorBatch) -> list[tuple[int, int, float]]:
    """Return (row, slot, value) of every entry, sorted."""
    row_of = np.repeat(np.arange(len(rows)), np.diff(rows.indptr)).tolist()
    return sorted(zip(row_of, rows.slots.tolist(), rows.values.tolist(), strict=True))


@pytest.mark.parametrize("empty", [InvertedIndex(), InvertedIndex(max_entries=2000)])
def test_postings_are_the_entries_of_the_rows_and_no_more_than_can_be_numbered(
    empty: InvertedIndex, rows: VectorBatch
) -> None:
    index = empty.cover(rows[:MIN_ROWS], ONE).cover(rows, ONE)
    assert index.covered == len(rows)
    assert max(_entries_of(segment) for segment in index.segments) <= empty.max_entries
    borders = [(segment.first, segment.last) for segment in index.segments]
    assert all(a[1] == b[0] for a, b in pairwise(borders))
    assert _postings(index) == _entries(rows)
