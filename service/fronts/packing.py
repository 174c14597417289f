"""Queries, requests and answers as bytes of messages; arrays as they are, all else as JSON."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import urlencode

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.api.bodies import QueryBody
from gcws_search.service.guards.limits import Limits
from gcws_search.service.models import PackedBody, SparseBody

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

_QUERY: Final = struct.Struct("<HHB")
"""Bytes of the collection's name, bytes of the options, form of the vector."""
_DENSE: Final = 0
_SPARSE: Final = 1
_MAX_LIMIT: Final = 1000
"""Hits of a query in a message; longer answers are forwarded as a stream."""
_REQUEST: Final = struct.Struct("<I")
_ANSWER: Final = struct.Struct("<HI")
_MAX_INDEX: Final = 2**31 - 1


class PackedQuery(NamedTuple):
    """A query as bytes.

    Attributes
    ----------
    key
        Queries of one key ask for the same of one collection.
    vector
        float32 numbers of a dense vector; int32 indices and float32 values of a sparse one.
    """

    key: bytes
    vector: bytes


def packed(name: str, body: QueryBody, limits: Limits) -> PackedQuery | None:
    """Return a query as bytes; None where it must be asked as the request that it came in.

    That is one by an id or by names, with a long answer, or with numbers that are refused.
    """
    raw = body.vector
    if body.id is not None or body.with_vector or body.limit > _MAX_LIMIT:
        return None
    with np.errstate(over="ignore"):
        if isinstance(raw, np.ndarray):
            form, values, data = _DENSE, raw.astype(np.float32), b""
        elif isinstance(raw, PackedBody):
            form, values, data = _DENSE, raw.weights, b""
        elif isinstance(raw, SparseBody) and _is_usual(raw):
            form, values = _SPARSE, np.array(raw.weights, np.float32)
            data = np.array(raw.indices, np.int32).tobytes()
        else:
            return None
    if len(values) > limits.max_nonzeros or not np.isfinite(values).all():
        return None
    options, place = _options(body), name.encode()
    if len(place) > ix.MAX_NAME_LENGTH * 4 or len(options) >= 1 << 16:
        return None
    key = _QUERY.pack(len(place), len(options), form) + place + options
    return PackedQuery(key, data + values.tobytes())


def _is_usual(raw: SparseBody) -> bool:
    """Whether indices fit in 32 bits, and there is a value for each."""
    indices = np.asarray(raw.indices)
    inside = not len(indices) or 0 <= indices.min() <= indices.max() <= _MAX_INDEX
    return inside and len(raw.indices) == len(raw.weights)


def matrix_of(queries: Sequence[QueryBody], limits: Limits) -> tuple[bytes, bytes] | None:
    """Return queries as a matrix; None where they do not all ask for the same by dense vectors.

    Returns
    -------
    parameters, npy
        What stands in the URL, and the body.
    """
    first, rows = queries[0], []
    if first.filter is not None or first.id is not None:
        return None
    with np.errstate(over="ignore"):
        for query in queries:
            raw, changed = query.vector, query.model_copy(update={"vector": first.vector})
            if not isinstance(raw, np.ndarray | PackedBody) or changed != first:
                return None
            rows.append(raw.astype(np.float32) if isinstance(raw, np.ndarray) else raw.weights)
    if len({len(row) for row in rows}) > 1 or len(rows[0]) > limits.max_nonzeros:
        return None
    matrix = np.stack(rows)
    if not np.isfinite(matrix).all():
        return None
    file = io.BytesIO()
    np.save(file, matrix)
    given = {name: first.__dict__[name] for name in _USUAL if first.__dict__[name] is not None}
    texts = {name: orjson.dumps(value).decode() for name, value in given.items()}
    words = {name: value for name, value in given.items() if isinstance(value, str)}
    return urlencode(texts | words).encode(), file.getvalue()


def _options(body: QueryBody) -> bytes:
    """Return all of a query but its vector as JSON."""
    if body.filter is not None:
        return body.model_dump_json(exclude={"vector", "id"}).encode()
    fields = body.__dict__
    return _usual_options(*(fields[name] for name in _USUAL))


_USUAL: Final = tuple(
    name for name in QueryBody.model_fields if name not in {"vector", "id", "filter"}
)


@lru_cache(maxsize=256)
def _usual_options(*values: object) -> bytes:
    return orjson.dumps(dict(zip(_USUAL, values, strict=True)))


def unpacked_key(key: bytes) -> tuple[str, bytes]:
    """Return the name of the collection and the options of queries."""
    name, _, _ = _QUERY.unpack_from(key)
    start = _QUERY.size
    return key[start : start + name].decode(), key[start + name :]


@lru_cache(maxsize=256)
def options_of(text: bytes) -> QueryBody:
    """Return options as the body of a query without a vector."""
    return QueryBody.model_validate_json(text)


def split_query(frame: bytes) -> tuple[tuple[bytes, int], bytes]:
    """Return what queries that can be searched together share, and the vector of a query."""
    name, options, form = _QUERY.unpack_from(frame)
    end = _QUERY.size + name + options
    key, vector = frame[:end], frame[end:]
    return (key, len(vector) if form == _DENSE else -1), vector


def raw_batch(key: bytes, vectors: Sequence[bytes], space: ix.VectorSpace) -> ix.RawBatch:
    """Return the vectors of queries that are searched together.

    Raises
    ------
    InvalidVector
    """
    if key[_QUERY.size - 1] == _DENSE:
        flat = np.frombuffer(bytearray().join(vectors), np.float32)
        return space.from_dense(flat.reshape(len(vectors), -1))
    rows = []
    for vector in vectors:
        half = len(vector) // 2
        indices = np.frombuffer(vector, np.int32, half // 4)
        values = np.frombuffer(vector, np.float32, half // 4, half)
        rows.append(ix.SparseVector(indices.tolist(), values.tolist()))
    return space.from_items(rows)


def packed_request(scope: Any, headers: Headers) -> bytes:  # noqa: ANN401  # of ASGI
    """Return the head of a request as bytes; its body follows."""
    texts = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    raw = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    head = orjson.dumps([scope["method"], scope["path"], *raw, texts])
    return _REQUEST.pack(len(head)) + head


def unpacked_request(frame: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the scope of a request, and its body."""
    [size] = _REQUEST.unpack_from(frame)
    start = _REQUEST.size + size
    method, path, raw_path, query, headers = orjson.loads(frame[_REQUEST.size : start])
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": raw_path.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers],
        "client": None,
        "server": None,
        "state": {},
    }
    return scope, frame[start:]


def packed_answer(status: int, headers: Headers) -> bytes:
    """Return the head of an answer as bytes; its body follows."""
    head = orjson.dumps(
        [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]
    )
    return _ANSWER.pack(status, len(head)) + head


def unpacked_answer(frame: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, headers and body of an answer."""
    status, size = _ANSWER.unpack_from(frame)
    start = _ANSWER.size + size
    headers = orjson.loads(frame[_ANSWER.size : start])
    pairs = [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]
    return status, pairs, frame[start:]
