"""Every route answers a long body as it answers a short one that says the same.

A body beyond 256 KiB is read in another way, in another thread.
"""

import copy
import json
from collections.abc import Iterator
from typing import Any, Final

import httpx
import numpy as np
import pytest

from tests.support.paths import REPOSITORY
from tests.support.service.bodies import npy, packed
from tests.support.service.client import Client, Json, Serve, fill

PAGE: Final[dict[str, Any]] = json.loads((REPOSITORY / "openapi.json").read_text())
JSON: Final = "application/json"
PLANTS: Final = "/v1/collections/plants"
LONG_BYTES: Final = 300_000
READS: Final = ("query", "batch", "count", "explain", "sketch", "similarity")
"""Last words of paths that change nothing."""
SAME: Final = (*READS, "delete")
"""Last words of paths whose answers are of the body and the items alone."""


def is_read(path: str) -> bool:
    return path.endswith(READS)


def operations() -> Iterator[tuple[str, str, Json]]:
    """Yield method, path and example of each body of JSON that the page shows; reads first."""
    for path, methods in sorted(PAGE["paths"].items(), key=lambda each: not is_read(each[0])):
        for method, operation in methods.items():
            content = operation.get("requestBody", {}).get("content", {})
            if reference := content.get(JSON, {}).get("schema", {}).get("$ref"):
                schema = PAGE["components"]["schemas"][reference.rpartition("/")[2]]
                yield from ((method, path, example) for example in schema["examples"])


def grown(document: Json, count: int) -> Iterator[Json]:
    """Yield copies of a document in each of which another list is repeated up to ``count``."""
    if isinstance(document, list) and document:
        yield document * -(-count // len(document))
    pairs = document.items() if isinstance(document, dict) else ()
    for key, inner in [*pairs, *(enumerate(document) if isinstance(document, list) else ())]:
        for other in grown(inner, count):
            whole = copy.copy(document)
            whole[key] = other
            yield whole


def ask(client: Client, method: str, path: str, text: bytes) -> httpx.Response:
    if not is_read(path) or client.get(PLANTS).status_code == 404:
        client.delete(PLANTS)
        fill(client)
    url = path.format(name="plants", item_id="a")
    return client.request(method.upper(), url, content=text, headers={"Content-Type": JSON})


def said(answer: httpx.Response, path: str) -> Json:
    """Return what an answer says that another to the same says, too."""
    if answer.status_code < 400 and not path.endswith(SAME):
        return answer.status_code
    shown = answer.json()
    for found in [shown, *shown.get("results", ())]:
        found.get("explain", {}).pop("seconds", None)
    return answer.status_code, shown


def test_a_long_body_is_answered_as_a_short_one(client: Client) -> None:
    for method, path, example in operations():
        for document in (example, {**example, "what": [[{}]]}, *grown(example, 9)):
            text = json.dumps(document).encode()
            short = ask(client, method, path, text)
            long = ask(client, method, path, text + b" " * LONG_BYTES)
            assert short.status_code < 500, short.text
            assert said(long, path) == said(short, path), (method, path)


def test_no_list_is_too_long_to_be_answered(serve: Serve) -> None:
    client = serve(max_items_per_request=100, max_queries_per_request=100)
    for method, path, example in operations():
        for document in grown(example, 30_000):
            text = json.dumps(document).encode()
            answer = ask(client, method, path, text.ljust(LONG_BYTES))
            assert answer.status_code < 500, (method, path, answer.text)
            if answer.status_code >= 400:
                assert len(answer.text) < 2000
                assert answer.json()["detail"]


@pytest.mark.served(front="all")
def test_all_of_many_ids_are_deleted(client: Client) -> None:
    url = "/v1/collections/stones"
    client.put(url, json={"dim": 2})
    vectors = np.ones((30_000, 2), np.float32)
    packed = {"Content-Type": "application/x-npy"}
    assert client.post(f"{url}/load", content=npy(vectors), headers=packed).status_code == 200
    body = {"ids": [f"{row}" for row in range(100, 30_000)], "filter": None}
    text = json.dumps(body, indent=8).encode()
    assert len(text) > LONG_BYTES
    answer = client.post(f"{url}/items/delete", content=text, headers={"Content-Type": JSON})
    assert answer.json() == {"deleted": 29_900}


@pytest.mark.parametrize("form", ["dense", "sparse", "base64"])
def test_a_query_and_a_line_of_a_load_may_be_long(client: Client, form: str) -> None:
    dim, url = 40_000, "/v1/collections/stones"
    client.put(url, json={"dim": dim})
    numbers = np.linspace(-1, 2, dim).round(9)
    vector: Json = numbers.tolist()
    if form == "sparse":
        vector = {"indices": [*range(dim)], "values": vector}
    if form == "base64":
        vector = packed(numbers)
    line = json.dumps({"id": "a", "vector": vector, "payload": {"x": "y" * LONG_BYTES}}).encode()
    assert len(line) > LONG_BYTES
    ndjson = {"Content-Type": "application/x-ndjson"}
    loaded = client.post(f"{url}/load", content=line, headers=ndjson)
    assert loaded.json()["inserted"] == 1, loaded.text
    query = json.dumps({"vector": vector}).encode().ljust(LONG_BYTES)
    array = npy(numbers.reshape(1, -1))
    assert len(array) > LONG_BYTES
    for content, kind in ((query, JSON), (array, "application/x-npy")):
        headers = {"Content-Type": kind}
        answer = client.post(f"{url}/query", content=content, headers=headers)
        assert [hit["id"] for hit in answer.json()["hits"]] == ["a"], answer.text
        assert answer.json()["hits"][0]["score"] > 0.999


@pytest.mark.parametrize("field", ["indices", "names"])
def test_a_vector_of_too_many_is_refused_before_its_entries_are_read(
    serve: Serve, field: str
) -> None:
    client = serve(max_nonzeros=1000)
    fill(client)
    vector = {field: [*range(LONG_BYTES // 2), None], "values": [1.0]}
    answer = client.post(f"{PLANTS}/query", json={"vector": vector})
    assert answer.status_code == 422
    assert f"at most 1,000 values, got {LONG_BYTES // 2 + 1:,}" in answer.json()["detail"]
