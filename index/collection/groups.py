"""Groups of near-duplicates: rows joined by pairs, and the row of each group that is kept."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

import numpy as np

from gcws_search.index.collection.items import View
from gcws_search.index.contracts.analysis import Group, GroupParams
from gcws_search.index.contracts.arrays import Float64s, Int64s, UInt8s, UInt64s
from gcws_search.index.contracts.hits import Pairs, RowView
from gcws_search.index.contracts.scores import Ranking
from gcws_search.index.joins import pair_scores
from gcws_search.index.payload import first_scalar
from gcws_search.index.vectors.equal_rows import equal_groups

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)


def group_rows(
    view: View,
    permitted: UInt8s,
    find_pairs: Callable[[RowView], Pairs],
    params: GroupParams,
    ranking: Ranking,
) -> list[Group]:
    """Return the groups of permitted rows that pairs join, the largest first.

    Equal rows are joined before pairs are looked for: a thousand of them are half a million pairs.

    permitted: (n,) uint8.
    find_pairs: returns the pairs of the rows that it is shown, each once, scored by ``ranking``.
    """
    single, copies = permitted.copy(), _copies(view, permitted)
    for group in copies:
        single[group[1:]] = 0
    shown = RowView(view.vectors, single, int(np.count_nonzero(single)))
    a, b, scores = find_pairs(shown)
    stands = np.arange(len(view))  # of each row the one that is a node in its place
    is_node = np.zeros(len(view), np.bool_)
    others = [np.empty(0, np.int64)]
    for group in copies:
        best = _ranked(view, group, params.keep)
        stands[group] = best[0]
        is_node[best[0]] = True
        others.append(best[1:])
    a, b = stands[a], stands[b]
    is_node[a] = is_node[b] = True
    rows = _ranked(view, np.flatnonzero(is_node), params.keep)
    number = np.empty(len(view), np.int64)
    number[rows] = np.arange(len(rows))
    a, b = number[a], number[b]
    if params.mode == "components":
        owners = _components(len(rows), a, b)
        joined = owners[a] == owners[b]
    else:
        owners = _leaders(len(rows), a, b)
        joined = (owners[a] == b) | (owners[b] == a)
    weakest = np.ones(len(rows))
    np.minimum.at(weakest, owners[a[joined]], scores[joined])
    other = np.concatenate(others)
    owners = np.append(owners, owners[number[stands[other]]])
    return _named(view, np.append(rows, other), owners, weakest, ranking)


def _copies(view: View, permitted: UInt8s) -> list[Int64s]:
    """Return groups of equal rows, each in rising order."""
    vectors = view.vectors
    keys: UInt64s = np.zeros((len(vectors), 1), np.uint64)
    if vectors.form == "sparse" and len(vectors.slots):
        mixed = vectors.slots.astype(np.uint64) << np.uint64(32)
        mixed |= vectors.values.view(np.uint32)
        mixed *= _MIX
        mixed ^= mixed >> np.uint64(29)
        mixed *= _MIX
        sums = np.append(np.uint64(0), np.cumsum(mixed, dtype=np.uint64))
        keys[:, 0] = sums[vectors.indptr[1:]] - sums[vectors.indptr[:-1]]
    return equal_groups(vectors, np.flatnonzero(permitted), keys, more_than=1)


def _ranked(view: View, rows: Int64s, keep: str) -> Int64s:
    """Return rows in the order in which they are kept, the best first."""
    if keep == "first":
        return np.sort(rows)
    if keep == "longest":
        order: Int64s = rows[np.lexsort((rows, -view.vectors.norms[rows]))]
        return order
    numbers: list[tuple[float, int]] = []
    texts: list[tuple[str, int]] = []
    others: list[int] = []
    for row in np.sort(rows).tolist():
        value = first_scalar(view.payloads[row], keep)
        if isinstance(value, str):
            texts.append((value, row))
        elif value is None:
            others.append(row)
        else:
            numbers.append((value, row))
    for some in (numbers, texts):
        some.sort(key=lambda pair: pair[0], reverse=True)
    found = [row for _, row in numbers] + [row for _, row in texts] + others
    return np.array(found, np.int64)


def _components(count: int, a: Int64s, b: Int64s) -> Int64s:
    """Return the first node that each of ``count`` nodes is joined with by edges from a to b."""
    from scipy.sparse import coo_array  # noqa: PLC0415  # no start waits for it
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    joined = coo_array((np.ones(len(a), np.bool_), (a, b)), (count, count))
    _, labels = connected_components(joined, directed=False)
    firsts = np.unique(labels, return_index=True)[1]
    owners: Int64s = firsts[labels]
    return owners


def _leaders(count: int, a: Int64s, b: Int64s) -> Int64s:
    """Return of each of ``count`` nodes its leader: nodes are taken in their order."""
    ends = np.concatenate([a, b])
    order = np.argsort(ends, kind="stable")
    partners = np.concatenate([b, a])[order]
    starts = np.searchsorted(ends[order], np.arange(count + 1)).tolist()
    owners = np.full(count, -1)
    for node, (first, last) in enumerate(pairwise(starts)):
        if owners[node] < 0:
            near = partners[first:last]
            owners[near[owners[near] < 0]] = owners[node] = node
    return owners


def _named(
    view: View, rows: Int64s, owners: Int64s, weakest: Float64s, ranking: Ranking
) -> list[Group]:
    """Return groups of nodes, which are owned by the first of each."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(owners[order]) != 0))
    ends = np.append(starts[1:], len(rows))
    scores = pair_scores(view.vectors, rows[owners[order]], rows[order], ranking)
    ids, members = view.ids, rows[order].tolist()
    groups: list[tuple[int, int, Group]] = []
    several = ends - starts > 1
    for first, last in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        names = [ids[row] for row in members[first:last]]
        pairs = zip(names[1:], scores[first + 1 : last].tolist(), strict=True)
        ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
        least = float(weakest[owners[order[first]]])
        group = Group(names[0], [(names[0], 1.0), *ranked], least)
        groups.append((first - last, members[first], group))
    return [group for *_, group in sorted(groups, key=lambda each: each[:2])]
