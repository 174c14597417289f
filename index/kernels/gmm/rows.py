"""Vectors as kernels take them, and the rows that may be hits."""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt8s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch


class Rows(NamedTuple):
    """Rows or queries, dense or sparse; the parts of the other form are empty.

    Attributes
    ----------
    dense : (n, width) float32; (0, 0) when sparse
    indptr : (n + 1,) int64
        Compressed rows: where each row's entries begin.
    slots : (nnz,) uint32
        Rising within a row.
    values : (nnz,) float32
        Magnitudes, positive.
    norms : (n,) float32
        L1 norms.
    """

    dense: Float32s
    indptr: Int64s
    slots: UInt32s
    values: Float32s
    norms: Float32s


class HitFilter(NamedTuple):
    """Which rows may be hits of m queries.

    Attributes
    ----------
    permitted : (n,) uint8
        0 for rows that no query may return.
    skip : (m,) int64
        A row that the query must not return, or -1.
    min_score : float32
        Lower scores are not wanted.
    """

    permitted: UInt8s
    skip: Int64s
    min_score: np.float32


def rows_of(batch: VectorBatch) -> Rows:
    """Return the arrays of a batch."""
    return Rows(batch.dense, batch.indptr, batch.slots, batch.values, batch.norms)
