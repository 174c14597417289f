"""GMM of sparse rows: slots and magnitudes.

m = Σ min over shared slots gives GMM = m / (‖u‖₁ + ‖v‖₁ − m). A query is spread once into a small
open-addressing table of its slots, so that a row costs one look-up per non-zero.

Source: theory of min-max kernels, min + max = sum.
"""

from typing import Any, NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Int64s, UInt32s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.vector import at, keep, pointer, put
from gcws_search.index.kernels.ordering.hits import Heaps, push, threshold

_MULTIPLIER = np.uint32(0x9E3779B1)
_ZERO = np.float32(0.0)
_ONE = np.uint32(1)
TABLE_BITS = 12
"""Of places in a table of one row's values: 16 KB, half of a first cache."""
_TABLE_SHIFT = np.uint32(32 - TABLE_BITS)
_AT_ONCE = 8
"""Entries added up before what was missed is looked at."""


class SparseAddresses(NamedTuple):
    """Compressed rows, by address: see `Rows`."""

    indptr: Any
    slots: Any
    values: Any


@kernel
def spread_size(count: int) -> int:
    """Return the table size for ``count`` slots: a power of two, at most a sixteenth full."""
    size = 64
    while size < 16 * count:
        size *= 2
    return size


@inner
def _shift_of(size: int) -> np.uint32:
    shift = 32
    while size > 1:
        size //= 2
        shift -= 1
    return np.uint32(shift)


@inner
def spread(slots: UInt32s, values: Float32s, out_slots: UInt32s, out_values: Float32s) -> None:
    """Spread one vector into an open-addressing table, whose free places have the value 0."""
    out_values[:] = _ZERO
    shift = _shift_of(out_slots.shape[0])
    mask = np.uint32(out_slots.shape[0] - 1)
    for i in range(slots.shape[0]):
        place = np.uint32(np.uint32(slots[i] * _MULTIPLIER) >> shift)
        while out_values[place] != _ZERO:
            place = np.uint32((place + _ONE) & mask)
        out_slots[place] = slots[i]
        out_values[place] = values[i]


@inner
def shared_mass(
    table_slots: Any, table_values: Any, size: Any, slots: Any, values: Any, first: Any, last: Any
) -> Any:
    """Return Σ min of a spread query and the entries first … last - 1 of rows, all by address."""
    shift = _shift_of(size)
    mask = np.uint32(size - 1)
    shared = _ZERO
    for i in range(first, last):
        slot = at(slots, i)
        place = np.uint32(np.uint32(slot * _MULTIPLIER) >> shift)
        held = at(table_values, np.intp(place))
        equal = at(table_slots, np.intp(place)) == slot
        # A free place has the value 0 and adds nothing; only another slot needs a further look-up.
        shared += min(held, at(values, i)) if equal else _ZERO
        if held != _ZERO and not equal:
            place = np.uint32((place + _ONE) & mask)
            held = at(table_values, np.intp(place))
            while held != _ZERO:
                if at(table_slots, np.intp(place)) == slot:
                    shared += min(held, at(values, i))
                    break
                place = np.uint32((place + _ONE) & mask)
                held = at(table_values, np.intp(place))
    return shared


@inner
def add_to_table(rows: Rows, row: int, table: Float32s) -> None:
    """Add a row's values to a table of 2^TABLE_BITS places, all 0; slots may share a place."""
    for entry in range(rows.indptr[row], rows.indptr[row + 1]):
        table[np.uint32(rows.slots[entry] * _MULTIPLIER) >> _TABLE_SHIFT] += rows.values[entry]


@inner
def shared_in_table(rows: Rows, row: int, table: Float32s, max_missed: float) -> float:
    """Return at least Σ min of a row and the row in the table; -1 once too much is missed."""
    slots, values, last = rows.slots, rows.values, rows.indptr[row + 1]
    shared, missed = 0.0, 0.0
    for entry in range(rows.indptr[row], last, _AT_ONCE):
        for i in range(entry, min(entry + _AT_ONCE, last)):
            held = table[np.uint32(slots[i] * _MULTIPLIER) >> _TABLE_SHIFT]
            low = min(held, values[i])
            shared += low
            missed += values[i] - low
        if missed > max_missed:
            return -1.0
    return shared


