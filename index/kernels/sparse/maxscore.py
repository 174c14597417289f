"""The exact scan of sparse rows, which skips terms that cannot make a hit.

Given Σ min for some terms of a query, and the maximum that the others can add, rows that cannot
reach the present hits are excluded; the few remaining ones are scored one by one. Rows that share
no slot with a query score 0, and are not searched for.

Source: [MAXSCORE].
"""

from typing import Any

import numpy as np

from gcws_search.index.contracts.arrays import LANES, Float32s, Float64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.rows import HitFilter, Rows
from gcws_search.index.kernels.lanes.vector import (
    at,
    holds_everywhere,
    less,
    load,
    offset,
    pointer,
    put,
    splat,
)
from gcws_search.index.kernels.ordering.hits import Heap, Heaps, push, threshold
from gcws_search.index.kernels.sparse.postings import (
    ALL,
    Left,
    PostingSegment,
    TermQuery,
    TermScratch,
    add_terms,
    fetch,
    find_terms,
    look_work,
    rest_of_row,
    spread_left,
)

_FIRST_SHARE = 8
"""Before anything is known, one part in this many of the work is done, the best gain first."""
_REST_SHARE = 0.25
"""What terms left out can add at most, of what a hit needs; where too many rows may be hits then,
none is left out."""
_AHEAD = 4
"""Rows that are asked for before they are looked at."""
_TERM = 10.0
_PASS = 0.2
_CLEAR = 0.05
"""What finding a term takes, and going through all sums once, and clearing them, for each row, in
postings."""
_TOUCHED = 4
"""Looking at a row touched takes as long as going through the sums of so many rows. Where more have
terms of a query, none is listed: of muv, scans took 1.3 times as long."""
_ROUNDED = 2.0**-147
"""Products of the least float32s are rounded by more than a share of them: by so much at most."""
_MIN_BOUND = -0.5
"""All rows score more."""
_DONE = np.float32(-np.inf)
_ZERO = np.float32(0.0)
_ONE = np.float32(1.0)


@inner
def _none_passes(sums: Any, norms: Any, share: Any, level: Any, first: Any) -> Any:
    """Return whether no row of a register passes; see `_list_passing`."""
    value = load(sums, first) - splat(share) * load(norms, first)
    return holds_everywhere(less(value, splat(level)))


@inner
def _list_passing(
    scratch: Any, touched: Any, norms: Any, n: Any, share: Any, level: Any, limit: Any
) -> Any:
    """List rows whose sum minus ``share`` of their norm is at least ``level``; return their number.

    Only touched rows are examined, unless it is `ALL`. Beyond ``limit`` rows, no more are
    listed.
    """
    sums, out = pointer(scratch.sums), pointer(scratch.listed)
    count = 0
    for i in range(touched):
        if count > limit:
            break
        row = np.int64(scratch.touched[i])
        put(out, count, row)
        count += np.int64(at(sums, row) - share * at(norms, row) >= level)
    if touched != ALL:
        return count
    for block in range(0, n, LANES):
        end = min(n, block + LANES)
        if end - block == LANES and _none_passes(sums, norms, share, level, block):
            continue
        if count > limit:
            break
        for i in range(block, end):
            put(out, count, i)
            count += np.int64(at(sums, i) - share * at(norms, i) >= level)
    return count


@inner
def _best_sums(
    norms: Float32s, query: TermQuery, first: int, scratch: TermScratch, touched: int
) -> int:
    """Find the permitted rows with the best scores by their present sums; return their number.

    Only touched rows are examined, unless it is `ALL`.
    """
    n, sums = norms.shape[0], scratch.sums
    scores, hits = scratch.best_scores, scratch.best_rows
    size = 0
    share = level = _ZERO
    permitted = pointer(query.permitted)
    count = n if touched == ALL else touched
    for block in range(0, count, LANES):
        end = min(count, block + LANES)
        if (
            touched == ALL
            and end - block == LANES
            and size > 0
            and _none_passes(pointer(sums), pointer(norms), share, level, block)
        ):
            continue
        for place in range(block, end):
            row = place if touched == ALL else np.int64(scratch.touched[place])
            sum_ = sums[row]
            if sum_ <= _ZERO or sum_ - share * norms[row] < level:
                continue
            if at(permitted, first + row) == 0 or first + row == query.skip:
                continue
            score = sum_ / (query.norm + norms[row] - sum_)
            size = push(scores, hits, size, score, row)
            if size == scores.shape[0]:
                share = scores[0] / (_ONE + scores[0])
                level = share * query.norm
    return size


