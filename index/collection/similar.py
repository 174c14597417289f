"""Store items only if no similar one exists; the check precedes the planning of a write.

The writer runs the check, so that no other write comes between it and the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import EncodedBatch
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.analysis import SimilarItem
from gcws_search.index.contracts.arrays import Int64s, UInt8s
from gcws_search.index.contracts.batches import VectorBatch, concatenate
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import SearchParams, UnlessSimilar
from gcws_search.index.exact.inverted_index import InvertedIndex
from gcws_search.index.exact.scan import scan
from gcws_search.index.joins import all_pairs


class Near(NamedTuple):
    """The most similar existing item: its id, or its place among the new ones."""

    to: str | int
    score: float


_MAX_PAIRS: Final = 1 << 18
"""Similar pairs of one write that are held: of more, rows are taken `_TOGETHER` at a time."""
_TOGETHER: Final = 512

LeftOut = tuple[int, str | None, Near]
"""Of an item that is not stored its place in the request, its id, and what it is like."""


def split_similar(
    near: Sequence[Near | None], places: Sequence[int], ids: Sequence[str | None]
) -> tuple[list[int], list[LeftOut]]:
    """Return the rows of the items to be stored, and the others, which are similar to these.

    near: see `find_similar`; places, ids: of the items.
    """
    kept = [row for row, found in enumerate(near) if found is None]
    place_of = {row: place for place, row in enumerate(kept)}
    left_out = [
        (
            places[row],
            ids[row],
            found._replace(to=place_of[found.to]) if isinstance(found.to, int) else found,
        )
        for row, found in enumerate(near)
        if found is not None
    ]
    return kept, left_out


def similar_items(left_out: Sequence[LeftOut], ids: Sequence[str | None]) -> list[SimilarItem]:
    """Return the report on items that are not stored; ``ids`` belong to the stored ones."""
    return [
        SimilarItem(row, own, str(ids[to] if isinstance(to, int) else to), score)
        for row, own, (to, score) in left_out
    ]


def planned_rows(
    puts: Sequence[EncodedBatch], planned: Mapping[str, int | None]
) -> tuple[list[str], VectorBatch, UInt8s] | None:
    """Return ids and vectors of planned puts, and a mask of those that stay; None if none does.

    planned: the sequence number of each item after all planned changes.
    """
    ids = [item_id for items in puts for item_id in items.ids]
    sequences = [sequence for items in puts for sequence in items.sequences]
    pairs = zip(ids, sequences, strict=True)
    live = np.array([planned[each] == sequence for each, sequence in pairs], np.uint8)
    if not live.any():
        return None
    rows = concatenate([items.vectors for items in puts])
    return ids, rows, live


def find_similar(
    collection: MemoryCollection,
    vectors: VectorBatch,
    unless: UnlessSimilar,
    stored: Sequence[Near | None],
    planned: tuple[Sequence[str], VectorBatch, UInt8s] | None,
    lasts: UInt8s,
) -> list[Near | None]:
    """Return, for each vector, the stored item or earlier vector that prevents storing it.

    stored: the most similar stored item.
    planned: ids and vectors of n rows, and (n,) 1 for those that will be stored earlier; None if
        there are none.
    lasts: 0 for vectors of expired items, which do not prevent later ones.
    """
    near = [*stored]
    if planned is not None:
        ids, rows, live = planned
        view = RowView(rows, live, int(np.count_nonzero(live)))
        new = _best(collection, view, vectors, unless, ids)
        near = [
            min(filter(None, both), key=lambda each: (-each.score, str(each.to)), default=None)
            for both in zip(stored, new, strict=True)
        ]
    if lasts.all():
        return _choose(collection, vectors, near, unless)
    some = np.flatnonzero(lasts)
    places = some.tolist()
    chosen = _choose(collection, vectors[some], [near[place] for place in places], unless)
    for place, found in zip(places, chosen, strict=True):
        near[place] = found
        if found is not None and isinstance(found.to, int):
            near[place] = Near(places[found.to], found.score)
    return near


def _best(
    collection: MemoryCollection,
    view: RowView,
    vectors: VectorBatch,
    unless: UnlessSimilar,
    ids: Sequence[str] | Sequence[int],
) -> list[Near | None]:
    """Return the most similar row of each vector, by a scan; of equal scores the first by id."""
    workers = collection.backend.workers
    inverted = InvertedIndex.of(view.vectors, workers)
    params = SearchParams(limit=1, recall=1.0, min_score=unless.min_score)
    skip = np.full(len(vectors), -1, np.int64)
    found = scan(view, vectors, params, skip=skip, inverted=inverted, workers=workers)
    return _first_hits(found, lambda rows: [ids[row] for row in rows])


def _first_hits(
    found: BatchHits, ids_of: Callable[[list[int]], Sequence[Any]]
) -> list[Near | None]:
    """Return the best hit of each query; of equal scores the first by id."""
    near: list[Near | None] = []
    for number in range(len(found)):
        rows, scores = found.hits(number)
        tied = rows[scores == scores[0]].tolist() if len(rows) else []
        near.append(Near(min(ids_of(tied)), float(scores[0])) if tied else None)
    return near


def nearest_stored(
    collection: MemoryCollection, vectors: VectorBatch, unless: UnlessSimilar, gone: Collection[str]
) -> list[Near | None]:
    """Return the most similar stored item of each vector, except the ids in ``gone``."""
    view = collection.view
    permitted = view.alive
    if gone:
        rows = collection.rows_of(gone)
        if len(rows):
            permitted = permitted.copy()
            permitted[rows] = 0
    params = SearchParams(limit=1, recall=unless.recall, min_score=unless.min_score)
    collection.searches.announce()
    found = collection.search_rows(view, permitted, vectors, params, skip=None)
    return _first_hits(found, view.ids.of)


def _choose(
    collection: MemoryCollection,
    vectors: VectorBatch,
    near: Sequence[Near | None],
    unless: UnlessSimilar,
) -> list[Near | None]:
    """Return, for each vector, the stored item or earlier vector that prevents storing it.

    near: stored items.
    """
    found = [*near]
    free = np.array([row for row, one in enumerate(near) if one is None], np.int64)
    if len(free) < 2:  # noqa: PLR2004  # a pair
        return found
    try:
        alike = _left_out(collection, vectors, free, unless, len(free))
    except InvalidParameter:  # there are too many pairs
        alike = _left_out(collection, vectors, free, unless, _TOGETHER)
    for row, one in alike.items():
        found[row] = one
    return found


def _left_out(
    collection: MemoryCollection,
    vectors: VectorBatch,
    rows: Int64s,
    unless: UnlessSimilar,
    together: int,
) -> dict[int, Near]:
    """Return the rows that are like an earlier one that is stored, and the nearest such one.

    Pairs of ``together`` rows are in memory at a time. InvalidParameter: they are too many.
    """
    found: dict[int, Near] = {}
    stored: list[int] = []
    for begin in range(0, len(rows), together):
        some = rows[begin : begin + together]
        block, ones = vectors[some], np.ones(max(len(some), len(stored)), np.uint8)
        before: list[Near | None] = [None] * len(some)
        if stored:
            earlier = RowView(vectors[np.array(stored)], ones[: len(stored)], len(stored))
            before = _best(collection, earlier, block, unless, stored)
        firsts, seconds, scores = all_pairs(
            RowView(block, ones[: len(some)], len(some)),
            min_score=unless.min_score,
            limit=None,
            stop=None,
            workers=collection.backend.workers,
            max_pairs=_MAX_PAIRS,
        )
        order = np.lexsort((firsts, -scores, seconds))
        firsts, scores = firsts[order], scores[order]
        borders = np.searchsorted(seconds[order], np.arange(len(some) + 1)).tolist()
        is_stored = np.ones(len(some), np.bool_)
        for place, (row, nearest) in enumerate(zip(some.tolist(), before, strict=True)):
            part = slice(borders[place], borders[place + 1])
            for at in np.flatnonzero(is_stored[firsts[part]])[:1] if firsts[part].size else ():
                near = Near(int(some[firsts[part][at]]), float(scores[part][at]))
                if nearest is None or near.score > nearest.score:
                    nearest = near  # noqa: PLW2901
            if nearest is None:
                stored.append(row)
            else:
                is_stored[place], found[row] = False, nearest
    return found
