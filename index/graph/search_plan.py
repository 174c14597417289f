"""The ladder of a query: its stages in order, the policy behind them, and what is planned once.

`Stage` names the steps from the entry tables to the fall-back. `SearchPolicy` says which of them
run and holds their numbers. `SearchPlan` is what they come to for one limit, recall and filter;
all queries that ask for the same share it. `Outcome` says what became of a query.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from gcws_search.index.graph.recall_curve import BeamSetting
from gcws_search.index.graph.scratch import ScratchSizes
from gcws_search.index.kernels.graph.batch_search import Outcome
from gcws_search.index.kernels.graph.batch_search import Plan as KernelPlan

__all__ = ["STAGES", "Outcome", "SearchPlan", "SearchPolicy", "Skipped", "Stage"]


class Stage(Enum):
    """A step of the ladder; a query runs them in this order, most queries only some of them."""

    ENTRY_TABLES = "entry tables"
    """Rows beside the query's keys in a few hash tables become entry points."""
    BEAM_SEARCH = "beam search"
    """Best-first search of the neighbour graph, with the calibrated beam setting."""
    EXTENSION = "extension"
    """The search goes on with a slack where the first hit is about as far as the tenth."""
    SECOND_SEARCH = "second search"
    """A wider search from the best rows, where hits score low or are too few."""
    RERANK = "re-rank"
    """The best rows are scored exactly."""
    DEEPER_RERANK = "deeper re-rank"
    """More rows are scored exactly where quantization leaves hits in doubt."""
    RANGE_CHECK = "range check"
    """Queries whose hits score below all that calibration saw are left to the fall-back."""
    FALLBACK = "fall-back"
    """Queries without an answer go to the hash tables, which probe or scan."""


STAGES: Final = tuple(Stage)


class Skipped(Enum):
    """Why the graph is not searched at all, and the fall-back answers every query."""

    NOT_APPLICABLE = "exact or proven recall, or a narrow filter"
    DRIFTED = "rows put since calibration are found less well than it says"
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
    row_nanoseconds, byte_nanoseconds, entry_nanoseconds : float
        Time to score a row: in all, for a byte of it, for a non-zero of it.
    min_candidates : int
        Rows that a search for good recall scores at least; fingerprints took 420 at 0.95.
    spare : int
        Rows scored exactly beyond the limit at first.
    min_quantized : int
        Rows scored exactly at first where rows are quantized, at least: a line is fitted to their
        scores.
    spare_quantized : int
        Rows scored exactly beyond the limit in all where hits are in doubt; of bytes half the
        limit, if that is more. Rows of 45 raw numbers in int16 reached recall 0.989 with 4, and
        0.994 with 10.
    max_filtered : int
        A filter that leaves less than one row in this many is not searched for by the graph.
    min_room : int
        Rows that any search may see.
    doubt_growth : float
        All is in doubt once one row in this many is newer than the calibration.
    filter_slack : float
        Under a filter that leaves half of the rows or less, the slack grows by this factor at
        least.
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
    min_candidates: int = 400
    spare: int = 4
    min_quantized: int = 10
    spare_quantized: int = 10
    max_filtered: int = 20
    min_room: int = 4096
    doubt_growth: float = 10.0
    filter_slack: float = 1.1
    max_together: int = 512
    max_plans: int = 1024

    def min_search_nanoseconds(self, entries: float) -> float:
        """Return what a search takes that scores few rows beside the hits.

        Parameters
        ----------
        entries : float
            Non-zeros of a row.
        """
        row = self.row_nanoseconds + self.entry_nanoseconds * entries
        return self.search_nanoseconds + self.min_candidates * row


PlanKey = tuple[int, float, int, int, int, int, int]
"""Limit and recall; rows there are, permitted and alive; segments of tables; queries of a thread's
part of the batch."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """How queries are searched for: all that does not depend on the query.

    Attributes
    ----------
    setting : BeamSetting
    tables : int
        Entry tables.
    stages : tuple of Stage
        Those that may run.
    sizes : ScratchSizes
        Of dense queries, and of sparse ones as long as the rows.
    kernel : batch_search.Plan
    """

    setting: BeamSetting
    tables: int
    stages: tuple[Stage, ...]
    sizes: ScratchSizes
    kernel: KernelPlan
