"""Postings of sparse rows, in segments."""

from itertools import pairwise

import numpy as np
import pytest

from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.parameters import CollectionConfig
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.kernels.sparse.postings import PostingSegment
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.space import VectorSpace

ONE = Workers(1)
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


def test_no_segment_has_more_entries_than_can_be_numbered(
    rows: VectorBatch,
) -> None:
    most = 2000
    index = InvertedIndex(max_entries=most).cover(rows[:MIN_ROWS], ONE).cover(rows, ONE)
    assert index.covered == len(rows)
    assert max(_entries_of(segment) for segment in index.segments) <= most
    borders = [(segment.first, segment.last) for segment in index.segments]
    assert all(a[1] == b[0] for a, b in pairwise(borders))
    assert _postings(index) == _entries(rows)


def test_postings_are_the_entries_of_the_rows(rows: VectorBatch) -> None:
    index = InvertedIndex().cover(rows[:MIN_ROWS], ONE).cover(rows, ONE)
    assert _postings(index) == _entries(rows)
