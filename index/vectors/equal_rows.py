"""Groups of rows that are equal to each other, bit for bit."""

from __future__ import annotations

from typing import Final

import numpy as np

from gcws_search.index.contracts.arrays import Bools, Int64s, UInt64s
from gcws_search.index.contracts.batches import VectorBatch

_MULTIPLIER: Final = np.uint64(0x9E3779B97F4A7C15)


def equal_groups(
    rows: VectorBatch, chosen: Int64s, keys: UInt64s, *, more_than: int
) -> list[Int64s]:
    """Return groups of more than ``more_than`` rows that are equal to their first one.

    Parameters
    ----------
    rows : VectorBatch
    chosen : (c,) int64
        The rows compared.
    keys : (c, t) uint64
        Hashes of each: equal rows have equal ones.
    more_than : int

    Returns
    -------
    list of (g,) int64
        Rows, in the order in which they were given.
    """
    if len(chosen) <= more_than:
        return []
    folded = np.zeros(len(chosen), np.uint64)
    for column in keys.T:
        folded = (folded ^ column) * _MULTIPLIER
    order = np.argsort(folded, kind="stable")
    held = folded[order]
    starts = np.flatnonzero(np.append(True, held[1:] != held[:-1]))
    sizes = np.diff(np.append(starts, len(held)))
    groups = []
    for place in np.flatnonzero(sizes > more_than):
        alike = chosen[order[starts[place] : starts[place] + sizes[place]]]
        while len(alike) > more_than:  # rows that are not equal may have equal hashes
            equal = _equal_to_first(rows, alike)
            if np.count_nonzero(equal) > more_than:
                groups.append(alike[equal])
            alike = alike[~equal]
    return groups


def _equal_to_first(rows: VectorBatch, some: Int64s) -> Bools:
    """Return which of some rows are equal to the first of them."""
    equal: Bools = rows.norms[some] == rows.norms[some[0]]
    near = some[equal]
    if rows.form == "dense":
        equal[equal] = (rows.dense[near] == rows.dense[near[0]]).all(axis=1)
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
