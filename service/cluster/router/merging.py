"""Hits of shards as those of one collection: by falling score, ties by id."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search import index as ix
from gcws_search.service.contract import ShardsAsked
from gcws_search.service.rpc.messages import (
    Malformed,
    Message,
    PackedNames,
    blobs_of,
    decode_texts,
    decode_vectors,
)

_METHOD, _BANDS, _DEPTH, _CANDIDATES, _SCORED, _BEAM = range(6)
_WORK: Final = 6
"""Columns of a shard's ``work``: the number of the method, then what `Explanation` has."""


@dataclass(frozen=True, slots=True)
class ShardHits:
    """What one shard found for m queries.

    Attributes
    ----------
    starts
        Borders of the queries' hits.
    names
        Ids of the hits.
    payloads
        None where they were not asked for.
    deleted
        Places of hits whose vectors are not there any more.
    expected_recall, measured_recall
        NaN in the second: nothing was measured.
    """

    starts: ix.Int64s
    scores: Any
    names: PackedNames
    payloads: list[bytes | None] | None
    vectors: ix.RawBatch | None
    deleted: set[int]
    work: ix.Int64s
    expected_recall: Any
    measured_recall: Any

    def payload(self, place: int) -> bytes | None:
        """Return the payload of a hit."""
        return None if self.payloads is None else self.payloads[place]

    @classmethod
    def of(cls, answer: Message) -> ShardHits:
        """Read an answer.

        Raises
        ------
        Malformed
        """
        head, blobs = answer.head, [*answer.blobs]
        try:
            sizes = np.frombuffer(blobs[0], np.int64)
            starts = np.concatenate(([0], np.cumsum(sizes)))
            scores = np.frombuffer(blobs[1], np.float64)
            names = PackedNames.of(blobs[2], blobs[3])
            del blobs[:4]
            payloads = vectors = None
            deleted = set[int]()
            if head["payloads"]:
                payloads = decode_texts(blobs[0], blobs[1])
                del blobs[:2]
            if head["vectors"] is not None:
                vectors = decode_vectors(head["vectors"], blobs)
                deleted = {*head["vectors"]["missing"]}
                del blobs[: blobs_of(head["vectors"])]
            work = np.frombuffer(blobs[0], np.int64).reshape(-1, _WORK)
            expected, measured = (np.frombuffer(blob, np.float64) for blob in blobs[1:3])
        except (KeyError, IndexError, ValueError, TypeError) as error:
            raise Malformed(f"an answer to a search: {error!r}") from None
        hits, m = int(starts[-1]), len(sizes)
        if not (len(scores) == len(names.ends) == hits and len(work) == len(expected) == m):
            raise Malformed(f"an answer to {m} searches with {len(names.ends)} of {hits} hits")
        return cls(starts, scores, names, payloads, vectors, deleted, work, expected, measured)


class MergedHits(NamedTuple):
    """The hits of one query, as places in the answers of shards.

    Attributes
    ----------
    origins, origin_places
        Shard of each hit, and its place in that one's answer.
    number
        Of the query.
    """

    ids: list[str]
    scores: list[float]
    origins: ix.Int64s
    origin_places: ix.Int64s
    number: int

    def places(self) -> list[tuple[int, int]]:
        """Return the shards of the hits, and their places there."""
        return [*zip(self.origins.tolist(), self.origin_places.tolist(), strict=True)]


class GatheredHits(NamedTuple):
    """The hits of some queries, and the answers that they are places in.

    Attributes
    ----------
    hits
        One a query.
    seconds
        How long the shards took, a query.
    missing
        Shards that did not answer.
    """

    shards: Sequence[ShardHits]
    hits: Sequence[MergedHits]
    seconds: float
    missing: Sequence[int] = ()

    @property
    def asked(self) -> ShardsAsked:
        """Which shards have answered."""
        answered = len(self.shards)
        return ShardsAsked(answered + len(self.missing), answered, self.missing)


