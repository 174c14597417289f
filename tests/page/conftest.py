"""A browser a module, and a server for all, with collections that the page can show."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest
from playwright.sync_api import BrowserContext, FilePayload, Page

from tests.support.service.browser import OpenTab, Tab, launched
from tests.support.service.client import Json
from tests.support.service.live_server import listening
from tests.support.waiting import wait_until

VARIABLE: Final = "GCWS_CHROMIUM"
FAMILIES: Final = ("round", "square", "flat")
POINTS: Final = 2200
"""A few more than a graph is built from."""
SCRIPT: Final = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
)
HOSTILE: Final[list[dict[str, Json]]] = [
    {"id": SCRIPT, "payload": {"title": SCRIPT, "url": "javascript:document.title='owned'"}},
    {"id": "a/b?c#d&e=f %00 ünï", "payload": {"title": "plain", "url": "https://example.org/x"}},
    {"id": "right", "payload": {"title": "\u202egnp.exe", "says": "שלום عالم " * 5}},
    {"id": "..", "payload": {"title": "two dots"}},
    {"id": "long", "payload": {"title": "x" * 5000, "says": "long text " * 100_000}},
    {"id": "smile", "payload": {"title": "👩", "url": "data:text/html,<b>1"}},
    {"id": "__proto__", "payload": {"__proto__": {"title": "x"}, "constructor": 1, "title": None}},
    {"id": "style" * 51, "payload": {"title": "</style></title><svg onload=alert(1)>", "n": [{}]}},
]  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where none is named."""
    if not os.environ.get(VARIABLE):
        skip = pytest.mark.skip(reason=f"{VARIABLE} names no browser")
        for item in items:
            if Path(__file__).parent in item.path.parents:
                item.add_marker(skip)


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    """Return a browser; no longer than a module, for its event loop runs in this thread."""
    with launched(os.environ[VARIABLE]) as started:
        yield started


@pytest.fixture(scope="module")
def tabs() -> list[Tab]:
    """Return the tabs that no test has."""
    return []


@pytest.fixture
def tab(
    browser: BrowserContext, tabs: list[Tab], request: pytest.FixtureRequest
) -> Iterator[OpenTab]:
    """Return what gives tabs, each of which may do nothing that no tab may do."""
    folder = request.config.getoption("--screenshots")
    screenshots = Path(folder) if folder else None
    if screenshots:
        screenshots.mkdir(parents=True, exist_ok=True)
    given: list[Tab] = []

    def start(url: str) -> Tab:
        given.append(tabs.pop() if tabs else Tab(browser, screenshots))
        given[-1].url = url
        return given[-1]

    yield start
    for each in given:
        each.leave()
    tabs += [each for each in given if not each.page.is_closed()]


def put(client: httpx.Client, name: str, config: Json, items: list[Json]) -> None:
    """Create a collection with items."""
    assert client.put(f"/v1/collections/{name}", json=config).status_code == 201
    for first in range(0, len(items), 1000):
        chunk = {"items": items[first : first + 1000]}
        answer = client.put(f"/v1/collections/{name}/items", json=chunk)
        assert answer.status_code == 200, answer.text


def fill(url: str) -> None:
    """Create a collection of each kind that the page shows in its own way."""
    rng = np.random.default_rng(7)
    with httpx.Client(base_url=url, timeout=60) as client:
        pictures = rng.gamma(1.0, 4.0, (60, 8, 8)) * (rng.random((60, 8, 8)) < 0.5)
        put(client, "pictures", {"dim": 64}, [
            {"id": i, "vector": picture.ravel().tolist(), "payload": {"family": FAMILIES[i % 3]}}
            for i, picture in enumerate(pictures)
        ])  # fmt: skip
        words = ["hash", "table", "graph", "recall", "curve", "score", "filter", "query"]
        texts = [rng.choice(words, 6).tolist() for _ in range(30)]
        put(client, "texts", {"dim": None}, [
            {"id": f"t{i}", "vector": {"names": [*set(text)]}, "payload": {"says": " ".join(text)}}
            for i, text in enumerate(texts)
        ])  # fmt: skip
        centres = rng.normal(size=(12, 16)) * 3
        points = centres[rng.integers(12, size=POINTS)] + rng.normal(size=(POINTS, 16))
        put(client, "points", {"dim": 16}, [
            {"id": i, "vector": point.tolist(), "payload": {"group": i % 7}}
            for i, point in enumerate(points)
        ])  # fmt: skip
        put(client, "hostile", {"dim": 3}, [
            {**item, "vector": [i + 1, 1, 2]} for i, item in enumerate(HOSTILE)
        ])  # fmt: skip
        smiles = ["CCO", "c1ccccc1O", "CC(=O)Oc1ccccc1C(=O)O", "not a molecule ((", "C1CCCCC1N"]
        put(client, "molecules", {"dim": 8}, [
            {"id": f"m{i}", "vector": [1 + i, 2, 0, 1, 0, 0, 1, i], "payload": {"smiles": text}}
            for i, text in enumerate(smiles)
        ])  # fmt: skip
        put(client, "empty", {"dim": None}, [])
        put(client, "notes", {"text": {"weights": "counts"}}, [
            {"id": f"n{i}", "text": " ".join(text), "payload": {"n": i}}
            for i, text in enumerate(texts)
        ])  # fmt: skip
        put(client, "scanned", {"dim": 1, "backend": {"kind": "exact"}}, [
            {"id": "only", "vector": [3], "payload": {"deep": {"list": [1, {"x": None}]}}}
        ])  # fmt: skip
        wait_until(lambda: client.get("/v1/collections/points/curve").json()["points"])


def choose_file(page: Page, name: str, content: bytes) -> None:
    """Choose a file to load."""
    file: FilePayload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    page.get_by_label("File to load").set_input_files(file)


@pytest.fixture(scope="package")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server with collections of many kinds."""
    with listening(tmp_path_factory.mktemp("data")) as port:
        address = f"http://127.0.0.1:{port}"
        fill(address)
        yield address
