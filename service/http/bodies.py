"""Reading bodies: counted, of a known content type, and checked by a compiled validator."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, Final, TypeVar

import numpy as np
from fastapi import Request
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import to_json
from starlette.requests import ClientDisconnect

from gcws_search.index import InvalidFilter, InvalidParameter
from gcws_search.service.execution.context import guards_of, header
from gcws_search.service.guards.limits import Limits, require_count
from gcws_search.service.http import long_json
from gcws_search.service.http.errors import (
    BodyTooLarge,
    MalformedBody,
    RequestTimeout,
    UnsupportedMediaType,
)
from gcws_search.service.http.long_json import PIECE_BYTES, Member, Size
from gcws_search.service.http.media_types import UNSAID
from gcws_search.service.http.models import Body
from gcws_search.service.http.problems import invalid_request, models_in
from gcws_search.service.http.timeouts import HAS_WHOLE_BODY

Model = TypeVar("Model", bound=Body)
_LONG_BYTES: Final = 1 << 18
_MAX_OPTION_VALUES: Final = 1 << 16
"""Values of a field that holds no vector, payload or filter."""
_VECTORS: Final = ("vector", "a", "b")


def media_type(request: Request) -> str:
    """Return the body's content type without its parameters, in lower case; "" when not said."""
    return (header(request, b"content-type") or "").partition(";")[0].strip().lower()


def require_media_type(request: Request, *permitted: str) -> str:
    """Return the body's content type; one that is not said is taken to be the first permitted.

    Raises
    ------
    UnsupportedMediaType
    """
    got = media_type(request) or permitted[0]
    if got not in permitted:
        raise UnsupportedMediaType(repr(got), permitted)
    return got


def stated_media_type(request: Request, *permitted: str, hint: str = "") -> str | None:
    """Return the body's content type; None where it says nothing of the body.

    Parameters
    ----------
    request : Request
    permitted : str
    hint : str
        What to do with a body of another type.

    Raises
    ------
    UnsupportedMediaType
    """
    got = media_type(request)
    if got in UNSAID:
        return None
    if got not in permitted:
        raise UnsupportedMediaType(repr(got), permitted, hint)
    return got


def require_plain(request: Request) -> None:
    """Raise UnsupportedMediaType when the body is compressed."""
    encoding = (header(request, b"content-encoding") or "").strip().lower()
    if encoding not in ("", "identity"):
        raise UnsupportedMediaType(repr(encoding), ["a body without Content-Encoding"])


def refuse_announced(request: Request, limit_bytes: int, instead: str = "") -> None:
    """Raise BodyTooLarge when the announced length is above the limit."""
    announced = header(request, b"content-length") or ""
    if announced.isdigit() and int(announced) > limit_bytes:
        raise BodyTooLarge(limit_bytes, hint=instead)


async def read(request: Request, limit_bytes: int, instead: str = "") -> bytes:
    """Return the whole body, counting what really arrives; ``instead`` is said of one too large.

    Raises
    ------
    BodyTooLarge
        At once when the announced length is above the limit, else when that many have arrived.
    RequestTimeout, Overloaded
    ClientDisconnect
    """
    refuse_announced(request, limit_bytes, instead)
    if HAS_WHOLE_BODY in request.scope:  # no clock, which takes 6 µs
        return await _read_all(request, limit_bytes, instead)
    seconds = guards_of(request).settings.body_seconds
    try:
        async with asyncio.timeout(seconds):
            return await _read_all(request, limit_bytes, instead)
    except TimeoutError:
        raise RequestTimeout(seconds) from None


async def _read_all(request: Request, limit_bytes: int, instead: str) -> bytes:
    """Return the whole body, without a clock; errors as of `read`."""
    admission = guards_of(request).admission
    chunks: list[bytes] = []
    received, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        more = message.get("more_body", False)
        received += len(chunk)
        if received > limit_bytes:
            raise BodyTooLarge(limit_bytes, hint=instead)
        admission.hold(request.scope, len(chunk))
        chunks.append(chunk)
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


async def pieces(request: Request) -> AsyncIterator[bytes]:
    """Yield a body of any length as it comes.

    Raises
    ------
    RequestTimeout
        The next piece does not come.
    """
    seconds = guards_of(request).settings.body_seconds
    stream = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(seconds):
                piece = await anext(stream, None)
        except TimeoutError:
            raise RequestTimeout(seconds) from None
        if piece is None:
            return
        yield piece


def parse(model: type[Model], body: bytes, limits: Limits) -> Model:
    """Return a body as its model: JSON is parsed and checked by compiled code.

    Raises
    ------
    MalformedBody
        Not JSON, or cut short.
    InvalidRequest
        A field is unknown, missing or not what it should be.
    InvalidParameter
        A list has more entries than permitted.
    """
    body = body or model.without_body
    if not body:
        raise MalformedBody("expected a JSON object, got an empty body")
    if is_long(body):
        return parse_in_pieces(model, body, limits)
    found = _validate(model, body)
    for name, limit in limits.of_lists(model).items():
        require_entries(len(getattr(found, name) or ()), limit, name)
    return found


