"""Candidates by tables alone: rows that share the deepest prefixes with a query."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.kernels.lsh import gather as counters
from gcws_search.index.kernels.lsh.gather import GatheredRows, gather
from gcws_search.index.kernels.lsh.tables import TableSegments
from gcws_search.index.lsh.tables import Tables


def gathered(
    plan: BandPlan,
    tables: Tables,
    view: RowView,
    keys: UInt64s,
    skip: Int64s,
    *,
    pool: int,
    counts: Int64s,
) -> Iterator[Int64s]:
    """Yield the candidates of each query: as many as wanted, or all.

    Of the last bucket the lowest rows are taken, and of rows that share no prefix with the query,
    when all tables are exhausted.

    Parameters
    ----------
    plan : BandPlan
    tables : Tables
    view : RowView
    keys : (m, L) uint64
        Of the queries.
    skip : (m,) int64
        A row that a query must not find, or -1.
    pool : int
    counts : (m, COUNTERS) int64, written in place
        See `GatheredRows.counters`.
    """
    n = len(view.vectors)
    visited, rows = np.empty((n + 63) // 64, np.uint64), np.empty(n, np.int32)
    segments = TableSegments(tables.addresses, plan.bits)
    for i, counted in enumerate(counts):
        out = GatheredRows(rows, counted, visited)
        gather(keys[i], int(skip[i]), view.permitted, segments, plan.depths, pool, out)
        certain, found = (int(counted[each]) for each in (counters.CERTAIN, counters.GATHERED))
        if counted[counters.DEPTH] > 0:
            others: Int64s = np.sort(rows[certain:found]).astype(np.int64)
        else:
            unseen = view.permitted.astype(np.bool_)
            unseen[rows[:found]] = False
            if skip[i] >= 0:
                unseen[skip[i]] = False
            others = np.flatnonzero(unseen)
        chosen = np.concatenate([rows[:certain], others[: pool - certain]])
        yield np.sort(chosen).astype(np.int64)
