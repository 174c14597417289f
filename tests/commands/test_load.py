"""``load``: every format, guesses, options, what bad files get, and loads that break off."""

import gzip
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from scipy import sparse
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import gcws_search
from gcws_search.client.connection import RetryPolicy
from gcws_search.client.remote import RemoteCollection
from gcws_search.client.wire import Answer, Unreachable, Wire
from gcws_search.commands.app import app
from tests.commands.conftest import Bench, lines
from tests.support.paths import REPOSITORY
from tests.support.service.client import Json, gmm

ROWS = 30
VECTORS = np.random.default_rng(0).integers(0, 5, (ROWS, 3)).astype(np.float32) + np.eye(3)[0]
LABELS = [number % 4 for number in range(ROWS)]
TABLE = pa.table(
    {
        "id": [f"n{number}" for number in range(ROWS)],
        **{f"x{place}": VECTORS[:, place] for place in range(3)},
        "label": [f"l{label}" for label in LABELS],
    }
)


def csv_bytes(delimiter: str = ",") -> bytes:
    out = io.BytesIO()
    pa.csv.write_csv(TABLE, out, pa.csv.WriteOptions(delimiter=delimiter))
    return out.getvalue()


def ndjson_bytes() -> bytes:
    rows = zip(TABLE["id"].to_pylist(), VECTORS.tolist(), TABLE["label"].to_pylist(), strict=True)
    lines = [{"id": i, "vector": v, "payload": {"label": label}} for i, v, label in rows]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def flat_ndjson_bytes() -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in TABLE.to_pylist())


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue().to_pybytes())


def arrow_bytes(new: Json) -> bytes:
    out = pa.BufferOutputStream()
    with new(out, TABLE.schema) as writer:
        writer.write_table(TABLE)
    return bytes(out.getvalue().to_pybytes())


def parquet_bytes() -> bytes:
    out = io.BytesIO()
    pa.parquet.write_table(TABLE, out, row_group_size=7)
    return out.getvalue()


FORMATS: dict[str, Callable[[], bytes]] = {
    "a.csv": csv_bytes,
    "a.tsv": lambda: csv_bytes("\t"),
    "a.csv.gz": lambda: gzip.compress(csv_bytes()),
    "a.ndjson": ndjson_bytes,
    "a.jsonl.zst": lambda: zstd(ndjson_bytes()),
    "flat.ndjson": flat_ndjson_bytes,
    "a.parquet": parquet_bytes,
    "a.parquet.gz": lambda: gzip.compress(parquet_bytes()),
    "a.arrow": lambda: arrow_bytes(pa.ipc.new_file),
    "a.feather": lambda: arrow_bytes(pa.ipc.new_file),
    "stream.arrows": lambda: arrow_bytes(pa.ipc.new_stream),
    "no-suffix": csv_bytes,
}


FROM_STDIN = ("a.csv", "a.jsonl.zst", "a.parquet", "stream.arrows")


@pytest.mark.parametrize(
    ("name", "from_stdin"),
    [*((name, False) for name in FORMATS), *((name, True) for name in FROM_STDIN)],
)
def test_every_format_gives_the_same_items(bench: Bench, name: str, from_stdin: bool) -> None:
    data = FORMATS[name]()
    (bench.folder / name).write_bytes(data)
    path = "-" if from_stdin else str(bench.folder / name)
    done = bench.load(path, input=data if from_stdin else None)
    assert done.stdout == f"plants: {ROWS:,} inserted, 0 updated\n"
    items = list(bench.plants)
    assert [each.id for each in items] == TABLE["id"].to_pylist()
    assert [each.vector for each in items] == VECTORS.tolist()
    assert [each.payload for each in items] == [{"label": f"l{label}"} for label in LABELS]


ARRAYS: dict[str, tuple[Callable[[Path], object], str | None]] = {
    "a.npy": (lambda path: np.save(path, np.asfortranarray(VECTORS)), None),
    "a.npz": (lambda path: np.savez(path, X=VECTORS, y=LABELS), "label"),
    "csr.npz": (lambda path: sparse.save_npz(path, sparse.csr_matrix(VECTORS)), None),
    "a.svm": (
        lambda path: dump_svmlight_file(VECTORS, LABELS, str(path), zero_based=False), "label",
    ),
}  # fmt: skip


ONE: Final[dict[str, bytes]] = {
    "a.csv": b"x\n2\n",
    "other.csv": b"word,x\na,2\nb\n",
    "a.ndjson": b'{"vector": [2]}\n',
    "other.ndjson": b'{"vector": [2]}\n{"vector": [2, 3]}\n',
    "flat.ndjson": b'{"note": "a", "v": [2]}\n',
    "a.svm": b"1 1:2\n",
}


@pytest.mark.parametrize("name", ONE)
def test_one_thing_is_told_in_the_singular(bench: Bench, name: str) -> None:
    (bench.folder / name).write_bytes(ONE[name])
    for _ in range(2):  # the second time, it is loaded already
        done = bench.load(name, "--on-error", "skip", code=3 * name.startswith("other"))
        assert re.findall(r"\b1 [a-z]+s\b", done.stdout + done.stderr) == []


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_number_their_rows(bench: Bench, name: str) -> None:
    write, payload = ARRAYS[name]
    write(bench.folder / name)
    bench.load(name, "--dim", "3", "--id-start", "5")
    items = list(bench.plants)
    assert [each.id for each in items] == [str(5 + number) for number in range(ROWS)]
    assert [each.vector for each in items] == VECTORS.tolist()
    expected = [{payload: label} for label in LABELS] if payload else [None] * ROWS
    assert [each.payload for each in items] == expected


def text(*lines: str) -> bytes:
    return "\n".join(lines).encode() + b"\n"


