"""CSV in the page: what columns become by themselves, and by the hand of somebody."""

from typing import Final

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.page.conftest import choose_file
from tests.support.service.browser import OpenTab, Tab
from tests.support.service.client import Json


def open_new(url: str, here: Tab, name: str, dim: int) -> Page:
    """Create a collection, and open where files are loaded into it."""
    httpx.put(f"{url}/v1/collections/{name}", json={"dim": dim}).raise_for_status()
    return here.open(f"#/{name}/load")


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


def test_numbers_beyond_those_of_javascript_stay_as_they_are(url: str, tab: OpenTab) -> None:
    csv = "id,x,y\n9007199254740993,1,9007199254740993\n007,2,18446744073709551615\n"
    page = open_new(url, tab(url), "large", 1)
    choose_file(page, "a.csv", csv.encode())
    page.get_by_label("What y becomes").select_option("payload")
    load(page, "large", told="2 new")
    assert items(url, "large") == [
        {"id": "9007199254740993", "vector": [1.0], "payload": {"y": 9007199254740993}},
        {"id": "007", "vector": [2.0], "payload": {"y": 18446744073709551615}},
    ]


TABLES: Final = {
    "latin.csv": 'id;x;Ort\r\n0012;1,5;"Orléans;\r\nalt"\r\n'.encode("latin-1"),
    "wide.csv": 'id,x,Ort\n0012,1.5,"Orléans;\r\nalt"\n'.encode("utf-16"),
    "tabs.tsv": 'id\tx\tOrt\n0012\t1.5\t"Orléans;\r\nalt"\n'.encode(),
}


@pytest.mark.parametrize("name", TABLES)
def test_text_of_any_encoding_and_division_is_read(url: str, tab: OpenTab, name: str) -> None:
    collection = name.replace(".", "-")
    here = tab(url)
    page = open_new(url, here, collection, 1)
    choose_file(page, name, TABLES[name])
    expect(page.get_by_role("combobox", name="becomes")).to_have_count(3)
    here.look(f"load-{collection}")
    load(page, collection, told="1 new")
    wanted = {"id": "0012", "vector": [1.5], "payload": {"Ort": "Orléans;\r\nalt"}}
    assert items(url, collection) == [wanted]


def test_an_encoding_that_is_chosen_is_the_one_of_the_load(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected.append("status of 400")  # bytes that are no UTF-8
    page = open_new(url, here, "encoded", 1)
    choose_file(page, "a.csv", "id;x;Größe\na;1;Łódź\n".encode("cp1250"))
    encoding = page.get_by_label("Encoding")
    encoding.select_option(label="utf-8")
    page.get_by_role("alert").wait_for()
    encoding.select_option(label="cp1250")
    page.get_by_text("Łódź").wait_for()
    here.look("load-encoding")
    page.get_by_label("What Größe becomes").select_option(label="payload")
    load(page, "encoded", told="1 new")
    wanted = {"id": "a", "vector": [1.0], "payload": {"Größe": "Łódź"}}
    assert items(url, "encoded") == [wanted]


def test_rows_that_lack_a_number_become_what_is_chosen(url: str, tab: OpenTab) -> None:
    page = open_new(url, tab(url), "lacking", 2)
    choose_file(page, "a.csv", b"id,x,y\na,1,\nb,2,3\n")
    page.get_by_label("Rows that lack a number").select_option(label="are left out")
    load(page, "lacking", told="1 new, 0 updated, 0 rejected, 1 left out")
    page.get_by_label("Rows that lack a number").select_option(label="have a 0 there")
    load(page, "lacking", told="1 new, 1 updated")
    assert [item["vector"] for item in items(url, "lacking")] == [[1, 0], [2, 3]]


def test_each_choice_of_a_column_is_what_is_loaded(url: str, tab: OpenTab) -> None:
    """Every select is touched, and every option of it is chosen by the words that it shows."""
    here = tab(url)
    here.expected.append("status of 422")  # two columns of ids
    page = open_new(url, here, "chosen-columns", 2)
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
    page.get_by_role("alert").get_by_text("expected one value, got 2 values").wait_for()


def test_rows_that_are_no_items_are_named_by_their_numbers_in_the_file(
    url: str, tab: OpenTab
) -> None:
    page = open_new(url, tab(url), "gaps", 1)
    load(page, "gaps", b"id,x\na,1\nb,\nc,0\nd,4\ne\nf,6\ng,oops\n", "3 new")
    rows = page.locator("[role=status] tbody tr")
    expect(rows).to_have_count(4)
    assert [row.split("\t")[0] for row in rows.all_inner_texts()] == ["1", "2", "4", "6"]
    assert [item["id"] for item in items(url, "gaps")] == ["a", "d", "f"]
    load(page, "gaps", b"id,x\na,5\n,2\nb,\n", "0 new, 1 updated")
    expect(rows).to_have_count(2)


def test_rows_without_ids_are_appended(url: str, tab: OpenTab) -> None:
    page = open_new(url, tab(url), "appended", 2)
    for number, told in enumerate(("0 to 1", "2 to 3")):
        content = f"x,y\n{number},2\n3,{number}\n".encode()
        load(page, "appended", content, "2 new, 0 updated, 0 rejected")
        page.get_by_text(f"have the numbers {told}.").wait_for()
    found = [(item["id"], item["vector"]) for item in items(url, "appended")]
    assert found == [("0", [0, 2]), ("1", [3, 0]), ("2", [1, 2]), ("3", [3, 1])]


def test_shares_of_columns_are_shown_of_those_that_become_the_vector(
    url: str, tab: OpenTab
) -> None:
    page = open_new(url, tab(url), "shares", 2)
    choose_file(page, "a.csv", b"id,mass,flip,n\na,-30,0,true\nb,60,9,false\n")
    shares = page.locator("tr td:nth-child(3)")
    page.get_by_text("scores are mostly those of 'mass'").wait_for()
    assert shares.all_inner_texts()[1:] == ["90 %", "9 %", "1 %"]
    page.get_by_label("What mass becomes").select_option(label="payload")
    expect(shares.nth(1)).to_have_text("")
    expect(shares.nth(2)).to_have_text("90 %")
    assert shares.all_inner_texts()[2:] == ["90 %", "10 %"]


def test_columns_name_coordinates_and_are_taken_by_name(url: str, tab: OpenTab) -> None:
    here = tab(url)
    here.expected.append("status of 422")
    page = open_new(url, here, "named", 2)
    names = f"{url}/v1/collections/named/names"
    load(page, "named", b"id,mass,flip\na,,2\nb,,3\nc,0,0\n", "0 new")
    assert httpx.get(names).json()["count"] == 0
    load(page, "named", b"id,mass,flip\na,1,2\n", "1 new")
    assert [each["name"] for each in httpx.get(names).json()["names"]] == ["mass", "flip"]
    load(page, "named", b"flip,mass,id\n2,1,b\n", "1 new, 0 updated")
    assert [item["vector"] for item in items(url, "named")] == [[1, 2], [1, 2]]
    load(page, "named", b"flip,beak,id\n2,1,c\n")
    page.get_by_role("alert").get_by_text("none for 'mass' and unknown 'beak'").wait_for()
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
