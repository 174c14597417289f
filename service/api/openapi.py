"""The API page: what the routes say, and what no signature shows."""

import json
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from gcws_search.service.api.query import BatchBody
from gcws_search.service.models import Body, reference
from gcws_search.service.responses import ARROW, NDJSON, NPY

_SCHEMAS: Final = Path(__file__).with_name("schemas.json")
"""What no model checks: answers, and filters."""
_OPEN_PATHS = ("/livez", "/readyz", "/healthz")
_KEYS: dict[str, dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


_EVERYWHERE: Final = """
Every error is a problem (RFC 9457, `application/problem+json`) with a stable `code`; besides those
listed with an operation: 404 `route_not_found`, 405 `method_not_allowed` with an `Allow` header,
500 `internal_error`. What may pass (429, 503, 507) comes with `Retry-After`. Every answer has an
`X-Request-ID`. Where keys are set, send one as `Authorization: Bearer KEY` or
`X-API-Key: KEY`. A path with a slash at its end is the path without it, but for `DELETE`.
"""
_IN_PATHS: Final[dict[str, dict[str, Any]]] = {
    "name": {
        "description": "The collection: letters, digits, `_`, `.`, `-`, the first of them a letter "
        "or a digit.",
        "schema": {
            "type": "string",
            "maxLength": 128,
            "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
        },
    },
    "backend": {
        "description": "One of the collection's `backends`, by its name.",
        "schema": {"type": "string", "maxLength": 128},
    },
    "snapshot": {
        "description": "The snapshot, named as collections are.",
        "schema": {
            "type": "string",
            "maxLength": 128,
            "pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
        },
    },
    "item_id": {
        "description": "The item's id, percent-encoded; it may hold slashes.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255},
    },
}
_GZIP: Final = "Gzip is known by `Content-Encoding: gzip`, or by its first bytes."
_STREAMS: Final = {
    NDJSON: "One item a line, as in a PUT of items: `id`, `vector`, and maybe `payload`; "
    f"empty lines are passed over. {_GZIP}",
    NPY: "What `numpy.save` writes of an (n, dim) array of floats, integers or bools. "
    "One in Fortran order is read whole, up to the server's `max_arrow_batch_bytes`, 256 MiB "
    "unless set. Rows become items without payloads; "
    f"their ids are their numbers, counted from `id_start`. {_GZIP}",
    ARROW: "An Arrow IPC *stream* (`pyarrow.ipc.new_stream`), not an Arrow file. Columns: "
    "`id`, strings or integers; `vector`, a list of numbers, or else `indices` or `names` and "
    "maybe `values`, a list of integers or strings and one of numbers, 1 each where there are "
    "none; maybe `payload`, the text of a JSON object, or null. Lists and texts may be large, "
    "views, dictionaries or of a fixed size. With `columns=payload` other columns are fields of "
    "the payload: text, numbers, bools, "
    f"lists and structs of these, dates and times as text. {_GZIP}",
}
_WATCHED: Final[dict[str, Any]] = {
    "schema": {
        "description": "With `Accept: application/x-ndjson`: a line a chunk committed, then the "
        "summary.",
        "anyOf": [reference(name) for name in ("LoadProgress", "LoadEnd")],
        "examples": [{"committed": 8192, "rejected": 0}],
    }
}
_QUERIES: Final = {
    NPY: "What `numpy.save` writes of an (n, dim) array of floats, integers or bools, a "
    "query a row; what they ask for stands in the URL. Not compressed.",
    ARROW: "An Arrow IPC *stream*, a query a row. Columns: `vector`, or `indices` or "
    "`names` and maybe `values`, as in a load; what they ask for stands in the URL. Not "
    "compressed.",
}


def install(app: FastAPI) -> None:
    """Let an application show its page with all bodies, problems and keys."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _complete(original())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _complete(page: dict[str, Any]) -> dict[str, Any]:
    components = page.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, extra = models_json_schema(
        [(BatchBody, "validation")], ref_template="#/components/schemas/{model}"
    )
    for name, schema in extra["$defs"].items():
        schemas.setdefault(name, schema)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in Body.__subclasses__():
        # The framework drops every null, also those inside examples.
        extra_parts = model.model_config.get("json_schema_extra")
        if isinstance(extra_parts, dict) and model.__name__ in schemas:
            schemas[model.__name__] |= extra_parts
    schemas |= read_schemas()
    components["securitySchemes"] = _KEYS
    for path, operations in page["paths"].items():
        for operation in operations.values():
            if path not in _OPEN_PATHS:
                operation["security"] = [{}, *({name: []} for name in _KEYS)]
            parameters = operation.get("parameters", [])
            for parameter in parameters:
                if parameter["in"] == "path":
                    parameter.update(_IN_PATHS[parameter["name"]])
            parameters.sort(key=lambda each: each["name"] != "name")  # the collection comes first
            _drop_framework_errors(operation)
    page["info"]["description"] += _EVERYWHERE
    _describe_streams(page["paths"])
    pairs = page["paths"]["/v1/collections/{name}/pairs"]["post"]["responses"]["200"]
    pairs["content"][NDJSON]["schema"] = schemas.pop("PairAnswer")  # of one line, not of all
    return page


def read_schemas() -> dict[str, dict[str, Any]]:
    """Return schemas that no model has by their names, with titles as those of models have."""
    found: dict[str, dict[str, Any]] = json.loads(_SCHEMAS.read_text())
    for name, schema in found.items():
        schema |= {"title": name, "type": "object"}
        for field, shown in schema["properties"].items():
            if not any("$ref" in part for part in (shown, *shown.get("anyOf", ())[:1])):
                shown["title"] = field.replace("_", " ").title()
    return found


def _describe_streams(paths: dict[str, Any]) -> None:
    """Say what no schema can of bodies that are no JSON, and of answers that are watched."""
    load = paths["/v1/collections/{name}/load"]["post"]
    for kind, description in _STREAMS.items():
        load["requestBody"]["content"][kind]["schema"]["description"] = description
    load["responses"]["200"]["content"][NDJSON] = _WATCHED
    for path in ("query", "query/batch"):
        queries = paths[f"/v1/collections/{{name}}/{path}"]["post"]["requestBody"]["content"]
        for kind, description in _QUERIES.items():
            queries[kind]["schema"]["description"] = description


def _drop_framework_errors(operation: dict[str, Any]) -> None:
    """Problems are the only errors here; the framework's own 422 never leaves."""
    response = operation["responses"].get("422", {})
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("$ref", "").endswith("HTTPValidationError"):
        del response["content"]["application/json"]
        if not response["content"]:
            del operation["responses"]["422"]