CSV: dict[str, tuple[bytes, list[str], dict[str, list[float]]]] = {
    "no-names": (text("1,2", "3,4"), ["--no-header"], {"0": [1, 2], "1": [3, 4]}),
    "names": (text("5.1,3.5,1.4", "4.9,3,1.5"), ["--header"], {"0": [4.9, 3, 1.5]}),
    "skipped-truth": (
        text("id,x,y", "a,true,2", "b,false,3"), ["--on-error", "skip"], {"a": [1, 2], "b": [0, 3]},
    ),
    "columns-twice": (
        text("id,x,y,z", "a,1,2,3"), ["--vector", "x", "--vector", "z", "--payload", "y"],
        {"a": [1, 3]},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CSV)
def test_csv_is_read_as_its_options_say(bench: Bench, case: str) -> None:
    data, options, wanted = CSV[case]
    (bench.folder / "a.csv").write_bytes(data)
    bench.load("a.csv", *options)
    found = {each.id: each.vector for each in bench.plants}
    assert {name: pytest.approx(vector) for name, vector in wanted.items()} == found


def test_weights_are_learned_from_the_first_load_and_again_when_asked(bench: Bench) -> None:
    (bench.folder / "plants.csv").write_bytes(csv_bytes())
    (bench.folder / "more.csv").write_text("id,x0,x1,x2\nbig,1000,1,2\n")
    columns = ("--vector", "x*", "--payload", "label")
    done = bench.load("plants.csv", *columns, "--scale", "standard", "--yes")
    assert "standard, learned from 30 items" in done.output
    scaled = StandardScaler().fit_transform(VECTORS)
    expected = gmm(scaled[0].tolist(), scaled[1].tolist())
    assert bench.plants.explain("n0", "n1").score == pytest.approx(expected, rel=1e-5)
    assert bench.plants.get("n0").vector == VECTORS[0].tolist()
    again = bench.load("more.csv", "--scale", "standard").output
    assert "learned from" not in again
    assert "--scale" not in again  # which the preview proposes otherwise
    assert bench.plants.describe()["weights"]["items"] == ROWS
    assert json.loads(bench.call("fit", "plants", "--json").stdout)["items"] == ROWS + 1
    assert "max weights" in bench.call("fit", "plants", "--scale", "max").stdout
    bench.call("fit", "nothing", "--scale", "max", code=1)
    bench.call("create", "words", "--dim", "open", "--scale", "idf")
    weights = bench.server.collection("words").describe()["weights"]
    assert (weights["kind"], weights["version"]) == ("idf", 0)
    (bench.folder / "words.ndjson").write_text(
        '{"id": 1, "vector": {"names": ["a", "b"]}}\n{"id": 2, "vector": {"names": ["a"]}}\n'
    )
    path = str(bench.folder / "words.ndjson")
    assert "idf, learned from 2 items" in bench.call("load", path, "--into", "words").output
    a, b = 1.0, np.log(3 / 2) + 1
    found = bench.server.collection("words").explain("1", "2").score
    assert found == pytest.approx(a / (a + b), rel=1e-6)


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_files_and_folders_are_one_load_and_what_has_no_id_is_numbered(
    bench: Bench, on_error: str
) -> None:
    folder = bench.folder / "parts"
    for label in range(4):
        (folder / f"label={label}").mkdir(parents=True)
        rows = pa.array([row for row in range(ROWS) if LABELS[row] == label])
        part = TABLE.drop_columns(["label"]).take(rows)
        pa.feather.write_feather(part, folder / f"label={label}" / "part.feather")
    (folder / "_SUCCESS").touch()
    bench.load("parts", "--on-error", on_error)
    found = {each.id: (each.vector, each.payload) for each in bench.plants}
    expected = {f"n{n}": (VECTORS[n].tolist(), {"label": LABELS[n]}) for n in range(ROWS)}
    assert found == expected
    columns = ["--vector", "x1,label", "--payload", ""]
    bench.call("load", str(folder), "--into", "chosen", *columns)
    assert bench.server.collection("chosen").get("n7").vector == [VECTORS[7, 1], 3]
    several = bench.folder / "several"
    several.mkdir()
    (several / "a.csv").write_bytes(text("id,x,y", "a,1,2", "b,3,4"))
    (several / "b.csv").write_bytes(text("y,x,id,note", "5.5,6.5,c,new"))
    last = bench.folder / "last.ndjson"
    last.write_bytes(text('{"vector": [7, 8]}', "", ' {"payload": {"a": 1}, "vector": [9, 1]}'))
    options = ["--into", "others", "--on-error", on_error, "--id-start", "5"]
    done = bench.call("load", str(last), str(several), *options, "--json")
    assert json.loads(done.stdout)["inserted"] == 5, done.output
    assert "ids      numbers from 5" in done.stderr
    assert [(each.id, each.vector, each.payload) for each in bench.server.collection("others")] == [
        ("5", [7, 8], None), ("6", [9, 1], {"a": 1}),
        ("a", [1, 2], None), ("b", [3, 4], None), ("c", [6.5, 5.5], {"note": "new"}),
    ]  # fmt: skip


def rejected_of(path: Path) -> list[Json]:
    text = path.with_name(path.name + ".rejected.ndjson").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("bad", "words"),
    [("7,oops", ["row 1", "column 'y'", "'oops'"]), ("0,0", ["row 1", "non-zero"])],
)
def test_a_bad_row_of_a_folder_is_named_by_its_file(
    bench: Bench, bad: str, words: list[str]
) -> None:
    folder = bench.folder / "all"
    folder.mkdir()
    (folder / "a.csv").write_bytes(text("x,y", "1,2", "3,4"))
    (folder / "b.csv").write_bytes(text("x,y", "5,6", bad))
    done = bench.load(folder, "--vector", "x,y", code=1)
    told = done.stderr.splitlines()[-1]
    for word in [str(folder / "b.csv"), *words]:
        assert word in told, told
    assert not bench.server.collections()
    done = bench.load(folder, "--vector", "x,y", "--on-error", "skip", code=3)
    [rejected] = rejected_of(folder)
    assert (rejected["row"], [*rejected["item"].values()]) == (3, bad.split(","))
    assert f"{folder / 'b.csv'}: row 1" in done.stderr
    assert len(bench.plants) == 3


