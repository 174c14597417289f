"""Messages between processes: a JSON head, and blobs with arrays as raw bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from gcws_search import index as ix

VERSION: Final = 1  # of the format; processes of another version refuse messages

# Version, number of blobs, bytes of the JSON head; then the blobs' lengths, 8 bytes each.
_HEAD: Final = struct.Struct("<HHI")


class Malformed(Exception):
    """Bytes that are no message, or an incomplete one."""


class Message(NamedTuple):
    """A question or an answer."""

    head: dict[str, Any]  # JSON-able
    blobs: Sequence[bytes | memoryview] = ()


def encode(message: Message) -> bytes:
    """Return a message as bytes."""
    return b"".join(
        encode_parts(orjson.dumps(message.head, option=orjson.OPT_NON_STR_KEYS), message.blobs)
    )


def encode_parts(head: bytes, blobs: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the pieces of a message whose head is JSON text."""
    lengths = struct.pack(f"<{len(blobs)}Q", *map(len, blobs))
    return [_HEAD.pack(VERSION, len(blobs), len(head)), lengths, head, *blobs]


def decode(data: bytes) -> Message:
    """Inverse of `encode`; else Malformed; blobs share the memory of the bytes."""
    text, blobs = decode_parts(data)
    try:
        head = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Malformed(str(error)) from None
    if not isinstance(head, dict):
        raise Malformed("its head is not an object")
    return Message(head, blobs)


def decode_parts(data: bytes) -> tuple[bytes, list[memoryview]]:
    """Return the text of a message's head, and the blobs, which share the memory of the bytes."""
    try:
        version, count, size = _HEAD.unpack_from(data)
        if version != VERSION:
            raise Malformed(f"expected version {VERSION}, got {version}")
        lengths = struct.unpack_from(f"<{count}Q", data, _HEAD.size)
    except struct.error as error:
        raise Malformed(str(error)) from None
    ends = [*accumulate((size, *lengths), initial=_HEAD.size + 8 * count)]
    if ends[-1] != len(data):
        raise Malformed(f"expected {ends[-1]} bytes, got {len(data)}")
    view = memoryview(data)
    text, *blobs = (view[first:last] for first, last in pairwise(ends))
    return bytes(text), blobs


# Texts


def encode_texts(texts: Sequence[bytes | None]) -> list[bytes]:
    """Return texts as two blobs: their lengths, -1 for none, and all of their bytes."""
    lengths = np.array([-1 if each is None else len(each) for each in texts], np.int32)
    return [lengths.tobytes(), b"".join(filter(None, texts))]


def encode_names(names: Sequence[str]) -> list[bytes]:
    """Return strings in the format of `encode_texts`."""
    text = "".join(names)
    if not text.isascii():
        return encode_texts([each.encode() for each in names])
    return [np.fromiter(map(len, names), np.int32, len(names)).tobytes(), text.encode()]


def decode_names(lengths: bytes | memoryview, data: bytes | memoryview) -> list[str]:
    """Inverse of `encode_names`; UnicodeDecodeError for invalid UTF-8."""
    text = bytes(data).decode()
    if not text.isascii():
        return [(each or b"").decode() for each in decode_texts(lengths, data)]
    ends = np.frombuffer(lengths, np.int32).cumsum().tolist()
    return [text[first:last] for first, last in pairwise([0, *ends])]


def decode_texts(lengths: bytes | memoryview, data: bytes | memoryview) -> list[bytes | None]:
    """Inverse of `encode_texts`."""
    sizes = np.frombuffer(lengths, np.int32)
    ends = np.cumsum(np.maximum(sizes, 0))
    view = bytes(data)
    pairs = zip(sizes.tolist(), ends.tolist(), strict=True)
    return [None if size < 0 else view[end - size : end] for size, end in pairs]


# Vectors


def encode_vectors(raw: ix.RawBatch) -> tuple[dict[str, Any], list[bytes]]:
    """Return the fields of the head that describe vectors, and their arrays as blobs."""
    if raw.form == "dense":
        rows = np.ascontiguousarray(raw.dense, np.float32)
        return {"form": "dense", "shape": list(rows.shape)}, [rows.tobytes()]
    columns = (raw.indptr, np.int64), (raw.indices, np.int32), (raw.values, np.float32)
    blobs = [np.ascontiguousarray(column, kind).tobytes() for column, kind in columns]
    return {"form": "sparse"}, blobs


def decode_vectors(head: dict[str, Any], blobs: Iterator[bytes | memoryview]) -> ix.RawBatch:
    """Inverse of `encode_vectors`; consumes its blobs."""
    if head["form"] == "dense":
        rows, columns = head["shape"]
        return ix.RawBatch("dense", dense=_array(next(blobs), np.float32).reshape(rows, columns))
    return ix.RawBatch(
        "sparse",
        indptr=_array(next(blobs), np.int64),
        indices=_array(next(blobs), np.int32),
        values=_array(next(blobs), np.float32),
    )


def encode_sparse(vector: ix.SparseVector) -> dict[str, list[Any]]:
    """Return a head's form of one vector, which may have names that are unknown in the space."""
    return {
        "indices": np.asarray(vector.indices).tolist(),
        "values": np.asarray(vector.values).tolist(),
    }


def decode_sparse(said: dict[str, list[Any]]) -> ix.SparseVector:
    """Inverse of `encode_sparse`."""
    return ix.SparseVector(
        np.array(said["indices"], np.int64), np.array(said["values"], np.float64)
    )


def _array(blob: bytes | memoryview, kind: type) -> ix.AnyArray:
    # Kernels are compiled for writable arrays.
    return np.frombuffer(bytearray(blob), kind)
