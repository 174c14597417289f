"""Near-duplicate pairs: those within each shard, and those whose items are on two."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import asdict
from typing import TYPE_CHECKING, Final

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, bucket_of
from gcws_search.service.cluster.messages import Message, packed, packed_vectors, unpacked_texts
from gcws_search.service.cluster.router.merging import ShardHits

if TYPE_CHECKING:
    from gcws_search.service.cluster.router.collection import ClusterCollection

_CHUNK_ROWS: Final = 1000
_FIRST_LIMIT: Final = 64
"""Partners of an item that are asked for at first; more where all of them come."""
_LONG_SECONDS: Final = 3600.0

_Pair = tuple[str, str, float]


def pairs(
    collection: ClusterCollection,
    *,
    min_score: float,
    recall: float,
    limit: int | None,
    stop: threading.Event,
) -> list[_Pair]:
    """Return pairs of items at least ``min_score`` alike: ids a < b, by falling score.

    Pairs within a shard are found as in one collection; those across by searches of each shard for
    the items of the shards before it.
    """
    head = collection.head("pairs", min_score=min_score, recall=recall, limit=limit)
    shards = collection.context.shards
    try:
        answers = shards.wait(shards.ask_all(Message(head), _LONG_SECONDS), stop)
    except CancelledError:
        return []
    found = [pair for answer in answers for pair in _within(answer)]
    if len(answers) > 1:
        params = ix.SearchParams(limit=_FIRST_LIMIT, recall=recall, min_score=min_score)
        for shard, rows in _by_shard(collection, len(answers)):
            if stop.is_set():
                break
            found += _across(collection, params, shard, rows, len(answers))
    found.sort(key=lambda pair: (-pair[2], pair[0], pair[1]))
    return found[:limit]


def _within(answer: Message) -> Iterator[_Pair]:
    first = unpacked_texts(*answer.blobs[:2])
    second = unpacked_texts(*answer.blobs[2:4])
    scores = np.frombuffer(answer.blobs[4], np.float64).tolist()
    for a, b, score in zip(first, second, scores, strict=True):
        yield (a or b"").decode(), (b or b"").decode(), score


def _by_shard(collection: ClusterCollection, shards: int) -> Iterator[tuple[int, Sequence[Row]]]:
    """Yield all items but the last shard's, some of one shard at a time."""
    database = collection.context.database
    for rows in database.read_all(collection.number, _CHUNK_ROWS):
        parts: dict[int, list[Row]] = {}
        for row in rows:
            shard = bucket_of(row.id, database.buckets) % shards
            if shard < shards - 1:
                parts.setdefault(shard, []).append(row)
        yield from parts.items()


def _across(
    collection: ClusterCollection,
    params: ix.SearchParams,
    shard: int,
    rows: Sequence[Row],
    shards: int,
) -> list[_Pair]:
    """Return the pairs of some items of one shard with items of the shards behind it."""
    found: list[_Pair] = []
    vectors = collection.space.from_blobs([row.vector for row in rows])
    for other in range(shard + 1, shards):
        again = np.arange(len(rows))
        limit = params.limit
        while len(again):
            hits = _searched(collection, params, limit, (other, shards), vectors[again])
            sizes = np.diff(hits.starts)
            for place, row in enumerate(again.tolist()):
                if sizes[place] < limit:
                    found += _pairs_of(rows[row], hits, place)
            again = again[sizes >= limit]  # there may be more of these
            limit *= 8
    return found


def _searched(
    collection: ClusterCollection,
    params: ix.SearchParams,
    limit: int,
    place: tuple[int, int],
    vectors: ix.RawBatch,
) -> ShardHits:
    """Return what one shard, of a number of them, finds."""
    said, blobs = packed_vectors(vectors)
    head = collection.head(
        "search",
        params=asdict(params) | {"limit": limit},
        filter=None,
        backend=None,
        with_payload=False,
        with_vector=False,
        **said,
    )
    shards, data = collection.context.shards, packed(Message(head, blobs))
    return ShardHits.of(shards.wait(shards.ask(*place, data, _LONG_SECONDS)))


def _pairs_of(row: Row, hits: ShardHits, place: int) -> Iterator[_Pair]:
    first, last = int(hits.starts[place]), int(hits.starts[place + 1])
    scores = hits.scores[first:last].tolist()
    for other, score in zip(hits.names.at(np.arange(first, last)), scores, strict=True):
        yield (*sorted((row.id, other)), score)
