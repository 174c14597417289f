"""What recall costs: points of a recall curve, as measured on a collection's own items."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class CurvePoint(NamedTuple):
    """What searches by one beam setting find and cost.

    recall: expected in the mean over queries like the items.
    microseconds: of one query on one thread, by the cost model.
    """

    recall: float
    candidates: float
    microseconds: float


@dataclass(frozen=True, slots=True)
class CostCurve:
    """What recall costs for one limit.

    points: by rising recall; the cost rises too.
    rows: items in the graph when it was measured, its queries left out; 0 where it was not.
    holds: whether new rows, and queries audited, are found as well as it says.
    reason: why there are no points; None where there are.
    scanned_from: queries that ask for this recall or more are not searched for by the graph, since
        that would take longer than a scan; None where only those are that ask for more than .99.
    """

    limit: int
    points: tuple[CurvePoint, ...] = ()
    rows: int = 0
    holds: bool = False
    reason: str | None = None
    scanned_from: float | None = None
