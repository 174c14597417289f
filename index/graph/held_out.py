"""Queries of a calibration: items that are held out, and sums and means of two of them."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s, UInt32s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch, joined
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.graph.recall_curve import (
    NO_EXTENSION,
    BeamSetting,
    Extension,
    SearchSetting,
)
from gcws_search.index.graph.search import GraphSearch
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import end_if

HARD, FOREIGN = 1, 2
"""Tiers of queries whose searches are extended."""
_NEGATIVE = np.uint32(1)
_TINY: Final = float(np.finfo(np.float64).tiny)
_MIN_PART: Final = 2
"""Queries of a thread at least: few are searched for, and some take a hundred times as long."""


def sums_of_two(rows: VectorBatch, first: Int64s, second: Int64s) -> VectorBatch:
    """Return the sums of pairs of rows: they lie between the rows, and have larger norms.

    Parameters
    ----------
    rows : VectorBatch
    first, second : (m,) int64
        The rows of each pair.
    """
    if rows.form == "dense":
        dense = rows.dense[first] + rows.dense[second]
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


def halved(rows: VectorBatch) -> VectorBatch:
    """Return half of each row."""
    half = np.float32(0.5)
    values, norms = rows.values * half, rows.norms * half
    return replace(rows, dense=rows.dense * half, values=values, norms=norms, copies=None)


class Sample(Protocol):
    """Queries, none of them among the rows searched: items, then sums of two, then their means.

    Attributes
    ----------
    items, sums : int
        How many there are of each kind; there are as many means as sums.
    rows : int
        How many rows are searched.
    nearest : float
        The least distance that searches tell from others.
    """

    @property
    def items(self) -> int: ...  # noqa: D102

    @property
    def sums(self) -> int: ...  # noqa: D102

    @property
    def rows(self) -> int: ...  # noqa: D102

    @property
    def nearest(self) -> float: ...  # noqa: D102

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        """Return the true hits of some queries, by number."""

    def best_scores(self, chosen: Int64s) -> Float64s:
        """Return (k,): scores that no row exceeds for some queries, by the norms."""

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        extension: tuple[int, float] | None = None,
    ) -> BatchHits:
        """Return what searches with a beam setting find for some queries, by number.

        With an ``extension`` every search is extended as those of a tier are, with a slack.
        """


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Rows that are not linked yet, as a `Sample`.

    Attributes
    ----------
    graph : GraphSearch
        Of the other rows.
    tables : Tables
    view : RowView
        All rows that are alive.
    linked : RowView
        Those that are linked.
    held_out : int
        How many rows are held out; the other queries are sums of two of them, then their means.
    queries : VectorBatch
        Of m = held_out + 2 · sums.
    hidden : (n,) uint8
        1 for the rows held out.
    keys : (m, t) uint64
        Of the queries.
    inverted : InvertedIndex
    pieces : int
        Parts of the work for each thread.
    stop : threading.Event
        Once it is set, the next search raises `StoppedError`.
    """

    graph: GraphSearch
    tables: Tables
    view: RowView
    linked: RowView
    held_out: int
    queries: VectorBatch
    hidden: UInt8s
    keys: UInt64s
    inverted: InvertedIndex
    pieces: int
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
        pieces: int,
        stop: threading.Event,
    ) -> HeldOut:
        """Return the rows of ``view`` that are held out, by number, with their keys.

        ``sums`` is the number of sums, and of means.
        """
        others = view.permitted.copy()
        others[chosen] = 0
        hidden = np.zeros(len(view.vectors), np.uint8)
        hidden[chosen] = 1
        linked = RowView(view.vectors, others, view.permitted_count - len(chosen))
        first = np.arange(sums) % len(chosen)
        added = sums_of_two(view.vectors, chosen[first], chosen[(first + 1) % len(chosen)])
        between = joined([added, halved(added)])
        queries = joined([view.vectors[chosen], between])
        if len(between):
            keys = np.concatenate([keys, graph.band_keys.keys(between, keys.shape[1])])
        return cls(
            graph,
            tables,
            view,
            linked,
            len(chosen),
            queries,
            hidden,
            keys,
            inverted,
            pieces,
            stop,
        )

    @property
    def items(self) -> int:
        """How many queries are items."""
        return self.held_out

    @property
    def sums(self) -> int:
        """How many queries are sums of two items; as many are means."""
        return (len(self.queries) - self.held_out) // 2

    @property
    def rows(self) -> int:
        """How many rows are searched."""
        return self.linked.permitted_count

    @property
    def nearest(self) -> float:
        """The least distance that searches tell from others."""
        return self.graph.nearest

    def true_hits(self, chosen: Int64s, limit: int) -> BatchHits:
        """Return the true hits of some queries, by number."""
        return scan(
            self.linked,
            self.queries[chosen],
            SearchParams(limit=limit, recall=1.0),
            skip=np.full(len(chosen), -1, np.int64),
            inverted=self.inverted,
            workers=self.graph.workers,
            with_ties=False,
        )

    def best_scores(self, chosen: Int64s) -> Float64s:
        """Return (k,): scores that no row exceeds for some queries, by the norms."""
        norms = self.view.vectors.norms[self.linked.permitted != 0].astype(np.float64)
        own = self.queries.norms[chosen].astype(np.float64)
        nearest = np.clip(own, norms.min(), norms.max())
        greater = np.maximum(np.maximum(own, nearest), _TINY)
        scores: Float64s = np.minimum(own, nearest) / greater
        return scores

    def search(
        self,
        chosen: Int64s,
        limit: int,
        setting: BeamSetting,
        extension: tuple[int, float] | None = None,
    ) -> BatchHits:
        """Return what searches with a beam setting find for some queries, by number."""
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
            keys=self.keys[chosen, : plan.tables],
            hidden=self.hidden,
            min_part=_MIN_PART,
            pieces=self.pieces,
        ).hits


