"""Queries and requests of fronts as messages to their owner, and its answers."""

from __future__ import annotations

import io
from collections.abc import Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.api.bodies import QueryBody
from gcws_search.service.messages import decode_parts, encode_parts
from gcws_search.service.models import PackedBody, SparseBody
from gcws_search.service.settings import Settings

Headers: TypeAlias = Iterable[tuple[bytes, bytes]]
Parts: TypeAlias = Sequence[bytes | memoryview]

MAX_BODY_BYTES: Final = 1 << 18
"""Of a request's body in a message; longer ones are forwarded as a stream."""
_MAX_LIMIT: Final = 1000  # hits of a query in a message; longer answers are forwarded as a stream
_MAX_INDEX: Final = 2**31 - 1
_MAX_OPTIONS: Final = 1 << 16


def encode_query(name: str, body: QueryBody, limits: Settings) -> Parts | None:
    """Return a query as a message; None where it must be asked as the request that it came in.

    That is one by an id or by names, with a long answer, or with numbers that are refused. A dense
    vector is a blob of float32 numbers; a sparse one is two, int32 indices and float32 values.
    """
    raw = body.vector
    if body.id is not None or body.with_vector or body.limit > _MAX_LIMIT:
        return None
    indices: list[bytes] = []
    with np.errstate(over="ignore"):
        if isinstance(raw, np.ndarray):
            values = raw.astype(np.float32)
        elif isinstance(raw, PackedBody):
            values = raw.weights
        elif isinstance(raw, SparseBody) and _is_usual(raw):
            values = np.array(raw.weights, np.float32)
            indices = [np.array(raw.indices, np.int32).tobytes()]
        else:
            return None
    if len(values) > limits.max_nonzeros or not np.isfinite(values).all():
        return None
    options = _options(body)
    if len(name) > ix.MAX_NAME_LENGTH or len(options) > _MAX_OPTIONS:
        return None
    return encode_parts(name.encode() + b"\0" + options, [*indices, values.tobytes()])


def _is_usual(raw: SparseBody) -> bool:
    """Whether indices fit in 32 bits, and there is a value for each."""
    indices = np.asarray(raw.indices)
    inside = not len(indices) or 0 <= indices.min() <= indices.max() <= _MAX_INDEX
    return inside and len(raw.indices) == len(raw.weights)


def encode_matrix(queries: Sequence[QueryBody], limits: Settings) -> tuple[bytes, bytes] | None:
    """Return queries as parameters of a URL and a matrix as a body.

    None where they do not all ask for the same by dense vectors.
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


def decode_query(data: bytes) -> tuple[Hashable, bytes, list[memoryview]]:
    """Return what queries that can be searched together share; its key, and the vector."""
    key, vector = decode_parts(data)
    return (key, len(vector[0]) if len(vector) == 1 else -1), key, vector


def decode_key(key: bytes) -> tuple[str, QueryBody]:
    """Return the name of the collection, and a query's body without its vector."""
    name, _, options = key.partition(b"\0")
    return name.decode(), _body(options)


@lru_cache(maxsize=256)
def _body(options: bytes) -> QueryBody:
    return QueryBody.model_validate_json(options)


def decode_vectors(vectors: Sequence[Sequence[memoryview]], space: ix.VectorSpace) -> ix.RawBatch:
    """Return the vectors of queries that are searched together; else InvalidVector."""
    if len(vectors[0]) == 1:
        flat = np.frombuffer(bytearray().join(row for [row] in vectors), np.float32)
        return space.from_dense(flat.reshape(len(vectors), -1))
    return space.from_items(
        [
            ix.SparseVector(
                np.frombuffer(indices, np.int32).tolist(),
                np.frombuffer(values, np.float32).tolist(),
            )
            for indices, values in vectors
        ]
    )


def encode_request(scope: Any, headers: Headers, body: bytes) -> Parts:  # noqa: ANN401  # of ASGI
    """Return a request as a message."""
    raw = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
    head = orjson.dumps([scope["method"], scope["path"], *raw, _texts(headers)])
    return encode_parts(head, [body])


def decode_request(data: bytes) -> tuple[dict[str, Any], bytes]:
    """Return the scope of a request, and its body."""
    head, [body] = decode_parts(data)
    method, path, raw_path, query, headers = orjson.loads(head)
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
        "headers": _bytes(headers),
        "client": None,
        "server": None,
        "state": {},
    }
    return scope, bytes(body)


def encode_answer(status: int, headers: Headers, pieces: Parts) -> Parts:
    """Return an answer to a request as a message."""
    return encode_parts(orjson.dumps([status, _texts(headers)]), pieces)


def decode_answer(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return the status, headers and body of an answer."""
    head, pieces = decode_parts(data)
    status, headers = orjson.loads(head)
    return status, _bytes(headers), b"".join(pieces)


def _texts(headers: Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def _bytes(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("latin-1"), text.encode("latin-1")) for name, text in headers]
