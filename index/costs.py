"""What the steps of a search take, in nanoseconds on current processors.

These figures steer the choice between two right answers, tables or scan, so factors of two do not
matter. They depend on live rows alone, never on a clock or on what was deleted before: equal data
give equal choices, also after a restart.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from index.arrays import Float32s, Float64s, Int64s
from index.bands import BandPlan
from index.batches import VectorBatch
from index.hits import LiveSample, RowView
from index.kernels.gmm_sparse import count_shared

_SCAN_ROW: Final = 3.0
_SCAN_FLOAT: Final = 1 / 3
_SCAN_ENTRY: Final = 1.5
_SCAN_SUM: Final = 1.0
_PROBE_ROW: Final = 70.0
_PROBE_FLOAT: Final = 0.4
_PROBE_ENTRY: Final = 5.0
_PROBE_TABLE: Final = 150.0
_HASH_GENERATED: Final = 2.8
_HASH_STORED: Final = 0.9  # one query alone, its parameters read from a far cache


def _sample(view: RowView) -> LiveSample:
    return view.sample if view.sample is not None else LiveSample.of(view.permitted)


def scan_nanoseconds(view: RowView, queries: VectorBatch) -> Float64s:
    """Return (m,): what scanning all rows takes for each query."""
    vectors = view.vectors
    if vectors.form == "dense":
        row = _SCAN_ROW + _SCAN_FLOAT * vectors.dense.shape[1]
        return np.full(len(queries), view.permitted_count * row)
    sample = _sample(view)
    shared = np.empty(len(queries), np.int64)
    count_shared(queries.indptr, queries.slots, vectors.indptr, vectors.slots, sample.rows, shared)
    a_row = shared / max(1, len(sample.rows))
    cost: Float64s = sample.live * (_SCAN_SUM + _SCAN_ENTRY * a_row)
    return cost


def hash_nanoseconds(queries: VectorBatch, plan: BandPlan) -> Float64s:
    """Return (m,): what hashing each query and finding its places in the tables takes."""
    places = plan.bands * _PROBE_TABLE
    if queries.form == "sparse":
        entries, sample = np.diff(queries.indptr), _HASH_GENERATED
    else:
        entries, sample = _nonzeros(queries.dense), _HASH_STORED
    cost: Float64s = entries * (plan.samples * sample) + places
    return cost


def _nonzeros(rows: Float32s) -> Int64s:
    """Return how many entries of each row are not 0."""
    if len(rows) == 1:  # numpy takes ten times as long to count along an axis
        return np.array([np.count_nonzero(rows)], np.int64)
    counts: Int64s = np.count_nonzero(rows, axis=1)
    return counts


def row_nanoseconds(view: RowView) -> float:
    """Return what finding and scoring one row somewhere in memory takes."""
    vectors = view.vectors
    if vectors.form == "dense":
        return float(_PROBE_ROW + _PROBE_FLOAT * vectors.dense.shape[1])
    rows = _sample(view).rows
    entries = int(np.sum(vectors.indptr[rows + 1] - vectors.indptr[rows]))
    return float(_PROBE_ROW + _PROBE_ENTRY * entries / max(1, len(rows)))
