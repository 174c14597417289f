"""A browser's tab on the page of a service, and everything it did that no tab may do."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import pytest
from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Page,
    Request,
    expect,
    sync_playwright,
)

FLAGS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
"""Without these it would ask for other hosts, and for rights that a container does not have."""
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
WIDTHS: Final = (360, 1920)
_QUICK: Final = {"preload": False, "resultTypes": ["violations"]}
RULES: Final = {
    "light": {"runOnly": ["wcag2a", "wcag2aa", "best-practice"], **_QUICK},
    "dark": {"runOnly": {"type": "rule", "values": ["color-contrast"]}, **_QUICK},
}
"""What axe judges: all in light, and in dark what differs."""
JUDGED: Final = {
    "exclude": [[f"{many} > :nth-child(n+4)"] for many in (".tiles", ".strip", "tbody", ".bars")]
}
"""Of many that look alike axe judges three: to judge them all takes most of the time."""
JUDGE: Final = """async ([judged, rules]) => {
  await new Promise(requestAnimationFrame);
  const changing = document.getAnimations().filter((one) => one instanceof CSSTransition);
  await Promise.allSettled(changing.map((one) => one.finished));
  return (await axe.run(judged, rules)).violations;
}"""
"""Of another scheme the API page's colours come by transitions: axe waits for their end."""
PATIENCE_MILLISECONDS: Final = 60_000


@contextmanager
def launched(executable: str) -> Iterator[BrowserContext]:
    """Start a browser whose tabs share a cache, and end it."""
    expect.set_options(timeout=PATIENCE_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*FLAGS])
        context = browser.new_context(reduced_motion="reduce")
        context.set_default_timeout(PATIENCE_MILLISECONDS)
        yield context
        browser.close()


class Tab:
    """A tab with a session of its own, for one test after another: a new one takes a second.

    ``url``: of the service; a request to any other is a fault. ``screenshots``: folder for `look`.
    """

    def __init__(self, browser: BrowserContext, screenshots: Path | None) -> None:
        self.url = ""
        self.expected: list[str] = []
        self.faults: list[str] = []
        self._judging = False
        self._screenshots = screenshots
        self.page: Page = browser.new_page()
        self.page.on("request", self._asked)  # a route costs each request a turn of this process
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((self.url, "data:", "blob:")):
            self.faults.append(f"asked {request.url}")

    def _heard(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not self._judging:
            text = f"{message.text} ({message.location.get('url')})"
            if not any(words in text for words in self.expected):
                self.faults.append(text)

    def open(self, address: str = "") -> Page:
        """Go to an address of the page, as somebody who was sent it."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.url}/{address}")
        return self.page

    def go(self, address: str) -> Page:
        """Go to an address of the page as by a link, without loading the page anew."""
        self.page.goto(f"{self.url}/{address}")
        return self.page

    def look(self, name: str) -> None:
        """Judge what is shown by axe, in light and dark, narrow and wide; take pictures of it.

        Light is judged narrow and dark wide; with pictures each is judged at both widths.
        """
        found = []
        size = self.page.viewport_size
        self._judging = True  # axe and screenshots set styles that the page may not
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(AXE_SCRIPT)
        for number, scheme in enumerate(SCHEMES):
            self.page.emulate_media(color_scheme=scheme)
            for width in WIDTHS if self._screenshots else WIDTHS[number : number + 1]:
                self.page.set_viewport_size({"width": width, "height": 900})
                found += [
                    f"{name}, {scheme}, {width}: {each['id']}: {each['nodes'][0]['html'][:200]}"
                    for each in self.page.evaluate(JUDGE, [JUDGED, RULES[scheme]])
                ]
                if self._screenshots:
                    file = self._screenshots / f"{name}-{scheme}-{width}.png"
                    self.page.screenshot(path=file, full_page=True)
                assert not self._is_clipped(), f"{name} scrolls sideways at {width}"
        self.page.emulate_media(color_scheme="light")
        if size:
            self.page.set_viewport_size(size)
        self._judging = False
        assert not found, "\n".join(found)

    def _is_clipped(self) -> bool:
        wider = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        return bool(self.page.evaluate(wider))

    def leave(self) -> None:
        """Leave the page to no test; fail where it did what it may not."""
        if not self.page.is_closed():
            self.page.unroute_all(behavior="ignoreErrors")
            self.page.goto("about:blank")
            self.page.emulate_media(color_scheme="light")
        faults, self.faults, self.expected = self.faults, [], []
        if faults:
            pytest.fail("\n".join(faults))


OpenTab = Callable[[str], Tab]
"""Takes the address of a service."""
