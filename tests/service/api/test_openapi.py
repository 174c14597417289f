"""The API page is complete, its examples are valid, and they can be sent as they are."""

import json
from collections.abc import Iterator
from typing import Final

import jsonschema
import pytest

from gcws_search import index as ix
from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Json, Serve, fill

PLANTS: Final = "/v1/collections/plants"
PAGE: Final[dict[str, Json]] = create_app(Settings()).openapi()
SCHEMAS: Final[dict[str, Json]] = PAGE["components"]["schemas"]


def operations() -> Iterator[tuple[str, str, Json]]:
    for path, methods in PAGE["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def resolved(schema: Json) -> Json:
    """Return a schema with the page's components beside it, so that references work."""
    return {**schema, "components": PAGE["components"]}


def body_of(operation: Json, kind: str = "application/json") -> Json:
    """Return the schema of a request's body, references followed once."""
    schema = operation.get("requestBody", {}).get("content", {}).get(kind, {}).get("schema", {})
    return SCHEMAS[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def test_everything_on_the_page_says_what_it_is_and_has_examples() -> None:
    for method, path, operation in operations():
        assert operation["description"], (method, path)
        assert operation["description"].startswith(operation["summary"]), (method, path)
        assert " " in operation["summary"], "a sentence, not the name of a function"
        for parameter in operation.get("parameters", []):
            assert parameter.get("description"), (method, path, parameter["name"])
        for kind, content in operation.get("requestBody", {}).get("content", {}).items():
            assert "$ref" in content["schema"] or content["schema"]["description"], (path, kind)
            assert kind != "application/json" or body_of(operation)["examples"], (method, path)
        assert any(status.startswith("2") for status in operation["responses"]), (method, path)
        for status, response in operation["responses"].items():
            kinds = response.get("content", {})
            if status.startswith(("4", "5")) and path != "/readyz":
                assert set(kinds) == {"application/problem+json"}, (method, path, status)
            for kind, content in kinds.items():
                if kind.startswith("application/") and status.startswith("2"):
                    name = content["schema"].get("$ref", "").rpartition("/")[2]
                    assert SCHEMAS.get(name, content["schema"])["examples"], (method, path, status)
    for name, schema in SCHEMAS.items():
        for field, inner in schema.get("properties", {}).items():
            assert inner.get("description"), f"{name}.{field}"
        jsonschema.Draft202012Validator.check_schema(schema)
        for example in schema.get("examples", []):
            jsonschema.validate(example, resolved(schema), cls=jsonschema.Draft202012Validator)


FILTERS: Final[list[Json]] = SCHEMAS["FilterBody"]["examples"]


def test_examples_of_filters_permit_what_they_say(client: Client) -> None:
    for example, found in zip(FILTERS, [["7", "a"], ["7", "b"], [], []], strict=True):
        body = {"vector": [0.1, -2, 0, 3], "filter": example}
        answer = client.post(f"{PLANTS}/query", json=body)
        assert sorted(hit["id"] for hit in answer.json()["hits"]) == found


NO_FILTERS: Final[list[Json]] = [
    {"must": 3}, {"must": [{"key": "a"}]}, {"may": []}, {"must": {"key": "", "match": {}}},
    {"must": {"key": "a", "match": {"value": [1]}}}, {"must": {"key": "a", "range": {"eq": 1}}},
    {"must": {"key": "a", "match": {"any": 1}}}, {"must": {"key": "a", "range": {"gt": "1"}}},
]  # fmt: skip


def test_filters_the_page_refuses_are_refused() -> None:
    for document in NO_FILTERS:
        schema = resolved(SCHEMAS["FilterBody"])
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(document, schema, cls=jsonschema.Draft202012Validator)
        with pytest.raises(ix.InvalidFilter):
            ix.parse_filter(document)


def _limits() -> Iterator[tuple[str, float, bool]]:
    """Yield fields of queries with values at a bound of the page and just beyond it."""
    for name, schema in SCHEMAS["QueryBody"]["properties"].items():
        for word, step in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1)):
            if word in schema:
                yield name, schema[word] + step, False
                if step:
                    yield name, schema[word], True


