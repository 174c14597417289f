"""Content types, answers as bytes, and the problems a route declares on the API page."""

from typing import Any, Final

import numpy as np
import orjson

from gcws_search import index as ix
from gcws_search.service.models import reference
from gcws_search.service.problems import CONTENT_TYPE

JSON = "application/json"
NPY = "application/x-npy"
NDJSON = "application/x-ndjson"
ARROW = "application/vnd.apache.arrow.stream"
CSV = "text/csv"
TSV = "text/tab-separated-values"
SQLITE = "application/vnd.sqlite3"
BINARY = "application/octet-stream"
FORM = "application/x-www-form-urlencoded"
UNSAID = ("", BINARY, FORM)
"""Content types that say nothing of a body; curl sends the last one of any that has no other."""

JSON_OPTIONS: Final = orjson.OPT_SERIALIZE_NUMPY
_MEANINGS = {
    400: "The body is not JSON, or is truncated.",
    401: "No key was sent.",
    403: "The key does not permit this.",
    404: "No such collection, item, backend or snapshot.",
    408: "The body came too slowly.",
    409: "It exists already, or with other properties, or another operation on its name is "
    "running.",
    413: "The body is too large.",
    415: "This route does not accept the content type or encoding.",
    422: "Something in the request is invalid; `errors` says where.",
    429: "Too much work is waiting.",
    503: "It cannot be answered now: something is still loading (`loading`), too many requests "
    "are running (`overloaded`), no file descriptor is free (`out_of_descriptors`), the "
    "disk failed to read or write (`storage_failed`), the process that owns the collections "
    "restarts (`owner_unavailable`), or the service stops (`stopping`).",
    507: "The disk or the memory is full, or there are too many collections; nothing was stored.",
}


def vector_json(vector: Any) -> Any:  # noqa: ANN401  # a list, or an object of two
    """Return a vector whose numbers are written as float32: 0.1, not 0.10000000149."""
    if isinstance(vector, dict):
        return {"indices": vector["indices"], "values": np.asarray(vector["values"], np.float32)}
    return None if vector is None else np.asarray(vector, np.float32)


def metadata_json(stored: bytes | None) -> orjson.Fragment | None:
    """Return stored JSON as a fragment that is written unchanged."""
    return None if stored is None else orjson.Fragment(stored)


def payload_json(payload: bytes | None, *, has_text: bool) -> dict[str, orjson.Fragment | None]:
    """Return the fields of an item or a hit for its stored payload: a text has its own field."""
    shown: dict[str, orjson.Fragment | None] = {}
    if has_text:
        text, payload = ix.split_text(payload)
        shown["text"] = metadata_json(text)
    return shown | {"payload": metadata_json(payload)}


def ids_json(ids: tuple[str, str]) -> dict[str, str]:
    """Return the first and the last id that items were given."""
    return dict(zip(("first", "last"), ids, strict=True))


def json_bytes(value: object) -> bytes:
    """Return JSON; numpy arrays become lists."""
    return orjson.dumps(value, option=JSON_OPTIONS)


def shows(name: str, *statuses: int, kind: str = JSON) -> dict[int | str, dict[str, Any]]:
    """Return a route's declaration of its answer, which ``api/schemas.json`` describes."""
    content = {kind: {"schema": reference(name)}}
    return {status: {"content": content} for status in statuses or (200,)}


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return a route's declaration of its problems."""
    return {
        status: {
            "description": _MEANINGS[status],
            "content": {CONTENT_TYPE: {"schema": reference("Problem")}},
        }
        for status in statuses
    }


READ_PROBLEMS = problem_responses(401, 403, 404, 422, 429, 503)
BODY_PROBLEMS = READ_PROBLEMS | problem_responses(400, 408, 413, 415)
WRITE_PROBLEMS = BODY_PROBLEMS | problem_responses(409, 507)
