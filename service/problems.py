"""Errors as RFC 9457 problems: the only module that maps errors to statuses."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from itertools import islice
from typing import Any, Final, get_args

import orjson
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from gcws_search import index as ix
from gcws_search.service import errors as sv

CONTENT_TYPE: Final = "application/problem+json"
MAX_ERRORS_SHOWN: Final = 20
MAX_GOT_SHOWN: Final = 80

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a class of errors is answered: ``code`` is its stable name in the body."""

    status: int
    code: str
    retry_after_seconds: int | None = None


TABLE: Final[dict[type[Exception], Kind]] = {
    ix.GcwsError: Kind(500, "internal_error"),
    ix.InvalidInput: Kind(422, "invalid_input"),
    ix.InvalidVector: Kind(422, "invalid_vector"),
    ix.InvalidId: Kind(422, "invalid_id"),
    ix.InvalidPayload: Kind(422, "invalid_payload"),
    ix.InvalidFilter: Kind(422, "invalid_filter"),
    ix.InvalidParameter: Kind(422, "invalid_parameter"),
    ix.NotFound: Kind(404, "not_found"),
    ix.CollectionNotFound: Kind(404, "collection_not_found"),
    ix.ItemNotFound: Kind(404, "item_not_found"),
    ix.BackendNotFound: Kind(404, "backend_not_found"),
    ix.SnapshotNotFound: Kind(404, "snapshot_not_found"),
    ix.Conflict: Kind(409, "conflict"),
    ix.CollectionExists: Kind(409, "collection_exists"),
    ix.CollectionBusy: Kind(409, "collection_busy", 1),
    ix.BackendExists: Kind(409, "backend_exists"),
    ix.PrimaryBackend: Kind(409, "primary_backend"),
    ix.SnapshotExists: Kind(409, "snapshot_exists"),
    ix.ItemExists: Kind(409, "item_exists"),
    ix.VersionConflict: Kind(409, "version_conflict"),
    ix.CollectionLoading: Kind(503, "loading", 1),
    ix.StoreError: Kind(500, "store_error"),
    ix.DirectoryLocked: Kind(503, "directory_locked", 5),
    ix.DamagedFile: Kind(500, "damaged_file"),
    ix.DamagedSnapshot: Kind(422, "damaged_snapshot"),
    ix.IncompatibleFile: Kind(500, "incompatible_file"),
    ix.DiskFull: Kind(507, "disk_full", 60),
    ix.OutOfDescriptors: Kind(503, "out_of_descriptors", 1),
    ix.StorageFailed: Kind(503, "storage_failed", 60),
    sv.ServiceError: Kind(500, "internal_error"),
    sv.MalformedBody: Kind(400, "malformed_body"),
    sv.InvalidRequest: Kind(422, "invalid_parameter"),
    sv.BodyTooLarge: Kind(413, "body_too_large"),
    sv.IdempotencyMismatch: Kind(409, "idempotency_mismatch"),
    sv.QueueFull: Kind(429, "queue_full", 1),
    sv.AnswerTooLarge: Kind(422, "answer_too_large"),
    sv.RequestTimeout: Kind(408, "request_timeout"),
    sv.OwnerUnavailable: Kind(503, "owner_unavailable", 1),
    sv.StoreUnavailable: Kind(503, "store_unavailable", 1),
    sv.ShardUnavailable: Kind(503, "shard_unavailable", 1),
    sv.Stopping: Kind(503, "stopping", 1),
}
REFUSALS: Final = {
    kind.code: kind
    for kind in (
        Kind(400, "malformed_request"),
        Kind(401, "key_missing"),
        Kind(403, "key_refused"),
        Kind(403, "origin_refused"),
        Kind(403, "host_refused"),
        Kind(404, "route_not_found"),
        Kind(405, "method_not_allowed"),
        Kind(414, "uri_too_long"),
        Kind(415, "unsupported_media_type"),
        Kind(431, "headers_too_large"),
        Kind(503, "loading", 1),
        Kind(503, "overloaded", 1),
        Kind(507, "memory_full", 60),
        Kind(507, "disk_full", 60),
        Kind(507, "shard_full", 60),
        Kind(507, "too_many_collections", 60),
    )
}
"""What a `Refused` becomes, by its code."""

