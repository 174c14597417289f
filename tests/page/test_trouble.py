"""Bad input, hostile payloads, keys, a prefix, and a server that goes away and comes back."""

import contextlib
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
from starlette.types import ASGIApp, Receive, Scope, Send

from gcws_search.service.app import create_app
from gcws_search.service.settings import Settings
from tests.page.conftest import HOSTILE
from tests.support.service.browser import OpenTab
from tests.support.service.client import START_SECONDS
from tests.support.service.live_server import serving

BAD: Final = (
    ("#/nothing/browse", "no collection is named 'nothing'"),
    ("#/points/item?id=none", "no item has the id 'none'"),
    ("#/points/query?id=none", "no item has the id 'none'"),
    ("#/points/query?row=1,2,3", "expected 16 values, got 3"),
    ("#/points/query?row=1,x", 'expected numbers, or index:number, got "x"'),
    ("#/points/query?id=1&filter={", "filter: expected JSON"),
    ('#/points/query?id=1&filter={"must":[{"key":1}]}', "key"),
    ('#/points/browse?filter={"mist":[]}', "mist"),
    ("#/points/browse?filter={", "filter"),
    ("#/points/query?id=1&limit=0", "limit"),
    ("#/points/map?sample=some", "sample: expected an integer, got 'some'"),
    ("#/points/backends?sample=some", "sample: expected an integer"),
    ("#/points/why?b=1", "expected an id, a row or names, got none of them"),
    ("#/points/item", "ids: expected 1 to 255 characters, got 0"),
    ("#/points/query?id=1&recall=some", "recall: expected a number, got 'some'"),
    ("#/points/nonsense", None),
    ("#/%E0%A4%A/browse?x=%", None),
)
"""Addresses, and what is said of them, if anything."""


