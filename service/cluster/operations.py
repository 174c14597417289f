"""Questions that routers ask shards about a collection, the answers, and how answers merge.

`OPERATIONS` and `LONG` have a row for each message about a collection's items.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, fields
from itertools import chain, islice, pairwise
from typing import Any, Final, NamedTuple

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import decode_filter
from gcws_search.service.contract import QueryRequest
from gcws_search.service.limits import require_short_answer
from gcws_search.service.messages import (
    Malformed,
    Message,
    decode_names,
    decode_sparse,
    decode_texts,
    decode_vectors,
    encode_names,
    encode_sparse,
    encode_texts,
    encode_vectors,
)
from gcws_search.service.searches import measured_recall, search

Answer = Callable[[ix.StoredCollection, Message], Message]
Heads = Sequence[dict[str, Any]]

LONG_SECONDS: Final = 3600.0  # timeout of shards for comparisons and pairs

# Limit of a shard's hits as a multiple of the longest answer: routers show few of them.
_SPARE_ANSWERS: Final = 8
_MAX_HINTED: Final = 64  # conditions of a filter for which hints are given
# Columns of a shard's ``work``: the number of the method, then the fields of `Explanation`.
_METHOD, _BANDS, _DEPTH, _CANDIDATES, _SCORED, _BEAM = range(6)
_WORK: Final = 6


# Searches


def search_message(
    head: dict[str, Any],
    vectors: ix.RawBatch | None,
    params: ix.SearchParams,
    **more: Any,  # noqa: ANN401
) -> Message:
    """Return the message that asks a shard for the hits of some vectors.

    ``more``: ``filter``, ``backend``, ``with_payload``, ``with_vector``, ``max_bytes``, ``skip``
    (ids of items that the queries must not find, one each), or instead of vectors ``unknown``, a
    query with names that the space does not have.
    """
    said, blobs = ({}, []) if vectors is None else encode_vectors(vectors)
    asked = {"filter": None, "backend": None, "with_payload": False, "with_vector": False}
    return Message({**head, "params": params, **asked, **said, **more}, blobs)


def _decode_query(asked: Message) -> QueryRequest:
    head = asked.head
    unknown = head.get("unknown")
    return QueryRequest(
        None if unknown else decode_vectors(head, iter(asked.blobs)),
        (),
        ix.SearchParams(**head["params"]),
        decode_filter(head.get("filter")),
        b"",
        head.get("backend"),
        head.get("with_payload", False),
        head.get("with_vector", False),
        explain=True,
        with_unknown=decode_sparse(unknown) if unknown else None,
    )


def _answer_search(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return the hits of each query; the place of an InvalidVector begins with the row."""
    head = asked.head
    query = _decode_query(asked)
    if (skipped := head.get("skip")) is None:
        results = search(collection, query)
    else:
        ids = [skipped] if isinstance(skipped, str) else skipped
        results = collection.search_around(
            ids, query.params, where=query.where, backend=query.backend, vectors=query.vectors
        )
    view, sizes, scores, rows, ids = _flatten(results)
    blobs = [sizes.astype(np.int64).tobytes(), scores.astype(np.float64).tobytes()]
    blobs += encode_names(ids)
    payloads = None
    if query.with_payload:
        payloads = [view.payloads[row] for row in rows]
    if (max_bytes := head.get("max_bytes")) is not None:
        # Limits memory here; routers limit the answer of all shards together.
        payload_bytes = sum(len(payload or b"") for payload in payloads or ())
        vectors = len(ids) if query.with_vector else 0
        require_short_answer(
            payload_bytes, vectors, collection.config.dim, _SPARE_ANSWERS * max_bytes
        )
    if payloads is not None:
        blobs += encode_texts(payloads)
    shape = None
    if query.with_vector:
        shape, more = _encode_stored_vectors(collection, view, np.array(rows, np.int64), ids)
        blobs += more
    work, expected = results.found.work, results.found.expected_recall
    measured = measured_recall(collection, query)
    recall = np.full(len(results), np.nan if measured is None else measured)
    blobs += [np.ascontiguousarray(work).tobytes(), expected.tobytes(), recall.tobytes()]
    return Message({"payloads": payloads is not None, "vectors": shape}, blobs)


