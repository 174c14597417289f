"""The page in a browser: ``GCWS_CHROMIUM=/usr/bin/chromium python -m benchmarks.service.page``.

Shows a million items: how soon something is painted, how soon a click is answered, how many
frames a second a map has, and what an open page costs the server. Then the first pictures of
``gcws-search demo``.
"""

import gzip
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np
from playwright.sync_api import Browser, Error, Locator, Page, sync_playwright

import gcws_search
from benchmarks.harness.client import HOST
from benchmarks.harness.report import Table, arguments
from benchmarks.harness.server import free_port, serving
from benchmarks.service.http import lists_seconds
from gcws_search.service.api.page import read_files

NAME: Final = "million"
ROWS: Final = 1_000_000
DIM: Final = 16
CENTRES: Final = 200
GROUPS: Final = 20
REPEATS: Final = 7
OPEN_SECONDS: Final = 30
PATIENCE_MILLISECONDS: Final = 300_000
LEFT_OUT: Final = ("swagger", "smiles", "docs")
ANSWERED: Final = """
selector => { window.answered = new Promise(done => addEventListener("click", () => {
  const began = performance.now();
  const look = () => document.querySelector(selector)
    ? requestAnimationFrame(() => done(performance.now() - began)) : setTimeout(look, 2);
  setTimeout(look);
}, { once: true, capture: true })); }
"""
FRAMES: Final = """
() => new Promise(done => { let count = 0; const began = performance.now();
  const turn = () => { count += 1; const past = performance.now() - began;
    past < 3000 ? requestAnimationFrame(turn) : done(1000 * count / past); };
  turn(); })
"""
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def fill(port: int) -> None:
    """Store clustered rows with a payload each."""
    rng = np.random.default_rng(0)
    centres = 3 * rng.normal(size=(CENTRES, DIM))
    rows = centres[rng.integers(CENTRES, size=ROWS)] + rng.normal(size=(ROWS, DIM))
    with gcws_search.connect(f"http://{HOST}:{port}") as server:
        groups = rng.integers(GROUPS, size=ROWS)
        server.collection(NAME, dim=DIM).add(rows.astype(np.float32), payloads={"group": groups})


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def share(pid: int) -> str:
    """Return the share of a core that a process has for a while."""
    began, before = perf_counter(), processor_seconds(pid)
    time.sleep(OPEN_SECONDS)
    return f"{(processor_seconds(pid) - before) / (perf_counter() - began):.2%}"


def answered_ms(page: Page, place: Locator, selector: str) -> float:
    """Return the milliseconds from a click to the frame that shows what it asks for."""
    page.evaluate(ANSWERED, selector)
    place.click()
    return float(page.evaluate("window.answered"))


@contextmanager
def opened(browser: Browser, url: str) -> Iterator[Page]:
    """Open an address in a tab that remembers nothing."""
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    context.set_default_timeout(PATIENCE_MILLISECONDS)
    page = context.new_page()
    page.goto(url)
    yield page
    context.close()


def several(measure: Callable[[], float]) -> str:
    """Return the median and the longest of several milliseconds."""
    times = [measure() for _ in range(REPEATS)]
    return f"{statistics.median(times):.0f} ms, longest {max(times):.0f} ms"


def clicks(table: Table, browser: Browser, url: str) -> None:
    """Measure what is seen of the collection, and when."""

    def painted() -> float:
        with opened(browser, f"{url}#/{NAME}/browse") as page:
            page.locator(".hit").first.wait_for()
            return float(page.evaluate(PAINTED))

    def click(view: str, place: str, selector: str) -> float:
        with opened(browser, f"{url}#/{NAME}/{view}") as page:
            page.locator(place).first.wait_for()
            page.wait_for_load_state("networkidle")
            return answered_ms(page, page.locator(place).first, selector)

    hits = ".tiles[aria-label=Hits] .hit"
    table.add("first paint", several(painted), "under 1 s")
    for what, where in {
        "an item, to its hits": ("browse", ".hit .main", hits),
        "why, to the two bars": ("query?id=5", ".hit .links a", ".fraction"),
        "a payload key, to its values": ("browse", ".facet summary", ".value"),
        "Map, to its points": ("browse", "nav a[href$='/map']", ".plane"),
    }.items():
        taken = several(lambda where=where: click(*where))  # type: ignore[misc]
        table.add(what, taken, "under 300 ms")


def maps(table: Table, browser: Browser, url: str) -> None:
    """Measure frames a second of a map while the server arranges it."""
    with opened(browser, f"{url}#/{NAME}/map?sample=20000") as page:
        page.locator(".arranging").wait_for()
        table.add("a map of 20,000 while it is arranged", f"{page.evaluate(FRAMES):.0f} frames/s",
                  "50 frames/s")  # fmt: skip


def open_pages(table: Table, browser: Browser, url: str, pid: int) -> None:
    """Measure what a page that is left open costs the server."""
    table.add("the server, nobody there, of a core", share(pid), "")
    for what, view in {"overview": "", "query": f"#/{NAME}/query?id=5"}.items():
        with opened(browser, f"{url}{view}") as page:
            page.wait_for_load_state("networkidle")
            table.add(f"the same with the {what} left open", share(pid), "under 1 %")


def demo(table: Table, browser: Browser) -> None:
    """Measure from the command to the first pictures, kernels cached."""
    port = free_port()
    began = perf_counter()
    command = [sys.executable, "-m", "gcws_search", "demo", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        with opened(browser, "about:blank") as page:
            while True:
                try:
                    page.goto(f"http://{HOST}:{port}/")
                    break
                except Error:
                    time.sleep(0.05)
            table.add("demo, to the page", f"{perf_counter() - began:.1f} s", "under 8 s")
            page.locator(".card canvas").first.wait_for()
            table.add("demo, to pictures on it", f"{perf_counter() - began:.1f} s", "under 8 s")
        process.terminate()


def main() -> None:
    """Measure, and print the table."""
    options = arguments(str(__doc__), data=False).parse_args()
    table = Table("page", ("what", "measured", "goal"))
    sizes = [
        len(gzip.compress(body))
        for name, body in read_files().items()
        if not any(word in name for word in LEFT_OUT)
    ]
    table.add("all files but molecules, gzip", f"{sum(sizes) / 1e3:.1f} kB", "under 130 kB")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        executable = os.environ["GCWS_CHROMIUM"]
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=executable, args=flags)
        with serving(Path(folder)) as server:
            fill(server.port)
            lists_seconds(server, NAME)
            url = f"http://{HOST}:{server.port}/"
            clicks(table, browser, url)
            maps(table, browser, url)
            open_pages(table, browser, url, server.pid)
        demo(table, browser)
        browser.close()
    table.notes.append(f"{ROWS:,} × {DIM} items. {REPEATS} times each, each in a tab of its own.")
    table.publish(options, threads="1 server process, 1 browser")


if __name__ == "__main__":
    main()