def test_what_is_wrong_is_said_and_the_page_stays(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected += ["status of 404", "status of 422", "status of 400"]
    for address, words in BAD:
        page = here.go(address)
        if words:
            page.get_by_role("alert").get_by_text(words).first.wait_for()
        page.get_by_role("link", name="gcws-search").click()
        page.get_by_role("heading", name="Collections").wait_for()


def test_a_filter_that_is_none_is_told_beside_its_field(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected.append("status of 422")
    page = here.open("#/points/browse")
    page.get_by_text("Filter as JSON").click()
    field = page.get_by_label("Only items whose payload passes")
    field.fill("{nonsense")
    page.get_by_role("button", name="Apply filter").click()
    page.locator(".filter").get_by_role("alert").wait_for()
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill('{"must": {"key": "group", "match": {"value": 3}}}')
    page.get_by_role("button", name="Apply filter").click()
    page.get_by_role("button", name="Remove group = 3").wait_for()


def test_payloads_are_text_whatever_is_in_them(url: str, tab: OpenTab) -> None:
    here = tab(url)
    for view, shown in (
        ("browse", ".hit"), ("browse?as=table", "tbody tr"), ("query?id=long", ".hit"),
        ("map", ".plane"),
    ):  # fmt: skip
        page = here.go(f"#/hostile/{view}")
        page.locator(shown).first.wait_for()
        assert "owned" not in page.title()
        assert (
            page.locator("main script, main iframe, main svg:not([role]), main [onerror]").count()
            == 0
        )
        links = page.locator("a").evaluate_all("(all) => all.map((a) => a.protocol)")
        assert set(links) <= {"http:", "https:"}
    here.go("#/hostile/browse")
    page.get_by_text("8 items").wait_for()
    here.look("hostile")
    assert page.get_by_text("<img src=x").count() >= 1
    expect(page.get_by_role("link", name="open link")).to_have_count(1)
    for item in HOSTILE:
        page.locator(f"[data-tile={quoted(item['id'])}] a.quiet").last.click()
        expect(page.locator(".tag bdi")).to_have_text(item["id"])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), item["id"]
        if item["id"] == "long":
            page.get_by_role("button", name="more (1,000,000 characters)").click()
            assert len(page.locator("td bdi", has_text="long text").inner_text()) == 2401
        page.go_back()
        page.locator(".hit").first.wait_for()


def quoted(text: str) -> str:
    """Return a text as CSS has it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def test_what_no_page_may_do_is_noticed(url: str, tab: OpenTab) -> None:
    here = tab(url)
    page = here.open()
    page.get_by_role("heading", name="Collections").wait_for()
    for program in (
        "fetch('https://example.org/').catch(() => {})",
        "new Image().src = 'https://example.org/x.png'",
        "document.body.append(Object.assign(document.createElement('script'), {text: '1'}))",
        "document.body.setAttribute('style', 'color: red')",
        "setTimeout(() => { throw new Error('thrown') })",
    ):
        assert not here.faults
        page.evaluate(f"() => {{ {program} }}")
        for _ in range(1000):
            if here.faults:
                break
            page.wait_for_timeout(20)
        assert here.faults, program
        here.faults.clear()


# Servers of other kinds


class Behind:
    """A proxy that serves an application below a prefix, which it takes off; it asks as itself."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            path = scope["path"]
            inner = path.removeprefix(self._prefix) if path.startswith(self._prefix) else "/none"
            headers = [(k, b"inner" if k == b"host" else v) for k, v in scope["headers"]]
            changed = {"path": inner, "raw_path": inner.encode(), "headers": headers}
            scope = {**scope, **changed}
        await self._app(scope, receive, send)


@contextlib.contextmanager
def served(data_dir: Path, port: int = 0, prefix: str = "", **settings: object) -> Iterator[str]:
    """Serve a collection of three items; yield the address."""
    app = create_app(Settings.model_validate({"data_dir": data_dir, "threads": 1, **settings}))
    bound = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{bound.getsockname()[1]}{prefix}"
    with serving(Behind(app, prefix) if prefix else app, bound):
        with httpx.Client(base_url=url, timeout=60, headers={"X-API-Key": "admin"}) as client:
            client.get("/livez")
            assert app.state.service.startup.wait(START_SECONDS)
            client.put("/v1/collections/three", json={"dim": 2})
            items = [{"id": i, "vector": [i + 1, 2]} for i in range(3)]
            client.put("/v1/collections/three/items", json={"items": items})
        yield url


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Return what serves as `served` does; asked for before `tab`, it ends after the tabs."""
    with contextlib.ExitStack() as servers:
        yield lambda **settings: servers.enter_context(served(tmp_path, **settings))


def give(page: Page, key: str) -> None:
    """Type a key into the dialog that asks for one."""
    page.get_by_role("textbox", name="Key").fill(key)
    page.get_by_role("button", name="Use this key").click()


def test_a_key_is_asked_for_once_and_a_read_only_one_hides_what_writes(
    serve: Callable[..., str], tab: OpenTab
) -> None:
    url = serve(api_key="admin", read_only_api_key="reader")
    here = tab(url)
    here.expected += ["status of 401", "status of 403"]
    page = here.open("#/three/load")
    page.get_by_role("dialog").wait_for()
    here.look("key")
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    give(page, "wrong")
    page.get_by_role("alert").wait_for()
    give(page, "reader")
    page.get_by_text("Needs a key that writes").wait_for()
    page.get_by_text("read only").wait_for()
    expect(page.get_by_role("button", name="Make a snapshot")).to_have_count(0)
    page.reload()
    page.get_by_text("Needs a key that writes").wait_for()
    expect(page.get_by_role("dialog")).to_have_count(0)
    assert "reader" not in page.url
    other = tab(url)
    other.expected += ["status of 401", "status of 403"]
    page = other.open("#/three/load")
    give(page, "admin")
    page.get_by_role("button", name="Make a snapshot").wait_for()
    page.evaluate("for (const key of ['other', 'gcws-deleted x']) sessionStorage[key] = 1")
    page.get_by_role("button", name="Forget key").click()
    page.get_by_role("dialog").wait_for()
    assert page.evaluate("Object.keys(sessionStorage)") == ["other"]


def test_a_refusal_that_comes_before_the_first_frame_asks_for_a_key(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.page.add_init_script("""
        const ready = () => new Response('{"phase": "ready"}');
        const refused = () => new Response("{}", { status: 401 });
        fetch = async (url) => (url.pathname.endsWith("livez") ? ready() : refused());
        requestAnimationFrame = (then) => setTimeout(then, 1000);
    """)
    here.open("#/points/load").get_by_role("dialog").wait_for()
    here.page.close()  # a script for all that it opens goes with it alone


def test_a_refusal_that_comes_after_the_key_was_given_asks_for_no_other(
    serve: Callable[..., str], tab: OpenTab
) -> None:
    here = tab(serve(api_key="admin"))
    here.expected += ["status of 401"]
    late: list[Route] = []

    def hold_the_first(route: Route) -> None:
        if late:
            route.fallback()
        late.append(route)

    here.page.route(re.compile("/v1/collections"), hold_the_first)
    page = here.open()
    give(page, "admin")
    expect(page.get_by_role("dialog")).to_have_count(0)
    late[0].fulfill(status=401, body="{}")
    page.get_by_role("link", name="three", exact=True).wait_for()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_below_a_prefix_all_is_as_it_is_at_the_root_and_the_api_page_knows_the_key_of_the_tab(
    serve: Callable[..., str], tab: OpenTab
) -> None:
    here = tab(serve(prefix="/some/place", api_key="admin"))
    here.expected += ["status of 401"]
    page = here.open("#/three/query?id=1")
    give(page, "admin")
    expect(page.locator(".found strong")).to_have_text("2 of 2")
    page.get_by_role("link", name="API").click()
    page.get_by_text("/v1/collections", exact=True).first.click()
    page.get_by_role("button", name="Try it out").click()
    page.get_by_role("button", name="Execute").click()
    page.locator(".live-responses-table", has_text='"three"').wait_for()


def test_each_view_says_how_long_a_start_goes_on(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected += ["status of 503"]
    start = {"phase": "compiling", "loaded": 3, "total": 14, "seconds_left": 41.2}

    def answer(route: Route) -> None:
        route.fulfill(status=200 if route.request.url.endswith("livez") else 503, json=start)

    here.page.route(re.compile(r"/(livez|readyz)$"), answer)
    for view in ("#/", "#/pictures/browse"):
        here.open(view)
        said = here.page.locator(".starting")
        expect(said).to_contain_text("compiling kernels")
        expect(said).to_contain_text("3 of 14, about 41 s more")
    here.look("starting")
    here.page.unroute_all(behavior="ignoreErrors")
    expect(said).to_have_count(0)


def test_the_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back(
    tmp_path: Path, tab: OpenTab
) -> None:
    with served(tmp_path) as url:
        here = tab(url)
        here.expected += ["ERR_", "status of 503"]
        here.page.route("**/browse.js", lambda route: route.abort())  # as if it goes before that
        page = here.open("#/three/query?id=1")
        expect(page.locator(".found strong")).to_have_text("2 of 2")
        page.wait_for_load_state("networkidle")
    expect(page.locator(".away")).to_have_text(re.compile(r"not answered since \d+:\d+:\d+\b.*\."))
    page.get_by_role("link", name="Data").click()
    page.get_by_role("button", name="Make a snapshot").click()
    page.get_by_role("alert").get_by_text("The server does not answer.").wait_for()
    page.get_by_role("link", name="Browse").click()
    page.get_by_role("alert").get_by_text("browse.js").wait_for()
    page.unroute("**/browse.js")
    loading = {"code": "loading", "detail": "three is loaded"}
    page.route(
        re.compile("limit=48"), lambda route: route.fulfill(status=503, json=loading), times=1
    )
    with served(tmp_path, port=int(url.rpartition(":")[2])):
        page.get_by_text("3 items").wait_for()
        expect(page.locator(".away")).to_have_count(0)
        expect(page.locator(".hit")).to_have_count(3)
