"""How queries are walked for, planned once for all that ask for the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.graph.recall_curve import BeamSetting
from gcws_search.index.graph.scratch import ScratchSizes

_MAX_REMEMBERED: Final = 1024
"""Walks that are remembered."""

Asked = tuple[int, float, int, int, int, int, int]
"""Limit and recall; how many rows there are, are permitted and are alive; segments of tables; how
many queries come together in a thread, see `GraphIndex.walk`."""


@dataclass(frozen=True, slots=True, eq=False)
class SearchPlan:
    """How queries are walked for: what depends on what is asked for, not on the queries.

    Attributes
    ----------
    effort : BeamSetting
    tables : int
        Through how many tables it enters.
    at_first, rescored : int
        Rows scored exactly at first, and in all where that is not enough.
    sizes : ScratchSizes
        Of sparse queries as long as the rows.
    efforts : (3, 3) float64
        The effort, that of going on, and that of the second walk, as `kernels.graph` takes them.
    work : (6,) int64
        What each query costs as far as it is known before; see `hits.BatchHits`.
    rare : float
        A query whose last hit scores less, or that has too few, is walked for again; 0: none.
    strange : float
        Below this score of the last hit, in the end, a query is left to the tables.
    nearest : float
        And below this score of the first.
    flat : float
        See `Calibration`: of few lists, a walk goes on for a query that is not so much nearer.
    """

    effort: BeamSetting
    tables: int
    at_first: int
    rescored: int
    sizes: ScratchSizes
    efforts: Float64s
    work: Int64s
    rare: float = 0.0
    strange: float = 0.0
    nearest: float = 0.0
    flat: float = 1.0


class SearchPlans:
    """Walks that have been planned: most queries ask for the same."""

    def __init__(self) -> None:
        self._known: dict[Asked, SearchPlan | None] = {}

    def get(self, asked: Asked, plan: Callable[[], SearchPlan | None]) -> SearchPlan | None:
        """Return the walk for what is asked, planned at the first time; None is kept, too."""
        try:
            return self._known[asked]
        except KeyError:
            if len(self._known) >= _MAX_REMEMBERED:  # any recall may be asked for
                self._known.clear()
            walk = self._known[asked] = plan()
            return walk