@pytest.mark.parametrize(
    ("names", "ids"), [(["all.csv"], False), (["all/a.csv", "all/b.csv"], True)]
)
def test_rows_of_other_lengths_are_left_out_and_written_down(
    bench: Bench, names: list[str], ids: bool
) -> None:
    """Rows are counted on through all files, and each file may have such rows at any place."""
    rows, expected, bad = 3000, [], []
    short = {0: "1", 2: "1,2", rows // 2: "1,2,3,4,5", rows - 1: "7"}
    for number, name in enumerate(names):
        lines = ["id,x,y,much" if ids else "x,y,much"]
        for row in range(rows):
            item_id, vector = str(number * rows + row), [float(row + 1), float(row % 7 + 1)]
            # So long that a file is read in two blocks.
            cells = [*([item_id] if ids else []), *map(str, vector), "z" * 1500]
            lines.append(short.get(row, ",".join(cells)))
            if row in short:
                bad.append((int(item_id), short[row]))
            else:
                expected.append((item_id, vector))
        path = bench.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text(*lines))
    path = bench.folder / names[0].partition("/")[0]
    options = ["--vector", "x,y", "--payload", "", *([] if ids else ["--id-start", "0"])]
    done = bench.load(path.name, *options, "--on-error", "skip", code=3)
    assert done.stdout == f"plants: {len(expected):,} inserted, 0 updated, {len(bad):,} rejected\n"
    assert f"row 0: expected {3 + ids} columns, got 1" in done.stderr
    found = [(each.id, each.vector) for each in bench.plants]
    assert sorted(found, key=lambda each: int(each[0])) == expected
    assert [(each["row"], each["item"]) for each in rejected_of(path)] == bad
    done = bench.call("load", str(path), "--into", "others", *options, code=1)
    last = done.stderr.splitlines()[-1]
    assert f"{bench.folder / names[0]}: row 0: expected {3 + ids} columns, got 1" in last


def test_rejected_rows_are_named_and_written_down_with_their_text(bench: Bench) -> None:
    rows, path = 12_000, bench.folder / "a.csv"
    lines = [f"{row},1,{'oops' if row % 2 and row < 5000 else row + 1}" for row in range(rows)]
    lines[2], lines[11_000], lines[11_500] = "2,0,0", "11000,0,0", "11500,1,oops"
    path.write_bytes(text("key,x,y", *lines))
    options = ["--id", "key", "--vector", "x,y", "--on-error", "skip"]
    done = bench.load(path, *options, code=3)
    bad = [1, 2, *range(3, 5000, 2), 11_000, 11_500]
    count = f"{rows - len(bad):,} inserted, 0 updated, {len(bad):,} rejected"
    assert done.stdout == f"plants: {count}\n"
    assert "row 1: column 'y': expected a number, got 'oops'" in done.stderr
    assert done.stderr.count("column 'y'") == 19
    rejected = rejected_of(path)
    assert [each["row"] for each in rejected] == bad
    assert rejected[-1]["item"] == {"key": "11500", "x": "1", "y": "oops"}
    assert len(bench.plants) == rows - len(bad)
    again = bench.load("a.csv", *options, "--json", code=3)
    assert json.loads(again.stdout)["rejected"] == len(bad)


def test_options_choose_columns_and_transform(bench: Bench) -> None:
    (bench.folder / "a.csv").write_bytes(csv_bytes())
    options = ["--id", "label", "--vector", "x2,x0", "--payload", "x1", "--normalize", "l2"]
    options += ["--power", "0.5", "--storage", "mapped"]
    bench.load("a.csv", *options)
    plants = bench.plants
    assert plants.config.storage == "mapped"
    assert plants.config.transform == gcws_search.Transform(power=0.5, normalize="l2")
    assert len(plants) == 4
    assert plants.get("l1").vector == VECTORS[29, [2, 0]].tolist()
    assert plants.get("l1").payload == {"x1": VECTORS[29, 1]}


def write_csv(path: Path, names: list[str], rows: Json) -> None:
    path.write_bytes(text(",".join(names), *(",".join(map(str, row)) for row in rows)))


def write_parquet(path: Path, names: list[str], rows: Json) -> None:
    pa.parquet.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), path)


def write_objects(path: Path, names: list[str], rows: Json) -> None:
    path.write_bytes(text(*(json.dumps(dict(zip(names, row, strict=True))) for row in rows)))


TABLES: Final = {"csv": write_csv, "parquet": write_parquet, "ndjson": write_objects}


