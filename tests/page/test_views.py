"""Every view at its address: it shows what it is for, to everybody who is sent it."""

from typing import Final

import pytest
from playwright.sync_api import expect

from tests.support.service.browser import OpenTab

VIEWS: Final = {
    "overview": ("", ".card .stat", "Collections"),
    "browse-pictures": ("#/pictures/browse", ".tiles canvas", "60 items"),
    "browse-filtered": (
        '#/pictures/browse?filter={"must":[{"key":"family","match":{"value":"flat"}}]}',
        ".tiles canvas", "20 items of 60",
    ),
    "browse-table": ("#/texts/browse?as=table", "tbody tr:nth-child(30)", "30 items"),
    "browse-molecules": ("#/molecules/browse", ".molecule", "not a molecule (("),
    "item": ("#/texts/item?id=t3", ".bars .row", "t3"),
    "query-start": ("#/points/query", ".hit", "begin with one of these"),
    "query": ("#/points/query?id=7&recall=0.8", ".found strong", "of 20"),
    "query-row": ("#/points/query?row=" + ",".join(["1"] * 16), ".found strong", "Similar to"),
    "query-names": ("#/texts/query?names=recall curve:2 zebra", ".hit", "zebra"),
    "why-pictures": ("#/pictures/why?a=0&b=3", ".five canvas", "Only right"),
    "why-texts": ("#/texts/why?a=t1&b=t2", ".fraction", "Σ max"),
    "map": ("#/points/map?sample=1000&id=7", ".plane", "1,000 of 2,200 items"),
    "understand": ("#/points/understand", "section:nth-child(2) .chart canvas", "the law says 95"),
    "backends": ("#/pictures/backends?sample=10", "tbody tr", "10 items as queries"),
    "load": ("#/texts/load", ".drop", "Snapshots"),
}  # fmt: skip
"""Name: address, what is there once it is whole, and words that it says."""


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_is_shown_to_everybody(url: str, tab: OpenTab, name: str) -> None:
    address, whole, words = VIEWS[name]
    here = tab(url)
    page = here.open(address)
    page.locator(whole).first.wait_for()
    page.get_by_text(words).first.wait_for()
    here.look(name)


def test_a_view_of_nothing_says_the_next_step(url: str, tab: OpenTab) -> None:
    here = tab(url)
    for view in ("browse", "query", "map", "understand", "item?id=x"):
        page = here.open(f"#/empty/{view}")
        page.get_by_text(f"gcws-search load items.csv --into empty --url {url}/").wait_for()


def test_all_views_show_a_collection_of_one_item_or_none(url: str, tab: OpenTab) -> None:
    here = tab(url)
    for name in ("scanned", "empty"):
        page = here.open(f"#/{name}/browse")
        for view in ("Query", "Map", "Understand", "Backends", "Load", "Browse"):
            page.get_by_role("link", name=view, exact=True).click()
            page.locator("main h1, main h2").first.wait_for()
            page.wait_for_load_state("networkidle")
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(page.locator("main .skeleton")).to_have_count(0)
