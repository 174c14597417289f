"""What a search sees and what it returns, by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s, UInt8s
from index.batches import VectorBatch

SAMPLE_ROWS: Final = 24
"""Rows by which the costs of a search are judged."""

Pairs = tuple[Int64s, Int64s, Float64s]
"""Rows a < b of each pair, and their scores."""


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
class LiveSample:
    """Some live rows, evenly spaced among them, to judge costs by.

    Which rows these are depends on the live rows alone, so a collection that has had deletions
    is judged like one that never held what is gone.

    Attributes
    ----------
    rows : (r,) int64
        Rising, at most `SAMPLE_ROWS`.
    live : int
        Number of live rows in all.
    """

    rows: Int64s
    live: int

    @classmethod
    def of(cls, alive: UInt8s) -> LiveSample:
        """Return the sample of the rows where ``alive`` is 1."""
        rows = np.flatnonzero(alive)
        count = min(SAMPLE_ROWS, len(rows))
        places = np.arange(count) * len(rows) // max(1, count)
        return cls(rows[places], len(rows))


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
    sample : LiveSample or None
        Of the live rows; None lets it be drawn from the permitted ones.
    """

    vectors: VectorBatch
    permitted: UInt8s
    permitted_count: int
    sample: LiveSample | None = None
