"""When neighbour lists are made, kept up, made anew and kept in a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final

import numpy as np

from index.arrays import Int64s, UInt8s, UInt64s
from index.batches import VectorBatch
from index.beginning import begun
from index.calibration import Calibration, Effort
from index.checks import LIMIT, RECALL, Checks, shares_found, to_check
from index.coarse import Rounding
from index.costs import counted_scan_nanoseconds, dense_scan_nanoseconds, scan_nanoseconds
from index.hits import BatchHits, RowView
from index.hop import Hop, HopSearch, least_walk_nanoseconds
from index.inverted import InvertedIndex
from index.kernels.walk import NONE
from index.keying import Keying
from index.measuring import QUERIES, calibrate
from index.neighbours import LEAST_ROWS, WIDTH, Lists, Neighbours, keys_by_row
from index.parallel import Workers
from index.params import SearchParams
from index.rounded import RoundedRows
from index.saved import UNKNOWN, Saved, count_of
from index.scan import scan, scan_work
from index.sweeps import swept
from index.tables import Tables

GROWTH: Final = 1.5
"""Lists are made anew when the collection has grown by this factor since."""
_LEAST_LIVE: Final = 0.75
"""They are made anew, too, when fewer of the rows linked than this are still alive."""
_LEAST_NEW: Final = 1 / 64
"""And when the calibration does not hold for the rows put since, and they are this share."""
_MOST_ADDED: Final = 1.0
"""Lists are given up when more rows than this share of those linked are put at once."""

_WIDE: Final = 128
"""Rows of more floats are measured by half as many queries, for the exact scan takes longer."""
_PIECES: Final = 4
"""Walks take unlike time: those measured are cut into so many parts for each thread."""
_COSTED: Final = 64
"""Queries by which the cost of a scan is judged."""
_WORTH: Final = 2.0
"""Lists are worth their making where scans take more than so many times what a walk does."""
_MOST_HELD_OUT: Final = 32
"""At most one row in so many is held out of the lists at first, to measure them."""

_NOTES_VERSION: Final = 8
"""Of what is kept: lists and notes of another version are made anew."""

_MOST_BUILT: Final = 1 << 40
"""Lists of more rows than that are none."""

KeysOf = Callable[[VectorBatch, int], UInt64s]


def is_overdue(hop: Hop | None, rows: int, live: int) -> bool:
    """Return whether lists should be made, or made anew."""
    if live < LEAST_ROWS:
        return False
    if hop is None or rows > GROWTH * hop.built:
        return True
    if hop.neighbours.checks.fail and rows - hop.built > _LEAST_NEW * rows:
        return True
    # Rows that were dead when the lists were made are in none: they do not count.
    linked = hop.calibration.rows + max(0, rows - hop.built)
    return live < _LEAST_LIVE * linked


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
    return counted_scan_nanoseconds(work) <= _WORTH * least_walk_nanoseconds(entries)


def made(
    rows: VectorBatch, alive: UInt8s, tables: Tables, inverted: InvertedIndex, keying: Keying,
    *, workers: Workers, stop: threading.Event,
) -> tuple[Hop, Tables] | None:  # fmt: skip
    """Return lists of all rows, linked in random order, and calibrated; None when stopped.

    Parameters
    ----------
    rows : VectorBatch
    alive : (n,) uint8
    tables : Tables
    inverted : InvertedIndex
    keying : Keying
    workers : Workers
    stop : threading.Event

    Returns
    -------
    tuple of Hop and Tables, or None
        The lists, and tables enough for them.
    """
    order = np.random.default_rng(0).permutation(np.flatnonzero(alive))
    wide = rows.dense.shape[1] > _WIDE
    held_out = order[: min(QUERIES // 2 if wide else QUERIES, len(order) // _MOST_HELD_OUT)]
    neighbours = begun(rows, alive, keying.plan.bands, workers)
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
    walks = HopSearch(neighbours, lists, tables, keying.keys, workers)
    try:
        calibration = _calibrated(walks, view, held_out, keys[held_out], inverted, stop)
    except _Stopped:
        return None
    neighbours.link(
        held_out, keys[held_out], tables, lists, alive, linked=len(linked), workers=workers,
        stop=stop,
    )  # fmt: skip
    if stop.is_set():  # some rows may have been left out
        return None
    neighbours.all_linked()
    return Hop(neighbours, lists, calibration, len(rows)), tables


class _Stopped(Exception):
    """The way out of a calibration that is no longer wanted."""


def _calibrated(
    walks: HopSearch, view: RowView, held_out: Int64s, keys: UInt64s, inverted: InvertedIndex,
    stop: threading.Event,
) -> Calibration:  # fmt: skip
    """Measure walks by rows that are not linked yet, of which the keys are known."""
    others = view.permitted.copy()
    others[held_out] = 0
    hidden = np.zeros(len(view.vectors), np.uint8)
    hidden[held_out] = 1
    linked = RowView(view.vectors, others, view.permitted_count - len(held_out))
    rounded = RoundedRows.of(walks.lists.coarse, walks.workers)
    none = np.full(len(held_out), -1, np.int64)

    def searching(chosen: Int64s) -> tuple[HopSearch, VectorBatch]:
        """Return what searches for some of the rows, and these as queries."""
        if stop.is_set():
            raise _Stopped

        def keys_of(_: VectorBatch, tables: int) -> UInt64s:
            return keys[chosen, :tables]

        return replace(walks, keys_of=keys_of), view.vectors[held_out[chosen]]

    def sweep(
        chosen: Int64s, limit: int, efforts: Sequence[Effort], flat: float
    ) -> list[BatchHits]:
        own, queries = searching(chosen)
        return swept(own, view, queries, limit, efforts, flat=flat, hidden=hidden, pieces=_PIECES)

    def search(chosen: Int64s, limit: int, effort: Effort, flat: float) -> BatchHits:
        own, queries = searching(chosen)
        params = SearchParams(limit=limit)
        walk = replace(own.walk(view, limit, effort), rare=inf, flat=flat)
        return own.search(
            view, queries, params, none[chosen], walk, hidden=hidden, pieces=_PIECES
        ).hits

    def true(chosen: Int64s, limit: int) -> BatchHits:
        params = SearchParams(limit=limit, recall=1.0)
        return scan(
            linked, view.vectors[held_out[chosen]], params, skip=none[chosen], inverted=inverted,
            workers=walks.workers, with_ties=False, rounded=rounded,
        )  # fmt: skip

    queries, rows = view.vectors[held_out[:_COSTED]], linked.permitted_count
    if queries.form == "dense":
        cost = float(scan_nanoseconds(linked, queries).mean())
        alone = dense_scan_nanoseconds(linked, 1)
    else:
        work = scan_work(linked, queries, LIMIT, skip=none[:_COSTED], inverted=inverted)
        cost = alone = counted_scan_nanoseconds(work)
    return calibrate(
        len(held_out), rows, sweep, search, true, scan_nanoseconds=cost / rows,
        most_candidates=walks.candidates_within(view, GROWTH * alone),
    )  # fmt: skip


def extended(
    hop: Hop, rows: VectorBatch, keys: UInt64s, tables: Tables, inverted: InvertedIndex,
    keys_of: KeysOf, *, workers: Workers,
) -> Hop | None:  # fmt: skip
    """Return the lists with the last len(keys) of ``rows`` linked; None gives the lists up.

    Parameters
    ----------
    hop : Hop
    rows : VectorBatch
        All rows.
    keys : (n, bands) uint64
        Of the new rows.
    tables, inverted : Tables, InvertedIndex
        The new rows included.
    keys_of : callable
        See `HopSearch`.
    workers : Workers
    """
    first = len(rows) - len(keys)
    if len(keys) > _MOST_ADDED * first:
        return None
    walks = HopSearch(hop.neighbours, hop.lists, tables, keys_of, workers)
    effort = hop.calibration.effort(LIMIT, RECALL)
    if effort is None:
        return replace(hop, lists=hop.neighbours.extend(rows, keys, tables, workers))
    chosen = to_check(first, len(rows), rows.numbers)
    check = partial(_checked, hop, walks, rows, effort=effort, inverted=inverted)
    lists = hop.neighbours.extend(rows, keys, tables, workers, checked=chosen, check=check)
    return replace(hop, lists=lists)


def _checked(
    hop: Hop, walks: HopSearch, rows: VectorBatch, lists: Lists, new: Int64s, *,
    effort: Effort, inverted: InvertedIndex,
) -> Checks:  # fmt: skip
    """Return the checks with those of some new rows, while no list names them.

    Nor are rows looked for that were dead when the lists were made: no list names them either.
    """
    walks = replace(walks, lists=lists)
    hidden = (lists.links[: len(rows), 0] == NONE).astype(np.uint8)
    queries, params = rows[new], SearchParams(limit=LIMIT)
    none = np.full(len(new), -1, np.int64)
    view = RowView(rows, np.ones(len(rows), np.uint8), len(rows))
    walk = replace(walks.walk(view, LIMIT, effort), rare=effort.rare, flat=hop.calibration.flat)
    found = walks.search(view, queries, params, none, walk, hidden=hidden).hits
    others = RowView(rows, 1 - hidden, len(rows) - int(hidden.sum()))
    true = scan(
        others, queries, replace(params, recall=1.0), skip=none, inverted=inverted,
        workers=walks.workers,
    )  # fmt: skip
    return hop.neighbours.checks.with_more(shares_found(found, true), effort.recall)


def adopted(
    hop: Hop, rows: VectorBatch, tables: Tables, inverted: InvertedIndex, keys_of: KeysOf,
    *, workers: Workers,
) -> Hop | None:  # fmt: skip
    """Return lists that were made for the first of ``rows``, with the later ones linked.

    None when they are too many.
    """
    known = len(hop.lists)
    if len(rows) == known:
        return hop
    if len(rows) > GROWTH * known:
        return None
    keys = keys_by_row(tables, hop.neighbours.linked_through(tables), known)
    return extended(hop, rows, keys, tables, inverted, keys_of, workers=workers)


def renumbered(hop: Hop, rows: VectorBatch, new_rows: Int64s) -> Hop | None:
    """Return the lists after a compaction; None where too little of them is left."""
    if len(rows) < LEAST_ROWS:
        return None
    if is_overdue(hop, len(new_rows), len(rows)):  # what is left would not keep its promises
        return None
    neighbours = hop.neighbours.renumber(new_rows, rows)
    built = min(hop.built, len(rows))
    return Hop(neighbours, neighbours.cover(rows), hop.calibration, built)


def saved(hop: Hop) -> Saved:
    """Return what to keep of lists."""
    rounding = hop.neighbours.rounding
    notes: dict[str, Any] = {
        "version": _NOTES_VERSION,
        "rounding": [rounding.kind, rounding.step, rounding.origin],
        "tables": hop.lists.tables,
        "narrow": hop.neighbours.narrow,
        "built": hop.built,
        "calibration": hop.calibration.to_dict(),
        "shortfalls": list(hop.neighbours.checks.shortfalls),
    }
    return Saved(hop.lists.links, notes)


def restored(
    rows: VectorBatch, tables: Tables, kept: Saved, keying: Keying, workers: Workers
) -> tuple[Hop, Tables] | None:
    """Return lists as they were kept, and tables enough for them; None where none were.

    Rows without a list are linked anew.
    """
    unknown = np.flatnonzero(kept.links[:, 0] == UNKNOWN)
    if len(rows) < LEAST_ROWS or len(unknown) > len(rows) / 2:
        return None
    notes = kept.notes
    if notes.get("version") != _NOTES_VERSION:
        return None
    try:
        rounding = Rounding.from_list(notes["rounding"], rows.form)
        used = count_of(notes["tables"], 1, keying.plan.bands)
        calibration = Calibration.from_dict(notes["calibration"])
        built = count_of(notes["built"], 1, _MOST_BUILT)
        narrow = notes["narrow"] is True and rows.form == "dense"
        checks = Checks.from_list(notes.get("shortfalls", []))
    except (KeyError, ValueError):  # `Checkpoints` tells of it
        return None
    neighbours = Neighbours(rounding, rows, used, narrow=narrow, checks=checks)
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
    return Hop(neighbours, lists, calibration, min(built, len(rows))), tables
