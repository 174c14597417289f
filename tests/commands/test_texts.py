"""Collections of texts by commands: files in, queries, exports."""

import json
from pathlib import Path

import pandas as pd
import pytest

from gcws_search import TextParams
from tests.commands.conftest import Bench, Call, lines

ROWS = [
    {"sku": "007", "body": "Black tea, black currant", "price": 3, "from": "Kenya"},
    {"sku": "8", "body": "Nuts and\nblack tea", "price": 4, "from": "Brazil"},
    {"sku": "9", "body": "Grüner Tee; Tee", "price": 5, "from": "Japan"},
]
TEXTS = {"007": ROWS[0]["body"], "8": ROWS[1]["body"], "9": ROWS[2]["body"]}


def write(folder: Path, kind: str) -> Path:
    path = folder / f"teas.{kind}"
    frame = pd.DataFrame(ROWS)
    if kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, ROWS)))
    elif kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "xlsx":
        frame.to_excel(path, index=False)
    else:
        frame.to_parquet(path)
    return path


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_a_column_of_a_file_becomes_texts(bench: Bench, kind: str) -> None:
    path = write(bench.folder, kind)
    words = bench.load(path, "--text", "body", "--id", "sku", "--yes").output
    assert "plants: 3 inserted" in words
    items = {item.id: item for item in bench.plants}
    assert {key: item.text for key, item in items.items()} == TEXTS
    assert items["8"].payload == {"price": 4, "from": "Brazil"}
    assert bench.plants.config.text == TextParams()
    found = bench.call("query", "plants", "--text", "BLACK tea", "--limit", "1", "--json")
    assert lines(found) == [
        {"id": "007", "score": 2 / 3, "payload": items["007"].payload, "text": TEXTS["007"]}
    ]
    table = bench.call("query", "plants", "--text", "tea").output
    assert "Black tea, black currant" in table
    assert (
        "plants: 0 inserted, 3 updated"
        in bench.load(path, "--text", "body", "--id", "sku", "--again").output
    )


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_the_texts_of_a_file_are_queries(bench: Bench, kind: str) -> None:
    path = write(bench.folder, kind)
    bench.load(path, "--text", "body", "--id", "sku", "--yes")
    column = ("--text", "body", "--limit", "1", "--json")
    own = [*enumerate(TEXTS)]
    joined = lines(bench.call("join", str(path), "--with", "plants", *column))
    assert [(each["row"], each["to"], each["score"]) for each in joined] == [(*at, 1) for at in own]
    asked = lines(bench.call("query", "plants", "--file", str(path), *column))
    assert [(row, each["hits"][0]["id"]) for row, each in enumerate(asked)] == own
    (bench.folder / "rows.csv").write_text("x,y\n1,2\n")
    vectors = bench.folder / "rows.csv"
    for words in (("join", str(vectors), "--with"), ("query", "--file", str(vectors))):
        refused = bench.call(*words, "plants", "--limit", "1", code=1)
        assert "expected texts, whose column --text names, got vectors" in refused.stderr


@pytest.mark.parametrize("kind", ["ndjson", "parquet"])
def test_an_export_gives_the_same_collection(bench: Bench, kind: str) -> None:
    created = bench.call(
        "create", "plants", "--text", "characters", "--ngrams", "2-3", "--weights", "counts",
        "--keep-case", "--json",
    ).stdout  # fmt: skip
    assert json.loads(created)["text"] == {
        "tokens": "characters",
        "ngrams": [2, 3],
        "weights": "counts",
        "lowercase": False,
        "stop_words": [],
    }
    bench.load(write(bench.folder, "jsonl"), "--text", "body", "--id", "sku")
    bench.plants.set_payload("9", payload=None, merge=False)
    before, config = [*bench.plants], bench.plants.config
    path = bench.folder / f"all.{kind}"
    bench.call("export", "plants", "-o", str(path))
    bench.server.drop("plants")
    bench.load(path, "--yes")
    assert [*bench.plants] == before
    assert bench.plants.config == config


def test_items_of_texts_are_loaded_line_by_line(bench: Bench) -> None:
    lines = b'{"id": 1, "text": "one text"}\n{"text": "another", "payload": {"n": 2}}\n'
    assert "2 inserted" in bench.load("-", "--yes", input=lines).output
    assert [(item.id, item.text) for item in bench.plants] == [("1", "one text"), ("2", "another")]
    (bench.folder / "bad.jsonl").write_text('{"id": 3, "text": "fine"}\n{"id": 4, "text": "…"}\n')
    refused = bench.load("bad.jsonl", code=1).output
    assert "row 1" in refused
    assert "text" in refused
    assert len(bench.plants) == 2
    assert "1 rejected" in bench.load("bad.jsonl", "--on-error", "skip", code=3).output
    [rejected] = (bench.folder / "bad.jsonl.rejected.ndjson").read_text().splitlines()
    assert json.loads(rejected)["item"] == {"id": 4, "text": "…"}


def test_blank_texts_are_refused_by_row_and_column(bench: Bench) -> None:
    for name, content in (
        ("a.csv", 'id,body\n1,fine\n2,\n3,"also, fine"\n'),
        ("a.jsonl", '{"id": 1, "body": "fine", "n": 1}\n{"id": 2, "n": 1}\n{"body": "x", "id": 3}'),
    ):
        (bench.folder / name).write_text(content)
        refused = bench.load(name, "--text", "body", "--yes", code=1).output
        assert "row 1: column 'body': expected a text" in refused
        bench.load(name, "--text", "body", "--yes", "--on-error", "skip", code=3)
        assert [item.id for item in bench.plants] == ["1", "3"]
        bench.server.drop("plants")


def test_texts_and_vectors_are_not_mixed(bench: Bench, call: Call) -> None:
    path = write(bench.folder, "csv")
    bench.load(path, "--id", "sku", "--vector", "price", "--yes")
    assert "texts" in bench.load(path, "--text", "body", code=1).output
    bench.server.drop("plants")
    bench.load(path, "--id", "sku", "--text", "body", "--yes")
    assert "--text" in bench.load(path, "--vector", "price", code=1).output
    assert len(bench.plants) == 3
    for wrong in (
        ("create", "other"),
        ("create", "other", "--dim", "4", "--text", "words"),
        ("create", "other", "--dim", "4", "--weights", "counts"),
        ("create", "other", "--text", "words", "--ngrams", "1-b"),
        ("load", str(path), "--into", "other", "--text", "body", "--dim", "3"),
        ("load", str(path), "--into", "other", "--text", "body", "--vector", "price"),
        ("query", "plants", "--text", "a", "--id", "8"),
        ("query", "plants"),
    ):
        call(*wrong, code=2)
    assert "body" in bench.load(path, "--text", "none", code=1).output
