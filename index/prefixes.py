"""The exact join of sparse rows by the slots that a pair must have in common: prefix filtering.

Source: [PREFIX], [PPJOIN]; see `kernels.prefixes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from index.arrays import Float32s, Int32s, Int64s
from index.costs import prefix_nanoseconds
from index.gmm import tolerance
from index.hits import RowView
from index.kernels.prefixes import (
    MOST_ENTRIES,
    MOST_PLACE_BITS,
    count_places,
    join_prefixes,
    list_prefixes,
)
from index.pairs import CAPACITY, PairSink
from index.parallel import Workers

LEAST_PLACE_BITS: Final = 12
"""Of the number of a place, at least."""
_MOST_LISTED: Final = 1 << 27
"""Entries that are listed at most: 16 bytes each."""
_PARTS: Final = 16
"""For each thread: rows that come late are compared with more before them."""


@dataclass(frozen=True, slots=True)
class PrefixJoin:
    """Rows listed under the slots one of which a pair must have in common.

    Attributes
    ----------
    view : RowView
    least : float
        Less than the score asked for by what float32 may lose; pairs that score less are not
        looked for.
    rows : (m,) int64
        Permitted rows by rising norm.
    shift : uint32
        32 less the bits of a place.
    counts : (places,) int32
        Entries at each place.
    starts : (places + 1,) int64
        Where each place's list begins.
    listed : (e,) int32
        Positions in ``rows``, rising in each list; e entries in all rows.
    over : (e,) float32
        What each has from its place on beyond its own part of Σ min, in units of its values.
    nanoseconds : float
        What the join is expected to take.
    """

    view: RowView
    least: float
    rows: Int64s
    shift: np.uint32
    counts: Int32s
    starts: Int64s
    listed: Int32s
    over: Float32s
    nanoseconds: float

    @classmethod
    def of(cls, view: RowView, least: float) -> PrefixJoin | None:
        """Return how to join the permitted rows of a view, which are sparse.

        None where any score is wanted, or a row or all together are longer than can be listed.
        """
        vectors = view.vectors
        least -= tolerance(vectors, vectors)
        if least <= 0 or vectors.longest > MOST_ENTRIES:
            return None
        rows = np.flatnonzero(view.permitted)
        rows = rows[np.argsort(vectors.norms[rows], kind="stable")]
        indptr, slots = vectors.indptr, vectors.slots
        entries = int(np.sum(indptr[rows + 1] - indptr[rows]))
        if entries > _MOST_LISTED:
            return None
        bits = min(MOST_PLACE_BITS, max(LEAST_PLACE_BITS, entries.bit_length()))
        shift, counts = np.uint32(32 - bits), np.zeros(1 << bits, np.int32)
        count_places(indptr, slots, rows, shift, counts)
        starts, listed = np.empty(len(counts) + 1, np.int64), np.empty(entries, np.int32)
        over = np.empty(entries, np.float32)
        reads = list_prefixes(
            indptr, slots, vectors.values, vectors.norms, rows, shift, counts, least, starts,
            listed, over,
        )  # fmt: skip
        cost = prefix_nanoseconds(view, reads)
        return cls(view, least, rows, shift, counts, starts, listed, over, cost)

    def offer(self, sink: PairSink, workers: Workers) -> None:
        """Offer all pairs that score as well as the sink wants, at least `least`."""
        vectors, m = self.view.vectors, len(self.rows)
        step = min(m, workers.threads * _PARTS)
        slack = tolerance(vectors, vectors)

        def run(start: int, end: int) -> None:
            a = np.empty(max(CAPACITY, m), np.int32)
            b = np.empty(max(CAPACITY, m), np.int32)
            for part in range(start, end):
                number = part
                while number < m and not sink.done:
                    least = max(self.least, sink.least - slack)
                    count, number = join_prefixes(
                        vectors.indptr, vectors.slots, vectors.values, vectors.norms, self.rows,
                        self.shift, self.counts, self.starts, self.listed, self.over, least,
                        number, step, a, b,
                    )  # fmt: skip
                    sink.add(a[:count], b[:count])

        workers.split(step, run)
