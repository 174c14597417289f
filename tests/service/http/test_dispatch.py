"""Routes of JSON are answered as the framework would answer them, without its layers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gcws_search.service.app import create_app
from gcws_search.service.http import Application
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Json, Serve, assert_problem, fill
from tests.support.service.routes import SENT, routes

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
    monkeypatch.setattr(Application, "find_route", lambda *_: None)
    theirs = answers(serve(data_dir=tmp_path / "other"))
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


def sent_in_pieces(client: Client, pieces: list[Json]) -> list[int]:
    """Send what a server is told of one request's body; return the status of each answer."""
    told, statuses = iter(pieces), list[int]()

    async def receive() -> Json:
        return next(told)

    async def send(message: Json) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    path = f"{_PLANTS}/items"
    scope = {
        "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"}, "http_version": "1.1",
        "method": "PUT", "path": path, "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"content-type", b"application/json")], "root_path": "",
        "scheme": "http", "server": ("test", 80), "client": ("test", 1),
    }  # fmt: skip
    client.run(client.app(scope, receive, send))
    return statuses


def body_pieces(item_id: str) -> list[Json]:
    """Return a put of one item as a server tells of it, three bytes at a time."""
    body = b'{"items": [{"id": "%b", "vector": [1, 2, 3, 4]}]}' % item_id.encode()
    parts = [body[at : at + 3] for at in range(0, len(body), 3)]
    return [
        {"type": "http.request", "body": part, "more_body": number < len(parts)}
        for number, part in enumerate(parts, 1)
    ]


def test_a_body_that_comes_in_pieces_is_read_to_its_end(client: Client) -> None:
    assert sent_in_pieces(client, body_pieces("new")) == [200]
    assert client.get(f"{_PLANTS}/items/new").json()["vector"] == [1, 2, 3, 4]


def test_a_sender_that_goes_away_before_the_end_has_stored_nothing(client: Client) -> None:
    pieces = [*body_pieces("new")[:-1], {"type": "http.disconnect"}]
    assert sent_in_pieces(client, pieces) == [400]
    assert client.get(f"{_PLANTS}/items/new").status_code == 404


def test_requests_are_counted_by_their_routes_pattern(client: Client) -> None:
    client.post(f"{_PLANTS}/query", json={"vector": [1, 2, 3, 4]})
    text = client.get("/metrics").text
    assert 'gcws_request_seconds_count{method="POST",route="/v1/collections/{name}/query"' in text


def test_an_error_nobody_expects_is_a_problem_and_its_traceback_is_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("gcws_search.service.api.query.request_of", fail)
    got = client.post(f"{_PLANTS}/query", json={"vector": [1, 2, 3, 4]})
    assert got.status_code == 500
    assert got.json()["code"] == "internal_error"
    assert "unforeseen" not in got.text
    assert "unforeseen" in caplog.text


@pytest.mark.parametrize("path", ["/v1/collections", _PLANTS, f"{_PLANTS}/items", "/livez"])
def test_a_path_with_a_slash_at_its_end_is_the_path_without_it(client: Client, path: str) -> None:
    with_slash = client.get(f"{path}/")
    assert with_slash.status_code == 200
    assert with_slash.content == client.get(path).content


def test_requests_with_a_body_may_have_a_slash_at_the_end(client: Client) -> None:
    body = {"vector": [0.1, -2, 0, 3], "limit": 1}
    answer = client.post(f"{_PLANTS}/query/", json=body)
    assert [hit["id"] for hit in answer.json()["hits"]] == ["a"]
    assert client.post(f"{_PLANTS}/items/delete/", json={"ids": ["a"]}).json() == {"deleted": 1}
    assert client.put("/v1/collections/new/", json={"dim": 4}).status_code == 201
    assert client.delete("/v1/collections/new").status_code == 204


@pytest.mark.parametrize("item_id", [".", ".."])
def test_the_path_of_an_item_of_dots_deletes_no_collection(client: Client, item_id: str) -> None:
    """Clients fold such a path."""
    client.put(f"{_PLANTS}/items", json={"items": [{"id": item_id, "vector": [1, 1, 1, 1]}]})
    folded = {".": f"{_PLANTS}/items/", "..": f"{_PLANTS}/"}[item_id]
    assert client.delete(folded).status_code in (404, 405)
    assert client.get(_PLANTS).status_code == 200
    encoded = f"{_PLANTS}/items/{item_id.replace('.', '%2E')}"
    assert client.get(encoded).json()["id"] == item_id
    assert client.delete(encoded).status_code == 204
    assert client.get(encoded).status_code == 404


def test_a_slash_at_the_end_of_an_id_belongs_to_it(client: Client) -> None:
    client.put(f"{_PLANTS}/items", json={"items": [{"id": "a/", "vector": [9, 9, 9, 9]}]})
    assert client.get(f"{_PLANTS}/items/a/").json()["vector"] == [9, 9, 9, 9]
    assert client.get(f"{_PLANTS}/items/a").json()["vector"] != [9, 9, 9, 9]
    assert_problem(client.delete(f"{_PLANTS}/items/"), 404, "route_not_found")
    assert client.get(f"{_PLANTS}/items/a/").status_code == 200


def test_a_slash_makes_no_path_of_none(client: Client) -> None:
    assert_problem(client.get("/v1/nothing/"), 404, "route_not_found")
    assert client.get("/").json() == client.get("/v1").json()
    assert_problem(client.get(f"{_PLANTS}//"), 404, "route_not_found")


def test_middleware_that_is_added_reaches_every_route(data_dir: Path) -> None:
    app, seen = create_app(Settings(data_dir=data_dir, threads=1)), list[str]()

    class Recorder:
        """Notes the path of every request."""

        def __init__(self, app: ASGIApp) -> None:
            self._app = app

        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] == "http":
                seen.append(scope["path"])
            await self._app(scope, receive, send)

    app.add_middleware(Recorder)
    client = Client(app)
    client.start()
    try:
        client.wait_until_ready()
        fill(client)
        asked = [path for _, path, _ in requests()]
        seen.clear()
        for method, path, body in requests():
            client.request(method, path, **({} if body is None else {"json": body}))
    finally:
        client.stop()
    assert seen == [httpx.URL(path).path for path in asked]
