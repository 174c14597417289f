"""Files as items: all readers with all types of ids and of payloads, encodings, missing numbers."""

import bz2
import csv
import datetime
import decimal
import errno
import gzip
import io
import json
import lzma
import os
import re
import sys
import tarfile
import uuid
import zipfile
from collections.abc import Callable
from contextlib import suppress
from itertools import cycle, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from hypothesis import given, strategies as st
from scipy import sparse

from gcws_search.formats.files import BadFile, Folder, find_repeated, input_files
from gcws_search.formats.items import items_of
from gcws_search.formats.sources import Choices, source_of
from gcws_search.index import InvalidInput, InvalidVector
from tests.support.counts import calls_of, compared_texts
from tests.support.files import items, source
from tests.support.paths import REPOSITORY
from tests.support.service.client import Json

# Tables with types


def parquet(table: pa.Table, path: Path) -> Path:
    pa.parquet.write_table(table, path / "a.parquet", row_group_size=2)
    return path / "a.parquet"


def arrow_file(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_file(path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=1)
    return path / "a.arrow"


def arrow_stream(table: pa.Table, path: Path) -> Path:
    with pa.ipc.new_stream(path / "a.arrows", table.schema) as writer:
        writer.write_table(table)
    return path / "a.arrows"


def feather(table: pa.Table, path: Path) -> Path:
    pa.feather.write_feather(table, path / "a.feather")
    return path / "a.feather"


def folder_of_parquet(table: pa.Table, path: Path) -> Path:
    (path / "all" / "part=1").mkdir(parents=True)
    pa.parquet.write_table(table, path / "all" / "part=1" / "a.parquet")
    return path / "all"


TYPED: list[Callable[[pa.Table, Path], Path]] = [
    parquet, arrow_file, arrow_stream, feather, folder_of_parquet,
]  # fmt: skip
HASHES = [13570027672830659665, 18446744073709551615]
UUIDS = [uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]
IDS: dict[str, tuple[pa.Array, list[str]]] = {
    "int8": (pa.array([-7, 7], pa.int8()), ["-7", "7"]),
    "int64": (pa.array([2**63 - 1, 0]), [str(2**63 - 1), "0"]),
    "uint64": (pa.array(HASHES, pa.uint64()), [*map(str, HASHES)]),
    "text": (pa.array(["007", "7"]), ["007", "7"]),
    "text-of-numbers": (pa.array(["12e3", "NA"]), ["12e3", "NA"]),
    "large-text": (pa.array(["a", "é"], pa.large_string()), ["a", "é"]),
    "categories": (pa.array(["u", "v"]).dictionary_encode(), ["u", "v"]),
    "decimal": (pa.array(HASHES, pa.decimal128(20, 0)), [*map(str, HASHES)]),
    "decimal-256": (pa.array(HASHES, pa.decimal256(40, 0)), [*map(str, HASHES)]),
    "decimal-with-places": (
        pa.array([decimal.Decimal("1.50"), decimal.Decimal("2.25")]), ["1.50", "2.25"],
    ),
    "whole-floats": (pa.array([1.0, 2.0**53]), ["1", str(2**53)]),
    "binary-16": (pa.array([each.bytes for each in UUIDS], pa.binary(16)), [*map(str, UUIDS)]),
    "uuid": (pa.array([each.bytes for each in UUIDS], pa.uuid()), [*map(str, UUIDS)]),
    "binary": (pa.array([b"\x00\xff", b"ab"]), ["00ff", "6162"]),
    "binary-3": (pa.array([b"abc", b"\xff\x00\x01"], pa.binary(3)), ["616263", "ff0001"]),
    "dates": (
        pa.array([datetime.date(2026, 1, 2), datetime.date(1999, 12, 31)]),
        ["2026-01-02", "1999-12-31"],
    ),
    "times": (
        pa.array([0, 86400], pa.timestamp("s")), ["1970-01-01T00:00:00", "1970-01-02T00:00:00"],
    ),
}  # fmt: skip
BAD_IDS: dict[str, tuple[pa.Array, str]] = {
    "fractions": (pa.array([1.0, 2.5]), "row 1: column 'ID': expected text, whole numbers"),
    "rounded": (pa.array([1.0, 2.0**60]), "row 1: column 'ID': expected text, whole numbers"),
    "nan": (pa.array([1.0, float("nan")]), "row 1: column 'ID': expected text, whole numbers"),
    "null": (pa.array(["a", None]), "row 1: column 'ID': .* got a missing value"),
    "truths": (pa.array([True, False]), "column 'ID': .* got bool"),
    "lists": (pa.array([["a"], ["b"]]), "column 'ID': .* got list"),
    "durations": (pa.array([1, 2], pa.duration("s")), "column 'ID': .* got duration"),
    "bad-text": (
        pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers()),
        "row 1: column 'ID': expected text in UTF-8",
    ),
}


# Types of columns and names of columns meet in no line of code.
@pytest.mark.parametrize(
    ("write", "kind", "name"),
    [(*each, name) for each, name in zip(product(TYPED, IDS), cycle(["id", "Id", "key"]))],
)
def test_ids_of_every_type_are_text_and_no_coordinate(
    tmp_path: Path, write: Json, kind: str, name: str
) -> None:
    column, texts = IDS[kind]
    table = pa.table({"x": [1.0, 2.0], name: column, "y": [3, 4]})
    found = items(write(table, tmp_path), id="key" if name == "key" else None)
    assert [(each, vector) for each, vector, _ in found] == [(texts[0], [1, 3]), (texts[1], [2, 4])]


@pytest.mark.parametrize("kind", BAD_IDS)
@pytest.mark.parametrize("write", TYPED)
def test_what_can_be_no_id_is_refused_by_its_row_and_column(
    tmp_path: Path, write: Json, kind: str
) -> None:
    column, words = BAD_IDS[kind]
    path = write(pa.table({"ID": column, "x": [1.0, 2.0], "y": [3, 4]}), tmp_path)
    with pytest.raises(BadFile, match=words) as refused:
        items(path)
    assert str(path) in str(refused.value)
    lenient = source(path, lenient=True)
    if "row 1" in words:
        [batch] = [batch for batch in lenient.batches() if len(batch)]
        assert len(batch) == 1
        assert [each.row for each in lenient.unreadable] == [1]
        return
    with pytest.raises(BadFile, match=words):  # no row can be read
        list(lenient.batches())


def test_a_row_beside_views_is_left_out(tmp_path: Path) -> None:
    texts = pa.array([["u"], ["v"], ["w"]], pa.list_(pa.string_view()))
    table = pa.table({"id": ["a", None, "c"], "x": [1, 2, 3], "tags": texts})
    found = items(parquet(table, tmp_path), lenient=True)
    assert found == [("a", [1], {"tags": ["u"]}), ("c", [3], {"tags": ["w"]})]


def test_a_column_id_is_a_coordinate_where_it_is_named(tmp_path: Path) -> None:
    table = pa.table({"id": [5, 6], "x": [1.0, 2.0]})
    for write in TYPED[:-1]:
        path = write(table, tmp_path)
        assert items(path, id="x", vector=("id",)) == [("1", [5], None), ("2", [6], None)]
    (tmp_path / "a.csv").write_text("id,key,x\n5,a,1\n6,b,2\n")
    assert items(tmp_path / "a.csv", id="key", vector=("id", "x")) == [
        ("a", [5, 1], None), ("b", [6, 2], None),
    ]  # fmt: skip
    assert items(tmp_path / "a.csv", id="key") == [("a", [1], {"id": 5}), ("b", [2], {"id": 6})]


DAY = datetime.datetime(2026, 1, 2, 3, 4)
FIELDS: dict[str, tuple[pa.Array, Json]] = {
    "int64": (pa.array([2**62, None]), [2**62, None]),
    "uint64": (pa.array([HASHES[1], 1], pa.uint64()), [HASHES[1], 1]),
    "floats": (pa.array([1.5, float("nan")]), [1.5, None]),
    "text": (pa.array(["NA", "12:30"]), ["NA", "12:30"]),
    "categories": (pa.array(["u", None]).dictionary_encode(), ["u", None]),
    "truths": (pa.array([True, False]), [True, False]),
    "decimal": (pa.array([HASHES[0], None], pa.decimal128(20, 0)), [HASHES[0], None]),
    "prices": (pa.array([decimal.Decimal("12.50"), None], pa.decimal128(9, 2)), [12.5, None]),
    "dates": (pa.array([datetime.date(2026, 1, 2), None]), ["2026-01-02", None]),
    "times": (pa.array([DAY, None]), ["2026-01-02T03:04:00", None]),
    "hours": (pa.array([datetime.time(12, 30), None]), ["12:30:00", None]),
    "nothing": (pa.array([None, None]), [None, None]),
    "words": (pa.array([["a", "b"], []]), [["a", "b"], []]),
    "objects": (pa.array([{"a": 1}, None]), [{"a": 1}, None]),
    "uuid": (pa.array([UUIDS[0].bytes, None], pa.uuid()), [str(UUIDS[0]), None]),
}
BAD_FIELDS: dict[str, pa.Array] = {
    "binary": pa.array([b"\x00\xff", b"a"]),
    "binary-16": pa.array([b"0" * 16, b"1" * 16], pa.binary(16)),
    "large-binary": pa.array([b"a", b"b"], pa.large_binary()),
    "durations": pa.array([1, 2], pa.duration("s")),
    "nested": pa.array([[b"a"], []]),
    "in-objects": pa.array([{"a": b"a"}, None]),
    "maps": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    "infinite": pa.array([float("inf"), 1]),
}


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize("write", TYPED)
def test_payloads_of_every_type_are_what_they_were(tmp_path: Path, write: Json, kind: str) -> None:
    column, values = FIELDS[kind]
    table = pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "field": column})
    path = write(table, tmp_path)
    found = items(path, vector=("x",), payload=("field",))
    wanted = [None if value is None else {"field": value} for value in values]
    assert found == [("a", [1], wanted[0]), ("b", [2], wanted[1])]


