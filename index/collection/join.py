"""Join vectors with a collection: for each vector all items that are similar enough, or the best.

Vectors are processed in runs, so that memory holds the hits of only one run. There are three ways
to find all items with enough score: by bands (`lsh.band_join`), by searches with a minimum score,
and exactly by folded rows (`exact.folded`). The first runs try the ways that may be quickest; the
others use the one that was.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from gcws_search.index.collection.items import StoredItem, View
from gcws_search.index.collection.memory_collection import MemoryCollection
from gcws_search.index.contracts.analysis import MAX_JOIN_LIMIT, JoinParams
from gcws_search.index.contracts.arrays import Float64s, Int64s
from gcws_search.index.contracts.batches import (
    RawBatch,
    SparseVector,
    Text,
    VectorBatch,
    named_vector,
)
from gcws_search.index.contracts.errors import InvalidParameter
from gcws_search.index.contracts.hits import RowView
from gcws_search.index.contracts.parameters import CollectionConfig, SearchParams
from gcws_search.index.cost_model import row_nanoseconds
from gcws_search.index.exact.folded import FoldedJoin, Found, least_folded
from gcws_search.index.payload import Filter, item_text
from gcws_search.index.vectors.inputs import InputVectors, OneVector
from gcws_search.index.vectors.names import CoordinateNames

if TYPE_CHECKING:
    from gcws_search.index.collection.stored_collection import StoredCollection

_PAGE: Final = 4000
"""Items of another collection that are read together."""
_FIRST_ROWS: Final = 32
_MAX_ROWS: Final = 8192
_GROWING: Final = 16
"""Vectors of the first run, and of a run at most; a run has at most so many times those before.
With 256 at first, joins of counts and fingerprints took 1.1 to 1.3 times as long."""
_TRIED_ROWS: Final = 256
"""Vectors of a run that tries another way, at least. Without, joins of 60 took 1.06 of the time."""
_HITS: Final = 1 << 19
"""Hits of a run from which the next one is shorter."""
_FOLDING: Final = 2.0
"""Items are folded, each like so many that are scored, where what is left takes longer. Without,
joins of 300 vectors of counts took 1.2 times as long."""
_WORTH: Final = 2.0
_QUICK: Final = 20_000.0
_LISTING: Final = 100.0
"""Bands take the place of exact ways where they are expected to take less than this many of the
least one, and of searches without a trial where they take less than so many nanoseconds a vector;
listing an item for them takes that many."""
_FIRST_LIMIT: Final = 16
_GROWTH: Final = 8
"""Hits that are asked for first; then so many times more where all of them score enough."""

Way = Callable[[VectorBatch], Found]


class JoinedRows(NamedTuple):
    """Hits of some vectors, in order of vectors, then by falling score, equal scores by id.

    end: all vectors before this number are done.
    rows: (p,) numbers of vectors, ascending.
    to: ids of the p items found.
    scores: (p,).
    """

    end: int
    rows: Int64s
    to: list[str]
    scores: Float64s


def ranked_hits(
    end: int, rows: Int64s, to: Sequence[str], scores: Float64s, limit: int | None
) -> JoinedRows:
    """Return hits by row, falling score and id, at most ``limit`` per row."""
    order = np.lexsort((-scores, rows))
    tied = (rows[order[1:]] == rows[order[:-1]]) & (scores[order[1:]] == scores[order[:-1]])
    borders = np.flatnonzero(np.diff(np.concatenate([[False], tied, [False]]).astype(np.int8)))
    for first, last in borders.reshape(-1, 2).tolist():
        order[first : last + 1] = sorted(order[first : last + 1].tolist(), key=to.__getitem__)
    if limit is not None:
        ordered = rows[order]
        order = order[np.arange(len(order)) - np.searchsorted(ordered, ordered) < limit]
    return JoinedRows(end, rows[order], [to[place] for place in order.tolist()], scores[order])


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """A way of joining: one search of the collection for each vector."""

    memory: MemoryCollection
    view: View
    rows: RowView
    params: JoinParams

    def __call__(self, batch: VectorBatch) -> Found:
        """Search with growing limits until all hits, or as many as requested, are found."""
        most = max(1, min(self.params.limit or MAX_JOIN_LIMIT, self.rows.permitted_count))
        limit = most if self.params.min_score is None else min(most, _FIRST_LIMIT)
        left, parts = np.arange(len(batch)), list[Found]()
        while len(left):
            params = SearchParams(
                limit=limit,
                recall=self.params.recall,
                min_score=self.params.min_score or 0.0,
                ranking=self.params.ranking,
            )
            step, more = max(1, _HITS // limit), list[Int64s]()
            for first in range(0, len(left), step):
                some = left[first : first + step]
                asked = batch if len(some) == len(batch) else batch[some]
                hits = self.memory.search_rows(
                    self.view, self.rows.permitted, asked, params, skip=None
                )
                places, rows, scores = hits.flat()
                is_whole = limit == most or hits.sizes < limit
                whole = np.broadcast_to(is_whole, len(some))
                taken = whole[places]
                parts.append((some[places[taken]], rows[taken], scores[taken]))
                more.append(some[~whole])
            left, limit = np.concatenate(more), min(most, _GROWTH * limit)
        places, rows, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return places, rows, scores


class CollectionJoin:
    """The join of vectors with the items that a collection has at the start.

    Raises CancelledError once ``stop`` is set.
    """

    def __init__(
        self,
        memory: MemoryCollection,
        params: JoinParams,
        where: Filter | None,
        stop: threading.Event | None,
        *,
        without: Int64s | None,
    ) -> None:
        self._memory = memory
        self._view = memory.view
        permitted = self._view.alive if where is None else memory.mask(self._view, where)
        if without is not None and len(without):
            permitted = permitted.copy()
            permitted[np.isin(self._view.sequences, without)] = 0
        self._rows = RowView(self._view.vectors, permitted, int(np.count_nonzero(permitted)))
        self._params = params
        self._left = 0  # estimated number of vectors to come
        self._seen = 0
        self._stop = stop
        self._size = _FIRST_ROWS
        self._paces: dict[Way, float] = {}  # seconds per vector in its last run
        self._search = _Search(memory, self._view, self._rows, params)
        # These functions do not refer to the join, so the view is freed with it.
        self._untried: list[Callable[[CollectionJoin, VectorBatch], Way | None]] = [
            lambda own, _: own._search
        ]
        if params.limit is None and params.ranking == "gmm":
            self._untried = [CollectionJoin._share_bands, *self._untried, CollectionJoin._fold]

    def __call__(self, vectors: RawBatch) -> Iterator[JoinedRows]:
        """Yield the hits of vectors, run by run; InvalidVector is at ``(row, …)``."""
        batch, first = self._view.space.prepare(vectors), 0
        self._left = max(len(batch), self._seen)  # body of unknown length: assume as many again
        while first < len(batch):
            if self._stop is not None and self._stop.is_set():
                raise CancelledError
            way = self._choose(batch[first : first + self._size])
            last = min(first + self._size, len(batch))  # some ways take longer runs
            places, rows, scores = self._find(way, batch[first:last])
            count = len(places)
            self._size = max(
                1, min(_GROWING * self._size, _MAX_ROWS, self._size * _HITS // (count + 1))
            )
            to = self._view.ids.of(rows)
            yield ranked_hits(last, places + first, to, scores, self._params.limit)
            first = last

    def _choose(self, batch: VectorBatch) -> Way:
        """Return a way that has not been tried yet, or else the quickest."""
        way = None
        while way is None and self._untried and len(batch) >= min(self._size, _TRIED_ROWS):
            way = self._untried.pop(0)(self, batch)
        if way is None and not self._paces:
            way = self._search
        return way or min(self._paces, key=self._paces.__getitem__)

    def _find(self, way: Way, batch: VectorBatch) -> Found:
        self._memory.searches.announce()
        began = time.perf_counter()
        found = way(batch)
        self._paces[way] = (time.perf_counter() - began) / len(batch)
        self._left -= len(batch)
        self._seen += len(batch)
        return found

    def _share_bands(self, batch: VectorBatch) -> Way | None:
        """Return the way by bands; None if it is expected to be slower than searches."""
        view, params = self._rows, self._params
        if view.permitted_count * _LISTING > self._left * _QUICK:
            return None
        found = self._memory.backend.band_join(
            self._view.state, view, batch, min_score=params.min_score or 0.0, recall=params.recall
        )
        if found is None or found.nanoseconds > _WORTH * least_folded(view):
            return None
        self._untried = []
        setup, nanoseconds = found.setup_nanoseconds, found.nanoseconds
        if nanoseconds + setup / self._left <= _QUICK:
            self._size = _MAX_ROWS
            return found
        self._untried = [lambda own, _: found if own._saves_time(setup, nanoseconds) else None]
        return self._search

    def _fold(self, batch: VectorBatch) -> Way | None:
        """Return the way by folded rows; None if folding takes too long."""
        view = self._rows
        setup = _FOLDING * view.permitted_count * row_nanoseconds(view)
        if view.permitted_count == 0 or not self._saves_time(setup, least_folded(view)):
            return None
        return FoldedJoin(view, batch, self._params.min_score or 0.0, self._memory.backend.workers)

    def _saves_time(self, setup: float, nanoseconds: float) -> bool:
        """Return whether a way may be quicker, given its setup time and its time per vector."""
        threads = self._memory.backend.workers.threads
        best = min(self._paces.values())
        return setup + self._left * nanoseconds < 1e9 * threads * self._left * best


def require_joinable(own: CollectionConfig, other: CollectionConfig) -> None:
    """Raise InvalidParameter unless another collection's vectors belong to the same space."""
    if own.dim != other.dim or (own.text is None) != (other.text is None):
        raise InvalidParameter(
            expected=f"a collection {_show_kind(own)}",
            got=f"one {_show_kind(other)}",
            loc=("collection",),
        )


def _show_kind(config: CollectionConfig) -> str:
    """Return the kind of a collection's vectors, for an error message."""
    if config.text is not None:
        return "of texts"
    return "of an open slot space" if config.dim is None else f"of dim {config.dim}"


def stored_vectors(
    other: StoredCollection, cursor: str | None
) -> Iterator[tuple[list[str], InputVectors]]:
    """Yield the ids and vectors of another collection's items, page by page."""
    while True:
        page = other.page(limit=_PAGE, cursor=cursor, with_vector=True, where=None, ids=None)
        if page.items:
            are_texts = other.config.text is not None
            yield (
                [item.id for item in page.items],
                _vectors_of(page.items, other.names, are_texts=are_texts),
            )
        if (cursor := page.next_cursor) is None:
            return


def _vectors_of(
    items: Sequence[StoredItem], names: CoordinateNames, *, are_texts: bool
) -> InputVectors:
    """Return the texts or vectors of another collection's items.

    In an open space coordinates are numbered by arrival, so they are passed by name. A vector
    with an unnamed coordinate keeps its numbers.
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
