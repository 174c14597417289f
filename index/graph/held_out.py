"""Queries of a calibration and their hits: held-out items, and sums of two of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt8s, UInt32s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, concatenate
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.graph.recall_curve import NO_EXTENSION, BeamSetting, Extension, SearchSetting
from gcws_search.index.graph.search import TIED_SHARE, GraphSearch
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import PIECES, end_if

TYPICAL, HARD, FOREIGN, TIED = range(4)
"""Tiers of queries; all but the first are extended. No curve counts the last, which finds all."""
_NEGATIVE = np.uint32(1)
_QUERIES_A_PART: Final = 2
"""Queries of a thread at least: few are searched for, and some take a hundred times as long."""


def sums_of_two(rows: VectorBatch, first: Int64s, second: Int64s) -> VectorBatch:
    """Return the sums of pairs of rows; they lie between the rows and have larger norms."""
    if rows.form == "dense":
        dense = rows[first].dense + rows[second].dense
        norms = np.abs(dense).sum(axis=1, dtype=np.float64).astype(np.float32)
        return VectorBatch("dense", dense=dense, norms=norms)
    pair, slots, values = (
        np.concatenate(each)
        for each in zip(*map(_entries, (rows[first], rows[second])), strict=True)
    )
    coordinates = (slots >> _NEGATIVE).astype(np.int64)
    signed = np.where(slots & _NEGATIVE, -values, values)
    order = np.lexsort((coordinates, pair))
    pair, coordinates, signed = pair[order], coordinates[order], signed[order]
    new = np.ones(len(pair), np.bool_)
    new[1:] = (np.diff(pair) != 0) | (np.diff(coordinates) != 0)
    starts = np.flatnonzero(new)
    sums = np.add.reduceat(signed, starts)
    nonzero = starts[sums != 0], sums[sums != 0]
    pair, coordinates, sums = pair[nonzero[0]], coordinates[nonzero[0]], nonzero[1]
    count = len(first)
    indptr = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(pair, minlength=count), out=indptr[1:])
    magnitudes = np.abs(sums).astype(np.float32)
    norms = np.bincount(pair, weights=magnitudes, minlength=count).astype(np.float32)
    return VectorBatch(
        "sparse",
        indptr=indptr,
        slots=(2 * coordinates + (sums < 0)).astype(np.uint32),
        values=magnitudes,
        norms=norms,
    )


def _entries(rows: VectorBatch) -> tuple[Int64s, UInt32s, Float32s]:
    """Return the row, slot and value of each non-zero."""
    return np.repeat(np.arange(len(rows)), np.diff(rows.indptr)), rows.slots, rows.values


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Queries that are not among the ``linked`` rows: held-out items, then sums of two of them.

    ``view`` has all live rows; ``hidden`` is 1 for held-out rows. Once ``stop`` is set, the next
    search raises `StoppedError`.
    """

    graph: GraphSearch
    tables: Tables
    view: RowView
    linked: RowView
    items: int
    queries: VectorBatch
    hidden: UInt8s
    keys: UInt64s
    inverted: InvertedIndex
    stop: threading.Event

    @classmethod
    def of(  # noqa: PLR0913 (what a search needs, and how)
        cls,
        graph: GraphSearch,
        tables: Tables,
        view: RowView,
        chosen: Int64s,
        keys: UInt64s,
        inverted: InvertedIndex,
        *,
        sums: int,
        stop: threading.Event,
    ) -> HeldOut:
        """Return the held-out rows of ``view`` given by number, with their keys, and sums."""
        others = view.permitted.copy()
        others[chosen] = 0
        hidden = np.zeros(len(view.vectors), np.uint8)
        hidden[chosen] = 1
        linked = RowView(view.vectors, others, view.permitted_count - len(chosen))
        first = np.arange(sums) % len(chosen)
        between = sums_of_two(view.vectors, chosen[first], chosen[(first + 1) % len(chosen)])
        queries = concatenate([view.vectors[chosen], between])
        if len(between):
            keys = np.concatenate([keys, graph.band_keys.keys(between, keys.shape[1])])
        return cls(graph, tables, view, linked, len(chosen), queries, hidden, keys, inverted, stop)

    @property
    def sums(self) -> int:
        """Number of queries that are sums of two items."""
        return len(self.queries) - self.items

    @property
    def rows(self) -> int:
        """Number of rows that are searched."""
        return self.linked.permitted_count

    @property
    def nearest(self) -> float:
        """The smallest distance that searches can distinguish."""
        return self.graph.nearest

    @property
    def tied(self) -> float:
        """The share of the usual spread within which distances count as tied."""
        return TIED_SHARE

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        """Return the true hits of some queries, given by number."""
        return scan(
            self.linked,
            self.queries[chosen],
            SearchParams(limit=limit, recall=1.0),
            skip=np.full(len(chosen), -1, np.int64),
            inverted=self.inverted,
            workers=self.graph.workers,
            with_ties=False,
        )

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        extension: tuple[int, float] | None = None,
    ) -> BatchHits:
        """Return the hits of some queries, given by number, with a beam setting."""
        end_if(self.stop)
        tier, slack = (0, 1.0) if extension is None else extension
        hard, foreign = (
            Extension(inf, 0.0, slack, each == FOREIGN) if tier == each else NO_EXTENSION
            for each in (HARD, FOREIGN)
        )
        plan = self.graph.plan_for(
            self.tables, self.view, limit, SearchSetting(setting, hard, foreign, judged=limit)
        )
        return self.graph.search(
            plan,
            self.tables,
            self.view,
            self.queries[chosen],
            SearchParams(limit=limit),
            np.full(len(chosen), -1, np.int64),
            keys=self.keys[chosen, : plan.kernel.tables],
            hidden=self.hidden,
            min_part=_QUERIES_A_PART,
            pieces=PIECES,
        )[0]
