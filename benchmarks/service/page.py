"""The page in a browser: ``GCWS_CHROMIUM=/usr/bin/chromium python -m benchmarks.service.page``.

Shows a million items: how soon something is painted, how soon a click is answered, how soon an
item is found by the beginning of its id, how many frames a second a map has, and what an open page
costs the server. Then groups of near-copies among texts at another threshold, and the first
pictures of ``gcws-search demo``.
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
from benchmarks.service.http import graph_seconds
from gcws_search.service.api.page import read_files

NAME: Final = "million"
ROWS: Final = 1_000_000
DIM: Final = 16
CENTRES: Final = 200
GROUPS: Final = 20
TEXTS: Final = "texts"
ORIGINALS: Final = 40_000
COPIES: Final = 20_000
WORDS: Final = 20
REPEATS: Final = 7
OPEN_SECONDS: Final = 30
PATIENCE_MILLISECONDS: Final = 300_000
LEFT_OUT: Final = ("swagger", "smiles", "docs")
ANSWERED: Final = """
([event, selector, words]) => { window.answered = new Promise(done => addEventListener(event, _ => {
  const began = performance.now();
  const look = () => document.querySelector(selector)?.textContent.includes(words)
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


def fill_texts(port: int) -> None:
    """Store texts of random words; a third are copies with one to six words changed."""
    rng = np.random.default_rng(0)
    vocabulary = np.array([f"word{number}" for number in range(20_000)])
    words = rng.integers(len(vocabulary), size=(ORIGINALS, WORDS))
    copies = words[rng.choice(ORIGINALS, size=COPIES, replace=False)].copy()
    for row in copies:
        places = rng.choice(WORDS, size=rng.integers(1, 7), replace=False)
        row[places] = rng.integers(len(vocabulary), size=len(places))
    texts = [" ".join(row) for row in vocabulary[np.concatenate([words, copies])]]
    with gcws_search.connect(f"http://{HOST}:{port}") as server:
        server.collection(TEXTS, text={"tokens": "words"}).add(texts=texts)


def clicked_ms(page: Page, place: Locator, selector: str) -> float:
    """Return the milliseconds from a click to the frame that shows what it asks for."""
    page.evaluate(ANSWERED, ["click", selector, ""])
    place.click()
    return float(page.evaluate("window.answered"))


def entered_ms(page: Page, field: Locator, value: str, selector: str, words: str) -> float:
    """Return the milliseconds from an input to the frame that shows some words."""
    page.evaluate(ANSWERED, ["input", selector, words])
    field.fill(value)
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
    """Measure the times at which parts of the collection appear."""

    def painted() -> float:
        with opened(browser, f"{url}#/{NAME}/browse") as page:
            page.locator(".hit").first.wait_for()
            return float(page.evaluate(PAINTED))

    def click(view: str, place: str, selector: str) -> float:
        with opened(browser, f"{url}#/{NAME}/{view}") as page:
            page.locator(place).first.wait_for()
            page.wait_for_load_state("networkidle")
            return clicked_ms(page, page.locator(place).first, selector)

    def find() -> float:
        with opened(browser, f"{url}#/{NAME}/browse") as page:
            page.locator(".hit").first.wait_for()
            page.wait_for_load_state("networkidle")
            page.keyboard.press("/")
            return entered_ms(page, page.locator("[data-find]"), "77777", ".found-item", "77777")

    hits = ".tiles[aria-label=Hits] .hit"
    map_ = "nav a[href$='/map']"
    table.add("first paint", several(painted), "300 ms")
    for what, where, goal in (
        ("an item, to its hits", ("browse", ".hit .main", hits), 150),
        ("why, to the two bars", ("query?id=5", ".hit .links a", ".fraction"), 100),
        ("Map of 5,000, to its points", ("browse", map_, ".plane"), 800),
    ):
        taken = several(lambda where=where: click(*where))  # type: ignore[misc]
        table.add(what, taken, f"{goal} ms")
    table.add("the beginning of an id, to the item", several(find), "100 ms")


def groups(table: Table, browser: Browser, url: str) -> None:
    """Measure from another threshold to groups at it."""
    with opened(browser, f"{url}#/{TEXTS}/duplicates") as page:
        page.locator(".group .payload, .group .text").first.wait_for()
        pairs = page.locator(".heights").get_attribute("aria-label")
        page.wait_for_load_state("networkidle")
        slider = page.locator("aside input[type=range]")
        scores = iter(("0.7", "0.6", "0.55", "0.65", "0.75", "0.85", "0.5"))

        def slide() -> float:
            score = next(scores)
            return entered_ms(page, slider, score, "output", f"{float(score):.2f}")

        table.add(f"groups of {ORIGINALS + COPIES:,} texts at another threshold", several(slide),
                  "1 s")  # fmt: skip
        table.notes.append(f"Of the texts: {str(pairs).partition(';')[0].lower()}.")


def maps(table: Table, browser: Browser, url: str) -> None:
    """Measure a map of 20,000: its first points, and frames a second while it is arranged."""
    began = perf_counter()
    with opened(browser, f"{url}#/{NAME}/map?sample=20000") as page:
        page.locator(".plane").wait_for()
        page.evaluate("() => new Promise(requestAnimationFrame)")
        taken = f"{1000 * (perf_counter() - began):.0f} ms"
        table.add("Map of 20,000, from its address to its points", taken, "3,000 ms")
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
            graph_seconds(server, NAME)
            url = f"http://{HOST}:{server.port}/"
            clicks(table, browser, url)
            maps(table, browser, url)
            fill_texts(server.port)
            groups(table, browser, url)
            open_pages(table, browser, url, server.pid)
        demo(table, browser)
        browser.close()
    table.notes.append(f"{ROWS:,} × {DIM} items. {REPEATS} times each, each in a tab of its own.")
    table.publish(options, threads="1 server process, 1 browser")


if __name__ == "__main__":
    main()
