"""When neighbour lists are made, kept up, made anew and kept in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np

from gcws_search.index.contracts.arrays import Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams
from gcws_search.index.contracts.saved_index import UNKNOWN, SavedIndex, count_of
from gcws_search.index.cost_model import (
    counted_scan_nanoseconds,
    dense_scan_nanoseconds,
    scan_nanoseconds,
)
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.quantized_scan import BoundedRows
from gcws_search.index.exact.scan import scan, scan_work
from gcws_search.index.graph.beginning import empty_graph
from gcws_search.index.graph.calibrate import QUERIES, calibrate
from gcws_search.index.graph.drift import LIMIT, RECALL, DriftMonitor, shares_found, to_check
from gcws_search.index.graph.neighbour_graph import (
    MIN_ROWS,
    WIDTH,
    NeighbourGraph,
    NeighbourLists,
    keys_by_row,
)
from gcws_search.index.graph.recall_curve import BeamSetting, Calibration
from gcws_search.index.graph.search import GraphIndex, GraphSearch, min_search_nanoseconds
from gcws_search.index.graph.sweeps import swept
from gcws_search.index.kernels.graph.beam_search import NONE
from gcws_search.index.lsh.band_keys import BandKeys
from gcws_search.index.lsh.tables import Tables
from gcws_search.index.threads import Workers
from gcws_search.index.vectors.quantization import Quantizer

GROWTH: Final = 1.5
"""Lists are made anew when the collection has grown by this factor since."""
_MIN_LIVE: Final = 0.75
"""They are made anew, too, when fewer of the rows linked than this are still alive."""
_MIN_NEW: Final = 1 / 64
"""And when the calibration does not hold for the rows put since, and they are this share."""
_MAX_ADDED: Final = 1.0
"""Lists are given up when more rows than this share of those linked are put at once."""

_WIDE: Final = 128
"""Rows of more floats are measured by half as many queries, for the exact scan takes longer."""
_PIECES: Final = 4
"""Walks take unlike time: those measured are cut into so many parts for each thread."""
_COSTED: Final = 64
"""Queries by which the cost of a scan is judged."""
_WORTH: Final = 2.0
"""Lists are worth their making where scans take more than so many times what a walk does."""
_MAX_HELD_OUT: Final = 32
"""At most one row in so many is held out of the lists at first, to measure them."""

_NOTES_VERSION: Final = 8
"""Of what is kept: lists and notes of another version are made anew."""

_MAX_BUILT: Final = 1 << 40
"""Lists of more rows than that are none."""

KeysOf = Callable[[VectorBatch, int], UInt64s]


def is_overdue(graph: GraphIndex | None, rows: int, live: int) -> bool:
    """Return whether lists should be made, or made anew."""
    if live < MIN_ROWS:
        return False
    if graph is None or rows > GROWTH * graph.built:
        return True
    if graph.neighbours.checks.fail and rows - graph.built > _MIN_NEW * rows:
        return True
    # Rows that were dead when the lists were made are in none: they do not count.
    linked = graph.calibration.rows + max(0, rows - graph.built)
    return live < _MIN_LIVE * linked


def scans_are_enough(rows: VectorBatch, alive: UInt8s, inverted: InvertedIndex) -> bool:
    """Return whether scans of sparse rows are about as quick as any walk could be.

    Judged by the counted work of scans for some of the rows, so equal rows give equal answers.

    Parameters
    ----------
    rows : VectorBatch
    alive : (n,) uint8
    inverted : InvertedIndex
        Of all rows, but for a few.
    """
    if rows.form == "dense":
        return False
    live = np.flatnonzero(alive)
    chosen = live[:: max(1, len(live) // _COSTED)][:_COSTED]
    view = RowView(rows, alive, len(live))
    work = scan_work(view, rows[chosen], LIMIT, skip=chosen, inverted=inverted)
    entries = float(rows.indptr[-1]) / max(1, len(rows))
    return counted_scan_nanoseconds(work) <= _WORTH * min_search_nanoseconds(entries)


def made(
    rows: VectorBatch,
    alive: UInt8s,
    tables: Tables,
    inverted: InvertedIndex,
    keying: BandKeys,
    *,
    workers: Workers,
    stop: threading.Event,
) -> tuple[GraphIndex, Tables] | None:
    """Return lists of all rows, linked in random order, and calibrated; None when stopped.

    Parameters
    ----------
    rows : VectorBatch
    alive : (n,) uint8
    tables : Tables
    inverted : InvertedIndex
    keying : BandKeys
    workers : Workers
    stop : threading.Event

    Returns
    -------
    tuple of Hop and Tables, or None
        The lists, and tables enough for them.
    """
    order = np.random.default_rng(0).permutation(np.flatnonzero(alive))
    wide = rows.dense.shape[1] > _WIDE
    held_out = order[: min(QUERIES // 2 if wide else QUERIES, len(order) // _MAX_HELD_OUT)]
    neighbours = empty_graph(rows, alive, keying.plan.bands, workers)
    tables = keying.widened(tables, rows, neighbours.tables, workers)
    lists = neighbours.cover(rows)
    keys = keys_by_row(tables, neighbours.linked_through(tables))
    linked = order[len(held_out) :]
    shown = alive.copy()
    shown[held_out] = 0
    neighbours.link(
        linked, keys[linked], tables, lists, shown, linked=0, workers=workers, stop=stop
    )
    if stop.is_set():
        return None
    view = RowView(rows, alive, len(order))
    walks = GraphSearch(neighbours, lists, tables, keying.keys, workers)
    try:
        calibration = _calibrated(walks, view, held_out, keys[held_out], inverted, stop)
    except _Stopped:
        return None
    neighbours.link(
        held_out,
        keys[held_out],
        tables,
        lists,
        alive,
        linked=len(linked),
        workers=workers,
        stop=stop,
    )
    if stop.is_set():  # some rows may have been left out
        return None
    neighbours.all_linked()
    return GraphIndex(neighbours, lists, calibration, len(rows)), tables


class _Stopped(Exception):
    """The way out of a calibration that is no longer wanted."""


def _calibrated(
    walks: GraphSearch,
    view: RowView,
    held_out: Int64s,
    keys: UInt64s,
    inverted: InvertedIndex,
    stop: threading.Event,
) -> Calibration:
    """Measure walks by rows that are not linked yet, of which the keys are known."""
    others = view.permitted.copy()
    others[held_out] = 0
    hidden = np.zeros(len(view.vectors), np.uint8)
    hidden[held_out] = 1
    linked = RowView(view.vectors, others, view.permitted_count - len(held_out))
    rounded = BoundedRows.of(walks.lists.coarse, walks.workers)
    none = np.full(len(held_out), -1, np.int64)

    def searching(chosen: Int64s) -> tuple[GraphSearch, VectorBatch]:
        """Return what searches for some of the rows, and these as queries."""
        if stop.is_set():
            raise _Stopped

        def keys_of(_: VectorBatch, tables: int) -> UInt64s:
            return keys[chosen, :tables]

        return replace(walks, keys_of=keys_of), view.vectors[held_out[chosen]]

    def sweep(
        chosen: Int64s, limit: int, efforts: Sequence[BeamSetting], flat: float
    ) -> list[BatchHits]:
        own, queries = searching(chosen)
        return swept(own, view, queries, limit, efforts, flat=flat, hidden=hidden, pieces=_PIECES)

    def search(chosen: Int64s, limit: int, effort: BeamSetting, flat: float) -> BatchHits:
        own, queries = searching(chosen)
        params = SearchParams(limit=limit)
        walk = replace(own.walk(view, limit, effort), rare=inf, flat=flat)
        return own.search(
            view, queries, params, none[chosen], walk, hidden=hidden, pieces=_PIECES
        ).hits

    def true(chosen: Int64s, limit: int) -> BatchHits:
        params = SearchParams(limit=limit, recall=1.0)
        return scan(
            linked,
            view.vectors[held_out[chosen]],
            params,
            skip=none[chosen],
            inverted=inverted,
            workers=walks.workers,
            with_ties=False,
            rounded=rounded,
        )

    queries, rows = view.vectors[held_out[:_COSTED]], linked.permitted_count
    if queries.form == "dense":
        cost = float(scan_nanoseconds(linked, queries).mean())
        alone = dense_scan_nanoseconds(linked, 1)
    else:
        work = scan_work(linked, queries, LIMIT, skip=none[:_COSTED], inverted=inverted)
        cost = alone = counted_scan_nanoseconds(work)
    return calibrate(
        len(held_out),
        rows,
        sweep,
        search,
        true,
        scan_nanoseconds=cost / rows,
        most_candidates=walks.candidates_within(view, GROWTH * alone),
    )


def extended(
    graph: GraphIndex,
    rows: VectorBatch,
    keys: UInt64s,
    tables: Tables,
    inverted: InvertedIndex,
    keys_of: KeysOf,
    *,
    workers: Workers,
) -> GraphIndex | None:
    """Return the lists with the last len(keys) of ``rows`` linked; None gives the lists up.

    Parameters
    ----------
    graph : GraphIndex
    rows : VectorBatch
        All rows.
    keys : (n, bands) uint64
        Of the new rows.
    tables, inverted : Tables, InvertedIndex
        The new rows included.
    keys_of : callable
        See `GraphSearch`.
    workers : Workers
    """
    first = len(rows) - len(keys)
    if len(keys) > _MAX_ADDED * first:
        return None
    walks = GraphSearch(graph.neighbours, graph.lists, tables, keys_of, workers)
    effort = graph.calibration.effort(LIMIT, RECALL)
    if effort is None:
        return replace(graph, lists=graph.neighbours.extend(rows, keys, tables, workers))
    chosen = to_check(first, len(rows), rows.numbers)
    check = partial(_checked, graph, walks, rows, effort=effort, inverted=inverted)
    lists = graph.neighbours.extend(rows, keys, tables, workers, checked=chosen, check=check)
    return replace(graph, lists=lists)


def _checked(
    graph: GraphIndex,
    walks: GraphSearch,
    rows: VectorBatch,
    lists: NeighbourLists,
    new: Int64s,
    *,
    effort: BeamSetting,
    inverted: InvertedIndex,
) -> DriftMonitor:
    """Return the checks with those of some new rows, while no list names them.

    Nor are rows looked for that were dead when the lists were made: no list names them either.
    """
    walks = replace(walks, lists=lists)
    hidden = (lists.links[: len(rows), 0] == NONE).astype(np.uint8)
    queries, params = rows[new], SearchParams(limit=LIMIT)
    none = np.full(len(new), -1, np.int64)
    view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
    walk = replace(walks.walk(view, LIMIT, effort), rare=effort.rare, flat=graph.calibration.flat)
    found = walks.search(view, queries, params, none, walk, hidden=hidden).hits
    others = RowView(rows, 1 - hidden, len(rows) - int(hidden.sum()))
    true = scan(
        others,
        queries,
        replace(params, recall=1.0),
        skip=none,
        inverted=inverted,
        workers=walks.workers,
    )
    return graph.neighbours.checks.with_more(shares_found(found, true), effort.recall)


def adopted(
    graph: GraphIndex,
    rows: VectorBatch,
    tables: Tables,
    inverted: InvertedIndex,
    keys_of: KeysOf,
    *,
    workers: Workers,
) -> GraphIndex | None:
    """Return lists that were made for the first of ``rows``, with the later ones linked.

    None when they are too many.
    """
    known = len(graph.lists)
    if len(rows) == known:
        return graph
    if len(rows) > GROWTH * known:
        return None
    keys = keys_by_row(tables, graph.neighbours.linked_through(tables), known)
    return extended(graph, rows, keys, tables, inverted, keys_of, workers=workers)


def renumbered(graph: GraphIndex, rows: VectorBatch, new_rows: Int64s) -> GraphIndex | None:
    """Return the lists after a compaction; None where too little of them is left."""
    if len(rows) < MIN_ROWS:
        return None
    if is_overdue(graph, len(new_rows), len(rows)):  # what is left would not keep its promises
        return None
    neighbours = graph.neighbours.renumber(new_rows, rows)
    built = min(graph.built, len(rows))
    return GraphIndex(neighbours, neighbours.cover(rows), graph.calibration, built)


def saved(graph: GraphIndex) -> SavedIndex:
    """Return what to keep of lists."""
    rounding = graph.neighbours.rounding
    notes: dict[str, Any] = {
        "version": _NOTES_VERSION,
        "rounding": [rounding.kind, rounding.step, rounding.origin],
        "tables": graph.lists.tables,
        "narrow": graph.neighbours.narrow,
        "built": graph.built,
        "calibration": graph.calibration.to_dict(),
        "shortfalls": list(graph.neighbours.checks.shortfalls),
    }
    return SavedIndex(graph.lists.links, notes)


def restored(
    rows: VectorBatch, tables: Tables, kept: SavedIndex, keying: BandKeys, workers: Workers
) -> tuple[GraphIndex, Tables] | None:
    """Return lists as they were kept, and tables enough for them; None where none were.

    Rows without a list are linked anew.
    """
    unknown = np.flatnonzero(kept.links[:, 0] == UNKNOWN)
    if len(rows) < MIN_ROWS or len(unknown) > len(rows) / 2:
        return None
    notes = kept.notes
    if notes.get("version") != _NOTES_VERSION:
        return None
    try:
        rounding = Quantizer.from_list(notes["rounding"], rows.form)
        used = count_of(notes["tables"], 1, keying.plan.bands)
        calibration = Calibration.from_dict(notes["calibration"])
        built = count_of(notes["built"], 1, _MAX_BUILT)
        narrow = notes["narrow"] is True and rows.form == "dense"
        checks = DriftMonitor.from_list(notes.get("shortfalls", []))
    except (KeyError, ValueError):  # `Checkpoints` tells of it
        return None
    neighbours = NeighbourGraph(rounding, rows, used, narrow=narrow, checks=checks)
    tables = keying.widened(tables, rows, neighbours.tables, workers)
    lists = neighbours.cover(rows)
    width = min(WIDTH, kept.links.shape[1])
    lists.links[:, :width] = np.maximum(kept.links[:, :width], NONE)
    alive = np.ones(len(rows), np.uint8)
    if len(unknown):
        known = len(rows) - len(unknown)
        keys = keys_by_row(tables, neighbours.linked_through(tables))[unknown]
        neighbours.link(unknown, keys, tables, lists, alive, linked=known, workers=workers)
    neighbours.all_linked()
    # Rows that were dead when the lists were made, or died since, are not there any more.
    return GraphIndex(neighbours, lists, calibration, min(built, len(rows))), tables