def require_entries(count: int, limit: int, name: str) -> None:
    """Raise InvalidParameter where a list of this name has more entries than permitted."""
    if count > limit:
        raise InvalidParameter(expected=f"at most {limit}", got=str(count), loc=(name,))


def is_long(body: bytes) -> bool:
    """Whether parsing would keep other requests waiting: then it belongs into a thread."""
    return len(body) > _LONG_BYTES


def parse_in_pieces(
    model: type[Model], body: bytes, limits: Limits, *, piece_bytes: int = PIECE_BYTES
) -> Model:
    """Return a long body as its model, counted first, then checked a piece at a time.

    A compiled parser or validator keeps Python's lock until it is done: a body of a million short
    queries would stop the whole service for seconds, and take gigabytes.

    Raises
    ------
    MalformedBody, InvalidRequest, InvalidParameter
        See `parse`.
    """
    try:
        first = body.lstrip(long_json.BLANK)[:1]
        if first not in (b"[", b"{"):
            return _validate(model, body)
        if first == b"[":
            return _validate(model, [None] * long_json.count_entries(body))
        members = {
            member.name: member for member in long_json.members(body, piece_bytes=piece_bytes)
        }
    except ValueError as error:
        raise MalformedBody(f"Invalid JSON: {error}") from None
    limited = limits.of_lists(model)
    for name in limited.keys() & members.keys():
        require_entries(members[name].count(body), limited[name], name)
    lists = [
        name for name, member in members.items() if member.is_list and _takes_lists(model, name)
    ]
    others = []
    for name, member in members.items():
        value = b"null"  # of a field that is unknown, however long
        if name in lists:
            value = b"[]"
        elif name in model.model_fields:
            _require_size(member.size, limits, name)
            value = _known([model.model_fields[name].annotation], body[member.start : member.stop])
        others.append(b"%s:%s" % (to_json(name), value))
    found = _validate(model, b"{%s}" % b",".join(others))
    for name in lists:
        setattr(found, name, _read_list(model, body, members[name], limits))
    return found


def _validate(model: type[Model], document: bytes | list[None]) -> Model:
    try:
        if isinstance(document, bytes):
            return model.model_validate_json(document)
        return model.model_validate(document)
    except ValidationError as error:
        raise invalid_request(error, model) from None


def _known(annotations: Sequence[Any], text: bytes) -> bytes:
    """Return a value with null in the place of what is in no field of the models that it may be."""
    models = [model for each in annotations for model in models_in(each)]
    is_closed = all(model.model_config.get("extra") == "forbid" for model in models)
    if len(text) < PIECE_BYTES or text[:1] != b"{" or not models or not is_closed:
        return text
    try:
        members = long_json.members(text)
    except ValueError:  # the parser says why
        return text
    parts = []
    for member in members:
        fields = [each for model in models if (each := model.model_fields.get(member.name))]
        inner = text[member.start : member.stop] if fields else b"null"
        known = _known([each.annotation for each in fields], inner)
        parts.append(b"%s:%s" % (to_json(member.name), known))
    return b"{%s}" % b",".join(parts)


def _read_list(model: type[Body], body: bytes, member: Member, limits: Limits) -> Any:  # noqa: ANN401
    """Return a list of a long body, or an array of numbers."""
    adapter, name = _adapter(model, member.name), member.name
    parts = []
    try:
        for first, size, text in member.pieces(body):
            _require_size(size, limits, name, first)
            try:
                parts.append(adapter.validate_json(text))
            except ValidationError as error:
                raise invalid_request(error, model, place=(name, first)) from None
            if isinstance(parts[0], np.ndarray):
                require_count(member.count(body), limits, name)
    except ValueError as error:
        raise MalformedBody(f"Invalid JSON: {error}") from None
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else [*chain(*parts)]


def _require_size(size: Size, limits: Limits, name: str, *rest: int) -> None:
    """Raise InvalidInput where a value has more in it than any may have, as far as is known.

    Raises
    ------
    InvalidParameter, InvalidFilter
    """
    kind = InvalidFilter if name == "filter" else InvalidParameter
    limit = limits.largest_filter if name == "filter" else _MAX_OPTION_VALUES
    if rest or name in _VECTORS or name == "payload":
        limit = limits.largest_value
    if size.values > limit:
        raise kind(expected=f"at most {limit} values", got=str(size.values), loc=(name, *rest))
    limit = limits.max_payload_bytes // 2 + _LONG_BYTES
    if size.containers > limit:
        expected, got = f"at most {limit} lists and objects", str(size.containers)
        raise kind(expected=expected, got=got, loc=(name, *rest))


@lru_cache
def _adapter(model: type[Body], name: str) -> TypeAdapter[Any]:
    field = model.model_fields[name]
    config = ConfigDict(strict=True, allow_inf_nan=False, hide_input_in_errors=True)
    kind: Any = Annotated[field.annotation, field]
    return TypeAdapter(kind, config=config)


@lru_cache
def _takes_lists(model: type[Body], name: str) -> bool:
    """Whether a field of a model may be a list."""
    if name not in model.model_fields:
        return False
    try:
        _adapter(model, name).validate_json(b"[]")
    except ValidationError:
        return False
    return True
