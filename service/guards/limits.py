"""Limits: what one request may ask for and send."""

from __future__ import annotations

from dataclasses import dataclass

from gcws_search import index as ix
from gcws_search.service.http.errors import AnswerTooLarge
from gcws_search.service.schemas.base import NamedBody, PackedBody, SparseBody
from gcws_search.service.settings import Settings

_NUMBER_BYTES = 12
"""About what a number of a vector takes as JSON."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may ask for."""

    max_limit: int
    max_payload_bytes: int
    max_queries: int
    max_dim: int
    max_nonzeros: int
    max_id_length: int
    max_filter_depth: int
    max_filter_conditions: int

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Return the limits that the settings give."""
        return cls(
            settings.max_limit,
            settings.max_payload_bytes,
            settings.max_queries_per_request,
            settings.max_dim,
            settings.max_nonzeros,
            settings.max_id_length,
            settings.max_filter_depth,
            settings.max_filter_conditions,
        )


def require_short_vector(
    vector: list[float] | SparseBody | NamedBody | PackedBody, limits: Limits, *loc: str | int
) -> None:
    """Raise InvalidVector when a vector has more numbers than permitted."""
    numbers = vector if isinstance(vector, list) else vector.weights
    require_count(len(numbers), limits, *loc)


def require_count(count: int, limits: Limits, *loc: str | int) -> None:
    """Raise InvalidVector when ``count`` numbers are more than a vector may have."""
    if count > limits.max_nonzeros:
        raise ix.InvalidVector(
            expected=f"at most {limits.max_nonzeros} values", got=f"{count} values", loc=loc
        )


def require_short_id(text: str, limits: Limits, *loc: str | int) -> None:
    """Raise InvalidId when an id is longer than permitted."""
    if len(text) > limits.max_id_length:
        raise ix.InvalidId(
            expected=f"1 to {limits.max_id_length} characters",
            got=f"{len(text)} characters",
            loc=loc,
        )


def require_short_answer(
    payload_bytes: int, vectors: int, dim: int | None, limit_bytes: int
) -> None:
    """Raise AnswerTooLarge when payloads and vectors would make an answer longer than permitted."""
    if payload_bytes + vectors * min(dim or 64, 4096) * _NUMBER_BYTES > limit_bytes:
        raise AnswerTooLarge(limit_bytes)
