"""CSV as bodies: what a preview says of them, and what a load stores."""

import gzip
import json
from typing import Final

import httpx
import numpy as np
import pytest

from tests.support.paths import REPOSITORY
from tests.support.service.bodies import npy
from tests.support.service.client import URL, Client, Json, Serve, assert_problem, chunked, count

in_each_way = pytest.mark.served(front="one", cluster="one")
"""Of tests of what a front or a router does; what a body holds is read by one code in all."""

CSV: Final = {"Content-Type": "text/csv"}
TSV: Final = {"Content-Type": "text/tab-separated-values"}
CASES: Final[list[Json]] = json.loads(
    (REPOSITORY / "tests" / "support" / "data" / "csv_guesses.json").read_text()
)
"""What the command makes of CSV; see ``docs/command-line.md``."""
LATIN: Final = (
    "id;Größe;Gewicht;Ort\r\n"
    '0012;1,5;-2,25;"Orléans;\r\nalt"\r\n'
    '13;0,5;3;Köln\r\n'
).encode("latin-1")  # fmt: skip


def load(client: Client, body: Json, headers: Json = CSV, **params: Json) -> httpx.Response:
    return client.post(f"{URL}/load", content=body, headers=headers, params=params)


def preview(client: Client, body: Json, headers: Json = CSV, **params: Json) -> httpx.Response:
    return client.post("/v1/preview", content=body, headers=headers, params=params)


def stored(client: Client) -> list[Json]:
    listed = client.get(f"{URL}/items", params={"with_vector": True}).json()["items"]
    found = [
        {key: item[key] for key in ("id", "text" if "text" in item else "vector", "payload")}
        for item in listed
    ]
    return sorted(found, key=lambda item: str(item["id"]))


def made(client: Client, **config: Json) -> None:
    client.delete(URL)
    assert client.put(URL, json=config).status_code == 201


@in_each_way
def test_a_preview_says_what_a_file_is_taken_for(client: Client) -> None:
    found = preview(client, LATIN)
    assert found.status_code == 200, found.text
    told = found.json()
    columns = told.pop("columns")
    assert [(each["name"], each["kind"], each["role"], each["missing"]) for each in columns] == [
        ("id", "text", "id", 0),
        ("Größe", "number", "vector", 0),
        ("Gewicht", "number", "vector", 0),
        ("Ort", "text", "payload", 0),
    ]
    assert [each["share"] for each in columns] == [None, 2 / 7.25, 5.25 / 7.25, None]
    rows = told.pop("rows")
    assert rows[0] == {"id": "0012", "Größe": "1,5", "Gewicht": "-2,25", "Ort": "Orléans;\r\nalt"}
    assert told == {
        "encoding": "cp1252", "delimiter": ";", "decimal": ",", "header": True, "holds": "vectors",
        "dim": 2, "text": "Ort", "scale": None, "warnings": [],
    }  # fmt: skip


def test_a_preview_says_once_that_numbers_with_marks_are_text(client: Client) -> None:
    found = preview(client, b"a;b;price\n1;2;1.234,5\n3;4;2.345,6\n").json()
    assert found["warnings"] == ["'price' with '1.234,5': numbers with marks, and lists, are text"]
    assert found["scale"] is None


def test_a_preview_takes_what_columns_are_told_to_be(client: Client) -> None:
    body = b"id,mass,flip,n\na,-30,0,true\nb,60,9,false\n"
    told = preview(client, body).json()
    assert told["scale"] == "standard"
    assert told["warnings"] == ["scores are mostly those of 'mass'"]
    told = preview(client, body, payload=["mass"]).json()
    assert [(each["role"], each["share"]) for each in told["columns"]] == [
        ("id", None), ("payload", None), ("vector", 0.9), ("vector", 0.1)
    ]  # fmt: skip
    told = preview(client, body, holds="texts").json()
    assert (told["holds"], told["dim"], told["text"]) == ("texts", None, "n")
    told = preview(client, b"id,title,text\na,long words that are more,b\n").json()
    assert (told["holds"], told["text"]) == ("texts", "text")


