"""Reading bodies: counted, of a known content type, and checked by a compiled validator."""

from typing import TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError

from service.errors import BodyTooLarge, UnsupportedMediaType
from service.problems import invalid_request

JSON = "application/json"
NPY = "application/x-npy"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"

Model = TypeVar("Model", bound=BaseModel)


def media_type(request: Request) -> str:
    """Return the body's content type without its parameters, in lower case; "" when not said."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def require_media_type(request: Request, *permitted: str) -> str:
    """Return the body's content type; one that is not said is taken to be the first permitted.

    Raises
    ------
    UnsupportedMediaType
    """
    got = media_type(request) or permitted[0]
    if got not in permitted:
        raise UnsupportedMediaType(got, permitted)
    return got


def require_plain(request: Request) -> None:
    """Raise UnsupportedMediaType when the body is compressed."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(encoding, ["a body without Content-Encoding"])


def refuse_announced(request: Request, limit_bytes: int) -> None:
    """Raise BodyTooLarge when the announced length is above the limit."""
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes)


async def read(request: Request, limit_bytes: int) -> bytes:
    """Return the whole body, counting what really arrives.

    Raises
    ------
    BodyTooLarge
        At once when the announced length is above the limit, else when that many have arrived.
    """
    refuse_announced(request, limit_bytes)
    chunks: list[bytes] = []
    received = 0
    async for chunk in request.stream():
        received += len(chunk)
        if received > limit_bytes:
            raise BodyTooLarge(limit_bytes)
        chunks.append(chunk)
    return b"".join(chunks)


def parse(model: type[Model], body: bytes) -> Model:
    """Return a body as its model: JSON is parsed and checked in one compiled pass.

    Raises
    ------
    MalformedBody
        Not JSON, or cut short.
    InvalidRequest
        A field is unknown, missing or not what it should be.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise invalid_request(error, model) from None
