"""Messages that search: queries of one request or of several that ask for the same."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import numpy as np
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.execution.searches import measured_recall, search
from gcws_search.service.guards.limits import require_short_answer
from gcws_search.service.query_request import QueryRequest
from gcws_search.service.rpc.messages import (
    Message,
    blobs_of,
    decode_sparse,
    decode_vectors,
    encode_names,
    encode_texts,
    encode_vectors,
)

_SPARE: Final = 8
"""A shard's hits may take this many times the longest answer: routers show few of them."""
_MAX_DEPTH: Final = 64
_MAX_CONDITIONS: Final = 1 << 20
"""Routers have smaller limits, and say so."""


def filter_of(text: str | None) -> ix.Filter | None:
    """Return the filter of a message; None for none.

    Raises
    ------
    InvalidFilter
    """
    if text is None:
        return None
    document = from_json(text)
    return ix.parse_filter(document, max_depth=_MAX_DEPTH, max_conditions=_MAX_CONDITIONS)


def answer_to_search(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return the hits of each query.

    Raises
    ------
    BackendNotFound, AnswerTooLarge, InvalidFilter, InvalidParameter
    InvalidVector
        The transform leaves nothing of a vector; its place begins with the row.
    """
    head = asked.head
    query = _query(asked)
    start = time.perf_counter()
    if (skipped := head.get("skip")) is None:
        results = search(collection, query)
    else:
        around = collection.search_around(
            skipped,
            query.params,
            where=query.where,
            backend=query.backend,
            vector=query.vectors,
        )
        results = [around]
    hits = _Hits.of(results)
    seconds = time.perf_counter() - start
    message = _encode_hits(collection, query, hits, head.get("max_bytes"))
    costs = _costs(collection, query, results)
    return Message(message.head | {"seconds": seconds}, [*message.blobs, *costs])


def _query(asked: Message) -> QueryRequest:
    head = asked.head
    unknown = head.get("unknown")
    return QueryRequest(
        None if unknown else decode_vectors(head, asked.blobs),
        None,
        ix.SearchParams(**head["params"]),
        filter_of(head.get("filter")),
        b"",
        head.get("backend"),
        head.get("with_payload", False),
        head.get("with_vector", False),
        explain=True,
        with_unknown=decode_sparse(unknown) if unknown else None,
    )


class _Hits(NamedTuple):
    """The hits of several queries, one after the other.

    Attributes
    ----------
    view
        What was searched.
    sizes
        How many each query has.
    rows
        In the view.
    """

    view: Any
    sizes: ix.Int64s
    scores: ix.AnyArray
    rows: list[int]
    ids: list[str]

    @classmethod
    def of(cls, results: Sequence[ix.QueryResult]) -> _Hits:
        """Return the hits of results; without ties, which are sorted by id, all at once."""
        if isinstance(results, ix.QueryResults) and not _are_tied(results):
            found, view = results.found, results.view
            is_hit = np.arange(found.rows.shape[1]) < found.sizes[:, None]
            rows = found.rows[is_hit].tolist()
            names = view.ids
            return cls(view, found.sizes, found.scores[is_hit], rows, [names[row] for row in rows])
        every = [*results]
        return cls(
            every[0].view if every else None,
            np.array([len(result.ids) for result in every], np.int64),
            np.array([score for result in every for score in result.scores], np.float64),
            [row for result in every for row in result.rows],
            [item_id for result in every for item_id in result.ids],
        )


def _are_tied(results: ix.QueryResults) -> bool:
    """Return whether some query has hits with the same score."""
    found = results.found
    is_same = found.scores[:, 1:] == found.scores[:, :-1]
    is_hit = np.arange(1, found.scores.shape[1]) < found.sizes[:, None]
    return bool(found.wider) or bool((is_same & is_hit).any())


def _encode_hits(
    collection: ix.StoredCollection, query: QueryRequest, hits: _Hits, max_bytes: int | None
) -> Message:
    """Return the hits, and what is asked for with them."""
    ids = hits.ids
    blobs = [hits.sizes.astype(np.int64).tobytes(), hits.scores.astype(np.float64).tobytes()]
    blobs += encode_names(ids)
    payloads = None
    if query.with_payload:
        held = [] if hits.view is None else hits.view.payloads
        payloads = [held[row] for row in hits.rows]
    if max_bytes is not None:  # of memory here; routers limit what is shown of all shards' hits
        payload_bytes = sum(len(payload or b"") for payload in payloads or ())
        vectors = len(ids) if query.with_vector else 0
        require_short_answer(payload_bytes, vectors, collection.config.dim, _SPARE * max_bytes)
    if payloads is not None:
        blobs += encode_texts(payloads)
    shape = None
    if query.with_vector:
        shape, more = _vectors_of_hits(collection, hits)
        blobs += more
    return Message({"payloads": payloads is not None, "vectors": shape}, blobs)


def _costs(
    collection: ix.StoredCollection, query: QueryRequest, results: Sequence[ix.QueryResult]
) -> list[bytes]:
    """Return what each query cost, and its recall: expected, and measured of its kind."""
    if isinstance(results, ix.QueryResults):
        work, expected = results.found.work, results.found.expected_recall
    else:
        explained = [result.explanation for result in results]
        work = np.array([_work(each) for each in explained], np.int64)
        expected = np.array([each.expected_recall for each in explained], np.float64)
    measured = measured_recall(collection, query)
    recall = np.full(len(results), np.nan if measured is None else measured)
    return [np.ascontiguousarray(work).tobytes(), expected.tobytes(), recall.tobytes()]


def _work(explained: ix.Explanation) -> list[int]:
    """Return what a query cost, its method by its number."""
    return [
        ix.METHODS.index(explained.method),
        explained.bands,
        explained.depth,
        explained.candidates,
        explained.scored,
        explained.beam,
    ]


def _vectors_of_hits(
    collection: ix.StoredCollection, hits: _Hits
) -> tuple[dict[str, Any], list[bytes]]:
    """Return the vectors of all hits as sent; those of items deleted since are all zeros."""
    rows = np.array(hits.rows, np.int64)
    raw = None if hits.view is None else hits.view.raw(collection.space, rows)
    missing: list[int] = []
    if raw is None:
        raw, missing = stored_vectors(collection, hits.ids)
    shape, blobs = encode_vectors(raw)
    return shape | {"missing": missing}, blobs


def stored_vectors(
    collection: ix.StoredCollection, ids: Sequence[str]
) -> tuple[ix.RawBatch, list[int]]:
    """Return vectors as the file has them, and the places of those that it has not: zeros."""
    records = collection.store.fetch([*dict.fromkeys(ids)])
    space = collection.space
    nothing = b"\0" * (4 * (space.dim or 0)) if space.form == "dense" else b""
    blobs = [records[item_id].vector if item_id in records else nothing for item_id in ids]
    missing = [place for place, item_id in enumerate(ids) if item_id not in records]
    return space.from_blobs(blobs), missing


def answer_to_comparison(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None = None
) -> Message:
    """Return what several backends find, and what that costs; CancelledError once it is stopped.

    Raises
    ------
    BackendNotFound, InvalidParameter, InvalidVector
    """
    head, blobs = asked.head, [*asked.blobs]
    queries: list[ix.RawBatch | ix.SparseVector] = []
    for part in head["queries"]:
        if (unknown := part.get("unknown")) is not None:
            queries.append(decode_sparse(unknown))
        else:
            queries.append(decode_vectors(part, blobs))
            del blobs[: blobs_of(part)]
    found = collection.compare(
        queries,
        ix.SearchParams(**head["params"]),
        backends=head["backends"],
        skip=head["skip"],
        stop=stop,
    )
    backends = [asdict(each) for each in found.backends]
    head = {"backends": backends, "shape": found.best.shape}
    return Message(head, [found.best.tobytes()])
