"""The API page: what the routes say, and what no signature shows."""

from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from service.answers import Answer, Problem
from service.schemas import BatchBody, Body

_OPEN_PATHS = ("/livez", "/readyz", "/healthz")
_KEYS: dict[str, dict[str, Any]] = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "apiKey": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
}


def install(app: FastAPI) -> None:
    """Let an application show its page with all bodies, problems and keys."""
    original = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _completed(original())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way


def _completed(page: dict[str, Any]) -> dict[str, Any]:
    components = page.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    _, extra = models_json_schema(
        [(Problem, "serialization"), (BatchBody, "validation")],
        ref_template="#/components/schemas/{model}",
    )
    for name, schema in extra["$defs"].items():
        schemas.setdefault(name, schema)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    for model in (*Body.__subclasses__(), *Answer.__subclasses__()):
        # The framework drops every null, also those inside examples.
        extra_parts = model.model_config.get("json_schema_extra")
        if isinstance(extra_parts, dict) and model.__name__ in schemas:
            schemas[model.__name__] |= extra_parts
    components["securitySchemes"] = _KEYS
    for path, operations in page["paths"].items():
        for operation in operations.values():
            if path not in _OPEN_PATHS:
                operation["security"] = [{}, *({name: []} for name in _KEYS)]
            _drop_framework_errors(operation)
    return page


def _drop_framework_errors(operation: dict[str, Any]) -> None:
    """Problems are the only errors here; the framework's own 422 never leaves."""
    response = operation["responses"].get("422", {})
    schema = response.get("content", {}).get("application/json", {}).get("schema", {})
    if schema.get("$ref", "").endswith("HTTPValidationError"):
        del response["content"]["application/json"]
        if not response["content"]:
            del operation["responses"]["422"]