@inner
def _write_shared(queries: Rows, m: int, rows: Rows, first: int, out: Float32s) -> None:
    """Write Σ min of query m and rows first … first + len(out) - 1."""
    part, indptr = slice(queries.indptr[m], queries.indptr[m + 1]), rows.indptr
    size = spread_size(queries.indptr[m + 1] - queries.indptr[m])
    table_slots, table_values = np.empty(size, np.uint32), np.empty(size, np.float32)
    spread(queries.slots[part], queries.values[part], table_slots, table_values)
    held_slots, held_values = pointer(table_slots), pointer(table_values)
    row_slots, row_values = pointer(rows.slots), pointer(rows.values)
    for i in range(out.shape[0]):
        row = first + i
        out[i] = shared_mass(
            held_slots, held_values, size, row_slots, row_values, indptr[row], indptr[row + 1]
        )
    keep(table_slots)
    keep(table_values)


@kernel
def scan_sparse(queries: Rows, rows: Rows, wanted: HitFilter, first: int, out: Heaps) -> None:
    """Offer permitted sparse rows from ``first`` on that share a slot to each query's heap."""
    queries, rows, wanted, out = Rows(*queries), Rows(*rows), HitFilter(*wanted), Heaps(*out)
    norms, permitted = rows.norms, wanted.permitted
    shared = np.empty(norms.shape[0] - first, np.float32)
    for m in range(queries.norms.shape[0]):
        _write_shared(queries, m, rows, first, shared)
        query_norm, skipped = queries.norms[m], wanted.skip[m]
        scores, hits = out.scores[m], out.rows[m]
        size = out.sizes[m]
        bound = threshold(scores, size, wanted.min_score)
        for i in range(shared.shape[0]):
            row = first + i
            score = shared[i] / (query_norm + norms[row] - shared[i])
            if score >= bound and shared[i] > 0 and permitted[row] != 0 and row != skipped:
                size = push(scores, hits, size, score, row)
                if size == scores.shape[0]:
                    bound = threshold(scores, size, wanted.min_score)
        out.sizes[m] = size


@kernel
def matrix_sparse(a: Rows, b: Rows, out: Float32s) -> None:
    """Write the (n, m) float32 GMM of the rows of ``a`` with those of ``b``."""
    a, b = Rows(*a), Rows(*b)
    for i in range(out.shape[0]):
        shared = out[i]
        _write_shared(a, i, b, 0, shared)
        for j in range(out.shape[1]):
            shared[j] /= a.norms[i] + b.norms[j] - shared[j]


@kernel
def count_shared(
    query_indptr: Int64s,
    query_slots: UInt32s,
    indptr: Int64s,
    slots: UInt32s,
    chosen: Int64s,
    out: Int64s,
) -> None:
    """Write the (m,) numbers of slots that queries share with chosen rows, summed over the rows."""
    for m in range(query_indptr.shape[0] - 1):
        count = 0
        for h in range(chosen.shape[0]):
            i = query_indptr[m]
            j = indptr[chosen[h]]
            while i < query_indptr[m + 1] and j < indptr[chosen[h] + 1]:
                count += query_slots[i] == slots[j]
                step = query_slots[i] <= slots[j]
                j += query_slots[i] >= slots[j]
                i += step
        out[m] = count


@inner
def exact_sparse(
    query_slots: Any, query_values: Any, length: Any, rows: Any, chosen: Any, count: Any, out: Any
) -> None:
    """Like `dense.exact_dense`, by merging slots; the query has ``length`` entries."""
    indptr, slots, values = rows.indptr, rows.slots, rows.values
    for h in range(count):
        low = 0.0
        high = 0.0
        i = 0
        j = at(indptr, at(chosen, h))
        end = at(indptr, at(chosen, h) + 1)
        while i < length and j < end:
            u = np.float64(at(query_values, i))
            v = np.float64(at(values, j))
            if at(query_slots, i) == at(slots, j):
                low += min(u, v)
                high += max(u, v)
                i += 1
                j += 1
            elif at(query_slots, i) < at(slots, j):
                high += u
                i += 1
            else:
                high += v
                j += 1
        while i < length:
            high += np.float64(at(query_values, i))
            i += 1
        while j < end:
            high += np.float64(at(values, j))
            j += 1
        put(out, h, low / high)
