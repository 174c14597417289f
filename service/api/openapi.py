"""The API page: the declarations of the routes, and parts that no signature shows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from gcws_search.service.api.join import JoinBody
from gcws_search.service.api.query import BatchBody
from gcws_search.service.models import Body
from gcws_search.service.responses import NDJSON

_SAID: Final = Path(__file__).with_name("schemas.json")
"""What no model and no signature says: answers, filters, names in paths, keys, bodies of bytes."""
_OPEN_PATHS = ("/livez", "/readyz", "/healthz")
_EVERYWHERE: Final = """
Every error is a problem (RFC 9457, `application/problem+json`) with a stable `code`; besides those
listed with an operation: 404 `route_not_found`, 405 `method_not_allowed` with an `Allow` header,
500 `internal_error`. Temporary errors (429, 503, 507) come with `Retry-After`. Every answer has an
`X-Request-ID`. If keys are set, send one as `Authorization: Bearer KEY` or `X-API-Key: KEY`. A
trailing slash of a path is ignored, except with `DELETE`.
"""


def install(app: FastAPI) -> None:
    """Install the application's page with all bodies, problems and keys."""
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
        [(BatchBody, "validation"), (JoinBody, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    for name, schema in extra["$defs"].items():
        schemas.setdefault(name, schema)
    for model in _kinds_of(Body):
        # The framework drops every null, also those inside examples.
        extra_parts = model.model_config.get("json_schema_extra")
        if isinstance(extra_parts, dict) and model.__name__ in schemas:
            schemas[model.__name__] |= extra_parts
    said = json.loads(_SAID.read_text())
    for name, schema in said["schemas"].items():
        for field, shown in schema["properties"].items():  # with titles like the fields of models
            if not any("$ref" in part for part in (shown, *shown.get("anyOf", ())[:1])):
                shown["title"] = field.replace("_", " ").title()
        schemas[name] = schema | {"title": name, "type": "object"}
    components["securitySchemes"] = said["securitySchemes"]
    for path, operations in page["paths"].items():
        for operation in operations.values():
            operation["summary"] = re.split(r"[.:;](?:\s|$)|\n", operation["description"])[0]
            if path not in _OPEN_PATHS:
                operation["security"] = [{}, *({name: []} for name in said["securitySchemes"])]
            parameters = operation.get("parameters", [])
            for parameter in parameters:
                if parameter["in"] == "path":
                    parameter.update(said["parameters"][parameter["name"]])
            parameters.sort(key=lambda each: each["name"] != "name")  # the collection comes first
    page["info"]["description"] += _EVERYWHERE
    _merge(page["paths"], said["paths"])
    pairs = page["paths"]["/v1/collections/{name}/pairs"]["post"]["responses"]["200"]
    pairs["content"][NDJSON]["schema"] = schemas.pop("PairAnswer")  # the schema of one line
    return page


def _kinds_of(model: type[Body]) -> Iterator[type[Body]]:
    for each in model.__subclasses__():
        yield each
        yield from _kinds_of(each)


def _merge(page: dict[str, Any], more: dict[str, Any]) -> None:
    """Add texts to each part of the page."""
    for name, part in more.items():
        if isinstance(part, dict) and name in page:
            _merge(page[name], part)
        else:
            page[name] = part
