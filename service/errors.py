"""Errors of a request that the service raises before it calls the index; no status codes here."""

from collections.abc import Sequence
from typing import Literal

from gcws_search.index import Loc


class ServiceError(Exception):
    """The root of all errors that this package raises on purpose."""


Refusal = Literal[
    "malformed_request",
    "key_missing",
    "key_refused",
    "origin_refused",
    "host_refused",
    "route_not_found",
    "method_not_allowed",
    "uri_too_long",
    "unsupported_media_type",
    "headers_too_large",
    "loading",
    "overloaded",
    "memory_full",
    "disk_full",
    "shard_full",
    "too_many_collections",
]


class Refused(ServiceError):
    """A refused request; ``code`` names the reason, which no caller handles separately."""

    def __init__(self, code: Refusal, detail: str) -> None:
        self.code = code
        super().__init__(detail)


def require_place(others: int, most: int) -> None:
    """Raise Refused if one more collection exceeds the limit."""
    if others >= most:
        detail = f"expected at most {most} collections, got one more; drop one first"
        raise Refused("too_many_collections", detail)


def unsupported(got: str, expected: Sequence[str], hint: str = "") -> Refused:
    """Return the error for an unsupported content type or encoding; ``hint``: the next step."""
    detail = f"expected {' or '.join(expected)}, got {got}"
    return Refused("unsupported_media_type", f"{detail}; {hint}" if hint else detail)


class MalformedBody(ServiceError):
    """The body cannot be read."""


class InvalidRequest(ServiceError):
    """A field is missing, unknown, or of the wrong type.

    ``code`` is that of the field; ``errors`` are places, outermost part first, and causes.
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
    """The key of a load is known from a load with other parameters."""


class QueueFull(ServiceError):
    """Too many calls wait: send the request again."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are under way or waiting; try again")


class AnswerTooLarge(ServiceError):
    """The answer would be too long."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes  # included in messages of a cluster
        super().__init__(
            f"expected an answer of at most {limit_bytes} bytes, got more; ask for fewer hits or "
            "items, or without payloads and vectors"
        )


class RequestTimeout(ServiceError):
    """The body arrives too slowly."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"expected the body within {seconds:g} s, got a part of it")


class OwnerUnavailable(ServiceError):
    """The process with the collections has ended, or has not started yet."""

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
    """Some shards have no replica that answers in time."""

    def __init__(self, missing: Sequence[int], total: int) -> None:
        self.missing = missing
        names = ", ".join(map(str, missing))
        super().__init__(f"no replica of shard {names} (of {total}) answers")


class Stopping(ServiceError):
    """The service is stopping, and the request would take too long."""

    def __init__(self) -> None:
        super().__init__(
            "the service stops before the request has ended; what it was to store may be stored"
        )