def test_bounds_on_the_page_are_those_that_are_held(client: Client) -> None:
    for field, value, permitted in _limits():
        # the framework writes bounds as floats
        whole = field in ("limit", "offset", "candidates", "group_size")
        sent = int(value) if whole else value
        body = {"vector": [0.1, -2, 0, 3], field: sent}
        answer = client.post(f"{PLANTS}/query", json=body)
        assert answer.status_code == (200 if permitted else 422), answer.text


def test_json_is_optional_where_a_request_without_a_body_is_answered(client: Client) -> None:
    optional, answered = set(), set()
    for method, path, operation in operations():
        if body_of(operation):
            client.delete(PLANTS)
            fill(client, transform={"weights": "standard"})
            answer = client.request(method.upper(), path.replace("{name}", "plants"))
            answered |= {(method, path)} if answer.is_success else set()
            optional |= set() if operation["requestBody"].get("required") else {(method, path)}
    assert answered == optional != set()


def test_examples_can_be_sent_as_they_are(client: Client) -> None:
    for method, path, operation in operations():
        for example in body_of(operation).get("examples", []):
            client.delete(PLANTS)
            if (method, path) != ("put", "/v1/collections/{name}"):
                fill(client)
                if path.endswith("/items") and example.get("mode") == "insert":
                    client.delete(f"{PLANTS}/items/b")
            url = path.replace("{name}", "plants").replace("{item_id}", "a")
            answer = client.request(method.upper(), url, json=example)
            assert answer.status_code in (200, 201), (method, path, answer.text)
            _check_answer(method, path, answer.status_code, answer.text)


def _check_answer(method: str, path: str, status: int, text: str) -> None:
    contents = PAGE["paths"][path][method]["responses"][str(status)]["content"]
    kind, content = next(iter(contents.items()))
    lines = text.splitlines() if kind == "application/x-ndjson" else [text]
    for line in lines:
        jsonschema.validate(
            json.loads(line), resolved(content["schema"]), cls=jsonschema.Draft202012Validator
        )


@pytest.mark.parametrize(("on_error", "lines"), [("skip", 3), ("stop", 2)])
def test_a_load_answers_as_the_page_says_watched_or_not(
    serve: Serve, on_error: str, lines: int
) -> None:
    client = serve(load_chunk_rows=1)
    fill(client)
    operation = PAGE["paths"]["/v1/collections/{name}/load"]["post"]
    example = operation["requestBody"]["content"]["application/x-ndjson"]["example"]
    kind = {"Content-Type": "application/x-ndjson"}
    answer = client.post(f"{PLANTS}/load", content=example, headers=kind)
    assert answer.json()["updated"] == 1
    _check_answer("post", "/v1/collections/{name}/load", 200, answer.text)
    shown = operation["responses"]["200"]["content"]["application/x-ndjson"]["schema"]
    body = '{"id": "c", "vector": [0.5, 0, 0, 1]}\n{"id": "d", "vector": [1]}\n'
    headers = kind | {"Accept": "application/x-ndjson"}
    answer = client.post(f"{PLANTS}/load?on_error={on_error}", content=body, headers=headers)
    told = [json.loads(line) for line in answer.text.splitlines()]
    assert len(told) == lines
    for line in told:
        jsonschema.validate(line, resolved(shown), cls=jsonschema.Draft202012Validator)
    assert ("error" in told[-1]) == (on_error == "stop")


def test_what_is_shown_is_as_the_page_says(client: Client) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/v1", "/v1/collections", PLANTS,
                 f"{PLANTS}/curve", f"{PLANTS}/items", f"{PLANTS}/items/a"):  # fmt: skip
        template = path.replace("plants", "{name}").replace("/a", "/{item_id}")
        _check_answer("get", template if template in PAGE["paths"] else path, 200,
                      client.get(path).text)  # fmt: skip
