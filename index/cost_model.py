"""The cost of the steps of a search, in nanoseconds on current processors.

These figures choose between two correct methods, tables or scan, so factors of two do not matter.
They depend only on live rows, never on a clock or on deleted rows: equal data give equal choices,
also after a restart.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import LiveSample, RowView
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.kernels.gmm.sparse import count_shared
from gcws_search.index.kernels.gmm.tiled_scan import MANY

_SCAN_ROW: Final = 3.0
_SCAN_FLOAT: Final = 0.04
_SCAN_READ: Final = 0.1
"""Reading a float from memory: what the queries of one call share, and caches spare."""
_CACHED_BYTES: Final = 16 << 20
"""Dense rows of no more bytes are taken to lie in caches."""
_TILE_ROW: Final = 0.5
_TILE_FLOAT: Final = 0.03
_TILE_TURNED: Final = 0.6
"""Nanoseconds that many queries of a thread take for each row and float of it, and that turning a
float takes, which they share; see `kernels.gmm.tiled_scan`."""
_COPY_QUERY: Final = 12_000.0
_COPY_ROW: Final = 1.0
_COPY_BYTE: Final = 0.02
_COPY_READ: Final = 0.035
_COPY_LEFT_OUT: Final = 0.5
_COPY_TILE_ROW: Final = 0.7
_COPY_TILE_BYTE: Final = 0.0045
"""Nanoseconds of a query, for the rows that it reads as floats; of a row that has a copy, and of a
byte of it; of reading a byte from memory, which the queries of one call share; and of a row that a
filter leaves out, which they share too. The last two are of a row and a byte where many queries of
a thread are compared with tiles of rows."""
_SCAN_ENTRY: Final = 0.25
_SCAN_SUM: Final = 0.25
_POSTING: Final = 1.25
"""Adding a posting, where scans have been counted: most of them leave out most of the entries."""
_PROBE_ROW: Final = 25.0
_PROBE_CACHED_ROW: Final = 7.0
_PROBE_SPARSE_ROW: Final = 70.0
_PROBE_FLOAT: Final = 0.2
_PROBE_ENTRY: Final = 5.0
_PROBE_TABLE: Final = 150.0
_BLOCK_PAIR: Final = 3.0
_BLOCK_FLOAT: Final = 0.03
_BUCKET_PAIR: Final = 5.0
_BUCKET_FLOAT: Final = 0.06
_BUCKET_ENTRY: Final = 8.0
_COLLECTED: Final = 6.0
"""A sparse row whose partners are all listed, beside one whose best ones are searched for."""
_PREFIX_ENTRY: Final = 50.0
_PREFIX_READ: Final = 20.0
"""Hashing an entry, and what it takes to put the first ones in order; looking at a posting, with
its part of the few rows that are then read."""
_FOLDED_BYTE: Final = 0.01
_FOLDED_ROW: Final = 8.0
"""Adding up a byte of a folded row; listing a row that may be near enough, and its place."""
_BAND_ROW: Final = 5.0
_BAND_RUN: Final = 4096
"""Looking up a band of a row among those of this many queries, which share it."""
_PAIR_FOUND: Final = 35.0
_EXPANDED_ROW: Final = 60.0
_HASH_GENERATED: Final = 1.0
_HASH_STORED: Final = 0.16
_HASH_STORED_ALONE: Final = 0.3  # its parameters are read from a distant cache


class Tally:
    """Measured cost of recent searches of one kind, if it cannot be predicted.

    The mean over about `_MOST` queries; the expected cost stands in for the first `_FIRST`. Threads
    add to it without a lock; a lost update does not matter.
    """

    _FIRST: Final = 8
    _MOST: Final = 64

    def __init__(self, expected: float) -> None:
        self.nanoseconds = expected  # per query, before any search
        self.seen = 0  # number of queries
        self._passed_over = 0

    def add(self, queries: int, nanoseconds: float) -> None:
        """Count ``queries`` that took ``nanoseconds`` each, on average."""
        before = min(self._FIRST + self.seen, self._MOST)
        self.seen += queries
        share = queries / (before + queries)
        self.nanoseconds = (1.0 - share) * self.nanoseconds + share * nanoseconds

    def try_again(self, every: int) -> bool:
        """Return whether to try a plan again that has been too slow."""
        self._passed_over += 1
        return self._passed_over % every == 0


def _sample(view: RowView) -> LiveSample:
    return view.sample if view.sample is not None else LiveSample.of(view.permitted)


def _mean_entries(view: RowView) -> float:
    """Return the mean number of non-zeros of a sparse row."""
    rows, indptr = _sample(view).rows, view.vectors.indptr
    return int(np.sum(indptr[rows + 1] - indptr[rows])) / max(1, len(rows))


def scan_nanoseconds(view: RowView, queries: VectorBatch, threads: int = 1) -> Float64s:
    """Return (m,) the time of scanning all rows for each query of one call, split over threads."""
    vectors = view.vectors
    if vectors.form == "dense":
        return np.full(len(queries), dense_scan_nanoseconds(view, len(queries) // threads))
    sample = _sample(view)
    shared = np.empty(len(queries), np.int64)
    count_shared(queries.indptr, queries.slots, vectors.indptr, vectors.slots, sample.rows, shared)
    a_row = shared / max(1, len(sample.rows))
    cost: Float64s = sample.live * (_SCAN_SUM + _SCAN_ENTRY * a_row)
    return cost


def dense_scan_nanoseconds(view: RowView, together: int) -> float:
    """Return the time of scanning all dense rows for a query, ``together`` queries in a thread."""
    n, width = view.vectors.count, view.vectors.width
    copies, in_tiles = view.copies, together >= MANY and view.fills_tiles
    if copies is not None:
        stride = copies.codes.shape[1]
        if in_tiles:
            return float(_COPY_QUERY + n * (_COPY_TILE_ROW + _COPY_TILE_BYTE * stride))
        reading = _COPY_READ / max(1, together) if n * stride > _CACHED_BYTES else 0.0
        row = _COPY_ROW + (_COPY_BYTE + reading) * stride
        left_out = _COPY_LEFT_OUT / max(1, together) * (n - view.permitted_count)
        return float(_COPY_QUERY + view.permitted_count * row + left_out)
    if in_tiles:
        return float(n * (_TILE_ROW + (_TILE_FLOAT + _TILE_TURNED / together) * width))
    reading = _SCAN_READ / max(1, together) if 4 * n * width > _CACHED_BYTES else 0.0
    return float(view.permitted_count * (_SCAN_ROW + (_SCAN_FLOAT + reading) * width))


def counted_scan_nanoseconds(work: Float64s) -> float:
    """Return the mean time of scans, from their work; see `scan.scan_work`."""
    return _POSTING * float(work.mean())


def max_scan_nanoseconds(view: RowView, queries: VectorBatch) -> float:
    """Return the maximum time of scanning sparse rows, without reading any row.

    A row shares at most as many slots with a query as the query has.
    """
    return view.permitted_count * (_SCAN_SUM + _SCAN_ENTRY * queries.longest)


def hash_nanoseconds(queries: VectorBatch, plan: BandPlan) -> Float64s:
    """Return (m,) the time of hashing each query and finding its places in the tables."""
    places = plan.bands * _PROBE_TABLE
    if queries.form == "sparse":
        if len(queries) == 1:  # NumPy takes several times as long
            return np.array([queries.longest * (plan.samples * _HASH_GENERATED) + places])
        entries, sample = np.diff(queries.indptr), _HASH_GENERATED
    else:
        sample = _HASH_STORED if len(queries) > 1 else _HASH_STORED_ALONE
        entries = _nonzeros(queries.dense)
    cost: Float64s = entries * (plan.samples * sample) + places
    return cost


def _nonzeros(rows: Float32s) -> Int64s:
    """Return the number of non-zero entries of each row."""
    if len(rows) == 1:  # NumPy takes ten times as long to count along an axis
        return np.array([np.count_nonzero(rows)], np.int64)
    counts: Int64s = np.count_nonzero(rows, axis=1)
    return counts


def row_nanoseconds(view: RowView) -> float:
    """Return the time of finding and scoring one row at a random place in memory."""
    vectors = view.vectors
    if vectors.form == "dense":
        n, width = vectors.count, vectors.width
        cached = 4 * n * width <= _CACHED_BYTES
        return (_PROBE_CACHED_ROW if cached else _PROBE_ROW) + float(_PROBE_FLOAT * width)
    return _PROBE_SPARSE_ROW + _PROBE_ENTRY * _mean_entries(view)


def all_pairs_nanoseconds(view: RowView, others: int) -> float:
    """Return the time of comparing ``others`` rows with all rows, many at a time."""
    vectors, live = view.vectors, view.permitted_count
    if view.copies is not None:
        pair = _COPY_ROW + _COPY_BYTE * view.copies.codes.shape[1]
        return float(others * live * pair)
    if vectors.form == "dense":
        pair = _BLOCK_PAIR + _BLOCK_FLOAT * vectors.width
        return float(others * live * pair)
    some = scan_nanoseconds(view, vectors[_sample(view).rows])
    return _COLLECTED * float(others * some.mean())


def folded_nanoseconds(view: RowView, groups: int, share: float) -> float:
    """Return the time of a query that scans folded rows and scores a share of the rows."""
    a_row = groups * _FOLDED_BYTE + share * (_FOLDED_ROW + row_nanoseconds(view))
    return view.permitted_count * a_row


def band_join_nanoseconds(view: RowView, bands: int, share: float) -> float:
    """Return the time of a query that looks up all rows by bands and scores a share."""
    return view.permitted_count * (bands * _BAND_ROW / _BAND_RUN + share * row_nanoseconds(view))


def table_nanoseconds(view: RowView, plan: BandPlan, bands: int) -> float:
    """Return the time of hashing all rows for further tables, and sorting the keys."""
    if bands == 0:
        return 0.0
    some = hash_nanoseconds(view.vectors[_sample(view).rows], plan.of_first(bands))
    return len(view.vectors) * float(some.mean())


def bucket_nanoseconds(view: RowView, pairs: float, found: float) -> float:
    """Return the time of scoring pairs of rows in common buckets, and sorting those found."""
    a_pair: float
    if view.vectors.form == "dense":
        a_pair = _BUCKET_PAIR + _BUCKET_FLOAT * view.vectors.width
    else:
        a_pair = _BUCKET_PAIR + _BUCKET_ENTRY * _mean_entries(view)
    return pairs * a_pair + found * _PAIR_FOUND


def prefix_nanoseconds(view: RowView, reads: float | None = None) -> float:
    """Return the time of listing rows by prefixes; or of reading this many postings."""
    if reads is not None:
        return reads * _PREFIX_READ
    return view.permitted_count * _mean_entries(view) * _PREFIX_ENTRY


def graph_join_nanoseconds(view: RowView, scored: float, expanded: float) -> float:
    """Return the time of a graph join, by the rows that it scores and expands."""
    return scored * row_nanoseconds(view) + expanded * _EXPANDED_ROW
