"""The ladder of a query: its stages in order, the policy behind them, and what is planned once.

`Stage` names the steps from the entry tables to the fall-back. `SearchPolicy` says which of them
run and holds their numbers. `SearchPlan` is what they come to for one limit, recall and filter;
all queries that ask for the same share it. `Outcome` says what became of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final

from gcws_search.index.cost_model import Tally
from gcws_search.index.graph.recall_curve import Extension, SearchSetting
from gcws_search.index.graph.scratch import ScratchSizes
from gcws_search.index.kernels.graph.batch_search import Outcome, Plan as KernelPlan
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE

__all__ = ["STAGES", "TRIED", "Outcome", "SearchPlan", "SearchPolicy", "Skipped", "Stage"]


class Stage(Enum):
    """A step of the ladder; a query runs them in this order, most queries only some of them."""

    ENTRY_TABLES = "entry tables"
    """Rows beside the query's keys in a few hash tables become entry points."""
    BEAM_SEARCH = "beam search"
    """Best-first search of the neighbour graph, with the calibrated beam setting."""
    EXTENSION = "extension"
    """The search of a hard query goes on with more entry points and a greater slack."""
    SECOND_EXTENSION = "second extension"
    """And once more for a query that is foreign still."""
    RERANK = "re-rank"
    """The best rows are scored exactly."""
    DEEPER_RERANK = "deeper re-rank"
    """More rows are scored exactly where quantization leaves hits in doubt."""
    RANGE_CHECK = "range check"
    """Queries whose hits score below all that calibration saw, or whose search saw too many rows,
    are left to the fall-back."""
    FALLBACK = "fall-back"
    """Queries without an answer go to the hash tables, which probe or scan."""


STAGES: Final = tuple(Stage)


