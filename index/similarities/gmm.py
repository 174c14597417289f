"""GMM of vectors, Σ min / Σ max over the slots ([GMM] eq. 4-6), and how far float32 is from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.kernels.gmm.dense import exact_dense, matrix_dense
from gcws_search.index.kernels.gmm.sparse import exact_sparse, shared_masses

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


def gmm(a: VectorBatch, b: VectorBatch) -> float:
    """Return the GMM of two single vectors of one space, in float64."""
    return float(exact_scores(b, a, np.zeros(1, np.int64))[0])


def gmm_rows(query: VectorBatch, rows: VectorBatch) -> Float64s:
    """Return the (n,) GMM of one vector with each of n rows, in float64."""
    return exact_scores(rows, query, np.arange(len(rows)))


def gmm_matrix(a: VectorBatch, b: VectorBatch) -> Float32s:
    """Return the (n, m) GMM of n vectors with m others, in float32."""
    out = np.empty((len(a), len(b)), np.float32)
    if a.form == "dense":
        matrix_dense(a.dense, a.norms, b.dense, b.norms, out)
        return out
    for i in range(len(a)):
        shared = out[i]
        entries = slice(a.indptr[i], a.indptr[i + 1])
        shared_masses(a.slots[entries], a.values[entries], b.indptr, b.slots, b.values, 0, shared)
        shared /= a.norms[i] + b.norms - shared
    return out


@dataclass(frozen=True, slots=True)
class GmmKernel:
    """Σ min / Σ max over the slots ([GMM] eq. 4-6)."""

    name = "gmm"

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) GMM of m queries and n rows, to float32 rounding."""
        return gmm_matrix(queries, rows).astype(np.float64)
