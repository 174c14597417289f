"""Search by shared samples of GCWS, without exact scores."""

from __future__ import annotations

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt16s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import TABLES, BatchHits, RowView
from gcws_search.index.contracts.parameters import GcwsParams, SearchParams
from gcws_search.index.exact.rerank import Ranked
from gcws_search.index.exact.scan import rank_rows
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.hashing.gcws import Gcws
from gcws_search.index.lsh.search import search_tables
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers


def search_by_samples(  # noqa: PLR0913 (what is searched, and for what)
    plan: BandPlan,
    hash_: Gcws,
    gcws: GcwsParams,
    tables: Tables,
    view: RowView,
    queries: VectorBatch,
    *,
    keys: UInt64s,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return candidates of the tables, ranked by the share of their samples that collide.

    The samples are those of the tables, drawn again. Chance collisions of b-bit codes are taken
    off: of unrelated samples a share of 2^-b collides ([BBIT]). ``keys`` are those of the queries.
    """
    chance = 2.0**-gcws.bits if gcws.encoding == "b_bit" else 0.0
    ours = _codes(plan, hash_, gcws, queries)

    def rank(query: int, rows: Int64s) -> Ranked:
        share = np.mean(_codes(plan, hash_, gcws, view.vectors[rows]) == ours[query], axis=1)
        return rank_rows(rows, np.maximum(0.0, (share - chance) / (1.0 - chance)), params)

    return search_tables(
        TABLES, plan, tables, view, keys, rank, params=params, skip=skip, workers=workers
    )


def _codes(plan: BandPlan, hash_: Gcws, gcws: GcwsParams, batch: VectorBatch) -> UInt16s | UInt64s:
    """Return (n, samples): what keys keep of each sample, equal where samples collide."""
    signatures = hash_.sketch(batch)
    if gcws.encoding == "b_bit":
        return signatures.codes(gcws.bits, plan.samples)
    slots = signatures.slots[:, : plan.samples].astype(np.uint64)
    if gcws.encoding == "zero_bit":
        return slots
    levels = signatures.levels[:, : plan.samples].view(np.uint32).astype(np.uint64)
    return slots << np.uint64(32) | levels
