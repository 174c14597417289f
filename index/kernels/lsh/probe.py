"""Probe prefix-ordered tables, deepest prefixes first, until the requested recall is proven.

A band of d samples matches with probability p^d. p(s) = s + (1 - s)·floor is the probability that
one stored sample matches (floor = 2^-b of hashed samples). After depth d in j of L tables and
d + 1 in the others, an item of similarity s is still unseen with probability

    miss(s) = (1 - p^d)^j (1 - p^(d+1))^(L-j).

The search stops when the mean of miss over the ``limit`` best hits so far is at most 1 - recall.
The i-th best hit found is never better than the i-th best item. So the rule never stops before the
step at which this mean over the *true* hits falls below 1 - recall. That step does not depend on
the hash, and by then the requested recall is reached in the mean, for any data.

Source: [PUFF] (stop rule), [FOREST] (shrinking prefixes); theory of banding.
"""

from typing import NamedTuple

import numpy as np

from gcws_search.index.contracts.arrays import Float32s, Float64s, Int64s, UInt8s, UInt64s
from gcws_search.index.kernels.compiling import inner, kernel
from gcws_search.index.kernels.gmm.dense import reach
from gcws_search.index.kernels.gmm.exact_rerank import compare, exact_gmm, quick_gmm
from gcws_search.index.kernels.gmm.rows import Rows
from gcws_search.index.kernels.gmm.sparse import spread, spread_size
from gcws_search.index.kernels.lanes.vector import (
    at,
    keep,
    offset,
    pointer_to_int32,
    pointer_to_uint64,
)
from gcws_search.index.kernels.lsh.tables import TableSegments, find_places
from gcws_search.index.kernels.ordering.hits import push, rank

DEPTH = 0
TABLES = 1
CANDIDATES = 2
ANSWERED = 3
"""Columns of the counters; ANSWERED is 0 where a scan must answer instead."""
COUNTERS = 4

_TRIAL = 0.02
"""Share of a scan's cost that is spent before growth is judged: good hits found meanwhile raise
the depth that is needed."""


class Rule(NamedTuple):
    """When a search may stop."""

    depths: int  # greatest depth of a key
    tables: int  # L
    step: int  # samples per unit of depth
    floor: float  # probability that stored samples of unrelated vectors match
    allowed: float  # 1 - recall
    min_score: float
    slack: float  # float32 scores this far below ``min_score`` are kept: exact ones may reach it


@inner
def _power(base: float, exponent: int) -> float:
    result = 1.0
    while exponent > 0:
        if exponent & 1:
            result *= base
        base *= base
        exponent >>= 1
    return result


@inner
def _miss(score: float, rule: Rule, depth: int, done: int) -> float:
    p = _power(score + (1.0 - score) * rule.floor, rule.step)
    deep = _power(p, depth)
    missed = _power(1.0 - deep, done)
    if depth < rule.depths:  # at the greatest depth the other tables are not probed yet
        missed *= _power(1.0 - deep * p, rule.tables - done)
    return missed


@inner
def rule_holds(scores: Float32s, size: int, rule: Rule, depth: int, done: int) -> bool:
    """Return whether the mean of miss over the best hits is at most ``allowed``.

    ``done`` tables are finished at ``depth``, the others at depth + 1. Unfilled places count as
    items of similarity ``rule.min_score``; if that is 0, there are items to fill them, and the
    search continues.
    """
    limit = scores.shape[0]
    budget = rule.allowed * limit
    missed = 0.0
    if size < limit:
        if rule.min_score <= 0.0:
            return False
        missed = (limit - size) * _miss(rule.min_score, rule, depth, done)
    for i in range(size):
        if missed > budget:
            return False
        missed += _miss(max(np.float64(scores[i]), rule.min_score), rule, depth, done)
    return missed <= budget


@inner
def mean_miss(scores: Float64s, size: int, rule: Rule, depth: int, done: int) -> float:
    """Return the mean of miss over the hits found, or of the minimum score; see `rule_holds`."""
    if size == 0:
        return _miss(rule.min_score, rule, depth, done) if rule.min_score > 0.0 else 1.0
    missed = 0.0
    for i in range(size):
        missed += _miss(max(np.float64(scores[i]), rule.min_score), rule, depth, done)
    return missed / size


class ProbeRequests(NamedTuple):
    """What m queries request from the tables."""

    keys: UInt64s  # (m, L)
    skip: Int64s  # (m,): a row that a query must not return, or -1
    scan_nanoseconds: Float64s  # (m,): time of a scan for each query


class ProbeHits(NamedTuple):
    """Memory for the results of probing for m queries."""

    scores: Float64s  # (m, limit): exact, falling; equal scores by ascending row
    rows: Int64s  # (m, limit)
    sizes: Int64s  # (m,)
    counters: Int64s  # (m, COUNTERS)
    recall: Float64s  # (m,): expected share found of the items as similar as the hits