def merge(shards: Sequence[ShardHits], limit: int) -> list[MergedHits]:
    """Return the best hits of each query over all shards.

    Scores are exact, so the merged ranking is that of one collection with the hits of all.
    """
    m = len(shards[0].starts) - 1
    queries = np.concatenate([np.repeat(np.arange(m), np.diff(hits.starts)) for hits in shards])
    scores = np.concatenate([hits.scores for hits in shards])
    counts = [len(hits.scores) for hits in shards]
    origins = np.repeat(np.arange(len(shards)), counts)
    places = np.concatenate([np.arange(count) for count in counts])
    names = PackedNames.joined([hits.names for hits in shards])
    order = _by_score(scores, queries, [np.diff(hits.starts) for hits in shards])
    queries = queries[order]
    _sort_ties(order, queries, scores[order], names)
    starts = np.searchsorted(queries, np.arange(m + 1))
    best = order[np.arange(len(order)) - starts[queries] < limit]
    ends = np.minimum(np.diff(starts), limit).cumsum().tolist()
    ids, best_scores = names.at(best), scores[best].tolist()
    origins, places = origins[best], places[best]
    return [
        MergedHits(
            ids[first:last],
            best_scores[first:last],
            origins[first:last],
            places[first:last],
            number,
        )
        for number, (first, last) in enumerate(pairwise([0, *ends]))
    ]


def _by_score(scores: ix.AnyArray, queries: ix.Int64s, sizes: Sequence[ix.Int64s]) -> ix.Int64s:
    """Return the order of hits by query, then by falling score."""
    count = len(sizes[0])
    width = len(scores) // (len(sizes) * max(1, count))
    if any((each != width).any() for each in sizes):
        return np.lexsort((-scores, queries))
    # As many hits of each query from each shard: short lines are sorted in a tenth of the time.
    by_shard = np.arange(len(scores)).reshape(len(sizes), count, width)
    lines = by_shard.transpose(1, 0, 2).reshape(count, len(sizes) * width)
    order = np.argsort(-scores[lines], axis=1, kind="stable")
    return np.take_along_axis(lines, order, axis=1).ravel()


def _sort_ties(
    order: ix.Int64s, queries: ix.Int64s, scores: ix.AnyArray, names: PackedNames
) -> None:
    """Put hits of one query with the same score in the order of their ids."""
    is_tied = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    borders = np.flatnonzero(np.diff(np.concatenate(([0], is_tied, [0])))).tolist()
    for first, last in zip(borders[::2], borders[1::2], strict=True):
        tied = order[first : last + 1]
        ids = names.at(tied)
        tied[:] = tied[sorted(range(len(ids)), key=ids.__getitem__)]


def explanation(shards: Sequence[ShardHits], hits: MergedHits) -> ix.Explanation:
    """Return what a query cost on all shards together.

    The recall to be expected is the mean of the shards', weighted by how many hits each has.
    """
    work = np.array([shard.work[hits.number] for shard in shards])
    weights = np.bincount(hits.origins, minlength=len(shards))
    expected = np.array([shard.expected_recall[hits.number] for shard in shards])
    sums = work.sum(axis=0).tolist()
    return ix.Explanation(
        method=ix.METHODS[int(work[int(np.argmax(weights)), _METHOD])],
        bands=sums[_BANDS],
        depth=int(work[:, _DEPTH].max()),
        candidates=sums[_CANDIDATES],
        scored=sums[_SCORED],
        beam=int(work[:, _BEAM].max()),
        expected_recall=weighted(expected, weights),
    )


def measured_recall(shards: Sequence[ShardHits], hits: MergedHits) -> float | None:
    """Return what audited queries of this kind found, None where no shard has any."""
    weights = np.bincount(hits.origins, minlength=len(shards))
    measured = np.array([shard.measured_recall[hits.number] for shard in shards])
    known = ~np.isnan(measured)
    return weighted(measured[known], weights[known]) if known.any() else None


def weighted(values: Any, weights: Any) -> float:  # noqa: ANN401  # arrays of equal length
    """Return a weighted mean; the plain one where all weights are 0."""
    total = float(weights.sum())
    return float((values * weights).sum() / total) if total else float(values.mean())


def totals(shards: Sequence[ShardHits]) -> list[ix.Total]:
    """Return what searches cost, by method; each query counts once."""
    work = np.array([shard.work for shard in shards])
    recall = np.mean([shard.expected_recall for shard in shards], axis=0)
    methods = work[0, :, _METHOD]
    found: list[ix.Total] = []
    for method in np.unique(methods).tolist():
        ours = methods == method
        candidates, scored = work[:, ours][:, :, [_CANDIDATES, _SCORED]].sum(axis=(0, 1)).tolist()
        found.append(
            (ix.METHODS[method], int(ours.sum()), candidates, scored, float(recall[ours].sum()))
        )
    return found
