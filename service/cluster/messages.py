"""Messages between routers and shards: a JSON head and raw bytes, and errors by their class."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ChangeSet, Position, Row
from gcws_search.service.cluster.errors import Behind, Malformed
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.models import json_text

VERSION: Final = 1
"""Of the messages; a replica of another version refuses."""

_HEAD: Final = struct.Struct("<HHI")
"""Version, number of blobs, bytes of the JSON head; then the blobs' lengths, 8 bytes each."""
_LENGTH: Final = struct.Struct("<Q")
CHANGE_BLOBS: Final = 7
"""Of a change: keys, then lengths and bytes of ids, vectors and payloads."""


class Message(NamedTuple):
    """A question or an answer.

    Attributes
    ----------
    head
        JSON-able.
    """

    head: dict[str, Any]
    blobs: Sequence[bytes | memoryview] = ()


def packed(message: Message) -> bytes:
    """Return a message as bytes."""
    text = orjson.dumps(message.head, option=orjson.OPT_NON_STR_KEYS)
    lengths = [_LENGTH.pack(len(blob)) for blob in message.blobs]
    return b"".join([_HEAD.pack(VERSION, len(lengths), len(text)), *lengths, text, *message.blobs])


def unpacked(data: bytes) -> Message:
    """Inverse of `packed`; the blobs share the memory of the bytes.

    Raises
    ------
    Malformed
        It is no message, or one of another version.
    """
    try:
        version, count, size = _HEAD.unpack_from(data)
        if version != VERSION:
            raise Malformed(f"expected version {VERSION}, got {version}")
        at = _HEAD.size
        lengths = [_LENGTH.unpack_from(data, at + 8 * number)[0] for number in range(count)]
        at += 8 * count
        if at + size + sum(lengths) != len(data):
            raise Malformed(f"expected {at + size + sum(lengths)} bytes, got {len(data)}")
        head = orjson.loads(memoryview(data)[at : at + size])
    except (struct.error, orjson.JSONDecodeError) as error:
        raise Malformed(str(error)) from None
    if not isinstance(head, dict):
        raise Malformed("its head is no object")
    at += size
    blobs = []
    for length in lengths:
        blobs.append(memoryview(data)[at : at + length])
        at += length
    return Message(head, blobs)


# Texts


def packed_texts(texts: Sequence[bytes | None]) -> list[bytes]:
    """Return texts as two blobs: their lengths, -1 for none, and all of their bytes."""
    present = [each for each in texts if each is not None]
    if not present:
        return [np.full(len(texts), -1, np.int32).tobytes(), b""]
    lengths = np.fromiter((-1 if each is None else len(each) for each in texts), np.int32)
    return [lengths.tobytes(), b"".join(present)]


def packed_names(names: Sequence[str]) -> list[bytes]:
    """Return strings as `packed_texts` does."""
    text = "".join(names)
    if not text.isascii():
        return packed_texts([each.encode() for each in names])
    return [np.fromiter(map(len, names), np.int32, len(names)).tobytes(), text.encode()]


def unpacked_names(lengths: bytes | memoryview, data: bytes | memoryview) -> list[str]:
    """Inverse of `packed_names`.

    Raises
    ------
    UnicodeDecodeError
    """
    text = bytes(data).decode()
    if not text.isascii():
        return [(each or b"").decode() for each in unpacked_texts(lengths, data)]
    ends = np.frombuffer(lengths, np.int32).cumsum().tolist()
    return [text[first:last] for first, last in pairwise([0, *ends])]


class PackedNames(NamedTuple):
    """Strings kept as one text; a few of them are read.

    Attributes
    ----------
    text
        All of them, one after the other.
    ends : (n,) int64
        Where each ends.
    """

    text: str
    ends: ix.Int64s

    @classmethod
    def of(cls, lengths: bytes | memoryview, data: bytes | memoryview) -> PackedNames:
        """Read what `packed_names` wrote.

        Raises
        ------
        UnicodeDecodeError
        """
        text = bytes(data).decode()
        if text.isascii():
            sizes = np.frombuffer(lengths, np.int32)
        else:
            sizes = np.array([*map(len, unpacked_names(lengths, data))], np.int32)
        return cls(text, sizes.cumsum(dtype=np.int64))

    @classmethod
    def joined(cls, parts: Sequence[PackedNames]) -> PackedNames:
        """Return the strings of all parts."""
        starts = np.cumsum([0, *(len(part.text) for part in parts[:-1])])
        ends = [part.ends + start for part, start in zip(parts, starts, strict=True)]
        return cls("".join(part.text for part in parts), np.concatenate(ends))

    def at(self, places: ix.Int64s) -> list[str]:
        """Return the strings at some places."""
        text = self.text
        starts = np.where(places > 0, self.ends[places - 1], 0)
        pairs = zip(starts.tolist(), self.ends[places].tolist(), strict=True)
        return [text[start:end] for start, end in pairs]


