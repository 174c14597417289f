"""Groups of near-duplicates: rows linked by pairs, and the row of each group that is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from gcws_search.index.collection.ids import ranks_of
from gcws_search.index.collection.items import View
from gcws_search.index.contracts.analysis import Group, GroupMode, GroupParams
from gcws_search.index.contracts.arrays import AnyArray, Float64s, Int32s, Int64s, UInt8s
from gcws_search.index.contracts.hits import Pairs
from gcws_search.index.contracts.scores import Ranking
from gcws_search.index.joins import pair_scores
from gcws_search.index.payload import first_scalar
from gcws_search.index.vectors.equal_rows import equal_groups

Ends = Int32s | Int64s
Edges = tuple[Ends, Ends, Float64s]
"""Pairs of rows, and their scores."""

_PART: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """The rows that are grouped, in this process or in shards.

    count: number of rows.
    ids_of: returns the ids of rows.
    rank: returns rows in order of preference, the one to keep first.
    score: returns the exact score of each pair.
    """

    count: int
    ids_of: Callable[[Sequence[int]], list[str]]
    rank: Callable[[Int64s], Int64s]
    score: Callable[[Int64s, Int64s], Float64s]


def group_rows(
    view: View, copies: Sequence[Int64s], pairs: Edges, params: GroupParams, ranking: Ranking
) -> list[Group]:
    """Return the groups of rows linked by pairs, the largest first.

    copies: groups of equal rows; see `find_copies`.
    pairs: each once, scored by ``ranking``; of equal rows, only the first needs pairs.
    """
    keep, payloads, vectors = params.keep, view.payloads, view.vectors

    def rank(rows: Int64s) -> Int64s:
        return rank_rows(rows, keep, vectors.norms, lambda row: first_scalar(payloads[row], keep))

    def score(a: Int64s, b: Int64s) -> Float64s:
        return pair_scores(vectors, a, b, ranking)

    rows = GroupedRows(len(view), view.ids.of, rank, score)
    return join_groups(rows, copies, pairs, params.mode)


def join_groups(
    grouped: GroupedRows, copies: Sequence[Int64s], pairs: Edges, mode: GroupMode
) -> list[Group]:
    """Return the numbers of the groups linked by pairs; see `group_rows`."""
    n = grouped.count
    a, b, scores = pairs
    stands = np.arange(n, dtype=np.int32)  # for each row, the row that represents it as a node
    is_node = np.zeros(n, np.bool_)
    for some in _parts(len(a)):
        is_node[a[some]] = is_node[b[some]] = True
    others = [np.empty(0, np.int64)]
    for group in copies:
        best = grouped.rank(group)
        stands[group] = best[0]
        is_node[group] = False
        is_node[best[0]] = True
        others.append(best[1:])
    rows = grouped.rank(np.flatnonzero(is_node))
    number = np.empty(n, np.int32)
    number[rows] = np.arange(len(rows))
    place = number[stands]
    a, b = place[a], place[b]
    owners = (_components if mode == "components" else _leaders)(len(rows), a, b)
    weakest = np.ones(len(rows))
    for some in _parts(len(a)):
        first, second = owners[a[some]], owners[b[some]]
        joined = first == second
        if mode == "leaders":
            joined &= (first == b[some]) | (second == a[some])
        np.minimum.at(weakest, first[joined], scores[some][joined])
    other = np.concatenate(others)
    owners = np.append(owners, owners[place[other]])
    return _named(grouped, np.append(rows, other), owners, weakest)


def find_copies(view: View, permitted: UInt8s) -> list[Int64s]:
    """Return groups of equal rows, each ascending."""
    return equal_groups(view.vectors, np.flatnonzero(permitted), more_than=1)


def find_many_copies(view: View, permitted: UInt8s, limit: int, max_pairs: int) -> list[Int64s]:
    """Return groups of equal rows, the first by its id first, if their pairs fill a limit.

    None unless there may be more than ``max_pairs`` of these: equal rows have equal norms.
    """
    _, counts = np.unique(view.vectors.norms[permitted.view(np.bool_)], return_counts=True)
    if _count_pairs(counts) <= max_pairs:
        return []
    copies = find_copies(view, permitted)
    if _count_pairs(np.array([len(group) for group in copies], np.int64)) < limit:
        return []
    return [np.array(view.ids.first(group, len(group)), np.int64) for group in copies]


def _count_pairs(counts: Int64s) -> int:
    return int((counts * (counts - 1) // 2).sum())


def without_copies(permitted: UInt8s, copies: Sequence[Int64s]) -> UInt8s:
    """Return the mask of rows without all but the first of each group of equal ones."""
    single = permitted.copy()
    for group in copies:
        single[group[1:]] = 0
    return single


def first_equal_pairs(view: View, copies: Sequence[Int64s], alike: Pairs, limit: int) -> Pairs:
    """Return the first pairs of score 1, by ids, of which there may be far more than are listed.

    copies: groups of equal rows, of which the first by its id is first in its group.
    alike: pairs of other rows with score 1, in which only the first of equal rows occurs.
    """
    groups = [*copies]
    number = {int(group[0]): place for place, group in enumerate(groups)}
    linked: dict[int, list[int]] = {}
    for pair in zip(alike[0].tolist(), alike[1].tolist(), strict=True):
        for row in pair:
            if row not in number:
                number[row] = len(groups)
                groups.append(np.array([row], np.int64))
        a, b = (number[row] for row in pair)
        linked.setdefault(a, []).append(b)
        linked.setdefault(b, []).append(a)
    rows = np.concatenate(groups)
    place = ranks_of(view.ids.of(rows))
    order = np.argsort(place)
    borders = np.cumsum([len(group) for group in groups])
    members = np.split(place, borders[:-1])
    group_of = np.searchsorted(borders, order, side="right")
    firsts, seconds, count = [], [], 0
    for first, group in enumerate(group_of.tolist()):
        near = np.concatenate([members[each] for each in (group, *linked.get(group, ()))])
        second = np.sort(near[near > first])[: limit - count]
        firsts.append(np.full(len(second), first))
        seconds.append(second)
        count += len(second)
        if count == limit:
            break
    a, b = (rows[order[np.concatenate(each)]] for each in (firsts, seconds))
    return np.minimum(a, b), np.maximum(a, b), np.ones(len(a))


def rank_rows(
    rows: Int64s, keep: str, norms: AnyArray, value_of: Callable[[int], bool | float | str | None]
) -> Int64s:
    """Return rows in order of preference, the one to keep first; see `GroupParams`.

    norms: of all rows, used to prefer the longest.
    value_of: returns the payload value of a row under the key ``keep``.
    """
    if keep == "first":
        return np.sort(rows)
    if keep == "longest":
        order: Int64s = rows[np.lexsort((rows, -norms[rows]))]
        return order
    numbers: list[tuple[float, int]] = []
    texts: list[tuple[str, int]] = []
    others: list[int] = []
    for row in np.sort(rows).tolist():
        value = value_of(row)
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


def _parts(count: int) -> Iterator[slice]:
    """Yield slices of pairs, small enough to make 64-bit arrays of each."""
    return (slice(start, start + _PART) for start in range(0, count, _PART))


def _components(count: int, a: Int32s, b: Int32s) -> Int64s:
    """Return the first node connected with each of ``count`` nodes by edges from a to b."""
    from scipy.sparse import coo_array  # noqa: PLC0415  # no start waits for it
    from scipy.sparse.csgraph import connected_components  # noqa: PLC0415

    labels = np.arange(count, dtype=np.int32)
    for some in _parts(len(a)):
        first, second = labels[a[some]], labels[b[some]]
        joined = coo_array((np.ones(len(first), np.bool_), (first, second)), (count, count))
        labels = connected_components(joined, directed=False)[1][labels]
    firsts = np.unique(labels, return_index=True)[1]
    owners: Int64s = firsts[labels]
    return owners


def _leaders(count: int, a: Int32s, b: Int32s) -> Int64s:
    """Return the leader of each of ``count`` nodes; nodes are processed in order."""
    from scipy.sparse import coo_array  # noqa: PLC0415  # no start waits for it

    ones = np.ones(len(a), np.bool_)
    lists = [coo_array((ones, ends), (count, count)).tocsr() for ends in ((a, b), (b, a))]
    starts = [each.indptr.tolist() for each in lists]
    owners = np.full(count, -1)
    for node in range(count):
        if owners[node] < 0:
            owners[node] = node
            for each, borders in zip(lists, starts, strict=True):
                near = each.indices[borders[node] : borders[node + 1]]
                owners[near[owners[near] < 0]] = node
    return owners


def _named(grouped: GroupedRows, rows: Int64s, owners: Int64s, weakest: Float64s) -> list[Group]:
    """Return groups of nodes; each group belongs to its first node."""
    order = np.argsort(owners, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(owners[order]) != 0))
    ends = np.append(starts[1:], len(rows))
    scores = grouped.score(rows[owners[order]], rows[order])
    members = rows[order].tolist()
    ids = grouped.ids_of(members)
    groups: list[tuple[int, int, Group]] = []
    several = ends - starts > 1
    for first, last in zip(starts[several].tolist(), ends[several].tolist(), strict=True):
        names = ids[first:last]
        pairs = zip(names[1:], scores[first + 1 : last].tolist(), strict=True)
        ranked = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))
        least = float(weakest[owners[order[first]]])
        group = Group(names[0], [(names[0], 1.0), *ranked], least)
        groups.append((first - last, members[first], group))
    return [group for *_, group in sorted(groups, key=lambda each: each[:2])]