_TITLES: Final = {413: "Content Too Large", 414: "URI Too Long", 422: "Unprocessable Content"}
"""RFC 9110's words, where Python's depend on its version."""
_UNEXPECTED: Final = Kind(500, "internal_error")
_FIELD_CODES: Final = {
    "vector": "invalid_vector",
    "vectors": "invalid_vector",
    "indices": "invalid_vector",
    "values": "invalid_vector",
    "names": "invalid_vector",
    "a": "invalid_vector",
    "b": "invalid_vector",
    "id": "invalid_id",
    "ids": "invalid_id",
    "payload": "invalid_payload",
    "filter": "invalid_filter",
}
_LISTS: Final = {"items": "item", "queries": "query", "vectors": "vector", "rows": "row"}
_EXPECTED: Final = {
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "string_type": "a string",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "finite_number": "a finite number",
    "bytes_type": "base64 of float32 numbers",
    "bytes_invalid_encoding": "base64 of float32 numbers",
}


def own_error(error: Exception) -> Exception:
    """Return the index's own error for an error of the operating system, else the error itself."""
    is_of_network = isinstance(error, (ConnectionError, TimeoutError))
    if isinstance(error, OSError) and error.errno is not None and not is_of_network:
        return ix.storage_error(error)
    return error


def kind_of(error: Exception) -> Kind:
    """Return the row of the table for an error, by its class or the nearest base class."""
    if isinstance(error, sv.Refused):
        return REFUSALS[error.code]
    for cls in type(error).__mro__:
        if cls in TABLE:
            return TABLE[cls]
    return _UNEXPECTED


def path_text(loc: ix.Loc) -> str:
    """Return ``items[17].vector`` for ``("items", 17, "vector")``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc)
    return "".join(parts).lstrip(".")


def message_at(loc: ix.Loc, message: str) -> str:
    """Return a message with its place: first the item by number, then its part."""
    if not loc:
        return message
    if len(loc) > 1 and loc[0] in _LISTS and isinstance(loc[1], int):
        inner = f" (in {path_text(loc[2:])})" if len(loc) > 2 else ""  # noqa: PLR2004
        return f"{_LISTS[str(loc[0])]} {loc[1]}: {message}{inner}"
    return f"{path_text(loc)}: {message}"


def invalid_request(
    error: ValidationError,
    model: type[BaseModel],
    *,
    place: ix.Loc = (),
    first: int | None = None,
    code: str | None = None,
) -> sv.ServiceError:
    """Return the errors of a model's validator as this package's own error.

    ``place``: where the value is in the body; for a piece of a list, ``first`` is the number of its
    first entry. Without a ``code``, the field determines it.
    """
    found = error.errors()
    for entry in found:
        loc = entry["loc"]
        if first is not None:
            at = next((at for at, part in enumerate(loc) if isinstance(part, int)), len(loc))
            row = [first + int(part) for part in loc[at : at + 1]]
            loc = (*loc[:at], *row, *loc[at + 1 :])
        entry["loc"] = (*place, *loc)
    if found[0]["type"] == "json_invalid":
        return sv.MalformedBody(str(found[0]["msg"]))
    meant = _without_other_branches(list(found))
    entries = [_entry(entry, model) for entry in meant]
    loc, message = entries[0]
    is_unknown = meant[0]["type"] == "extra_forbidden"  # the message contains the field's name
    detail = message_at(loc[:-1] if is_unknown else loc, message)
    if meant[0]["type"] == "invalid_id" or meant[0].get("expected") == _WHOLE["str"]:
        code = "invalid_id"
    return sv.InvalidRequest(code or _code_of(loc, model), entries[:MAX_ERRORS_SHOWN], detail)


def _fields_at(loc: ix.Loc, model: type[BaseModel]) -> list[str]:
    """Return the names of the fields that a model has at a place, including branches of unions."""
    models = [model]
    for part in loc:
        if isinstance(part, int) or part.startswith(_WRAPPED):
            continue
        if _is_branch(part):
            name = str(part).removeprefix(KIND)
            models = [one for one in models if name == one.__name__]
        else:
            fields = [one.model_fields[part] for one in models if part in one.model_fields]
            models = [inner for field in fields for inner in models_in(field.annotation)]
    return [name for one in models for name in one.model_fields]


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:  # noqa: ANN401  # of any form
    """Yield the models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models_in(part)