Runs: TypeAlias = list[tuple[int, BatchHits]]
"""True hits of runs of queries; with each run comes the place at which it begins."""


def true_hits_of_runs(
    sample: Sample, limits: Sequence[int], counts: Sequence[int], chosen: Int64s, first: int
) -> Runs:
    """Return the true hits of runs of queries, each for the greatest limit it is judged by.

    Parameters
    ----------
    sample : Sample
    limits, counts : sequence of int
        How many of the first places are judged by each limit.
    chosen : (k,) int64
        The places that are searched for, rising.
    first : int
        Number of the query at place 0.
    """
    runs = []
    ends = sorted({count for count in counts if count > 0})
    for begin, end in zip([0, *ends], ends, strict=False):
        greatest = max(limit for limit, count in zip(limits, counts, strict=True) if count >= end)
        places = chosen[(chosen >= begin) & (chosen < end)]
        if len(places):
            found = sample.true_hits(first + places, min(greatest, sample.rows))
            runs.append((begin, found))
    return runs


def below(runs: Runs, count: int) -> list[BatchHits]:
    """Return the runs that begin below a place."""
    return [found for first, found in runs if first < count]


def last_scores(found: BatchHits, place: int) -> Float64s:
    """Return the score of each query's hit at a place, counted from 1; too few hits score 0."""
    column = np.minimum(place, np.maximum(found.sizes, 1)) - 1
    last: Float64s = found.scores[np.arange(len(found)), column]
    return np.where(found.sizes < place, 0.0, last)


class OtherQueries(NamedTuple):
    """Queries between items that count.

    Attributes
    ----------
    are_means : bool
        Whether they are means, not sums.
    first : int
        Number of the first of their kind.
    places : (k,) int64
        Counted from it, rising.
    runs : list of (int, BatchHits)
        Their true hits; see `true_hits_of_runs`.
    """

    are_means: bool
    first: int
    places: Int64s
    runs: Runs


def between_items(
    sample: Sample,
    limits: Sequence[int],
    counts: Sequence[int],
    lowest: Sequence[float],
    *,
    enough: int,
) -> OtherQueries:
    """Return the sums of two items, or where too few are in range the means of two.

    Parameters
    ----------
    sample : Sample
    limits, counts : sequence of int
        See `true_hits_of_runs`.
    lowest : sequence of float
        By the limits, the scores below which queries are out of range.
    enough : int
        Sums in range for the first limit.
    """
    found = _in_reach(sample, sample.items, limits, counts, min(lowest))
    lasts = [last_scores(each, min(limits[0], sample.rows)) for each in below(found[1], counts[0])]
    if sum(np.count_nonzero(each >= lowest[0]) for each in lasts) >= enough:
        return OtherQueries(False, sample.items, *found)
    first = sample.items + sample.sums
    return OtherQueries(True, first, *_in_reach(sample, first, limits, counts, min(lowest)))


def _in_reach(
    sample: Sample, first: int, limits: Sequence[int], counts: Sequence[int], lowest: float
) -> tuple[Int64s, Runs]:
    """Return the places of queries that may score as much by their norms, and their true hits."""
    places = np.arange(sample.sums)
    places = places[sample.best_scores(first + places) >= lowest]
    return places, true_hits_of_runs(sample, limits, counts, places, first)
