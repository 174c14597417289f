"""Vectors joined with a collection: each with all items that are similar enough, or the best.

Runs of vectors are answered one after the other, so that memory holds the hits of one run.
There are up to three ways to find all items that score enough: a search with a least score; one
without, by the graph, for more hits until the last one scores less; and for sparse rows an exact
one, by lists of items under the slots that a hit must share. The first runs try each, the others
take the quickest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import StoredItem
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.analysis import JoinParams
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import (
    RawBatch,
    SparseVector,
    Text,
    VectorBatch,
    named_vector,
)
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import BatchHits, RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.cost_model import prefix_nanoseconds
from gcws_search.index.joins import PrefixJoin
from gcws_search.index.kernels.gmm.exact_rerank import exact_rows
from gcws_search.index.kernels.gmm.rows import rows_of
from gcws_search.index.payload import Filter, item_text
from gcws_search.index.vectors.inputs import InputVectors, OneVector
from gcws_search.index.vectors.names import CoordinateNames

_FIRST_ROWS: Final = 32
_MAX_ROWS: Final = 4096
"""Vectors of the first runs, which try the ways, and of a run at most."""
_HITS: Final = 1 << 19
"""Hits of a run from which the next one is shorter."""
_LISTING: Final = 4.0
"""Items are listed where what is left takes so many times longer by other ways."""
_FIRST_LIMIT: Final = 16
_GROWTH: Final = 8
"""Hits that are asked for first; then so many times more where all of them score enough."""

Found = tuple[Int64s, Int64s, Float64s]
"""Places of vectors in a batch, rows of their hits, and scores; in any order."""
Way = Callable[[VectorBatch], Found]


class JoinedRows(NamedTuple):
    """The hits of some vectors, vector after vector, by falling score, equal scores by id.

    end: the vectors before this number are answered.
    rows: (p,) numbers of vectors, rising.
    to: ids of the p items.
    scores: (p,).
    """

    end: int
    rows: Int64s
    to: list[str]
    scores: Float64s


def ranked_hits(
    end: int, rows: Int64s, to: Sequence[str], scores: Float64s, limit: int | None
) -> JoinedRows:
    """Return hits by row, falling score and id, at most ``limit`` of a row."""
    order = np.lexsort((-scores, rows))
    tied = (rows[order[1:]] == rows[order[:-1]]) & (scores[order[1:]] == scores[order[:-1]])
    borders = np.flatnonzero(np.diff(np.concatenate([[False], tied, [False]]).astype(np.int8)))
    for first, last in borders.reshape(-1, 2).tolist():
        order[first : last + 1] = sorted(order[first : last + 1].tolist(), key=to.__getitem__)
    if limit is not None:
        ordered = rows[order]
        order = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < limit]
    return JoinedRows(end, rows[order], [to[place] for place in order.tolist()], scores[order])


class CollectionJoin:
    """The join of up to ``count`` vectors with the items that a collection has now.

    Once ``stop`` is set, CancelledError is raised.
    """

    def __init__(
        self,
        memory: MemoryCollection,
        params: JoinParams,
        where: Filter | None,
        count: int,
        stop: threading.Event | None,
    ) -> None:
        self._memory = memory
        self._view = memory.view
        self._permitted = self._view.alive if where is None else memory.mask(self._view, where)
        self._permitted_count = int(np.count_nonzero(self._permitted))
        self._params = params
        self._left = count
        self._stop = stop
        self._size = _FIRST_ROWS
        self._paces: dict[Way, float] = {}  # seconds a vector
        self._untried: list[Callable[[], Way | None]] = [lambda: self._search]
        if params.limit is None and params.ranking == "gmm":
            if params.recall < 1:
                self._untried.append(lambda: self._rank)
            self._untried.append(self._prefixes)

    def __call__(self, vectors: RawBatch) -> Iterator[JoinedRows]:
        """Yield the hits of vectors, run after run; InvalidVector is at ``(row, …)``."""
        batch, first = self._view.space.prepare(vectors), 0
        while first < len(batch):
            if self._stop is not None and self._stop.is_set():
                raise CancelledError
            last = min(first + self._size, len(batch))
            places, rows, scores = self._find(batch[first:last])
            count = len(places)
            self._size = max(1, min(4 * self._size, _MAX_ROWS, self._size * _HITS // (count + 1)))
            to = [self._view.ids[row] for row in rows.tolist()]
            yield ranked_hits(last, places + first, to, scores, self._params.limit)
            first = last

    def _find(self, batch: VectorBatch) -> Found:
        """Return the hits of a run, by a way that is not tried yet, or else the quickest."""
        self._memory.searches.announce()
        way = None
        while way is None and self._untried:
            way = self._untried.pop(0)()
        way = way or min(self._paces, key=self._paces.__getitem__)
        began = time.perf_counter()
        found = way(batch)
        self._paces[way] = (time.perf_counter() - began) / len(batch)
        self._left -= len(batch)
        return found

    def _search(self, batch: VectorBatch) -> Found:
        """Search with the least score."""
        least, limit = self._params.min_score or 0.0, self._params.limit
        return self._grow(batch, least, limit or _FIRST_LIMIT, is_cut=limit is not None)

    def _rank(self, batch: VectorBatch) -> Found:
        """Search without a least score: a graph ranks items, and knows none."""
        return self._grow(batch, 0.0, _FIRST_LIMIT, is_cut=False)

    def _grow(self, batch: VectorBatch, least: float, limit: int, *, is_cut: bool) -> Found:
        """Search for more hits until the last one of each vector scores too little."""
        wanted = self._params.min_score or 0.0
        left, parts = np.arange(len(batch)), list[Found]()
        while len(left):
            limit = min(limit, max(1, self._permitted_count))
            params = SearchParams(
                limit=limit,
                recall=self._params.recall,
                min_score=least,
                ranking=self._params.ranking,
            )
            step, more = max(1, _HITS // limit), list[Int64s]()
            for first in range(0, len(left), step):
                some = left[first : first + step]
                asked = batch if len(some) == len(batch) else batch[some]
                hits = self._memory.search_rows(
                    self._view, self._permitted, asked, params, skip=None
                )
                places, rows, scores = _flatten(hits)
                is_whole = is_cut or limit == self._permitted_count or hits.sizes < limit
                whole = np.broadcast_to(is_whole, len(some)).copy()
                lowest = np.full(len(some), np.inf)
                np.minimum.at(lowest, places, scores)
                whole |= lowest < wanted
                taken = whole[places] & (scores >= wanted)
                parts.append((some[places[taken]], rows[taken], scores[taken]))
                more.append(some[~whole])
            left, limit = np.concatenate(more), _GROWTH * limit
        places, rows, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return places, rows, scores

    def _prefixes(self) -> Way | None:
        """Return a way by prefixes, None where to list the items takes longer than it may spare."""
        vectors = self._view.vectors
        if vectors.form == "dense" or self._permitted_count == 0:
            return None
        view = RowView(vectors, self._permitted, self._permitted_count)
        seconds = _LISTING * prefix_nanoseconds(view, 0.0) / 1e9
        if seconds > self._left * min(self._paces.values()):
            return None
        least = self._params.min_score or 0.0
        prefixes = PrefixJoin.for_others(view, least)
        if prefixes is None:
            return None
        workers = self._memory.backend.workers

        def find(batch: VectorBatch) -> Found:
            if not prefixes.takes(batch):
                return self._search(batch)
            places, rows = prefixes.partners(batch, workers)
            order = np.argsort(places, kind="stable")
            places, rows = places[order], rows[order]
            scores = np.empty(len(rows), np.float64)
            starts = np.searchsorted(places, np.arange(len(batch) + 1)).tolist()

            def score(first: int, last: int) -> None:
                asked, listed = rows_of(batch), rows_of(vectors)
                for place in range(first, last):
                    part = slice(starts[place], starts[place + 1])
                    exact_rows(asked, place, listed, rows[part], scores[part])

            workers.split(len(batch), score)
            good = scores >= least
            return places[good], rows[good], scores[good]

        return find


def require_joinable(own: CollectionConfig, other: CollectionConfig) -> None:
    """Raise InvalidParameter where another collection's vectors are none of this one's space."""
    if own.dim != other.dim or (own.text is None) != (other.text is None):
        raise InvalidParameter(
            expected=f"a collection {_show_kind(own)}",
            got=f"one {_show_kind(other)}",
            loc=("collection",),
        )


def _show_kind(config: CollectionConfig) -> str:
    """Return what the vectors of a collection are, for an error."""
    if config.text is not None:
        return "of texts"
    return "of an open slot space" if config.dim is None else f"of dim {config.dim}"


def stored_vectors(
    items: Sequence[StoredItem], names: CoordinateNames, *, are_texts: bool
) -> InputVectors:
    """Return what another collection's items are of: texts, or vectors.

    Vectors of an open space are given by the names of their coordinates, which are numbered by
    arrival there. A vector keeps the numbers where one has no name.
    """
    if are_texts:
        return InputVectors(mixed=[Text(item_text(item.payload)) for item in items])
    known: dict[int, str] = {}
    if names.is_open:
        every = [item.vector["indices"] for item in items if isinstance(item.vector, dict)]
        known = dict(names.of([*{index for indices in every for index in indices}]))
    vectors: list[OneVector] = []
    for item in items:
        if not isinstance(item.vector, dict):
            vectors.append(np.array(item.vector, np.float32))
            continue
        indices, values = item.vector["indices"], np.array(item.vector["values"], np.float64)
        words = [known[index] for index in indices if index in known]
        is_named = len(words) == len(indices)
        numbers = np.array(indices, np.int64)
        vectors.append(named_vector(words, values) if is_named else SparseVector(numbers, values))
    return InputVectors(mixed=vectors)


def _flatten(hits: BatchHits) -> Found:
    """Return all hits of a batch, of queries with more ties than it has places too."""
    narrow = hits.sizes.copy()
    narrow[[*hits.wider]] = 0
    there = np.arange(hits.rows.shape[1]) < narrow[:, None]
    places = np.repeat(np.arange(len(hits)), narrow)
    parts: Sequence[Found] = [
        (places, hits.rows[there], hits.scores[there]),
        *((np.full(len(rows), i), rows, scores) for i, (rows, scores) in hits.wider.items()),
    ]
    places, rows, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    return places, rows, scores