@inner
def _depth_needed(scores: Float32s, size: int, rule: Rule, depth: int) -> int:
    """Return the depth at which the rule will hold if no better hit is found; 0 for none."""
    needed = depth - 1
    while needed > 0 and not rule_holds(scores, size, rule, needed, rule.tables):
        needed -= 1
    return needed


@inner
def _grows_beyond(spent: float, growth: float, depths: int, scan_nanoseconds: float) -> bool:
    """Return whether further depths, each ``growth`` times longer, will exceed a scan's time."""
    if spent <= _TRIAL * scan_nanoseconds:
        return False
    return bool(spent * (growth**depths - 1.0) > scan_nanoseconds)


@inner
def _longest(indptr: Int64s) -> int:
    """Return the number of entries of the longest compressed row."""
    longest = 0
    for m in range(indptr.shape[0] - 1):
        longest = max(longest, indptr[m + 1] - indptr[m])
    return longest


@kernel
def probe(
    queries: Rows,
    requests: ProbeRequests,
    rows: Rows,
    permitted: UInt8s,
    segments: TableSegments,
    row_nanoseconds: float,
    rule: Rule,
    out: ProbeHits,
) -> None:
    """Search tables for every query; leave queries to a scan if that is faster."""
    queries, requests, rows = Rows(*queries), ProbeRequests(*requests), Rows(*rows)
    segments, rule, out = TableSegments(*segments), Rule(*rule), ProbeHits(*out)
    addresses, bits = segments.addresses, segments.bits
    tables = rule.tables
    min_score = rule.min_score
    floor = min_score - rule.slack
    dense = rows.dense.shape[1] > 0
    left = np.empty((addresses.shape[0], tables), np.int64)
    right = np.empty((addresses.shape[0], tables), np.int64)
    visited = np.empty((rows.norms.shape[0] + 63) // 64, np.uint64)
    table_size = spread_size(_longest(queries.indptr))
    table_slots = np.empty(table_size, np.uint32)
    table_values = np.zeros(table_size, np.float32)
    limit = out.scores.shape[1]
    scores = np.empty(limit, np.float32)
    exact = np.empty(limit, np.float64)
    for m in range(requests.keys.shape[0]):
        visited[:] = np.uint64(0)
        if not dense:
            part = slice(queries.indptr[m], queries.indptr[m + 1])
            spread(queries.slots[part], queries.values[part], table_slots, table_values)
        pair = compare(queries, m, rows, table_slots, table_values)
        skipped = requests.skip[m]
        scan_nanoseconds = requests.scan_nanoseconds[m]
        sought = requests.keys[m]
        for s in range(addresses.shape[0]):
            find_places(pointer_to_uint64(addresses[s, 0]), addresses[s, 2], sought, left[s])
            right[s] = left[s]
        hits = out.rows[m]
        size = 0
        farthest = reach(np.float32(floor)) if dense else np.float32(0.0)
        candidates = 0
        before = earlier = 0  # candidates when the depths before the last one were finished
        answered = False
        depth, done = rule.depths, 0
        while depth > 0:
            shift = np.uint64(64 - depth * bits)
            done = 0
            # Without a better hit, no check before that of the last table can succeed either.
            hopeful = rule_holds(scores, size, rule, depth, tables)
            while done < tables:
                key = sought[done]
                better = False
                for s in range(addresses.shape[0]):
                    count = addresses[s, 2]
                    keys = offset(pointer_to_uint64(addresses[s, 0]), done * count)
                    key_rows = offset(pointer_to_int32(addresses[s, 1]), done * count)
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
                        score = quick_gmm(pair, row, farthest)
                        if score >= floor and (size < limit or score >= scores[0]):
                            size = push(scores, hits, size, score, row)
                            better = True
                            if dense and size == limit:
                                farthest = reach(max(scores[0], np.float32(floor)))
                done += 1
                if better:
                    hopeful = rule_holds(scores, size, rule, depth, tables)
                if hopeful and rule_holds(scores, size, rule, depth, done):
                    answered = True
                    break
                if candidates * row_nanoseconds > scan_nanoseconds:
                    break
            if answered or depth == 1 or done < tables:
                break
            # Cost of the depth needed if no better hit is found. Only live rows are counted, so
            # that deleted ones change no answer.
            needed = _depth_needed(scores, size, rule, depth)
            if needed == 0 and (size == limit or min_score > 0.0):
                break
            if earlier > 0:
                further = depth - needed if needed > 0 else 1
                growth = np.sqrt(candidates / earlier)
                if _grows_beyond(candidates * row_nanoseconds, growth, further, scan_nanoseconds):
                    break
            earlier = before
            before = candidates
            depth -= 1
        exact_gmm(queries, m, rows, hits[:size], exact)
        out.sizes[m] = size = rank(exact, hits, size, min_score, False, out.scores[m])
        out.recall[m] = 1.0 - mean_miss(out.scores[m], size, rule, depth, done)
        counters = out.counters[m]
        counters[DEPTH], counters[TABLES] = depth, tables
        counters[CANDIDATES], counters[ANSWERED] = candidates, 1 if answered else 0
    keep(table_slots)
    keep(table_values)