def test_a_first_column_may_begin_like_another_format(client: Client) -> None:
    for name in ("€ price", "PAR1", "ARROW1", "FEA1"):
        body = f"{name};height\n1,5;2,0\n".encode("cp1252")
        columns = preview(client, body, encoding="cp1252").json()["columns"]
        assert [each["name"] for each in columns] == [name, "height"]


def test_the_charset_of_the_content_type_counts_unless_the_url_names_another(
    client: Client,
) -> None:
    made(client, dim=1)
    typed = {"Content-Type": "text/csv; charset=cp1251"}
    body = "id,x\nж,1\n".encode("cp1251")
    load(client, body, typed)
    load(client, body, typed, encoding="latin-1")
    assert {item["id"] for item in stored(client)} == {"ж", "æ"}
    assert preview(client, body, typed).json()["rows"] == [{"id": "ж", "x": "1"}]
    typed = {"Content-Type": "text/csv; charset=none"}
    for answer in (load(client, body, typed), preview(client, body, typed)):
        assert_problem(answer, 422, "invalid_parameter", "Content-Type", "'none'")
    answer = load(client, body, typed, encoding="nonsense")
    assert_problem(answer, 422, "invalid_parameter", "encoding", "'nonsense'")


@in_each_way
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_csv_loads(client: Client, size: int) -> None:
    made(client, dim=2)
    answer = load(client, chunked(LATIN, size))
    assert answer.status_code == 200, answer.text
    assert answer.json()["inserted"] == 2
    assert stored(client) == [
        {"id": "0012", "vector": [1.5, -2.25], "payload": {"Ort": "Orléans;\r\nalt"}},
        {"id": "13", "vector": [0.5, 3.0], "payload": {"Ort": "Köln"}},
    ]
    names = client.get(f"{URL}/names").json()["names"]
    assert [each["name"] for each in names] == ["Größe", "Gewicht"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_columns_become_what_the_command_makes_of_them(client: Client, case: Json) -> None:
    columns = preview(client, case["csv"].encode()).json()["columns"]
    for role in ("vector", "payload"):
        assert [each["name"] for each in columns if each["role"] == role] == case[role]
    assert [each["name"] for each in columns if each["role"] == "id"] == [
        name for name in [case["id"]] if name is not None
    ]
    made(client, dim=len(case["vector"]))
    told = load(client, case["csv"].encode(), on_error="skip").json()
    if "items" in case:
        assert told["rejected_count"] == 0
        found = [[item["id"], item["vector"], item["payload"]] for item in stored(client)]
        number = iter(range(len(found)))
        wanted = [[next(number) if i is None else i, v, p] for i, v, p in case["items"]]
        assert found == sorted(([str(i), v, p] for i, v, p in wanted), key=lambda each: each[0])
    else:
        [rejected] = told["rejected"]
        assert rejected["row"] == case["error"]["row"]
        assert repr(case["error"]["column"]) in rejected["detail"]
        assert case["error"].get("got", "") in rejected["detail"]


def test_utf_16_and_tabs_load(client: Client) -> None:
    made(client, dim=1)
    assert load(client, "id,x,a b\né,1,w\n".encode("utf-16")).json()["inserted"] == 1
    assert load(client, b"id\tx\ta b\nf\t2\t,\n", TSV).json()["inserted"] == 1
    assert stored(client) == [
        {"id": "f", "vector": [2.0], "payload": {"a b": ","}},
        {"id": "é", "vector": [1.0], "payload": {"a b": "w"}},
    ]


def test_rows_that_are_no_items_are_named_by_row_and_column(client: Client) -> None:
    made(client, dim=1)
    body = b"id,x,n\na,1,1\nb,,2\nc,0,3\nd,4,4\ne\nf,6,5\ng,oops,6\n,8,7\nh,9,8\n"
    told = load(client, body, payload=["n"], on_error="skip").json()
    assert (told["inserted"], told["rejected_count"]) == (4, 5)
    shown = [(each["row"], each["code"], each["detail"]) for each in told["rejected"]]
    assert shown[0] == (
        1, "invalid_input",
        "row 1: column 'x': expected a number, got a missing value; missing drop or zero says "
        "what such rows become",
    )  # fmt: skip
    assert [row for row, *_ in shown] == [1, 2, 4, 6, 7]
    assert shown[2][2] == "row 4: expected 3 columns, got 1"
    assert shown[3][2] == "row 6: column 'x': expected a number, got 'oops'"
    made(client, dim=1)
    problem = assert_problem(load(client, body, payload=["n"]), 422, "invalid_input")
    assert problem["row"] == 1
    assert problem["errors"][0]["loc"] == ["rows", 1]
    assert count(client) == 0
    assert client.get(f"{URL}/names").json()["count"] == 0, "nothing was stored"


def test_missing_numbers_become_what_is_asked_for(client: Client) -> None:
    body = b"id,x,y\na,1,\nb,2,3\nc,,4\n"
    made(client, dim=2)
    told = load(client, body, missing="drop").json()
    assert (told["inserted"], told["dropped_count"], told["rejected_count"]) == (1, 2, 0)
    assert "repeated_count" not in told
    made(client, dim=2)
    told = load(client, body, missing="zero").json()
    assert (told["inserted"], "dropped_count" in told) == (3, False)
    assert [item["vector"] for item in stored(client)] == [[1, 0], [2, 3], [0, 4]]


def test_columns_are_what_they_are_told_to_be(client: Client) -> None:
    body = b"id,sku,x,y,label,note\na,s1,1,2,7,n1\nb,s2,3,4,8,n2\n"
    made(client, dim=2)
    assert load(client, body, id="sku", payload=["id", "label"]).json()["inserted"] == 2
    assert stored(client) == [
        {"id": "s1", "vector": [1, 2], "payload": {"id": "a", "label": 7}},
        {"id": "s2", "vector": [3, 4], "payload": {"id": "b", "label": 8}},
    ]
    made(client, dim=1)
    told = load(client, body, payload=["id", "x", "y"], vector=["label"]).json()
    assert told["ids"] == {"first": "0", "last": "1"}, "a column that is a field has no ids"
    made(client, dim=1)
    assert load(client, b"1,2\n3,4\n", header=False, payload=["f1"]).json()["inserted"] == 2
    assert [item["payload"] for item in stored(client)] == [{"f1": 2}, {"f1": 4}]
    problem = assert_problem(load(client, body, vector=["none"]), 422, "invalid_parameter")
    assert "column 'none'" in problem["detail"]


@in_each_way
def test_columns_are_taken_by_the_names_of_coordinates(client: Client) -> None:
    made(client, dim=2)
    load(client, b"id,mass,flip\na,1,2\n")
    load(client, b"flip,mass,id\n2,1,b\n")
    assert [item["vector"] for item in stored(client)] == [[1, 2], [1, 2]]
    problem = assert_problem(load(client, b"flip,beak,id\n2,1,c\n"), 422, "invalid_vector")
    assert "none for 'mass' and unknown 'beak'" in problem["detail"]
    made(client, dim=None)
    load(client, b"id,mass,flip\na,1,0\n")
    [item] = stored(client)
    assert item["vector"]["values"] == [1]
    assert client.get(f"{URL}/names").json()["names"] == [{"index": 0, "name": "mass"}]


@in_each_way
def test_texts_load_from_the_column_that_has_them(client: Client) -> None:
    made(client, text={})
    body = b"id,says,n\na,some words of a text,7\n"
    assert load(client, body).json()["inserted"] == 1
    assert (
        load(client, b"id,says,n\nb,words,many more words\n", text="says").json()["inserted"] == 1
    )
    assert stored(client) == [
        {"id": "a", "text": "some words of a text", "payload": {"n": 7}},
        {"id": "b", "text": "words", "payload": {"n": "many more words"}},
    ]


@in_each_way
def test_a_load_that_broke_off_goes_on_by_its_key(serve: Serve) -> None:
    client = serve(load_chunk_rows=2)
    made(client, dim=1)
    good = b"id,x\na,1\nb,2\nc,3\nd,4\n"
    key = CSV | {"Idempotency-Key": "one"}
    told = load(client, good + b"e,\n", key).json()
    assert told["committed"] == 2
    told = load(client, good + b"e,\n", key, on_error="skip").json()
    assert (told["inserted"], told["rejected_count"]) == (4, 1)
    assert told["loaded_before"]["inserted"] == 2
    again = load(client, good + b"e,\n", key, on_error="skip").json()
    assert again["inserted"] == 4
    assert_problem(load(client, b"id,x\na,1\n", key), 409, "idempotency_mismatch")
    assert_problem(load(client, good + b"e,\n", key, missing="zero"), 409, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("body", "params", "status", "code", "words"),
    [
        (b"", {}, 400, "malformed_body", "an empty file"),
        (b"id,x\n", {}, 400, "malformed_body", "expected rows below the names"),
        (b"x,x\n1,2\n", {}, 400, "malformed_body", "'x' twice; header=false"),
        (b"id,w\na,b\n", {}, 422, "invalid_parameter", "columns of numbers"),
        (b"a,\x00\n", {}, 400, "malformed_body", "expected csv"),
        (b"PK\x03\x04 and more", {}, 400, "malformed_body", "expected CSV, got a zip"),
        (b"id,x\na,1\n", {"encoding": "none"}, 422, "invalid_parameter", "encoding"),
        (b"id,x\na,1\n", {"encoding": "utf-16"}, 400, "malformed_body", "in utf-16"),
        (b"id,x\na,1\n", {"id": "none"}, 422, "invalid_parameter", "a column 'none'"),
        (b"id,x\na,1\n", {"missing": "mean"}, 422, "invalid_parameter", "missing"),
        (b"id,x\na,1\n", {"columns": "payload"}, 422, "invalid_parameter", "for CSV"),
        (b"id,x\na,1\n", {"delimiter": ";"}, 422, "invalid_parameter", "delimiter"),
    ],
)
def test_what_is_no_table_is_refused(
    client: Client, body: bytes, params: Json, status: int, code: str, words: str
) -> None:
    made(client, dim=1)
    problem = assert_problem(load(client, body, **params), status, code)
    assert words in problem["detail"]
    assert count(client) == 0
    if not {"missing", "columns"} & {*params} and b"w" not in body:
        assert words in assert_problem(preview(client, body, **params), status, code)["detail"]


@pytest.mark.parametrize(
    ("kind", "body", "holds", "dim"),
    [
        ("application/x-ndjson", b'\n{"vector": [1, 2, 3]}\n{ not read', "vectors", 3),
        ("application/x-ndjson", b'{"vector": {"indices": [7]}}', "vectors", None),
        ("application/x-ndjson", b'{"id": 1, "text": "words"}\n', "texts", None),
        ("application/x-npy", npy(np.ones((5, 7), np.float32))[:140], "vectors", 7),
    ],
)
def test_a_preview_says_what_other_files_hold(
    client: Client, kind: str, body: bytes, holds: str, dim: int | None
) -> None:
    found = preview(client, body, {"Content-Type": kind})
    assert found.json() == {"holds": holds, "dim": dim}
    packed = preview(client, gzip.compress(body), {"Content-Type": kind})
    assert packed.json() == found.json()
    broken = preview(client, b"no such file", {"Content-Type": kind})
    assert_problem(broken, 400, "malformed_body")


def test_csv_that_does_not_say_so_is_refused_with_what_to_say(client: Client) -> None:
    found = client.post(f"{URL}/load", content=b"id,x\na,1\n")
    assert "text/csv" in assert_problem(found, 415, "unsupported_media_type")["detail"]
    found = client.post(f"{URL}/load", content=b'{"id": 1}', params={"encoding": "utf-8"})
    assert_problem(found, 422, "invalid_parameter")
    long = b"id,x\n" + b"a,1\n" * (1 << 18)
    assert preview(client, long[: 1 << 20]).json()["dim"] == 1
    assert_problem(preview(client, long), 413, "body_too_large")


def test_a_preview_takes_the_first_part_of_packed_csv(client: Client) -> None:
    rng = np.random.default_rng(0)
    rows = "".join(f"{row}\n" for row in rng.random(200_000))
    packed = gzip.compress(f"x\n{rows}".encode())[: 1 << 20]
    assert len(packed) == 1 << 20
    assert preview(client, packed).json()["dim"] == 1
    assert_problem(preview(client, packed[:1000]), 400, "malformed_body")
