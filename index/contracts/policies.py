"""Policies: limits of the delta, of commits, compaction, checkpoints and reclaimed space.

A program that opens a catalog may hand down its own, as tests with small collections do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHUNK_BYTES: Final = 1 << 20
"""Of rows that are read from a file at a time, about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaPolicy:
    """How many committed rows an index does not hold yet, and how far a write takes them in.

    max_rows, max_numbers: limits of a delta: its rows, and the numbers that a scan of them reads,
        in some 10 µs. They do not hold while a graph lacks tables after a restart.
    max_pending: committed items that the next reader appends to the delta, in some 0.2 ms.
    max_merge_rows: rows of the largest segment of tables that a write makes by merging. Larger ones
        are merged in the background: of 3,000,000 rows in 8 tables that takes over a second.
    """

    max_rows: int = 1024
    max_numbers: int = 1 << 17
    max_pending: int = 32
    max_merge_rows: int = 1 << 17


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPolicy:
    """When rows are renumbered without the dead ones.

    min_dead: dead rows that are left alone, as they are while no more are dead than alive.
    max_foreground_rows: up to this many live rows a write compacts by itself: 4 to 6 µs a row.
        Above it, the background does.
    max_dead_ratio: above this many dead rows for each live one, a write compacts at any size.
    """

    min_dead: int = 4096
    max_foreground_rows: int = 1 << 16
    max_dead_ratio: float = 2.0

    def is_due(self, dead: int, live: int) -> bool:
        """Return whether a write must compact before it returns."""
        return self._is_due(dead, live) and not self._can_wait(dead, live)

    def is_due_in_background(self, dead: int, live: int) -> bool:
        """Return whether the background must compact."""
        return self._is_due(dead, live) and self._can_wait(dead, live)

    def _is_due(self, dead: int, live: int) -> bool:
        return dead > max(self.min_dead, live)

    def _can_wait(self, dead: int, live: int) -> bool:
        return live > self.max_foreground_rows and dead <= self.max_dead_ratio * live


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPolicy:
    """When the changed parts of a graph are written.

    Before, ``min_rows`` rows may be put, or 1/share of all rows, when that is more.
    """

    min_rows: int = 4096
    share: int = 4

    def is_due(self, put: int, count: int) -> bool:
        """Return whether ``put`` new rows, of ``count`` in all, should be written."""
        return put > max(self.min_rows, count // self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReclaimPolicy:
    """When a file gives back what it does not need.

    It keeps ``min_pages`` free pages, or 1/share of all pages, when that is more.

    rest_seconds: rest before and in between, so that the space of many deletes is reclaimed at
        once.
    busy_seconds: how long other readers of a file are waited for before its log is moved.
    """

    min_pages: int = 128
    share: int = 4
    rest_seconds: float = 0.5
    busy_seconds: float = 30.0

    def is_due(self, free: int, pages: int) -> bool:
        """Return whether ``free`` pages, of ``pages`` in all, should be given back."""
        return free > max(self.min_pages, pages // self.share)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerPolicy:
    """When the optimizer thread begins.

    pause_seconds, max_pause_seconds: the shortest and the longest wait between two looks at the
        collection.
    gap_factor: a bulk load is taken to have ended after a wait of this many mean gaps between its
        views. One gap may be longer than the others, as when more memory is needed.
    seconds_a_row: what optimizing is taken to need for a row; a longer time that was measured
        replaces it.
    max_growth_share: optimizing waits while the rows would grow by more than this share before it
        ends.
    """

    pause_seconds: float = 0.2
    max_pause_seconds: float = 5.0
    gap_factor: float = 4.0
    seconds_a_row: float = 2e-5
    max_growth_share: float = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPolicy:
    """How many queries are answered exactly as well, and how what they found is kept.

    share: of the queries, drawn at random; 0 for none.
    low_recall_factor: the share is multiplied by this, up to 1, while audited queries find too
        little. Results are those of the share itself.
    busy: share of the time in which exact answers are computed, at most.
    max_waiting: queries that wait for their exact answer; more are left out.
    weeks: for how many weeks the results are kept.
    """

    share: float = 0.001
    low_recall_factor: float = 16.0
    busy: float = 0.01
    max_waiting: int = 16
    weeks: int = 53


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbePolicy:
    """When a query is searched for by hash tables, and not by a scan.

    scan_factor: a scan is taken to cost what the cost model says, times this.
    hashing, hashing_of_tried: share of a scan's time that hashing may take, and what goes with it:
        of a lone query, and where it is known what tables have won of late, or a few queries of a
        call are tried first.
    dense_probing, sparse_probing: share of a scan's time that probing may look like taking: it is
        harder to foresee, above all where a scan touches only the rows that share a slot.
    dense_nanoseconds, sparse_nanoseconds: what a call takes beside hashing and probing: sparse
        queries are hashed and found to be scanned in more steps, which a lone query pays for.
    many: queries from which a call is one of many.
    tried, tried_share: of a call of many, one query in ``tried_share`` is tried first, at most
        ``tried``. Where tables have not paid for these, the others are scanned without being
        hashed.
    tries: where proofs of lone queries have taken longer than scans of late, one in this many is
        tried all the same.
    """

    scan_factor: float = 1.0
    hashing: float = 0.1
    hashing_of_tried: float = 0.5
    dense_probing: float = 0.6
    sparse_probing: float = 0.12
    dense_nanoseconds: float = 15_000.0
    sparse_nanoseconds: float = 150_000.0
    many: int = 64
    tried: int = 12
    tried_share: int = 16
    tries: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PairPolicy:
    """How near-duplicate pairs are looked for.

    max_pairs: more pairs than this are not listed at once.
    capacity: pairs that a thread lists before they are offered.
    max_unscored: pairs offered before they are scored.
    sampled, max_sampled: rows all of whose partners are found by comparing them with all rows. More
        partners in all than ``max_sampled`` say that there is nothing to be won.
    max_partners: partners of a sampled row that are judged by.
    min_gain: the graph is tried where other joins take this many times what the sample takes.
    patience: tried in turn; see `kernels.graph.pair_walk.PairRule`.
    call_rows: rows searched from before the score wanted is looked up again.
    min_place_bits, max_place_bits: of the number of a place in a prefix join;
        `kernels.sparse.prefix_join` has room for 20.
    """

    max_pairs: int = 2_000_000
    capacity: int = 1 << 18
    max_unscored: int = 1 << 20
    sampled: int = 256
    max_sampled: int = 1 << 20
    max_partners: int = 16
    min_gain: float = 3.0
    patience: tuple[int, ...] = (0, 8, 32)
    call_rows: int = 4096
    min_place_bits: int = 12
    max_place_bits: int = 20


PAIR_POLICY: Final = PairPolicy()
