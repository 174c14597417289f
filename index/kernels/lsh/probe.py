"""Probing prefix-ordered tables, deepest prefixes first, until the recall asked for is proven.

A band of d samples matches with probability p^d, p(s) = s + (1 - s)·floor the chance that one
kept sample matches (floor = 2^-b of hashed samples). After depth d in j of L tables and d + 1 in
the others an item of similarity s is still unseen with probability

    miss(s) = (1 - p^d)^j (1 - p^(d+1))^(L-j).

The search stops when the mean of miss over the ``limit`` best hits so far is at most 1 - recall.
The i-th best hit found is never better than the i-th best item, so the rule never stops before the
step at which the same mean over the *true* hits falls below 1 - recall; that step does not depend
on the hash, and by then at least the recall asked for is found in the mean, for any data.

Source: [PUFF] (stop rule), [FOREST] (shrinking prefixes); theory of banding.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s, UInt32s, UInt64s
from gcws_search.index.kernels.gmm.dense import dense_score_within, exact_dense, reach
from gcws_search.index.kernels.gmm.sparse import exact_sparse, shared_mass, spread, spread_size
from gcws_search.index.kernels.lanes.vector import (
    at,
    offset,
    pointer,
    pointer_to_int32,
    pointer_to_uint64,
)
from gcws_search.index.kernels.lsh.tables import find_places
from gcws_search.index.kernels.ordering.heap import push
from gcws_search.index.kernels.ordering.rank import rank

DEPTH = 0
TABLES = 1
CANDIDATES = 2
SCORED = 3
ANSWERED = 4
"""Columns of the counters; ANSWERED is 0 where a scan must answer instead."""
COUNTERS = 5

_TRIAL = 0.02
"""Share of a scan's cost that is spent before growth is judged: good hits found meanwhile raise
the depth that is needed."""


class Rule(NamedTuple):
    """When a search may stop.

    Attributes
    ----------
    depths : int
        Greatest depth of a key.
    tables : int
        L.
    step : int
        Samples that one unit of depth stands for.
    floor : float
        Chance that a kept sample of unrelated vectors matches.
    allowed : float
        1 - recall.
    least : float
        min_score.
    slack : float
        Float32 scores up to this much below ``least`` are kept: the exact ones may reach it.
    """

    depths: int
    tables: int
    step: int
    floor: float
    allowed: float
    least: float
    slack: float


@njit(cache=True, nogil=True)
def _power(base: float, exponent: int) -> float:
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@njit(cache=True, nogil=True)
def _miss(score: float, rule: Rule, depth: int, done: int) -> float:
    p = _power(score + (1.0 - score) * rule.floor, rule.step)
    deep = _power(p, depth)
    missed = _power(1.0 - deep, done)
    if depth < rule.depths:  # at the greatest depth the other tables are not probed yet
        missed *= _power(1.0 - deep * p, rule.tables - done)
    return missed


@njit(cache=True, nogil=True)
def rule_holds(scores: Float32s, size: int, rule: Rule, depth: int, done: int) -> bool:
    """Return whether the mean of miss over the best hits is at most ``allowed``.

    Parameters
    ----------
    scores : (limit,) float32
        Scores of the hits, the first ``size`` of them valid.
    rule : Rule
        Places not filled are charged as items of similarity ``rule.least``; where that is 0 there
        are items to fill them, and the search goes on.
    depth, done : int
        ``done`` tables are finished at ``depth``, the others at depth + 1.
    """
    limit = scores.shape[0]
    budget = rule.allowed * limit
    missed = 0.0
    if size < limit:
        if rule.least <= 0.0:
            return False
        missed = (limit - size) * _miss(rule.least, rule, depth, done)
    for i in range(size):
        if missed > budget:
            return False
        missed += _miss(max(np.float64(scores[i]), rule.least), rule, depth, done)
    return missed <= budget


@njit(cache=True, nogil=True)
def mean_miss(scores: Float64s, size: int, rule: Rule, depth: int, done: int) -> float:
    """Return the mean of miss over the hits found, or of the least one wanted; see `rule_holds`."""
    if size == 0:
        return _miss(rule.least, rule, depth, done) if rule.least > 0.0 else 1.0
    missed = 0.0
    for i in range(size):
        missed += _miss(max(np.float64(scores[i]), rule.least), rule, depth, done)
    return missed / size


@njit(cache=True, nogil=True)
def probe(
    queries: Float32s,
    query_indptr: Int64s,
    query_slots: UInt32s,
    query_values: Float32s,
    query_norms: Float32s,
    query_keys: UInt64s,
    skip: Int64s,
    rows: Float32s,
    indptr: Int64s,
    slots: UInt32s,
    values: Float32s,
    norms: Float32s,
    permitted: UInt8s,
    segments: Int64s,
    bits: int,
    rule: Rule,
    scan_nanoseconds: Float64s,
    row_nanoseconds: float,
    out_scores: Float64s,
    out_rows: Int64s,
    out_sizes: Int64s,
    out_counters: Int64s,
    out_recall: Float64s,
) -> None:
    """Search tables for every query; leave to a scan what a scan does sooner.

    Parameters
    ----------
    queries : (m, width) float32
        Dense queries, or (m, 0) when the rows are sparse.
    query_indptr, query_slots, query_values : sparse queries, compressed
    query_norms : (m,) float32
    query_keys : (m, L) uint64
    skip : (m,) int64
        A row that a query must not return, or -1.
    rows : (n, width) float32, or (0, 0)
    indptr, slots, values : sparse rows, compressed
    norms : (n,) float32
    permitted : (n,) uint8
    segments : (s, 3) int64
        Addresses of the (L, count) keys and rows of each segment, and its count.
    bits : int
        Bits of a key per unit of depth.
    rule : Rule
    scan_nanoseconds : (m,) float64
        What a scan for each query would take.
    row_nanoseconds : float
        What finding and scoring one row takes.
    out_scores, out_rows : (m, limit) float64 and int64, written in place
        Hits by falling exact score, equal scores by rising row.
    out_sizes : (m,) int64, written in place
    out_counters : (m, COUNTERS) int64, written in place
    out_recall : (m,) float64, written in place
        Expected share of items as similar as the hits that was found.
    """
    tables = rule.tables
    least = rule.least
    kept_from = least - rule.slack
    dense = rows.shape[1] > 0
    width = rows.shape[1]
    left = np.empty((segments.shape[0], tables), np.int64)
    right = np.empty((segments.shape[0], tables), np.int64)
    visited = np.empty((norms.shape[0] + 63) // 64, np.uint64)
    longest = 0
    for m in range(query_indptr.shape[0] - 1):
        longest = max(longest, query_indptr[m + 1] - query_indptr[m])
    held_slots = np.empty(spread_size(longest), np.uint32)
    held_values = np.zeros(spread_size(longest), np.float32)
    row_data = pointer(rows)
    row_slots = pointer(slots)
    row_values = pointer(values)
    table_slots = pointer(held_slots)
    table_values = pointer(held_values)
    scores = np.empty(out_scores.shape[1], np.float32)
    exact = np.empty(out_scores.shape[1], np.float64)
    entries = slice(0, 0)
    for m in range(query_keys.shape[0]):
        visited[:] = np.uint64(0)
        if not dense:
            entries = slice(query_indptr[m], query_indptr[m + 1])
            spread(query_slots[entries], query_values[entries], held_slots, held_values)
        query = offset(pointer(queries), m * width)
        query_norm = query_norms[m]
        skipped = skip[m]
        sought = query_keys[m]
        for s in range(segments.shape[0]):
            find_places(pointer_to_uint64(segments[s, 0]), segments[s, 2], sought, left[s])
            right[s] = left[s]
        hits = out_rows[m]
        limit = scores.shape[0]
        size = 0
        farthest = reach(np.float32(kept_from)) if dense else np.float32(0.0)
        candidates = 0
        before = 0  # candidates when the depth before the last was finished, and one earlier
        earlier = 0
        answered = False
        depth = rule.depths
        done = 0
        while depth > 0:
            shift = np.uint64(64 - depth * bits)
            done = 0
            # Until a better hit turns up, no check before the last table's can succeed either.
            hopeful = rule_holds(scores, size, rule, depth, tables)
            while done < tables:
                key = sought[done]
                better = False
                for s in range(segments.shape[0]):
                    count = segments[s, 2]
                    keys = offset(pointer_to_uint64(segments[s, 0]), done * count)
                    key_rows = offset(pointer_to_int32(segments[s, 1]), done * count)
                    place = right[s, done]
                    going_right = True
                    while True:
                        if going_right:
                            if place >= count or ((at(keys, place) ^ key) >> shift) != 0:
                                right[s, done] = place
                                going_right = False
                                place = left[s, done]
                                continue
                            row = np.int64(at(key_rows, place))
                            place += 1
                        else:
                            if place <= 0 or ((at(keys, place - 1) ^ key) >> shift) != 0:
                                left[s, done] = place
                                break
                            place -= 1
                            row = np.int64(at(key_rows, place))
                        word = row >> 6
                        bit = np.uint64(1) << np.uint64(row & 63)
                        if visited[word] & bit != 0:
                            continue
                        visited[word] |= bit
                        if permitted[row] == 0 or row == skipped:
                            continue
                        candidates += 1
                        if dense:
                            score = dense_score_within(
                                query,
                                query_norm,
                                offset(row_data, row * width),
                                norms[row],
                                width,
                                farthest,
                            )
                        else:
                            shared = shared_mass(
                                table_slots,
                                table_values,
                                held_slots.shape[0],
                                row_slots,
                                row_values,
                                indptr[row],
                                indptr[row + 1],
                            )
                            score = shared / (query_norm + norms[row] - shared)
                        if score >= kept_from and (size < limit or score >= scores[0]):
                            size = push(scores, hits, size, score, row)
                            better = True
                            if dense and size == limit:
                                farthest = reach(max(scores[0], np.float32(kept_from)))
                done += 1
                if better:
                    hopeful = rule_holds(scores, size, rule, depth, tables)
                if hopeful and rule_holds(scores, size, rule, depth, done):
                    answered = True
                    break
                if candidates * row_nanoseconds > scan_nanoseconds[m]:
                    break
            if answered or depth == 1 or done < tables:
                break
            # The depth at which the rule will hold if no better hit turns up: what will it cost?
            # Only live rows are counted, so that deleted ones change no answer.
            needed = depth - 1
            while needed > 0 and not rule_holds(scores, size, rule, needed, tables):
                needed -= 1
            if needed == 0 and (size == limit or least > 0.0):
                break
            spent = candidates * row_nanoseconds
            if earlier > 0 and spent > _TRIAL * scan_nanoseconds[m]:
                steps = depth - needed if needed > 0 else 1
                growth = np.sqrt(candidates / earlier)
                if spent * (growth**steps - 1.0) > scan_nanoseconds[m]:
                    break
            earlier = before
            before = candidates
            depth -= 1
        if dense:
            exact_dense(queries[m], rows, hits[:size], exact)
        else:
            exact_sparse(
                query_slots[entries],
                query_values[entries],
                indptr,
                slots,
                values,
                hits[:size],
                exact,
            )
        size = rank(exact, hits, size, least, out_scores[m])
        out_sizes[m] = size
        out_recall[m] = 1.0 - mean_miss(out_scores[m], size, rule, depth, done)
        out_counters[m, DEPTH] = depth
        out_counters[m, TABLES] = tables
        out_counters[m, CANDIDATES] = candidates
        out_counters[m, SCORED] = candidates
        out_counters[m, ANSWERED] = 1 if answered else 0