@pytest.mark.parametrize("kind", BAD_FIELDS)
@pytest.mark.parametrize("write", TYPED)
def test_what_json_does_not_hold_is_refused_by_its_column(
    tmp_path: Path, write: Json, kind: str
) -> None:
    table = pa.table({"id": ["a", "b"], "x": [1.0, 2.0], "field": BAD_FIELDS[kind]})
    path = write(table, tmp_path)
    with pytest.raises(BadFile, match=r"field.* expected values that JSON holds"):
        items(path, vector=("x",), payload=("field",))
    assert items(path, vector=("x",), payload=()) == [("a", [1], None), ("b", [2], None)]


# Text

TEXTS = [
    "007", "7", "12e3", "18446744073709551615", "13570027672830659665", "NA", "null", "nan", "1.50",
    "true", "2026-01-02", "12:30", " a", "é",
]  # fmt: skip


def csv_lines(delimiter: str, quote: str) -> Callable[[list[str]], bytes]:
    def write(texts: list[str]) -> bytes:
        rows = [f"{quote}{text}{quote}{delimiter}{n}{delimiter}1" for n, text in enumerate(texts)]
        return ("\n".join([delimiter.join(("ID", "x", "y")), *rows]) + "\n").encode()

    return write


def objects(texts: list[str]) -> bytes:
    rows = [{"ID": text, "x": n, "y": 1} for n, text in enumerate(texts)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


LINES: dict[str, Callable[[list[str]], bytes]] = {
    "a.csv": csv_lines(",", ""),
    "quoted.csv": csv_lines(",", '"'),
    "semicolons.csv": csv_lines(";", ""),
    "a.tsv": csv_lines("\t", ""),
    "a.csv.gz": lambda texts: gzip.compress(csv_lines(",", "")(texts)),
    "a.ndjson": objects,
    "all/1.csv": csv_lines(",", ""),
    "all/1.tsv": csv_lines("\t", '"'),
}


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("chosen", [None, "ID"])
@pytest.mark.parametrize("name", LINES)
def test_ids_of_text_stay_as_written(
    tmp_path: Path, name: str, chosen: str | None, lenient: bool
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    for texts in (TEXTS, *([text, text + "0"] for text in TEXTS)):
        path.write_bytes(LINES[name](texts))
        where = path.parent if name.startswith("all") else path
        found = items(where, id=chosen, lenient=lenient)
        assert [(item, vector) for item, vector, _ in found] == [
            (text, [n, 1]) for n, text in enumerate(texts)
        ]


@pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
def test_what_quotes_hold_does_not_tell_how_columns_are_divided(
    tmp_path: Path, delimiter: str
) -> None:
    words = ["one, two", "line\nbreak", 'says "a;b"', '5" pipe | tab\t', "; ; ;,"]
    rows = [
        [word.replace('"', '""').join('""'), str(n), "1" if delimiter == "," else "0,5"]
        for n, word in enumerate(words)
    ]
    lines = [["says", "x", "y"], *rows]
    path = tmp_path / "a.csv"
    path.write_text("".join(delimiter.join(line) + "\n" for line in lines))
    y = 1.0 if delimiter == "," else 0.5
    found = [(vector, payload) for _, vector, payload in items(path)]
    assert found == [([n, y], {"says": word}) for n, word in enumerate(words)]


@pytest.mark.parametrize("delimiter", [";", "\t", "|"])
@pytest.mark.parametrize("mark", [".", ","])
@pytest.mark.parametrize("told", ["1,234", "1.234", "3,5", "x,y"])
def test_most_fractions_tell_the_decimal_mark_and_thousands_do_not(
    tmp_path: Path, delimiter: str, mark: str, told: str
) -> None:
    """`told` is a cell of a column of text, before any number."""
    lines = [["said", "x", "y"], [told, "1", "-7"], ["no", f"0{mark}5", f"2{mark}25"]]
    lines += [["no", f"{n}{mark}234", f"-1{mark}5e-2"] for n in range(2)]
    (tmp_path / "a.csv").write_text("".join(delimiter.join(line) + "\n" for line in lines))
    rows = [vector for _, vector, _ in items(tmp_path / "a.csv")]
    expected = np.array([[1, -7], [0.5, 2.25], [0.234, -0.015], [1.234, -0.015]], np.float32)
    assert rows == expected.tolist()
    words = dict(source(tmp_path / "a.csv").guess)
    assert ("numbers" in words) == (mark == ",")


@pytest.mark.parametrize(
    ("rows", "is_told"),
    [("a;1.000;2\nb;2.500;3\n", True), ("a;1.5;2\nb;2.500;3\n", False), ("a;7;2\n", False)],
)
def test_points_that_may_mark_thousands_are_told(tmp_path: Path, rows: str, is_told: bool) -> None:
    (tmp_path / "a.csv").write_text(f"id;x;y\n{rows}")
    assert ("numbers" in dict(source(tmp_path / "a.csv").guess)) == is_told


@pytest.mark.parametrize("quote", ["", '"'])
@pytest.mark.parametrize("names", ["", "a{0};{0}b"])
def test_quoted_numbers_are_numbers_with_decimal_commas_and_without_names_too(
    tmp_path: Path, quote: str, names: str
) -> None:
    """`{0}` stands for a quote, which Excel writes around all cells or none."""
    rows = [names, "1,5{0};{0}2", "0,5{0};{0}-3"]
    lines = [f"{{0}}{row}{{0}}\n".format(quote) for row in rows if row]
    (tmp_path / "a.csv").write_text("".join(lines))
    assert [vector for _, vector, _ in items(tmp_path / "a.csv")] == [[1.5, 2], [0.5, -3]]


@pytest.mark.parametrize(
    "price",
    ["1.234,5", "12.345", "1,234.5", "-1,234,567", "1 234", "1\u202f234,5", "12%", "$3", "3 €",
     "(3)", "\N{MINUS SIGN}3"],
)  # fmt: skip
def test_numbers_with_marks_are_shown_as_text(tmp_path: Path, price: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f'a\tprice\tword\n1\t"{price}"\tx\n2\t"{price}"\ty\n')
    told = [words for word, words in source(path).guess if word == "text"]
    is_number = price == "12.345"
    assert told == (
        [] if is_number else [f"'price' with {price!r}: numbers with marks, and lists, are text"]
    )


@pytest.mark.parametrize("word", ["2024-01-05", "12:30", "1.2.3", "0x1F", "5 kg", "7a"])
def test_other_text_is_no_number_with_marks(tmp_path: Path, word: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,word\n1,{word}\n2,{word}\n3,4\n")
    assert "text" not in dict(source(tmp_path / "a.csv").guess)


def test_names_of_columns_are_taken_without_blanks_and_blank_ones_by_their_place(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("size, id,, note ,,\n1,x,2,m,,\n3,y,4,n,,\n")
    assert items(path) == [("x", [1, 2], {"note": "m"}), ("y", [3, 4], {"note": "n"})]
    assert source(path).columns == ["size", "column 3"]
    assert [vector for _, vector, _ in items(path, vector=("size",), payload=())] == [[1], [3]]


@pytest.mark.parametrize("above", ["My report\n", "# of a tool\n\n", "sep=;\n", "a,b,c\n"])
def test_lines_above_the_names_of_columns_are_named(tmp_path: Path, above: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{above}id,a,b,c\n1,1,2,3\n2,3,4,5\n")
    first = re.escape(repr(above.partition("\n")[0]))
    with pytest.raises(BadFile, match=f"names of columns must be the first line, which is {first}"):
        source(path)


@pytest.mark.parametrize("names", ["id,a,b", "id,a,b\n", "id\ta\tb"])
def test_names_of_columns_alone_are_no_rows(tmp_path: Path, names: str) -> None:
    (tmp_path / "a.csv").write_text(names)
    with pytest.raises(BadFile, match="rows below the names of columns, got none"):
        source(tmp_path / "a.csv")


def test_files_of_a_folder_that_have_no_rows_are_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "0.csv").write_text("id,a,b\n")
    (tmp_path / "1.csv").write_text("id,a,b\nx,1,2\n")
    (tmp_path / "2.csv.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "3.csv").write_text("id,b,a\ny,3,4\nz,5,6\n")
    found = source(tmp_path)
    assert [item for batch in found.items() for item in batch.texts() or ()] == ["x", "y", "z"]
    assert found.place(2) == f"{tmp_path / '3.csv'}: row 1"
    [told] = [words for name, words in found.guess if name == "left out"]
    assert "0.csv" in told
    assert "2.csv.gz" in told
    (tmp_path / "4.csv").write_text("x,1,2\n")  # a row, of a file without names
    with pytest.raises(
        BadFile, match=r"4\.csv: expected rows below the names of columns, got none"
    ):
        source(tmp_path)
    for path in tmp_path.iterdir():
        path.write_bytes(b"")
    with pytest.raises(BadFile, match="expected rows, got an empty file"):
        source(tmp_path)


def test_empty_files_of_a_folder_that_is_no_table_are_told_and_left_out(tmp_path: Path) -> None:
    for name, text in (("a", ""), ("b", '{"vector": [1, 2]}\n'), ("c", "")):
        (tmp_path / f"{name}.ndjson").write_text(text)
    told: list[str] = []
    assert [each.name for each in input_files(str(tmp_path), None, told.append)] == [
        str(tmp_path / "b.ndjson")
    ]
    assert [word.partition(":")[0] for word in told] == [
        str(tmp_path / name) for name in ("a.ndjson", "c.ndjson")
    ]
    (tmp_path / "b.ndjson").write_text("")
    with pytest.raises(BadFile, match=r"c\.ndjson: expected rows, got an empty file"):
        [*input_files(str(tmp_path), None)]


def write_hugging_face(folder: Path, *rows: Json) -> None:
    """Write rows as `Dataset.save_to_disk` does."""
    folder.mkdir()
    for number, row in enumerate(rows):
        table = pa.Table.from_pylist([row])
        path = folder / f"data-{number:05}-of-{len(rows):05}.arrow"
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    (folder / "dataset_info.json").write_text(json.dumps({"features": {"x": {"dtype": "float"}}}))
    (folder / "state.json").write_text(json.dumps({"_split": None, "_fingerprint": "0a"}))


def test_files_without_rows_beside_others_of_a_folder_are_told_and_left_out(tmp_path: Path) -> None:
    for name in ("README.md", "LICENSE", "card.md", "readme.txt"):
        folder = tmp_path / name.partition(".")[0]
        folder.mkdir()
        pa.parquet.write_table(pa.table({"id": ["a"], "x": [1.0]}), folder / "part-0.parquet")
        (folder / name).write_text("Words, and more of them.\n")
        told: list[str] = []
        [found] = input_files(str(folder), None, told.append)
        assert isinstance(found, Folder)
        assert [words.startswith(f"{folder}: {name} left out") for words in told] == [True]
        assert items(folder) == [("a", [1], None)]


def test_a_dataset_of_hugging_face_is_read_without_what_describes_it(tmp_path: Path) -> None:
    write_hugging_face(tmp_path / "d", {"id": "a", "x": 1.0}, {"id": "b", "x": 2.0})
    told: list[str] = []
    found = [source_of(each, Choices()) for each in input_files(str(tmp_path), None, told.append)]
    assert [batch.texts() for each in found for batch in each.batches()] == [["a"], ["b"]]
    assert len(told) == 1
    (tmp_path / "e").mkdir()  # among files of JSON, such a name may be one of rows
    (tmp_path / "e" / "state.json").write_text('{"id": "ohio", "vector": [1]}\n')
    assert [each.name for each in input_files(str(tmp_path / "e"), None)] == [
        str(tmp_path / "e" / "state.json")
    ]


def test_keys_within_objects_are_told_to_be_no_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"kind": "shop", "_id": "7", "_source": {"title": "a kettle"}}\n')
    for choices in ({"text": "title"}, {"id": "title", "text": "_id"}, {"payload": ("title",)}):
        with pytest.raises(BadFile, match=r"expected a column 'title', .*within _source"):
            items(path, **choices)


def test_one_long_object_for_all_rows_is_refused_with_what_writes_one_for_each(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    pandas.DataFrame({"x": np.arange(100_000.0)}).to_json(path)
    with pytest.raises(BadFile, match=r"an? JSON object for each row.*orient='records'"):
        source(path)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.mtx", "%%MatrixMarket matrix coordinate integer general\n2 2 1\n1 1 3\n", "mmread"),
        ("a.csv", "%%MatrixMarket matrix array real general\n1 1\n3\n", "Matrix Market"),
        ("a.sdf", "aspirin\n  RDKit 2D\n\n 13 13  0  0  0  0  0  0  0  0999 V2000\n", "SMILES"),
        ("a.sdf", "\r\n\r\n\r\n  0  0  0     0  0            999 V3000\r\nM", "SMILES"),
        ("a.mzML", '<?xml version="1.0"?>\n<mzML xmlns="u" version="1.1.0">', "MGF"),
        ("a.mzML", '<?xml version="1.0"?>\n<!-- by x -->\n<indexedmzML xmlns="u">', "MGF"),
        ("a.mzXML", '<?xml version="1.0"?>\n<mzXML\n xmlns="u">', "MGF"),
        ("a.csv", "<!doctype html><title>Sign in</title>\n", "HTML"),
        ("a.csv", "<html>no table</html>", "HTML"),
        ("a.json", pandas.DataFrame({"x": [1, 2]}).to_json(orient="split"), "orient='records'"),
        ("a.json", pandas.DataFrame({"x": [1, 2]}).to_json(orient="table"), "orient='records'"),
        ("a.json", pandas.DataFrame({"x": [1, 2]}).to_json(), "orient='records'"),
        ("a.json", pandas.DataFrame({"x": [1, 2]}).to_json(orient="index"), "orient='records'"),
        ("a.arff", "% flowers\n\n@RELATION iris\n@ATTRIBUTE a NUMERIC\n@DATA\n1\n", "loadarff"),
        ("a.fasta", ">seq1 of a gene\nACGTACGT\nACG\n>seq2\nGG\n", "FASTA.*signatures"),
        ("a.fa", "\n>seq1\r\nMKV*", "FASTA"),
        ("a.fastq", "@r1 1\nACGTN\n+\nIIIII\n", "FASTQ"),
        ("a.gct", "#1.2\n2\t1\nName\tDescription\ts\na\tna\t1\nb\tna\t2\n", "--transpose"),
        ("a.gct", "#1.3\r\n2\t1\t0\t0\r\nid\ts\r\na\t1\r\nb\t2\r\n", "cmapPy"),
        ("a.vcf", "##fileformat=VCFv4.2\n#CHROM\tPOS\n1\t2\n", "bcftools"),
        ("a.sql", "-- MySQL dump 10.13\n--\nCREATE TABLE `t` (a int);\n", "SQL dump"),
        ("a.sql", "-- of /* a\n/* two\n ** */ /**/\nCREATE TABLE t (a int);\n", "SQL dump"),
        ("a.sql", "/*M!999999\\- mode */ \n-- MariaDB dump 10.19\n", "SQL dump"),
        ("a.sql", "--\n-- PostgreSQL database dump\n--\n\n\\restrict x\nSET a = 0;\n", "SQL dump"),
        ("a.sql", "PRAGMA foreign_keys=OFF;\nBEGIN TRANSACTION;\n", "SQL dump"),
        ("a.csv", "-- the first\n\ninsert into t values (1, 2);\n", "SQL dump"),
        ("a.sqlite", "SQLite format 3\0\x10\0", "sqlite3 -header -csv"),
        ("a.json", '{"_index":"a","_id":"7","_score":1,"_source":{"n":3}}\n' * 3, r"\._source"),
        ("a.json", '{"took":5,"timed_out":false,"hits":{"hits":[{"_id":"7"}]}}', r"hits\.hits"),
        ("a.json", '{"index":{"_index":"a","_id":"7"}}\n{"n":3}\n' * 2, r"\$a\[\]\._id"),
        ("a.json", '{ "create" : {} }\n{"vector":[1]}\n', "bulk actions"),
        ("a.pdf", "%PDF-1.4\n1 0 obj\n", "pdftotext"),
        ("a.orc", "ORC\n\x06\x12\0", "read_table"),
        ("a.nc", "CDF\x02\0\0", "xarray"),
        ("a.dta", "r\x02\x01\0\x08\0", "read_stata"),
        ("a.dta", "<stata_dta><header><release>118</release>", "read_stata"),
        ("a", "MATLAB 5.0 MAT-file, written by scipy" + "\0" * 90, "loadmat"),
        ("a.pkl", b"\x80\x05\x95\x0b\0\0\0\0", "pickle"),
        ("a", '<?xml version="1.0"?>\n<rows><row/></rows>\n', "XML"),
    ],
)
def test_texts_of_other_formats_are_named_with_what_to_do(
    tmp_path: Path, name: str, text: str | bytes, words: str
) -> None:
    content = text.encode() if isinstance(text, str) else text
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        with pytest.raises(BadFile, match=f"got .*{words}"):
            items(path)


@pytest.mark.parametrize(
    "text",
    [
        "ORCID,n\n0000-0001,1\n0000-0002,2\n",
        "set,n\na,1\nb,2\n",
        "create table,n\na,1\nb,2\n",
        "--,n\na,1\nb,2\n",
        ">,n\na,1\nb,2\n",
        "@x,n\na,1\nb,2\n",
        '{"_index": "a", "n": 1}\n{"_index": "b", "n": 2}\n',
        '{"took": "a", "n": 1}\n{"took": "b", "n": 2}\n',
    ],
)
def test_a_table_that_begins_like_another_format_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "a").write_text(text)
    assert [vector for _, vector, _ in items(tmp_path / "a")] == [[1], [2]]


@pytest.mark.parametrize("size", [1, 400_000])
def test_a_quote_that_does_not_end_is_refused_and_takes_no_rows_along(
    tmp_path: Path, size: int
) -> None:
    path = tmp_path / "a.csv"
    whole = "id,a,n\n" + f"1,2,{'x' * size}\n" * 3
    for end in ("8,9,y", "8,9,y\n"):
        path.write_text(f'{whole}7,8,"x\n{end}')
        with pytest.raises(BadFile, match=r"a quote that ends, got none .*7,8,"):
            items(path)
    path.write_text(f'{whole}7,8,"x"')
    assert items(path)[-1] == ("7", [8], {"n": "x"})


def test_the_first_row_of_csv_is_read_wherever_a_block_ends(tmp_path: Path) -> None:
    path, long = tmp_path / "a.csv", "w" * 5_000_000
    for text in ("id,a\n7,8", "id,a\r\n7,8", "id;a\n7;8", f"id,t,a\n7,{long},8\n6,v,5\n"):
        path.write_bytes(text.encode())
        found = items(path)
        assert [each[:2] for each in found] == [("7", [8]), ("6", [5])][: len(found)]
        assert len(found) == text.count("\n") - text.endswith("\n") * 1
    path.write_bytes(b"1.5,2\n3,4")
    assert [each[1] for each in items(path)] == [[1.5, 2], [3, 4]]


def test_lines_that_are_no_items_are_named_or_left_out(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.ndjson", b'{"id": "a", "vector": [1, 2]}\n\n'
    for bad in (
        b'{"id": "b", "vec',
        b'{"id": 1, "vector": null}',
        b'{"vector": [1, 2], "payload": {}, "n": 2}',
        b"[1]",
    ):
        path.write_bytes(whole + bad + b"\n" + whole)
        with pytest.raises(BadFile, match=r"row 1: expected an item .*; --on-error skip"):
            [*source(path).items()]
        lenient = source(path, lenient=True)
        [found] = lenient.items()
        assert (found.texts(), found.numbers) == (["a", "a"], [0, 2])
        assert [row for row, *_ in lenient.unreadable] == [1]


def test_a_zero_byte_of_a_text_is_shown_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,a\n1,2\n2,\x003\n")
    with pytest.raises(BadFile, match=r"got b'a.n1,2.n2,' before its byte 11, which is 0"):
        source(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_bytes(b"ab\x00d")
    with pytest.raises(BadFile, match=r"got b'ab.x00d' at its start"):
        source(tmp_path / "a.csv")


def zstd(data: bytes) -> bytes:
    out = pa.BufferOutputStream()
    with pa.CompressedOutputStream(out, "zstd") as stream:
        stream.write(data)
    return bytes(out.getvalue().to_pybytes())


STREAMS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd,
}  # fmt: skip


@pytest.mark.parametrize("kind", STREAMS)
def test_compressed_streams_that_follow_one_another_are_read_or_refused(
    tmp_path: Path, kind: str
) -> None:
    path, write = tmp_path / f"a.csv.{kind}", STREAMS[kind]
    first, second = write(b"id,a\n1,2\n"), write(b"2,3\n")
    zeros = [] if kind == "zst" else [first + second + bytes(600)]
    for whole in (first + second, write(b"") + first + second, *zeros):
        path.write_bytes(whole)
        assert items(path) == [("1", [2], None), ("2", [3], None)]
    for bad in (first[:-5], first + second[:-5], first + second[:1], first + b"no" + second):
        path.write_bytes(bad)
        with pytest.raises(BadFile, match="ends early or is damaged"):
            items(path)


def test_frames_of_zstd_that_are_to_be_skipped_hold_no_rows(tmp_path: Path) -> None:
    skipped = b"\x50\x2a\x4d\x18\4\0\0\0size"  # as pzstd writes it
    (tmp_path / "a.csv.zst").write_bytes(skipped + zstd(b"id,a\n1,2\n") + skipped)
    assert items(tmp_path / "a.csv.zst") == [("1", [2], None)]


def test_tar_archives_are_refused(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.csv"))
    with pytest.raises(BadFile, match="got a tar archive; load what is in it"):
        source(tmp_path / "a.tar.gz")


def test_a_guessed_encoding_of_items_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_bytes('{"id": "Müller", "vector": [1]}\n'.encode("latin-1"))
    format_ = dict(source(tmp_path / "a.ndjson").guess)["format"]
    assert format_ == "NDJSON, an item a line in cp1252 (a guess; --encoding names another)"


def test_a_row_of_many_lines_stands_among_many_short_ones(tmp_path: Path) -> None:
    long = "\n".join(map(str, range(20_000)))
    rows = [(n, long if n in (7, 39_000) else f"w{n}") for n in range(40_000)]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("x", "says"), *rows])
    assert [(x, payload["says"]) for _, [x], payload in items(tmp_path / "a.csv")] == rows


def test_numbers_of_json_keep_all_digits(tmp_path: Path) -> None:
    numbers = ["18446744073709551616", "13570027672830659665", "7", "12e3", "1.50", "-3"]
    for key, chosen in (("id", None), ("key", "key")):
        rows = [f'{{"{key}": {n}, "x": 1, "big": {{"n": {numbers[0]}}}}}\n' for n in numbers]
        (tmp_path / "a.ndjson").write_text("".join(rows))
        found = items(tmp_path / "a.ndjson", id=chosen)
        assert found == [(n, [1], {"big": {"n": int(numbers[0])}}) for n in numbers]
        rows = [f'{{"{key}": {n}, "vector": [1, 2], "payload": {{"a": 1}}}}\n' for n in numbers]
        (tmp_path / "b.ndjson").write_text("".join(rows))
        if chosen:
            found = items(tmp_path / "b.ndjson", id=chosen)
            assert found == [(n, [1, 2], {"a": 1}) for n in numbers]


@pytest.mark.parametrize("bad", ["NaN", "1e400", '"\\ud800"', "9" * 5000])
def test_what_is_no_json_is_refused_beside_long_numbers_too(tmp_path: Path, bad: str) -> None:
    good = '{"x": 1, "y": 2, "label": [12345678901234567890]}'
    (tmp_path / "a.ndjson").write_text(good + "\n" + good.replace("]", f", {bad}]") + "\n")
    with pytest.raises(BadFile, match="row 1: expected a JSON object"):
        items(tmp_path / "a.ndjson")
    assert len(items(tmp_path / "a.ndjson", lenient=True)) == 1


@pytest.mark.parametrize("number", ["9" * 400, "9" * 5000, "1e400"])
def test_a_number_beyond_a_float_is_refused_by_its_row(tmp_path: Path, number: str) -> None:
    """A payload has none; a collection refuses it in a vector."""
    path = tmp_path / "a.csv"
    path.write_text(f"x,y,label\n1,2,3\n1,2,{number}\n")
    with pytest.raises(BadFile, match="row 1: column 'label': expected a number"):
        items(path, payload=["label"])
    assert len(items(path, payload=["label"], lenient=True)) == 1
    path.write_text(f"x,y,label\n1,2,3\n{number},2,4\noops,2,5\n4,5,6\n")
    found = [vector for _, vector, _ in items(path, lenient=True)]
    assert found == [[1, 2, 3], [float("inf"), 2, 4], [4, 5, 6]]
    path.write_text(f"1.5,{number},2\n3,4,5\n6,7,9\n")
    assert items(path, header=False)[0][1] == [1.5, float("inf"), 2]
    path.with_suffix(".ndjson").write_text(f'{{"x": 1, "y": 2}}\n{{"x": {"9" * 400}, "y": 2}}\n')
    assert items(path.with_suffix(".ndjson"))[1][1] == [float("inf"), 2]


@pytest.mark.parametrize("bad", ["null", "true", "[1]", '""', "{}"])
def test_an_object_without_an_id_is_refused_by_its_row(tmp_path: Path, bad: str) -> None:
    (tmp_path / "a.ndjson").write_text(f'{{"id": "a", "x": 1}}\n{{"id": {bad}, "x": 2}}\n')
    with pytest.raises(BadFile, match="row 1: column 'id': expected an id"):
        items(tmp_path / "a.ndjson")
    assert items(tmp_path / "a.ndjson", lenient=True) == [("a", [1], None)]


def test_a_row_whose_only_key_is_collection_describes_none(tmp_path: Path) -> None:
    (tmp_path / "a.ndjson").write_text('{"collection": "a"}\n{"collection": "b", "x": 2}\n')
    found = source(tmp_path / "a.ndjson", lenient=True)
    assert sum(map(len, found.batches())) == 1
    assert [each.row for each in found.unreadable] == [0]


def test_rows_of_another_length_are_left_out_wherever_they_are(tmp_path: Path) -> None:
    """Not those that stand behind the first row of a batch."""
    lengths = [2, 3, *[2] * 2046, 3, 2, 2]
    vectors = [[1] * length for length in lengths]
    table = pa.table({"id": [*map(str, range(len(lengths)))], "vector": vectors})
    lines = [json.dumps({"id": row, "vector": each}) for row, each in enumerate(vectors)]
    (tmp_path / "a.ndjson").write_text("\n".join([*lines]))
    for path, chosen in ((parquet(table, tmp_path), None), (tmp_path / "a.ndjson", "id")):
        found = source(path, lenient=True, id=chosen)
        assert sum(map(len, found.batches())) == len(lengths) - 2
        assert [(each.row, "expected 2 values" in each.detail) for each in found.unreadable] == [
            (1, True), (2048, True),
        ]  # fmt: skip


def test_faults_of_all_rows_are_found_at_once(tmp_path: Path) -> None:
    """The rows of a batch are read again for each kind of fault, not for each row."""
    count = 400
    table = pa.table(
        {
            "id": [None if row % 4 == 1 else str(row) for row in range(count)],
            "vector": [None if row % 4 == 2 else [1, 2] for row in range(count)],
            "p": [float("inf") if row % 4 == 3 else 1.0 for row in range(count)],
        }
    )
    path = parquet(table, tmp_path)
    found = source(path, lenient=True)
    assert [id_ for batch in found.items() for id_ in batch.texts() or ()] == [
        str(row) for row in range(0, count, 4)
    ]
    assert sorted(each.row for each in found.unreadable) == [row for row in range(count) if row % 4]
    with pytest.raises(InvalidInput) as refused:
        items_of(pa.table({"id": [None, "a", None], "x": [1, 2, 3]}))
    assert [each.loc for each in refused.value.others] == [(2, "id")]


def test_a_column_of_empty_lists_is_payload_unless_it_is_named_as_the_vector(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.ndjson"
    path.write_text('{"id":"x","a":1,"tags":[]}\n{"id":"y","a":2,"tags":[]}\n')
    assert items(path) == [("x", [1], {"tags": []}), ("y", [2], {"tags": []})]
    assert source(path, vector=("tags",)).columns is None


def test_a_bad_number_of_an_array_is_named_by_its_row_and_place(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2, 3], [4, np.inf, 6]]))
    found = source(tmp_path / "a.npy")
    error = InvalidVector(expected="a number", got="inf", loc=("rows", 1, "vector", 1))
    assert found.error_words(error, 1) == "row 1: vector[1]: expected a number, got inf"