@inner
def _line(bound: float, rest: float, norm: np.float32) -> tuple[np.float32, np.float32]:
    """Return share and level with which `_list_passing` finds rows that may reach a score."""
    share = bound / (1.0 + bound)
    return np.float32(share), np.float32(share * norm - rest - _ROUNDED)


@inner
def _enough(
    done: int,
    last: int,
    query: TermQuery,
    segment: PostingSegment,
    bound: float,
    scratch: TermScratch,
) -> int:
    """Return how many terms leave later ones at most `_REST_SHARE` of what a hit needs."""
    # Σ min is at most a row's norm: a row that scores t has at least t times the query's norm.
    norm = max(bound * query.norm, segment.min_norm)
    need = bound / (1.0 + bound) * (query.norm + norm)
    while done < last and scratch.rest[done] > _REST_SHARE * need:
        done += 1
    return done


@inner
def _bound(query: TermQuery, scores: Float32s, size: int) -> float:
    """Return the score below which no row can be a hit for the heap, with rounding."""
    bound = np.float64(threshold(scores, size, query.min_score))
    return max(bound - query.slack, _MIN_BOUND)


@inner
def _list_hits(
    done: int,
    last: int,
    query: TermQuery,
    segment: PostingSegment,
    rows: Rows,
    bound: float,
    out: TermScratch,
    touched: int,
) -> tuple[int, int, int, Left]:
    """Add terms until few rows may be hits; return terms added, rows touched, listed, the rest."""
    n, first = segment.columns.shape[1], segment.first
    norms = offset(pointer(rows.norms), first)
    before = done
    done = _enough(done, last, query, segment, bound, out)
    touched = add_terms(before, done, segment, out, touched)
    left = spread_left(done, last, segment, rows, out)
    limit = n
    if done < last:
        limit = np.int64(out.work[done] / look_work(left, segment, rows))
    share, level = _line(bound, out.rest[done], query.norm)
    # Rows without any of the added terms are not hits: the rest is less than a hit needs.
    found = _list_passing(out, touched, norms, n, share, level, limit)
    if found > limit:
        touched = add_terms(done, last, segment, out, touched)
        done = last
        left = spread_left(done, last, segment, rows, out)
        share, level = _line(bound, out.rest[done], query.norm)
        found = _list_passing(out, touched, norms, n, share, level, n)
    return done, touched, found, left


@inner
def _offer_best(
    query: TermQuery,
    left: Left,
    rows: Rows,
    first: int,
    count: int,
    scratch: TermScratch,
    out: Heap,
    size: int,
) -> int:
    """Score the rows found by `_best_sums`, offer them to the heap, and mark them as done."""
    scores, hits = out.scores, out.rows
    for i in range(count):
        row = scratch.best_rows[i]
        at_row = first + row
        start, stop = rows.indptr[at_row], rows.indptr[at_row + 1]
        sum_ = scratch.sums[row] + rest_of_row(left, row, start, stop)
        score = sum_ / (query.norm + rows.norms[at_row] - sum_)
        if score >= query.min_score:
            size = push(scores, hits, size, score, at_row)
        scratch.sums[row] = _DONE
    return size


