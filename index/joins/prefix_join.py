"""The exact join of sparse rows by the slots that a pair must have in common: prefix filtering.

Source: [PREFIX], [PPJOIN]; see `kernels.sparse.prefix_join`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.policies import PAIR_POLICY, PairPolicy
from gcws_search.index.cost_model import prefix_nanoseconds
from gcws_search.index.joins.pair_sink import PairSink
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.kernels.ordering.merge import RowPairs
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
