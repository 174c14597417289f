"""Requests made from the committed ``openapi.json``: such as fit it, and such as do not."""

import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
import jsonschema
import schemathesis
from hypothesis import reject
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode

from tests.fuzz.trying import tried
from tests.support.paths import REPOSITORY
from tests.support.service.client import Client, fill

FILE: Final = REPOSITORY / "openapi.json"
PAGE: Final[dict[str, Any]] = json.loads(FILE.read_text())
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
MODES: Final = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
ANYWHERE: Final = {404, 405}
"""What any path may answer, as the page says once."""
KNOWN: Final = {"name": "plants", "item_id": "a", "backend": "gcws", "snapshot": "s"}


def operations() -> Iterator[tuple[str, str]]:
    """Yield method and path of every operation whose body, if it has one, is JSON."""
    for path, methods in PAGE["paths"].items():
        for method, operation in methods.items():
            kinds = operation.get("requestBody", {}).get("content", {JSON: None})
            if JSON in kinds:
                yield method, path


def try_operation(
    client: Client, method: str, path: str, mode: GenerationMode, *, examples: int, number: int
) -> int:
    """Send requests of one operation, half of them about what is there; return how many."""
    client.delete(f"/v1/collections/{KNOWN['name']}")  # its weights may have changed
    fill(client)
    operation = schemathesis.openapi.from_dict(json.loads(FILE.read_text()))[path][method.upper()]
    has_body = "requestBody" in PAGE["paths"][path][method]
    kind: dict[str, Any] = {"media_type": JSON} if has_body else {}
    # Dropping what the others are about would leave them nothing.
    keeps = (method, path) != ("delete", "/v1/collections/{name}")
    fixed = {name: KNOWN[name] for name in KNOWN if f"{{{name}}}" in path}
    count = 0
    for some in [{}, fixed] if fixed and keeps else [{}]:
        more: dict[str, Any] = {"path_parameters": some} if some else {}
        inputs = operation.as_strategy(generation_mode=mode, **kind, **more)
        try:
            count += tried(
                inputs,
                lambda case: send(client, method, path, case),
                examples=examples,
                number=number,
            )
        except Unsatisfiable:  # nothing of this operation can be wrong
            continue
    return count


def send(client: Client, method: str, path: str, case: "Case[Any]") -> None:
    """Send one request and look at its answer."""
    sent = case.as_transport_kwargs(base_url="http://test")
    content = sent.get("data")
    if "json" in sent:
        content = json.dumps(sent["json"]).encode()
    try:
        request = httpx.Request(
            sent["method"],
            sent["url"],
            headers=dict(sent["headers"]),
            params=sent["params"],
            content=content,
        )
    except (httpx.InvalidURL, UnicodeEncodeError):
        reject()  # no client could send it
    require_sound(method, path, client.run(client.http.send(request)))


def require_sound(method: str, path: str, answer: httpx.Response) -> None:
    """Check that an answer is one that the page declares, and is what it says it is."""
    assert answer.status_code < 500, answer.text
    assert "Traceback" not in answer.text
    assert answer.headers["x-request-id"]
    kind = answer.headers.get("content-type", "").partition(";")[0]
    declared = PAGE["paths"][path][method]["responses"].get(str(answer.status_code))
    if answer.status_code >= 400:
        assert kind == PROBLEM, answer.text
        assert declared is not None or answer.status_code in ANYWHERE, answer.text
        schema: Any = {"$ref": "#/components/schemas/Problem"}
    else:
        assert declared is not None or answer.status_code in (200, 307), answer.status_code
        schema = ((declared or {}).get("content") or {}).get(JSON, {}).get("schema")
        if kind != JSON or schema is None:
            return
    jsonschema.validate(
        answer.json(),
        {**schema, "components": PAGE["components"]},
        cls=jsonschema.Draft202012Validator,
    )
