"""What the steps of a search take, in nanoseconds on current processors.

These figures steer the choice between two right answers, tables or scan, so factors of two do not
matter. They depend on counts alone, never on a clock: equal data give equal choices.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from index.arrays import Float64s
from index.bands import BandPlan
from index.batches import VectorBatch
from index.hits import RowView
from index.inverted import InvertedIndex

_SCAN_LOOK: Final = 0.5  # a row that is not permitted
_SCAN_ROW: Final = 3.0
_SCAN_FLOAT: Final = 1 / 3
_SCAN_ENTRY: Final = 1.5
_SCAN_SUM: Final = 1.0
_SCAN_TAIL_ENTRY: Final = 4.0
_PROBE_ROW: Final = 60.0
_PROBE_FLOAT: Final = 0.5
_PROBE_ENTRY: Final = 5.0
_PROBE_TABLE: Final = 150.0
_HASH_SAMPLE: Final = {"dense": 0.35, "sparse": 2.8}


def entries_a_row(view: RowView) -> float:
    """Return how many numbers a row holds in the mean."""
    vectors = view.vectors
    if vectors.form == "dense":
        return float(vectors.dense.shape[1])
    return len(vectors.values) / max(1, len(vectors))


def scan_nanoseconds(view: RowView, queries: VectorBatch, inverted: InvertedIndex) -> Float64s:
    """Return (m,): what scanning all rows takes for each query."""
    n = len(view.vectors)
    if view.vectors.form == "dense":
        row = _SCAN_ROW + _SCAN_FLOAT * entries_a_row(view)
        return np.full(len(queries), n * _SCAN_LOOK + view.permitted_count * row)
    tail = (n - inverted.covered) * _SCAN_TAIL_ENTRY * entries_a_row(view)
    entries = inverted.entries(queries).astype(np.float64)
    cost: Float64s = entries * _SCAN_ENTRY + (n * _SCAN_SUM + tail)
    return cost


def hash_nanoseconds(queries: VectorBatch, plan: BandPlan) -> Float64s:
    """Return (m,): what hashing each query and finding its places in the tables takes."""
    if queries.form == "dense":
        entries = np.full(len(queries), queries.dense.shape[1] / 2)
    else:
        entries = np.diff(queries.indptr).astype(np.float64)
    return entries * (plan.samples * _HASH_SAMPLE[queries.form]) + plan.bands * _PROBE_TABLE


def row_nanoseconds(view: RowView) -> float:
    """Return what scoring one row somewhere in memory takes."""
    step = _PROBE_FLOAT if view.vectors.form == "dense" else _PROBE_ENTRY
    return _PROBE_ROW + step * entries_a_row(view)
