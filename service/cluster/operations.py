"""What routers ask shards of a collection: each shard's answer, and the answers of all as one.

`OPERATIONS` and `LONG` have a row for each message about a collection's items.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import asdict, fields
from functools import partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Row, buckets_of, decode_filter, encode_filter
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

if TYPE_CHECKING:  # a shard needs no HTTP client
    from gcws_search.service.cluster.collection import ClusterCollection

Answer = Callable[[ix.StoredCollection, Message], Message]
Heads = Sequence[dict[str, Any]]
Pair = tuple[str, str, float]

LONG_SECONDS: Final = 3600.0  # how long shards may take to compare, or to find pairs

_CHUNK_ROWS: Final = 512  # items that are read, and searched for in other shards, together
# Partners of an item that are asked for at first; more where all of them come.
_FIRST_LIMIT: Final = 64
_GROWTH: Final = 8
# Vectors of a join that shards are asked for together: at first, and at most.
_JOINED_ROWS: Final = 64
_MAX_JOINED_ROWS: Final = 4096
_MESSAGE_HITS: Final = 1 << 18  # that one message asks for, unless one item alone has more
_SPARE_PAIRS: Final = 1024  # the best pairs are cut when so many more, or an eighth, have come
# A shard's hits may take this many times the longest answer: routers show few of them.
_SPARE_ANSWERS: Final = 8
_MAX_HINTED: Final = 64  # conditions of a filter that hints are given on
# Columns of a shard's ``work``: the number of the method, then what `Explanation` has.
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

    ``more``: ``filter``, ``backend``, ``with_payload``, ``with_vector``, ``max_bytes``, ``skip``,
    the id of the item that the only vector is of, or in the place of vectors ``unknown``, one with
    names that the space has not.
    """
    said, blobs = ({}, []) if vectors is None else encode_vectors(vectors)
    asked = {"filter": None, "backend": None, "with_payload": False, "with_vector": False}
    return Message({**head, "params": params, **asked, **said, **more}, blobs)


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


def _answer_search(collection: ix.StoredCollection, asked: Message) -> Message:
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


