"""A search of shards: the question, a shard's answer, and the hits of all as one ranking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import decode_filter
from gcws_search.service.contract import QueryRequest
from gcws_search.service.limits import require_short_answer
from gcws_search.service.messages import (
    Malformed,
    Message,
    decode_sparse,
    decode_texts,
    decode_vectors,
    encode_names,
    encode_texts,
    encode_vectors,
)
from gcws_search.service.searches import measured_recall, search

# A shard's hits may take this many times the longest answer: routers show few of them.
_SPARE: Final = 8
# Columns of a shard's ``work``: the number of the method, then what `Explanation` has.
_METHOD, _BANDS, _DEPTH, _CANDIDATES, _SCORED, _BEAM = range(6)
_WORK: Final = 6


# The question


def search_message(
    head: dict[str, Any],
    vectors: ix.RawBatch | None,
    params: ix.SearchParams,
    **more: Any,  # noqa: ANN401
) -> Message:
    """Return the message that asks a shard for the hits of some vectors.

    ``more``: ``filter``, ``backend``, ``with_payload``, ``with_vector``, ``max_bytes``, ``skip``,
    the id of the item that the only vector is of, or in the place of vectors ``unknown``, one with
    names that the space has not.
    """
    said, blobs = ({}, []) if vectors is None else encode_vectors(vectors)
    asked = {"filter": None, "backend": None, "with_payload": False, "with_vector": False}
    return Message({**head, "params": asdict(params), **asked, **said, **more}, blobs)


def _decode_query(asked: Message) -> QueryRequest:
    head = asked.head
    unknown = head.get("unknown")
    return QueryRequest(
        None if unknown else decode_vectors(head, iter(asked.blobs)),
        None,
        ix.SearchParams(**head["params"]),
        decode_filter(head.get("filter")),
        b"",
        head.get("backend"),
        head.get("with_payload", False),
        head.get("with_vector", False),
        explain=True,
        with_unknown=decode_sparse(unknown) if unknown else None,
    )


# A shard's answer


def answer_search(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return the hits of each query; an InvalidVector has a place that begins with the row."""
    head = asked.head
    query = _decode_query(asked)
    if (skipped := head.get("skip")) is None:
        results = search(collection, query)
    else:
        results = collection.search_around(
            skipped, query.params, where=query.where, backend=query.backend, vector=query.vectors
        )
    view, sizes, scores, rows, ids = _flatten(results)
    blobs = [sizes.astype(np.int64).tobytes(), scores.astype(np.float64).tobytes()]
    blobs += encode_names(ids)
    payloads = None
    if query.with_payload:
        payloads = [view.payloads[row] for row in rows]
    if (max_bytes := head.get("max_bytes")) is not None:
        # Of memory here; routers limit what is shown of all shards' hits.
        payload_bytes = sum(len(payload or b"") for payload in payloads or ())
        vectors = len(ids) if query.with_vector else 0
        require_short_answer(payload_bytes, vectors, collection.config.dim, _SPARE * max_bytes)
    if payloads is not None:
        blobs += encode_texts(payloads)
    shape = None
    if query.with_vector:
        shape, more = encode_stored_vectors(collection, view, np.array(rows, np.int64), ids)
        blobs += more
    work, expected = results.found.work, results.found.expected_recall
    measured = measured_recall(collection, query)
    recall = np.full(len(results), np.nan if measured is None else measured)
    blobs += [np.ascontiguousarray(work).tobytes(), expected.tobytes(), recall.tobytes()]
    return Message({"payloads": payloads is not None, "vectors": shape}, blobs)


def _flatten(
    results: ix.QueryResults,
) -> tuple[Any, ix.Int64s, ix.AnyArray, list[int], list[str]]:
    """Return the view that was searched, hits a query, and the scores, rows and ids of all hits."""
    found, view = results.found, results.view
    is_hit = np.arange(found.rows.shape[1]) < found.sizes[:, None]
    is_same = found.scores[:, 1:] == found.scores[:, :-1]
    if not (found.wider or (is_same & is_hit[:, 1:]).any()):  # ties are sorted by id
        rows = found.rows[is_hit].tolist()
        names = view.ids
        return view, found.sizes, found.scores[is_hit], rows, [names[row] for row in rows]
    every = [*results]
    return (
        view,
        np.array([len(result.ids) for result in every], np.int64),
        np.array([score for result in every for score in result.scores], np.float64),
        [row for result in every for row in result.rows],
        [item_id for result in every for item_id in result.ids],
    )


