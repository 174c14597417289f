"""Exact scan for a query with names that no coordinate of a fixed space has.

The unknown names belong to the vector: the transform sees them, and they count in Σ max. No item
has them, so each adds its magnitude only to the total mass.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gcws_search.index.collection.items import QueryResults, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s
from gcws_search.index.contracts.batches import RawBatch, SparseVector, VectorBatch, row_padded
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import SCAN, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams, Transform
from gcws_search.index.exact.containment import scan_contained
from gcws_search.index.payload import Filter
from gcws_search.index.similarities import exact_scores, gmm_matrix, tolerance
from gcws_search.index.vectors.space import VectorSpace


def scan_with_unknown(
    memory: MemoryCollection,
    query: SparseVector,
    params: SearchParams,
    *,
    where: Filter | None = None,
    backend: str | None = None,
) -> QueryResults:
    """Return the hits of a query by a scan of all permitted rows.

    memory: with a fixed dim.
    query: coordinates from ``dim`` on stand for names that the space does not have.
    Raises BackendNotFound, InvalidParameter (another score than the exact GMM is requested, or
        another backend), InvalidVector (at ``(0, …)``: a number is not finite, or the vector
        becomes empty).
    """
    view = memory.view
    space = view.space
    memory.index_of(view, backend)
    for name, asked in (("backend", backend), ("rerank", params.rerank)):
        if asked not in (None, "gmm", memory.backend.kind):
            raise InvalidParameter(
                expected="the exact GMM: the query has unknown names", got=repr(asked), loc=(name,)
            )
    permitted = memory.mask(view, where)
    wider = widen(space, query)
    known, mass = split(space, wider)
    if params.ranking == "containment":
        count = int(np.count_nonzero(permitted))
        found = scan_contained(
            RowView(view.vectors, permitted, count),
            known,
            params,
            skip=np.full(1, -1),
            inverted=memory.backend.inverted(view.state, view.vectors),
            workers=memory.backend.workers,
            unknown=mass,
        )
        found = memory.with_zeros(found, view, permitted, count, params)
        return QueryResults(view, found, params.limit)
    scores = with_mass(gmm_matrix(known, view.vectors)[0], known, view.vectors, mass)
    rows = _near(scores, permitted, params, 4 * tolerance(view.vectors, known))
    chosen = row_padded(view.vectors[rows], wider.width)
    exact = exact_scores(chosen, wider, np.arange(len(rows)))
    return _rank(view, permitted, rows, exact, params)


def _near(scores: Float64s, permitted: UInt8s, params: SearchParams, slack: float) -> Int64s:
    """Return permitted rows that may be hits; ``scores`` are within ``slack`` of the exact ones."""
    rows = np.flatnonzero((permitted != 0) & (scores >= params.min_score - slack))
    if len(rows) > params.limit:
        known = scores[rows]
        last = np.partition(known, len(rows) - params.limit)[len(rows) - params.limit]
        rows = rows[known >= last - slack]
    return rows


def scan_with_mass(
    view: View, permitted: UInt8s, known: VectorBatch, mass: float, params: SearchParams
) -> QueryResults:
    """Return the hits of a query with additional unshared mass, by float32 scores."""
    scores = with_mass(gmm_matrix(known, view.vectors)[0], known, view.vectors, mass)
    rows = np.flatnonzero(permitted)
    return _rank(view, permitted, rows, scores[rows], params)


def _rank(
    view: View, permitted: UInt8s, rows: Int64s, scores: Float64s, params: SearchParams
) -> QueryResults:
    """Return the best of the rows, with their scores, as hits."""
    order = np.argsort(-scores, kind="stable")[: int(np.count_nonzero(scores >= params.min_score))]
    if len(order) > params.limit:  # ties with the last hit are ordered by id
        last = scores[order[params.limit - 1]]
        order = order[: int(np.count_nonzero(scores >= last))]
    rows, scores = rows[order], scores[order]
    found = BatchHits.of(
        SCAN,
        rows.reshape(1, -1),
        scores.reshape(1, -1),
        np.array([len(rows)]),
        expected_recall=1.0,
        candidates=int(np.count_nonzero(permitted)),
        scored=int(np.count_nonzero(permitted)),
    )
    return QueryResults(view, found, params.limit)


def split(space: VectorSpace, wider: VectorBatch) -> tuple[VectorBatch, float]:
    """Return a query's coordinates in the space, and the magnitude of all others; see `widen`."""
    dim = space.dim or 0
    if space.form == "sparse":
        count = int(np.searchsorted(wider.slots, 2 * dim))
        values, rest = wider.values[:count], wider.values[count:]
        known = VectorBatch(
            "sparse",
            indptr=np.array([0, count]),
            slots=wider.slots[:count],
            values=values,
            norms=values.sum(dtype=np.float64, keepdims=True).astype(np.float32),
        )
        return known, float(rest.sum(dtype=np.float64))
    whole = wider.dense
    plain = VectorSpace(dim, "dense", Transform())
    known = plain.prepare(RawBatch("dense", dense=np.ascontiguousarray(whole[:, :dim])))
    return known, float(np.abs(whole[0, dim:]).sum(dtype=np.float64))


def widen(space: VectorSpace, query: SparseVector) -> VectorBatch:
    """Return a transformed query in a space that is widened by the coordinates from ``dim`` on.

    Raises InvalidVector (see `scan_with_unknown`).
    """
    if space.form == "sparse":
        wide = replace(space, dim=None)
        return wide.prepare(wide.from_items([query]))
    dim = space.dim or 0
    indices, values = np.asarray(query.indices), np.asarray(query.values, np.float64)
    count = int(indices.max(initial=dim - 1)) + 1 - dim
    row = np.zeros((1, dim + count))
    row[0, indices] = values
    wide = space.widened(count)
    return wide.prepare(wide.from_dense(row))


def with_mass(
    scores: Float32s | Float64s, query: VectorBatch, rows: VectorBatch, mass: float
) -> Float64s:
    """Return the scores of a query with additional mass that no row shares."""
    known = np.maximum(scores.astype(np.float64), 0)  # rounding can give -0
    if mass == 0:
        return known
    total = float(query.norms[0]) + rows.norms.astype(np.float64)
    shared = known * total / (1 + known)  # of GMM = shared / (total - shared)
    found: Float64s = shared / (total + mass - shared)
    return found