@pytest.mark.parametrize("bad", ['"oops"', "7", '[1, "b"]', "[1]", "[]"])
@pytest.mark.parametrize("name", ["vector", "emb"])
@pytest.mark.parametrize("at", [0, 2])
def test_a_bad_list_among_the_first_rows_is_refused_by_its_row_and_column(
    tmp_path: Path, name: str, bad: str, at: int
) -> None:
    vectors = ["[1, 2]"] * 4
    vectors[at] = bad
    lines = [f'{{"{name}": {each}, "label": {row}}}' for row, each in enumerate(vectors)]
    (tmp_path / "a.ndjson").write_text("\n".join(lines))
    with pytest.raises(BadFile, match=f"row {at}: column '{name}': expected"):
        items(tmp_path / "a.ndjson")
    found = items(tmp_path / "a.ndjson", lenient=True)
    assert found == [(None, [1, 2], {"label": row}) for row in range(4) if row != at]


def test_a_column_of_lists_that_is_no_vector_is_named_in_the_preview(tmp_path: Path) -> None:
    lines = ['{"emb": [1, 2], "x": 1}', '{"emb": "u", "x": 2}', '{"emb": "v", "x": 3}']
    (tmp_path / "a.ndjson").write_text("\n".join(lines))
    found = source(tmp_path / "a.ndjson")
    assert dict(found.guess)["lists"] == "'emb', of which 1 of 3 are numbers"


