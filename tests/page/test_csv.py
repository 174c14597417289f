"""CSV in the page: what columns become by themselves, and by the hand of somebody."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import numpy as np
import pytest
from playwright.sync_api import BrowserContext, Error, Page, expect

from gcws_search.formats.files import BadFile
from gcws_search.index import InvalidInput
from tests.page.conftest import choose_file
from tests.support.files import items as of_file, source
from tests.support.paths import REPOSITORY
from tests.support.service.browser import OpenTab, Tab
from tests.support.service.client import Json

CASES: Final[list[Json]] = json.loads(
    (REPOSITORY / "tests" / "support" / "data" / "csv_guesses.json").read_text()
)
"""What the command makes of CSV too; see ``docs/command-line.md``."""
READ: Final = """async ([name, csv, bytes]) => {
  const main = document.querySelector("script[type=module]").src;
  const { parsed, columnsOf, itemsOf } = await import(new URL("csv.js", main));
  const table = await parsed(new File([bytes ? new Uint8Array(bytes) : csv], name));
  const roles = columnsOf(table);
  const dim = Object.values(roles).filter((role) => role === "vector").length;
  return { roles, ...itemsOf(table, roles, { dim }) };
}"""
"""What a file of CSV becomes where nobody changes the guess."""


def read(page: Page, csv: str = "", *, name: str = "a.csv", content: bytes | None = None) -> Json:
    """Return the roles of columns, the items, and the rows that are none."""
    found = page.evaluate(READ, [name, csv, None if content is None else [*content]])
    found["items"] = [json.loads(line) for line in found["lines"]]
    return found


def load(page: Page, name: str, content: bytes = b"", told: str = "") -> None:
    """Load a file, the one that is chosen where none is given, and wait until that is told."""
    if content:
        choose_file(page, "a.csv", content)
    page.get_by_role("button", name=f"Load into {name}").click()
    if told:
        page.locator("[role=status]", has_text=told).wait_for()


def items(url: str, name: str) -> list[Json]:
    """Return what a collection has, versions left out."""
    answer = httpx.get(f"{url}/v1/collections/{name}/items?with_vector=true", timeout=60)
    return [
        {word: item[word] for word in ("id", "vector", "payload")}
        for item in answer.json()["items"]
    ]


@pytest.fixture(scope="module")
def reader(browser: BrowserContext, url: str) -> Iterator[Page]:
    """Return a page that reads files, and is not looked at."""
    here = Tab(browser, None)
    here.url = url
    yield here.open()
    here.leave()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_columns_become_what_the_command_makes_of_them(reader: Page, case: Json) -> None:
    found = read(reader, case["csv"])
    roles = found["roles"]
    for role in ("vector", "payload"):
        assert [name for name, each in roles.items() if each == role] == case[role]
    assert [name for name, each in roles.items() if each == "id"] == [
        name for name in [case["id"]] if name is not None
    ]
    if "items" in case:
        shown = [[each.get("id"), each["vector"], each.get("payload")] for each in found["items"]]
        assert shown == case["items"]
        assert not found["rejected"]
    else:
        [rejected] = found["rejected"]
        assert rejected["row"] == case["error"]["row"]
        assert json.dumps(case["error"]["column"]) in rejected["detail"]
        assert case["error"].get("got", "") in rejected["detail"]
        assert case["error"]["row"] not in found["numbers"]
        assert len(found["items"]) == case["csv"].count("\n") - 2


NAMES: Final = ("id", "ID", "", "x", "y", "a b", "2001", "2002", "1.5", "key", "é")
NUMBERS: Final = ("1", "-2", "3.25", ".5", "6.", "1e3", "+7", " 8 ", "9007199254740993", "0", "0.0")
CELLS: Final = {
    "numbers": NUMBERS,
    "mixed": (*NUMBERS, "NA", "", "null", "oops"),
    "words": ("NA", "", "a", "a, b", "12:30", "true", "7", "é", 'say ""so""', "a; b", "x\ny"),
    "padded": ("007", "7", "12", "0.5", "-01"),
    "truths": ("true", "False", "TRUE", "", "NaN"),
    "ids": ("007", "7", "12e3", "18446744073709551615", "NA", "b", ""),
}


def made_table(rng: np.random.Generator) -> str:
    """Return a file of CSV as somebody might have one."""
    names = rng.permutation(NAMES)[: rng.integers(1, 6)].tolist()
    mark = rng.choice([",", ";", "|", "\t"])
    kinds = ["ids" if name.lower() in ("id", "") else rng.choice([*CELLS]) for name in names]
    lines = [names] if rng.random() < 0.9 else []
    for _ in range(rng.choice([1, 2, 3, 8, 30])):
        lines.append([rng.choice(CELLS[kind]) for kind in kinds])
        if names[1:] and rng.random() < 0.02:
            lines[-1].append("more")
    always = rng.random() < 0.2
    text = "\n".join(mark.join(f'"{cell}"' if always or {mark, '"', "\n"} & {*cell} else cell
                              for cell in line) for line in lines)  # fmt: skip
    return text + "\n"


def test_made_tables_become_what_the_command_makes_of_them(
    reader: Page, tmp_path: Path, rng: np.random.Generator
) -> None:
    page, path, seen = reader, tmp_path / "a.csv", 0
    for _ in range(150):
        path.write_text(csv := made_table(rng))
        try:
            columns, wanted = source(path, lenient=True).columns or [], of_file(path, lenient=True)
        except (BadFile, InvalidInput):
            with pytest.raises(Error, match="expected"):
                read(page, csv)
            continue
        found = read(page, csv)
        roles = found["roles"]
        assert sorted(columns) == sorted(name for name in roles if roles[name] == "vector"), csv
        assert len(wanted) == len(found["items"]), csv
        for item, (item_id, vector, payload) in zip(found["items"], wanted, strict=True):
            assert item.get("id", item_id) == item_id, csv
            assert ("id" in item) == ("id" in roles.values()), csv
            assert item["vector"] == pytest.approx(vector), csv
            assert item.get("payload") == payload, csv
            seen += 1
    assert seen > 200


def test_numbers_beyond_those_of_javascript_stay_as_they_are(url: str, tab: OpenTab) -> None:
    csv = "id,x,y\n9007199254740993,1,9007199254740993\n007,2,18446744073709551615\n"
    httpx.put(f"{url}/v1/collections/large", json={"dim": 1}).raise_for_status()
    page = tab(url).open("#/large/load")
    choose_file(page, "a.csv", csv.encode())
    page.get_by_label("What y becomes").select_option("payload")
    load(page, "large", told="2 new")
    assert items(url, "large") == [
        {"id": "9007199254740993", "vector": [1.0], "payload": {"y": 9007199254740993}},
        {"id": "007", "vector": [2.0], "payload": {"y": 18446744073709551615}},
    ]


def test_text_that_is_not_utf_8_is_refused_with_its_line(url: str, tab: OpenTab) -> None:
    page = tab(url).open("#/texts/load")
    latin = "id,x,place\na,1,Paris\nb,2,Orléans\n".encode("latin-1")
    choose_file(page, "cities.csv", latin)
    page.get_by_role("alert").get_by_text("line 3: expected text in UTF-8").wait_for()
    page.get_by_text("gcws-search load 'cities.csv' --into texts").wait_for()
    expect(page.get_by_role("button", name="Load into texts")).to_have_count(0)
    wide = "id,x,place\nb,2,Orléans\n".encode("utf-16")
    assert read(page, content=wide)["items"][0]["payload"] == {"place": "Orléans"}


def test_each_choice_of_a_column_is_what_is_loaded(url: str, tab: OpenTab) -> None:
    """Every select is touched, and every option of it is chosen by the words that it shows."""
    httpx.put(f"{url}/v1/collections/chosen-columns", json={"dim": 2}).raise_for_status()
    here = tab(url)
    page = here.open("#/chosen-columns/load")
    choose_file(page, "a.csv", b"id,sku,x,y,label,note\na,s1,1,2,7,n1\nb,s2,3,4,8,n2\n")
    selects = page.get_by_role("combobox", name="becomes")
    expect(selects).to_have_count(6)
    shown = "(all) => all.map((one) => one.selectedOptions[0].textContent)"
    guess = ["id", "payload", "vector", "vector", "vector", "payload"]
    assert selects.evaluate_all(shown) == guess
    page.get_by_text("3 columns become the vector; one of chosen-columns has 2 coord").wait_for()
    for place, role in enumerate(guess):
        for words in ("leave out", "payload", "vector", "id", role):
            selects.nth(place).select_option(label=words)
            expect(selects.nth(place)).to_have_value(words)
            assert selects.evaluate_all(shown) == [*guess[:place], words, *guess[place + 1 :]]
    chosen = {"id": "payload", "sku": "id", "label": "payload", "note": "leave out"}
    for name, words in chosen.items():
        page.get_by_label(f"What {name} becomes").select_option(label=words)
    expect(page.get_by_text("columns become the vector")).to_have_count(0)
    here.look("load-columns")
    load(page, "chosen-columns", told="2 new")
    assert items(url, "chosen-columns") == [
        {"id": "s1", "vector": [1.0, 2.0], "payload": {"id": "a", "label": 7}},
        {"id": "s2", "vector": [3.0, 4.0], "payload": {"id": "b", "label": 8}},
    ]
    page.get_by_label("What id becomes").select_option(label="id")
    load(page, "chosen-columns")
    page.get_by_role("alert").get_by_text("expected one column that becomes the id").wait_for()


def test_rows_that_are_no_items_are_named_by_their_numbers_in_the_file(
    url: str, tab: OpenTab
) -> None:
    httpx.put(f"{url}/v1/collections/gaps", json={"dim": 1}).raise_for_status()
    page = tab(url).open("#/gaps/load")
    load(page, "gaps", b"id,x\na,1\nb,\nc,0\nd,4\ne\nf,6\ng,oops\n", "3 new")
    rows = page.locator("[role=status] tbody tr")
    expect(rows).to_have_count(4)
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["1", "2", "4", "6"]
    assert [item["id"] for item in items(url, "gaps")] == ["a", "d", "f"]
    load(page, "gaps", b"id,x\na,\n,2\n", "0 new")
    expect(rows).to_have_count(2)


def test_rows_without_ids_are_appended(url: str, tab: OpenTab) -> None:
    httpx.put(f"{url}/v1/collections/appended", json={"dim": 2}).raise_for_status()
    page = tab(url).open("#/appended/load")
    for number, told in enumerate(("0 to 1", "2 to 3")):
        content = f"x,y\n{number},2\n3,{number}\n".encode()
        load(page, "appended", content, "2 new, 0 updated, 0 rejected")
        page.get_by_text(f"have the numbers {told}.").wait_for()
    found = [(item["id"], item["vector"]) for item in items(url, "appended")]
    assert found == [("0", [0, 2]), ("1", [3, 0]), ("2", [1, 2]), ("3", [3, 1])]


def test_shares_of_columns_are_shown_of_those_that_become_the_vector(
    url: str, tab: OpenTab
) -> None:
    httpx.put(f"{url}/v1/collections/shares", json={"dim": 2}).raise_for_status()
    page = tab(url).open("#/shares/load")
    choose_file(page, "a.csv", b"id,mass,flip,n\na,-30,0,true\nb,60,9,false\n")
    shares = page.locator("tr td:nth-child(3)")
    page.get_by_text("Scores are mostly those of").wait_for()
    assert shares.all_inner_texts()[1:] == ["90 %", "9 %", "1 %"]
    page.get_by_label("What mass becomes").select_option(label="payload")
    expect(shares.nth(1)).to_have_text("")
    assert shares.all_inner_texts()[2:] == ["90 %", "10 %"]


def test_columns_name_coordinates_and_are_taken_by_name(url: str, tab: OpenTab) -> None:
    httpx.put(f"{url}/v1/collections/named", json={"dim": 2}).raise_for_status()
    page = tab(url).open("#/named/load")
    names = f"{url}/v1/collections/named/names"
    load(page, "named", b"id,mass,flip\na,,2\n", "0 new")
    assert httpx.get(names).json()["count"] == 0
    load(page, "named", b"id,mass,flip\na,1,2\n", "1 new")
    assert [each["name"] for each in httpx.get(names).json()["names"]] == ["mass", "flip"]
    load(page, "named", b"flip,mass,id\n2,1,b\n", "1 new, 0 updated")
    assert [item["vector"] for item in items(url, "named")] == [[1, 2], [1, 2]]
    load(page, "named", b"flip,beak,id\n2,1,c\n")
    page.get_by_role("alert").get_by_text('none for "mass" and unknown "beak"').wait_for()
    assert len(items(url, "named")) == 2


SELECTS: Final = (
    ("", "Divide vectors by"),
    ("#/pictures/backends?sample=10", "Kind"),
    ("#/points/map?sample=1000", "Colour"),
    ("#/points/map?sample=1000", "Sample"),
    ("#/points/browse", "Collection"),
)


def test_a_select_is_what_was_chosen_from_it(url: str, tab: OpenTab) -> None:
    here = tab(url)
    for address, label in SELECTS:
        page = here.go(address)
        if not address:
            page.get_by_text("New collection").click()
        select = page.get_by_role("combobox", name=label)
        expect(select.locator("option").nth(1)).to_be_attached()
        words = select.locator("option").all_inner_texts()
        assert "" not in words
        for option in words[::-1]:
            select.select_option(label=option)
            expect(select.locator("option:checked")).to_have_text(option)
            assert select.input_value() != "" or option == "none"
