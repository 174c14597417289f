"""The exact scan for a query some of whose names no coordinate of a fixed space has.

Their weights are part of the vector: the transform sees them, and they count in Σ max. They share
nothing with any item, so each adds its magnitude to the total mass alone.
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
    """Return the hits of a query, by looking at all permitted rows.

    memory: of fixed dim.
    query: coordinates from ``dim`` on are of names that the space does not have.
    Raises BackendNotFound, InvalidParameter (another score than the exact GMM is asked for, or
        another backend), InvalidVector (at ``(0, …)``: a number is not finite, or nothing is left
        of the vector).
    """
    view = memory.view
    space = view.space
    memory.index_of(view, backend)
    for name, asked in (("backend", backend), ("rerank", params.rerank)):
        if asked not in (None, "gmm", memory.backend.kind):
            raise InvalidParameter(
                expected="no other than the exact GMM, for the query has unknown names",
                got=repr(asked),
                loc=(name,),
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
    """Return the permitted rows that may be hits, of scores within ``slack`` of the exact ones."""
    rows = np.flatnonzero((permitted != 0) & (scores >= params.min_score - slack))
    if len(rows) > params.limit:
        known = scores[rows]
        last = np.partition(known, len(rows) - params.limit)[len(rows) - params.limit]
        rows = rows[known >= last - slack]
    return rows


def scan_with_mass(
    view: View, permitted: UInt8s, known: VectorBatch, mass: float, params: SearchParams
) -> QueryResults:
    """Return the hits of a query to which mass is added that no item shares, by float32 scores."""
    scores = with_mass(gmm_matrix(known, view.vectors)[0], known, view.vectors, mass)
    rows = np.flatnonzero(permitted)
    return _rank(view, permitted, rows, scores[rows], params)


def _rank(
    view: View, permitted: UInt8s, rows: Int64s, scores: Float64s, params: SearchParams
) -> QueryResults:
    """Return the best of rows and their scores as hits."""
    order = np.argsort(-scores, kind="stable")[: int(np.count_nonzero(scores >= params.min_score))]
    if len(order) > params.limit:  # those that tie with the last are told apart by their ids
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
    """Return what a query has in the space, and the magnitude of all else; see `widen`."""
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
    """Return a query in a space that has its coordinates from ``dim`` on too, transformed.

    Raises InvalidVector (as of `scan_with_unknown`).
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
    """Return the scores of a query to which mass is added that no row shares."""
    known = np.maximum(scores.astype(np.float64), 0)  # of rows that share nothing, but for rounding
    if mass == 0:
        return known
    total = float(query.norms[0]) + rows.norms.astype(np.float64)
    shared = known * total / (1 + known)  # of GMM = shared / (total - shared)
    found: Float64s = shared / (total + mass - shared)
    return found
