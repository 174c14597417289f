"""The page used: every view at its address, by mouse, by keys alone; what it says and sends."""

import csv
import gzip
import io
import json
import re
import shlex
import socket
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect
from typer.testing import CliRunner

from gcws_search.commands.app import app
from tests.page.conftest import choose_file, put
from tests.support.documents import curl
from tests.support.service.browser import SCHEMES, OpenTab
from tests.support.service.client import Json
from tests.support.waiting import wait_until

COLORS = """() => {
  const probe = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const names = ["surface", "other", "low", "high"];
  for (let place = 0; place < 14; place += 1) names.push(`c${place}`);
  return names.map((name) => {
    const element = document.createElement("span");
    element.style.setProperty("color", `var(--${name})`);
    document.body.append(element);
    probe.fillStyle = getComputedStyle(element).color;
    element.remove();
    probe.fillRect(0, 0, 1, 1);
    return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
  });
}"""
"""The ground of a map, and all colours of its points, as red, green and blue."""
WIDTHS = "(all) => all.map((one) => one.offsetWidth / one.parentElement.offsetWidth)"


SLIDE_AND_LEAVE = """() => {
  const slider = document.querySelector(".recall input");
  slider.value = "0.7";
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  location.hash = "#/points/browse";
  return new Promise((done) => setTimeout(done, 200));
}"""
"""Ends after the slider's own timer would have."""
TYPE_AT_ONCE = """new MutationObserver((_, observer) => {
  const field = document.querySelector("[data-query]");
  if (!field) return;
  observer.disconnect();
  field.value = "0";
  field.dispatchEvent(new Event("input", { bubbles: true }));
}).observe(document, { childList: true, subtree: true });"""
"""Types into the query's field before anything is painted."""


def scores(page: Page) -> list[float]:
    shown = page.locator(".tiles .hit:not(.missed) .foot strong").all_inner_texts()
    return [float(text) for text in shown]


def asked(url: str, name: str, **body: Json) -> list[Json]:
    with httpx.Client(base_url=url, timeout=60) as client:
        hits: list[Json] = client.post(f"/v1/collections/{name}/query", json=body).json()["hits"]
        return hits


# By mouse


def test_from_a_collection_to_hits_to_why(url: str, tab: OpenTab) -> None:
    page = tab(url).open()
    page.get_by_role("link", name="pictures", exact=True).click()
    page.locator('[data-tile="4"] .main').click()
    expect(page.locator(".found strong")).to_have_text("20 of 20")
    hits = asked(url, "pictures", id="4", limit=20)
    assert scores(page) == pytest.approx([hit["score"] for hit in hits], abs=5e-5)
    first = page.locator(".tiles .hit").first
    first.get_by_role("link", name=re.compile("^Why")).click()
    expect(page.locator(".fraction .number strong")).to_have_text(f"{hits[0]['score']:.4f}")
    expect(page.locator(".five canvas")).to_have_count(5)
    page.get_by_role("button", name="only left").click()
    column = page.locator("tbody tr td:nth-child(6)").all_inner_texts()
    values = [float(text) for text in column]
    assert values == sorted(values, reverse=True)
    assert values[0] > 0
    for bar in page.locator(".fraction-bar").all():
        parts = [float(part) for part in bar.locator("span").evaluate_all(WIDTHS)]
        full = hits[0]["score"] if bar.locator(".left").count() == 0 else 1.0
        assert sum(parts) == pytest.approx(full, abs=0.01)
    page.go_back()
    expect(page.locator(".found strong")).to_have_text("20 of 20")
    page.go_back()
    page.get_by_text("60 items").wait_for()


def test_why_draws_both_on_one_scale_with_the_sign_as_direction(url: str, tab: OpenTab) -> None:
    both = {"a": [2.0, -1.0, 1.0, -0.5, 0.3047], "b": [0.5, 0.0, 2.0, 1.0, 0.3291]}
    with httpx.Client(base_url=url) as client:
        put(client, "pair", {"dim": 5}, [{"id": i, "vector": v} for i, v in both.items()])
        page = tab(url).open("#/pair/why?a=a&b=b")
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(5)
        units = []
        for row in rows.all():
            place = int(row.locator("td").first.inner_text())
            middle = row.locator(".half").first.evaluate("(h) => h.getBoundingClientRect().right")
            for side, outwards, item in (("left", -1, "a"), ("right", 1, "b")):
                value, bar = both[item][place], row.locator(f"i.{side}")
                assert bar.count() == (value != 0)
                if value:
                    box = bar.bounding_box()
                    half = row.locator(".half").nth(int(outwards > 0))
                    zero = half.evaluate("(h) => h.getBoundingClientRect().x + h.clientWidth / 2")
                    assert box is not None
                    units.append(box["width"] / abs(value))
                    way = 1 if box["x"] + box["width"] / 2 > zero else -1
                    assert way == outwards * (1 if value > 0 else -1)
                    assert (zero < middle) == (side == "left")
        assert max(units) == pytest.approx(min(units), rel=0.06)  # pixels are whole
        expect(page.locator(".amounts li").nth(1)).to_contain_text("only left")
        client.delete("/v1/collections/pair")


def test_scores_that_differ_never_look_equal(url: str, tab: OpenTab) -> None:
    with httpx.Client(base_url=url) as client:
        items: list[Json] = [{"id": i, "vector": [1, 1 + i * 1e-5]} for i in range(6)]
        put(client, "close", {"dim": 2}, items)
        here = tab(url)
        for form in ("cards", "table"):
            page = here.go(f"#/close/query?id=0&as={form}")
            shown = page.locator(".foot strong" if form == "cards" else "td strong")
            expect(shown).to_have_count(5)
            texts = shown.all_inner_texts()
            assert len({*texts}) == 5
            assert all(float(text) < 1 for text in texts)
        client.delete("/v1/collections/close")


def test_a_text_finds_texts_and_why(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/notes/query")
    page.locator("[data-query]").fill("hash TABLE hash graph")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".found strong")).to_have_text("20 of 20")
    hits = asked(url, "notes", text="hash TABLE hash graph", limit=20)
    assert scores(page) == pytest.approx([hit["score"] for hit in hits], abs=5e-5)
    expect(page.locator(".tiles .hit").first).to_contain_text(hits[0]["text"])
    page.get_by_text("This request, to copy").click()
    expect(page.locator(".request")).to_contain_text('"text":"hash TABLE hash graph"')
    page.get_by_text("Python", exact=True).click()
    expect(page.locator(".request")).to_contain_text('query(text="hash TABLE hash graph"')
    page.get_by_text("CLI", exact=True).click()
    expect(page.locator(".request")).to_contain_text("--text 'hash TABLE hash graph'")
    page.locator(".tiles .hit").first.get_by_role("link", name=re.compile("^Why")).click()
    expect(page.locator(".fraction .number strong")).to_have_text(f"{hits[0]['score']:.4f}")
    expect(page.locator("tbody tr td:first-child", has_text="hash").first).to_be_visible()
    expect(page.locator("mark").first).to_be_visible()
    page.get_by_role("link", name="Find similar to").click()
    expect(page.locator(".found strong")).to_have_text("20 of 20")


