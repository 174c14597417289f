"""Search by tables and neighbour lists: a few tables to enter, lists for the rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any, Final

import numpy as np

from index.arrays import Bools, Float64s, Int64s, UInt64s
from index.batches import VectorBatch
from index.calibration import Calibration, Effort, most_lists
from index.coarse import NAMES
from index.costs import scan_nanoseconds
from index.hits import HOP, BatchHits, RowView
from index.kernels import hop as kernel
from index.kernels.coarse import BYTES, SHORTS
from index.neighbours import BESIDE, SEEN_A_PLACE, Lists, Neighbours
from index.parallel import Workers
from index.params import SearchParams
from index.tables import Tables

_ROW: Final = 30.0
_BYTE: Final = 0.06
_ENTRY: Final = 2.0
"""Nanoseconds that scoring a row of a list takes: in all, a byte of it, a non-zero of it."""
_START: Final = 4000.0
"""Nanoseconds that a walk takes before its first row."""
_SPARE: Final = 4
_SPARE_BYTES: Final = 10
"""Rows scored exactly beyond the limit, at least; of rows rounded to bytes half the limit, too."""
_MOST_FILTERED: Final = 20
"""A filter that leaves less than one row in this many is not walked."""
_LEAST_ROOM: Final = 4096
"""Rows that any walk may see."""
_ALL: Final = 100
"""Per cent."""
_MOST_EFFORTS: Final = 1024
"""Efforts that are remembered."""
_UNKNOWN: Final = Effort(0, 0, 0.0, 0.0)
"""Stands for efforts that are not remembered; None is remembered, too."""
_MOST_LOST: Final = 0.5
"""Share of a query's norm that rounding may add or lose."""

_NOBODY: Final = np.empty(0, np.int64)
"""No rows."""


@dataclass(frozen=True, slots=True)
class Hop:
    """The lists of a state, with what is known of them.

    Attributes
    ----------
    neighbours : Neighbours
        The writer's.
    lists : Lists
        This state's.
    calibration : Calibration
    built : int
        Rows there were when the lists were last made in random order.
    """

    neighbours: Neighbours
    lists: Lists
    calibration: Calibration
    built: int
    _efforts: dict[tuple[int, float, int], Effort | None] = field(default_factory=dict)

    def effort(self, view: RowView, params: SearchParams) -> Effort | None:
        """Return the effort of a walk, None where no effort that was measured is enough.

        The best k of a share p of the rows are among the best k / p of all: as far as these the
        walk must go, but only for the share p of them there are hits. A filter may have to do with
        where rows are: a beam twice as wide makes up for that where p is a half or less.
        """
        measured = self.calibration.rows / max(1, self.built)
        share = min(1.0, view.permitted_count / len(view.vectors) / min(1.0, measured))
        asked = params.limit, params.recall, ceil(_ALL * share)
        found = self._efforts.get(asked, _UNKNOWN)
        if found is _UNKNOWN:
            if len(self._efforts) >= _MOST_EFFORTS:  # any recall may be asked for
                self._efforts.clear()
            found = self._efforts[asked] = self._effort(*asked)
        return found

    def strangeness(self, view: RowView, params: SearchParams) -> tuple[float, float]:
        """Return below which score of the last hit a query is rare, and is unlike the items."""
        share = max(1, view.permitted_count) / len(view.vectors)
        return self.calibration.strangeness(ceil(params.limit / share))

    def _effort(self, limit: int, recall: float, percent: int) -> Effort | None:
        """Return the effort for the best ``limit`` of so many per cent of the rows."""
        least = self.calibration.effort(limit, recall)
        if least is None or percent == _ALL:
            return least
        share = percent / _ALL
        effort = self.calibration.effort(ceil(limit / share), recall)
        if effort is None:
            return None
        caution = min(1.0, 2.0 * (1.0 - share))
        beam = ceil((1.0 + caution) * max(least.beam, effort.beam * share))
        lists = max(least.lists, effort.lists)
        return replace(
            effort,
            beam=beam,
            lists=lists + caution * max(0.0, most_lists(beam) - lists),
            candidates=(1.0 + caution) * max(least.candidates, effort.candidates),
        )

    def scan_nanoseconds(self, view: RowView) -> float:
        """Return what the exact scan takes for one query."""
        if view.vectors.form == "dense":
            return float(scan_nanoseconds(view, view.vectors[:1])[0])
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


@dataclass(frozen=True, slots=True)
class Walked:
    """What walks found for m queries.

    Attributes
    ----------
    hits : BatchHits
    answered : (m,) bool
        False where the walk found too few permitted rows, or rounding spoils the query.
    last_scores : (m,) float64
        About the score of the last hit, whatever min_score is.
    """

    hits: BatchHits
    answered: Bools
    last_scores: Float64s


