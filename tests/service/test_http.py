"""Requests on their way to a route: paths, bodies in pieces, and what the framework would do."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from gcws_search.service.app import create_app
from gcws_search.service.http import Application
from gcws_search.service.settings import Settings
from tests.support.service.client import Client, Json, Serve, assert_problem, chunked, fill
from tests.support.service.routes import GUARDED, SENT, routes

_PLANTS: Final = "/v1/collections/plants"


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
        told = {"allow", "content-type", "retry-after", "location", "www-authenticate"}
        headers = {name: text for name, text in got.headers.items() if name in told}
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


def test_a_body_is_read_to_its_end_and_one_that_breaks_off_stores_nothing(client: Client) -> None:
    body = json.dumps({"items": [{"id": "new", "vector": [1, 2, 3, 4]}]}).encode()
    pieces = [{"type": "http.request", "body": body, "more_body": True}]
    statuses: list[int] = []

    async def receive() -> Json:
        return pieces.pop() if pieces else {"type": "http.disconnect"}

    async def send(message: Json) -> None:
        statuses.extend([message["status"]] if "status" in message else [])

    path, kind = f"{_PLANTS}/items", "application/json"
    client.speak("PUT", path, receive, send, content_type=kind)
    assert statuses == [400]
    assert client.get(f"{path}/new").status_code == 404
    whole = client.put(path, content=chunked(body, 3), headers={"Content-Type": kind})
    assert whole.json()["inserted"] == 1


def test_an_error_nobody_expects_is_a_problem_and_its_traceback_is_logged(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("gcws_search.service.api.query.request_of", fail)
    got = client.post(f"{_PLANTS}/query", json={"vector": [1, 2, 3, 4]})
    assert_problem(got, 500, "internal_error")
    assert "unforeseen" not in got.text
    assert "unforeseen" in caplog.text


def test_a_path_with_a_slash_at_its_end_is_the_path_without_it_but_for_ids(client: Client) -> None:
    for path in ("/v1/collections", _PLANTS, f"{_PLANTS}/items", "/livez"):
        with_slash = client.get(f"{path}/")
        assert with_slash.status_code == 200
        assert with_slash.content == client.get(path).content
    assert_problem(client.get("/v1/nothing/"), 404, "route_not_found")
    assert client.get("/").json() == client.get("/v1").json()
    assert_problem(client.get(f"{_PLANTS}//"), 404, "route_not_found")
    body = {"vector": [0.1, -2, 0, 3], "limit": 1}
    answer = client.post(f"{_PLANTS}/query/", json=body)
    assert [hit["id"] for hit in answer.json()["hits"]] == ["a"]
    assert client.post(f"{_PLANTS}/items/delete/", json={"ids": ["a"]}).json() == {"deleted": 1}
    assert client.put("/v1/collections/new/", json={"dim": 4}).status_code == 201
    assert client.delete("/v1/collections/new").status_code == 204
    client.put(f"{_PLANTS}/items", json={"items": [{"id": "a/", "vector": [9, 9, 9, 9]}]})
    assert client.get(f"{_PLANTS}/items/a/").json()["vector"] == [9, 9, 9, 9]
    assert_problem(client.get(f"{_PLANTS}/items/a"), 404, "item_not_found")
    assert_problem(client.delete(f"{_PLANTS}/items/"), 404, "route_not_found")
    assert client.get(f"{_PLANTS}/items/a/").status_code == 200


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
        answers(client)
    finally:
        client.stop()
    assert seen[2:] == [httpx.URL(path).path for _, path, _ in requests()]


# Names in paths

HOSTILE = [
    "..", "../outside", "../../outside", "/etc/passwd", "a/../../outside", "..\\outside", ".",
    ".hidden", "lock", "x" * 300, "a\x00b", "outside.sqlite-wal", "~", "-rf", "%2e%2e", "con\n",
    "\ud7ff", "file:outside?mode=rwc",
]  # fmt: skip
PLACES = ("name", "item_id:any_text", "backend", "snapshot")


def files(folder: Path) -> dict[str, bytes]:
    """Return what lies below a folder, but for what is inside the data directory."""
    outer = [path for path in folder.rglob("*") if "data" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in outer}


@pytest.mark.served(front="all")
def test_no_name_in_a_path_reaches_another_file(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "outside.sqlite").write_text("secret")
    client = serve()
    fill(client)
    before = files(tmp_path)
    for name, (method, path) in itertools.product(HOSTILE, GUARDED):
        for place in PLACES:
            if f"{{{place}}}" not in path:
                continue
            url = path.replace(f"{{{place}}}", quote(name, safe=""))
            for other in PLACES:
                known = {"name": "plants", "backend": "gcws"}.get(other, "other")
                url = url.replace(f"{{{other}}}", known)
            body = SENT.get(path) if method in ("PUT", "POST") else None
            answer = client.request(method, url, json=body)
            assert b"secret" not in answer.content
            assert b"root:" not in answer.content
            assert answer.status_code < 500, (method, url, answer.text)
    assert files(tmp_path) == before