def unpacked_texts(lengths: bytes | memoryview, data: bytes | memoryview) -> list[bytes | None]:
    """Inverse of `packed_texts`."""
    sizes = np.frombuffer(lengths, np.int32)
    if not len(data) and (sizes < 0).all():
        return [None] * len(sizes)
    ends = np.cumsum(np.maximum(sizes, 0))
    view = bytes(data)
    pairs = zip(sizes.tolist(), ends.tolist(), strict=True)
    return [None if size < 0 else view[end - size : end] for size, end in pairs]


# Vectors


def packed_vectors(raw: ix.RawBatch) -> tuple[dict[str, Any], list[bytes]]:
    """Return what the head says of vectors, and their arrays as blobs."""
    if raw.form == "dense":
        rows = np.ascontiguousarray(raw.dense, np.float32)
        return {"form": "dense", "shape": list(rows.shape)}, [rows.tobytes()]
    columns = (raw.indptr, np.int64), (raw.indices, np.int32), (raw.values, np.float32)
    blobs = [np.ascontiguousarray(column, kind).tobytes() for column, kind in columns]
    return {"form": "sparse"}, blobs


def unpacked_vectors(head: dict[str, Any], blobs: Sequence[bytes | memoryview]) -> ix.RawBatch:
    """Inverse of `packed_vectors`; takes the first blobs that are theirs."""
    if head["form"] == "dense":
        rows, columns = head["shape"]
        return ix.RawBatch("dense", dense=_array(blobs[0], np.float32).reshape(rows, columns))
    return ix.RawBatch(
        "sparse",
        indptr=_array(blobs[0], np.int64),
        indices=_array(blobs[1], np.int32),
        values=_array(blobs[2], np.float32),
    )


def filter_text(where: ix.Filter) -> str:
    """Return what a head says of a filter."""
    return json_text(where.to_dict()).decode()


def packed_sparse(vector: ix.SparseVector) -> dict[str, list[Any]]:
    """Return what a head says of one vector that may have names which the space has not."""
    return {
        "indices": np.asarray(vector.indices).tolist(),
        "values": np.asarray(vector.values).tolist(),
    }


def unpacked_sparse(said: dict[str, list[Any]]) -> ix.SparseVector:
    """Inverse of `packed_sparse`."""
    return ix.SparseVector(
        np.array(said["indices"], np.int64), np.array(said["values"], np.float64)
    )


def blobs_of(head: dict[str, Any]) -> int:
    """Return how many blobs vectors take."""
    return 1 if head["form"] == "dense" else 3


def _array(blob: bytes | memoryview, kind: type) -> ix.AnyArray:
    # Kernels are compiled for arrays that may be written to.
    return np.frombuffer(bytearray(blob), kind)


# Changes


def packed_change(change: ChangeSet) -> Message:
    """Return a change as a part of messages: its rows are `CHANGE_BLOBS` blobs."""
    before, after, deleted, rows = change
    return Message(
        {"before": _position(before), "after": _position(after), "deleted": deleted},
        [
            np.fromiter((row.key for row in rows), np.int64, len(rows)).tobytes(),
            *packed_names([row.id for row in rows]),
            *packed_texts([row.vector for row in rows]),
            *packed_texts([row.payload for row in rows]),
        ],
    )


def unpacked_changes(
    said: Sequence[dict[str, Any]], blobs: Sequence[bytes | memoryview]
) -> list[ChangeSet]:
    """Return the changes of a message, which has them in the order of commits.

    Raises
    ------
    Malformed
    """
    try:
        return [
            _unpacked_change(each, blobs[CHANGE_BLOBS * at : CHANGE_BLOBS * (at + 1)])
            for at, each in enumerate(said)
        ]
    except (KeyError, ValueError, TypeError) as error:
        raise Malformed(f"a change: {error!r}") from None


def _unpacked_change(said: dict[str, Any], blobs: Sequence[bytes | memoryview]) -> ChangeSet:
    keys, id_lengths, ids, lengths, vectors, payload_lengths, payloads = blobs
    columns = (
        np.frombuffer(keys, np.int64).tolist(),
        unpacked_names(id_lengths, ids),
        unpacked_texts(lengths, vectors),
        unpacked_texts(payload_lengths, payloads),
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


def packed_error(error: Exception, **more: Any) -> bytes:  # noqa: ANN401
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
    return packed(Message(said))


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