@pytest.mark.parametrize("dim", ["3", "open"])
@pytest.mark.parametrize("kind", TABLES)
def test_columns_name_coordinates_and_are_taken_by_name(bench: Bench, kind: str, dim: str) -> None:
    names, rows = ["id", "bill mm", "mass", "flip"], [["a", 1, 20, 3], ["b", 4, 50, 6]]
    order = [3, 0, 2, 1]
    first, second, bad, queries = (bench.folder / f"{name}.{kind}" for name in "abcq")
    TABLES[kind](first, names, rows)
    mixed = [[row[place] for place in order] for row in rows]
    TABLES[kind](second, [names[place] for place in order], mixed)
    bench.load(str(first), "--dim", dim)
    plants = bench.plants
    assert sorted(plants.names().values()) == sorted(names[1:])
    before = [each.vector for each in plants]
    assert plants.add(plants).updated == 2
    plants.delete("a")
    done = bench.load(str(second), "--on-error", "skip")
    assert done.stdout == "plants: 1 inserted, 1 updated\n", done.output
    assert [plants.get(each).vector for each in "ab"] == before
    TABLES[kind](queries, ["mass", "flip", "bill mm"], [[20, 3, 1], [50, 6, 4]])
    found = lines(bench.call("query", "plants", "--file", str(queries), "--json"))
    assert [each["hits"][0]["id"] for each in found] == ["a", "b"]
    if dim == "open":
        return
    TABLES[kind](bad, ["id", "bill mm", "flip", "beak"], [["c", 1, 2, 3]])
    for call in (["load", str(bad), "--into", "plants"], ["query", "plants", "--file", str(bad)]):
        done = bench.call(*call, code=1)
        assert "'mass'" in done.stderr
        assert "'beak'" in done.stderr
    assert len(plants) == 2


def test_columns_without_names_are_taken_as_they_stand(bench: Bench) -> None:
    (bench.folder / "a.csv").write_bytes(text("5,7,20", "1,2,2"))
    bench.load("a.csv")
    (bench.folder / "b.csv").write_bytes(text("1,0,2", "3,3,3"))  # as pandas names columns
    bench.load("b.csv", "--header")
    assert bench.plants.names() == {}
    assert [each.vector for each in bench.plants] == [[5, 7, 20], [1, 2, 2], [3, 3, 3]]


def test_items_of_json_are_queries(bench: Bench) -> None:
    (bench.folder / "a.csv").write_bytes(csv_bytes())
    bench.load("a.csv", "--payload", "label")
    vectors = [[*map(float, row)] for row in VECTORS[:2]]
    rows = [
        json.dumps({"id": name, "vector": each}) for name, each in zip("pq", vectors, strict=True)
    ]
    (bench.folder / "q.ndjson").write_bytes(text(*rows))
    done = bench.call("query", "plants", "--file", str(bench.folder / "q.ndjson"), "--json")
    found = lines(done)
    assert [each["query"] for each in found] == ["p", "q"]
    assert [each["hits"][0]["score"] for each in found] == [1, 1]


def test_a_dry_run_shows_the_guess_and_creates_nothing(bench: Bench) -> None:
    (bench.folder / "a.csv").write_bytes(csv_bytes())
    done = bench.load("a.csv", "--dry-run", "--json")
    shown = json.loads(done.stdout)
    assert shown["dim"] == 3
    assert shown["guess"]["payload"] == "label"
    assert shown["rows"][0]["vector"] == VECTORS[0].tolist()
    assert not bench.server.collections()


NUMBERS = text("id,x,y", "a,1,2", "b,3,4", "c,5,x")
BAD: dict[str, tuple[str, bytes, list[str], list[str]]] = {
    "absent": ("", b"", [], ["no file of that name"]),
    "empty": ("a.csv", b"", [], ["expected rows, got an empty file"]),
    "blank": ("a.csv", b"\n  \n", [], ["expected lines, got none within 4 bytes"]),
    "blank-lines": ("a.ndjson", b"\n \n", [], ["expected rows, got none"]),
    "blank-tsv": ("a.tsv", b"\n", [], ["expected lines, got none within 1 bytes"]),
    "one-long-line": ("a.csv", b"1," * (1 << 20), [], ["expected lines, got none within"]),
    "empty-gzip": ("a.csv.gz", gzip.compress(b""), [], ["got an empty file"]),
    "not-parquet": ("a.parquet", b"hello", [], ["expected parquet", "b'hello'"]),
    "cut-parquet": ("a.parquet", parquet_bytes()[:-9], [], ["expected parquet"]),
    "cut-gzip": ("a.csv.gz", gzip.compress(csv_bytes())[:-9], [], ["whole compressed file"]),
    "bad-gzip": ("a.csv.gz", gzip.compress(b"")[:10] + b"\xff" * 99, [], ["whole compressed file"]),
    "no-column": ("a.csv", NUMBERS, ["--id", "key"], ["a column 'key'", "id, x, y"]),
    "no-vector": ("a.csv", text("a,b", "p,q"), [], ["columns of numbers for the vector"]),
    "text": (
        "a.csv", NUMBERS, ["--vector", "x,y"],
        ["row 2", "column 'y'", "a number", "got 'x'; --on-error skip"],
    ),
    "ragged": ("a.csv", text("x,y", "1,2", "3"), [], ["row 1", "2 columns", "got 1"]),
    "missing": (
        "a.csv", text("x,y", "1,2", "3,"), [],
        ["row 1", "column 'y'", "expected", "got a missing value", "1 of 2 rows", "--missing drop"],
    ),
    "twice": ("a.csv", text("x,x", "1,2"), [], ["'x' twice", "--no-header"]),
    "late": ("a.csv", text("3,1,2", "1,x,2"), ["--no-header", "--vector", "*"], ["row 1", "'x'"]),
    "other-dim": (
        "a.ndjson", text('{"id": 1, "vector": [1, 2]}', '{"id": 2, "vector": [1]}'), [],
        ["row 1", "expected 2 values", "got 1 value"],
    ),
    "zero-row": ("a.csv", text("x,y", "1,2", "0,0"), [], ["row 1", "non-zero", "--on-error skip"]),
    "3-dims": ("a.npy", b"", [], ["(2, 2, 2)"]),
    "other-npz": ("a.npz", b"", [], ["'X' (and 'y'), or 'data'", "weights"]),
    "svmlight": ("a.svm", text("1 1:2 2:3", "1 1:x"), [], ["label index:value"]),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_gets_one_sentence_and_creates_nothing(bench: Bench, case: str) -> None:
    name, data, options, words = BAD[case]
    path = bench.folder / (name or "nothing.csv")
    if name == "a.npy":
        np.save(path, np.ones((2, 2, 2)))
    elif name == "a.npz":
        np.savez(path, weights=np.ones(3))
    elif name:
        path.write_bytes(data)
    done = bench.load(path, *options, code=1)
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"gcws-search: {path}: ")
    for word in words:
        assert word in told, told
    assert "Traceback" not in done.output
    assert not bench.server.collections()