def encode_stored_vectors(
    collection: ix.StoredCollection,
    view: Any,  # noqa: ANN401  # of the index
    rows: ix.Int64s,
    ids: Sequence[str],
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the vectors of rows as sent.

    Where a transform keeps them out of memory they are the file's: those of items deleted since are
    zeros, and ``missing`` names their places.
    """
    raw, missing = view.raw(collection.space, rows), list[int]()
    if raw is None:
        records, space = collection.store.fetch([*dict.fromkeys(ids)]), collection.space
        nothing = b"\0" * (4 * (space.dim or 0)) if space.form == "dense" else b""
        raw = space.from_blobs(
            [records[item_id].vector if item_id in records else nothing for item_id in ids]
        )
        missing = [place for place, item_id in enumerate(ids) if item_id not in records]
    shape, blobs = encode_vectors(raw)
    return shape | {"missing": missing}, blobs


# The hits of all shards


class ShardHits(NamedTuple):
    """What one shard found for m queries."""

    starts: ix.Int64s  # borders of the queries' hits
    scores: Any
    lengths: ix.AnyArray  # of the ids, in bytes
    ids: bytes  # one after the other: few of them are shown
    payloads: list[bytes | None]  # empty where they were not asked for
    # Vectors and their places among them, None for an item deleted since; empty if not asked for.
    vectors: list[tuple[ix.RawBatch, int] | None]
    work: ix.Int64s
    expected_recall: Any
    measured_recall: Any  # NaN: nothing was measured

    @classmethod
    def decode(cls, answer: Message) -> ShardHits:
        """Read an answer; Malformed where it is none."""
        head, blobs = answer.head, iter(answer.blobs)
        payloads, vectors = list[bytes | None](), list[tuple[ix.RawBatch, int] | None]()
        try:
            sizes = np.frombuffer(next(blobs), np.int64)
            scores = np.frombuffer(next(blobs), np.float64)
            lengths, ids = np.frombuffer(next(blobs), np.int32), bytes(next(blobs))
            if head["payloads"]:
                payloads = decode_texts(next(blobs), next(blobs))
            if (shape := head["vectors"]) is not None:
                raw, missing = decode_vectors(shape, blobs), {*shape["missing"]}
                vectors = [None if at in missing else (raw, at) for at in range(len(scores))]
            work = np.frombuffer(next(blobs), np.int64).reshape(-1, _WORK)
            expected = np.frombuffer(next(blobs), np.float64)
            measured = np.frombuffer(next(blobs), np.float64)
        except (KeyError, StopIteration, ValueError, TypeError) as error:
            raise Malformed(f"an answer to a search: {error!r}") from None
        starts = np.concatenate(([0], np.cumsum(sizes)))
        hits, m = int(starts[-1]), len(sizes)
        if not (len(scores) == len(lengths) == hits and len(work) == len(expected) == m):
            raise Malformed(f"an answer to {m} searches with {len(lengths)} of {hits} hits")
        return cls(starts, scores, lengths, ids, payloads, vectors, work, expected, measured)


def search_costs(shards: Sequence[ShardHits]) -> list[ix.Total]:
    """Return what searches cost, by method; each query counts once."""
    work = np.array([shard.work for shard in shards])
    recall = np.mean([shard.expected_recall for shard in shards], axis=0)
    methods = work[0, :, _METHOD]
    found: list[ix.Total] = []
    for method in np.unique(methods).tolist():
        ours = methods == method
        costs = work[:, ours][:, :, [_CANDIDATES, _SCORED]].sum(axis=(0, 1)).tolist()
        found.append((ix.METHODS[method], int(ours.sum()), *costs, float(recall[ours].sum())))
    return found


def merge(
    shards: Sequence[ShardHits],
    asked: QueryRequest,
    seconds: float = 0.0,  # how long each query took
    missing: Sequence[int] = (),  # shards that did not answer
) -> list[ix.QueryResult]:
    """Return the best hits of each query over all shards: scores are exact, so they compare.

    ``vectors`` of a result are as in `ShardHits`.
    """
    coverage = ix.ShardsAsked(len(shards) + len(missing), len(shards), missing)
    m = len(shards[0].starts) - 1
    queries = np.concatenate([np.repeat(np.arange(m), np.diff(hits.starts)) for hits in shards])
    scores = np.concatenate([hits.scores for hits in shards])
    counts = [len(hits.scores) for hits in shards]
    origins = np.repeat(np.arange(len(shards)), counts)
    names = b"".join(hits.ids for hits in shards)
    ends = np.concatenate([[0], *(hits.lengths for hits in shards)]).cumsum()

    def ids_at(places: ix.Int64s) -> list[str]:
        pairs = zip(ends[places].tolist(), ends[places + 1].tolist(), strict=True)
        return [names[first:last].decode() for first, last in pairs]

    order = _order_of_hits(scores, queries, [np.diff(hits.starts) for hits in shards])
    queries = queries[order]
    _sort_ties(order, queries, scores[order], ids_at)
    starts = np.searchsorted(queries, np.arange(m + 1))
    best = order[np.arange(len(order)) - starts[queries] < asked.params.limit]
    borders = [0, *np.minimum(np.diff(starts), asked.params.limit).cumsum().tolist()]
    ids, best_scores, places = ids_at(best), scores[best].tolist(), best.tolist()
    payloads = [*chain.from_iterable(hits.payloads for hits in shards)]
    vectors: list[Any] = [*chain.from_iterable(hits.vectors for hits in shards)]
    found: list[ix.QueryResult] = []
    for number, (first, last) in enumerate(pairwise(borders)):
        one = ix.QueryResult(ids[first:last], best_scores[first:last])
        if asked.with_payload:
            one.payloads = [payloads[place] for place in places[first:last]]
        if asked.with_vector:
            one.vectors = [vectors[place] for place in places[first:last]]
        if asked.explain:
            weights = np.bincount(origins[best[first:last]], minlength=len(shards))
            one.explanation = _explain(shards, number, weights, seconds, asked.backend)
        if asked.explain or asked.allow_partial:
            one.shards = coverage
        found.append(one)
    return found


def _explain(
    shards: Sequence[ShardHits],
    number: int,  # of the query
    weights: ix.AnyArray,  # its hits of each shard
    seconds: float,
    backend: str | None,
) -> ix.Explanation:
    """Return what a query cost on all shards; recall is their mean, weighted by hits."""
    work = np.array([shard.work[number] for shard in shards])
    expected = np.array([shard.expected_recall[number] for shard in shards])
    measured = np.array([shard.measured_recall[number] for shard in shards])
    known, sums = ~np.isnan(measured), work.sum(axis=0).tolist()
    is_measured = backend in (None, "gcws") and known.any()
    return ix.Explanation(
        method=ix.METHODS[int(work[int(np.argmax(weights)), _METHOD])],
        bands=sums[_BANDS],
        depth=int(work[:, _DEPTH].max()),
        candidates=sums[_CANDIDATES],
        scored=sums[_SCORED],
        beam=int(work[:, _BEAM].max()),
        expected_recall=weighted_mean(expected, weights),
        seconds=seconds,
        measured_recall=weighted_mean(measured[known], weights[known]) if is_measured else None,
    )


def _order_of_hits(
    scores: ix.AnyArray, queries: ix.Int64s, sizes: Sequence[ix.Int64s]
) -> ix.Int64s:
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
    order: ix.Int64s,
    queries: ix.Int64s,
    scores: ix.AnyArray,
    ids_at: Callable[[ix.Int64s], list[str]],
) -> None:
    """Put hits of one query with the same score in the order of their ids."""
    is_tied = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    borders = np.flatnonzero(np.diff(np.concatenate(([0], is_tied, [0])))).tolist()
    for first, last in zip(borders[::2], borders[1::2], strict=True):
        tied = order[first : last + 1]
        tied[:] = [place for _, place in sorted(zip(ids_at(tied), tied.tolist(), strict=True))]


def weighted_mean(values: Any, weights: Any) -> float:  # noqa: ANN401  # arrays of equal length
    """Return a weighted mean; the plain one where all weights are 0."""
    total = float(weights.sum())
    return float((values * weights).sum() / total) if total else float(values.mean())
