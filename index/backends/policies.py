"""All policies of a collection in one object, passed down by the catalog."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from gcws_search.index.contracts.policies import PairPolicy, ProbePolicy
from gcws_search.index.graph.lifecycle import GraphPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """Numbers that decide when something runs.

    A program that opens a catalog may pass its own; tests with small collections do.
    """

    graph: GraphPolicy = field(default_factory=GraphPolicy)
    probe: ProbePolicy = field(default_factory=ProbePolicy)
    pairs: PairPolicy = field(default_factory=PairPolicy)

    # Committed rows that are not in an index yet, and when a write adds them.
    max_delta_rows: int = 1024
    max_delta_numbers: int = 1 << 17
    """Numbers that a scan of the delta reads, in some 10 µs. Neither limit holds while a graph
    lacks tables after a restart."""
    max_without_postings: int = 1 << 15
    """Sparse rows that wait for postings while no search comes, so that a load sorts each entry
    only once: as many as one segment has."""
    max_pending: int = 32
    """Committed items that the next reader appends to the delta, in some 0.2 ms."""
    max_merge_rows: int = 1 << 17
    """Rows of the largest segment of tables that a write creates by merging. Larger ones are merged
    in the background, which takes over a second for 3,000,000 rows in 8 tables."""

    max_unmapped_bytes: int = 1 << 30
    """Arrays of vectors above this size are mapped, if the storage is "auto"."""
    chunk_bytes: int = 1 << 20
    """Approximate size of the pieces in which a start reads rows."""
    max_ties: int = 1 << 25
    """Queries of one search times rows: all rows may tie, if all items are equal."""
    max_groups: int = 64
    """Number of commits after which a borrowed thread is returned."""

    # When rows are renumbered without the dead ones.
    min_dead: int = 4096
    """Dead rows up to this number are left alone, and as long as no more are dead than live."""
    max_foreground_rows: int = 1 << 16
    """Up to this many live rows a write compacts by itself, in 4 to 6 µs a row. Above it, the
    background does."""
    max_dead_ratio: float = 2.0
    """Above this many dead rows for each live one, a write compacts at any size."""

    # When changed parts of a graph are written: after more new rows than both limits.
    checkpoint_rows: int = 4096
    checkpoint_share: int = 4
    """The limit is all rows divided by this."""

    find_seconds: float = 1.0
    """Time limit of a search for a text; it returns the items found by then."""

    # When a file returns free space: above both limits.
    min_free_pages: int = 128
    free_share: int = 4
    """The limit is all pages divided by this."""
    reclaim_rest_seconds: float = 0.5
    """Pause before a run and between runs, so that many deletes are reclaimed together."""
    busy_seconds: float = 30.0
    """How long to wait for other readers of a file before its log is moved."""

    # When the optimizer starts.
    quiet_seconds: float = 0.5
    """How often it checks whether a bulk load has ended; its rows may arrive with gaps."""
    max_growth_share: float = 0.05
    """It has ended once the rows would grow by at most this share during the optimization."""
    max_pause_seconds: float = 5.0
    """The optimizer waits this long, or as long as optimizing takes if that is longer."""
    seconds_a_row: float = 2e-5
    """Assumed duration of optimizing; a longer measured one replaces it."""

    # How many queries are also answered exactly.
    audit_share: float = 0.001
    """Share of the queries, sampled at random; 0 for none."""
    low_recall_factor: float = 16.0
    """The share is multiplied by this, up to 1, while audited queries find too little. Results use
    only queries of the share itself."""
    audit_busy: float = 0.01
    """Maximum share of the time spent on exact answers."""
    max_waiting: int = 16
    """Maximum number of queries that wait for their exact answer; more are skipped."""

    def compactor(self, dead: int, live: int) -> Literal["write", "background"] | None:
        """Return who removes ``dead`` rows beside ``live`` ones; None if nobody does."""
        if dead <= max(self.min_dead, live):
            return None
        can_wait = live > self.max_foreground_rows and dead <= self.max_dead_ratio * live
        return "background" if can_wait else "write"


POLICIES: Final = Policies()
"""Those of the program."""
