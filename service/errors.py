"""What can go wrong in a request before the index is asked; no status codes here.

::

    ServiceError                   detail
    ├── MalformedBody              not JSON, truncated, not what its content type says
    ├── InvalidRequest             loc: well-formed, but not what the schema permits
    ├── KeyMissing
    ├── KeyRefused
    ├── ExposedWithoutKey          host
    ├── RouteNotFound
    ├── MethodNotAllowed           allowed
    ├── BodyTooLarge               limit_bytes
    ├── UnsupportedMediaType       got, expected
    ├── QueueFull                  retry_after_seconds
    └── NotReady                   phase
"""

from collections.abc import Sequence

from index import Loc


class ServiceError(Exception):
    """The root of every error this package raises on purpose."""

    def __init__(self, detail: str) -> None:
        self.detail = detail
        super().__init__(detail)


class MalformedBody(ServiceError):
    """The body cannot be read at all."""


class InvalidRequest(ServiceError):
    """A field is missing, unknown, or of the wrong type.

    Attributes
    ----------
    code : str
        The problem code of the offending field, such as ``invalid_vector``.
    errors : sequence of (loc, msg)
        Where, outermost first, and what was expected and came.
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


class ExposedWithoutKey(ServiceError):
    """The settings would open the service to others, and no key guards it."""

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"expected a key (GCWS_API_KEY or GCWS_API_KEY_FILE) before listening on {host!r}, "
            "which others than this machine may reach; got none (GCWS_ALLOW_NO_KEY=true permits it)"
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

    def __init__(self, limit_bytes: int, what: str = "a body") -> None:
        self.limit_bytes = limit_bytes
        super().__init__(f"expected {what} of at most {limit_bytes} bytes, got more")


class UnsupportedMediaType(ServiceError):
    """The content type or content encoding is none this route reads."""

    def __init__(self, got: str, expected: Sequence[str]) -> None:
        super().__init__(f"expected {' or '.join(expected)}, got {got!r}")


class QueueFull(ServiceError):
    """So much work waits already that this request had better come again."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"{limit} {what} are under way or waiting; try again")


class NotReady(ServiceError):
    """The service is still starting."""

    def __init__(self, phase: str) -> None:
        self.phase = phase
        super().__init__(f"the service is starting (phase {phase!r}); try again")
