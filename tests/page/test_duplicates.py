"""Duplicates in the page: groups by a least score, what is deleted, and what undo stores again."""

import csv
import json
import re
from collections.abc import Iterator
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import put
from tests.support.service.browser import OpenTab
from tests.support.service.client import Json
from tests.support.waiting import wait_until

VECTORS: Final = {
    "a": [1.0, 2.0, 3.0, 0.1, 0.0, 0.0],
    "a,copy": [1.0, 2.0, 3.0, 0.1, 0.0, 0.0],
    "7": [1.0, 2.0, 2.5, 0.1, 0.01, 0.0],
    "b": [-4.0, 0.0, 1.0, 0.3, 0.0, 0.0],
    "b near": [-4.0, 0.0, 1.2, 0.3, 0.0, -0.0],
    "alone": [0.0, -7.0, -1.0, 0.7, 0.0, 0.01],
}
WORDS: Final = ("one", "two", "three", "four", "five", "six")


def gmm(a: list[float], b: list[float]) -> float:
    pairs = list(zip(a, b, strict=True))
    shared = sum(min(abs(x), abs(y)) for x, y in pairs if x * y > 0)
    return shared / (sum(abs(x) + abs(y) for x, y in pairs) - shared)


def groups_at(threshold: float) -> list[set[str]]:
    """Return the groups that pairs of at least a score join, the largest first."""
    groups = [{name} for name in VECTORS]
    for a, b in combinations(VECTORS, 2):
        if gmm(VECTORS[a], VECTORS[b]) >= threshold:
            one = next(group for group in groups if a in group)
            other = next(group for group in groups if b in group)
            if one is not other:
                one |= other
                groups.remove(other)
    return sorted((group for group in groups if len(group) > 1), key=len, reverse=True)


def names_of(url: str, name: str) -> dict[int, str]:
    names = httpx.get(f"{url}/v1/collections/{name}/names?limit=100").json()["names"]
    return {each["index"]: each["name"] for each in names}


def stored(url: str, name: str) -> dict[str, str]:
    """Return all items by id, without versions, as JSON: it tells zeros apart by their sign."""
    path = f"{url}/v1/collections/{name}/items?with_vector=true&limit=100"
    names, found = names_of(url, name), {}
    for item in httpx.get(path).json()["items"]:
        del item["version"]
        vector = item["vector"]
        if names:
            item["vector"] = {
                names[index]: value
                for index, value in zip(vector["indices"], vector["values"], strict=True)
            }
        found[item["id"]] = json.dumps(item, sort_keys=True)
    return found


def shown_groups(page: Page) -> list[set[str]]:
    return [
        set(group.locator(".members .foot bdi").all_inner_texts())
        for group in page.locator("section.group").all()
    ]


def shows(page: Page, groups: list[set[str]]) -> bool:
    return shown_groups(page) == groups


@pytest.fixture(params=["vectors", "names"])
def copies(url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the name of a collection with near-duplicates; a test asks for it before a tab."""
    name = f"copies-{request.param}-{request.node.originalname}"[:60]
    dense = request.param == "vectors"
    items: list[Json] = [
        {
            "id": name,
            "vector": vector if dense else {w: x for w, x in zip(WORDS, vector, strict=True) if x},
            "payload": {"n": 2**60 + place, "x": 1.0, "says": f"{name} 'quoted', \"twice\""},
            "expires": f"2{place}27-01-01T00:00:00Z",
        }
        for place, (name, vector) in enumerate(VECTORS.items())
    ]
    for item in () if dense else items:
        names = item["vector"]
        item["vector"] = {"names": [*names], "values": [*names.values()]}
    with httpx.Client(base_url=url, timeout=60) as client:
        put(client, name, {"dim": 6 if dense else None}, items)
        yield name
        client.delete(f"/v1/collections/{name}")


def test_groups_at_a_threshold_are_those_of_the_pairs(url: str, copies: str, tab: OpenTab) -> None:
    page = tab(url).open(f"#/{copies}/duplicates?min_score=0.7")
    page.locator("section.group").first.wait_for()
    for threshold in (0.5, 1.0, 0.9, 0.95):
        page.get_by_role("slider").fill(str(threshold))
        expect(page.locator("section.group")).to_have_count(len(groups_at(threshold)))
        wait_until(partial(shows, page, groups_at(threshold)))


def test_what_is_deleted_is_stored_again_as_it_was(url: str, copies: str, tab: OpenTab) -> None:
    before = stored(url, copies)
    page = tab(url).open(f"#/{copies}/duplicates?min_score=0.8")
    group = page.locator("section.group").first
    group.get_by_role("radio").nth(1).check()
    kept = page.locator(".keep .foot bdi").first.inner_text()
    group.get_by_role("button", name=re.compile("^Keep one, delete 2 others")).click()
    page.get_by_text("2 items deleted.").wait_for()
    expect(page.locator("section.group")).to_have_count(1)
    assert set(stored(url, copies)) == {"alone", "b", "b near", kept}
    page.get_by_role("button", name="Keep one of each, delete 1").click()
    page.get_by_text("3 items deleted.").wait_for()
    assert set(stored(url, copies)) == {"alone", "b", kept}
    page.reload()
    # A name goes with the last item that has it.
    wait_until(lambda: "five" not in names_of(url, copies).values())
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("3 items stored again.").wait_for()
    expect(page.locator("section.group")).to_have_count(2)
    assert stored(url, copies) == before


def test_undo_stores_nothing_over_what_came_since(url: str, copies: str, tab: OpenTab) -> None:
    page = tab(url).open(f"#/{copies}/duplicates?min_score=0.9")
    page.get_by_role("button", name="Keep one of each, delete 3").click()
    page.get_by_text("3 items deleted.").wait_for()
    gone = set(VECTORS) - set(stored(url, copies))
    vector = {"indices": [1], "values": [9]}
    items = [{"id": min(gone), "vector": vector, "payload": {"new": True}}]
    httpx.put(f"{url}/v1/collections/{copies}/items", json={"items": items}).raise_for_status()
    page.get_by_role("button", name="Undo").click()
    page.get_by_text("2 items stored again; 1 that came since stay").wait_for()
    assert set(stored(url, copies)) == set(VECTORS)
    assert json.loads(stored(url, copies)[min(gone)])["payload"] == {"new": True}


def test_groups_are_exported(url: str, copies: str, tab: OpenTab, tmp_path: Path) -> None:
    page = tab(url).open(f"#/{copies}/duplicates?min_score=0.8")
    page.locator("section.group").first.wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV", exact=True).click()
    download.value.save_as(tmp_path / "CSV")
    with (tmp_path / "CSV").open(newline="") as file:
        rows = list(csv.DictReader(file))
    groups = groups_at(0.8)
    assert [{row["id"] for row in rows if row["group"] == number} for number in "12"] == groups
    assert [row["keep"] for row in rows].count("true") == 2
