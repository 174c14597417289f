"""Walks by several efforts at once, as they are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gcws_search.index.contracts.arrays import UInt8s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import CANDIDATES, BatchHits, RowView
from gcws_search.index.graph.neighbour_graph import BESIDE
from gcws_search.index.graph.recall_curve import BeamSetting
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.kernels.graph.sweep import sweep


def swept(  # noqa: PLR0913 (what a search is made of, and how)
    search: GraphSearch,
    view: RowView,
    queries: VectorBatch,
    limit: int,
    efforts: Sequence[BeamSetting],
    *,
    flat: float,
    hidden: UInt8s,
    pieces: int,
) -> list[BatchHits]:
    """Return what walks of each effort find, by one walk for each query; none is walked for twice.

    Parameters
    ----------
    search : GraphSearch
    view : RowView
    queries : VectorBatch
        None of them among the rows that are not hidden.
    limit : int
    efforts : sequence of BeamSetting
        For the limit, rising: all by lists, or all by reach and through the same tables.
    flat : float
        See `Calibration`.
    hidden : (n,) uint8
        See `GraphSearch.search`.
    pieces : int
        See `Pools.split`.

    Returns
    -------
    list of BatchHits
        One an effort. Of what a query cost, method, tables and candidates are told.
    """
    m, lists, rounding = len(queries), search.lists, search.lists.coarse.rounding
    vectors, walk, last = view.vectors, search.walk(view, limit, efforts[-1]), efforts[-1]
    copies, copy_norms = rounding.round(queries.dense, queries.norms)
    sizes, spaces = walk.sizes, search.neighbours.spaces
    if queries.form == "sparse":
        sizes = sizes.for_queries(queries.longest)
    shape = m, len(efforts)
    scores, rows = np.empty((*shape, limit), np.float64), np.empty((*shape, limit), np.int64)
    found, candidates = np.empty(shape, np.int64), np.empty(shape, np.int64)
    steps = np.array([(each.beam + 1, each.lists, each.reach) for each in efforts])
    whole: tuple[Any, ...] = (
        search.keys_of(queries, walk.tables),
        copies,
        copy_norms,
        scores,
        rows,
        found,
        candidates,
    )

    def run(first: int, end: int) -> None:
        some = queries[first:end]
        keys, copies, copy_norms, *out = (each[first:end] for each in whole)
        with spaces.taken(sizes) as space:
            sweep(
                lists.coarse.addresses,
                space,
                search.tables.addresses,
                BESIDE,
                lists.links,
                len(vectors),
                copies,
                copy_norms,
                some.dense,
                some.indptr,
                some.slots,
                some.values,
                keys,
                vectors.dense,
                view.permitted,
                view.permitted_count < len(vectors),
                hidden,
                steps,
                walk.efforts[1],
                min(last.beam, max(last.places, limit)),
                flat,
                walk.rescored,
                *out,
            )

    search.workers.split(m, run, least=8, pieces=pieces)
    work = np.tile(walk.work, (len(efforts), m, 1))
    work[:, :, CANDIDATES] = candidates.T
    return [
        BatchHits(rows[:, i], scores[:, i], found[:, i], work[i], np.zeros(m))
        for i in range(len(efforts))
    ]