@pytest.mark.parametrize(("word", "value"), [("vector", [1, 2]), ("text", "a b")])
def test_fields_that_the_first_object_lacks_are_payload(
    tmp_path: Path, word: str, value: Json
) -> None:
    rows: list[Json] = [{"id": "a", word: value}, {"id": "b", word: value, "label": 3}]
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    chosen = {"text": "text"} if word == "text" else {}
    for choices in ({}, chosen):
        found = source(tmp_path / "a.ndjson", **choices)
        [batch] = found.batches()
        assert (batch.ids, batch.payloads) == (["a", "b"], [None, b'{"label":3}'])
        assert found.is_text == (word == "text")
    rows[0]["payload"] = {"n": 1}  # items, of which one has a key of no item
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    assert source(tmp_path / "a.ndjson").lines is not None


@pytest.mark.parametrize("late", ["02134", "-007", "1e400", "x"])
def test_what_is_no_number_behind_the_first_rows_of_a_payload_is_refused(
    tmp_path: Path, late: str
) -> None:
    rows = "".join(f"{n},1,{10000 + n}\n" for n in range(80_000))
    (tmp_path / "a.csv").write_text(f"id,a,zip\n{rows}y,1,{late}\n")
    words = f"row 80000: column 'zip': expected a number, as in the first rows, got '{late}'"
    with pytest.raises(BadFile, match=words):
        items(tmp_path / "a.csv", payload=("zip",))


