"""Groups of rows that are equal bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import AnyArray, Bools, Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch

_BLOCK: Final = 1024
"""Rows whose numbers are folded in at a time: the cache holds them."""
_ZERO: Final = np.float32(0.0)
_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)


def equal_groups(
    rows: VectorBatch, chosen: Int64s, keys: UInt64s | None = None, *, more_than: int
) -> list[Int64s]:
    """Return groups of more than ``more_than`` chosen rows that equal their first row.

    ``keys`` are (n, t) hashes of all rows, if there are any; equal rows have equal hashes.
    """
    if len(chosen) <= more_than:
        return []
    hashes = rows.norms.view(np.uint32).astype(np.uint64)
    if keys is not None:
        _fold_in(hashes, lambda part: keys[part])
    elif rows.form == "sparse":
        _fold_in(hashes, lambda part: _sums(rows[part]))
    hashes = hashes[chosen]
    runs = _runs(hashes, more_than)
    if rows.form == "dense" and runs:  # rows near each other also have equal keys
        near = np.sort(np.concatenate(runs))
        with_values, places = hashes[near], chosen[near]
        # turns -0 into 0
        _fold_in(with_values, lambda part: (rows[places[part]].dense + _ZERO).view(np.uint32))
        runs = [near[run] for run in _runs(with_values, more_than)]
    groups = []
    for run in runs:
        alike = chosen[run]
        while len(alike) > more_than:  # different rows may have equal hashes
            equal = _equal_to_first(rows, alike)
            if np.count_nonzero(equal) > more_than:
                groups.append(alike[equal])
            alike = alike[~equal]
    return groups


def _sums(rows: VectorBatch) -> UInt64s:
    """Return (m, 1) sums of the hashed entries of sparse rows."""
    entries = rows.slots.astype(np.uint64) << np.uint64(32) | rows.values.view(np.uint32)
    for _ in range(2):
        entries *= _MULTIPLIER
        entries ^= entries >> np.uint64(29)
    return np.add.reduceat(entries, rows.indptr[:-1])[:, None]


def _fold_in(hashes: UInt64s, numbers: Callable[[slice], AnyArray]) -> None:
    """Fold the (m, k) numbers of runs of rows into (n,) hashes, in place."""
    for start in range(0, len(hashes), _BLOCK):
        part = slice(start, start + _BLOCK)
        for column in numbers(part).T:
            hashes[part] = (hashes[part] ^ column) * _MULTIPLIER


def _runs(hashes: UInt64s, more_than: int) -> list[Int64s]:
    """Return the places, ascending, of each hash that more than ``more_than`` rows have."""
    order = np.argsort(hashes, kind="stable")
    held = hashes[order]
    starts = np.flatnonzero(np.append(True, held[1:] != held[:-1]))
    sizes = np.diff(np.append(starts, len(held)))
    return [
        order[starts[run] : starts[run] + sizes[run]] for run in np.flatnonzero(sizes > more_than)
    ]


def _equal_to_first(rows: VectorBatch, some: Int64s) -> Bools:
    """Return which of some rows equal the first of them."""
    equal: Bools = rows.norms[some] == rows.norms[some[0]]
    near = some[equal]
    if rows.form == "dense":
        equal[equal] = (rows[near].dense == rows[near[:1]].dense).all(axis=1)
        return equal
    first, last = rows.indptr[some[0]], rows.indptr[some[0] + 1]
    same = rows.indptr[near + 1] - rows.indptr[near] == last - first
    places = rows.indptr[near[same]][:, None] + np.arange(last - first)
    for entries in (rows.slots, rows.values):
        still = (entries[places] == entries[first:last]).all(axis=1)
        same[same] = still
        places = places[still]
    equal[equal] = same
    return equal
