"""Errors of a request before the index is asked; no status codes here."""

from collections.abc import Sequence

from gcws_search.index import Loc


class ServiceError(Exception):
    """The root of every error this package raises on purpose."""


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


class KeyMissing(ServiceError):
    """The service asks for a key and none was sent."""

    def __init__(self) -> None:
        super().__init__("expected a key in 'Authorization: Bearer …' or 'X-API-Key', got none")


class KeyRefused(ServiceError):
    """A key was sent and does not permit this request."""


class OriginRefused(ServiceError):
    """A page of another site asks, and no key is set that it would have to know."""

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"expected a request of no page, or of this service's own, got one of {origin[:80]!r}"
        )


class HostRefused(ServiceError):
    """A request was sent to a public name, and no key is set that its sender would have to know."""

    def __init__(self, host: str) -> None:
        super().__init__(
            "expected a request to localhost, an IP address or a name without dots, as no key is "
            f"set, got one to {host[:80]!r} (a key or GCWS_ALLOW_NO_KEY=true permits it)"
        )


class RouteNotFound(ServiceError):
    """No route has this path."""


class MethodNotAllowed(ServiceError):
    """The path exists, and not with this method."""

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        self.allowed = allowed
        super().__init__(f"expected {' or '.join(allowed)}, got {method}")


class BodyTooLarge(ServiceError):
    """More bytes arrived than a body may have."""

    def __init__(self, limit_bytes: int, what: str = "a body", hint: str = "") -> None:
        told = f"expected {what} of at most {limit_bytes} bytes, got more"
        super().__init__(f"{told}; {hint}" if hint else told)


class UnsupportedMediaType(ServiceError):
    """No route reads this content type or encoding; ``hint`` says what to do instead."""

    def __init__(self, got: str, expected: Sequence[str], hint: str = "") -> None:
        told = f"expected {' or '.join(expected)}, got {got}"
        super().__init__(f"{told}; {hint}" if hint else told)


class IdempotencyMismatch(ServiceError):
    """A load under a key that is known is not the load that was sent under it before."""


class QueueFull(ServiceError):
    """Too much work waits: the request should be sent again."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are under way or waiting; try again")


class Overloaded(ServiceError):
    """Too much is under way: the request should be sent again."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; try again")


class MemoryFull(ServiceError):
    """The process has its share of the memory; it reads and deletes, and stores nothing more."""

    def __init__(self, used: int, total: int, share: float) -> None:
        super().__init__(
            f"expected at most {share:g} of {total} bytes of memory in use, got {used}; "
            "this write stored nothing"
        )


class DiskShareReached(ServiceError):
    """The file system of the data is as full as it may be."""

    def __init__(self, free: int, total: int, share: float) -> None:
        super().__init__(
            f"expected at most {share:g} of the disk's {total} bytes in use, got {total - free}; "
            "this write stored nothing; free some there"
        )


class ShardFull(ServiceError):
    """All replicas of a shard have no memory or disk for more, such as this; searches go on."""

    def __init__(self, shard: int, address: str, reason: str) -> None:
        super().__init__(f"shard {shard}, replica {address}: {reason}")


class TooManyCollections(ServiceError):
    """There are as many collections as there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"expected at most {limit} collections, got one more; drop one first")


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


class NotReady(ServiceError):
    """The service is still starting, or stops."""

    def __init__(self, phase: str) -> None:
        super().__init__(f"the service is not ready (phase {phase!r}); try again")
