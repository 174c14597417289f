"""Exact GMM of one query and chosen rows, and how far float32 scores can be from it."""

from __future__ import annotations

from typing import Final

import numpy as np

from index.arrays import Float64s, Int64s
from index.batches import VectorBatch
from index.kernels.gmm_dense import exact_dense
from index.kernels.gmm_sparse import exact_sparse

EPSILON: Final = 2.0**-24
"""Relative error of one float32 rounding."""


def exact_scores(vectors: VectorBatch, query: VectorBatch, rows: Int64s) -> Float64s:
    """Return the float64 GMM of one query and chosen rows."""
    out = np.empty(len(rows), np.float64)
    if vectors.form == "dense":
        exact_dense(query.dense[0], vectors.dense, rows, out)
    else:
        exact_sparse(
            query.slots, query.values, vectors.indptr, vectors.slots, vectors.values, rows, out
        )
    return out


def tolerance(vectors: VectorBatch, queries: VectorBatch) -> float:
    """Return how far a float32 score of a query and a row can be from the exact one."""
    if vectors.form == "dense":
        return float((vectors.dense.shape[1] / 32 + 16) * EPSILON)
    return 2.0 * (queries.longest + 8) * EPSILON