def _flatten(results: ix.QueryResults) -> tuple[Any, ix.Int64s, ix.AnyArray, list[int], list[str]]:
    """Return the searched view, hits per query, and the scores, rows and ids of all hits."""
    found, view = results.found, results.view
    is_hit = np.arange(found.rows.shape[1]) < found.sizes[:, None]
    is_same = found.scores[:, 1:] == found.scores[:, :-1]
    if not (found.wider or (is_same & is_hit[:, 1:]).any()):  # ties are sorted by id
        rows = found.rows[is_hit].tolist()
        return view, found.sizes, found.scores[is_hit], rows, view.ids.of(rows)
    every = [*results]
    return (
        view,
        np.array([len(result.ids) for result in every], np.int64),
        np.array([score for result in every for score in result.scores], np.float64),
        [row for result in every for row in result.rows],
        [item_id for result in every for item_id in result.ids],
    )


def _encode_stored_vectors(
    collection: ix.StoredCollection,
    view: Any,  # noqa: ANN401  # of the index
    rows: ix.Int64s,
    ids: Sequence[str],
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the vectors of rows as clients sent them.

    If a transform keeps them out of memory, they are read from the file. Items deleted since have
    zeros, and ``missing`` contains their places.
    """
    raw, missing = view.raw(rows), list[int]()
    if raw is None:
        records, space = collection.store.fetch([*dict.fromkeys(ids)]), collection.space
        nothing = b"\0" * (4 * (space.dim or 0)) if space.form == "dense" else b""
        raw = space.from_blobs(
            [records[item_id].vector if item_id in records else nothing for item_id in ids]
        )
        missing = [place for place, item_id in enumerate(ids) if item_id not in records]
    shape, blobs = encode_vectors(raw)
    return shape | {"missing": missing}, blobs


class ShardHits(NamedTuple):
    """The hits of one shard for m queries."""

    starts: ix.Int64s  # borders of the queries' hits
    scores: Any
    lengths: ix.AnyArray  # of the ids, in bytes
    ids: bytes  # concatenated: few of them are shown
    payloads: list[bytes | None]  # empty if not requested
    # Vectors and their places among them, None for an item deleted since; empty if not requested.
    vectors: list[tuple[ix.RawBatch, int] | None]
    work: ix.Int64s
    expected_recall: Any
    measured_recall: Any  # NaN: not measured

    @classmethod
    def decode(cls, answer: Message) -> ShardHits:
        """Decode an answer; Malformed if it is none."""
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
    """Return the costs of searches by method; each query counts once."""
    work = np.array([shard.work for shard in shards])
    recall = np.mean([shard.expected_recall for shard in shards], axis=0)
    methods = work[0, :, _METHOD]
    found: list[ix.Total] = []
    for method in np.unique(methods).tolist():
        ours = methods == method
        costs = work[:, ours][:, :, [_CANDIDATES, _SCORED]].sum(axis=(0, 1)).tolist()
        found.append((ix.METHODS[method], int(ours.sum()), *costs, float(recall[ours].sum())))
    return found


def merge_hits(
    shards: Sequence[ShardHits],
    asked: QueryRequest,
    seconds: float = 0.0,  # duration of each query
    missing: Sequence[int] = (),  # shards that did not answer
) -> list[ix.QueryResult]:
    """Return the best hits of each query over all shards; exact scores are comparable.

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
    number: int,  # the number of the query
    weights: ix.AnyArray,  # its number of hits in each shard
    seconds: float,
    backend: str | None,
) -> ix.Explanation:
    """Return the costs of a query on all shards; recall is the mean weighted by hits."""
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
        expected_recall=_weighted_mean(expected, weights),
        seconds=seconds,
        measured_recall=_weighted_mean(measured[known], weights[known]) if is_measured else None,
    )