@pytest.mark.parametrize("view", ["", "texts/browse", "texts/why?a=t1&b=t2"])
def test_an_item_is_found_from_any_view(url: str, tab: OpenTab, view: str) -> None:
    here = tab(url)
    page = here.open(f"#/{view}")
    page.locator("main h1").first.wait_for()
    page.keyboard.press("/")
    page.locator("[data-find]:focus").wait_for()
    if not view:
        page.locator("dialog select").select_option("texts")
        page.locator("[data-find]").focus()
    page.keyboard.type("Query t")
    options = page.locator(".found-item")
    body: dict[str, str | int] = {"q": "Query t", "limit": 12}
    found = httpx.get(f"{url}/v1/collections/texts/items", params=body).json()["items"]
    expect(options).to_have_count(len(found))
    for option, item in zip(options.all(), found, strict=True):
        expect(option).to_contain_text(item["id"])
        assert option.locator("mark").inner_text().lower() == "query t"
    if view == "texts/browse":
        here.look("find")
    page.locator("[data-find]").press_sequentially("zzz")
    expect(options).to_have_count(0)
    page.locator("[data-find]").fill(found[-1]["id"])
    options.first.click()
    page.locator("main h1", has_text=found[-1]["id"]).wait_for()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_facets_count_and_become_a_filter(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/pictures/browse")
    page.get_by_role("button", name="round 20").click()
    page.get_by_text("20 items of 60").wait_for()
    asked_for = page.evaluate("new URLSearchParams(location.hash.split('?')[1]).get('filter')")
    assert json.loads(asked_for) == {"must": [{"key": "family", "match": {"value": "round"}}]}
    page.get_by_role("button", name="Remove family = round").click()
    page.get_by_text("60 items", exact=True).wait_for()


def test_long_integers_are_shown_sorted_and_filtered_as_they_are_stored(
    url: str, tab: OpenTab
) -> None:
    long, deep = 2**53 + 1, {"all": [2**64 - 1]}
    numbers = [long, long + 2, long, long + 2, long + 1]
    items = [
        {"id": str(row), "vector": [1, row], "payload": {"n": number, "deep": deep}}
        for row, number in enumerate(numbers)
    ]
    with httpx.Client(base_url=url) as client:
        put(client, "long", {"dim": 2}, items)
        client.patch("/v1/collections/long", json={"metadata": {"since": long}})
        here = tab(url)
        page = here.open("#/long/browse?as=table&sort=payload n")
        expect(page.locator("tbody tr")).to_have_count(5)
        shown = page.locator("tbody tr").all_inner_texts()
        expected = [str(each) for each in sorted(numbers, reverse=True)]
        assert [[word for word in text.split() if word in expected] for text in shown] == [
            [each] for each in expected
        ]
        assert all("18446744073709551615" in text for text in shown)
        here.go("#/long/browse").get_by_role("button", name=f"{long} 2").click()
        page.get_by_text("2 items of 5").wait_for()
        expect(page.locator("[data-tile]").filter(has_text=str(long))).to_have_count(2)
        page.get_by_role("button", name="Change view…").click()
        page.get_by_role("button", name="Save").click()
        page.get_by_role("heading", name="How items are shown").wait_for(state="detached")
        assert client.get("/v1/collections/long").json()["metadata"]["since"] == long
        here.go("#/long/item?id=4").get_by_text(str(long + 1)).first.wait_for()
        client.delete("/v1/collections/long")


def test_a_narrow_page_shows_items_and_hits_first(url: str, tab: OpenTab) -> None:
    here = tab(url)
    size = here.page.viewport_size
    assert size
    here.page.set_viewport_size({"width": 390, "height": 900})
    page = here.open("#/pictures/browse")
    page.locator(".facet").first.wait_for()
    expect(page.locator(".facet[open]")).to_have_count(0)
    page.locator("[data-tile] .main").first.press("Enter")
    page.locator(".found strong").wait_for()
    tops = "(names) => names.map((one) => document.querySelector(one).getBoundingClientRect().y)"
    hit, recall = page.evaluate(tops, [".hit", ".recall"])
    assert hit < recall
    here.page.set_viewport_size(size)
    page = here.open("#/pictures/browse")
    page.locator(".facet[open]").first.wait_for()


def test_a_range_of_numbers_becomes_a_filter(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/browse")
    facet = page.locator(".facet", has_text="group")
    expect(facet.locator("li .figure").first).to_have_text("315")
    expect(facet.locator("bdi")).to_have_text(["group", *map(str, range(7))])
    page.get_by_label("group from").fill("2")
    page.get_by_label("group to").fill("3")
    page.get_by_role("button", name="Apply", exact=True).click()
    passing = sum(number % 7 in (2, 3) for number in range(2200))
    page.get_by_text(f"{passing} items of 2,200").wait_for()
    page.get_by_label("group to").fill("2")
    page.get_by_role("button", name="Apply", exact=True).click()
    passing = sum(number % 7 == 2 for number in range(2200))
    page.get_by_text(f"{passing} items of 2,200").wait_for()
    expect(page.locator(".chip")).to_have_count(1)


def test_what_is_typed_stays_when_counts_come(url: str, tab: OpenTab) -> None:
    here = tab(url)

    def hold(route: Route) -> None:
        """Neither answer nor let go on."""

    here.page.route("**/count", hold)
    page = here.open("#/points/browse")
    page.get_by_label("group from").fill("2")
    here.page.unroute("**/count", hold)  # lets those go on that are held
    expect(page.locator(".facet", has_text="group").locator(".figure").first).not_to_have_text("…")
    expect(page.get_by_label("group from")).to_have_value("2")


def test_items_in_a_table_are_sorted_by_a_column_and_back(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/notes/browse?as=table")
    cells = page.locator("tbody td:last-child")
    expect(cells).to_have_count(30)
    for ends in (["29", "0"], ["0", "29"], ["0", "29"]):
        page.locator("th:last-child button").click()
        expect(cells.first).to_have_text(ends[0])
        expect(cells.last).to_have_text(ends[1])


def test_hits_in_a_table_are_sorted_and_exported(url: str, tab: OpenTab, tmp_path: Path) -> None:
    page = tab(url).open("#/notes/query?text=hash table graph&as=table&limit=10")
    hits = asked(url, "notes", text="hash table graph", limit=10)
    ids = page.locator("tbody td:nth-child(3) a")
    expect(ids).to_have_text([hit["id"] for hit in hits])
    page.get_by_role("button", name="n", exact=True).click()
    by_n = sorted(hits, key=lambda hit: -hit["payload"]["n"])
    expect(ids).to_have_text([hit["id"] for hit in by_n])
    expect(page.locator("th[aria-sort=descending]")).to_have_text("n ↓")
    for form in ("CSV", "JSON"):
        with page.expect_download() as download:
            page.get_by_role("button", name=form, exact=True).click()
        download.value.save_as(tmp_path / form)
    assert json.loads((tmp_path / "JSON").read_text()) == hits
    with (tmp_path / "CSV").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["id"], float(row["score"]), row["text"], int(row["n"])) for row in rows] == [
        (hit["id"], hit["score"], hit["text"], hit["payload"]["n"]) for hit in hits
    ]
    page.get_by_role("link", name=f"Why is {by_n[0]['id']} similar").click()
    expect(page.locator(".fraction .number strong")).to_have_text(f"{by_n[0]['score']:.4f}")


def test_a_page_reads_on_as_one_scrolls(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/browse")
    page.locator('[data-tile="47"]').wait_for()
    expect(page.locator("[data-tile]")).to_have_count(48)
    page.locator('[data-tile="47"]').scroll_into_view_if_needed()
    page.locator('[data-tile="95"]').wait_for()
    page.get_by_role("button", name=re.compile("^3 ")).click()
    expect(page.locator('[data-tile="0"]')).to_have_count(0)
    ids = page.locator("[data-tile]").evaluate_all("(all) => all.map((tile) => tile.dataset.tile)")
    assert {int(each) % 7 for each in ids} == {3}
    assert len(ids) == len(set(ids))


def test_the_slider_changes_the_recall_and_hits_missed_are_shown(url: str, tab: OpenTab) -> None:
    here = tab(url)
    page = here.open("#/points/query?id=7&limit=10&recall=0.5")
    slider = page.get_by_role("slider")
    expect(page.locator(".found strong")).to_contain_text("of 10")
    exact = [hit["id"] for hit in asked(url, "points", id="7", limit=10, recall=1)]
    found = [hit["id"] for hit in asked(url, "points", id="7", limit=10, recall=0.5)]
    expect(page.locator(".found strong")).to_have_text(f"{len(set(exact) & set(found))} of 10")
    expect(page.locator(".hit.missed")).to_have_count(len(set(exact) - set(found)))
    slider.fill("1")
    expect(page.locator(".found")).to_contain_text("exact scan")
    assert "recall=1" in page.url
    expect(page.locator(".chart canvas")).to_have_count(1)
    page.get_by_text("As a table").click()
    curve = httpx.get(f"{url}/v1/collections/points/curve?limit=10").json()["points"]
    expect(page.locator(".recall tbody tr")).to_have_count(len(curve))
    page.evaluate(SLIDE_AND_LEAVE)
    page.get_by_text("2,200 items").wait_for()
    assert page.url.endswith("#/points/browse")


def test_a_query_says_what_it_looked_at_and_what_is_typical(url: str, tab: OpenTab) -> None:
    page = tab(url).page
    points = [{"recall": 0.7, "candidates": 80, "microseconds": 5},
              {"recall": 0.9, "candidates": 2000, "microseconds": 50}]  # fmt: skip

    def scan(route: Route) -> None:
        answer = route.fetch()
        more = {"scanned_from": scanned_from, "points": points}
        route.fulfill(response=answer, json=answer.json() | more)

    def walk(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        if "explain" in found:
            found["explain"] |= {"method": "graph", "candidates": 301, "seconds": 0.0006}
        route.fulfill(response=answer, json=found)

    page.route("**/curve?*", scan)
    page.route("**/query", walk)
    looked = "This query looked at 301 of 2,200 items along the graph in 600 µs"
    for scanned_from, words in ((0.8, "for a recall of 0.80 or more"), (0.5, "for 20 hits")):
        page.goto(f"{url}/#/points/query?id=7&recall=0.9")
        page.reload()
        page.get_by_text(f"Queries {words} are scanned: that is quicker").wait_for()
        expect(page.locator(".words")).to_contain_text(looked)
        expect(page.get_by_text("typical here")).to_have_count(0)
        page.get_by_role("slider").fill("0.7")
        typical = page.get_by_text(f"{looked}; typical here for a recall of 0.70: 80.")
        expect(typical).to_have_count(int(scanned_from > 0.7))
    page.unroute("**/query", walk)
    page.goto(f"{url}/#/points/query?id=7&recall=1")
    page.reload()
    page.get_by_text("This query was scanned: it looked at 2,200 of 2,200 items").wait_for()


def test_a_query_without_hits_says_what_there_is_not(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/scanned/query?id=only")
    page.get_by_text("This collection has no other item.").wait_for()
    page.get_by_text("There is nothing to find.").wait_for()
    expect(page.get_by_text("passes the filter")).to_have_count(0)
    where = '{"must":[{"key":"deep","match":{"value":1}}]}'
    page.goto(f"{url}/#/scanned/query?row=3&filter={where}")
    page.get_by_text("No item passes the filter.").wait_for()


def test_hits_that_a_search_missed_are_shown_as_ghosts_in_their_places(
    url: str, tab: OpenTab
) -> None:
    """The answer loses its first and third hit on the way, unless it is exact."""
    page = tab(url).page

    def lose(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        if json.loads(route.request.post_data or "{}")["recall"] < 1:
            found["hits"] = found["hits"][1:2] + found["hits"][3:]
        route.fulfill(response=answer, json=found)

    page.route("**/query", lose)
    page.goto(f"{url}/#/points/query?id=7&limit=10")
    expect(page.locator(".found strong")).to_have_text("8 of 10")
    exact = [hit["id"] for hit in asked(url, "points", id="7", limit=10, recall=1)]
    shown = page.locator(".tiles [data-tile]")
    assert shown.evaluate_all("(all) => all.map((tile) => tile.dataset.tile)") == exact
    missed = page.locator(".hit.missed").evaluate_all("(all) => all.map((t) => t.dataset.tile)")
    assert missed == [exact[0], exact[2]]


def test_values_are_those_of_the_hits_that_are_shown(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/query?id=7&limit=1")
    for item_id in ("7", "8", "9"):
        [hit] = asked(url, "points", id=item_id, limit=1)
        page.locator(f'[data-tile="{hit["id"]}"]').wait_for()
        if page.locator(".narrow[open]").count() == 0:
            page.get_by_text("Values of these hits").click()
        if page.locator(".facet[open]").count() == 0:
            page.locator(".facet summary", has_text="group").click()
        expect(page.locator(".value bdi")).to_have_text([str(hit["payload"]["group"])])
        page.get_by_label("Item id").fill(str(int(item_id) + 1))
        page.get_by_role("button", name="Search").click()


def test_what_is_typed_as_soon_as_there_is_a_field_stays(url: str, tab: OpenTab) -> None:
    opened = tab(url)
    opened.page.add_init_script(TYPE_AT_ONCE)
    page = opened.open("#/points/query")
    expect(page.get_by_label("Item id")).to_have_value("0")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".found strong")).to_contain_text("of 20")
    page.close()  # it would type for the next test


def test_a_pasted_row_is_searched(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/query")
    row = "\t".join(["-0.5"] * 16)
    page.get_by_label("Item id").fill(row)
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".found strong")).to_contain_text("of 20")
    best = asked(url, "points", vector=[-0.5] * 16)[0]["score"]
    assert scores(page)[0] == pytest.approx(best, abs=5e-5)
    page.locator(".tiles .hit").first.get_by_role("link", name=re.compile("^Why")).click()
    page.get_by_role("link", name="Back to the hits").click()
    page.get_by_text("This request, to copy").click()
    page.get_by_text("Python", exact=True).click()
    program = page.locator(".command code").inner_text()
    assert f'connect("{url}/").collection("points")' in program
    known: dict[str, Json] = {}
    exec(program, known)
    ids = [hit["id"] for hit in asked(url, "points", vector=[-0.5] * 16, limit=20)]
    assert known["items"].query([-0.5] * 16, limit=20).ids == ids
    page.get_by_text("CLI", exact=True).click()
    name, *words = shlex.split(page.locator(".command code").inner_text())
    done = CliRunner().invoke(app, [*words, "--json"])
    assert name == "gcws-search"
    assert [json.loads(line)["id"] for line in done.output.splitlines()] == ids
    page.locator(".request").get_by_text("curl", exact=True).click()
    command = page.locator(".command code").inner_text().replace(url, "localhost:8000")
    request = curl.request(command)
    path, headers = request.url.path, {"Content-Type": "application/json"}
    answer = httpx.post(f"{url}{path}", content=request.read(), headers=headers).json()
    assert [hit["id"] for hit in answer["hits"]] == ids


def test_a_view_that_is_chosen_is_kept_with_the_collection(url: str, tab: OpenTab) -> None:
    with httpx.Client(base_url=url) as client:
        client.put("/v1/collections/chosen", json={"dim": 4})
        items = [{"id": "a", "vector": [1, 2, 3, 4], "payload": {"called": "the first"}}]
        client.put("/v1/collections/chosen/items", json={"items": items})
        client.patch("/v1/collections/chosen", json={"metadata": {"source": "a survey"}})
        tab_of_chosen = tab(url)
        tab_of_chosen.expected.append("status of 422")
        page = tab_of_chosen.open("#/chosen/browse")
        page.get_by_role("button", name="Change view").click()
        page.get_by_label("title").fill("called")
        page.locator(".view-form").get_by_text("Picture", exact=True).click()
        page.get_by_label("picture width").fill("2")
        page.get_by_label("picture height").fill("3")
        save = page.get_by_role("button", name="Save")
        save.click()
        page.get_by_text("expected width × height × channels to be dim").wait_for()
        page.get_by_label("picture height").fill("2")
        save.click()
        page.locator(".hit .title", has_text="the first").wait_for()
        metadata = client.get("/v1/collections/chosen").json()["metadata"]
        assert metadata["source"] == "a survey"
        assert metadata["view"] == {"title": "called", "image": {"width": 2, "height": 2}}


def test_a_view_is_guessed_once_from_the_first_items(
    url: str, tab: OpenTab, rng: np.random.Generator
) -> None:
    def items(first: int, vectors: np.ndarray, kind: str) -> list[Json]:
        rows = enumerate(vectors.reshape(len(vectors), -1).tolist(), first)
        return [{"id": i, "vector": row, "payload": {"kind": kind}} for i, row in rows]

    noise = rng.normal(size=(30, 8, 8))
    smooth = sum(np.roll(noise, (dx, dy), (1, 2)) for dx in range(4) for dy in range(4))
    with httpx.Client(base_url=url) as client:
        put(client, "first", {"dim": 64}, items(0, abs(noise), "positive"))
        put(client, "smooth", {"dim": 64}, items(0, np.sign(smooth), "signed"))
        put(client, "rough", {"dim": 64}, items(0, noise, "signed"))
        more = {"items": items(30, noise, "signed")}
        assert client.put("/v1/collections/first/items", json=more).status_code == 200
        here = tab(url)
        where = '?filter={"must":[{"key":"kind","match":{"value":"signed"}}]}'
        for address, drawn in (
            (f"#/first/browse{where}", ".hit .drawn > canvas"),
            ("#/first/query?id=40", ".hit .drawn > canvas"),
            ("#/smooth/browse", ".hit .drawn > canvas"),
            ("#/rough/browse", ".hit .heat"),
        ):
            page = here.open(address)
            page.locator(drawn).first.wait_for()
            assert page.locator(drawn).count() == page.locator(".hit").count()
        client.delete("/v1/collections/first")
        put(client, "first", {"dim": 64}, items(100, noise, "signed"))
        here.open("#/first/browse").locator(".hit .heat").first.wait_for()
        for name in ("first", "smooth", "rough"):
            client.delete(f"/v1/collections/{name}")


def test_a_map_is_arranged_coloured_lit_and_cut_out(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/map?id=7")
    page.locator(".plane").wait_for()
    page.get_by_text("2,200 of 2,200 items").wait_for()
    page.get_by_role("heading", name="Similar to 7").wait_for()
    expect(page.locator(".tiles[aria-label=Hits] .hit")).to_have_count(15)
    expect(page.get_by_text("Bringing similar items together")).to_have_count(0)
    page.get_by_role("combobox", name="Colour").select_option("group")
    expect(page.locator(".legend li")).to_have_count(7)
    for name in ("Zoom in", "Zoom out", "Show all"):
        page.get_by_role("button", name=name).click()
    box = page.locator(".plane").bounding_box()
    assert box is not None
    page.get_by_role("button", name="Lasso").click()
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.05)]
    places = [(box["x"] + box["width"] * x, box["y"] + box["height"] * y) for x, y in corners]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places:
        page.mouse.move(*place, steps=3)
    page.mouse.up()
    page.get_by_text("2,200 items chosen").wait_for()
    expect(page.locator(".tiles[aria-label='Items chosen'] .hit")).to_have_count(60)
    page.get_by_role("button", name="Filter: group is one of 7").click()
    page.get_by_text("2,200 items of 2,200").wait_for()


KINDS: Final = ("warm", "cold")
DRAWN: Final = "document.documentElement.dataset.drawn"


def test_a_map_is_arranged_once_for_all_and_its_islands_are_named(url: str, tab: OpenTab) -> None:
    with httpx.Client(base_url=url) as client:
        words = ("red", "round", "small"), ("old", "blue", "flat")
        put(client, "islands", {"dim": None}, [
            {
                "id": i,
                "vector": {"names": [*words[i % 2], f"x{i}"]},
                "payload": {"kind": KINDS[i % 2]},
            }
            for i in range(60)
        ])  # fmt: skip
    here = tab(url)
    here.page.add_init_script("""
        const fill = CanvasRenderingContext2D.prototype.fillText;
        CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) {
          const { dataset } = document.documentElement;
          dataset.drawn = `${dataset.drawn ?? ""}|${text}`;
          return fill.call(this, text, ...rest);
        };""")
    page = here.page
    asked: list[str | None] = []
    page.on(
        "request",
        lambda request: asked.append(request.post_data) if request.url.endswith("/map") else None,
    )
    for count in (2, 1):  # by whoever comes first, then by another
        asked.clear()
        here.open("#/islands/map?color=")
        page.locator("html[data-drawn*=', ']").wait_for()
        assert len(asked) == count
        drawn = [{*text.split(", ")} for text in page.evaluate(DRAWN).split("|") if text]
        for some in words:
            assert any(names <= {*some} for names in drawn)
        page.goto("about:blank")
    here.open("#/islands/map?color=kind")
    page.locator("html[data-drawn*=warm][data-drawn*=cold]").wait_for()
    httpx.delete(f"{url}/v1/collections/islands").raise_for_status()


def test_a_map_says_in_one_line_why_two_items_are_similar(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/texts/map?id=t1")
    page.get_by_role("heading", name="Similar to t1").wait_for()
    page.locator(".plane").press("0")
    for key in ("ArrowLeft", "ArrowUp", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown") * 2:
        page.locator(".plane").press(key)
        if page.locator(".between").count():
            break
    line = page.locator(".between")
    page.locator(".hovered strong").wait_for()
    found = page.locator(".hovered strong").inner_text()
    body = {"a": {"id": "t1"}, "b": {"id": found}}
    why = httpx.post(f"{url}/v1/collections/texts/explain", json=body).json()
    expect(line).to_contain_text(f"{why['score']:.4f} similar to t1")
    [best, *_] = sorted(why["coordinates"], key=lambda row: -row["min"])
    if best["min"] > 0:
        expect(line).to_contain_text("both have")


def test_numbers_are_coloured_by_a_scale_and_all_colours_stand_out(url: str, tab: OpenTab) -> None:
    here = tab(url)
    page = here.open("#/notes/map?color=n")
    scale = page.locator(".legend.scale")
    expect(scale).to_have_attribute("aria-label", "Colours from 1 to 28")  # of 0 to 29
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        page.evaluate("getComputedStyle(document.body).color")
        colors: list[list[float]] = page.evaluate(COLORS)
        assert len(colors) == 1 + 14 + 1 + 2
        ground, *others = [luminance(color) for color in colors]
        for other in others:
            high, low = max(ground, other), min(ground, other)
            assert (high + 0.05) / (low + 0.05) >= 3, scheme


def luminance(color: list[float]) -> float:
    """Return the relative luminance of red, green and blue from 0 to 255, as WCAG has it."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (channel / 255 for channel in color)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_data_are_easy_where_neighbours_stand_clear_of_random_pairs(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/understand")
    page.get_by_text("Neighbours stand clear of random pairs: easy data.").wait_for()
    verdicts = page.evaluate(
        """async () => {
        const main = document.querySelector("script[type=module]").src;
        const { verdictOf } = await import(new URL("understand.js", main));
        const of = (...counts) => ({ counts, edges: [0, 0.25, 0.5, 0.75, 1] });
        const pairs = of(90, 10, 0, 0);
        const equal = of(0, 0, 0, 100);
        return [of(0, 0, 100, 0), of(30, 0, 70, 0), of(80, 0, 20, 0)].map(
          (tenth) => verdictOf({ pairs, tenth, first: tenth })).concat(
          verdictOf({ pairs: equal, tenth: equal, first: equal }));
        }"""
    )
    assert [verdict.split(":")[0].split(";")[0] for verdict in verdicts] == [
        "Neighbours stand clear of random pairs",
        "Most neighbours stand clear of random pairs",
        "Neighbours are hardly nearer than random pairs",
        "All items looked at are equal, or nearly so.",
    ]
    assert "30 %" in verdicts[1]


def test_backends_are_attached_compared_and_dropped(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected.append("status of 422")
    page = here.open("#/pictures/backends?sample=10")
    page.get_by_label("Kind exact").select_option("nrff")
    page.get_by_label("Parameters as JSON").fill('{"features": 64}')
    page.get_by_role("button", name="Attach").click()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    assert "nrff" in rows.nth(1).inner_text()
    page.get_by_label("Parameters as JSON").fill('{"features": 0}')
    page.get_by_role("button", name="Attach").click()
    page.get_by_role("alert").get_by_text("params.features").wait_for()
    page.get_by_role("button", name="Drop nrff").click()
    expect(rows).to_have_count(1)


def test_hits_begin_at_the_top_and_back_leads_to_the_place_before(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/points/browse")
    page.locator('[data-tile="47"]').scroll_into_view_if_needed()
    page.locator('[data-tile="95"]').scroll_into_view_if_needed()
    page.locator('[data-tile="143"]').wait_for()
    before = page.evaluate("scrollY")
    assert before > 1000
    page.locator('[data-tile="95"] .main').click()
    page.locator(".found strong").wait_for()
    wait_until(lambda: page.evaluate("scrollY") == 0)
    page.locator(".tiles .hit").last.scroll_into_view_if_needed()
    page.locator(".tiles .hit .main").last.click()
    wait_until(lambda: page.evaluate("scrollY") == 0)
    page.go_back()
    page.go_back()
    wait_until(lambda: abs(page.evaluate("scrollY") - before) < 2)
    expect(page.locator('[data-tile="95"]')).to_be_in_viewport()
    page.reload()
    wait_until(lambda: abs(page.evaluate("scrollY") - before) < 2)


# Files


def test_a_new_collection_takes_files_of_all_kinds(
    url: str, tab: OpenTab, rng: np.random.Generator
) -> None:
    page = tab(url).open()
    page.get_by_text("New collection").click()
    page.get_by_label("Name", exact=True).fill("fresh")
    page.get_by_label("Dimension").fill("3")
    page.get_by_role("button", name="Create").click()
    page.get_by_label("File to load").wait_for(state="attached")  # a file is dropped there, too
    lines = b'{"id": "a", "vector": [1, 2, 3]}\n{"id": "b", "vector": [1]}\n'
    dropped = page.evaluate_handle(
        """(text) => { const all = new DataTransfer();
        all.items.add(new File([text], "items.ndjson")); return all; }""",
        lines.decode(),
    )
    page.dispatch_event(".drop", "drop", {"dataTransfer": dropped})
    page.get_by_role("button", name="Load into fresh").click()
    page.get_by_text("expected 3 values, got 1").wait_for()
    table = 'id,x,y,z,label,says\nc,1,0,2,5,hello\nd,0,1.5,-2,6,"a, b"\n'
    choose_file(page, "items.csv", table.encode())
    page.get_by_label("What label becomes").select_option("payload")
    page.get_by_role("button", name="Load into fresh").click()
    page.locator("[role=status]", has_text="2 new").wait_for()
    items = httpx.get(f"{url}/v1/collections/fresh/items?with_vector=true").json()["items"]
    assert items[1] == {
        "id": "c", "vector": [1.0, 0.0, 2.0], "payload": {"label": 5, "says": "hello"},
        "version": 1,
    }  # fmt: skip
    assert items[2]["payload"]["says"] == "a, b"
    choose_file(page, "items.parquet", b"PAR1")
    page.get_by_text("gcws-search load 'items.parquet' --into fresh").wait_for()


def test_a_collection_of_texts_is_made_and_takes_a_column(url: str, tab: OpenTab) -> None:
    page = tab(url).open()
    page.get_by_text("New collection").click()
    page.get_by_label("Name", exact=True).fill("made-of-texts")
    page.get_by_label("Items are").select_option("texts")
    page.get_by_role("button", name="Create").click()
    table = 'id,stars,review\nc,5,"good coffee, and ""hot"""\nd,1,cold and bad coffee\n'
    choose_file(page, "reviews.csv", table.encode())
    expect(page.get_by_label("What review becomes")).to_have_value("text")
    page.get_by_role("button", name="Load into made-of-texts").click()
    page.get_by_text("2 new").wait_for()
    page.get_by_role("link", name="Browse the items").click()
    page.get_by_text("2 items", exact=True).wait_for()
    path = f"{url}/v1/collections/made-of-texts"
    items = httpx.get(f"{path}/items").json()["items"]
    assert [(item["id"], item["text"], item["payload"]) for item in items] == [
        ("c", 'good coffee, and "hot"', {"stars": 5}),
        ("d", "cold and bad coffee", {"stars": 1}),
    ]
    page.goto("about:blank")
    httpx.delete(path)


def test_a_load_under_way_is_a_bar_of_what_is_read(url: str, tab: OpenTab) -> None:
    httpx.put(f"{url}/v1/collections/slow", json={"dim": 2})
    body = b"".join(b'{"id": %d, "vector": [1, 2]}\n' % row for row in range(3000))
    place = httpx.URL(url)
    head = (
        "POST /v1/collections/slow/load HTTP/1.1\r\nHost: here\r\n"
        f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    told = re.compile(f"read, of {len(body) / 1000:.1f} kB")
    here = tab(url)
    with socket.create_connection((place.host, place.port or 80)) as sender:
        sender.sendall(head.encode() + body[:60_000])
        page = here.open("#/slow/load")
        expect(page.locator(".bar")).to_have_attribute("aria-label", told)
        here.look("load-running")
        page = here.open("#/?as=cards")
        page.locator(".card", has_text="slow").scroll_into_view_if_needed()
        expect(page.locator(".card .bar")).to_have_attribute("aria-label", told)
        sender.sendall(body[60_000:])
        assert sender.recv(12) == b"HTTP/1.1 200"
    page = here.open("#/slow/load")
    page.get_by_role("cell", name="done").wait_for()
    expect(page.locator(".bar")).to_have_count(0)


def test_a_snapshot_is_made_downloaded_and_restored_after_its_name_is_typed(
    url: str, tab: OpenTab
) -> None:
    page = tab(url).open("#/texts/load")
    page.get_by_role("button", name="Make a snapshot").click()
    with page.expect_download() as started:
        page.get_by_role("button", name="download").click()
    assert started.value.suggested_filename.endswith(".sqlite")
    httpx.delete(f"{url}/v1/collections/texts/items/t0")
    page.get_by_role("button", name="restore…").click()
    restore = page.get_by_role("button", name="Restore", exact=True)
    expect(restore).to_be_disabled()
    page.get_by_label("Type the collection's name").fill("texts")
    restore.click()
    page.get_by_role("dialog").wait_for(state="detached")
    assert httpx.get(f"{url}/v1/collections/texts/items/t0").status_code == 200


def test_a_file_makes_a_collection_as_it_was_guessed(url: str, tab: OpenTab) -> None:
    array = io.BytesIO()
    np.save(array, np.ones((5, 7), np.float32))
    lines = b'{"id": "a", "vector": [1, 2, 3, 4]}\n'
    page = tab(url).open("#/?as=table")
    page.get_by_text("New collection").click()
    chooser = page.get_by_label("File that the collection is for")
    for name, content, dim, words in (
        ("rows.npy", array.getvalue(), "7", "vectors of 7 numbers"),
        ("lines.ndjson.gz", gzip.compress(lines), "4", "vectors of 4 numbers"),
        (
            "sparse.ndjson",
            b'{"vector": {"indices": [1], "values": [2]}}\n',
            "",
            "vectors that are sparse",
        ),
        ("my wines.csv", b"id,x,y,label\na,1,2,red\nb,2,0,white\n", "2", "vectors of 2 numbers"),
    ):
        chooser.set_input_files(
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
        )
        page.locator(".new").get_by_text(words).wait_for()
        expect(page.get_by_label("Dimension")).to_have_value(dim)
    expect(page.get_by_label("Name", exact=True)).to_have_value("rows")  # the first: it stays
    page.get_by_label("Name", exact=True).fill("my-wines")
    assert httpx.get(f"{url}/v1/collections/my-wines").status_code == 404
    page.get_by_role("button", name="Create, and look at the file").click()
    expect(page.get_by_label("What label becomes")).to_have_value("payload")
    page.get_by_role("button", name="Load into my-wines").click()
    page.get_by_text("2 new").wait_for()
    assert httpx.get(f"{url}/v1/collections/my-wines").json()["dim"] == 2
    page.goto("about:blank")
    httpx.delete(f"{url}/v1/collections/my-wines")


def test_a_load_that_is_read_says_what_it_waits_for(url: str, tab: OpenTab) -> None:
    here = tab(url)
    load = {
        "key": None, "state": "running", "rows": 3, "bytes": 2000, "total_bytes": 2000,
        "rejected": 0, "rate": 1.0, "started": "2026-01-01T00:00:00Z", "error": None,
    }  # fmt: skip
    here.page.route("**/loads", lambda route: route.fulfill(json={"loads": [load]}))

    def build(route: Route) -> None:
        answer = route.fetch()
        found = answer.json()
        found["backends"][0] |= {"status": "building", "progress": 0.4}
        route.fulfill(response=answer, json=found)

    here.page.route("**/collections/points", build)
    page = here.open("#/points/load")
    page.get_by_text("all 2.0 kB read; committing the last rows").wait_for()
    page.get_by_text("Building the graph: 40 %").wait_for()


# The overview


def test_memory_has_a_unit_and_no_item_of_a_strip_is_out_of_sight(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/?as=cards")
    expect(page.locator(".spark", has_text="memory").locator("strong")).to_have_text(
        re.compile(r"^[\d.]+ (MB|GB)$")
    )
    for name in ("pictures", "texts", "points", "molecules"):
        strip = page.locator(".card", has_text=name).locator(".strip")
        page.locator(".card", has_text=name).scroll_into_view_if_needed()
        strip.locator(".tile").first.wait_for()
        heights = strip.evaluate(
            "(strip) => [strip, ...strip.querySelectorAll('.tile')]"
            ".map((one) => one.getBoundingClientRect().bottom)"
        )
        assert len(heights) == (6 if name == "molecules" else 9)
        assert max(heights) == heights[0]


def test_many_collections_are_searched_and_sorted_in_a_list(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/?as=table&sort=items")
    rows = page.locator("tbody tr").filter(has=page.get_by_role("link", name="query"))
    sizes = rows.locator("td:nth-child(2)")
    collections = httpx.get(f"{url}/v1/collections").json()["collections"]
    items = sorted(
        (f"{each['items']:,}" for each in collections), key=lambda text: (len(text), text)
    )
    expect(sizes).to_have_text(items[::-1])
    page.get_by_role("button", name="items").click()
    expect(sizes).to_have_text(items)
    page.get_by_label("Search").fill("OIN")
    expect(rows).to_have_count(1)
    page.get_by_role("link", name="points", exact=True).click()
    page.get_by_text("2,200 items").wait_for()


def test_tiles_of_what_is_idle_are_hidden(url: str, tab: OpenTab) -> None:
    here = tab(url)
    idle = "gcws_resident_bytes 5000000\n"
    here.page.route("**/metrics", lambda route: route.fulfill(body=idle))
    page = here.open("#/?as=table")
    page.locator(".spark", has_text="5.0 MB").wait_for()
    expect(page.locator(".spark")).to_have_count(1)


# By keys alone


def test_an_id_with_a_comma_is_one_id(url: str, tab: OpenTab) -> None:
    with httpx.Client(base_url=url) as client:
        ids = ["a", "b", "a,b", "b,"]
        put(
            client,
            "commas",
            {"dim": 2},
            [{"id": i, "vector": [n + 1, 1]} for n, i in enumerate(ids)],
        )
        here = tab(url)
        for item_id in ("a,b", "a", "b,"):
            page = here.go(f"#/commas/item?id={quote(item_id)}")
            expect(page.locator("main .tag bdi")).to_have_text(item_id)
            page = here.go(f"#/commas/why?a={quote(item_id)}&b=b")
            page.locator(".mirror").first.wait_for()
        page.goto("about:blank")
        client.delete("/v1/collections/commas")


def test_dates_are_counted_by_days_months_or_years(url: str, tab: OpenTab) -> None:
    with httpx.Client(base_url=url) as client:
        days = [f"2024-{1 + n % 9:02}-{1 + n % 28:02}" for n in range(90)]
        texts = [*days, "2024-03-31T23:30:00-05:00", "2024-05-01 00:30+02:00", "2024-03-31T23:30"]
        days += ["2024-04-01", "2024-04-30", "2024-03-31"]  # in UTC
        items: list[Json] = [
            {"id": n, "vector": [n + 1, 1], "payload": {"when": text}}
            for n, text in enumerate(texts)
        ]
        put(client, "dated", {"dim": 2}, items)
        here = tab(url)
        page = here.open("#/dated/browse")
        expect(page.locator(".value bdi")).to_have_text([f"2024-{n:02}" for n in range(9, 0, -1)])
        page.get_by_role("button", name="2024-03").click()
        expected = sum(day.startswith("2024-03") for day in days)
        page.get_by_text(f"{expected} items of 93").wait_for()
        expect(page.locator(".value.on")).to_have_text(re.compile(rf"2024-03\s*{expected}$"))
        expect(page.get_by_label("when to")).to_have_value("2024-03-31")
        page.locator(".value", has_text="2024-04").click()
        expected = sum(day.startswith("2024-04") for day in days)
        page.get_by_text(f"{expected} items of 93").wait_for()
        page.get_by_role("button", name="Remove when ≥ 2024-04-01, < 2024-05-01").click()
        page.get_by_text("93 items", exact=True).wait_for()
        page.get_by_label("when from").fill("2024-03-07")
        page.get_by_label("when to").fill("2024-04-30")
        page.get_by_role("button", name="Apply", exact=True).click()
        expected = sum("2024-03-07" <= day <= "2024-04-30" for day in days)
        page.get_by_text(f"{expected} items of 93").wait_for()
        page.get_by_role("button", name="Apply", exact=True).click()  # again: it stays
        expect(page.get_by_label("when to")).to_have_value("2024-04-30")
        here.look("browse-dates")
        page.get_by_role("button", name="Remove when ≥ 2024-03-07, < 2024-05-01").click()
        page.get_by_text("93 items", exact=True).wait_for()
        page.goto("about:blank")
        client.delete("/v1/collections/dated")


def test_focus_goes_to_the_heading_of_each_view(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/pictures/browse")
    page.locator("[data-tile]").first.wait_for()
    assert page.evaluate("document.activeElement === document.body")  # as it was opened
    for view in ("Query", "Map", "Understand", "Backends", "Data", "Browse"):
        page.get_by_role("link", name=view, exact=True).click()
        page.locator("main h1:focus").wait_for()
    page.locator("[data-tile]").first.wait_for()
    page.locator("[data-tile='4'] .main").press("Enter")
    page.locator("main h1:focus", has_text="Hits").wait_for()
    page.get_by_role("spinbutton", name="Hits").focus()
    page.get_by_role("slider").fill("0.6")
    page.wait_for_url("**recall=0.6**")
    expect(page.locator("main h1:focus")).to_have_count(0)


def test_a_hit_is_one_stop_of_the_tabulator_and_no_link_holds_a_control(
    url: str, tab: OpenTab
) -> None:
    here = tab(url)
    for view, shown in (("pictures/browse", "60 items"), ("texts/query?id=t1", "of 20")):
        page = here.go(f"#/{view}")
        page.get_by_text(shown).first.wait_for()
        page.locator("[data-tile]").first.wait_for()
        stops = page.locator("[data-tile]").evaluate_all(
            "(all) => all.map((tile) => tile.querySelectorAll('a:not([tabindex]), button').length)"
        )
        assert {*stops} == {1}
        inside = page.locator("a button, a input, a select, a a, button button, a details")
        expect(inside).to_have_count(0)


def test_all_is_reached_by_keys(url: str, tab: OpenTab) -> None:
    page, reached = tab(url).open("#/pictures/browse"), set[str]()
    page.locator("[data-tile]").first.wait_for()
    for _ in range(16):
        page.keyboard.press("Tab")
        active = "document.activeElement.innerText || document.activeElement.tagName"
        reached.add(page.evaluate(active))
    assert {"Browse", "Query", "Map", "Backends", "Data"} <= reached
    page.reload()
    page.locator("[data-tile]").first.wait_for()
    keys = page.keyboard
    keys.press("?")
    page.get_by_role("dialog", name="Keys").wait_for()
    keys.press("Escape")
    page.get_by_role("dialog").wait_for(state="detached")
    # The page is drawn without the dialog, which has no focus any more.
    page.wait_for_function("document.activeElement === document.body")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    keys.press("ArrowRight")
    page.locator("[data-tile='0'] a:focus").wait_for()
    keys.press("ArrowRight")
    page.locator("[data-tile='1'] a:focus").wait_for()
    keys.press("Enter")
    page.locator(".found strong").wait_for()
    assert "id=1" in page.url
    keys.press("ArrowRight")
    second = page.evaluate("document.activeElement.closest('[data-tile]').dataset.tile")
    keys.press("e")
    page.locator(".fraction").wait_for()
    assert f"b={second}" in page.url
    keys.press("/")
    page.locator("[data-find]:focus").wait_for()
    keys.type("5")
    page.locator(".found-item").nth(1).wait_for()
    keys.press("ArrowDown")
    keys.press("Enter")
    page.get_by_role("link", name="Find similar").wait_for()
    assert "item?id=50" in page.url
    page.get_by_role("link", name="Find similar").press("Enter")
    page.locator(".found strong").wait_for()
    page.locator("body").click(position={"x": 5, "y": 300})
    keys.press("ArrowDown")
    keys.press("d")
    page.wait_for_url("**/item?id=*")


def test_a_map_is_used_by_keys_alone_and_stays_as_it_is(url: str, tab: OpenTab) -> None:
    here = tab(url)
    page = here.open("#/points/map?color=group")
    page.locator(".plane").wait_for()
    expect(page.locator(".arranging")).to_have_text("")
    maps: list[str] = []
    page.on("request", lambda request: maps.append(request.url) if "/map" in request.url else None)
    while not page.evaluate("document.activeElement.matches('.plane')"):
        page.keyboard.press("Tab")
    page.locator(".hovered strong").wait_for()
    under_the_cross = page.locator(".hovered strong").inner_text()
    page.keyboard.press("Enter")
    page.get_by_role("heading", name=f"Similar to {under_the_cross}").wait_for()
    expect(page.locator(".tiles[aria-label=Hits] .hit")).to_have_count(15)
    assert page.evaluate("document.activeElement.matches('.plane')")
    assert not maps
    for key in ("+", "ArrowLeft", "ArrowUp", "0"):
        page.keyboard.press(key)
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    of_group = sum(number % 7 == 0 for number in range(2200))
    page.get_by_text(f"{of_group} items chosen").wait_for()
    page.get_by_role("button", name="Filter: group is 0").press("Enter")
    page.get_by_text(f"{of_group} items of 2,200").wait_for()


VIEWS: Final = {
    "overview": ("#/?as=cards", ".card .stats dd", "Collections"),
    "overview-list": ("#/?as=table&sort=items", "td .quiet", "2,200"),
    "browse-pictures": ("#/pictures/browse", ".tiles canvas", "60 items"),
    "browse-filtered": (
        '#/pictures/browse?filter={"must":[{"key":"family","match":{"value":"flat"}}]}',
        ".tiles canvas", "20 items of 60",
    ),
    "empty": ("#/empty/browse", ".command", "empty has no items yet"),
    "browse-table": ("#/texts/browse?as=table", "tbody tr:nth-child(30)", "30 items"),
    "browse-molecules": ("#/molecules/browse", ".molecule", "not a molecule (("),
    "item": ("#/texts/item?id=t3", ".bars .row", "t3"),
    "query-start": ("#/points/query", ".hit", "begin with one of these"),
    "query": ("#/points/query?id=7&recall=0.8", ".found strong", "of 20"),
    "query-table": ("#/pictures/query?id=7&as=table", "tbody tr", "of 20"),
    "query-row": ("#/points/query?row=" + ",".join(["1"] * 16), ".found strong", "Similar to"),
    "query-names": ("#/texts/query?names=recall curve:2 zebra", ".hit", "zebra"),
    "why-pictures": ("#/pictures/why?a=0&b=3", ".five canvas", "Only right"),
    "why-texts": ("#/texts/why?a=t1&b=t2", ".fraction", "Σ max"),
    "duplicates-pictures": (
        "#/pictures/duplicates?low=0.2&min_score=0.3", ".members canvas", "Pairs by score",
    ),
    "duplicates-texts": ("#/notes/duplicates?min_score=0.5", "mark.differs", "weakest pair"),
    "map": ("#/points/map?sample=1000&id=7", ".plane", "1,000 of 2,200 items"),
    "understand": ("#/points/understand", "section + section canvas", "Below the dashed line"),
    "audit": ("#/points/audit", ".verdict", "Queries for 10 hits at a recall of 0.9 found less"),
    "backends": ("#/pictures/backends?sample=10", ".verdict", "of the exact neighbours"),
    "load": ("#/texts/load", ".drop", "Snapshots"),
}  # fmt: skip
"""Name: address, what is there once it is whole, and words that it says."""


AUDITED: Final[Json] = {
    "audited": [
        {"week": f"2026-W0{week}", "recall": 0.9, "limit": 10, "queries": 200, "found": found,
         "low": found - 0.02, "high": found + 0.02}
        for week, found in ((2, 0.82), (1, 0.93))
    ],
    "allowance": [{"limit": 10, "share": 0.5}, {"limit": None, "share": 1.0}],
    "waiting": 1,
}  # fmt: skip


def test_each_view_is_shown_to_everybody(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.page.route("**/recall", lambda route: route.fulfill(json=AUDITED))
    for name, (address, whole, words) in VIEWS.items():
        page = here.go(address)
        page.get_by_text(words).first.wait_for()
        page.locator(whole).first.wait_for()
        here.look(name)


ALIKE_OPERATIONS = """() => {
  for (const each of document.querySelectorAll(".operation-tag-content > span:nth-child(n+3)"))
    each.remove();
}"""
"""Leaves two operations of each kind: axe takes most of a minute to judge them all."""


def test_the_api_page_is_for_everybody_and_leads_back(url: str, tab: OpenTab) -> None:
    here = tab(url)
    page = here.open("docs#/search/query_v1_collections__name__query_post")
    page.locator(".opblock-body .example").first.wait_for()
    page.get_by_role("button", name="Try it out").first.click()
    page.get_by_label("Request body").wait_for()
    page.evaluate(ALIKE_OPERATIONS)
    here.look("docs")
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        expect(page.locator("html.dark-mode")).to_have_count(int(scheme == "dark"))
    page.get_by_role("link", name="gcws-search").click()
    page.get_by_role("heading", name="Collections").wait_for()


def test_all_views_show_a_collection_of_one_item_and_of_none_the_next_step(
    url: str, tab: OpenTab
) -> None:
    here = tab(url)
    for view in ("browse", "query", "duplicates", "map", "understand", "item?id=x"):
        page = here.go(f"#/empty/{view}")
        page.get_by_text(f"gcws-search load items.csv --into empty --url {url}/").wait_for()
    for name in ("scanned", "empty"):
        page = here.go(f"#/{name}/browse")
        for view in ("Query", "Duplicates", "Map", "Understand", "Backends", "Data", "Browse"):
            page.get_by_role("link", name=view, exact=True).click()
            page.locator("main h1, main h2").first.wait_for()
            page.wait_for_load_state("networkidle")
            expect(page.get_by_role("alert")).to_have_count(0)
            expect(page.locator("main .skeleton")).to_have_count(0)