def test_the_name_says_what_begins_with_a_bracket(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("[a],[b]\n1,2\n")
    assert items(tmp_path / "a.csv") == [(None, [1, 2], None)]
    for name in ("a", "a.ndjson", "a.json"):
        (tmp_path / name).write_text("[1, 2]\n")
        with pytest.raises(BadFile, match="expected a JSON object"):
            items(tmp_path / name)


@pytest.mark.parametrize("rows", ["items", "objects", "vectors"])
@pytest.mark.parametrize("written", ["list", "pretty-list", "pretty", "on-one-line"])
def test_values_of_json_that_are_no_lines_are_read_as_lines_are(
    tmp_path: Path, rows: str, written: str
) -> None:
    kinds: dict[str, list[Json]] = {
        "items": [{"id": f"ü{n}", "vector": [n, 2], "payload": {"n": "a\nb"}} for n in range(3)],
        "objects": [{"id": 2**70 + n, "x": n, "y": 0.5, "note": ["[", "{"]} for n in range(3)],
        "vectors": [[n, 2.5] for n in range(3)],
    }
    values = kinds[rows]
    (tmp_path / "lines.ndjson").write_text(
        "\n".join(json.dumps({"vector": each} if rows == "vectors" else each) for each in values)
    )
    indent = 2 if written.startswith("pretty") else None
    each = [json.dumps(value, indent=indent, ensure_ascii=False) for value in values]
    text = json.dumps(values, indent=indent) if "list" in written else "\r\n".join(each)
    text = " ".join(each) if written == "on-one-line" else text
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(text.encode("utf-8-sig")))
    if rows == "vectors" and "list" not in written:
        with pytest.raises(BadFile, match="expected a list of JSON objects, got Extra data"):
            items(tmp_path / "a.json.gz")
        return
    found, lines = source(tmp_path / "a.json.gz"), source(tmp_path / "lines.ndjson")
    if lines.lines is None:
        assert items(tmp_path / "a.json.gz") == items(tmp_path / "lines.ndjson")
    else:  # items are sent as they stand
        assert found.lines is not None
        bodies = [[*each()] for each in (found.lines, lines.lines)]
        sent = [b"".join(piece for body in each for piece in body.pieces()) for each in bodies]
        one, other = ([json.loads(line) for line in each.splitlines()] for each in sent)
        assert one == other


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[{"id": 1, "vector": [1, 2]},\n {"id": 2, "vector": [2, 3}]', "line 2 column 27"),
        ('[{"id": 1, "vector": [1, 2]}', "expected a list of JSON objects, got Expecting"),
        ('[{"id": 1, "vector": [1, 2]}] 5', "got Extra data"),
        ("[" * 100_000, "expected a list of JSON objects, got"),
        (" []\n", "expected rows, got an empty list"),
        ('{"id": 1, "vec\n{"id": 2, "vector": [1, 2]}\n', "row 0: expected a JSON object, got"),
    ],
)
def test_json_that_is_no_list_is_refused_by_its_place(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(BadFile, match=said):
        items(tmp_path / "a.json")


def test_a_guess_that_is_in_doubt_is_said_in_the_preview(tmp_path: Path) -> None:
    for text, word, said in (
        ("1,2,3\n4,5,6\n", "names", "1, 2, 3"),
        ('vector,label\n"[1, 2]",5\n"[3, -2.5e3]",6\n', "text", "'[1, 2]'"),
        ("a,b\n-,1\n2,2\n3,5\n?,6\n", "text", "'a' with 2 cells"),
    ):
        (tmp_path / "a.csv").write_text(text)
        assert said in dict(source(tmp_path / "a.csv").guess)[word]
    assert "names" not in dict(source(tmp_path / "a.csv", header=True).guess)


CELLS = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=8)
WRITTEN = st.lists(st.tuples(CELLS.filter(bool), CELLS), min_size=1, max_size=8)