def _order_of_hits(
    scores: ix.AnyArray, queries: ix.Int64s, sizes: Sequence[ix.Int64s]
) -> ix.Int64s:
    """Return the order of hits by query, then by descending score."""
    count = len(sizes[0])
    width = len(scores) // (len(sizes) * max(1, count))
    if any((each != width).any() for each in sizes):
        return np.lexsort((-scores, queries))
    # With equal counts per query in each shard, sorting short lines takes a tenth of the time.
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
    """Order hits of one query with equal scores by their ids."""
    is_tied = (queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])
    borders = np.flatnonzero(np.diff(np.concatenate(([0], is_tied, [0])))).tolist()
    for first, last in zip(borders[::2], borders[1::2], strict=True):
        tied = order[first : last + 1]
        tied[:] = [place for _, place in sorted(zip(ids_at(tied), tied.tolist(), strict=True))]


def _weighted_mean(values: Any, weights: Any) -> float:  # noqa: ANN401  # arrays of equal length
    """Return a weighted mean; the plain mean if all weights are 0."""
    total = float(weights.sum())
    return float((values * weights).sum() / total) if total else float(values.mean())


# Items


def _answer_rows(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return items: some ids, those that pass a filter, those above a key, or a random sample."""
    head, memory = asked.head, collection.memory
    view, permitted = memory.permit(decode_filter(head.get("filter")), head.get("ids"))
    sample, limit = head.get("sample"), head.get("limit")
    if sample is not None:
        every = np.flatnonzero(permitted)
        draw = np.random.default_rng(head["seed"]).choice
        found = np.sort(draw(every, min(sample, len(every)), replace=False))
    else:
        count = len(view) if limit is None else limit
        found = view.page(permitted, after=head.get("after", 0), limit=count)
    ids = view.ids.of(found)
    blobs = [view.sequences[found].tobytes(), *encode_names(ids)]
    if not head.get("with_vector"):
        return Message({}, blobs)
    payloads = [view.payloads[row] for row in found.tolist()]
    shape, more = _encode_stored_vectors(collection, view, found, ids)
    return Message({"vectors": shape}, [*blobs, *encode_texts(payloads), *more])


def decode_keys(answer: Message) -> list[int]:
    """Return the keys of the rows in an answer."""
    keys: list[int] = np.frombuffer(answer.blobs[0], np.int64).tolist()
    return keys


def decode_items(answer: Message) -> tuple[list[int], ix.ItemBatch]:
    """Return the items in an answer and their keys, without items deleted since."""
    blobs, shape, keys = answer.blobs, answer.head["vectors"], decode_keys(answer)
    vectors = decode_vectors(shape, iter(blobs[5:]))
    items = ix.ItemBatch(decode_names(*blobs[1:3]), vectors, decode_texts(*blobs[3:5]))
    if shape["missing"]:
        there = sorted({*range(len(keys))} - {*shape["missing"]})
        keys, items = [keys[place] for place in there], items.take(there)
    return keys, items


def decode_listed(answer: Message) -> list[tuple[int, str]]:
    """Return the keys and ids of the rows in an answer."""
    return [*zip(decode_keys(answer), decode_names(*answer.blobs[1:3]), strict=True)]


def _answer_find(collection: ix.StoredCollection, asked: Message) -> Message:
    view, found = collection.memory.find(asked.head["text"], asked.head["limit"])
    blobs = [view.sequences[rows].tobytes() for rows in (found.prefixed, found.others)]
    ids = view.ids.of(np.concatenate([found.prefixed, found.others]))
    return Message({"complete": found.complete}, [*blobs, *encode_names(ids)])


def merge_found(answers: Sequence[Message]) -> dict[int, str]:
    """Return keys and ids that shards found: matches of the id's beginning first, then by key."""
    found: tuple[dict[int, str], dict[int, str]] = {}, {}
    for answer in answers:
        keys = [np.frombuffer(blob, np.int64).tolist() for blob in answer.blobs[:2]]
        names = decode_names(*answer.blobs[2:4])
        found[0].update(zip(keys[0], names, strict=False))
        found[1].update(zip(keys[1], names[len(keys[0]) :], strict=True))
    return {key: part[key] for part in found for key in sorted(part)}


def _answer_hints(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return which keys and values in a filter's first conditions items of this shard have."""
    where = decode_filter(asked.head["filter"])
    known = None if where is None else collection.memory.known_words(where)
    if known is None:
        return Message({"known": None})
    found, keys = [*islice(known, _MAX_HINTED)], {}
    said: list[tuple[bool, list[int], dict[str, str]]] = []
    for has_key, missing, words in found:
        if not has_key:
            keys = words  # the same for each condition
        said.append((has_key, [*missing], words if has_key else {}))
    return Message({"known": said, "keys": keys})


def merge_hints(where: ix.Filter, answers: Sequence[Message]) -> list[str]:
    """Return the keys and values of a filter that no item of any shard has."""
    said = [answer.head for answer in answers if answer.head["known"] != []]
    if any(each["known"] is None for each in said):
        return []
    parts = [
        [
            ix.KnownWords(has_key, missing, words if has_key else each["keys"])
            for has_key, missing, words in each["known"]
        ]
        for each in said
    ]
    return ix.hints_of(where, parts) if parts else []


# Pairs


def _answer_pairs(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    """Return pairs: the best of all items, or those that join items into groups."""
    head, copies = asked.head, list[ix.Int64s]()
    where, ranking = decode_filter(head.get("filter")), head.get("ranking", "gmm")
    if (groups := head.get("groups")) is not None:
        params = ix.GroupParams(**groups)
        view, copies, found = collection.edges(params, where, stop, ranking=ranking)
    else:
        view, found = collection.pair_rows(
            min_score=head["min_score"],
            recall=head["recall"],
            limit=head.get("limit"),
            where=where,
            ranking=ranking,
            stop=stop,
        )
    return ShardPairs.encode(view, found, copies)


class ShardPairs(NamedTuple):
    """Pairs of a shard's items.

    a, b: (p,) int32, places in ``ids``.
    first, copies: (c,) int32, places of the first of equal items and of another one of them.
    keys: (c,) int64, keys of these other items.
    """

    ids: list[str]
    a: ix.Int32s
    b: ix.Int32s
    scores: ix.Float64s
    first: ix.Int32s
    copies: ix.Int32s
    keys: ix.Int64s

    @staticmethod
    def encode(view: Any, found: ix.Pairs, copies: Sequence[ix.Int64s]) -> Message:  # noqa: ANN401
        """Return the message that `decode` reads."""
        none = [np.empty(0, np.int64)]
        first = np.concatenate(none + [np.repeat(rows[:1], len(rows) - 1) for rows in copies])
        others = np.concatenate(none + [rows[1:] for rows in copies])
        is_named = np.zeros(len(view), np.bool_)
        for rows in (*found[:2], first, others):
            is_named[rows] = True
        place = np.cumsum(is_named, dtype=np.int32) - np.int32(1)
        ids = encode_names(view.ids.of(np.flatnonzero(is_named)))
        columns = (*(place[rows] for rows in found[:2]), found[2], place[first], place[others])
        blobs = [each.tobytes() for each in (*columns, view.sequences[others])]
        return Message({}, [*ids, *blobs])

    @classmethod
    def decode(cls, answer: Message) -> ShardPairs:
        """Decode an answer."""
        lengths, ids, *blobs = answer.blobs
        kinds = np.int32, np.int32, np.float64, np.int32, np.int32, np.int64
        columns = [np.frombuffer(blob, kind) for blob, kind in zip(blobs, kinds, strict=True)]
        return cls(decode_names(lengths, ids), *columns)


def _answer_join(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    """Return all hits of vectors, except items whose keys are in the last blob."""
    head = asked.head
    vectors = decode_vectors(head, iter(asked.blobs))
    without = np.frombuffer(asked.blobs[-1], np.int64)
    params, where = ix.JoinParams(**head["params"]), decode_filter(head.get("filter"))
    found = [*collection.join(params, where, stop, without=without)(vectors)]
    ids = encode_names([each for part in found for each in part.to])
    rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in found)])
    scores = np.concatenate([np.empty(0, np.float64), *(part.scores for part in found)])
    return Message({}, [rows.tobytes(), scores.tobytes(), *ids])


# Comparisons


def comparison_message(
    queries: Sequence[ix.RawBatch | ix.SparseVector],
    params: ix.SearchParams,
    backends: Sequence[str] | None,
    skip: Sequence[str],
) -> Message:
    """Return the message of a comparison; see `StoredCollection.compare`."""
    parts: list[dict[str, Any]] = []
    blobs: list[bytes | memoryview] = []
    for part in queries:
        if isinstance(part, ix.SparseVector):
            parts.append({"unknown": encode_sparse(part)})
        else:
            said, more = encode_vectors(part)
            parts.append(said)
            blobs += more
    names = None if backends is None else [*backends]
    head = {"queries": parts, "skip": [*skip], "params": params, "backends": names}
    return Message(head, blobs)


def _answer_comparison(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    head, blobs = asked.head, iter(asked.blobs)
    found = collection.compare(
        [
            decode_sparse(part["unknown"]) if "unknown" in part else decode_vectors(part, blobs)
            for part in head["queries"]
        ],
        ix.SearchParams(**head["params"]),
        backends=head["backends"],
        skip=head["skip"],
        stop=stop,
    )
    head = {"backends": found.backends, "shape": found.best.shape}
    return Message(head, [found.best.tobytes()])


# Latencies and build times are those of the slowest shard.
_MERGED_COLUMNS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "recall": np.mean,
    "recall_own": np.mean,
    "latency_p50_seconds": max,
    "latency_p95_seconds": max,
    "candidates": sum,
    "bytes_per_item": np.mean,
    "build_seconds": max,
}


def merge_comparisons(answers: Sequence[Message], limit: int) -> ix.Comparison:
    """Return the results of backends for the same queries, each shard among its own items."""
    named = _by_name(answer.head["backends"] for answer in answers)
    every = [np.frombuffer(answer.blobs[0]).reshape(answer.head["shape"]) for answer in answers]
    best = np.sort(np.concatenate(every, axis=1), axis=1)[:, -limit:]
    merged: list[ix.BackendComparison] = []
    for parts in named.values():
        values: dict[str, Any] = {}
        for each in fields(ix.BackendComparison):
            column = [part[each.name] for part in parts]
            merge = _MERGED_COLUMNS.get(each.name)
            values[each.name] = column[0] if merge is None else float(merge(column))
        merged.append(ix.BackendComparison(**values))
    return ix.Comparison(merged, best)


# Descriptions


def _answer_describe(collection: ix.StoredCollection, _: Message) -> Message:
    found = collection.describe()
    names = "items", "rows", "bytes_in_memory", "bytes_mapped", "bytes_on_disk", "versions"
    return Message({name: getattr(found, name) for name in (*names, "backends")})


def _by_name(parts: Iterable[Heads]) -> dict[str, list[dict[str, Any]]]:
    """Return the descriptions of backends by shards, grouped by name."""
    named: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            named.setdefault(each["name"], []).append(each)
    return named


def total(parts: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a count over shards."""
    return sum(int(part[name]) for part in parts)


def merge_backends(parts: Sequence[Heads]) -> list[ix.BackendDescription]:
    """Return the backends by name, in the first shard's order."""
    named = _by_name(parts)
    found = []
    for same in named.values():
        is_ready = len(same) == len(parts) and all(one["status"] == "ready" for one in same)
        merged = {
            "status": "ready" if is_ready else "building",
            "progress": min(one["progress"] for one in same),
            "bytes_in_memory": total(same, "bytes_in_memory"),
            "build_seconds": max(one["build_seconds"] for one in same),
            "stats": merge_stats([one["stats"] for one in same]),
        }
        first = {each.name: same[0][each.name] for each in fields(ix.BackendDescription)}
        found.append(ix.BackendDescription(**first | merged))
    return found


# Statistics that are summed over shards; other numbers are equal on all shards, or averaged.
_COUNTED: Final = {
    "bytes",
    "delta_rows",
    "feature_bytes",
    "made_for_rows",
    "map_bytes",
    "parameter_bytes",
    "postings_bytes",
    "rows",
    "rows_better_scanned",
    "table_bytes",
}


def merge_stats(parts: Heads) -> dict[str, Any]:
    """Return statistics of all shards: sums of counts, means of other numbers."""
    found: dict[str, Any] = {}
    for name, first in parts[0].items():
        values = [part[name] for part in parts if name in part]
        kinds = {type(value) for value in values}
        if name in _COUNTED and kinds <= {int, float}:
            found[name] = sum(values)
        elif len({*map(str, values)}) == 1:
            found[name] = first
        elif kinds <= {int, float}:
            found[name] = sum(values) / len(values)
        elif kinds == {dict}:
            found[name] = merge_stats(values)
        else:
            found[name] = first
    return found


# Costs and audits


def _answer_curve(collection: ix.StoredCollection, asked: Message) -> Message:
    found = collection.curve(asked.head["limit"])
    return Message(asdict(found) | {"points": [[*each] for each in found.points]})


def merge_curves(parts: Heads) -> ix.CostCurve:
    """Return the cost of recall over all shards: the sum of their costs at equal recall."""
    limit = parts[0]["limit"]
    reasons = [part["reason"] for part in parts if part["reason"] is not None]
    rows, holds = total(parts, "rows"), all(part["holds"] for part in parts)
    if reasons:
        return ix.CostCurve(limit, rows=rows, holds=holds, reason=reasons[0])
    columns = [np.array(part["points"], np.float64).T for part in parts]
    low = max(recalls[0] for recalls, _, _ in columns)
    high = min(recalls[-1] for recalls, _, _ in columns)
    at = [float(recall) for recall in columns[0][0] if low <= recall <= high] or [float(high)]
    sums = [sum(np.interp(at, each[0], each[column]) for each in columns) for column in (1, 2)]
    points = tuple(map(ix.CurvePoint, at, *(np.asarray(each).tolist() for each in sums)))
    scanned = [1.0 if part["scanned_from"] is None else part["scanned_from"] for part in parts]
    every = None if max(scanned) == 1 else max(scanned)
    return ix.CostCurve(limit, points, rows, holds, scanned_from=every)


def merge_audits(parts: Heads) -> ix.AuditedQueries:
    """Return the audited queries of all shards; the allowance is the largest."""
    allowance: dict[int | None, float] = {}
    for part in parts:
        for limit, share in part["allowance"]:
            allowance[limit] = max(allowance.get(limit, 0.0), share)
    results = merge_audited_recall([part["results"] for part in parts])
    return ix.AuditedQueries(results, [*allowance.items()], total(parts, "waiting"))


def merge_audited_recall(parts: Iterable[Heads]) -> list[ix.AuditedRecall]:
    """Return the audited recall; its interval is that of the shards' weighted mean."""
    asked: dict[tuple[str, float, int], list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            asked.setdefault((each["week"], each["recall"], each["limit"]), []).append(each)
    found = []
    for lines in asked.values():
        counts = np.array([line["queries"] for line in lines])
        means = np.array([line["found"] for line in lines])
        mean = _weighted_mean(means, counts)
        sides = [
            float(np.sqrt((((counts / counts.sum()) * gap) ** 2).sum()))
            for gap in (
                means - np.array([line["low"] for line in lines]),
                np.array([line["high"] for line in lines]) - means,
            )
        ]
        low, high = max(0.0, mean - sides[0]), min(1.0, mean + sides[1])
        together = {"queries": int(counts.sum()), "found": mean, "low": low, "high": high}
        found.append(ix.AuditedRecall(**lines[0] | together))
    return found


OPERATIONS: Final[dict[str, Answer]] = {
    "search": _answer_search,
    "count": lambda collection, asked: Message(
        {"count": collection.count(decode_filter(asked.head.get("filter")))}
    ),
    "rows": _answer_rows,
    "find": _answer_find,
    "hints": _answer_hints,
    "describe": _answer_describe,
    "summary": lambda collection, _: Message(asdict(collection.summary())),
    "curve": _answer_curve,
    "audited": lambda collection, _: Message(collection.audited()._asdict()),
}
LONG: Final[dict[str, Callable[..., Message]]] = {
    "join": _answer_join,
    "pair_rows": _answer_pairs,
    "compare": _answer_comparison,
}
"""Those that may compute for minutes, and look whether they are still waited for (``stop``)."""
