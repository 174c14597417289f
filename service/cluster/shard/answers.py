"""Messages of routers, answered from memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from gcws_search import index as ix
from gcws_search.service.cluster.errors import Behind
from gcws_search.service.cluster.messages import decode_changes
from gcws_search.service.cluster.shard.searches import (
    answer_to_comparison,
    answer_to_search,
    filter_of,
    stored_vectors,
)
from gcws_search.service.errors import AnswerTooLarge, StoreUnavailable
from gcws_search.service.rpc.messages import Malformed, Message, encode_texts, encode_vectors

if TYPE_CHECKING:
    from gcws_search.service.cluster.shard.host import ShardHost

EXPECTED: Final = (
    ix.InvalidInput,
    ix.ItemNotFound,
    ix.BackendNotFound,
    ix.CollectionNotFound,
    AnswerTooLarge,
    Behind,
    Malformed,
    CancelledError,
    StoreUnavailable,
)
"""What may be wrong with a message, and is nothing to be logged."""

_Answer: TypeAlias = Callable[[ix.StoredCollection, Message], Message]


def answer_to(host: ShardHost, asked: Message, stop: threading.Event | None = None) -> Message:
    """Return the answer to a message; soon, once ``stop`` is set.

    Raises
    ------
    Behind
        The collection has not reached the key that was asked for, or has not attached the backend,
        and did not in time.
    Malformed
        There is no such method, or it lacks something.
    Exception
        Whatever the collection raises.
    """
    head = asked.head
    try:
        method, seconds = head["method"], float(head.get("seconds", 0.0))
        if method == "status":
            return _status(host)
        number = int(head["collection"])
        if method == "follow":
            return _followed(host, number, asked, seconds)
        if method == "refresh":
            return _refreshed(host, number, seconds)
        answer = partial(_LONG[method], stop=stop) if method in _LONG else _ANSWERS[method]
    except KeyError as error:
        raise Malformed(f"expected a method and what belongs to it, got no {error}") from None
    at = int(head.get("at", 0))
    collection = host.collection(number, at, seconds, head.get("since"))
    try:
        return answer(collection, asked)
    except ix.BackendNotFound as error:
        follower = host.follower(number, 0.0)
        if follower is None or not follower.expects_backend(error.name, seconds):
            raise
    try:
        return answer(collection, asked)
    except ix.BackendNotFound:
        raise Behind(at, follower.reached) from None


def _status(host: ShardHost) -> Message:
    if host.disputed:
        raise StoreUnavailable(host.disputed)
    place = host.place
    return Message(
        {
            "identity": place.cluster,
            "shard": place.shard,
            "shards": place.shards,
            "collections": host.positions,
            "bytes": host.nbytes,
        }
    )


def _followed(host: ShardHost, number: int, asked: Message, seconds: float) -> Message:
    """Wait for a key, whose changes may come with the message; return the one that was reached."""
    key = int(asked.head["key"])
    changes = decode_changes(asked.head.get("changes", ()), asked.blobs)
    if changes and host.is_of_last_epoch(asked):
        known = host.follower(number, 0.0)
        if known is not None:
            known.take(changes)
    with suppress(Behind):
        host.collection(number, key, seconds, asked.head.get("since"))
    follower = host.follower(number, 0.0)
    if follower is None:
        return Message({"key": -1})
    return Message({"key": follower.reached, "since": follower.epoch})


def _refreshed(host: ShardHost, number: int, seconds: float) -> Message:
    """Read the list of comparison backends now; return which are ready."""
    host.collection(number, 0, seconds)
    follower = host.follower(number, 0.0)
    return Message({"ready": [] if follower is None else follower.follow_backends()})


def _count(collection: ix.StoredCollection, asked: Message) -> Message:
    return Message({"count": collection.count(filter_of(asked.head.get("filter")))})


def _rows(collection: ix.StoredCollection, asked: Message) -> Message:
    """Return items: of those ids, those that pass a filter, beyond a key, or drawn at random."""
    head, memory = asked.head, collection.memory
    view, rows = memory.view, None
    if head.get("ids") is not None:
        view, rows = memory.locate_all(head["ids"])
    permitted, _ = memory.mask(view, filter_of(head.get("filter")))
    if rows is not None:
        among, permitted = permitted, np.zeros_like(permitted)
        permitted[rows] = among[rows]
    sample, limit = head.get("sample"), head.get("limit")
    if sample is not None:
        every = np.flatnonzero(permitted)
        draw = np.random.default_rng(head["seed"]).choice
        found = np.sort(draw(every, min(sample, len(every)), replace=False))
    else:
        count = len(view) if limit is None else limit
        found = view.page(permitted, after=head.get("after", 0), limit=count)
    ids = [view.ids[row] for row in found.tolist()]
    blobs = [view.sequences[found].tobytes(), *encode_texts([each.encode() for each in ids])]
    if not head.get("with_vector"):
        return Message({}, blobs)
    payloads = [view.payloads[row] for row in found.tolist()]
    raw = view.raw(collection.space, found)
    missing: list[int] = []
    if raw is None:
        raw, missing = stored_vectors(collection, ids)
    shape, more = encode_vectors(raw)
    return Message(
        {"vectors": shape | {"missing": missing}}, [*blobs, *encode_texts(payloads), *more]
    )


def _pairs(
    collection: ix.StoredCollection, asked: Message, *, stop: threading.Event | None
) -> Message:
    head = asked.head
    found = collection.pairs(
        min_score=head["min_score"], recall=head["recall"], limit=head.get("limit"), stop=stop
    )
    scores = np.array([score for _, _, score in found], np.float64)
    first = encode_texts([one.encode() for one, _, _ in found])
    second = encode_texts([other.encode() for _, other, _ in found])
    return Message({}, [*first, *second, scores.tobytes()])


def _described(collection: ix.StoredCollection, _: Message) -> Message:
    found = collection.describe()
    names = ("items", "rows", "bytes_in_memory", "bytes_mapped", "bytes_on_disk", "versions")
    head: dict[str, Any] = {name: getattr(found, name) for name in names}
    return Message(head | {"backends": [asdict(each) for each in found.backends]})


def _summary(collection: ix.StoredCollection, _: Message) -> Message:
    return Message(asdict(collection.summary()))


def _curve(collection: ix.StoredCollection, asked: Message) -> Message:
    found = collection.curve(asked.head["limit"])
    points = [[each.recall, each.candidates, each.microseconds] for each in found.points]
    return Message(asdict(found) | {"points": points})


def _audited(collection: ix.StoredCollection, _: Message) -> Message:
    found = collection.audited()
    results = [asdict(each) for each in found.results]
    return Message({"results": results, "allowance": found.allowance, "waiting": found.waiting})


_ANSWERS: Final[dict[str, _Answer]] = {
    "search": answer_to_search,
    "count": _count,
    "rows": _rows,
    "describe": _described,
    "summary": _summary,
    "curve": _curve,
    "audited": _audited,
}
_LONG: Final[dict[str, Callable[..., Message]]] = {"pairs": _pairs, "compare": answer_to_comparison}
"""Those that look whether they are still waited for."""
