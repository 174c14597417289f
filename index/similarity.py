"""Exact GMM as a user would call it: one pair, one against many, many against many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from index.arrays import Float32s, Float64s, Int64s
from index.batches import SparseVector, VectorBatch
from index.hashing import compressed
from index.kernels.gmm_dense import matrix_dense
from index.kernels.gmm_sparse import shared_rows, spread, spread_size
from index.params import MAX_DENSE_DIM, Form, Transform
from index.scan import exact_scores
from index.vectors import VectorSpace

Vector = Sequence[float] | Float32s | SparseVector
"""A vector as a user has it."""


class Kernel(Protocol):
    """An exact kernel between vectors as they are hashed and scored."""

    @property
    def name(self) -> str:
        """The word that names the kernel in the API."""

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) values of m queries and n rows of one space."""


class GmmKernel:
    """Σ min / Σ max over the slots ([GMM] eq. 4-6)."""

    name = "gmm"

    def scores(self, queries: VectorBatch, rows: VectorBatch) -> Float64s:
        """Return the (m, n) GMM of m queries and n rows, to float32 rounding."""
        return gmm_matrix(queries, rows).astype(np.float64)


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


def similarity(a: Vector, b: Vector) -> float:
    """Return the GMM of two vectors as a user has them, dense or sparse.

    Raises
    ------
    InvalidVector
        A vector is none, or the two do not fit together; row 0 is ``a``, row 1 is ``b``.
    """
    batch = _pair(a, b)
    return gmm(batch[:1], batch[1:])


def rbf(a: Vector, b: Vector, *, gamma: float) -> float:
    """Return exp(-γ(1 - ρ)), ρ the cosine of two vectors ([GMM] §1.5).

    Raises
    ------
    InvalidVector
        See `similarity`.
    """
    batch = _pair(a, b)
    slots = [_entries(batch[row : row + 1]) for row in (0, 1)]
    (slots_a, values_a), (slots_b, values_b) = slots
    # Coordinates, signed: slot 2i + 1 holds the magnitude of a negative x_i.
    _, in_a, in_b = np.intersect1d(slots_a >> 1, slots_b >> 1, return_indices=True)
    signs = np.where((slots_a[in_a] ^ slots_b[in_b]) & 1, -1.0, 1.0)
    # Scaled by the greatest entries, so that squares neither overflow nor vanish.
    top_a, top_b = values_a.max(), values_b.max()
    dot = float(np.sum(signs * (values_a[in_a] / top_a) * (values_b[in_b] / top_b)))
    norms = np.sqrt(np.sum((values_a / top_a) ** 2) * np.sum((values_b / top_b) ** 2))
    return float(np.exp(-gamma * max(0.0, 1.0 - dot / float(norms))))


def _entries(batch: VectorBatch) -> tuple[Int64s, Float64s]:
    """Return the slots of one vector, and their magnitudes in float64."""
    _, slots, values = compressed(batch)
    return slots.astype(np.int64), values.astype(np.float64)


def _pair(a: Vector, b: Vector) -> VectorBatch:
    dims = [len(vector) for vector in (a, b) if not isinstance(vector, SparseVector)]
    dim = dims[0] if dims else None
    form: Form = "dense" if dim is not None and dim <= MAX_DENSE_DIM else "sparse"
    space = VectorSpace(dim, form, Transform())
    return space.prepare(space.from_items([a, b]))