def _encode_stored_vectors(
    collection: ix.StoredCollection,
    view: Any,  # noqa: ANN401  # of the index
    rows: ix.Int64s,
    ids: Sequence[str],
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the vectors of rows as sent.

    Where a transform keeps them out of memory they are the file's: those of items deleted since are
    zeros, and ``missing`` names their places.
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


def merge_hits(
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
        expected_recall=_weighted_mean(expected, weights),
        seconds=seconds,
        measured_recall=_weighted_mean(measured[known], weights[known]) if is_measured else None,
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


def _weighted_mean(values: Any, weights: Any) -> float:  # noqa: ANN401  # arrays of equal length
    """Return a weighted mean; the plain one where all weights are 0."""
    total = float(weights.sum())
    return float((values * weights).sum() / total) if total else float(values.mean())


# Items


def _answer_rows(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return items: of those ids, those that pass a filter, beyond a key, or drawn at random."""
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
    ids = [view.ids[row] for row in found.tolist()]
    blobs = [view.sequences[found].tobytes(), *encode_names(ids)]
    if not head.get("with_vector"):
        return Message({}, blobs)
    payloads = [view.payloads[row] for row in found.tolist()]
    shape, more = _encode_stored_vectors(collection, view, found, ids)
    return Message({"vectors": shape}, [*blobs, *encode_texts(payloads), *more])


def decode_keys(answer: Message) -> list[int]:
    """Return the keys of the rows that a shard names."""
    keys: list[int] = np.frombuffer(answer.blobs[0], np.int64).tolist()
    return keys


def decode_items(answer: Message) -> tuple[list[int], ix.ItemBatch]:
    """Return the items that a shard sends, and their keys; without those deleted since."""
    blobs, shape, keys = answer.blobs, answer.head["vectors"], decode_keys(answer)
    vectors = decode_vectors(shape, iter(blobs[5:]))
    items = ix.ItemBatch(decode_names(*blobs[1:3]), vectors, decode_texts(*blobs[3:5]))
    if shape["missing"]:
        there = sorted({*range(len(keys))} - {*shape["missing"]})
        keys, items = [keys[place] for place in there], items.take(there)
    return keys, items


def _answer_find(collection: ix.StoredCollection, asked: Message) -> Message:
    view, found = collection.memory.find(asked.head["text"], asked.head["limit"])
    blobs = [view.sequences[rows].tobytes() for rows in (found.prefixed, found.others)]
    return Message({"complete": found.complete}, blobs)


def merge_found(answers: Sequence[Message]) -> list[int]:
    """Return the keys that shards found: by their ids' beginning first, each kind rising."""
    found = list[int]()
    for part in range(2):
        keys = [np.frombuffer(answer.blobs[part], np.int64) for answer in answers]
        found += np.sort(np.concatenate(keys)).tolist()
    return found


def _answer_hints(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return what this shard's items have of the first conditions of a filter."""
    where = decode_filter(asked.head["filter"])
    known = None if where is None else collection.memory.known_words(where)
    if known is None:
        return Message({"known": None})
    found, keys = [*islice(known, _MAX_HINTED)], {}
    said: list[tuple[bool, list[int], dict[str, str]]] = []
    for has_key, missing, words in found:
        if not has_key:
            keys = words  # the same of each
        said.append((has_key, [*missing], words if has_key else {}))
    return Message({"known": said, "keys": keys})


def merge_hints(where: ix.Filter, answers: Sequence[Message]) -> list[str]:
    """Return which keys and values of a filter no item of any shard has."""
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
    head = asked.head
    found = collection.pairs(
        min_score=head["min_score"],
        recall=head["recall"],
        limit=head.get("limit"),
        where=decode_filter(head.get("filter")),
        ranking=head.get("ranking", "gmm"),
        stop=stop,
    )
    first, second = encode_names([a for a, _, _ in found]), encode_names([b for _, b, _ in found])
    scores = np.array([score for _, _, score in found], np.float64)
    return Message({}, [*first, *second, scores.tobytes()])


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
    """Return pairs of items at least ``min_score`` alike: ids a < b, by falling score.

    Pairs within a shard are found as in one collection; those across by searches of each shard for
    the items of the shards before it, and by containment of those after it, too. InvalidParameter
    where there are more than one collection would list.
    """
    is_mutual = ranking == "gmm"
    best = _BestPairs(min_score, limit, collection.router.max_pairs, is_mutual=is_mutual)
    text, now_ms = encode_filter(where), collection.database.now_ms
    wanted: dict[str, Any] = {"min_score": min_score, "recall": recall, "limit": limit}
    wanted |= {} if is_mutual else {"ranking": ranking}

    def search(shard: int, vectors: ix.RawBatch, limit: int) -> ShardHits:
        params = ix.SearchParams(
            limit=limit, recall=recall, min_score=best.threshold, ranking=ranking
        )
        head = collection.head("search", now=now_ms)
        message = search_message(head, vectors, params, filter=text)
        answer = collection.shards.ask(shard, count, message, LONG_SECONDS)
        return ShardHits.decode(collection.shards.wait(answer, stop))

    try:
        answers = collection.ask("pairs", LONG_SECONDS, stop, **wanted, filter=text, now=now_ms)
        count = len(answers)
        while answers:
            blobs = answers.pop().blobs
            first, second = decode_names(*blobs[:2]), decode_names(*blobs[2:4])
            best.add(zip(first, second, np.frombuffer(blobs[4]).tolist(), strict=True))
        database, number = collection.database, collection.number
        for shard in range(count):
            others = [*range(shard + 1, count), *(() if is_mutual else range(shard))]
            for bucket in buckets_of(shard, count, database.buckets):
                after = ""
                # In chunks, without a transaction between them: an item that stays comes once.
                page = partial(database.bucket_rows, number, bucket, now_ms=now_ms)
                while others and (rows := page(after=after, limit=_CHUNK_ROWS)):
                    _add_pairs_across(
                        collection, search, best, rows, others, where=where, stop=stop
                    )
                    after = rows[-1].id
    except CancelledError:
        return []
    return best.rank()


def find_groups(
    collection: ClusterCollection,
    params: ix.GroupParams,
    where: ix.Filter | None,
    stop: threading.Event,
    *,
    ranking: ix.Ranking = "gmm",
) -> list[ix.Group]:
    """Return groups of near-duplicates: of what `find_pairs` finds; the router holds their items.

    InvalidParameter where there are more pairs than one collection would list.
    """
    pairs = find_pairs(
        collection,
        min_score=params.min_score,
        recall=params.recall,
        limit=None,
        stop=stop,
        where=where,
        ranking=ranking,
    )
    with collection.lend_items(sorted({each for pair in pairs for each in pair[:2]})) as items:
        view = items.memory.view
        row_of = {name: row for row, name in enumerate(view.ids[: len(view)])}
        # those deleted since are gone
        there = [(row_of[a], row_of[b], s) for a, b, s in pairs if a in row_of and b in row_of]
        ends = np.array([pair[:2] for pair in there], np.int64).reshape(-1, 2)
        scores = np.array([score for _, _, score in there], np.float64)
        found = ends.min(1), ends.max(1), scores
        return ix.group_rows(view, view.alive, lambda _: found, params, ranking)


def _answer_join(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    head = asked.head
    vectors = decode_vectors(head, iter(asked.blobs))
    hits = collection.join(ix.JoinParams(**head["params"]), decode_filter(head.get("filter")), stop)
    found = [*hits(vectors)]
    ids = encode_names([each for part in found for each in part.to])
    rows = np.concatenate([np.empty(0, np.int64), *(part.rows for part in found)])
    scores = np.concatenate([np.empty(0, np.float64), *(part.scores for part in found)])
    return Message({}, [rows.tobytes(), scores.tobytes(), *ids])


def join_shards(
    collection: ClusterCollection,
    params: ix.JoinParams,
    where: ix.Filter | None,
    stop: threading.Event,
    vectors: ix.RawBatch,
) -> Iterator[ix.JoinedRows]:
    """Yield the hits of vectors, some at a time: those of all shards, or the best of them."""
    first, size, text = 0, _JOINED_ROWS, encode_filter(where)
    while first < len(vectors):
        said, blobs = encode_vectors(vectors[first : first + size])
        more: dict[str, Any] = {**said, "params": asdict(params), "filter": text}
        answers = collection.ask("join", LONG_SECONDS, stop, blobs, **more)
        rows = np.concatenate([np.frombuffer(each.blobs[0], np.int64) for each in answers])
        scores = np.concatenate([np.frombuffer(each.blobs[1]) for each in answers])
        ids = [name for each in answers for name in decode_names(*each.blobs[2:4])]
        end = min(first + size, len(vectors))
        yield ix.ranked_hits(end, rows + first, ids, scores, params.limit)
        first = end
        size = max(1, min(4 * size, _MAX_JOINED_ROWS, size * _MESSAGE_HITS // (len(rows) + 1)))


class _BestPairs:
    """The best pairs so far: as many as are wanted and a few more; any thread.

    is_mutual: a pair is taken once; else it may be taken twice, and has the greater score.
    """

    def __init__(
        self, min_score: float, limit: int | None, max_pairs: int, *, is_mutual: bool
    ) -> None:
        self._is_mutual = is_mutual
        self.threshold = self._min_score = min_score  # pairs that score less are of no use
        self._max_pairs = max_pairs
        self._is_bounded = limit is not None and limit <= max_pairs
        self._limit = limit
        # partners of one item that may be among them
        self.wanted = limit if limit is not None and self._is_bounded else max_pairs + 1
        self._pairs: list[Pair] = []
        self._lock = threading.Lock()

    def add(self, found: Iterable[Pair]) -> None:
        """Take pairs."""
        with self._lock:
            self._pairs += (pair for pair in found if pair[2] >= self.threshold)
            most = self._max_pairs if self._is_mutual else 2 * self._max_pairs
            if not self._is_bounded and len(self._pairs) > most:
                raise ix.too_many_pairs(self._max_pairs, self._min_score)
            if len(self._pairs) > self.wanted + max(_SPARE_PAIRS, self.wanted // 8):
                self._pairs = self.rank()
                if len(self._pairs) == self._limit:
                    self.threshold = self._pairs[-1][2]

    def rank(self) -> list[Pair]:
        """Return the pairs by falling score, ties by ids."""
        self._pairs.sort(key=lambda pair: (-pair[2], *pair[:2]))
        if not self._is_mutual:
            greatest = dict[tuple[str, str], Pair]()
            for pair in self._pairs:
                greatest.setdefault(pair[:2], pair)
            self._pairs = [*greatest.values()]
        return self._pairs[: self._limit]


def _add_pairs_across(
    collection: ClusterCollection,
    search: Callable[[int, ix.RawBatch, int], ShardHits],  # of a shard, vectors, hits of each
    best: _BestPairs,
    rows: Sequence[Row],  # of a shard
    others: Sequence[int],  # shards
    *,
    where: ix.Filter | None,
    stop: threading.Event,
) -> None:
    """Search other shards, all at once; again for items with more partners."""
    if where is not None:
        passes = where.mask(ix.Columns([row.payload for row in rows]), len(rows))
        rows = [row for row, passed in zip(rows, passes.tolist(), strict=True) if passed]
        if not rows:
            return
    vectors = collection.space.from_blobs([row.vector for row in rows])

    def add(other: int) -> None:
        left, limit = np.arange(len(rows)), min(_FIRST_LIMIT, best.wanted)
        while len(left):
            size, more = max(1, _MESSAGE_HITS // limit), list[ix.Int64s]()
            for part in np.split(left, range(size, len(left), size)):
                if stop.is_set():
                    raise CancelledError
                hits = search(other, vectors[part], limit)
                is_whole = (np.diff(hits.starts) < limit) | (limit >= best.wanted)
                ids = decode_names(hits.lengths.data, hits.ids)
                for place in np.flatnonzero(is_whole).tolist():
                    ours = slice(int(hits.starts[place]), int(hits.starts[place + 1]))
                    own, scores = rows[int(part[place])].id, hits.scores[ours].tolist()
                    pairs = zip(ids[ours], scores, strict=True)
                    best.add((*sorted((own, other)), score) for other, score in pairs)
                more.append(part[~is_whole])
            left, limit = np.concatenate(more), min(_GROWTH * limit, best.wanted)

    with ThreadPoolExecutor(len(others)) as pool:
        for done in [pool.submit(add, other) for other in others]:
            done.result()


# Comparisons


def comparison_message(
    queries: Sequence[ix.RawBatch | ix.SparseVector],
    params: ix.SearchParams,
    backends: Sequence[str] | None,
    skip: Sequence[str],
) -> Message:
    """Return what a comparison asks; see `StoredCollection.compare`."""
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
    """Return what backends found for the same queries, each shard among its own items."""
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
    """Return what shards say of backends, by the names of these."""
    named: dict[str, list[dict[str, Any]]] = {}
    for part in parts:
        for each in part:
            named.setdefault(each["name"], []).append(each)
    return named


def total(parts: Iterable[dict[str, Any]], name: str) -> int:
    """Return the sum of a count over shards."""
    return sum(int(part[name]) for part in parts)


def merge_backends(parts: Sequence[Heads]) -> list[ix.BackendDescription]:
    """Return the backends of shards by name, in the first shard's order."""
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


# Statistics whose sum is that of all shards; other numbers are the same on all, or means.
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
    """Return statistics of shards as one: sums of counts, means of other numbers."""
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
    """Return what recall costs on all shards together: at equal recall, the sum of their costs."""
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
    """Return what audited queries found on all shards; an allowance is the largest."""
    allowance: dict[int | None, float] = {}
    for part in parts:
        for limit, share in part["allowance"]:
            allowance[limit] = max(allowance.get(limit, 0.0), share)
    results = merge_audited_recall([part["results"] for part in parts])
    return ix.AuditedQueries(results, [*allowance.items()], total(parts, "waiting"))


def merge_audited_recall(parts: Iterable[Heads]) -> list[ix.AuditedRecall]:
    """Return what audited queries found; the interval is that of the shards' weighted mean."""
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
    "pairs": _answer_pairs,
    "compare": _answer_comparison,
}
"""Those that may compute for minutes, and look whether they are still waited for (``stop``)."""
