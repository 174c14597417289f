"""The policy of a graph search, and what is planned once for equal requests.

`Stage` names the steps that can be left out. `SearchPolicy` says which of them run and holds their
numbers. `SearchPlan` is what they come to for one limit, recall and filter; all queries that ask
for the same share it. `Outcome` says what became of a query.
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

__all__ = ["STAGES", "TRIED", "Outcome", "SearchPlan", "SearchPolicy", "Skipped", "Stage"]


class Stage(Enum):
    """A step between the beam search and the fall-back that few queries need."""

    EXTENSION = "extension"
    """The search of a hard query goes on with more entry points and a greater slack."""
    SECOND_EXTENSION = "second extension"
    """And once more for a query that is foreign still."""
    DEEPER_RERANK = "deeper re-rank"
    """More rows are scored exactly where quantization leaves hits in doubt."""
    RANGE_CHECK = "range check"
    """Queries whose hits score below all that calibration saw are left to the fall-back."""


STAGES: Final = tuple(Stage)


class Skipped(Enum):
    """Why the graph is not searched at all, and the fall-back answers every query."""

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
    """Numbers of a search that calibration does not measure."""

    stages: tuple[Stage, ...] = STAGES  # those that run
    search_nanoseconds: float = 4000.0  # before its first row
    # Time to score a row: a constant, and what a byte, a non-zero and a hit wanted add. More hits
    # make a larger pool, in which a row takes longer to find its place: 0.2 to 0.9 ns a hit.
    row_nanoseconds: float = 30.0
    byte_nanoseconds: float = 0.06
    entry_nanoseconds: float = 2.0
    place_nanoseconds: float = 0.35
    # Under a filter a query is hard if so many times more rows are nearer than its last hit than
    # where the filter is not correlated with the query. Without, queries whose own class was left
    # out found up to 0.05 less.
    crowding: float = 4.0
    max_room: int = 1 << 16  # rows that no search sees more of
    # Rows that the beam of an extended search holds at least, up to a slack: more would be expanded
    # for few hits. With 2,048 for all, sentences were searched 0.57 times as fast at 0.97, and
    # words 0.66 times.
    extended_beams: tuple[tuple[float, int], ...] = ((1.3, 512), (1.4, 1024), (inf, 2048))
    extended_places: int = 20  # rows that it holds for each hit wanted, up to the greatest of those
    max_rows_a_side: int = 64  # entry points on each side of a key in an extended search

    def extension_beam(self, limit: int, extension: Extension) -> int:
        """Return how many rows the beam of an extended search holds at least."""
        rows = next(rows for slack, rows in self.extended_beams if extension.slack <= slack)
        if extension.enters_wider:
            rows *= 2
        return min(max(rows, self.extended_places * limit), self.extended_beams[-1][1])

    def extension(self, stage: Stage, extension: Extension) -> Extension:
        """Return an extension, or none where the stage is left out."""
        return extension if stage in self.stages else NO_EXTENSION

    def crowded(self, limit: int, share: float) -> int:
        """Return how many rows may be nearer than the last hit where a share is permitted.

        0 for any number, where all rows are.
        """
        return 0 if share >= 1 else int(self.crowding * limit / share)

    def rows_a_side(self, slack: float) -> int:
        """Return how many entry points there are on each side of a key in an extended search."""
        return min(self.max_rows_a_side, int(ROWS_A_SIDE + _ROWS_A_SIDE_SLACK * (slack - 1.0)))

    def min_search_nanoseconds(self, entries: float) -> float:
        """Return what a search takes that scores few rows of so many non-zeros beside the hits."""
        row = self.row_nanoseconds + self.entry_nanoseconds * entries
        return self.search_nanoseconds + _MIN_CANDIDATES * row


PlanKey = tuple[int, float, str, tuple[float, ...], bool, int, int, int, int, int, int]
"""Limit, recall and guarantee; shares of the miss aimed at; whether rows have drifted; rows there
are, permitted and alive; tables and segments entered by; queries a thread has of the batch."""


TRIED: Final = 16
"""Queries of a call that come first where none like them have come yet: they tell what it costs."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """How queries are searched for: all that does not depend on the query."""

    sizes: ScratchSizes  # of dense queries, and of sparse ones as long as the rows
    kernel: KernelPlan
    row_nanoseconds: float = 0.0  # to score a row in this search
    place_nanoseconds: float = 0.0  # what each row that its beam holds adds to that
    scan_nanoseconds: float = inf  # to scan for a query instead
    sure_nanoseconds: float = inf  # where the first queries took no more, others are not watched
    tally: Tally = field(default_factory=lambda: Tally(0.0))