def _code_of(loc: ix.Loc, model: type[BaseModel]) -> str:
    """Return the code of the field at a place, or of the field that contains it."""
    for part in reversed(loc):
        if part in _FIELD_CODES and (part != "names" or loc[0] != part):  # the names of a vector
            return _FIELD_CODES[str(part)]
    field = model.model_fields.get(str(loc[0])) if len(loc) > 1 else None
    if field is not None and any(
        _TOLD_BY.get(each.__name__) for each in models_in(field.annotation)
    ):
        return "invalid_vector"  # an entry of a list of vectors
    return "invalid_parameter"


KIND: Final = "kind "
"""How tags begin that models of a union are told by; their names follow."""
_WRAPPED: Final = "function-after["
"""How a branch begins that a function makes something else of; its own branches follow."""
_VECTOR: Final = (
    "a list of numbers, or an object with 'indices' or 'names', and 'values', or with 'base64'"
)
_WHOLE: Final = {
    "list[float]": _VECTOR,
    "SparseBody": _VECTOR,
    "NamedBody": _VECTOR,
    "PackedBody": _VECTOR,
    "TextPointBody": _VECTOR,
    "str": "a string or an integer",
    "int": "a string or an integer",
}
_TOLD_BY: Final = {"NamedBody": "names", "PackedBody": "base64", "TextPointBody": "text"}
"""Forms of vectors, and the field that tells them from others."""
_MISMATCHES: Final = {"list_type", "model_type", "string_type", "int_type"}


def _without_other_branches(found: list[Any]) -> list[Any]:
    """Drop a union's errors about branches that were not meant, and the branches' names."""
    forms = {
        tuple(entry["loc"][:-1]): _form_of(entry["input"])
        for entry in found
        if entry["type"] == "list_type" and entry["loc"][-1:] == ("list[float]",)
    }
    meant: list[Any] = []
    mismatched: list[Any] = []
    formless = set[ix.Loc]()  # objects of none of the forms
    for error in found:
        entry, loc = error, error["loc"]
        if entry["type"] == "missing" and loc[-2:] == ("SparseBody", "indices"):
            formless.add(loc[:-1])
            entry = {**error, "loc": loc[:-1], "type": "union", "expected": _VECTOR}
        if any(forms.get(loc[:place], part) != part for place, part in enumerate(loc[:-1])):
            continue
        whole = bool(loc) and loc[-1] in _WHOLE and entry["type"] in _MISMATCHES
        (mismatched if whole else meant).append(entry)
    if not meant and mismatched:
        first = mismatched[0]
        meant = [{**first, "type": "union", "expected": _WHOLE[first["loc"][-1]]}]
    return [entry for entry in meant if entry["loc"][:-1] not in formless]


def _form_of(vector: object) -> str:
    """Return the form of a vector that is no list; by indices if undetermined."""
    fields = vector if isinstance(vector, dict) else ()
    return next((form for form, field in _TOLD_BY.items() if field in fields), "SparseBody")


def _entry(entry: Any, model: type[BaseModel]) -> tuple[ix.Loc, str]:  # noqa: ANN401
    loc = tuple(part for part in entry["loc"] if not _is_branch(part))
    match entry["type"]:
        case "extra_forbidden":
            *outer, name = entry["loc"]  # a client's field may have the name of a branch
            place = *(part for part in outer if not _is_branch(part)), name
            known = ", ".join(_fields_at(tuple(outer), model))
            expected = f"one of {known}" if known else "none"
            return place, f"unknown field {brief_text(str(name))}; expected {expected}"
        case "missing":
            return loc, "expected a value, got none"
        case (
            "not_finite"
            | "invalid_id"
            | "invalid_base64"
            | "invalid_range"
            | "unknown_kind"
            | "unknown_score"
        ):
            return loc, str(entry["msg"])
    expected = entry.get("expected") or _EXPECTED.get(entry["type"]) or _range(entry)
    return loc, f"expected {expected}, got {brief_text(entry.get('input'))}"


def _is_branch(part: str | int) -> bool:
    return part in _WHOLE or str(part).startswith((_WRAPPED, KIND))


