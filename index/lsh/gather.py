"""Candidates by tables alone: rows that share the deepest prefixes with a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt64s
from gcws_search.index.contracts.hits import BANDS, DEPTH, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.rerank import Ranked, batch_hits
from gcws_search.index.hashing.banding import BandPlan
from gcws_search.index.kernels.lsh import gather as counters
from gcws_search.index.kernels.lsh.gather import GatheredRows, gather
from gcws_search.index.kernels.lsh.tables import TableSegments
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers


def search_tables(  # noqa: PLR0913 (what is searched, and for what)
    method: int,
    plan: BandPlan,
    tables: Tables,
    view: RowView,
    keys: UInt64s,
    rank: Callable[[int, Int64s], Ranked],
    *,
    params: SearchParams,
    skip: Int64s,
    workers: Workers,
) -> BatchHits:
    """Return the candidates of m queries by (m, L) keys, as ``rank(query, rows)`` ranks them."""
    m = len(keys)
    counts = np.zeros((m, counters.COUNTERS), np.int64)
    candidates = np.zeros(m, np.int64)
    answers: list[Ranked | None] = [None] * m

    def answer(first: int, last: int) -> None:
        some = slice(first, last)
        found = _candidates(
            plan, tables, view, keys[some], skip[some], pool=params.pool, counts=counts[some]
        )
        for i, rows in enumerate(found, first):
            candidates[i] = len(rows)
            answers[i] = rank(i, rows)

    workers.split(m, answer)
    hits = batch_hits(
        method,
        [each for each in answers if each is not None],
        candidates=candidates,
        scored=0 if params.rerank == "none" else candidates,
    )
    hits.work[:, BANDS] = tables.bands
    hits.work[:, DEPTH] = counts[:, counters.DEPTH]
    return hits


def _candidates(
    plan: BandPlan,
    tables: Tables,
    view: RowView,
    keys: UInt64s,
    skip: Int64s,
    *,
    pool: int,
    counts: Int64s,
) -> Iterator[Int64s]:
    """Yield the candidates of each query: ``pool`` rows, or all.

    Of the last bucket the lowest rows are taken. Once all tables are exhausted, so are rows that
    share no prefix with the query. ``counts`` is written in place; see `GatheredRows.counters`.
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
