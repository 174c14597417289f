"""An application without a network: its start and end, requests to it, what they must answer."""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import httpx
from fastapi import FastAPI

from gcws_search.index import POLICIES, Policies, StoredCollection
from gcws_search.service.app import create_app, open_catalog
from gcws_search.service.settings import Settings

START_SECONDS = 600
"""The first start on a machine compiles kernels."""

URL = "/v1/collections/plants"
VECTOR = [0.1, -2, 0, 3]
FOUR = ["acidity", "body", "sweetness", "bitterness"]
"""Names of coordinates."""
Json: TypeAlias = Any
AnyClient = TypeVar("AnyClient", bound="Client")


class Client:
    """Sends requests to an application on an event loop of its own.

    ``store`` is the class whose ``commit`` stores writes.
    """

    store: type[Json] = StoredCollection

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._stopped = False
        self._runner = asyncio.Runner()
        self._lifespan: AbstractAsyncContextManager[Json] = app.router.lifespan_context(app)
        transport = httpx.ASGITransport(app)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://test", timeout=60)

    def start(self) -> None:
        try:
            self._runner.run(self._lifespan.__aenter__())
        except BaseException:
            self._runner.close()
            raise

    def wait_until_ready(self) -> None:
        assert self.app.state.service.startup.wait(START_SECONDS)

    def stop(self) -> None:
        """End the application; once is enough."""
        if self._stopped:
            return
        self._stopped = True
        self._runner.run(self.http.aclose())
        self._runner.run(self._lifespan.__aexit__(None, None, None))
        self._runner.close()

    def request(self, method: str, url: str, **more: Json) -> httpx.Response:
        return self._runner.run(self.http.request(method, url, **more))

    def get(self, url: str, **more: Json) -> httpx.Response:
        return self.request("GET", url, **more)

    def put(self, url: str, **more: Json) -> httpx.Response:
        return self.request("PUT", url, **more)

    def post(self, url: str, **more: Json) -> httpx.Response:
        return self.request("POST", url, **more)

    def delete(self, url: str, **more: Json) -> httpx.Response:
        return self.request("DELETE", url, **more)

    def at_once(self, method: str, asked: Iterable[tuple[str, Json]]) -> list[httpx.Response]:
        """Send bodies of JSON to URLs, all at the same time."""

        async def ask() -> list[httpx.Response]:
            return await asyncio.gather(
                *(self.http.request(method, url, json=body) for url, body in asked)
            )

        answers: list[httpx.Response] = self.run(ask())
        return answers

    def speak(self, method: str, path: str, receive: Json, send: Json, **headers: str) -> None:
        """Make a request as a server does it, message by message."""
        path, _, query = path.partition("?")
        scope = {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1", "method": method, "path": path, "raw_path": path.encode(),
            "query_string": query.encode(), "root_path": "", "scheme": "http",
            "server": ("test", 80), "client": ("test", 1),
            "headers": [(key.replace("_", "-").encode(), headers[key].encode()) for key in headers],
        }  # fmt: skip
        self.run(self.app(scope, receive, send))

    def finish_background_work(self, name: str) -> None:
        """Return when nothing is computed any more for a collection."""
        self.app.state.service.collection(name).finish_background_work()

    def run(self, work: Json) -> Json:
        """Run a coroutine on the application's loop."""
        return self._runner.run(work)


def application(
    data_dir: Path, *, policies: Policies = POLICIES, **settings: Json
) -> tuple[FastAPI, Settings]:
    """Return an application on a directory, and its settings."""
    # Which queries are audited is drawn at random, and what is explained of the next ones shows it.
    defaults: dict[str, Json] = {"threads": 1, "durability": "normal", "audit_share": 0.0}
    chosen = Settings(data_dir=data_dir, **(defaults | settings))
    catalog = None if policies is POLICIES else open_catalog(chosen, policies=policies)
    return create_app(chosen, catalog=catalog), chosen


def started(data_dir: Path, *, policies: Policies = POLICIES, **settings: Json) -> Client:
    """Return a client of an application that is starting on a directory."""
    client = Client(application(data_dir, policies=policies, **settings)[0])
    client.start()
    return client


@contextmanager
def running(client: AnyClient) -> Iterator[AnyClient]:
    """Have an application started and ready until the block ends."""
    client.start()
    try:
        client.wait_until_ready()
        yield client
    finally:
        client.stop()


Serve = Callable[..., Client]
"""Takes settings by keyword; starts an application after ending the one before."""


async def chunked(data: bytes, size: int = 100) -> AsyncIterator[bytes]:
    """Yield a body piece by piece, so that its length is not announced."""
    for first in range(0, len(data), size):
        yield data[first : first + size]


ITEMS: list[dict[str, Json]] = [
    {"id": "a", "vector": [0.1, -2, 0, 3], "payload": {"label": 3}},
    {"id": "b", "vector": [1, 0, 0, 1], "payload": {"label": 1, "tags": ["x", "y"]}},
    {"id": "c", "vector": {"indices": [3, 1], "values": [2.5, -2]}},
    {"id": 7, "vector": [-1, -1, -1, -1], "payload": {"label": 3, "price": 2.5}},
]


def fill(client: Client, name: str = "plants", **config: Json) -> None:
    """Create a collection of dim 4 that holds `ITEMS`."""
    created = client.put(f"/v1/collections/{name}", json={"dim": 4, **config})
    assert created.status_code in (200, 201), created.text
    put = client.put(f"/v1/collections/{name}/items", json={"items": ITEMS})
    assert put.status_code == 200, put.text


def count(client: Client, name: str = "plants") -> int:
    items: int = client.get(f"/v1/collections/{name}").json()["items"]
    return items


def put(client: Client, *items: Json) -> httpx.Response:
    return client.put(f"{URL}/items", json={"items": [*items]})


def hits(client: Client, vector: Json, **more: Json) -> Json:
    answer = client.post(f"{URL}/query", json={"vector": vector, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()["hits"]


def metric(client: Client, line: str, absent: float = math.nan) -> float:
    """Return the value of one line of the metrics, or what stands for a line that is absent."""
    lines = (each.rpartition(" ") for each in client.get("/metrics").text.splitlines())
    return next((float(value) for name, _, value in lines if name == line), absent)


def gmm(u: list[float], v: list[float]) -> float:
    """Σ min / Σ max over the positive and the negative parts."""
    parts = [(max(s * x, 0), max(s * y, 0)) for x, y in zip(u, v, strict=True) for s in (1, -1)]
    return sum(map(min, parts)) / sum(map(max, parts))


def assert_problem(
    response: httpx.Response, status: int, code: str, *words: str
) -> dict[str, Json]:
    """Check that an answer is this problem, and that its detail says these words."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert response.headers["x-request-id"]
    problem: dict[str, Json] = response.json()
    assert {"type", "title", "status", "detail", "code", "errors"} <= set(problem)
    assert problem["status"] == status
    assert problem["code"] == code, problem
    for word in words:
        assert word in problem["detail"], problem["detail"]
    assert "Traceback" not in response.text
    return problem