@given(rows=WRITTEN, delimiter=st.sampled_from(",\t"), lenient=st.booleans())
def test_any_text_is_read_as_it_was_written(
    rows: list[tuple[str, str]], delimiter: str, lenient: bool
) -> None:
    """As an id always; in a payload unless its whole column is numbers, or says so of truths."""
    out = io.StringIO()
    writer = csv.writer(out, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([("id", "x", "note"), *((item, 1, note) for item, note in rows)])
    writer.writerow(("last", 1, "text"))
    with TemporaryDirectory() as folder:
        path = Path(folder) / ("a.tsv" if delimiter == "\t" else "a.csv")
        path.write_text(out.getvalue(), "utf-8")
        found = items(path, vector=("x",), lenient=lenient)
    assert [(item, (payload or {}).get("note")) for item, _, payload in found] == [
        *((item, note or None) for item, note in rows), ("last", "text"),
    ]  # fmt: skip


@pytest.mark.parametrize("lenient", [False, True])
def test_cells_of_several_lines_are_read_in_files_of_any_size(
    tmp_path: Path, lenient: bool
) -> None:
    """Arrow reads 4 MiB at a time, which may end within such a cell."""
    notes = [f'{n},\nof "two"\n' * (n % 4) + f"the end of {n} {'z' * 80}" for n in range(40_000)]
    with (tmp_path / "a.csv").open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [("id", "x", "note"), *((n, n % 5, note) for n, note in enumerate(notes))]
        )
    assert (tmp_path / "a.csv").stat().st_size > 5 << 20
    found = items(tmp_path / "a.csv", lenient=lenient)
    assert [payload["note"] for _, _, payload in found] == notes
    assert [item for item, _, _ in found] == [*map(str, range(len(notes)))]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_first_row_may_be_longer_than_what_is_looked_at(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.csv"
    numbers = ",".join([f"0.{'1' * 40_000}"] * 30)
    path.write_text(f"{numbers}\n{numbers}{end}")
    assert [len(vector) for _, vector, _ in items(path)] == [30, 30]
    path.write_text(f"x,y,note\n1,2,{'a' * 1_100_000}\n3,4,b{end}")
    assert [vector for _, vector, _ in items(path)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("mark", [",", ";", "\t", " "])
@pytest.mark.parametrize("above", ["", "\n"])
def test_the_name_of_a_column_of_names_may_lack_as_r_writes_it(
    tmp_path: Path, mark: str, above: str
) -> None:
    lines = ['"a"', '"b, c"'], ['"r 1"', "1", "2.5"], ['"007"', "3", "4"]
    text = above + "".join(mark.join(cells) + "\n" for cells in lines)
    (tmp_path / "a").write_text(text)
    assert items(tmp_path / "a") == [("r 1", [1, 2.5], None), ("007", [3, 4], None)]
    assert source(tmp_path / "a").columns == ["a", "b, c"]


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("mark", [",", "\t"])
def test_rows_that_end_in_a_mark_which_the_names_lack_are_refused(
    tmp_path: Path, mark: str, transpose: bool
) -> None:
    """They look like rows with names as R writes them; all columns would shift by one."""
    lines = ["id", "a", "b"], ["x", "1", "2", ""], ["y", "3", "4", ""]
    path = tmp_path / f"a.{'csv' if mark == ',' else 'tsv'}"
    path.write_text("".join(mark.join(cells) + "\n" for cells in lines))
    with pytest.raises(BadFile, match="a name for each column in the first line, got one fewer"):
        items(path, transpose=transpose)
    path.write_text(path.read_text().replace("b\n", f"b{mark}\n", 1))
    assert items(path)[0][:2] == ("x", [1, 2])


def test_a_column_without_a_name_that_has_a_text_has_the_ids(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",a\n661482e5,1\n753961e5,2\nx,3\n")
    assert [item for item, _, _ in items(tmp_path / "a.csv")] == ["661482e5", "753961e5", "x"]


def test_a_comma_in_a_name_divides_no_columns_where_semicolons_do(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;e,f;b\nx;1,5;2\ny;3;4\n")
    assert items(tmp_path / "a.csv") == [("x", [1.5, 2], None), ("y", [3, 4], None)]


@pytest.mark.parametrize("count", [3, 200_000])
def test_lines_may_end_in_carriage_returns_alone(tmp_path: Path, count: int) -> None:
    lines = ["id,x,note", *(f"i{n},{n % 7 + 1},y" for n in range(count))]
    (tmp_path / "a.csv").write_text("".join(f"{line}\r" for line in lines), newline="")
    found = items(tmp_path / "a.csv")
    assert [item for item, _, _ in found] == [f"i{n}" for n in range(count)]
    assert found[-1][2] == {"note": "y"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.ndjson", '{"id":"x","a":1}\n{"id":"y","a":2}\n'),
        ("b.ndjson", '{"id":"x","vector":[1]}\n{"id":"y","vector":[2]}\n'),
        ("a.svm", "1 1:2\n-1 2:3\n"),
        ("svm", "1\t1:2 # x\n-1\t2:3\n"),
        ("mgf", "A=1\nBEGIN IONS\n1 2\nEND IONS\nBEGIN IONS\n1 3\nEND IONS\n"),
        ("a.mgf", "BEGIN IONS\nTITLE=x\n1 2\nEND IONS\nBEGIN IONS\nTITLE=y\n1 3\nEND IONS\n"),
        ("a.msp", "Name: x\nNum Peaks: 1\n1 2\n\nName: y\nNum Peaks: 1\n1 3\n"),
        ("a.fps", "#FPS1\n#num_bits=8\n01\tx\n02\ty\n"),
        ("a.fpc", "#FPC1\n1,2\tx\n3:2\ty\n"),
    ],
)
def test_lines_of_all_formats_may_end_in_carriage_returns_alone(
    tmp_path: Path, name: str, text: str
) -> None:
    path = tmp_path / name
    path.write_text(text, newline="")
    wanted = items(path)
    assert len(wanted) == 2
    path.write_text(text.replace("\n", "\r"), newline="")
    assert items(path) == wanted


CASES: list[Json] = json.loads(
    (REPOSITORY / "tests" / "support" / "data" / "csv_guesses.json").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_columns_of_csv_become_what_the_table_says(tmp_path: Path, case: Json) -> None:
    path = tmp_path / "a.csv"
    path.write_text(case["csv"])
    guessed = dict(source(path).guess)
    unnamed = {None: "none; each row gets a new number", "": "unnamed"}
    assert guessed["ids"] == unnamed.get(case["id"], case["id"])
    assert source(path).columns == case["vector"]
    if "error" in case:
        error = case["error"]
        with pytest.raises(BadFile, match=f"row {error['row']}: column '{error['column']}'") as bad:
            items(path)
        assert error.get("got", "") in str(bad.value)
        return
    wanted = [(item, pytest.approx(vector), payload) for item, vector, payload in case["items"]]
    assert items(path) == wanted


NAMES = ["café", "Müller", "España", "Åse", "Zoë", "naïve", "Größe"]


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-8-sig", "utf-8"])
@pytest.mark.parametrize("suffix", ["csv", "tsv", "csv.gz", "folder", "ndjson"])
def test_text_of_other_encodings_is_read(
    tmp_path: Path, suffix: str, encoding: str, lenient: bool
) -> None:
    mark = "\t" if suffix == "tsv" else ","
    rows = [mark.join(["id", "größe", "name"])]
    rows += [mark.join([f"n{n}", str(n), name]) for n, name in enumerate(NAMES)]
    if suffix == "ndjson":
        rows = [json.dumps({"id": f"n{n}", "größe": n, "name": name}, ensure_ascii=False)
                for n, name in enumerate(NAMES)]  # fmt: skip
    data = ("\n".join(rows) + "\n").encode(encoding)
    path = tmp_path / f"a.{suffix}"
    if suffix == "folder":
        path.mkdir()
        (path / "a.csv").write_bytes(data)
    else:
        path.write_bytes(gzip.compress(data) if suffix.endswith("gz") else data)
    wanted = [(f"n{n}", [n], {"name": name}) for n, name in enumerate(NAMES)]
    assert items(path, lenient=lenient) == wanted
    assert items(path, encoding, lenient=lenient) == wanted
    assert items(path, "utf-8" if encoding == "utf-8-sig" else encoding) == wanted
    assert source(path).columns == ["größe"]
    if encoding in ("latin-1", "utf-16") and suffix != "folder":
        assert {"latin-1": "cp1252", "utf-16": "utf-16"}[encoding] in source(path).guess[0][1]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("Größe Köln", "latin-1"),
        ("Göteborg Malmö Åre Växjö", "latin-1"),
        ("élève café où château Noël", "cp1252"),
        ("España niño mañana ¿qué?", "latin-1"),
        ("Привет мир Москва вес размер цвет", "cp1251"),
        ("Привет мир Москва вес размер цвет", "koi8-r"),
        ("Αθήνα μέγεθος βάρος χρώμα", "cp1253"),
        ("東京 大きさ 重さ 日本語のテキスト", "shift_jis"),
    ],
)
def test_few_words_of_a_language_are_enough_for_its_encoding(
    tmp_path: Path, text: str, encoding: str
) -> None:
    words = text.split()
    path = tmp_path / "a.csv"
    rows = ["id,a,name", *(f"n{n},{n},{words[n % len(words)]}" for n in range(50))]
    path.write_bytes("\r\n".join(rows).encode(encoding))
    assert {payload["name"] for _, _, payload in items(path)} == {*words}


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize(
    "text", ["25 °C", "10 µm", "±0.5", "it\u2019s", "niño", "São Paulo", "Ærø"]
)
def test_a_letter_or_sign_among_latin_ones_is_western(
    tmp_path: Path, text: str, every: int
) -> None:
    """Bytes of two of them are a Chinese or Korean character, too."""
    path = tmp_path / "a.csv"
    rows = [f"n{n};{n},5;{text if n % every == 0 else 'word'}" for n in range(8 * every)]
    path.write_bytes("\n".join(["id;a;name", *rows]).encode("cp1252"))
    assert items(path)[0] == ("n0", [0.5], {"name": text})
    path.write_bytes(f"id,a,name\nx,1,{text}\n".encode("cp1252"))
    assert items(path) == [("x", [1], {"name": text})]


@pytest.mark.parametrize("far", [1, 60_000])
def test_a_cell_that_is_no_text_is_refused_by_its_row_and_column(tmp_path: Path, far: int) -> None:
    """Near the beginning most characters are UTF-8; far from it nothing is guessed anew."""
    rows = [f"é{n},{n},ü {'z' * 20}".encode() for n in range(far + 2)]
    rows[far] = b"ok,7,caf\xe9"
    path = tmp_path / "a.csv"
    path.write_bytes(b"\n".join([b"id,x,name", *rows]) + b"\n")
    with pytest.raises(BadFile, match=f"row {far}: column 'name': expected text in utf-8"):
        items(path)
    found = source(path, lenient=True)
    assert sum(map(len, found.batches())) == far + 1
    [bad] = found.unreadable
    assert (bad.row, bad.text["id"]) == (far, "ok")
    with pytest.raises(BadFile, match="row 0: column 'id': expected text in ascii"):
        items(path, "ascii")
    path.write_bytes(b"id,x\n\xff,1\n")
    with pytest.raises(BadFile, match="row 0: column 'id': expected text in utf-8"):
        items(path, "utf-8")
    path.write_bytes(b"id,\xff\na,1\n")
    with pytest.raises(BadFile, match="names of columns: expected text in utf-8"):
        items(path, "utf-8")


@pytest.mark.parametrize("name", ["l", "größe ł"])
@pytest.mark.parametrize("far", [1, 120_000])
def test_a_row_of_another_length_that_is_no_text_is_left_out(
    tmp_path: Path, far: int, name: str
) -> None:
    path = tmp_path / "a.csv"
    good = b"".join(b"i%d,1,u\n" % row for row in range(far))
    bad = b"\xff\xfe,1\nz,1,\xc3\xa9\nq,1,\xff\nr,3,ok\n"
    path.write_bytes(f"id,x,{name}\n".encode() + good + bad)
    left_out = source(path, "utf-8", lenient=True)
    read = [id_ for batch in left_out.batches() for id_ in batch.texts() or ()]
    assert (len(read), read[-2:]) == (far + 2, ["z", "r"])
    assert [each.row for each in left_out.unreadable] == [far, far + 2]
    left_out.file.close()
    with pytest.raises(BadFile, match=rf"row {far}: expected 3 columns, got 2"):
        items(path, "utf-8")


# Missing and wrong numbers


def gap_csv(path: Path, rows: list[Json]) -> Path:
    words = ("", "n/a")
    text = "".join(f"{n},{words[n % 2] if x is None else x},{y}\n" for n, (x, y) in enumerate(rows))
    (path / "a.csv").write_text("id,x,y\n" + text)
    return path / "a.csv"


def gap_ndjson(path: Path, rows: list[Json]) -> Path:
    text = [json.dumps({"id": str(n), "x": x, "y": y}) for n, (x, y) in enumerate(rows)]
    (path / "a.ndjson").write_text("\n".join(text))
    return path / "a.ndjson"


def gap_parquet(path: Path, rows: list[Json]) -> Path:
    ids = [str(n) for n in range(len(rows))]
    table = pa.table({"id": ids, "x": [x for x, _ in rows], "y": [y for _, y in rows]})
    return parquet(table, path)


def gap_folder(path: Path, rows: list[Json]) -> Path:
    (path / "all").mkdir(exist_ok=True)
    gap_csv(path / "all", rows)
    return path / "all"


@pytest.mark.parametrize("count", [4, 5000])
@pytest.mark.parametrize("write", [gap_csv, gap_ndjson, gap_parquet, gap_folder])
def test_missing_numbers_are_an_error_or_what_one_says(
    tmp_path: Path, write: Json, count: int
) -> None:
    rows: list[Json] = [(float(n + 1), 1) for n in range(count)]
    gaps = {1, count - 1}
    for row in gaps:
        rows[row] = (None, 1)
    path = write(tmp_path, rows)
    with pytest.raises(BadFile, match=f"row 1: column 'x'.* 2 of {count} rows have none in 'x'"):
        items(path)
    skipping = source(path, lenient=True)
    assert sum(map(len, skipping.batches())) == count - 2
    assert {each.row for each in skipping.unreadable} == gaps
    dropping = source(path, missing="drop")
    assert [item for batch in dropping.batches() for item in batch.texts() or ()] == [
        str(n) for n in range(count) if n not in gaps
    ]
    assert {*dropping.dropped} == gaps
    mean = sum(x for x, _ in rows if x is not None) / (count - 2)
    for lenient in (False, True):
        zeros = items(path, missing="zero", lenient=lenient)
        assert [zeros[row][1] for row in sorted(gaps)] == [[0, 1]] * 2
        means = items(path, missing="mean", lenient=lenient)
        assert [means[row][1] for row in sorted(gaps)] == [pytest.approx([mean, 1])] * 2


@pytest.mark.parametrize("row", [5000, 90_000])
def test_one_bad_cell_does_not_take_its_column_out_of_the_vectors(tmp_path: Path, row: int) -> None:
    lines = [f"{n},{n + 1},{n % 7 + 1}.5" for n in range(row + 100)]
    lines[row] = f"{row},1,oops"
    path = tmp_path / "a.csv"
    path.write_text("id,x,y\n" + "\n".join(lines) + "\n")
    with pytest.raises(BadFile, match=f"row {row}: column 'y': expected a number, got 'oops'"):
        items(path)
    found = source(path, lenient=True)
    assert sum(map(len, found.batches())) == row + 99
    assert [(each.row, each.text["y"]) for each in found.unreadable] == [(row, "oops")]


@pytest.mark.parametrize(
    ("good", "bad", "words"),
    [
        ({"x": 1, "y": 2}, {"x": 1, "y": "oops"}, "column 'y': expected a number, got 'oops'"),
        ({"vector": [1, 2], "n": 1}, {"vector": [1]}, ".*'vector': expected 2 values, got 1"),
        (
            {"vector": {"a": 1}},
            {"vector": {"a": "oops"}},
            "column 'vector': expected numbers as values, got 'oops'",
        ),
        (
            {"vector": {"a": 1}},
            {"vector": {"a": [1]}},
            r"column 'vector': expected numbers as values, got \[1\]",
        ),
        (
            {"indices": [1], "values": [1]},
            {"indices": ["x"], "values": [1]},
            ".* all whole numbers",
        ),
    ],
)
def test_one_bad_object_does_not_take_the_others_along(
    tmp_path: Path, good: Json, bad: Json, words: str
) -> None:
    rows = [{"id": n} | (bad if n == 20 else good) for n in range(100)]
    (tmp_path / "a.ndjson").write_text("".join(json.dumps(each) + "\n" for each in rows))
    with pytest.raises(BadFile, match=f"row 20: {words}"):
        items(tmp_path / "a.ndjson")
    assert len(items(tmp_path / "a.ndjson", lenient=True)) == 99


@pytest.mark.parametrize(
    ("cells", "got"),
    [(["1", "2", "3", "true"], "expected a number, got 'true'"),
     (["true"] * 600_000 + ["1"], "expected true or false, got '1'")],
)  # fmt: skip
def test_truths_and_numbers_are_not_mixed(tmp_path: Path, cells: list[str], got: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["x", *cells]) + "\n")
    with pytest.raises(BadFile, match=f"row {len(cells) - 1}: column 'x': {got}"):
        items(path)
    found = source(path, lenient=True)
    assert sum(map(len, found.batches())) == len(cells) - 1


