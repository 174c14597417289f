"""Routes of JSON are answered as the framework would answer them, without its layers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from fastapi import FastAPI

from service.application import Application
from tests.routes import SENT, routes
from tests.served import Client, Json, Serve, fill

_PLANTS: Final = "/v1/collections/plants"
_TOLD: Final = {"allow", "content-type", "retry-after", "location", "www-authenticate"}


def requests() -> Iterator[tuple[str, str, Json]]:
    """Yield requests of every kind: method, path, and body."""
    for method, path in routes():
        body = SENT.get(path)
        for name, item in (("plants", "a"), ("none", "b/c")):
            filled = path.replace("{name}", name).replace("{item_id}", item)
            yield method, filled.replace("{backend}", "x").replace("{snapshot}", "y"), body
    for method in ("GET", "HEAD", "OPTIONS", "PUT", "POST", "DELETE", "PATCH"):
        yield method, f"{_PLANTS}/query", {"vector": [1, 2, 3, 4]}
        yield method, f"{_PLANTS}/items/", {"items": []}
    yield "GET", f"{_PLANTS}/items/a%0Ab%2F%3F", None
    yield "POST", f"{_PLANTS}/query?limit=3", {"vector": [1, 2, 3, 4]}
    yield "POST", f"{_PLANTS}/query", {"vector": [1, 2, 3]}
    yield "POST", f"{_PLANTS}/query", {"vectors": []}
    yield "POST", f"{_PLANTS}%0A/query", {"vector": [1, 2, 3, 4]}


def answers(client: Client) -> list[tuple[str, str, int, Json, bytes]]:
    """Return what each request gets; of successes, which may hold times, not the words."""
    fill(client)
    found = []
    for method, path, body in requests():
        got = client.request(method, path, **({} if body is None else {"json": body}))
        assert got.headers["x-request-id"]
        failed = got.is_error
        headers = {name: text for name, text in got.headers.items() if name in _TOLD}
        found.append((method, path, got.status_code, headers, got.content if failed else b""))
    return found


def test_the_framework_would_answer_every_request_in_the_same_way(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = answers(serve())
    monkeypatch.setattr(Application, "__call__", FastAPI.__call__)
    theirs = answers(serve(data_dir=tmp_path / "other"))
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def test_requests_are_counted_by_their_routes_pattern(client: Client) -> None:
    client.post(f"{_PLANTS}/query", json={"vector": [1, 2, 3, 4]})
    text = client.get("/metrics").text
    assert 'gcws_request_seconds_count{method="POST",route="/v1/collections/{name}/query"' in text


def test_an_error_nobody_expects_is_a_problem_and_its_traceback_is_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("service.parsing.query", fail)
    got = client.post(f"{_PLANTS}/query", json={"vector": [1, 2, 3, 4]})
    assert got.status_code == 500
    assert got.json()["code"] == "internal_error"
    assert "unforeseen" not in got.text
    assert "unforeseen" in caplog.text