@inner
def _offer_listed(
    query: TermQuery,
    left: Left,
    rows: Rows,
    first: int,
    found: int,
    scratch: TermScratch,
    out: Heap,
    size: int,
) -> tuple[int, int]:
    """Score listed rows that may still be hits, and offer them; return size and how many."""
    scores, hits = out.scores, out.rows
    share, level = _line(_bound(query, scores, size), left.rest, query.norm)
    listed_count = 0
    for i in range(found):
        row = scratch.listed[i]
        scratch.listed[listed_count] = row
        reaches = scratch.sums[row] - share * rows.norms[first + row] >= level
        listed_count += np.int64(reaches) & np.int64(query.permitted[first + row] != 0)
    looked = 0
    for i in range(listed_count):
        ahead = first + np.int64(scratch.listed[min(listed_count - 1, i + _AHEAD)])
        fetch(left, ahead - first, rows.indptr[ahead], rows.indptr[ahead + 1])
        row = np.int64(scratch.listed[i])
        at_row = first + row
        norm = rows.norms[at_row]
        if scratch.sums[row] - share * norm < level:
            continue
        if at_row == query.skip:
            continue
        looked += 1
        sum_ = scratch.sums[row]
        sum_ += rest_of_row(left, row, rows.indptr[at_row], rows.indptr[at_row + 1])
        score = sum_ / (query.norm + norm - sum_)
        if sum_ > _ZERO and score >= query.min_score:
            size = push(scores, hits, size, score, at_row)
            if size == scores.shape[0]:
                share, level = _line(_bound(query, scores, size), left.rest, query.norm)
    return size, looked


@inner
def _pass_work(looked: int, n: int) -> float:
    """Return the work of reading the sums of rows, in postings."""
    return _PASS * (n if looked == ALL else _TOUCHED * looked)


@inner
def _scan_one(
    query: TermQuery,
    segment: PostingSegment,
    rows: Rows,
    scratch: TermScratch,
    out: Heap,
    size: int,
) -> tuple[int, float]:
    """Offer a segment's permitted rows to a heap; return its new size, and the work in postings."""
    n, k, first = segment.columns.shape[1], out.scores.shape[0], segment.first
    norms = rows.norms[first : first + n]
    count = find_terms(query, segment, scratch)
    scratch.sums[:n] = _ZERO
    work = _TERM * query.slots.shape[0] + _CLEAR * n
    all_work = scratch.work[0]
    done, touched = 0, 0 if _TOUCHED * all_work < n else ALL
    if size < k:
        # The best rows by some of the terms, fully scored, show what a hit needs.
        while all_work - scratch.work[done] < all_work / _FIRST_SHARE:
            done += 1
        touched = add_terms(0, done, segment, scratch, touched)
        if touched != ALL and touched < k:  # otherwise all are offered once more
            touched = add_terms(done, count, segment, scratch, touched)
            done = count
        left = spread_left(done, count, segment, rows, scratch)
        best = _best_sums(norms, query, first, scratch, touched)
        size = _offer_best(query, left, rows, first, best, scratch, out, size)
        work += all_work - scratch.work[done] + best * look_work(left, segment, rows)
        work += _pass_work(touched, n)
    guessed = done
    bound = _bound(query, out.scores, size)
    done, touched, found, left = _list_hits(
        done, count, query, segment, rows, bound, scratch, touched
    )
    look = look_work(left, segment, rows)
    work += scratch.work[guessed] - scratch.work[done] + 2 * _pass_work(touched, n) + found
    size, looked = _offer_listed(query, left, rows, first, found, scratch, out, size)
    return size, work + looked * look


@kernel
def scan_segment(
    queries: Rows,
    segment: PostingSegment,
    rows: Rows,
    wanted: HitFilter,
    slack: np.float32,
    scratch: TermScratch,
    out: Heaps,
    out_work: Float64s,
) -> None:
    """Offer a segment's permitted rows to each query's heap, except rows that cannot enter it.

    out_work (m,): the work is added, in postings. slack: see `TermQuery`.
    """
    queries, segment, rows = Rows(*queries), PostingSegment(*segment), Rows(*rows)
    wanted, scratch, out = HitFilter(*wanted), TermScratch(*scratch), Heaps(*out)
    for m in range(queries.norms.shape[0]):
        part = slice(queries.indptr[m], queries.indptr[m + 1])
        query = TermQuery(
            queries.slots[part],
            queries.values[part],
            queries.norms[m],
            wanted.skip[m],
            wanted.permitted,
            wanted.min_score,
            slack,
        )
        heap = Heap(out.scores[m], out.rows[m])
        out.sizes[m], work = _scan_one(query, segment, rows, scratch, heap, out.sizes[m])
        out_work[m] += work