def test_ids_and_text_are_stored_as_they_stand(bench: Bench) -> None:
    path = bench.folder / "a.csv"
    lines = ["id,x,y,where,at", "18446744073709551615,1,2,NA,12:30", "007,3,4,Tromsø,13:00"]
    path.write_bytes("\n".join(lines).encode("latin-1"))
    for options in ([], ["--on-error", "skip"], ["--encoding", "latin-1"]):
        done = bench.load(path, *options)
        assert ("cp1252 (a guess" in done.stderr) == ("--encoding" not in options)
        assert [(each.id, each.vector, each.payload) for each in bench.plants] == [
            ("18446744073709551615", [1, 2], {"where": "NA", "at": "12:30"}),
            ("007", [3, 4], {"where": "Tromsø", "at": "13:00"}),
        ]
    bench.load(path, "--encoding", "none", code=2)
    bench.call("load", "-", "--into", "others", input=path.read_bytes())
    found = bench.server.collection("others").get("007")
    assert found.payload == {"where": "Tromsø", "at": "13:00"}
    words = ["--into", "more", "--missing", "mean"]
    piped = bench.call("load", "-", *words, code=1, input=b"x,y\n1,\n2,3\n")
    assert "expected a file for --missing mean" in piped.stderr
    path.write_bytes(text("id,x,y", "a,1,2", "b,,4", "c,3,4"))
    done = bench.call("load", str(path), "--into", "gaps", "--missing", "drop")
    assert "missing  1 in 'x' of the first rows" in done.stderr
    assert done.stdout == "gaps: 2 inserted, 0 updated, 1 left out for missing numbers\n"
    path.write_bytes(text("id,x,y", "a,,2", "b,,4"))
    done = bench.call("load", str(path), "--into", "gaps", "--missing", "drop", "--vector", "x,y")
    assert done.stdout == "gaps: 0 inserted, 0 updated, 2 left out for missing numbers\n"


def test_a_row_that_cannot_be_read_says_how_many_were_stored_before(bench: Bench) -> None:
    (bench.folder / "a.csv").write_text("id,x\n1,1\n2,2\n3,3\n")
    bench.load("a.csv", "--key", "k", "--yes")
    (bench.folder / "a.csv").write_text("id,x\n1,1\n2,2\n3,oops\n")
    told = bench.load("a.csv", "--key", "k", code=1).stderr.splitlines()[-1]
    assert "row 2: column 'x': expected a number, got 'oops'" in told
    assert "earlier writes of this load stored 3 rows" in told


def test_a_key_is_of_one_file(bench: Bench) -> None:
    first, second = str(bench.folder / "a.npy"), str(bench.folder / "b.npy")
    np.save(first, VECTORS)
    np.save(second, VECTORS[:9])
    bench.load(first, "--key", "k")
    done = bench.load(second, "--key", "k", code=1)
    told = done.stderr.splitlines()[-1]
    assert "of 30 rows in 488 bytes that was sent under the key 'k'" in told
    assert "got another one of 236 bytes" in told
    assert f"another --key loads this file, which has {Path(second).stat().st_size} bytes" in told
    assert told.count("+00:00") == 3
    both = bench.call("load", first, second, "--into", "plants", "--key", "both", "--json")
    assert json.loads(both.stdout)["ids"] == {"first": "30", "last": "68"}
    again = bench.call("load", first, second, "--into", "plants", "--key", "both", "--json")
    told = json.loads(again.stdout)
    assert (told["inserted"], [each["loaded_before"]["inserted"] for each in told["files"]]) == (
        0,
        [30, 9],
    )


