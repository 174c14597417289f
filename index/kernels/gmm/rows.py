"""Vectors as kernels take them, and the rows that may be hits."""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt8s, UInt32s
from gcws_search.index.contracts.batches import VectorBatch


class Rows(NamedTuple):
    """Rows or queries, dense or sparse; the parts of the other form are empty."""

    dense: Float32s  # (n, width); (0, 0) when sparse
    indptr: Int64s  # (n + 1,): compressed rows: where each row's entries begin
    slots: UInt32s  # (nnz,): rising within a row
    values: Float32s  # (nnz,): magnitudes, positive
    norms: Float32s  # (n,): L1 norms


class HitFilter(NamedTuple):
    """Which rows may be hits of m queries."""

    permitted: UInt8s  # (n,): 0 for rows that no query may return
    skip: Int64s  # (m,): a row that the query must not return, or -1
    min_score: np.float32  # lower scores are not wanted


def rows_of(batch: VectorBatch) -> Rows:
    """Return the arrays of a batch."""
    return Rows(batch.dense, batch.indptr, batch.slots, batch.values, batch.norms)
