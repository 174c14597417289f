"""All policies of a collection in one object, which the catalog hands down."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from gcws_search.index.contracts.policies import PairPolicy, ProbePolicy
from gcws_search.index.graph.lifecycle import GraphPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Numbers that decide when something runs.

    A program that opens a catalog may hand down its own, as tests with small collections do.
    """

    graph: GraphPolicy = field(default_factory=GraphPolicy)
    probe: ProbePolicy = field(default_factory=ProbePolicy)
    pairs: PairPolicy = field(default_factory=PairPolicy)

    # Committed rows that an index does not hold yet, and how far a write takes them in.
    max_delta_rows: int = 1024
    max_delta_numbers: int = 1 << 17
    """That a scan of the delta reads, in some 10 µs. Neither limit holds while a graph lacks tables
    after a restart."""
    max_without_postings: int = 1 << 15
    """Sparse rows that wait for postings while no search comes, so that a load sorts each entry
    once: as many as one segment has."""
    max_pending: int = 32
    """Committed items that the next reader appends to the delta, in some 0.2 ms."""
    max_merge_rows: int = 1 << 17
    """Rows of the largest segment of tables that a write makes by merging. Larger ones are merged
    in the background: of 3,000,000 rows in 8 tables that takes over a second."""

    max_unmapped_bytes: int = 1 << 30
    """Larger arrays of vectors are mapped, of collections whose storage is "auto"."""
    chunk_bytes: int = 1 << 20
    """Of rows that a start reads at a time, about."""
    max_ties: int = 1 << 25
    """Queries searched for together times rows: all rows may tie, where all items are equal."""
    max_groups: int = 64
    """Commits of queued writes after which a borrowed thread is given back."""

    # When rows are renumbered without the dead ones.
    min_dead: int = 4096
    """Dead rows that are left alone, as they are while no more are dead than alive."""
    max_foreground_rows: int = 1 << 16
    """Up to this many live rows a write compacts by itself: 4 to 6 µs a row. Above it, the
    background does."""
    max_dead_ratio: float = 2.0
    """Above this many dead rows for each live one, a write compacts at any size."""

    # When the changed parts of a graph are written: after more rows than both.
    checkpoint_rows: int = 4096
    checkpoint_share: int = 4
    """1/share of all rows."""

    find_seconds: float = 1.0
    """After which a search for a text ends, with the items found by then."""

    # When a file gives back what it does not need: above both.
    min_free_pages: int = 128
    free_share: int = 4
    """1/share of all pages."""
    reclaim_rest_seconds: float = 0.5
    """Before and in between, so that the space of many deletes is reclaimed at once."""
    busy_seconds: float = 30.0
    """How long other readers of a file are waited for before its log is moved."""

    # When the optimizer begins.
    quiet_seconds: float = 0.5
    """How often it looks whether a bulk load has ended, whose rows may come with gaps."""
    max_growth_share: float = 0.05
    """It has ended once the rows would grow by no more than this share while they are optimized."""
    max_pause_seconds: float = 5.0
    """It is waited for so long, or as long as optimizing takes if that is longer."""
    seconds_a_row: float = 2e-5
    """What optimizing is taken to need; a longer time that was measured replaces it."""

    # How many queries are answered exactly as well.
    audit_share: float = 0.001
    """Of the queries, drawn at random; 0 for none."""
    low_recall_factor: float = 16.0
    """The share is multiplied by this, up to 1, while audited queries find too little. Results are
    those of the share itself."""
    audit_busy: float = 0.01
    """Share of the time in which exact answers are computed, at most."""
    max_waiting: int = 16
    """Queries that wait for their exact answer; more are left out."""

    def compactor(self, dead: int, live: int) -> Literal["write", "background"] | None:
        """Return who removes ``dead`` rows beside ``live`` ones; None where nobody does."""
        if dead <= max(self.min_dead, live):
            return None
        can_wait = live > self.max_foreground_rows and dead <= self.max_dead_ratio * live
        return "background" if can_wait else "write"


POLICIES: Final = Policies()
"""Those of the program."""
