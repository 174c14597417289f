"""Exact GMM as a user would call it: one pair, one against many, many against many."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from index.arrays import Float32s, Float64s
from index.batches import SparseVector, VectorBatch
from index.kernels.gmm_dense import matrix_dense
from index.kernels.gmm_sparse import shared_rows, spread, spread_size
from index.params import MAX_DENSE_DIM, Transform
from index.scan import exact_scores
from index.vectors import VectorSpace


def gmm(a: VectorBatch, b: VectorBatch) -> float:
    """Return the GMM of two single vectors, in float64.

    Parameters
    ----------
    a, b : VectorBatch
        One vector each, of one space.

    Notes
    -----
    Σ min / Σ max over the slots ([GMM] eq. 4-6); in [0, 1], 1 for equal vectors.
    """
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
    longest = int(np.diff(a.indptr).max(initial=0))
    held_slots = np.empty(spread_size(longest), np.uint32)
    held_values = np.zeros(spread_size(longest), np.float32)
    for i in range(len(a)):
        entries = slice(a.indptr[i], a.indptr[i + 1])
        spread(a.slots[entries], a.values[entries], held_slots, held_values)
        shared = out[i]
        shared_rows(held_slots, held_values, b.indptr, b.slots, b.values, 0, shared)
        shared /= a.norms[i] + b.norms - shared
    return out


def similarity(
    a: Sequence[float] | Float32s | SparseVector, b: Sequence[float] | Float32s | SparseVector
) -> float:
    """Return the GMM of two vectors as a user has them, dense or sparse.

    Raises
    ------
    InvalidVector
        A vector is none, or the two do not fit together; row 0 is ``a``, row 1 is ``b``.
    """
    dims = [len(vector) for vector in (a, b) if not isinstance(vector, SparseVector)]
    dim = dims[0] if dims else None
    form = "dense" if dim is not None and dim <= MAX_DENSE_DIM else "sparse"
    space = VectorSpace(dim, "dense" if form == "dense" else "sparse", Transform())
    batch = space.prepare(space.from_items([a, b]))
    return gmm(batch[:1], batch[1:])