def _range(entry: Any) -> str:  # noqa: ANN401
    context = entry.get("ctx", {})
    things = "characters" if entry["type"].startswith("string") else "entries"
    match entry["type"]:
        case "literal_error":
            return str(context["expected"])
        case "greater_than_equal":
            return f"at least {context['ge']}"
        case "less_than_equal":
            return f"at most {context['le']}"
        case "string_too_short" | "too_short":
            return f"at least {context['min_length']} {things}"
        case "string_too_long" | "too_long":
            return f"at most {context['max_length']} {things}"
    return f"a valid value ({entry['msg']})"


def brief_text(value: object) -> str:
    """Return a short text of an invalid value."""
    match value:
        case dict():
            names = ", ".join(brief_text(str(name)) for name in islice(value, 3))
            more = ", …" if len(value) > 3 else ""  # noqa: PLR2004
            return f"an object with {names}{more}" if names else "an empty object"
        case list():
            return f"a list of {len(value)}"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case float() | int():
            text = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(str(value))
            return text or str(value)[:MAX_GOT_SHOWN]
    return repr(value)[:MAX_GOT_SHOWN]


def document(error: Exception, **more: object) -> dict[str, Any]:
    """Return the problem document of an error; ``more`` are extension members."""
    kind = kind_of(error)
    code, detail = kind.code, str(error)
    entries: Sequence[tuple[ix.Loc, str]] = ()
    match error:
        case sv.InvalidRequest():
            code, entries = error.code, error.errors
        case ix.InvalidInput():
            message = f"expected {error.expected}, got {error.got}"
            detail, entries = message_at(error.loc, message), [(error.loc, message)]
        case ix.VersionConflict():
            more = {"expected": error.expected, "got": error.got, **more}
    if kind is _UNEXPECTED:
        detail = "something went wrong on the server; its log says what"
    return {
        "type": f"urn:gcws:problem:{code}",
        "title": _TITLES.get(kind.status) or HTTPStatus(kind.status).phrase,
        "status": kind.status,
        "detail": detail,
        "code": code,
        "errors": [{"loc": list(loc), "msg": message} for loc, message in entries],
        **more,
    }


def response(error: Exception, **more: object) -> Response:
    """Return the answer to a request that ended in this error."""
    kind = kind_of(error)
    headers = {}
    if kind.retry_after_seconds is not None:
        headers["Retry-After"] = str(kind.retry_after_seconds)
    if kind.status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    body = orjson.dumps(document(error, **more))
    return Response(body, kind.status, headers, media_type=CONTENT_TYPE)


def install(app: FastAPI) -> None:
    """Let an application answer every error with a problem."""
    for kind in (sv.ServiceError, ix.GcwsError, HTTPException, ClientDisconnect):
        app.add_exception_handler(kind, answer)
    app.add_exception_handler(Exception, _answer_unexpected)


async def answer(request: Request, error: Exception) -> Response:
    """Return the answer to an error of a route or the framework; re-raise unknown errors."""
    match error:
        case HTTPException(status_code=404):
            detail = f"expected a path of this API, got {request.url.path!r}"
            error = sv.Refused("route_not_found", detail)
        case HTTPException(status_code=405):
            allowed = _methods_of(request)
            detail = f"expected {' or '.join(allowed)}, got {request.method}"
            answered = response(sv.Refused("method_not_allowed", detail))
            answered.headers["Allow"] = ", ".join(allowed)
            return answered
        case ClientDisconnect():
            error = sv.MalformedBody("the body ended early: the client went away")
        case sv.ServiceError() | ix.GcwsError():
            is_unexpected = kind_of(error).status == HTTPStatus.INTERNAL_SERVER_ERROR
            if is_unexpected or isinstance(error, ix.StorageFailed):
                # Only the log names the file, not the answer.
                cause = f" ({error.__cause__})" if isinstance(error.__cause__, OSError) else ""
                _log.error("%s %s: %s%s", request.method, request.url.path, error, cause)
        case _:
            raise error
    return response(error)


async def _answer_unexpected(_request: Request, error: Exception) -> Response:
    """Answer an unexpected error; the framework raises it again for the log."""
    return response(own_error(error))


def _methods_of(request: Request) -> list[str]:
    """Return the methods that the request's path accepts; HEAD if it accepts GET."""
    return [
        word
        for word in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")
        if any(
            route.matches({**request.scope, "method": method})[0] is Match.FULL
            for method in ["GET" if word == "HEAD" else word]
            for route in request.app.routes
        )
    ]