class Skipped(Enum):
    """Why the graph is not searched at all, and the fall-back answers every query."""

    NOT_APPLICABLE = "exact or proven recall, or a narrow filter"
    TABLES_MISSING = "entry tables are being made again after a start"
    DRIFTED = "rows put since calibration are found less well than it says"
    AUDITED = "queries audited found less than was asked, however far they searched"
    NO_SETTING = "no beam setting measured reaches the recall"
    SCAN_IS_QUICKER = "a scan takes less time"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicy:
    """Numbers of a search that calibration does not measure.

    Attributes
    ----------
    stages : tuple of Stage
        Those that run; the entry tables, the beam search, the re-rank and the fall-back always do.
    search_nanoseconds : float
        Time of a search before its first row.
    row_nanoseconds, byte_nanoseconds, entry_nanoseconds, place_nanoseconds : float
        Time to score a row: a constant, and what a byte, a non-zero and a hit wanted add. More hits
        make a larger pool, in which a row takes longer to find its place: 0.2 to 0.9 ns a hit.
    min_candidates : int
        Rows that a search for good recall scores at least; fingerprints took 420 at 0.95.
    spare : int
        Rows scored exactly beyond the limit at first.
    spare_quantized : int
        Rows scored exactly beyond the limit in all where hits are in doubt; of bytes half the
        limit, if that is more. Rows of 45 raw numbers in int16 reached recall 0.989 with 4, and
        0.994 with 10.
    spare_extended : int
        Rows of bytes scored exactly beyond the limit of an extended search where hits are in
        doubt, or the limit if that is more. Of sums of two clustered rows 0.95 of the hits were
        found with 90, 0.89 with 10.
    max_missed : float
        Hits that quantization may hide are accepted up to this number for each wanted.
    tied : float
        The first hits of a query tie if their distances differ by less than this share of what is
        usual.
    hidden : float
        Where they tie, quantization may hide this share of the miss expected.
    min_crowded, crowding : int, float
        Under a filter a query is hard if more rows are nearer than its last hit than the first of
        these, and the second times what a filter leaves out that is not correlated with the query.
    max_filtered : int
        A filter that leaves less than one row in this many is not searched for by the graph.
    min_saving : float
        Share of a scan's time that a search is expected to save at least: a scan finds all.
    budgets : tuple of (float, float)
        By falling share of permitted rows: the least such share, and the share of a scan's time
        after which a search is left to the fall-back. A filter makes the pool larger, and inserting
        slower.
    max_room : int
        Rows that no search sees more of.
    extended_beams : tuple of (float, int)
        Rows that the beam of an extended search holds at least, up to a slack: more would be
        expanded for few hits. Of Fashion-MNIST, hard items found .993 with slack 1.13 and 512 rows,
        and .994 with 2,048, which scored 1.4 times as many.
    wider_beam : int
        How many times the rows it holds where a search enters through more rows, too, and finds
        hits in several places.
    extended_places : int
        Rows that it holds for each hit wanted. All up to the greatest of those numbers.
    min_rows_a_side, max_rows_a_side, rows_a_side_slack : int, int, float
        Entry points on each side of a key in an extended search: at least and at most, and for each
        unit of slack beyond 1.
    doubt_growth : float
        All is in doubt once one row in this many is newer than the calibration.
    tries : int
        Where searches under a filter have taken longer than scans, one call in this many is
        searched for all the same.
    max_together : int
        A batch of more queries is not scanned in less time for each.
    max_plans : int
        Plans that are remembered.
    """

    stages: tuple[Stage, ...] = STAGES
    search_nanoseconds: float = 4000.0
    row_nanoseconds: float = 30.0
    byte_nanoseconds: float = 0.06
    entry_nanoseconds: float = 2.0
    place_nanoseconds: float = 0.35
    min_candidates: int = 400
    spare: int = 4
    spare_quantized: int = 10
    spare_extended: int = 90
    max_missed: float = 0.25
    tied: float = 0.25
    hidden: float = 0.5
    min_crowded: int = 32
    crowding: float = 4.0
    max_filtered: int = 20
    min_saving: float = 0.1
    budgets: tuple[tuple[float, float], ...] = ((0.99, 1.5), (0.95, 0.8), (0.0, 0.2))
    max_room: int = 1 << 16
    extended_beams: tuple[tuple[float, int], ...] = ((1.3, 512), (1.4, 1024), (inf, 2048))
    wider_beam: int = 2
    extended_places: int = 20
    min_rows_a_side: int = 4
    max_rows_a_side: int = 64
    rows_a_side_slack: float = 200.0
    doubt_growth: float = 10.0
    tries: int = 64
    max_together: int = 512
    max_plans: int = 1024

    def reranked_extended(self, limit: int) -> int:
        """Return how many rows of an extended search are scored exactly."""
        return limit + max(self.spare_extended, limit)

    def extension_beam(self, limit: int, extension: Extension) -> int:
        """Return how many rows the beam of an extended search holds at least."""
        rows = next(rows for slack, rows in self.extended_beams if extension.slack <= slack)
        if extension.enters_wider:
            rows *= self.wider_beam
        return min(max(rows, self.extended_places * limit), self.extended_beams[-1][1])

    def crowded(self, limit: int, share: float) -> int:
        """Return how many rows may be nearer than the last hit where a share is permitted.

        0 for any number, where all rows are.
        """
        return 0 if share >= 1 else self.min_crowded + int(self.crowding * limit / share)

    def rows_a_side(self, slack: float) -> int:
        """Return how many entry points there are on each side of a key in an extended search."""
        more = int(ROWS_A_SIDE + self.rows_a_side_slack * (slack - 1.0))
        return min(self.max_rows_a_side, max(self.min_rows_a_side, more))

    def min_search_nanoseconds(self, entries: float) -> float:
        """Return what a search takes that scores few rows beside the hits.

        Parameters
        ----------
        entries : float
            Non-zeros of a row.
        """
        row = self.row_nanoseconds + self.entry_nanoseconds * entries
        return self.search_nanoseconds + self.min_candidates * row


PlanKey = tuple[int, float, float, int, int, int, int, int]
"""Limit and recall, and the share of the miss aimed at; rows there are, permitted and alive;
segments of tables; queries of a thread's part of the batch."""


TRIED: Final = 16
"""Queries of a call that come first under a filter not seen before: they tell what it costs."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """How queries are searched for: all that does not depend on the query.

    Attributes
    ----------
    tables : int
        Entry tables.
    stages : tuple of Stage
        Those that may run.
    sizes : ScratchSizes
        Of dense queries, and of sparse ones as long as the rows.
    row_nanoseconds, scan_nanoseconds : float
        Time to score a row in this search, and to scan for a query instead.
    tally : Tally or None
        Under a filter.
    """

    setting: SearchSetting
    tables: int
    stages: tuple[Stage, ...]
    sizes: ScratchSizes
    kernel: KernelPlan
    row_nanoseconds: float = 0.0
    scan_nanoseconds: float = inf
    tally: Tally | None = None
