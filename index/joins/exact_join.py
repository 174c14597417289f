"""The exact join: every pair of rows, compared all with all or found by common slots.

Sparse rows are joined by prefix filtering: a pair must have a prefix slot in common.
Source: [PREFIX], [PPJOIN]; see `kernels.sparse.prefix_join`.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.cost_model import all_pairs_nanoseconds, prefix_nanoseconds
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import Scanner
from gcws_search.index.joins.pair_sink import PairSink
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.lsh.bucket_join import join_block
from gcws_search.index.kernels.ordering.hits import empty_lists
from gcws_search.index.kernels.ordering.keys import RowPairs
from gcws_search.index.kernels.sparse.prefix_join import (
    MAX_ENTRIES,
    PrefixLists,
    count_places,
    join_prefixes,
    list_prefixes,
)
from gcws_search.index.similarities.gmm import tolerance
from gcws_search.index.threads import Workers

_MAX_LISTED: Final = 1 << 27
"""Entries that are listed at most: 16 bytes each."""
_PARTS: Final = 16
"""For each thread: rows that come late are compared with more before them."""
_BLOCK_FLOATS: Final = 1 << 15  # dense rows in cache while all rows behind them pass by (128 KB)
_BLOCK_ROWS: Final = 64  # sparse rows, looked up one by one
_PLACES: Final = 1 << 21
"""Pairs that one scan has room for."""


@dataclass(frozen=True, slots=True)
class PrefixJoin:
    """Rows listed under their prefix slots; a similar pair has one of these in common."""

    view: RowView
    threshold: float  # the least score asked for, less what float32 may lose
    lists: PrefixLists  # of the permitted rows
    nanoseconds: float  # expected

    @classmethod
    def of(
        cls, view: RowView, threshold: float, policy: PairPolicy = PAIR_POLICY
    ) -> PrefixJoin | None:
        """Return how to join the permitted rows of a view, which are sparse.

        None where any score is wanted, or a row or all together are longer than can be listed.
        """
        vectors = view.vectors
        threshold -= tolerance(vectors, vectors)
        if threshold <= 0 or vectors.longest > MAX_ENTRIES:
            return None
        rows = np.flatnonzero(view.permitted)
        rows = rows[np.argsort(vectors.norms[rows], kind="stable")]
        indptr, slots = vectors.indptr, vectors.slots
        entries = int(np.sum(indptr[rows + 1] - indptr[rows]))
        if entries > _MAX_LISTED:
            return None
        bits = min(policy.max_place_bits, max(policy.min_place_bits, entries.bit_length()))
        shift, counts = np.uint32(32 - bits), np.zeros(1 << bits, np.int32)
        count_places(indptr, slots, rows, shift, counts)
        starts, listed = np.empty(len(counts) + 1, np.int64), np.empty(entries, np.int32)
        over = np.empty(entries, np.float32)
        lists = PrefixLists(rows, shift, counts, starts, listed, over)
        cost = prefix_nanoseconds(view, list_prefixes(rows_of(vectors), threshold, lists))
        return cls(view, threshold, lists, cost)

    def offer(self, sink: PairSink, workers: Workers) -> None:
        """Offer all pairs that score as well as the sink wants, at least `threshold`."""
        vectors, m = self.view.vectors, len(self.lists.rows)
        step = min(m, workers.threads * _PARTS)
        slack = tolerance(vectors, vectors)
        rows = rows_of(vectors)

        def run(start: int, end: int) -> None:
            capacity = max(sink.policy.capacity, m)
            out = RowPairs(np.empty(capacity, np.int32), np.empty(capacity, np.int32))
            for part in range(start, end):
                number = part
                while number < m and not sink.done:
                    threshold = max(self.threshold, sink.threshold - slack)
                    count, number = join_prefixes(rows, self.lists, threshold, number, step, out)
                    sink.add(out.a[:count], out.b[:count])

        workers.split(step, run)


@dataclass(frozen=True, slots=True)
class ExactJoin:
    """The quicker way to find every pair."""

    view: RowView
    inverted: InvertedIndex
    prefixes: PrefixJoin | None  # None where comparing all rows with all is quicker
    nanoseconds: float  # expected

    @classmethod
    def of(
        cls, view: RowView, inverted: InvertedIndex, threshold: float, *, quickest: float = inf
    ) -> ExactJoin:
        """Return the quicker way for pairs that score at least ``threshold``.

        Rows are not listed by slots where ordering them alone takes longer than another way, of
        ``quickest`` nanoseconds.
        """
        if view.permitted_count < 2:  # noqa: PLR2004 (a pair)
            return cls(view, inverted, None, 0.0)
        comparing = all_pairs_nanoseconds(view, view.permitted_count) / 2
        if view.vectors.form == "sparse" and prefix_nanoseconds(view, 0.0) < min(
            comparing, quickest
        ):
            prefixes = PrefixJoin.of(view, threshold)
            if prefixes is not None and prefixes.nanoseconds < comparing:
                return cls(view, inverted, prefixes, prefixes.nanoseconds)
        return cls(view, inverted, None, comparing)

    def offer(self, sink: PairSink, workers: Workers) -> None:
        """Offer every pair that scores as well as the sink wants."""
        if self.prefixes is not None:
            self.prefixes.offer(sink, workers)
        else:
            compare_pairs(self.view, self.inverted, sink, workers=workers)


def all_pairs(
    view: RowView,
    *,
    min_score: float,
    limit: int | None,
    stop: threading.Event | None,
    workers: Workers,
) -> Pairs:
    """Return the pairs of permitted rows with GMM at least ``min_score``, where no index helps."""
    sink = PairSink(view, min_score, limit, stop)
    inverted = InvertedIndex()
    if view.vectors.form == "sparse":
        inverted = inverted.cover(view.vectors, workers)
    ExactJoin.of(view, inverted, min_score).offer(sink, workers)
    return sink.result()


def compare_pairs(
    view: RowView, inverted: InvertedIndex, sink: PairSink, *, workers: Workers
) -> None:
    """Offer all pairs, each row compared with every later one."""
    n = len(view.vectors)
    compare = _compare_dense if view.vectors.form == "dense" else _compare_sparse
    width = view.vectors.dense.shape[1]
    size = max(1, _BLOCK_FLOATS // width) if width else _BLOCK_ROWS
    blocks = -(-n // size)
    parts = min(workers.threads, blocks)

    def run(first: int, last: int) -> None:
        # Early blocks have more rows after them, so blocks are dealt out in turn.
        for part in range(first, last):
            for block in range(part, blocks, parts):
                if not sink.done:
                    compare(view, inverted, sink, block * size, min(n, (block + 1) * size))

    workers.split(parts, run)


def _compare_dense(
    view: RowView, inverted: InvertedIndex, sink: PairSink, first: int, last: int
) -> None:
    """Offer the pairs of rows first … last - 1 with all later rows."""
    if view.copies is None:
        _compare_floats(view, sink, first, last)
        return
    vectors, n = view.vectors, len(view.vectors)
    rows = first + np.flatnonzero(view.permitted[first:last])
    if len(rows) == 0:
        return
    scanner, queries = Scanner(view, inverted, 0.0), vectors[rows]
    slack = tolerance(vectors, vectors)
    step = max(1, _PLACES // len(rows))
    for start in range(first, n, step):
        if sink.done:
            return
        end = min(n, start + step)
        near = empty_lists(len(rows), end - start)
        scanner.offer(queries, rows, start, end, near, bound=sink.threshold - slack)
        some = np.flatnonzero(near.sizes)
        if len(some) > 0:
            sizes = near.sizes[some]
            a = np.repeat(rows[some], sizes)
            lists = zip(some.tolist(), sizes.tolist(), strict=True)
            b = np.concatenate([near.rows[place, :size] for place, size in lists])
            later = b > a
            sink.add(a[later], b[later])


def _compare_floats(view: RowView, sink: PairSink, first: int, last: int) -> None:
    """Do what `_compare_dense` does where there are no copies."""
    vectors = view.vectors
    slack = tolerance(vectors, vectors)
    rows = rows_of(vectors)
    capacity = sink.policy.capacity
    out = RowPairs(np.empty(capacity, np.int32), np.empty(capacity, np.int32))
    left, right = first, first + 1
    while right < len(vectors) and not sink.done:
        threshold = np.float32(sink.threshold - slack)
        done = join_block(rows, view.permitted, threshold, first, last, left, right, out)
        count, left, right = done
        sink.add(out.a[:count], out.b[:count])


def _compare_sparse(
    view: RowView, inverted: InvertedIndex, sink: PairSink, first: int, last: int
) -> None:
    """Offer the pairs of rows first … last - 1 with all later rows."""
    vectors, permitted = view.vectors, view.permitted.copy()
    permitted[:first] = 0
    scanner = Scanner(RowView(vectors, permitted, view.permitted_count), inverted, 0.0)
    for row in range(first, last):
        if not permitted[row] or sink.done:
            continue
        permitted[row] = 0  # those after it are its partners
        query = vectors[row : row + 1]
        bound = sink.threshold - tolerance(vectors, query)
        partners = scanner.collect(query, row, bound, first=row + 1)
        sink.add(np.full(len(partners), row), partners)
