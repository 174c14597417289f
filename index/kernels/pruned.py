"""The exact scan of sparse rows, from which terms are left out that can make no hit.

With Σ min known for some terms of a query, and what the others can add at most, a row that cannot
score as well as the hits there are is done with; the few that can are looked at one by one.

Source: [MAXSCORE].
"""

from typing import Any

import numpy as np
from numba import njit

from index.arrays import LANES, Float32s, Float64s, Int32s, Int64s, UInt8s, UInt32s
from index.kernels.addresses import put
from index.kernels.heap import push
from index.kernels.simd import at, holds_everywhere, less, load, offset, pointer, splat
from index.kernels.terms import (
    Left,
    Query,
    Rows,
    Scratch,
    Segment,
    add_terms,
    added,
    fetch,
    find_terms,
    left_out,
    look_work,
)

_FIRST_SHARE = 8
"""Before anything is known one part in so many of the work is done, the best worth first."""
_REST_SHARE = 0.25
"""What terms left out can add at most, of what a hit needs; where too many rows may be hits then,
none is left out."""
_AHEAD = 4
"""Rows that are asked for before they are looked at."""
_TERM = 10.0
_PASS = 0.2
"""What finding a term takes, and going through all sums once, for each row, in postings."""
_ROUNDED = 2.0**-147
"""Products of the least float32s are rounded by more than a share of them: by so much at most."""
_LEAST_BOUND = -0.5
"""All rows score more."""
_DONE = np.float32(-np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@njit(cache=True, nogil=True)
def _none_passes(sums: Any, norms: Any, share: Any, level: Any, first: Any) -> Any:
    """Return whether no row of a register passes; see `_list_passing`."""
    value = load(sums, first) - splat(share) * load(norms, first)
    return holds_everywhere(less(value, splat(level)))


@njit(cache=True, nogil=True)
def _list_passing(
    sums: Any, norms: Any, n: Any, share: Any, level: Any, most: Any, out: Any
) -> Any:
    """List the rows whose sum less ``share`` of their norm is at least ``level``; return how many.

    Parameters
    ----------
    sums, norms : addresses of n float32
    n : int
    share, level : float32
    most : int
        Once there are more, no more are listed.
    out : address of n + 1 int32, written in place
        Row numbers, rising.
    """
    count = 0
    for block in range(0, n, LANES):
        end = min(n, block + LANES)
        if end - block == LANES and _none_passes(sums, norms, share, level, block):
            continue
        if count > most:
            break
        for i in range(block, end):
            put(out, count, i)
            count += np.int64(at(sums, i) - share * at(norms, i) >= level)
    return count


@njit(cache=True, nogil=True)
def _best_sums(
    norms: Float32s,
    query: Query,
    first: int,
    found: int,
    sums: Float32s,
    listed: Int32s,
    out_scores: Float32s,
    out_rows: Int64s,
) -> int:
    """Keep the permitted rows that score best by what is known of their sums; return how many.

    Parameters
    ----------
    norms, sums : (n,) float32
    query : Query
    first : int
        Number of the first row.
    found : int
        So many rows are listed; where it is -1, all rows are looked at.
    listed : (n + 1,) int32
    out_scores, out_rows : (k,), written in place
    """
    n = norms.shape[0]
    size = 0
    share = level = _ZERO
    permitted = pointer(query.permitted)
    for block in range(0, n if found < 0 else found, LANES):
        end = min(n if found < 0 else found, block + LANES)
        if (
            found < 0
            and end - block == LANES
            and size > 0
            and _none_passes(pointer(sums), pointer(norms), share, level, block)
        ):
            continue
        for i in range(block, end):
            row = i if found < 0 else np.int64(listed[i])
            sum_ = sums[row]
            if sum_ < _ZERO or sum_ - share * norms[row] < level:
                continue
            if at(permitted, first + row) == 0 or first + row == query.skip:
                continue
            score = sum_ / (query.norm + norms[row] - sum_)
            size = push(out_scores, out_rows, size, score, row)
            if size == out_scores.shape[0]:
                share = out_scores[0] / (_ONE + out_scores[0])
                level = share * query.norm
    return size


@njit(cache=True, nogil=True)
def _line(bound: float, rest: float, norm: np.float32) -> tuple[np.float32, np.float32]:
    """Return share and level by which `_list_passing` finds the rows that may reach a score."""
    share = bound / (1.0 + bound)
    return np.float32(share), np.float32(share * norm - rest - _ROUNDED)


@njit(cache=True, nogil=True)
def _enough(
    done: int, last: int, query: Query, segment: Segment, bound: float, scratch: Scratch
) -> int:
    """Return how many terms leave `_REST_SHARE` of what a hit needs at most to those after them."""
    # A row's Σ min is at most its norm: one that scores t has t times the query's at least.
    norm = max(bound * query.norm, segment.least_norm)
    need = bound / (1.0 + bound) * (query.norm + norm)
    while done < last and scratch.rest[done] > _REST_SHARE * need:
        done += 1
    return done


@njit(cache=True, nogil=True)
def _bound(least: np.float32, slack: np.float32, scores: Float32s, size: int) -> float:
    """Return the score below which a row is no hit that the heap takes, however rounded."""
    bound = np.float64(max(scores[0], least) if size == scores.shape[0] else least)
    return max(bound - slack, _LEAST_BOUND)


@njit(cache=True, nogil=True)
def _list_hits(
    done: int, last: int, query: Query, segment: Segment, rows: Rows, bound: float, out: Scratch
) -> tuple[int, int, Left]:
    """Add terms until few rows may be hits, and list them.

    Parameters
    ----------
    done, last : int
        Terms that have been added, and all there are.
    query, segment, rows : see `scan_segment`
    bound : float
        What a hit scores at least.
    out : Scratch
        ``sums`` and ``listed`` are written in place.

    Returns
    -------
    done : int
        Terms that have been added now.
    found : int
        Rows listed.
    left : Left
        The other terms.
    """
    n, first = segment.columns.shape[1], segment.first
    sums, listed = pointer(out.sums), pointer(out.listed)
    norms = offset(pointer(rows.norms), first)
    before = done
    done = _enough(done, last, query, segment, bound, out)
    add_terms(before, done, segment, out)
    left = left_out(done, last, segment, rows, out)
    most = n
    if done < last:
        most = np.int64(out.work[done] / look_work(left, segment, rows))
    share, level = _line(bound, out.rest[done], query.norm)
    found = _list_passing(sums, norms, n, share, level, most, listed)
    if found > most:
        add_terms(done, last, segment, out)
        done = last
        left = left_out(done, last, segment, rows, out)
        share, level = _line(bound, out.rest[done], query.norm)
        found = _list_passing(sums, norms, n, share, level, n, listed)
    return done, found, left


@njit(cache=True, nogil=True)
def _offer_best(
    query: Query, left: Left, rows: Rows, first: int, count: int, least: np.float32,
    scratch: Scratch, out_scores: Float32s, out_rows: Int64s, size: int,
) -> int:  # fmt: skip
    """Look at the rows kept by `_best_sums`, offer them to the heap, and be done with them."""
    for i in range(count):
        row = scratch.best_rows[i]
        at_row = first + row
        start, stop = rows.indptr[at_row], rows.indptr[at_row + 1]
        sum_ = scratch.sums[row] + added(left, row, start, stop)
        score = sum_ / (query.norm + rows.norms[at_row] - sum_)
        if score >= least:
            size = push(out_scores, out_rows, size, score, at_row)
        scratch.sums[row] = _DONE
    return size


@njit(cache=True, nogil=True)
def _offer_listed(
    query: Query, left: Left, rows: Rows, first: int, found: int, rest: float, least: np.float32,
    slack: np.float32, scratch: Scratch, out_scores: Float32s, out_rows: Int64s, size: int,
) -> tuple[int, int]:  # fmt: skip
    """Look at the rows listed that may be hits still, and offer them; return size and how many."""
    share, level = _line(_bound(least, slack, out_scores, size), rest, query.norm)
    kept = 0
    for i in range(found):
        row = scratch.listed[i]
        scratch.listed[kept] = row
        kept += scratch.sums[row] - share * rows.norms[first + row] >= level
    looked = 0
    for i in range(kept):
        ahead = first + np.int64(scratch.listed[min(kept - 1, i + _AHEAD)])
        fetch(left, ahead - first, rows.indptr[ahead], rows.indptr[ahead + 1])
        row = np.int64(scratch.listed[i])
        at_row = first + row
        norm = rows.norms[at_row]
        if scratch.sums[row] - share * norm < level:
            continue
        if query.permitted[at_row] == 0 or at_row == query.skip:
            continue
        looked += 1
        sum_ = scratch.sums[row]
        sum_ += added(left, row, rows.indptr[at_row], rows.indptr[at_row + 1])
        score = sum_ / (query.norm + norm - sum_)
        if score >= least:
            size = push(out_scores, out_rows, size, score, at_row)
            share, level = _line(_bound(least, slack, out_scores, size), rest, query.norm)
    return size, looked


@njit(cache=True, nogil=True)
def _scan_one(
    query: Query, segment: Segment, rows: Rows, least: np.float32, slack: np.float32,
    scratch: Scratch, out_scores: Float32s, out_rows: Int64s, size: int,
) -> tuple[int, float]:  # fmt: skip
    """Offer a segment's permitted rows to a heap; return its new size, and the work in postings."""
    n, k, first = segment.columns.shape[1], out_scores.shape[0], segment.first
    norms = rows.norms[first : first + n]
    count = find_terms(query, segment, scratch)
    scratch.sums[:n] = _ZERO
    work = _TERM * query.slots.shape[0] + _PASS * n
    all_work = scratch.work[0]
    done = 0
    if size < k:
        # The best of what a part of the terms tells, looked at whole, tell what a hit needs.
        while all_work - scratch.work[done] < all_work / _FIRST_SHARE:
            done += 1
        add_terms(0, done, segment, scratch)
        left = left_out(done, count, segment, rows, scratch)
        best = _best_sums(
            norms, query, first, -1, scratch.sums, scratch.listed, scratch.best_scores,
            scratch.best_rows,
        )  # fmt: skip
        size = _offer_best(
            query, left, rows, first, best, least, scratch, out_scores, out_rows, size
        )
        work += all_work - scratch.work[done] + best * look_work(left, segment, rows) + _PASS * n
    guessed = done
    bound = _bound(least, slack, out_scores, size)
    done, found, left = _list_hits(done, count, query, segment, rows, bound, scratch)
    look = look_work(left, segment, rows)
    work += scratch.work[guessed] - scratch.work[done] + 2 * _PASS * n + found
    size, looked = _offer_listed(
        query, left, rows, first, found, scratch.rest[done], least, slack, scratch, out_scores,
        out_rows, size,
    )  # fmt: skip
    return size, work + looked * look


@njit(cache=True, nogil=True)
def scan_segment(
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    query_norms: Float32s,
    segment: Segment,
    rows: Rows,
    permitted: UInt8s,
    skip: Int64s,
    least: np.float32,
    slack: np.float32,
    scratch: Scratch,
    out_scores: Float32s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_work: Float64s,
) -> None:
    """Offer a segment's permitted rows to each query's heap, but for those it has no room for.

    Parameters
    ----------
    query_indptr, query_slots, query_values : compressed queries, slots rising
    query_norms : (m,) float32
    segment : Segment
    rows : Rows
    permitted : (all rows,) uint8
    skip : (m,) int64
    least : float32
    slack : float32
        How far apart float32 scores in the wrong order can be: what scores less than the worst kept
        by more than this may be left out.
    scratch : Scratch
    out_scores, out_rows : (m, k), written in place
    out_sizes : (m,) int64, written in place
    out_work : (m,) float64, written in place
        What it took is added, in postings.
    """
    for m in range(query_norms.shape[0]):
        part = slice(query_indptr[m], query_indptr[m + 1])
        query = Query(query_slots[part], query_values[part], query_norms[m], skip[m], permitted)
        out_sizes[m], work = _scan_one(
            query, segment, rows, least, slack, scratch, out_scores[m], out_rows[m], out_sizes[m]
        )
        out_work[m] += work


@njit(cache=True, nogil=True)
def collect_segment(
    query_slots: UInt32s,
    query_values: Float32s,
    query_norm: np.float32,
    segment: Segment,
    rows: Rows,
    permitted: UInt8s,
    skip: int,
    least: np.float32,
    slack: np.float32,
    after: int,
    scratch: Scratch,
    out_rows: Int64s,
    size: int,
) -> int:
    """List a segment's permitted rows that score at least ``least``.

    Parameters
    ----------
    query_slots, query_values, query_norm : one query
    segment, rows, permitted, skip, slack, scratch : see `scan_segment`
    least : float32
    after : int
        Only rows after this one.
    out_rows : (all rows,) int64, written in place from ``size`` on
    size : int
        Rows listed before; the new number is returned.
    """
    n, first = segment.columns.shape[1], segment.first
    norms = rows.norms[first : first + n]
    query = Query(query_slots, query_values, query_norm, skip, permitted)
    count = find_terms(query, segment, scratch)
    scratch.sums[:n] = _ZERO
    bound = max(np.float64(least) - slack, _LEAST_BOUND)
    _, found, left = _list_hits(0, count, query, segment, rows, bound, scratch)
    for i in range(found):
        row = np.int64(scratch.listed[i])
        at_row = first + row
        if at_row <= after or permitted[at_row] == 0 or at_row == skip:
            continue
        sum_ = scratch.sums[row]
        sum_ += added(left, row, rows.indptr[at_row], rows.indptr[at_row + 1])
        if sum_ / (query_norm + norms[row] - sum_) >= least:
            out_rows[size] = at_row
            size += 1
    return size
