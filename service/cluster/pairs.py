"""Near-duplicate pairs: those within each shard, and those whose items are on two."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, buckets_of
from gcws_search.service.cluster.operations import ClusterOperations, Pair, decode_pairs
from gcws_search.service.cluster.search import ShardHits, search_message
from gcws_search.service.messages import Message, encode

_CHUNK_ROWS: Final = 512  # items that are read, and searched for in other shards, together
# Partners of an item that are asked for at first; more where all of them come.
_FIRST_LIMIT: Final = 64
_GROWTH: Final = 8
_MESSAGE_HITS: Final = 1 << 18  # that one message asks for, unless one item alone has more
_SPARE_SHARE: Final = 8  # a heap of n pairs is cut to them when it has n / 8 more
_MIN_SPARE: Final = 1024
_LONG_SECONDS: Final = 3600.0


def find_pairs(
    collection: ClusterOperations,
    *,
    min_score: float,
    recall: float,
    limit: int | None,
    stop: threading.Event,
) -> list[Pair]:
    """Return pairs of items at least ``min_score`` alike: ids a < b, by falling score.

    Pairs within a shard are found as in one collection; those across by searches of each shard for
    the items of the shards before it. InvalidParameter where there are more than one collection
    would list.
    """
    best = _BestPairs(min_score, limit, collection.context.max_pairs)
    wanted: dict[str, Any] = {"min_score": min_score, "recall": recall, "limit": limit}
    try:
        answers = collection.ask("pairs", _LONG_SECONDS, stop, **wanted)
        count = len(answers)
        while answers:
            best.add(decode_pairs(answers.pop()))
        for shard in range(count - 1):
            for rows in _rows_of_shard(collection, shard, count):
                behind = range(shard + 1, count)
                _add_pairs_across(collection, best, rows, behind, count, recall=recall, stop=stop)
    except CancelledError:
        return []
    return best.rank()


class _BestPairs:
    """The best pairs so far: as many as are wanted and a few more."""

    def __init__(self, min_score: float, limit: int | None, max_pairs: int) -> None:
        self.threshold = self._min_score = min_score  # pairs that score less are of no use
        self._max_pairs = max_pairs
        self._is_bounded = limit is not None and limit <= max_pairs
        self._limit = limit
        # partners of one item that may be among them
        self.wanted = limit if limit is not None and self._is_bounded else max_pairs + 1
        self._pairs: list[Pair] = []

    def add(self, found: Iterable[Pair]) -> None:
        """Take pairs that have not been taken before."""
        limit = self._max_pairs
        if self._is_bounded:
            limit = self.wanted + max(_MIN_SPARE, self.wanted // _SPARE_SHARE)
        for pair in found:
            if pair[2] >= self.threshold:
                self._pairs.append(pair)
                if len(self._pairs) > limit:
                    self._cut()
        if self._is_bounded and len(self._pairs) > self.wanted:
            self._cut()

    def _cut(self) -> None:
        if not self._is_bounded:
            raise ix.too_many_pairs(self._max_pairs, self._min_score)
        self._pairs.sort(key=_rank)
        del self._pairs[self.wanted :]
        self.threshold = self._pairs[-1][2]

    def rank(self) -> list[Pair]:
        """Return the pairs by falling score, ties by ids."""
        self._pairs.sort(key=_rank)
        return self._pairs[: self._limit]


def _rank(pair: Pair) -> tuple[float, str, str]:
    first, second, score = pair
    return -score, first, second


def _rows_of_shard(
    collection: ClusterOperations, shard: int, shards: int
) -> Iterator[Sequence[Row]]:
    """Yield a shard's items in chunks, without a transaction between them.

    Each item that is there throughout comes once.
    """
    database, number = collection.database, collection.number
    for bucket in buckets_of(shard, shards, database.buckets):
        after = ""
        while rows := database.bucket_rows(number, bucket, after=after, limit=_CHUNK_ROWS):
            yield rows
            after = rows[-1].id


def _add_pairs_across(
    collection: ClusterOperations,
    best: _BestPairs,
    rows: Sequence[Row],  # of the shard before those
    behind: range,  # of all ``shards``
    shards: int,
    *,
    recall: float,
    stop: threading.Event,
) -> None:
    """Search the shards ``behind``, all at once; again for items with more partners."""
    every = collection.shards
    vectors = collection.empty.space.from_blobs([row.vector for row in rows])

    def ask(parts: dict[int, ix.Int64s], limit: int) -> list[Message]:
        if stop.is_set():
            raise CancelledError
        params = ix.SearchParams(limit=limit, recall=recall, min_score=best.threshold)
        head = collection.head("search")
        messages = {
            other: encode(search_message(head, vectors[part], params))
            for other, part in parts.items()
        }

        async def gather() -> list[Message]:
            work = (
                every.ask(other, shards, each, _LONG_SECONDS) for other, each in messages.items()
            )
            return await asyncio.gather(*work)

        return every.wait(gather(), stop)

    limit = min(_FIRST_LIMIT, best.wanted)
    again = dict.fromkeys(behind, np.arange(len(rows)))
    while again:
        more: dict[int, list[ix.Int64s]] = {other: [] for other in again}
        size = max(1, _MESSAGE_HITS // limit)
        for first in range(0, max(map(len, again.values())), size):
            parts = {
                other: part
                for other, each in again.items()
                if len(part := each[first : first + size])
            }
            for other, answer in zip(parts, ask(parts, limit), strict=True):
                hits, part = ShardHits.decode(answer), parts[other]
                is_whole = (np.diff(hits.starts) < limit) | (limit >= best.wanted)
                for place in np.flatnonzero(is_whole).tolist():
                    best.add(_pairs_of(rows[int(part[place])], hits, place))
                more[other].append(part[~is_whole])
        again = {other: left for other, each in more.items() if len(left := np.concatenate(each))}
        limit = min(_GROWTH * limit, best.wanted)


def _pairs_of(row: Row, hits: ShardHits, place: int) -> Iterator[Pair]:
    first, last = int(hits.starts[place]), int(hits.starts[place + 1])
    scores = hits.scores[first:last].tolist()
    for other, score in zip(hits.names.select(np.arange(first, last)), scores, strict=True):
        a, b = sorted((row.id, other))
        yield a, b, score
