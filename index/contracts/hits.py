"""Searches by row: the rows that a search sees, and the hits that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int64s, UInt8s
from gcws_search.index.contracts.batches import MIN_COPIED_FLOATS, RowCopies, VectorBatch

SAMPLE_ROWS: Final = 24
"""Rows by which the costs of a search are judged."""
_BLOCKS: Final = 256
_MIN_BLOCK: Final = 1024
"""Blocks in which live rows are counted, and rows of a block at least."""

METHODS: Final = (
    "scan",
    "tables",
    "graph",
    "rff",
    "nrff",
    "folded_rff",
    "random_binning",
    "gmm_nystroem",
    "rbf_nystroem",
)
"""How queries are answered; the column `METHOD` of `BatchHits.work` numbers them."""
SCAN, TABLES, GRAPH = range(3)

METHOD, BANDS, DEPTH, CANDIDATES, SCORED, BEAM = range(6)
"""Columns of `BatchHits.work`."""

Pairs = tuple[Int64s, Int64s, Float64s]
"""Rows a < b of each pair, and their scores."""


class Explanation(NamedTuple):
    """The cost of one query, and its expected recall.

    method: one of `METHODS`: "scan", "tables" or "graph", or the kind of a backend that estimates.
    bands, depth: tables probed, or entered by a graph search, and the smallest depth reached (0 if
        no table was probed).
    candidates: live, permitted rows found in tables, or scanned; for a graph search, all rows met.
    scored: rows whose exact similarity was computed.
    beam: best rows in a graph search's beam, 0 without one.
    expected_recall: the recall proven by probing, or measured for such searches; 1 for a scan, 0
        for a backend that estimates without a promise.
    seconds: duration of the search; for a batch, the query's share; None if it was not timed.
    measured_recall: recall of audited queries of this kind; None if there are none, or if it was
        not looked up.
    """

    method: str
    bands: int
    depth: int
    candidates: int
    scored: int
    beam: int
    expected_recall: float
    seconds: float | None = None
    measured_recall: float | None = None


@dataclass(slots=True, eq=False)
class BatchHits:
    """Hits of m queries by row, as arrays.

    A scan returns every row that ties with the ``limit``-th score, so a query may have more than
    ``limit`` hits. The caller, who knows the ids, breaks the tie.

    rows: (m, k) int64; the first ``sizes`` entries of each line are valid: falling scores, equal
        scores by ascending row.
    scores: (m, k) float64.
    sizes: (m,) int64.
    work: (m, 6) int64, the cost of each query: number of its method in `METHODS`, then bands,
        depth, candidates, scored and beam as in `Explanation`.
    expected_recall: (m,) float64.
    wider: all hits of the queries with more than k, because of ties with the last one; their lines
        have the first k.
    """

    rows: Int64s
    scores: Float64s
    sizes: Int64s
    work: Int64s
    expected_recall: Float64s
    wider: Mapping[int, tuple[Int64s, Float64s]] = field(default_factory=dict)

    def flat(self) -> tuple[Int64s, Int64s, Float64s]:
        """Return all hits as arrays, including ties for which ``rows`` has no room.

        Numbers of queries, rows and scores, one entry per hit.
        """
        narrow = self.sizes.copy()
        narrow[[*self.wider]] = 0
        there = np.arange(self.rows.shape[1]) < narrow[:, None]
        parts = [
            (np.repeat(np.arange(len(self)), narrow), self.rows[there], self.scores[there]),
            *((np.full(len(rows), i), rows, scores) for i, (rows, scores) in self.wider.items()),
        ]
        places, rows, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return places, rows, scores

    @classmethod
    def of(  # noqa: PLR0913 (a column each)
        cls,
        method: int,
        rows: Int64s,
        scores: Float64s,
        sizes: Int64s,
        *,
        expected_recall: Float64s | float,
        bands: Int64s | int = 0,
        depth: Int64s | int = 0,
        candidates: Int64s | int = 0,
        scored: Int64s | int = 0,
        beam: Int64s | int = 0,
        wider: Mapping[int, tuple[Int64s, Float64s]] | None = None,
    ) -> BatchHits:
        """Return hits that one method found; a single number stands for m equal ones.

        method: a number of `METHODS`, such as `SCAN`.
        bands, depth, candidates, scored, beam: (m,) int64 or int, see `Explanation`.
        """
        m = len(sizes)
        columns = (method, bands, depth, candidates, scored, beam)
        work = np.empty((m, 6), np.int64)
        work[:] = [values if isinstance(values, int) else 0 for values in columns]
        for column, values in enumerate(columns):
            if not isinstance(values, int):
                work[:, column] = values
        recall = np.empty(m, np.float64)
        recall[:] = expected_recall
        return cls(rows, scores, sizes, work, recall, wider or {})

    @classmethod
    def none(cls) -> BatchHits:
        """Return the hits of zero queries."""
        return cls.combine(())

    @classmethod
    def combine(cls, parts: Sequence[tuple[Int64s, BatchHits]]) -> BatchHits:
        """Return the hits of several batches in one order.

        parts: places of the hits in the result: each of 0 … m-1 in exactly one part.
        """
        m = sum(len(places) for places, _ in parts)
        width = max((hits.rows.shape[1] for _, hits in parts), default=0)
        whole = cls(
            np.zeros((m, width), np.int64),
            np.zeros((m, width), np.float64),
            np.empty(m, np.int64),
            np.empty((m, 6), np.int64),
            np.empty(m, np.float64),
        )
        for places, hits in parts:
            whole = whole.overwrite(places, hits)
        return whole

    def overwrite(self, places: Int64s, others: BatchHits) -> BatchHits:
        """Replace the hits of some queries, in place, and return the result.

        places: (a,) int64, numbers of the queries.
        others: hits of these queries, in the order of ``places``.
        """
        own = self.rows.shape[1]
        k = min(own, others.rows.shape[1])
        self.rows[places, :k] = others.rows[:, :k]
        self.scores[places, :k] = others.scores[:, :k]
        self.sizes[places] = np.minimum(others.sizes, own)
        self.work[places] = others.work
        self.expected_recall[places] = others.expected_recall
        replaced = {*places.tolist()} if self.wider else ()
        wider = {i: both for i, both in self.wider.items() if i not in replaced}
        for i in {*others.wider, *np.flatnonzero(others.sizes > own).tolist()}:
            wider[int(places[i])] = others.hits(i)
        return replace(self, wider=wider)

    @property
    def candidates(self) -> Int64s:
        """The (m,) numbers of rows found, and scored in some way."""
        counts: Int64s = self.work[:, CANDIDATES]
        return counts

    def some(self, chosen: AnyArray) -> BatchHits:
        """Return the hits of some queries, given by number."""
        wider = {}
        if self.wider:
            numbers = enumerate(chosen.tolist())
            wider = {place: self.wider[i] for place, i in numbers if i in self.wider}
        return BatchHits(
            self.rows[chosen],
            self.scores[chosen],
            self.sizes[chosen],
            self.work[chosen],
            self.expected_recall[chosen],
            wider,
        )

    def shift(self, by: int) -> BatchHits:
        """Return the same hits with ``by`` added to their row numbers."""
        wider = self.wider and {
            number: (rows + by, scores) for number, (rows, scores) in self.wider.items()
        }
        return replace(self, rows=self.rows + by, wider=wider)

    def merge(self, others: BatchHits, limit: int) -> BatchHits:
        """Return the best ``limit`` of these and other hits of the same queries, with ties.

        others: of rows after all of these; found by a scan.
        """
        rows = np.concatenate([self.rows, others.rows], axis=1)
        scores = np.concatenate([self._falling(), others._falling()], axis=1)
        order = np.argsort(-scores, axis=1, kind="stable")
        rows, scores = np.take_along_axis(rows, order, 1), np.take_along_axis(scores, order, 1)
        sizes = self.sizes + others.sizes
        full = np.flatnonzero(sizes > limit)
        if len(full):  # the arrays may have fewer than ``limit`` columns
            sizes[full] = (scores[full] >= scores[full, limit - 1 : limit]).sum(1)
        wider: dict[int, tuple[Int64s, Float64s]] = {}
        for number in {*self.wider, *others.wider}:
            parts = zip(self.hits(number), others.hits(number), strict=True)
            all_rows, all_scores = map(np.concatenate, parts)
            ranked = np.argsort(-all_scores, kind="stable")
            ranked = ranked[all_scores[ranked] >= all_scores[ranked[limit - 1]]]
            size = sizes[number] = min(len(ranked), rows.shape[1])
            rows[number, :size] = all_rows[ranked[:size]]
            scores[number, :size] = all_scores[ranked[:size]]
            if len(ranked) > size:
                wider[number] = all_rows[ranked], all_scores[ranked]
        work = self.work.copy()
        work[:, [CANDIDATES, SCORED]] += others.work[:, [CANDIDATES, SCORED]]
        return BatchHits(rows, scores, sizes, work, self.expected_recall, wider)

    def _falling(self) -> Float64s:
        """Return (m, k) scores; -inf where there is no hit."""
        there = np.arange(self.scores.shape[1]) < self.sizes[:, None]
        return np.where(there, self.scores, -np.inf)

    def hits(self, number: int) -> tuple[Int64s, Float64s]:
        """Return rows and scores of one query: falling scores, equal scores by ascending row."""
        if number in self.wider:
            return self.wider[number]
        size = self.sizes[number]
        return self.rows[number, :size], self.scores[number, :size]

    def explanation(self, number: int) -> Explanation:
        """Return the cost of one query."""
        method, bands, depth, candidates, scored, beam = self.work[number].tolist()
        promised = float(self.expected_recall[number])
        return Explanation(METHODS[method], bands, depth, candidates, scored, beam, promised)

    def __len__(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class LiveSample:
    """Some live rows, evenly spaced, to estimate costs.

    The choice depends only on the live rows, so estimates do not depend on rows that have been
    deleted.

    rows: (r,) int64, ascending, at most `SAMPLE_ROWS`.
    """

    rows: Int64s
    live: int

    @classmethod
    def of(cls, alive: UInt8s) -> LiveSample:
        """Return a sample of the rows whose ``alive`` is 1.

        Live rows are counted in blocks, and listed only in blocks with a sampled row. The first
        search after a write takes the sample: 2 ms for ten million rows, where listing all rows
        took 28 ms.
        """
        size, marks = max(_MIN_BLOCK, len(alive) // _BLOCKS), alive.view(np.bool_)
        firsts = range(0, len(alive), size)
        counts = [np.count_nonzero(marks[first : first + size]) for first in firsts]
        ends = np.cumsum(counts, dtype=np.int64)
        live = int(ends[-1]) if counts else 0
        count = min(SAMPLE_ROWS, live)
        places = np.arange(count) * live // max(1, count)
        rows = np.empty(count, np.int64)
        for i, block in enumerate(np.searchsorted(ends, places, side="right").tolist()):
            first = block * size
            before = ends[block] - counts[block]
            rows[i] = first + np.flatnonzero(marks[first : first + size])[places[i] - before]
        return cls(rows, live)


@dataclass(slots=True, eq=False)
class RowView:
    """The rows that one search may see: rows 0 … n-1 of a collection.

    vectors: all n rows, including deleted ones.
    permitted: (n,) uint8, 1 for a row that may be returned (alive and passing the filter), else 0.
    sample: of the live rows; None: sampled from the permitted rows.
    ranks: returns the place of each row in the order of ids, by which pairs that tie are
        chosen; None: by their rows.
    """

    vectors: VectorBatch
    permitted: UInt8s
    permitted_count: int
    sample: LiveSample | None = None
    ranks: Callable[[], Int64s] | None = None

    def with_floats(self) -> RowView:
        """Return the same rows as floats, for the kernels of joins, which cannot read bytes."""
        if not self.vectors.holds_bytes:
            return self
        return replace(self, vectors=self.vectors.with_floats())

    @property
    def fills_tiles(self) -> bool:
        """Whether at least a quarter of the rows is permitted, so that tiles of all rows pay.

        64 queries, 3,000 of 30,000 rows of 384 floats permitted: 527 µs each by tiles, 115 else.
        """
        return 4 * self.permitted_count >= self.vectors.count

    @property
    def copies(self) -> RowCopies | None:
        """Copies of all rows for scans; None also if few rows are permitted and floats suffice."""
        vectors = self.vectors
        few = self.permitted_count * vectors.width < MIN_COPIED_FLOATS
        if few and not vectors.holds_bytes:
            return None
        return vectors.copies
