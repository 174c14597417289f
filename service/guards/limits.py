"""Limits: what one request may ask for and send."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gcws_search import index as ix
from gcws_search.index import AnyArray
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.models import Body, VectorBody
from gcws_search.service.settings import Settings

_NUMBER_BYTES = 12
"""About what a number of a vector takes as JSON."""
_HIT_BYTES = 38
"""What a hit takes besides its id and payload; the score has 17 digits."""
_MIN_HIT_BYTES = 23
"""An id of one character, and the score 0.0."""


def list_limit(model: type[Body], name: str, settings: Settings) -> int:
    """Return how many entries a list of a body may have, which is among its ``limited``."""
    limit = model.limited[name]
    return limit if isinstance(limit, int) else int(getattr(settings, limit))


def require_short_vector(vector: VectorBody, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidVector when a vector has more numbers than permitted."""
    count = len(vector if isinstance(vector, np.ndarray) else vector.weights)
    if count > limits.max_nonzeros:
        require_count(count, limits, *loc)


def require_count(count: int, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidVector when ``count`` numbers are more than a vector may have."""
    if count > limits.max_nonzeros:
        raise ix.InvalidVector(
            expected=f"at most {limits.max_nonzeros} values", got=f"{count} values", loc=loc
        )


def require_at_most(count: int, limit: int, name: str) -> None:
    """Raise InvalidParameter where a number, or the entries of a list, are more than permitted."""
    if count > limit:
        raise ix.InvalidParameter(expected=f"at most {limit}", got=str(count), loc=(name,))


def require_at_least(value: int, least: int, name: str) -> None:
    """Raise InvalidParameter where a number is too small."""
    if value < least:
        raise ix.InvalidParameter(expected=f"at least {least}", got=str(value), loc=(name,))


def require_few_queries(count: int, limits: Settings) -> None:
    """Raise InvalidParameter where a batch has more queries than permitted."""
    if count > limits.max_queries_per_request:
        raise ix.InvalidParameter(
            expected=f"at most {limits.max_queries_per_request} queries",
            got=str(count),
            loc=("queries",),
        )


def require_short_id(text: str, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidId when an id is longer than permitted."""
    if len(text) > limits.max_id_length:
        raise ix.InvalidId(
            expected=f"1 to {limits.max_id_length} characters",
            got=f"{len(text)} characters",
            loc=loc,
        )


def require_short_payload(text: bytes | None, limits: Settings, *loc: str | int) -> None:
    """Raise InvalidPayload when a payload is longer than permitted."""
    if text is not None and len(text) > limits.max_payload_bytes:
        raise ix.InvalidPayload(
            expected=f"at most {limits.max_payload_bytes} bytes of JSON",
            got=f"{len(text)} bytes",
            loc=loc,
        )


def id_in_url(text: str, name: str = "id") -> str:
    """Return an id that came in a URL, as this parameter."""
    if not 1 <= len(text) <= ix.MAX_ID_LENGTH:
        raise ix.InvalidId(
            expected=f"1 to {ix.MAX_ID_LENGTH} characters", got=f"{len(text)}", loc=(name,)
        )
    return text


class AnswerBytes:
    """About how long an answer gets, counted as its parts come; AnswerTooLarge ends it."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0

    def add_hits(self, ids: Sequence[str], payloads: Sequence[bytes | None] | None) -> None:
        """Count hits or items."""
        size = sum(map(len, ids)) + _HIT_BYTES * len(ids)
        if payloads is not None:
            size += sum(map(len, filter(None, payloads)))
        self._add(size)

    def add_vectors(self, vectors: Sequence[Any]) -> None:
        """Count vectors as the API shows them."""
        numbers = 0
        for vector in vectors:
            is_sparse = isinstance(vector, dict)
            numbers += 2 * len(vector["values"]) if is_sparse else len(vector or ())
        self._add(_NUMBER_BYTES * numbers)

    def add_integers(self, numbers: AnyArray) -> None:
        """Count integers, as if all had as many digits as the largest."""
        self._add(numbers.size * (len(str(numbers.max(initial=0))) + 1))

    def require(self, hits: int) -> None:
        """Refuse an answer that must get too long with this many more hits."""
        if self._bytes + _MIN_HIT_BYTES * hits > self._limit_bytes:
            raise AnswerTooLarge(self._limit_bytes)

    def _add(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._limit_bytes:
            raise AnswerTooLarge(self._limit_bytes)


def require_short_answer(
    payload_bytes: int, vectors: int, dim: int | None, limit_bytes: int
) -> None:
    """Raise AnswerTooLarge when payloads and vectors would make an answer longer than permitted."""
    if payload_bytes + vectors * min(dim or 64, 4096) * _NUMBER_BYTES > limit_bytes:
        raise AnswerTooLarge(limit_bytes)
