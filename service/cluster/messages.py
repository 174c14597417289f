"""What messages of a cluster say in one form: filters, changes, and errors by their class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from pydantic_core import from_json

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ChangeSet, Position, Row
from gcws_search.service.cluster.errors import Behind
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.models import json_text
from gcws_search.service.rpc.messages import (
    Malformed,
    Message,
    decode_names,
    decode_texts,
    encode,
    encode_names,
    encode_texts,
)

CHANGE_BLOBS: Final = 7
"""Of a change: keys, then lengths and bytes of ids, vectors and payloads."""

_MAX_DEPTH: Final = 64
_MAX_CONDITIONS: Final = 1 << 20
"""Of a filter; routers have smaller limits, and say so."""


def encode_filter(where: ix.Filter | None) -> str | None:
    """Return what a head says of a filter."""
    return None if where is None else json_text(where.to_dict()).decode()


def decode_filter(text: str | None) -> ix.Filter | None:
    """Return the filter of a message, InvalidFilter where it is none."""
    if text is None:
        return None
    document = from_json(text)
    return ix.parse_filter(document, max_depth=_MAX_DEPTH, max_conditions=_MAX_CONDITIONS)


# Changes


def encode_change(change: ChangeSet) -> Message:
    """Return a change as a part of messages: its rows are `CHANGE_BLOBS` blobs."""
    before, after, deleted, rows = change
    return Message(
        {"before": _position(before), "after": _position(after), "deleted": deleted},
        [
            np.fromiter((row.key for row in rows), np.int64, len(rows)).tobytes(),
            *encode_names([row.id for row in rows]),
            *encode_texts([row.vector for row in rows]),
            *encode_texts([row.payload for row in rows]),
        ],
    )


def decode_changes(
    said: Sequence[dict[str, Any]], blobs: Sequence[bytes | memoryview]
) -> list[ChangeSet]:
    """Return the changes of a message, in the order of commits; Malformed where they are none."""
    try:
        return [
            _decode_change(each, blobs[CHANGE_BLOBS * at : CHANGE_BLOBS * (at + 1)])
            for at, each in enumerate(said)
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise Malformed(f"a change: {error!r}") from None


def _decode_change(said: dict[str, Any], blobs: Sequence[bytes | memoryview]) -> ChangeSet:
    keys, id_lengths, ids, lengths, vectors, payload_lengths, payloads = blobs
    columns = (
        np.frombuffer(keys, np.int64).tolist(),
        decode_names(id_lengths, ids),
        decode_texts(lengths, vectors),
        decode_texts(payload_lengths, payloads),
    )
    rows = [
        Row(key, item_id, vector or b"", payload)
        for key, item_id, vector, payload in zip(*columns, strict=True)
    ]
    before, after = (
        Position(key, commit, bytes.fromhex(stamp))
        for key, commit, stamp in (said["before"], said["after"])
    )
    return ChangeSet(before, after, said["deleted"], rows)


def _position(position: Position) -> tuple[int, int, str]:
    return position.key, position.commit, position.stamp.hex()


# Errors

_INPUTS: Final = {
    kind.__name__: kind
    for kind in (ix.InvalidVector, ix.InvalidFilter, ix.InvalidParameter, ix.InvalidPayload)
}


def encode_error(error: Exception, **more: Any) -> bytes:  # noqa: ANN401
    """Return an answer that raises its like where it is read (`raise_error`), and says more."""
    said: dict[str, Any] = {"error": type(error).__name__, "detail": str(error), **more}
    match error:
        case ix.InvalidInput(expected=expected, got=got, loc=loc):
            said |= {"expected": expected, "got": got, "loc": loc}
        case (
            ix.ItemNotFound(item_id=name)
            | ix.BackendNotFound(name=name)
            | ix.CollectionNotFound(name=name)
        ):
            said |= {"name": name}
        case AnswerTooLarge(limit_bytes=limit):
            said |= {"limit": limit}
        case Behind(key=key, reached=reached):
            said |= {"key": key, "reached": reached}
    return encode(Message(said))


def raise_error(message: Message) -> None:
    """Raise the error of an answer that is one.

    Raises
    ------
    InvalidInput, ItemNotFound, BackendNotFound, CollectionNotFound, AnswerTooLarge, Behind
    Malformed
        Whatever else went wrong there.
    """
    head = message.head
    match head.get("error"):
        case None:
            return
        case "ItemNotFound":
            raise ix.ItemNotFound(head["name"])
        case "CollectionNotFound":
            raise ix.CollectionNotFound(head["name"])
        case "BackendNotFound":
            raise ix.BackendNotFound(head["name"])
        case "AnswerTooLarge":
            raise AnswerTooLarge(head["limit"])
        case "Behind":
            raise Behind(head["key"], head["reached"])
        case str(name) if name in _INPUTS:
            raise _INPUTS[name](expected=head["expected"], got=head["got"], loc=tuple(head["loc"]))
        case name:
            raise Malformed(f"{name}: {head['detail']}")