def test_a_file_that_changes_while_it_is_loaded_is_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no failure: a log may grow."""
    path, send = bench.folder / "a.npy", RemoteCollection.load

    def change(*given: Json) -> Json:
        os.utime(path)
        return send(*given)

    np.save(path, VECTORS)
    monkeypatch.setattr(RemoteCollection, "load", change)
    [line] = [each for each in bench.load(str(path)).stderr.splitlines() if "the same" in each]
    assert line.endswith("rows of both may be stored")


WITHOUT_IDS: dict[str, Callable[[Path], object]] = {
    "csv": lambda path: path.write_bytes(text("x,y,word", "1,2,a", "3,4,b")),
    "index.csv": lambda path: path.write_bytes(text(",x,y", "0,1,2", "1,3,4")),
    "flat.ndjson": lambda path: path.write_bytes(text('{"x": 1, "y": 2}', '{"x": 3, "y": 4}')),
    "ndjson": lambda path: path.write_bytes(text('{"vector": [1, 2]}', '{"vector": [3, 4]}')),
    "npy": lambda path: np.save(path, [[1, 2], [3, 4]]),
    "npz": lambda path: np.savez(path, X=[[1, 2], [3, 4]], y=[5, 6]),
    "parquet": lambda path: pa.parquet.write_table(pa.table({"x": [1, 3], "y": [2, 4]}), path),
    "feather": lambda path: pa.feather.write_feather(pa.table({"x": [1, 3], "y": [2, 4]}), path),
    "svm": lambda path: dump_svmlight_file(np.array([[1, 2], [3, 4]]), [0, 1], str(path)),
}


@pytest.mark.parametrize(
    ("kind", "on_error"),
    [*((kind, "stop") for kind in WITHOUT_IDS), ("csv", "skip"), ("npz", "skip")],
)
def test_files_without_ids_are_appended(bench: Bench, kind: str, on_error: str) -> None:
    first, second, third = (str(bench.folder / f"{name}.{kind}") for name in "abc")
    for path in (first, second, third):
        WITHOUT_IDS[kind](Path(path))
    options = ["--into", "plants", "--dim", "2", "--on-error", on_error]
    done = bench.call("load", first, second, *options)
    assert done.stdout == "plants: 4 inserted, 0 updated, ids 0 to 3\n", done.output
    done = bench.call("load", third, *options, "--json")
    told = json.loads(done.stdout)
    assert (told["inserted"], told["updated"]) == (2, 0)
    assert told["ids"] == told["files"][0]["ids"] == {"first": "4", "last": "5"}
    plants = bench.plants
    assert [each.id for each in plants] == [*map(str, range(6))]
    assert plants.get("5").vector in ([3, 4], {"indices": [0, 1], "values": [3, 4]})
    done = bench.call("load", first, *options, "--id-start", "1")
    assert done.stdout == "plants: 0 inserted, 2 updated\n"


@pytest.mark.parametrize("on_error", ["stop", "skip"])
@pytest.mark.parametrize("ids", [True, False])
def test_a_file_that_was_loaded_before_is_loaded_again_where_that_is_said(
    bench: Bench, ids: bool, on_error: str
) -> None:
    """What was deleted meanwhile is not said to be there."""
    path = bench.folder / "a.csv"
    path.write_bytes(text(*(["id,x,y", "a,1,2", "b,3,4"] if ids else ["x,y", "1,2", "3,4"])))
    options = ["load", str(path), "--into", "plants", "--on-error", on_error]
    plants = "plants: 2 inserted, 0 updated"
    numbers = "" if ids else ", ids 0 to 1"
    assert bench.call(*options).stdout == f"{plants}{numbers}\n"
    collection = bench.plants
    collection.delete([each.id for each in collection])
    done = bench.call(*options)
    assert done.stdout == "plants: 0 inserted, 0 updated\n"
    told = done.stderr.splitlines()[-1]
    assert told.startswith(f"{path}: 0 stored: this file was loaded before (2 items, ")
    assert "; --again " in told
    told = json.loads(bench.call(*options, "--json").stdout)
    assert (told["inserted"], told["files"][0]["inserted"]) == (0, 0)
    assert told["files"][0]["loaded_before"]["inserted"] == 2
    assert len(collection) == 0
    for turn in (1, 2):
        done = bench.call(*options, "--again")
        if ids:
            counts = "2 inserted, 0 updated" if turn == 1 else "0 inserted, 2 updated"
            assert done.stdout == f"plants: {counts}\n"
        else:
            assert done.stdout == f"{plants}, ids {2 * turn} to {2 * turn + 1}\n"
    assert len(collection) == (2 if ids else 4)


def test_rejected_lines_of_json_are_written_as_they_were(bench: Bench) -> None:
    items = ['{"id": "a", "vector": [1, 2]}', "{", '{"id": "b", "vector": [1, 3]}', '{"id": "x"}']
    objects = ['{"id": "a", "x": 1}', '{"id": "b", "x": 0}', '{"id": "c", "x": "no"}', "oops"]
    for name, rows, rejected, ids in (
        ("items", items, [(1, "{"), (3, {"id": "x"})], ["a", "b"]),
        ("objects", objects, [(1, {"id": "b", "x": 0}), (2, objects[2]), (3, "oops")], ["a"]),
    ):
        path = bench.folder / f"{name}.ndjson"
        path.write_bytes(text(*rows, *rows[:1] * 5))
        bench.call("load", str(path), "--into", name, "--on-error", "skip", code=3)
        assert [(each["row"], each["item"]) for each in rejected_of(path)] == rejected
        assert sorted(each.id for each in bench.server.collection(name)) == ids
    path.write_bytes(text("oops", *items))
    assert "row 0: expected a JSON object" in bench.load(path, code=1).stderr
    bench.load(path, "--on-error", "skip", code=3)
    assert [each["row"] for each in rejected_of(path)] == [0, 2, 4]
    bench.server.drop("plants")
    path = bench.folder / "numbered.ndjson"
    path.write_bytes(text('{"vector": [1, 2]}', "oops", '{"vector": [3, 4]}'))
    bench.load(path, "--on-error", "skip", "--id-start", "0", code=3)
    assert [each.id for each in bench.plants] == ["0", "2"]


def test_what_a_collection_or_a_command_line_does_not_take_is_told(bench: Bench) -> None:
    collection = bench.server.collection("plants", dim=3)
    collection.add([[1, 2, 3]], ids=["n3"])
    path = bench.folder / "a.npy"
    np.save(path, VECTORS[:, :2])
    told = bench.load(path, code=1).stderr.splitlines()[-1]
    for word in ("expected vectors of 3 values, got 2", "--vector", "--into"):
        assert word in told, told
    (bench.folder / "a.csv").write_bytes(csv_bytes())
    assert "'n3' exists" in bench.load("a.csv", "--mode", "insert", code=1).stderr
    for words in (["--dim", "x"], ["--on-error", "maybe"], ["--colour", "red"]):
        bench.load(path, *words, code=2)
    bench.call("load", str(path), code=2)
    nobody = bench.load(path, "--url", "http://127.0.0.1:9", code=1)
    assert "gcws-search serve" in nobody.stderr.splitlines()[-1]
    (bench.folder / "frame.csv").write_bytes(text(",x,y,z", "7,1,2,3", "12,3,4,5"))
    bench.load("frame.csv", "--id", "")
    assert [each.id for each in collection] == ["n3", "7", "12"]


# Loads that a bad row ended


ENDED: dict[str, tuple[str, bytes, list[str], int]] = {
    "text": ("a.csv", b"x,oops", ["--vector", "x,y"], 16500),  # behind what is read at once
    "zeros": ("a.csv", b"0,0", [], 8500),  # behind what is stored at once
    "hole": ("a.csv", b",2", [], 8500),
    "line": ("a.ndjson", b"{", [], 8500),
    "stdin": ("-", b'{"vector": [0, 0]}', ["--key", "mine"], 8500),
    "stdin-text": ("-", b"x,oops", ["--vector", "x,y", "--key", "mine"], 16500),
}


def many_rows(bad: bytes, row: int, *, is_csv: bool) -> bytes:
    """Return rows up to some behind a bad one."""
    line = b"%d,1" if is_csv else b'{"vector": [%d, 1]}'
    lines = [*(line % number for number in range(row)), bad, line % (row + 1)]
    return b"\n".join([b"x,y", *lines] if is_csv else lines) + b"\n"


@pytest.mark.parametrize("kind", ENDED)
def test_a_load_that_a_bad_row_ended_goes_on_where_such_rows_are_left_out(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, bad, options, row = ENDED[kind]
    monkeypatch.chdir(bench.folder)
    data = many_rows(bad, row, is_csv=not bad.startswith(b"{"))
    given = data if name == "-" else None
    (bench.folder / name).write_bytes(data)
    collection = bench.server.collection("plants", dim=2)
    first = bench.load(name, *options, code=1, input=given).stderr.splitlines()[-1]
    assert f"row {row}: " in first, first
    assert ("--on-error skip" in first) == (kind != "hole")
    stored = len(collection)
    assert stored >= 8192 or kind in ("text", "hole", "stdin-text")
    done = bench.load(name, *options, "--on-error", "skip", code=3, input=given)
    told = f"plants: {row + 1:,} inserted, 0 updated, 1 rejected, ids 0 to {row}\n"
    assert done.stdout == told, done.output
    assert (f"loaded in part before ({stored:,} items" in done.stderr) == bool(stored), done.stderr
    assert f"row {row}: " in done.stderr
    rejected = "stdin" if name == "-" else name
    assert [each["row"] for each in rejected_of(bench.folder / rejected)] == [row]

    def values() -> list[float]:
        found: list[Json] = [each.vector for each in collection]
        return sorted(vector[0] for vector in found)

    expected = [*range(row), row + 1]
    assert values() == expected
    again = bench.load(name, *options, "--on-error", "skip", code=3, input=given)
    assert again.stdout == "plants: 0 inserted, 0 updated, 1 rejected\n"
    assert "0 stored: " in again.stderr
    if name != "-":
        bench.load(name, *options, code=1)
    assert values() == expected


def test_a_load_goes_on_after_its_file_was_mended_where_the_first_rows_are_the_same(
    bench: Bench,
) -> None:
    path = bench.folder / "a.ndjson"
    lines = many_rows(b"{", 8500, is_csv=False).splitlines()

    def load(*options: str, code: int = 0) -> Json:
        path.write_bytes(b"\n".join(lines))
        return bench.load(path, *options, code=code)

    load(code=1)
    lines[8500:] = [b'{"vector": [3, 3]}', b'{"vector": [4, 4]}', b'{"vector": [5, 5]}']
    done = load()
    assert done.stdout == "plants: 8,503 inserted, 0 updated, ids 0 to 8502\n", done.output
    assert "loaded in part before (8,192 items" in done.stderr
    assert len(bench.plants) == 8503
    assert "changed since it was loaded" in load().stderr
    assert len(bench.plants) == 2 * 8503
    bench.server.drop("plants")
    lines[8501] = b"{"
    load(code=1)
    lines[0] = b'{"vector": [9, 9]}'
    assert "its rows are others" in load("--on-error", "skip", code=3).stderr
    assert len(bench.plants) == 8192 + 8502
    lines[8501] = b'{"vector": [1, 1]}'
    assert "changed since it was loaded" in load().stderr
    assert len(bench.plants) == 8192 + 8502 + 8503


@pytest.mark.parametrize("missing", ["zero", "drop", "mean"])
def test_a_load_that_a_hole_ended_goes_on_where_it_is_said_what_holes_become(
    bench: Bench, missing: str
) -> None:
    path = bench.folder / "a.csv"
    path.write_bytes(many_rows(b"8500,", 8500, is_csv=True))
    bench.load(path, code=1)
    done = bench.load(path, "--missing", missing)
    count = 8502 - (missing == "drop")
    assert done.stdout.startswith(f"plants: {count:,} inserted, 0 updated")
    assert len(bench.plants) == count
    bench.load(path, "--missing", missing)
    assert len(bench.plants) == count
    if missing != "zero":  # other rows, as is said
        bench.load(path, "--missing", "zero")
        assert len(bench.plants) == count + 8502


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_rows_are_numbered_as_in_the_file_whichever_are_left_out(
    bench: Bench, on_error: str
) -> None:
    for name, rows in (("a.csv", ["1,", "2,1", "3,1"]), ("b.csv", ["4,1", ",1", "6,1"])):
        (bench.folder / name).write_bytes(text("x,y", *rows))
    paths = [str(bench.folder / name) for name in ("a.csv", "b.csv")]
    words = "--missing", "drop", "--id-start", "10", "--on-error", on_error
    done = bench.call("load", *paths, "--into", "plants", *words)
    assert done.stdout == "plants: 4 inserted, 0 updated, 2 left out for missing numbers\n"
    found = {each.id: each.vector for each in bench.plants}
    assert found == {"11": [2, 1], "12": [3, 1], "13": [4, 1], "15": [6, 1]}
    (bench.folder / "c.csv").write_bytes(text("x,y", "1,", "2,1", "0,0"))
    done = bench.load("c.csv", "--missing", "drop", code=1)
    assert "c.csv: row 2: " in done.stderr.splitlines()[-1]


# Loads that are killed, or whose server goes away


LINE_COUNT = 8000
LINES = [
    json.dumps({"id": str(row), "vector": [row + 1, 1], "payload": {"row": row}}).encode() + b"\n"
    for row in range(LINE_COUNT)
]


@pytest.mark.parametrize("sent", [1, LINE_COUNT - 1])
def test_a_load_that_is_killed_is_complete_after_the_next(
    server: gcws_search.Server, url: str, sent: int
) -> None:
    words = ["load", "-", "--into", "plants", "--key", "plants-1", "--url", url]
    command, pipe = [sys.executable, "-m", "gcws_search", *words], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=REPOSITORY) as first:
        assert first.stdin is not None
        first.stdin.write(b"".join(LINES[:sent]))
        first.stdin.flush()
        first.kill()
        first.communicate()
    second = CliRunner().invoke(app, words, input=b"".join(LINES))
    plants = server.collection("plants")
    found = {item.id: (item.vector, item.payload) for item in plants}
    assert found == {str(row): ([row + 1.0, 1.0], {"row": row}) for row in range(LINE_COUNT)}
    assert second.stdout == f"plants: {LINE_COUNT:,} inserted, 0 updated\n", second.output


def test_a_load_goes_on_after_its_server_went_away(
    server: gcws_search.Server, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks off amid a body of which much is stored, and is not there after that."""
    request, path = Wire.request, tmp_path / "all.ndjson"

    def broken(pieces: Iterator[bytes]) -> Iterator[bytes]:
        yield b"".join(pieces)[: 3 * path.stat().st_size // 4]
        raise Unreachable("reset")

    async def break_off(client: Wire, method: str, where: str, **more: Json) -> Answer:
        if not where.endswith("/load"):
            return await request(client, method, where, **more)
        content, more["content"] = more["content"], None
        if loads:
            raise Unreachable("refused")
        loads.append(where)
        return await request(client, method, where, **(more | {"content": broken(content)}))

    loads: list[str] = []
    path.write_bytes(b"".join(LINES))
    words = ["load", str(path), "--into", "plants", "--url", url]
    with monkeypatch.context() as patched:
        patched.setattr(RetryPolicy, "wait_seconds", lambda *_: 0.0)
        patched.setattr(Wire, "request", break_off)
        gone = CliRunner().invoke(app, words)
    assert gone.exit_code == 1, gone.output
    told = gone.stderr.splitlines()[-1]
    for word in (str(path), "expected a server", "serve", "the same command goes on"):
        assert word in told, told
    done = CliRunner().invoke(app, words)
    assert done.stdout == f"plants: {LINE_COUNT:,} inserted, 0 updated\n", done.output
    found = {item.id: item.payload for item in server.collection("plants")}
    assert found == {str(row): {"row": row} for row in range(LINE_COUNT)}


# Records


def test_a_bad_record_is_written_down_and_the_others_stored(bench: Bench) -> None:
    lines = ["1,2:3\ta", "1,x\tb", "2:0\tc", "4:2\td"]
    (bench.folder / "a.fpc").write_bytes(text("#FPC1", *lines))
    done = bench.load("a.fpc", code=1)
    assert "a.fpc: row 1: line 3: expected a feature" in done.stderr
    assert not bench.server.collections()
    done = bench.load("a.fpc", "--on-error", "skip", code=3)
    assert done.stdout == "plants: 2 inserted, 0 updated, 2 rejected\n"
    rejected = rejected_of(bench.folder / "a.fpc")
    assert [(each["row"], each["item"]) for each in rejected] == [(1, lines[1]), (2, lines[2])]
    hits = bench.plants.query({"1": 1, "2": 3}, recall=1)
    assert {hit.id: hit.score for hit in hits} == {"a": 1, "d": 0}


def test_files_after_the_first_are_read_as_it_is(bench: Bench) -> None:
    (bench.folder / "a.svm").write_bytes(text("1 1:2 3:1"))
    (bench.folder / "b.svm").write_bytes(text("1 2:5"))
    (bench.folder / "c.svm").write_bytes(text("1 0:1"))
    a, b, c = (str(bench.folder / f"{name}.svm") for name in "abc")
    done = bench.call("load", a, c, "--into", "plants", "--dim", "4", code=1)
    assert "c.svm: row 0: line 1: expected coordinates from 1 on, got 0" in done.stderr
    bench.call("load", c, a, b, "--into", "others", "--dim", "4")
    others = bench.server.collection("others")
    assert [each.vector for each in others] == [[1, 0, 0, 0], [0, 2, 0, 1], [0, 0, 5, 0]]


def test_rows_whose_id_comes_again_are_told(bench: Bench) -> None:
    (bench.folder / "a.csv").write_text("id,x,y\na,1,2\nb,1,3\na,2,2\n\n")
    said = bench.load("a.csv", "--yes").stdout
    assert "2 inserted, 0 updated, 1 replaced by later rows of their id" in said
    again = bench.load("a.csv", "--yes", "--json").stdout
    assert json.loads(again.splitlines()[-1])["repeated"] == 0  # nothing is stored again
