"""Errors of a request before the index is asked; no status codes here."""

from collections.abc import Sequence
from typing import Literal

from gcws_search.index import Loc


class ServiceError(Exception):
    """The root of every error this package raises on purpose."""


Refusal = Literal[
    "key_missing",
    "key_refused",
    "origin_refused",
    "host_refused",
    "route_not_found",
    "method_not_allowed",
    "unsupported_media_type",
    "loading",
    "overloaded",
    "memory_full",
    "disk_full",
    "shard_full",
    "too_many_collections",
]


class Refused(ServiceError):
    """A request that is refused for a reason that ``code`` names, and nobody catches by itself."""

    def __init__(self, code: Refusal, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def require_place(others: int, most: int) -> None:
    """Raise Refused where there are so many collections that one more is too many."""
    if others >= most:
        detail = f"expected at most {most} collections, got one more; drop one first"
        raise Refused("too_many_collections", detail)


def unsupported(got: str, expected: Sequence[str], hint: str = "") -> Refused:
    """Return why a content type or encoding is not read; ``hint`` says what to do instead."""
    detail = f"expected {' or '.join(expected)}, got {got}"
    return Refused("unsupported_media_type", f"{detail}; {hint}" if hint else detail)


class MalformedBody(ServiceError):
    """The body cannot be read at all."""


class InvalidRequest(ServiceError):
    """A field is missing, unknown, or of the wrong type.

    ``code`` is that of the offending field; ``errors`` say where, outermost first, and what.
    """

    def __init__(self, code: str, errors: Sequence[tuple[Loc, str]], detail: str) -> None:
        self.code = code
        self.errors = errors
        super().__init__(detail)


class BodyTooLarge(ServiceError):
    """More bytes arrived than a body may have."""

    def __init__(self, limit_bytes: int, what: str = "a body", hint: str = "") -> None:
        told = f"expected {what} of at most {limit_bytes} bytes, got more"
        super().__init__(f"{told}; {hint}" if hint else told)


class IdempotencyMismatch(ServiceError):
    """A load under a key that is known is not the load that was sent under it before."""


class QueueFull(ServiceError):
    """Too much work waits: the request should be sent again."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are under way or waiting; try again")


class AnswerTooLarge(ServiceError):
    """What is asked for would be more than is sent in one answer."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # messages of a cluster carry it
        super().__init__(
            f"expected an answer of at most {limit_bytes} bytes, got more; ask for fewer hits or "
            "items, or without payloads and vectors"
        )


class RequestTimeout(ServiceError):
    """The body comes too slowly."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"expected the body within {seconds:g} s, got a part of it")


class OwnerUnavailable(ServiceError):
    """The process that has the collections has ended, or has not begun yet."""

    def __init__(self) -> None:
        super().__init__(
            "the process that has the collections starts again; what the request was to store may "
            "be stored"
        )


class StoreUnavailable(ServiceError):
    """The database of a cluster does not answer, or cannot take a write; nothing was stored."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the database cannot be used now ({reason})")


class ShardUnavailable(ServiceError):
    """No replica of some shards answers, or in time."""

    def __init__(self, missing: Sequence[int], total: int) -> None:
        self.missing = missing
        names = ", ".join(map(str, missing))
        super().__init__(f"no replica of shard {names} (of {total}) answers")


class Stopping(ServiceError):
    """The service stops, and the request would take longer than the service may."""

    def __init__(self) -> None:
        super().__init__(
            "the service stops before the request has ended; what it was to store may be stored"
        )
