"""Search by tables and neighbour lists: a few tables to enter, lists for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import GRAPH, BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.cost_model import dense_scan_nanoseconds
from gcws_search.index.graph.neighbour_graph import (
    BESIDE,
    SEEN_A_PLACE,
    NeighbourGraph,
    NeighbourLists,
)
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration
from gcws_search.index.graph.search_plan import SearchPlan, SearchPlans
from gcws_search.index.kernels.gmm.tiled_scan import MANY
from gcws_search.index.kernels.graph import batch_search as kernel
from gcws_search.index.kernels.quantized.rows import BYTES, SHORTS
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import NAMES

_ROW: Final = 30.0
_BYTE: Final = 0.06
_ENTRY: Final = 2.0
"""Nanoseconds that scoring a row of a list takes: in all, a byte of it, a non-zero of it."""
_START: Final = 4000.0
"""Nanoseconds that a walk takes before its first row."""
_MIN_WALKED: Final = 400
"""Rows that a walk for good recall scores at least: fingerprints took 420 at 0.95."""
_SPARE: Final = 4
"""Rows scored exactly beyond the limit, at first."""
_MIN_AT_FIRST: Final = 10
"""Of rows rounded to whole numbers so many in all, at least: a line is fitted to their scores."""
_SPARE_ROUNDED: Final = 10
"""Rows scored exactly beyond the limit where the first leave hits in doubt (`kernels.doubt`); of
bytes half the limit, if that is more. Of rows of 45 raw numbers in 16 bits with room for the
greatest, 4 alone left recall at 0.989 at most, 10 bring 0.994."""
_MAX_FILTERED: Final = 20
"""A filter that leaves less than one row in this many is not walked."""
_MIN_ROOM: Final = 4096
"""Rows that any walk may see."""
_NEW: Final = 10.0
"""All is in doubt once one row in this many is newer than the calibration."""
_FARTHER: Final = 1.1
"""A walk for half of the rows or less reaches so many times as far, or as the last hit at least."""
_ALL: Final = 100
"""Per cent."""
_MAX_TOGETHER: Final = 512
"""Of more queries together none is scanned in less time."""

_NOBODY: Final = np.empty(0, np.uint8)
"""Hides no row."""


@dataclass(frozen=True, slots=True)
class GraphIndex:
    """The lists of a state, with what is known of them.

    Attributes
    ----------
    neighbours : NeighbourGraph
        Shared with the states before and after.
    lists : NeighbourLists
        This state's.
    calibration : Calibration
    built : int
        Rows there were when the lists were last made in random order.
    walks : SearchPlans
        Planned by this calibration.
    """

    neighbours: NeighbourGraph
    lists: NeighbourLists
    calibration: Calibration
    built: int
    walks: SearchPlans = field(default_factory=SearchPlans)

    def walk(
        self, search: GraphSearch, view: RowView, params: SearchParams, queries: int
    ) -> SearchPlan | None:
        """Return how to walk, None where no effort measured is enough, or a scan is quicker.

        Nor is there one while rows put since the calibration are found less well than it says.

        Parameters
        ----------
        search : GraphSearch
        view : RowView
        params : SearchParams
        queries : int
            How many come in one call: of many, each is scanned for in less time.
        """
        if self.neighbours.checks.fail:
            return None
        live = view.permitted_count if view.sample is None else view.sample.live
        together = 1 if queries == 1 else _together(queries // search.workers.threads)
        asked = (
            params.limit,
            params.recall,
            len(view.vectors),
            view.permitted_count,
            live,
            len(search.tables.segments),
            together,
        )
        return self.walks.get(asked, lambda: self._planned(search, view, params, together))

    def _planned(
        self, search: GraphSearch, view: RowView, params: SearchParams, together: int
    ) -> SearchPlan | None:
        effort = self.effort(view, params)
        if effort is None or search.foreseen(view, effort) > self.scan_nanoseconds(view, together):
            return None
        share = max(1, view.permitted_count) / len(view.vectors)
        known = self.calibration
        strange = known.strange(ceil(params.limit / share), effort.number)
        nearest = known.strange(ceil(1 / share), effort.number)
        walk = search.walk(view, params.limit, effort)
        return replace(
            walk,
            rare=effort.rare,
            strange=strange,
            nearest=nearest,
            flat=known.flat,
        )

    def effort(self, view: RowView, params: SearchParams) -> BeamSetting | None:
        """Return the effort of a walk, None where no effort that was measured is enough.

        The best k of a share p of the rows are among the best k / p of all: as far as these the
        walk must go. A filter may have to do with where rows are: reaching farther makes up for
        that, the more the smaller p is down to a half. Of rows put since nothing was measured.
        Where so little is known, half of the miss is allowed.
        """
        rows = len(view.vectors)
        measured = self.calibration.rows / max(1, self.built)
        share = min(1.0, view.permitted_count / rows / min(1.0, measured))
        percent = ceil(_ALL * share)
        doubt = max(_caution(percent / _ALL), min(1.0, _NEW * (1.0 - self.built / rows)))
        return self._effort(params.limit, 1.0 - (1.0 - params.recall) * (1.0 - doubt / 2), percent)

    def _effort(self, limit: int, recall: float, percent: int) -> BeamSetting | None:
        """Return the effort for the best ``limit`` of so many per cent of the rows."""
        least = self.calibration.effort(limit, recall)
        if least is None or percent == _ALL:
            return least
        share = percent / _ALL
        effort = self.calibration.effort(ceil(limit / share), recall)
        if effort is None:
            return None
        caution = _caution(share)
        number = max(least.number, effort.number)
        number += caution * max(0.0, _FARTHER * max(1.0, number) - number)
        candidates = (1.0 + caution) * max(least.candidates, effort.candidates)
        places = max(limit, least.places)
        filtered = BeamSetting.of(number, places, effort.recall, candidates, effort.rare)
        # As many lists as the best of all rows take among which the hits are.
        return replace(filtered, lists=filtered.lists * effort.places / filtered.places)

    def scan_nanoseconds(self, view: RowView, together: int) -> float:
        """Return what the exact scan takes for one query, of so many together in a thread."""
        if view.vectors.form == "dense":
            return dense_scan_nanoseconds(view, together)
        live = view.sample.live if view.sample is not None else view.permitted_count
        return self.calibration.scan_nanoseconds * live

    def stats(self) -> dict[str, Any]:
        """Return what people may want to know, JSON-able."""
        held = self.lists.links
        return {
            "width": held.shape[1],
            "mean_length": float(np.count_nonzero(held >= 0)) / max(1, len(held)),
            "rows_as": NAMES[self.neighbours.rounding.kind],
            "bytes": self.neighbours.nbytes,
            "made_for_rows": self.built,
            "calibration": self.calibration.to_dict(),
        }


def min_search_nanoseconds(entries: float) -> float:
    """Return what a walk takes that finds little else than the hits.

    Parameters
    ----------
    entries : float
        Non-zeros of a row.
    """
    return _START + _MIN_WALKED * (_ROW + _ENTRY * entries)


@dataclass(frozen=True, slots=True)
class GraphHits:
    """What walks found for m queries.

    Attributes
    ----------
    hits : BatchHits
    outcomes : (m,) uint8
        `ANSWERED` or `UNANSWERED`; see `kernels.graph`.
    """

    hits: BatchHits
    outcomes: UInt8s


@dataclass(frozen=True, slots=True)
class GraphSearch:
    """Search over one state of tables and lists.

    Attributes
    ----------
    neighbours : NeighbourGraph
    lists : NeighbourLists
    tables : Tables
    keys_of : callable
        Returns the keys of queries in the first tables: (m, tables) uint64.
    workers : Workers
    """

    neighbours: NeighbourGraph
    lists: NeighbourLists
    tables: Tables
    keys_of: Callable[[VectorBatch, int], UInt64s]
    workers: Workers

    def foreseen(self, view: RowView, effort: BeamSetting) -> float:
        """Return the nanoseconds that one query takes."""
        return _START + effort.candidates * self._row_nanoseconds(view)

    def candidates_within(self, view: RowView, nanoseconds: float) -> float:
        """Return how many rows one query may score to take no longer."""
        return max(0.0, nanoseconds - _START) / self._row_nanoseconds(view)

    def _row_nanoseconds(self, view: RowView) -> float:
        vectors = view.vectors
        if vectors.form == "dense":
            return float(_ROW + _BYTE * self.lists.coarse.copies.shape[1])
        return _ROW + _ENTRY * len(vectors.values) / max(1, len(vectors))

    def walk(self, view: RowView, limit: int, effort: BeamSetting) -> SearchPlan:
        """Return how to walk with this effort, once for each query; none is strange."""
        lists, n, wider = self.lists, len(view.vectors), effort.wider()
        beam = wider.beam + 1  # the skipped row may take a place
        kind = lists.coarse.rounding.kind
        at_first = limit + _SPARE
        rescored = at_first
        if kind in (BYTES, SHORTS):
            at_first = max(at_first, _MIN_AT_FIRST)
            rescored = limit + max(_SPARE_ROUNDED, limit // 2 if kind == BYTES else 0)
        kept = effort.beam + 1
        room = max(_MIN_ROOM, SEEN_A_PLACE * beam)
        if view.permitted_count < n:
            room *= _MAX_FILTERED
        tables = effort.tables(lists.tables)
        efforts = [
            (each.beam + 1, each.lists, each.reach) for each in (effort, effort.onward(), wider)
        ]
        return SearchPlan(
            effort,
            tables,
            min(kept, at_first),
            min(kept, rescored),
            self.neighbours.sizes(self.tables, beam, min(room, n + beam)),
            np.array(efforts),
            np.array([GRAPH, tables, 0, 0, 0, 0]),
        )

    def search(
        self,
        view: RowView,
        queries: VectorBatch,
        params: SearchParams,
        skip: Int64s,
        walk: SearchPlan,
        *,
        hidden: UInt8s = _NOBODY,
        pieces: int = 1,
    ) -> GraphHits:
        """Return what walks found.

        Parameters
        ----------
        view : RowView
        queries : VectorBatch
        params : SearchParams
            ``limit`` and ``min_score`` count here.
        skip : (m,) int64
            A row that a query must not return, or -1.
        walk : SearchPlan
        hidden : (n,) or (0,) uint8
            1 for rows that no list names, and that are treated as if they were not there.
        pieces : int
            See `Pools.split`.
        """
        m, n, limit, effort = len(queries), len(view.vectors), params.limit, walk.effort
        vectors, lists, rounding = view.vectors, self.lists, self.lists.coarse.rounding
        copies, copy_norms = rounding.round(queries.dense, queries.norms)
        unit = rounding.step if rounding.kind in (BYTES, SHORTS) else 0.0
        sizes, spaces = walk.sizes, self.neighbours.spaces
        if queries.form == "sparse":
            sizes = sizes.for_queries(queries.longest)
        hits = BatchHits(
            np.empty((m, limit), np.int64),
            np.empty((m, limit), np.float64),
            np.empty(m, np.int64),
            np.empty((m, len(walk.work)), np.int64),
            np.empty(m),
        )
        hits.work[:], hits.expected_recall[:] = walk.work, effort.recall
        outcomes = np.empty(m, np.uint8)
        whole: tuple[Any, ...] = (
            self.keys_of(queries, walk.tables),
            copies,
            copy_norms,
            skip,
            hits.scores,
            hits.rows,
            hits.sizes,
            hits.work,
            outcomes,
        )

        def run(first: int, last: int) -> None:
            some, part = queries, whole
            if last - first < m:
                some, part = queries[first:last], tuple(each[first:last] for each in whole)
            keys, copies, copy_norms, skip, *out = part
            space = spaces.take(sizes)
            kernel.search_graph(
                lists.coarse.addresses,
                space.addresses if m > 1 else space.first,
                self.tables.addresses,
                BESIDE,
                lists.links,
                n,
                copies,
                copy_norms,
                unit,
                some.norms,
                some.dense,
                some.indptr,
                some.slots,
                some.values,
                keys,
                vectors.dense,
                view.permitted,
                view.permitted_count < n,
                view.permitted_count,
                skip,
                hidden,
                walk.efforts,
                min(effort.beam, max(effort.places, limit)),
                walk.at_first,
                walk.rescored,
                float(params.min_score),
                walk.flat,
                walk.rare,
                walk.strange,
                walk.nearest,
                *out,
            )
            spaces.give(space)

        self.workers.split(m, run, least=8, pieces=pieces)
        return GraphHits(hits, outcomes)


def _together(queries: int) -> int:
    """Return a power of two that stands for so many queries, 1 for few: plans are remembered."""
    if queries < MANY:
        return 1
    return min(_MAX_TOGETHER, 1 << (queries.bit_length() - 1))


def _caution(share: float) -> float:
    """Return how much is in doubt where only this share of the rows is permitted, 0 to 1."""
    return min(1.0, 2.0 * (1.0 - share))


def pays(view: RowView, params: SearchParams) -> bool:
    """Return whether lists may help at all."""
    return (
        params.recall < 1
        and params.guarantee == "measured"
        and view.permitted_count > 2 * params.limit
        and view.permitted_count * _MAX_FILTERED > len(view.vectors)
    )
