"""What a search sees and what it returns, by row."""

from __future__ import annotations

from dataclasses import dataclass

from index.arrays import Float64s, Int64s, UInt8s
from index.batches import VectorBatch


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one query cost and what it can promise.

    Attributes
    ----------
    method : str
        "scan", "probe" or the backend's own.
    bands, depth : int
        Tables probed, and the least depth reached (0 where no table was probed).
    candidates : int
        Live, permitted rows found in tables, or scanned.
    scored : int
        Rows whose exact similarity was computed.
    beam : int
        Width of the beam of a walk over neighbour lists, 0 without one.
    expected_recall : float
        The promise this answer was stopped at; 1 for a scan.
    """

    method: str
    bands: int
    depth: int
    candidates: int
    scored: int
    beam: int
    expected_recall: float


@dataclass(frozen=True, slots=True)
class RowHits:
    """Hits of one query by row.

    Attributes
    ----------
    rows : (h,) int64
    scores : (h,) float64
        Falling; equal scores by rising row. Where the ``limit``-th score is shared, a scan
        returns every row that shares it, so h may exceed ``limit``; the caller, who knows the
        ids, breaks the tie.
    explanation : Explanation
    """

    rows: Int64s
    scores: Float64s
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class RowView:
    """The rows one search may see: rows 0 … n-1 of a collection.

    Attributes
    ----------
    vectors : VectorBatch
        All n rows, deleted ones included.
    permitted : (n,) uint8
        1 where a row may be returned (alive and passing the filter), 0 elsewhere.
    permitted_count : int
        Number of ones.
    """

    vectors: VectorBatch
    permitted: UInt8s
    permitted_count: int
