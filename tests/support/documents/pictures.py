"""Pictures of the page for the docs: each view on the data of the demo, in light and in dark.

That of the README is *Why* in light.

``GCWS_CHROMIUM=/usr/bin/chromium python -m tests.support.documents.pictures`` takes them again
after a change of the page.
"""

import base64
import os
import re
import tempfile
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Page

from gcws_search.commands.demo import fill
from tests.support.documents.markdown import DOCS
from tests.support.service.browser import SCHEMES, launched
from tests.support.service.client import URL
from tests.support.service.live_server import listening
from tests.support.service.ports import HOST

FOLDER: Final = DOCS / "pictures"
SIZE: Final = (1200, 750)
README_SIZE: Final = (1100, 590)
QUALITY: Final = 60
VIEWS: Final = {
    "overview": ("#/", ".card canvas"),
    "browse": ("#/functions/browse", ".facet .figure"),
    "query": ("#/digits/query?id=0&limit=12", ".found strong"),
    "why": ("#/digits/why?a=0&b=877", ".fraction"),
    "duplicates": ("#/functions/duplicates", ".group .payload"),
    "map": ("#/digits/map", ".plane"),
    "understand": ("#/functions/understand", "section + section .verdict"),
    "backends": ("#/digits/backends", ".chart canvas"),
    "data": ("#/coffees/load", ".panel p"),
    "item": ("#/functions/item?id=shutil.copy", ".bars"),
    "audit": ("#/digits/audit", ".verdict"),
    "api": ("docs", ".opblock"),
}
"""The address of each view, and what is there once it is drawn."""


def show(page: Page, url: str, view: str) -> None:
    """Show a view as it looks once everything in it has come."""
    address, drawn = VIEWS[view]
    page.goto("about:blank")
    page.goto(f"{url}/{address}")
    page.locator(drawn).first.wait_for()
    page.wait_for_load_state("networkidle")
    if view == "map":
        page.locator(".arranging", has_text=re.compile("^$")).wait_for(state="attached")


def take(page: Page) -> bytes:
    """Return what is shown as WebP, which the browser makes and Playwright does not ask for."""
    session = page.context.new_cdp_session(page)
    asked = {"format": "webp", "quality": QUALITY}
    return base64.b64decode(session.send("Page.captureScreenshot", asked)["data"])


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    executable = os.environ["GCWS_CHROMIUM"]
    with tempfile.TemporaryDirectory() as folder, listening(Path(folder)) as port:
        url = f"http://{HOST}:{port}"
        httpx.delete(f"{url}{URL}").raise_for_status()
        fill(url)
        httpx.post(f"{url}/v1/collections/digits/backends", json={"kind": "rff"}, timeout=60)
        httpx.post(f"{url}/v1/collections/digits/backends", json={"kind": "nrff"}, timeout=60)
        httpx.post(f"{url}/v1/collections/coffees/snapshots").raise_for_status()
        with launched(executable) as browser:
            page = browser.new_page()
            page.set_viewport_size({"width": SIZE[0], "height": SIZE[1]})
            for view in VIEWS:
                for scheme in SCHEMES:
                    page.emulate_media(color_scheme=scheme)
                    show(page, url, view)
                    (FOLDER / f"{view}-{scheme}.webp").write_bytes(take(page))
            page.emulate_media(color_scheme="light")
            page.set_viewport_size({"width": README_SIZE[0], "height": README_SIZE[1]})
            show(page, url, "why")
            (DOCS / "page.webp").write_bytes(take(page))


if __name__ == "__main__":
    main()