def test_rows_of_another_length_are_counted_where_a_block_has_no_others(tmp_path: Path) -> None:
    even, odd = (4 << 20) // 16 - 1, 3  # lines of 16 bytes fill the first block
    rows = [f"{n:06},1.25,0.5" for n in range(even)]
    lines = ["identity,xxx,yy", *rows, *["ragged,1"] * odd]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    skipping = source(tmp_path / "a.csv", id="identity", lenient=True)
    assert sum(map(len, skipping.batches())) == even
    assert [each.row for each in skipping.unreadable] == [*range(even, even + odd)]


def test_a_mean_needs_a_number(tmp_path: Path) -> None:
    path = gap_parquet(tmp_path, [(1.0, float("nan")), (2.0, float("nan"))])
    with pytest.raises(BadFile, match="column 'y': expected a number for --missing mean, got none"):
        items(path, missing="mean")


def test_decimal_commas_are_read_where_rows_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id;x;price\na;1,5;2,25\nb;-3;1\n")
    for lenient in (False, True):
        found = items(tmp_path / "a.csv", payload=("price",), lenient=lenient)
        assert found == [("a", [1.5], {"price": 2.25}), ("b", [-3], {"price": 1})]


def test_a_folder_within_that_cannot_be_read_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "a", "b":
        (tmp_path / name).mkdir()
        (tmp_path / name / "rows.csv").write_text("1,2\n")
    scandir = os.scandir

    def refuse(path: str) -> object:
        if str(path) == str(tmp_path / "b"):  # root may read all
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    [folder] = input_files(str(tmp_path), None)
    assert isinstance(folder, Folder)
    assert len(folder.files) == 2
    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="/b"):
        [*input_files(str(tmp_path), None)]


@pytest.mark.parametrize("codes", [("02134", "10001"), ("1.1", "1.10"), ("7", "NA"), ("1e5", "9")])
def test_names_of_folders_stay_as_written(tmp_path: Path, codes: tuple[str, str]) -> None:
    for suffix in ("csv", "tsv", "parquet"):
        for code in codes:
            path = tmp_path / suffix / f"zip={code}" / f"a.{suffix}"
            path.parent.mkdir(parents=True)
            if suffix == "parquet":
                pa.parquet.write_table(pa.table({"id": [f"{code}a"], "x": [1.0]}), path)
            else:
                path.write_text(f"id,x\n{code}a,1\n".replace(",", "\t" if suffix == "tsv" else ","))
        for lenient in (False, True):
            found = items(tmp_path / suffix, lenient=lenient)
            assert found == [(f"{code}a", [1], {"zip": code}) for code in codes]
        assert [item for item, _, _ in items(tmp_path / suffix, id="zip")] == [*codes]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "arrow"])
def test_columns_of_files_count_before_what_names_of_their_folders_say(
    tmp_path: Path, suffix: str
) -> None:
    def write(key: str, table: pa.Table) -> None:
        path = tmp_path / f"k={key}" / f"a.{suffix}"
        path.parent.mkdir()
        if suffix == "csv":
            pa.csv.write_csv(table, path)
        elif suffix == "parquet":
            pa.parquet.write_table(table, path)
        else:
            with pa.ipc.new_file(path, table.schema) as writer:
                writer.write_table(table)

    rows = {"id": ["x"], "a": [1.0], "b": [2.0]}
    write("1", pa.table(rows | {"k": pa.array([7], pa.int32())}))
    write("2", pa.table(rows))
    assert [vector for _, vector, _ in items(tmp_path)] == [[1, 2, 7], [1, 2, 2]]