@dataclass(frozen=True, slots=True)
class HopSearch:
    """Search over one state of tables and lists.

    Attributes
    ----------
    neighbours : Neighbours
    lists : Lists
    tables : Tables
    keys_of : callable
        Returns the keys of queries in the first tables: (m, tables) uint64.
    workers : Workers
    """

    neighbours: Neighbours
    lists: Lists
    tables: Tables
    keys_of: Callable[[VectorBatch, int], UInt64s]
    workers: Workers

    def foreseen(self, view: RowView, effort: Effort) -> float:
        """Return the nanoseconds that one query takes."""
        vectors = view.vectors
        row: float
        if vectors.form == "dense":
            row = _ROW + _BYTE * self.lists.coarse.copies.shape[1]
        else:
            row = _ROW + _ENTRY * len(vectors.values) / max(1, len(vectors))
        return _START + effort.candidates * row

    def search(
        self, view: RowView, queries: VectorBatch, params: SearchParams, skip: Int64s,
        effort: Effort, *, hidden: Int64s = _NOBODY,
    ) -> Walked:  # fmt: skip
        """Return what walks found.

        Parameters
        ----------
        view : RowView
        queries : VectorBatch
        params : SearchParams
            ``limit`` and ``min_score`` count here.
        skip : (m,) int64
            A row that a query must not return, or -1.
        effort : Effort
        hidden : (h,) int64
            Distinct rows that are treated as if they were not there.
        """
        m, n = len(queries), len(view.vectors)
        limit = params.limit
        vectors, lists = view.vectors, self.lists
        filtered = view.permitted_count < n
        beam = effort.beam + 1  # the skipped row may take a place
        rounded = lists.coarse.rounding.kind == BYTES
        rescored = min(beam, limit + (max(_SPARE_BYTES, limit // 2) if rounded else _SPARE))
        rounds = lists.coarse.rounding.kind in (BYTES, SHORTS)
        copies, norms = lists.coarse.rounding.round(queries.dense, queries.norms)
        tables = effort.tables(lists.tables)
        keys = self.keys_of(queries, tables)
        longest = int(np.diff(queries.indptr).max(initial=0)) if queries.form == "sparse" else 0
        room = max(_LEAST_ROOM, SEEN_A_PLACE * beam)
        if filtered:
            room *= _MOST_FILTERED
        sizes = self.neighbours.sizes(self.tables, beam, min(room, n + beam) + len(hidden), longest)
        scores, rows = np.empty((m, limit), np.float64), np.empty((m, limit), np.int64)
        found = np.empty(m, np.int64)
        work = np.empty((m, kernel.COUNTERS), np.int64)
        work[:] = HOP, tables, 0, 0, 0, effort.beam, 0, 0, 0

        def run(first: int, last: int) -> None:
            part = slice(first, last)
            some = queries if last - first == m else queries[part]
            with self.neighbours.spaces.taken(sizes) as space:
                kernel.hop(
                    lists.coarse.addresses, space, self.tables.addresses, BESIDE, lists.links, n,
                    copies[part], norms[part], some.dense, some.indptr, some.slots, some.values,
                    keys[part], vectors.dense, vectors.indptr, vectors.slots, vectors.values,
                    view.permitted, filtered, skip[part], hidden, beam, float(effort.lists),
                    rescored, float(params.min_score), scores[part], rows[part], found[part],
                    work[part],
                )  # fmt: skip

        self.workers.split(m, run, least=8)
        expected = np.empty(m, np.float64)
        expected[:] = effort.recall
        hits = BatchHits(rows, scores, found, work[:, : kernel.LISTS], expected)
        wanted = np.minimum(effort.beam + (skip >= 0), view.permitted_count)  # they are found, too
        enough = work[:, kernel.FOUND_ROWS] >= wanted
        if rounds:  # far larger or smaller than the rows, a query is not itself any more
            lost = np.abs(norms * lists.coarse.rounding.step - queries.norms)
            enough &= lost <= _MOST_LOST * queries.norms
        return Walked(hits, enough, work[:, kernel.LAST_SCORE].astype(np.float64) * 1e-6)


def is_worth_walking(view: RowView, params: SearchParams) -> bool:
    """Return whether lists may help at all."""
    return (
        params.recall < 1
        and params.guarantee == "measured"
        and view.permitted_count > 2 * params.limit
        and view.permitted_count * _MOST_FILTERED > len(view.vectors)
    )
