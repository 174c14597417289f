"""Types of the API's answers for the page's code, made of the API page."""

import json
import re
from typing import Final

from tests.support.paths import REPOSITORY
from tests.support.service.client import Json

FILE: Final = REPOSITORY / "service" / "page" / "answers.d.ts"
_HEAD: Final = "// Made of openapi.json by `python -m tests.fuzz --write-page`.\n"
_SCALARS: Final = {"integer": "number", "number": "number", "string": "string", "null": "null"}


def _type_of(schema: Json) -> str:
    """Return a JSON schema as TypeScript says it."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " | ".join(dict.fromkeys(map(_type_of, options)))
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        return " | ".join(json.dumps(value) for value in values)
    match schema.get("type"):
        case "array":
            return f"Array<{_type_of(schema.get('items', {}))}>"
        case "object":
            return _members(schema)
        case kind:
            return _SCALARS.get(str(kind), "boolean" if kind == "boolean" else "any")


def _members(schema: Json) -> str:
    """Return the properties of an object, a line each; without any, a record."""
    if "properties" not in schema:
        more = schema.get("additionalProperties")
        return f"Record<string, {_type_of(more) if isinstance(more, dict) else 'any'}>"
    required = set(schema.get("required", ()))
    lines = [
        f"  {json.dumps(name)}{'' if name in required else '?'}: {_type_of(one)};"
        for name, one in schema["properties"].items()
    ]
    return "\n".join(["{", *lines, "}"])


def _answers(page: Json, method: str) -> list[tuple[str, str]]:
    """Return each route of a method with the name of its answer's schema, the longest first."""
    found = []
    for path, operations in page["paths"].items():
        for status, answer in operations.get(method, {}).get("responses", {}).items():
            schema = answer.get("content", {}).get("application/json", {}).get("schema", {})
            if status.startswith("2") and "$ref" in schema:
                pattern = re.sub(r"\{\w+\}", "${string}", path.removeprefix("/"))
                found.append((pattern, _type_of(schema)))
    return sorted(found, key=lambda row: -row[0].count("/"))


def page_types(page: Json) -> str:
    """Return the types: a schema each, and what a GET or POST of a path answers."""
    schemas = page["components"]["schemas"]
    routes = {name: _answers(page, name.lower()) for name in ("Get", "Post")}
    wanted, reached = [name for rows in routes.values() for _, name in rows], set[str]()
    while wanted:
        name = wanted.pop()
        if name not in reached:
            reached.add(name)
            wanted += re.findall(r"#/components/schemas/(\w+)", json.dumps(schemas[name]))
    parts = [f"type {name} = {_type_of(schemas[name])};\n" for name in sorted(reached)]
    for name, rows in routes.items():
        tests = [f"  Path extends `{path}${{Query}}` ? {answer} :" for path, answer in rows]
        parts.append("\n".join([f"type {name}<Path extends string> =", *tests, "  any;\n"]))
    opened = "declare namespace Answers {\n\ntype Query = `` | `?${string}`;\n"
    return "\n".join([_HEAD, opened, *parts, "}\n"])
