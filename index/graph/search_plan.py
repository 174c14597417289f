"""The policy of a graph search, and the plan shared by equal requests.

`Stage` names the steps that can be left out. `SearchPolicy` says which of them run, with their
numbers. `SearchPlan` combines these for one limit, recall and filter, and is shared by all queries
that request the same. `Outcome` says how a query ended.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import Final

from gcws_search.index.cost_model import Tally
from gcws_search.index.graph.recall_curve import NO_EXTENSION, Extension
from gcws_search.index.graph.scratch import ScratchSizes
from gcws_search.index.kernels.graph.batch_search import Outcome, Plan as KernelPlan
from gcws_search.index.kernels.graph.entry_points import ROWS_A_SIDE
from gcws_search.index.kernels.hashing.gcws_table import Hashing

__all__ = ["STAGES", "TRIED", "Outcome", "SearchPlan", "SearchPolicy", "Skipped", "Stage"]


class Stage(Enum):
    """A step between the beam search and the fall-back, needed by few queries."""

    EXTENSION = "extension"
    """The search of a hard query continues with more entry points and a greater slack."""
    SECOND_EXTENSION = "second extension"
    """It continues once more for a query that is still foreign."""
    DEEPER_RERANK = "deeper re-rank"
    """More rows are scored exactly if quantization leaves the hits in doubt."""
    RANGE_CHECK = "range check"
    """Queries whose hits score below all calibrated scores are left to the fall-back."""


STAGES: Final = tuple(Stage)


class Skipped(Enum):
    """Why the graph is not searched at all, so that the fall-back answers every query."""

    NOT_APPLICABLE = "exact or proven recall, or a narrow filter"
    TABLES_MISSING = "entry tables are being made again after a start"
    DRIFTED = "rows put since calibration are found less well than it says"
    AUDITED = "queries audited found less than was asked, however far they searched"
    NO_SETTING = "no beam setting measured reaches the recall"
    SCAN_IS_QUICKER = "a scan takes less time"


_MIN_CANDIDATES: Final = 400
"""Rows that a search for good recall scores at least; fingerprints took 420 at 0.95."""
_ROWS_A_SIDE_SLACK: Final = 200.0
"""More entry points on each side of a key in an extended search, for each unit of slack beyond 1.
Without, queries unlike the items found up to 0.08 less; with the most at any slack, those unlike
Fashion-MNIST scored 1.35 times as many rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicy:
    """Numbers of a search that are not calibrated."""

    stages: tuple[Stage, ...] = STAGES  # the stages that run
    search_nanoseconds: float = 4000.0  # before the first row
    # Time to score a row: a constant, and the additions for each byte, non-zero and requested hit.
    # More hits make a larger pool, in which inserting takes longer: 0.2 to 0.9 ns a hit.
    row_nanoseconds: float = 30.0
    byte_nanoseconds: float = 0.06
    entry_nanoseconds: float = 2.0
    place_nanoseconds: float = 0.35
    # Under a filter, a query is hard if this many times more rows are nearer than its last hit than
    # with an uncorrelated filter. Without this, queries whose own class was filtered out had up to
    # 0.05 less recall.
    crowding: float = 4.0
    max_room: int = 1 << 16  # limit of the rows that a search sees
    # Minimum size of the beam of an extended search, up to a slack: a larger beam expands more rows
    # for few hits. With 2,048 for all, sentences were searched 0.57 times as fast at 0.97, and
    # words 0.66 times.
    extended_beams: tuple[tuple[float, int], ...] = ((1.3, 512), (1.4, 1024), (inf, 2048))
    extended_places: int = 20  # rows of the beam for each requested hit, up to the maximum of those
    max_rows_a_side: int = 64  # entry points on each side of a key in an extended search

    def extension_beam(self, limit: int, extension: Extension) -> int:
        """Return the minimum size of the beam of an extended search."""
        rows = next(rows for slack, rows in self.extended_beams if extension.slack <= slack)
        if extension.enters_wider:
            rows *= 2
        return min(max(rows, self.extended_places * limit), self.extended_beams[-1][1])

    def extension(self, stage: Stage, extension: Extension) -> Extension:
        """Return an extension, or an empty one if the stage is left out."""
        return extension if stage in self.stages else NO_EXTENSION

    def crowded(self, limit: int, share: float) -> int:
        """Return the number of rows nearer than the last hit above which a filtered query is hard.

        0 means no bound, for a search without a filter.
        """
        return 0 if share >= 1 else int(self.crowding * limit / share)

    def rows_a_side(self, slack: float) -> int:
        """Return the number of entry points on each side of a key in an extended search."""
        return min(self.max_rows_a_side, int(ROWS_A_SIDE + _ROWS_A_SIDE_SLACK * (slack - 1.0)))

    def min_search_nanoseconds(self, entries: float) -> float:
        """Return the time of a search that scores few rows besides the hits, by non-zeros a row."""
        row = self.row_nanoseconds + self.entry_nanoseconds * entries
        return self.search_nanoseconds + _MIN_CANDIDATES * row


PlanKey = tuple[int, float, str, tuple[float, ...], bool, int, int, int, int, int, int]
"""Limit, recall and guarantee; shares of the miss aimed at; whether rows have drifted; rows there
are, permitted and alive; tables and segments entered by; queries a thread has of the batch."""


TRIED: Final = 16
"""Queries of a call that come first where none like them have come yet: they tell what it costs."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """A plan: everything about a search that does not depend on the query."""

    sizes: ScratchSizes  # of dense queries, and of sparse ones as long as the rows
    kernel: KernelPlan
    hashing: Hashing | None  # how the kernel draws keys; None if they are drawn before
    row_nanoseconds: float = 0.0  # to score a row in this search
    place_nanoseconds: float = 0.0  # additional time for each row in the beam
    scan_nanoseconds: float = inf  # to scan for a query instead
    sure_nanoseconds: float = inf  # if the first queries took no more, others are not timed
    tally: Tally = field(default_factory=lambda: Tally(0.0))