def test_a_table_of_delta_lake_is_refused_for_its_files_hold_deleted_rows(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    pa.parquet.write_table(pa.table({"a": [1.0]}), tmp_path / "a.parquet")
    with pytest.raises(BadFile, match="got a table of Delta Lake"):
        [*input_files(str(tmp_path), None)]


def test_what_names_of_folders_say_of_files_that_are_no_table_is_told(tmp_path: Path) -> None:
    (tmp_path / "k=1").mkdir()
    (tmp_path / "k=1" / "a.ndjson").write_text('{"vector": [1, 2]}\n')
    told: list[str] = []
    assert len([*input_files(str(tmp_path), None, told.append)]) == 1
    [words] = told
    assert words.startswith(f"{tmp_path}: k=1 left out")


@pytest.mark.parametrize("new", [pa.ipc.new_file, pa.ipc.new_stream])
def test_damaged_offsets_of_arrow_are_refused(tmp_path: Path, new: Json) -> None:
    table = pa.table({"id": ["ab", "cd"], "a": [1.0, 2.0]})
    out = pa.BufferOutputStream()
    with new(out, table.schema) as writer:
        writer.write_table(table)
    whole, offsets = out.getvalue().to_pybytes(), np.array([0, 2, 4], np.int32)
    assert whole.count(offsets.tobytes()) == 1
    offsets[1] = 1 << 30
    (tmp_path / "a").write_bytes(whole.replace(np.array([0, 2, 4], "i4").tobytes(), bytes(offsets)))
    with pytest.raises(BadFile, match="got an unreadable file"):
        items(tmp_path / "a")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # by np.load
def test_files_with_damage_anywhere_are_read_or_refused(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    h5py = pytest.importorskip("h5py")
    table = pa.table({"id": ["ab", "cd"], "a": [1.0, 2.0], "b": [[1], [2, 3]]})
    whole = [write(table, tmp_path).read_bytes() for write in TYPED[:3]]
    np.save(tmp_path / "a.npy", np.eye(3))
    sparse.save_npz(tmp_path / "a.npz", sparse.eye_array(3, format="csr"))
    with h5py.File(tmp_path / "a.biom", "w") as file:
        file["observation/ids"] = file["sample/ids"] = np.array([b"x", b"y"])
        file["sample/matrix/data"], file["sample/matrix/indices"] = [1.0, 2.0], [0, 1]
        file["sample/matrix/indptr"] = [0, 1, 2]
    whole += [(tmp_path / f"a.{suffix}").read_bytes() for suffix in ("npy", "npz", "biom")]
    for text in whole:
        for _ in range(60):
            bad = bytearray(text)
            for place in rng.integers(0, len(bad), 3):
                bad[place] = rng.integers(256)
            (tmp_path / "bad").write_bytes(bad)
            with suppress(BadFile):
                items(tmp_path / "bad")


UNITS: Final = {"mass": [-3000, 5000, 4000], "flip": [180, 0, 200], "rare": [0, 0, 900.0]}


@pytest.mark.parametrize("kind", ["csv", "parquet", "ndjson", "folder"])
def test_shares_of_columns_are_told_and_units_far_apart(tmp_path: Path, kind: str) -> None:
    def told(columns: Json, **choices: Json) -> dict[str, str]:
        table = pa.table(columns)
        path = tmp_path / f"a.{kind}"
        if kind == "parquet":
            pa.parquet.write_table(table, path)
        elif kind == "ndjson":
            path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
        else:
            path = tmp_path / "a.csv"
            path = tmp_path / "all" / "a.csv" if kind == "folder" else path
            path.parent.mkdir(exist_ok=True)
            pa.csv.write_csv(table, path)
        found = source(path.parent if kind == "folder" else path, **choices)
        assert len([*found.batches()]) == 1  # what was looked at is read again
        return dict(found.guess)

    def shares(found: dict[str, str]) -> Json:
        return re.findall(r"(\w+) ([\d.]+)%", found["shares"])

    found = told(UNITS)
    assert shares(found) == [("mass", "90.4"), ("rare", "6.8"), ("flip", "2.9")]
    assert "'mass'" in found["warning"]
    assert "units" not in found["warning"]
    near = told({"a": [1.0, 99], "b": [55.0, -44]})
    assert "warning" not in near
    found = told({"a": [1.0, 2], "b": [150.0, -151], "c": [150.0, 151]})
    assert "'b' is about 150, 'a' about 1.5" in found["warning"]
    assert "mostly" not in found["warning"]
    found = told({"a": [2.0**24, 2], "b": [2.0**24, 2**24 + 2]})
    assert "'b' with whole numbers above 16,777,216" in found["digits"]
    assert "'a' with" not in found["digits"]
    assert "digits" not in told({"a": [2.0**25 + 0.5, 9e7], "b": [4e7 + 0.5, 8e7]})
    assert "shares" not in told(UNITS, payload=("mass", "rare"))
    many = {f"c{column}": [1.0, 2.0] for column in range(9)}
    assert len(shares(told(many))) == 4
    assert "5 more" in told(many)["shares"]


def test_what_is_called_an_archive_of_signatures_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "a.sig.zip").write_text("x,y\n1,2\n")
    with pytest.raises(BadFile, match="sketches"):
        source(tmp_path / "a.sig.zip")


@pytest.mark.parametrize("name", ["a.xlsx", "a.bin", "a.csv"])
def test_another_archive_is_refused_as_what_it_is(tmp_path: Path, name: str) -> None:
    damaged = "expected a workbook, got an unreadable file"
    for inner, words in (
        ("[Content_Types].xml", damaged),
        ("xl/workbook.xml", damaged),
        ("a.csv", damaged if name == "a.xlsx" else "got a zip archive; load what is in it"),
    ):
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(inner, "<Types/>" * 50)
        with pytest.raises(BadFile, match=words):
            source(tmp_path / name)


def workbook(path: Path, sheets: Json) -> Path:
    """Write sheets of rows of cells, by an independent library."""
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


HEAD: Final = ["id", "x\ty", "flag", "count", "when", "note"]
ROWS: Final[Json] = [
    ["0012", 1.5, True, 3, datetime.datetime(2026, 1, 2, 3, 4), 'say "no",\nor\tyes'],
    [7, -2, False, 2**40, datetime.datetime(2026, 1, 3), None],
    [None] * 6,
    ["é", 1e-9, True, 0, None, "NA"],
]


@pytest.mark.parametrize("compress", [None, gzip.compress, lzma.compress])
def test_a_sheet_of_a_workbook_is_a_table(tmp_path: Path, compress: Json) -> None:
    sheets = {"data": [HEAD, *ROWS], "more": [["a", "b"], [1, 2]], "empty": []}
    path = workbook(tmp_path / "a.xlsx", sheets)
    if compress is not None:
        path = tmp_path / "a.xlsx.packed"
        path.write_bytes(compress((tmp_path / "a.xlsx").read_bytes()))
    found = source(path)
    assert {"data", "more"} <= {*re.findall("'(.*?)'", dict(found.guess)["format"])}
    assert items(path) == [
        ("0012", pytest.approx([1.5, 1, 3]), {"when": "2026-01-02T03:04:00", "note": ROWS[0][-1]}),
        ("7", pytest.approx([-2, 0, 2**40]), {"when": "2026-01-03"}),
        ("é", pytest.approx([1e-9, 1, 0]), {"note": "NA"}),
    ]
    assert [vector for _, vector, _ in items(path, sheet="more")] == [[1, 2]]
    for sheet, words in (
        ("none", "expected a sheet 'none', got 'data', 'more'"),
        ("empty", "none"),
    ):
        with pytest.raises(BadFile, match=words):
            source(path, sheet=sheet)
    (tmp_path / "b.csv").write_text("x,y\n1,2\n")
    with pytest.raises(BadFile, match="expected workbook for --sheet, got csv"):
        source(tmp_path / "b.csv", sheet="more")


def test_ids_of_a_workbook_that_lost_digits_are_refused(tmp_path: Path) -> None:
    """A workbook keeps numbers as floats."""
    rows: Json = [["id", "x", "code"], [7, 1.0, 3], [2**60 + 1, 2.0, 4]]
    path = workbook(tmp_path / "a.xlsx", {"data": rows})
    with pytest.raises(BadFile, match=r"row 1: column 'id': .* got 1\.1529"):
        source(path)
    found = items(path, id="code", vector=("x",), payload=("id",))
    assert found == [("3", [1], {"id": 7}), ("4", [2], {"id": float(2**60 + 1)})]
    rows = [rows[0], [2**53, 1.0, 3], [str(2**60 + 1), 2.0, 4]]
    path = workbook(tmp_path / "b.xlsx", {"data": rows})
    assert [item for item, _, _ in items(path)] == [str(2**53), str(2**60 + 1)]


def test_digits_that_are_text_in_a_workbook_stay_text(tmp_path: Path) -> None:
    rows: Json = [["id", "zip", "x", "mixed"], ["a", "12134", 1, "7"], ["b", "10001", 2.5, 8]]
    path = workbook(tmp_path / "a.xlsx", {"data": rows})
    assert items(path) == [("a", [1, 7], {"zip": "12134"}), ("b", [2.5, 8], {"zip": "10001"})]
    assert "'zip'" in dict(source(path).guess)["text"]
    assert items(path, vector=("zip", "x"))[0][1] == [12134, 1]
    path = workbook(tmp_path / "b.xlsx", {"data": [["id", "x", "y"], [7, "1", "2.5"]]})
    assert items(path) == [("7", [1, 2.5], None)]


@pytest.mark.parametrize("name", ["vector", "words"])
def test_objects_of_names_and_their_numbers_are_vectors(tmp_path: Path, name: str) -> None:
    rows = [{"id": 1, name: {"apple": 2, "pear": 0.5}}, {"id": 2, name: {"fig": -1}}]
    path = tmp_path / "a.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen: Json = {"vector": ("words",)} if name == "words" else {}
    assert items(path, **chosen) == [
        ("1", {"names": ["apple", "pear"], "values": [2, 0.5]}, None),
        ("2", {"names": ["fig"], "values": [-1]}, None),
    ]
    assert dict(source(path, **chosen).guess)["vector"] == f"{name}, sparse"


def test_entries_given_twice_are_added_up_as_in_memory(tmp_path: Path) -> None:
    twice = sparse.csr_matrix(([100, 100, 5], [1, 1, 0], [0, 2, 3]), shape=(2, 3), dtype=np.int8)
    sparse.save_npz(tmp_path / "a.npz", twice)
    assert [vector for _, vector, _ in items(tmp_path / "a.npz")] == [
        {"indices": [1], "values": [200]},
        {"indices": [0], "values": [5]},
    ]
    np.savez(tmp_path / "b.npz", X=np.ones((1, 2)), y=np.array([None]))
    with pytest.raises(BadFile, match=r"one of objects; .*astype\(str\)"):
        source(tmp_path / "b.npz")


def test_a_workbook_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = workbook(tmp_path / "a.xlsx", {"data": [["x", "y"], [1, 2]]})
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(BadFile, match=r"install gcws-search\[xlsx\]"):
        source(path)


def test_text_with_the_name_of_a_workbook_is_text(tmp_path: Path) -> None:
    (tmp_path / "a.xls").write_text("x\ty\n1\t2\n")
    assert items(tmp_path / "a.xls") == [(None, [1, 2], None)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"indptr": [0, 2, 5]}, "'indptr' that rises from 0"),
        ({"indptr": [0, 3, 2]}, "'indptr' that rises from 0"),
        ({"indptr": [1, 2, 3]}, "'indptr' that rises from 0"),
        ({"indices": [0, 1]}, "2 'indices', 3 'data'"),
        ({"indices": [0.5, 1, 2]}, "whole 'indices'"),
        ({"data": [1j, 2, 3]}, "numbers as 'data'"),
    ],
)
def test_compressed_rows_that_do_not_fit_together_are_refused(
    tmp_path: Path, change: Json, words: str
) -> None:
    path = tmp_path / "rows.npz"
    arrays: Json = {"indptr": [0, 2, 3], "indices": [0, 1, 2], "data": [1.0, 2, 3], "shape": [2, 3]}
    np.savez(path, **arrays)
    assert len(items(path)) == 2
    np.savez(path, **(arrays | change))
    with pytest.raises(BadFile, match=words):
        source(path)


def test_objects_of_few_common_keys_are_read_in_calls_of_the_number_of_their_keys(
    tmp_path: Path,
) -> None:
    path, calls = tmp_path / "a.ndjson", list[int]()
    for count in (300, 600):
        rows = [{"x": 1.0, **{f"k{row}-{key}": 1 for key in range(4)}} for row in range(count)]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        calls.append(calls_of(lambda: items(path, vector=("x",))))
    assert calls[1] < 2.5 * calls[0]  # 4 times where each object is asked for each key


def test_a_repeated_name_is_found_without_comparing_each_with_each() -> None:
    words = compared_texts(map(str, range(1000)))
    assert find_repeated(words) is None
    assert find_repeated([*words, *compared_texts(["999"])]) == "999"
    assert words[0].comparisons[0] < 100


def test_columns_of_one_name_are_refused(tmp_path: Path) -> None:
    (path := tmp_path / "a.csv").write_text("a,b,a\n1,2,3\n")
    with pytest.raises(BadFile, match="columns of different names, got 'a' twice; --no-header"):
        items(path, header=True)


def test_labels_of_an_archive_are_left_out_where_no_payload_is_wanted(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=[3, 4])
    for payload, wanted in ((None, {"label": 3}), (("lab*",), {"label": 3}), ((), None)):
        assert items(tmp_path / "a.npz", payload=payload)[0][2] == wanted


def test_missing_numbers_are_filled_in_columns_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, np.nan]]))
    lists = pa.array([[1.0, None]], pa.list_(pa.float32()))
    pa.parquet.write_table(pa.table({"vector": lists}), tmp_path / "a.parquet")
    (tmp_path / "a.ndjson").write_text('{"vector": [1, null]}\n')
    for path in tmp_path.iterdir():
        with pytest.raises(BadFile, match="a column for each coordinate for --missing zero, got"):
            source(path, missing="zero")


def test_arrays_of_an_archive_that_are_not_taken_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", X=np.eye(2), y=[1, 2], ids=["a", "b"])
    assert "'ids'" in dict(source(tmp_path / "a.npz").guess)["left out"]


def test_an_array_of_objects_is_named_as_such(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2]], object), allow_pickle=True)
    with pytest.raises(BadFile, match="one of objects"):
        source(tmp_path / "a.npy")
