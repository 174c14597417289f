"""Near-duplicates over shards, as a router finds them: pairs, groups, joins.

Each shard finds the pairs of its own items like a single collection. For pairs across shards the
router reads the items of each shard from the database and searches for them in the shards after it.
By containment it also asks those before it, since a pair's two directions differ.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, buckets_of, encode_filter
from gcws_search.service.cluster.operations import (
    LONG_SECONDS,
    ShardPairs,
    decode_items,
    decode_keys,
)
from gcws_search.service.messages import Message, decode_names, encode_vectors

if TYPE_CHECKING:
    from gcws_search.service.cluster.collection import ClusterCollection

Pair = tuple[str, str, float]
Columns = tuple[ix.Int64s, list[str], ix.Float64s]
"""Hits of vectors: which vector, the id of an item, the score."""

_CHUNK_ROWS: Final = 512  # items per search in other shards
# Vectors per message of a join: initially, and at most.
_JOINED_ROWS: Final = 64
_MAX_JOINED_ROWS: Final = 4096
_MESSAGE_HITS: Final = 1 << 18  # maximum hits per message, unless one item alone has more
_SPARE_PAIRS: Final = 1024  # pairs are sorted after this many new ones, or an eighth of the limit
_TAKEN: Final = 1 << 18  # pairs of an answer that are added per step
_READ: Final = 4096  # items per read: segments are stored in another order
_NO_KEYS: Final = np.empty(0, np.int64)
_LOW: Final = np.uint64(0xFFFFFFFF)
_HALF: Final = np.uint64(32)


# Joins


def join_shards(
    collection: ClusterCollection,
    params: ix.JoinParams,
    where: ix.Filter | None,
    stop: threading.Event,
    vectors: ix.RawBatch,
) -> Iterator[ix.JoinedRows]:
    """Yield the hits of vectors in batches: all hits over all shards, or the best of them."""
    join = _ShardJoin(collection, params, encode_filter(where), stop)
    end = 0
    for size, (rows, ids, scores) in join(vectors):
        end += size
        yield ix.ranked_hits(end, rows, ids, scores, params.limit)


class _ShardJoin:
    """The join of vectors with the items of shards; batch sizes adapt to the answers.

    count: number of shards; None reads it with each question.
    now: the instant by which items have expired; None uses that of each question.
    without: for a shard, the keys of items that are no hits.
    """

    def __init__(
        self,
        collection: ClusterCollection,
        params: ix.JoinParams,
        where: str | None,
        stop: threading.Event,
        *,
        count: int | None = None,
        now: int | None = None,
        without: Mapping[int, ix.Int64s] | None = None,
    ) -> None:
        self.params = params
        self._collection = collection
        self._said: dict[str, Any] = {"filter": where} | ({} if now is None else {"now": now})
        self._stop = stop
        self._count = count
        self._without = without or {}
        self._size = _JOINED_ROWS

    def __call__(
        self, vectors: ix.RawBatch, shards: Sequence[int] | None = None
    ) -> Iterator[tuple[int, Columns]]:
        """Yield the number of vectors asked, and their hits in some shards, or in all."""
        first = 0
        while first < len(vectors):
            if self._stop.is_set():
                raise CancelledError
            said, blobs = encode_vectors(vectors[first : first + self._size])
            params = asdict(self.params)
            head = self._collection.head("join", params=params, **self._said, **said)
            count = self._count or len(self._collection.shards)
            wanted = range(count) if shards is None else shards
            keys = {shard: self._without.get(shard, _NO_KEYS).tobytes() for shard in wanted}
            questions = {shard: Message(head, [*blobs, own]) for shard, own in keys.items()}
            asked = self._collection.shards.ask(questions, LONG_SECONDS, count)
            answers = self._collection.wait(asked, self._stop)
            rows = np.concatenate([np.frombuffer(each.blobs[0], np.int64) for each in answers])
            scores = np.concatenate([np.frombuffer(each.blobs[1]) for each in answers])
            ids = [name for each in answers for name in decode_names(*each.blobs[2:4])]
            size = min(self._size, len(vectors) - first)
            yield size, (rows + first, ids, scores)
            first += size
            fair = size * _MESSAGE_HITS // (len(rows) + 1)
            self._size = max(1, min(4 * self._size, _MAX_JOINED_ROWS, fair))


# Pairs


class _Pairs:
    """The distinct pairs so far with their greatest scores: all, or the best; any thread.

    Items are numbered by arrival. A pair is stored as a 64-bit integer and its score.
    InvalidParameter beyond ``max_pairs``.
    """

    def __init__(self, min_score: float, limit: int | None, max_pairs: int) -> None:
        self.threshold = self._min_score = min_score  # lower scores are not needed
        self._max_pairs = max_pairs
        self.limit = limit if limit is not None and limit <= max_pairs else None
        self._spare = max(_SPARE_PAIRS, (max_pairs if self.limit is None else self.limit) // 8)
        self.numbers: dict[str, int] = {}  # numbers by id, ascending
        self._pending: list[tuple[ix.UInt64s, ix.Float64s]] = []
        self._pending_count = 0
        self._pairs = np.empty(0, np.uint64)
        self._scores = np.empty(0, np.float64)
        self._lock = threading.RLock()

    def add(self, ids: Sequence[str], a: ix.AnyArray, b: ix.AnyArray, scores: ix.Float64s) -> None:
        """Add pairs of items, given as places in ``ids``."""
        for start in range(0, len(scores), _TAKEN):
            part = slice(start, start + _TAKEN)
            good = scores[part] >= self.threshold
            ends = np.concatenate([a[part][good], b[part][good]])
            places, found = np.unique(ends, return_inverse=True)
            with self._lock:
                numbers = self.number([ids[place] for place in places.tolist()])
                first, second = numbers[found].reshape(2, -1).astype(np.uint64)
                packed = np.minimum(first, second) << _HALF | np.maximum(first, second)
                self._pending.append((packed, scores[part][good]))
                self._pending_count += len(packed)
                if self._pending_count > self._spare:
                    self._sort()

    def number(self, ids: Sequence[str]) -> ix.Int64s:
        """Return the numbers of items; new ids get new numbers."""
        with self._lock:
            numbers = self.numbers
            return np.array([numbers.setdefault(each, len(numbers)) for each in ids], np.int64)

    def columns(self) -> tuple[ix.Int32s, ix.Int32s, ix.Float64s]:
        """Return the numbers of both items of each pair, and the scores."""
        with self._lock:
            self._sort()
            a = (self._pairs >> _HALF).astype(np.int32)
            return a, (self._pairs & _LOW).astype(np.int32), self._scores

    def rank(self) -> list[Pair]:
        """Return the pairs by descending score, ties by ids."""
        return ix.rank_pairs([*self.numbers], *self.columns())

    def _sort(self) -> None:
        """Merge new pairs; of equal pairs keep the greatest score."""
        if not self._pending:
            return
        fresh, scores = (np.concatenate(column) for column in zip(*self._pending, strict=True))
        self._pending, self._pending_count = [], 0
        order = np.lexsort((-scores, fresh))
        fresh, scores = fresh[order], scores[order]
        is_first = np.append(True, fresh[1:] != fresh[:-1])[: len(fresh)]
        fresh, scores = fresh[is_first], scores[is_first]
        places = np.searchsorted(self._pairs, fresh)
        known = places < len(self._pairs)
        known[known] = self._pairs[places[known]] == fresh[known]
        again = places[known]
        self._scores[again] = np.maximum(self._scores[again], scores[known])
        self._pairs = np.insert(self._pairs, places[~known], fresh[~known])
        self._scores = np.insert(self._scores, places[~known], scores[~known])
        if self.limit is not None and len(self._pairs) >= self.limit:
            self._cut(self.limit)
        elif len(self._pairs) > self._max_pairs:
            raise ix.too_many_pairs(self._max_pairs, self._min_score)

    def _cut(self, limit: int) -> None:
        """Keep the best ``limit``; among ties with the last one, the first by ids."""
        self.threshold = float(np.partition(self._scores, -limit)[-limit])
        chosen = np.flatnonzero(self._scores > self.threshold)
        tied = np.flatnonzero(self._scores == self.threshold)
        if len(tied) > limit - len(chosen):
            some = self._pairs[tied]
            a, b = (some >> _HALF).astype(np.int64), (some & _LOW).astype(np.int64)
            order = ix.pair_order([*self.numbers], a, b, self._scores[tied])
            tied = tied[order[: limit - len(chosen)]]
        chosen = np.sort(np.append(chosen, tied))
        self._pairs, self._scores = self._pairs[chosen], self._scores[chosen]


def find_pairs(
    collection: ClusterCollection,
    *,
    min_score: float,
    recall: float,
    limit: int | None,
    stop: threading.Event,
    where: ix.Filter | None = None,
    ranking: ix.Ranking = "gmm",
) -> list[Pair]:
    """Return pairs of items with scores of at least ``min_score``: ids a < b, by descending score.

    InvalidParameter if there are more pairs than one collection would list.
    """
    found = _Pairs(min_score, limit, collection.router.pair_policy.max_pairs)
    wanted = ix.JoinParams(min_score=min_score, limit=found.limit, recall=recall, ranking=ranking)
    said = {"min_score": min_score, "recall": recall, "limit": limit}
    try:
        _find_over_shards(collection, found, said, wanted, where, stop)
    except CancelledError:
        return []
    return found.rank()


def _find_over_shards(
    collection: ClusterCollection,
    found: _Pairs,
    said: dict[str, Any],  # options of the pairs within a shard
    wanted: ix.JoinParams,  # options of the pairs across shards
    where: ix.Filter | None,
    stop: threading.Event,
) -> tuple[ix.Int64s, ix.Int64s]:
    """Find the pairs within each shard, then those across; return numbers of equal items.

    Each entry is the first of some equal items and another one of them, which has no pairs.
    """
    text, now = encode_filter(where), collection.database.now_ms
    firsts, copies = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    repeated, without = set[str](), dict[int, ix.Int64s]()
    common: dict[str, Any] = {"filter": text, "now": now, "ranking": wanted.ranking}
    answers = collection.ask("pair_rows", LONG_SECONDS, stop, **common, **said)
    count = len(answers)
    while answers:
        part = ShardPairs.decode(answers.pop())
        without[len(answers)] = part.keys
        firsts.append(found.number([part.ids[place] for place in part.first.tolist()]))
        names = [part.ids[place] for place in part.copies.tolist()]
        copies.append(found.number(names))
        repeated.update(names)
        found.add(part.ids, part.a, part.b, part.scores)
        del part
    join = _ShardJoin(collection, wanted, text, stop, count=count, now=now, without=without)
    is_mutual = wanted.ranking == "gmm"
    for own, vectors, others in _chunks(
        collection, count, where, now, is_mutual=is_mutual, without=repeated
    ):
        join.params = replace(wanted, min_score=found.threshold)
        for _, (rows, ids, scores) in join(vectors, others):
            places = np.arange(len(own), len(own) + len(ids))
            found.add([*own, *ids], rows, places, scores)
    return np.concatenate(firsts), np.concatenate(copies)


Chunk = tuple[list[str], ix.RawBatch, Sequence[int]]
"""Ids of items, their vectors, and the shards that are asked for these."""


def _chunks(
    collection: ClusterCollection,
    count: int,
    where: ix.Filter | None,
    now: int,
    *,
    is_mutual: bool,
    without: Collection[str],
) -> Iterator[Chunk]:
    """Yield the items of each shard that pass a filter, and the shards to search.

    is_mutual: both directions of a pair have the same score.
    """
    database, number = collection.database, collection.number
    for shard in range(count):
        others = [*range(shard + 1, count), *(() if is_mutual else range(shard))]
        for bucket in buckets_of(shard, count, database.buckets):
            after = ""
            # Chunks have no common transaction; an item that does not change comes once.
            page = partial(database.bucket_rows, number, bucket, now_ms=now)
            while others and (read := page(after=after, limit=_READ)):
                after = read[-1].id
                found = _passing(read, where, without)
                for first in range(0, len(found), _CHUNK_ROWS):
                    rows = found[first : first + _CHUNK_ROWS]
                    vectors = collection.space.from_blobs([row.vector for row in rows])
                    yield [row.id for row in rows], vectors, others


def _passing(rows: list[Row], where: ix.Filter | None, without: Collection[str]) -> list[Row]:
    if without:
        rows = [row for row in rows if row.id not in without]
    if where is None:
        return rows
    passes = ix.Columns([row.payload for row in rows]).mask(where, len(rows))
    return [row for row, passed in zip(rows, passes.tolist(), strict=True) if passed]


# Groups


def find_groups(
    collection: ClusterCollection,
    params: ix.GroupParams,
    where: ix.Filter | None,
    stop: threading.Event,
    *,
    ranking: ix.Ranking = "gmm",
) -> list[ix.Group]:
    """Return groups of near-duplicates; the router holds all pairs, and vectors in batches.

    Of equal items of a shard the first has pairs. InvalidParameter above `PairPolicy.max_edges`.
    """
    found = _Pairs(params.min_score, None, collection.router.pair_policy.max_edges)
    wanted = ix.JoinParams(min_score=params.min_score, recall=params.recall, ranking=ranking)
    try:
        copied = _find_over_shards(
            collection, found, {"groups": asdict(params)}, wanted, where, stop
        )
    except CancelledError:
        return []
    pairs = found.columns()
    items = _GroupedItems.read(collection, found.numbers, params.keep, ranking)
    del found
    while (groups := items.join(copied, pairs, params)) is None:
        if stop.is_set():
            return []
    return groups


@dataclass(slots=True)
class _GroupedItems:
    """The items that have pairs or copies, by number.

    keys: (n,) int64, the order of items in one collection; -1 for deleted items.
    norms: (n,) float32, if the longest are kept.
    values: payload values of the key that decides which item is kept.
    """

    collection: ClusterCollection
    ids: list[str]
    keep: str
    ranking: ix.Ranking
    keys: ix.Int64s
    norms: ix.AnyArray
    values: dict[int, bool | float | str]

    @classmethod
    def read(
        cls, collection: ClusterCollection, numbers: dict[str, int], keep: str, ranking: ix.Ranking
    ) -> _GroupedItems:
        """Read the values that decide which item of a group is kept."""
        ids, is_first = [*numbers], keep == "first"
        every, norms = np.full(len(ids), -1, np.int64), np.zeros(len(ids), np.float32)
        known = dict[int, bool | float | str]()
        for first in range(0, len(ids), _READ):
            some = ids[first : first + _READ]
            for answer in collection.ask("rows", ids=some, with_vector=not is_first):
                if is_first:
                    names, keys = decode_names(*answer.blobs[1:3]), decode_keys(answer)
                else:
                    keys, items = decode_items(answer)
                    names = [each for each in items.ids if each is not None]
                places = [numbers[name] for name in names]
                every[places] = keys
                if keep == "longest":
                    norms[places] = collection.space.prepare(items.vectors).norms
                elif not is_first:
                    values = (ix.first_scalar(payload, keep) for payload in items.payloads)
                    pairs = zip(places, values, strict=True)
                    known |= {place: value for place, value in pairs if value is not None}
        return cls(collection, ids, keep, ranking, every, norms, known)

    def join(
        self,
        copies: tuple[ix.Int64s, ix.Int64s],
        pairs: tuple[ix.Int32s, ix.Int32s, ix.Float64s],
        params: ix.GroupParams,
    ) -> list[ix.Group] | None:
        """Return the groups; None if items were deleted since: the next call leaves them out.

        copies: numbers of the first of equal items, and of another one of them.
        """
        is_there = self.keys >= 0
        numbers = np.argsort(self.keys, kind="stable")[np.count_nonzero(~is_there) :]
        row_of = np.full(len(self.ids), -1, np.int32)
        row_of[numbers] = np.arange(len(numbers))
        first, other = copies
        stands = row_of.copy()  # another equal item replaces a deleted first one
        for_it = ~is_there[first] & is_there[other]
        stands[first[for_it]] = row_of[other[for_it]]
        a, b, scores = stands[pairs[0]], stands[pairs[1]], pairs[2]
        if not is_there.all():
            both = (a >= 0) & (b >= 0)
            a, b, scores = a[both], b[both], scores[both]
        ids = [self.ids[number] for number in numbers.tolist()]
        gone = list[ix.Int64s]()

        def rank(rows: ix.Int64s) -> ix.Int64s:
            norms = self.norms[numbers]
            return ix.rank_rows(rows, self.keep, norms, lambda row: self.values.get(numbers[row]))

        def score(a: ix.Int64s, b: ix.Int64s) -> ix.Float64s:
            scores = np.empty(len(a), np.float64)
            for start in range(0, len(a), _READ):
                part = slice(start, start + _READ)
                scores[part] = self._score(ids, a[part], b[part], gone)
            return scores

        grouped = ix.GroupedRows(len(ids), lambda rows: [ids[row] for row in rows], rank, score)
        equal = _equal_rows(first, other, row_of)
        groups = ix.join_groups(grouped, equal, (a, b, scores), params.mode)
        if gone:
            self.keys[numbers[np.concatenate(gone)]] = -1
            return None
        return groups

    def _score(
        self, ids: list[str], a: ix.Int64s, b: ix.Int64s, out_gone: list[ix.Int64s]
    ) -> ix.Float64s:
        """Return the scores of pairs of rows; 0 for a deleted row, which is added to ``gone``."""
        rows, ends = np.unique(np.concatenate([a, b]), return_inverse=True)
        names = [ids[row] for row in rows.tolist()]
        answers = self.collection.ask("rows", ids=names, with_vector=True)
        read = ix.ItemBatch.concatenate([items for _, items in map(decode_items, answers)])
        place_of = {name: place for place, name in enumerate(read.ids)}
        places = np.array([place_of.get(name, -1) for name in names], np.int64)
        if (missing := rows[places < 0]).size:
            out_gone.append(missing)
        first, second = places[ends].reshape(2, -1)
        scores, both = np.zeros(len(a)), (first >= 0) & (second >= 0)
        vectors = self.collection.space.prepare(read.vectors)
        scores[both] = ix.pair_scores(vectors, first[both], second[both], self.ranking)
        return scores


def _equal_rows(first: ix.Int64s, other: ix.Int64s, row_of: ix.Int32s) -> list[ix.Int64s]:
    """Return the groups of equal rows among existing ones."""
    heads = np.unique(first)
    marks, numbers = np.concatenate([heads, first]), np.concatenate([heads, other])
    rows = row_of[numbers].astype(np.int64)
    marks, rows = marks[rows >= 0], rows[rows >= 0]
    order = np.lexsort((rows, marks))
    borders = np.flatnonzero(np.diff(marks[order])) + 1
    return [group for group in np.split(rows[order], borders) if len(group) > 1]
