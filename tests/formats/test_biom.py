"""BIOM 1 and 2 as biom-format writes them; tables of features by samples; bad files."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gcws_search.formats.files import BadFile
from tests.support.files import items, source
from tests.support.service.client import Json

h5py = pytest.importorskip("h5py")  # which has no wheels for the newest Python

AMOUNTS = np.array([[0, 1, 2.5], [3, 0, 0], [0, 0, 7]])
NAMES = ["O1", "k__A; p__B", "O3"]
SAMPLES = ["S1", "S2", "S3"]
METADATA: list[Json] = [
    {"site": "gut", "ph": 7.5, "tags": ["a", "b"]}, {"site": "skin", "ph": 5.5, "tags": ["c"]},
    {"site": "gut", "ph": 6.5, "tags": ["a"]},
]  # fmt: skip


def json_table(path: Path, **other: Json) -> Path:
    data = [[row, column, AMOUNTS[row, column]] for row, column in np.argwhere(AMOUNTS).tolist()]
    table = {
        "format": "Biological Observation Matrix 1.0.0", "matrix_type": "sparse",
        "shape": [3, 3], "data": data, "rows": [{"id": n, "metadata": None} for n in NAMES],
        "columns": [{"id": s, "metadata": m} for s, m in zip(SAMPLES, METADATA, strict=True)],
    }  # fmt: skip
    path.write_text(json.dumps(table | other))
    return path


def hdf5_table(path: Path) -> Path:
    text = h5py.string_dtype()
    with h5py.File(path, "w") as file:
        file["observation/ids"] = np.array(NAMES, object).astype(text)
        file["sample/ids"] = np.array(SAMPLES, object).astype(text)
        file["sample/matrix/data"] = np.array([3, 1, 2.5, 7])
        file["sample/matrix/indices"] = np.array([1, 0, 0, 2], np.int32)
        file["sample/matrix/indptr"] = np.array([0, 1, 2, 4], np.int32)
        file["sample/metadata/site"] = np.array([m["site"] for m in METADATA], object).astype(text)
        file["sample/metadata/ph"] = np.array([m["ph"] for m in METADATA])
        tags = np.array([[*m["tags"], ""][:2] for m in METADATA], object)
        file["sample/metadata/tags"] = tags.astype(text)
    return path


TABLES: dict[str, Callable[[Path], Path]] = {
    "json": lambda path: json_table(path / "a.biom"),
    "dense": lambda path: json_table(path / "a.biom", matrix_type="dense", data=AMOUNTS.tolist()),
    "no-suffix": lambda path: json_table(path / "a"),
    "hdf5": lambda path: hdf5_table(path / "a.biom"),
    "hdf5-no-suffix": lambda path: hdf5_table(path / "a"),
}


def amounts(vector: Json) -> dict[str, float]:
    return dict(zip(vector["names"], vector["values"], strict=True))


EXPECTED = [{"k__A; p__B": 3}, {"O1": 1}, {"O1": 2.5, "O3": 7}]


@pytest.mark.parametrize("kind", TABLES)
def test_samples_are_items_and_observations_names(tmp_path: Path, kind: str) -> None:
    path = TABLES[kind](tmp_path)
    found = items(path)
    assert [id_ for id_, _, _ in found] == SAMPLES
    assert [amounts(vector) for _, vector, _ in found] == EXPECTED
    assert [payload for _, _, payload in found] == METADATA
    shown = dict(source(path).guess)
    assert "3 samples" in shown["format"]
    assert "3 observations" in shown["vector"]
    assert [id_ for id_, _, _ in items(path, id="", payload=("ph",))] == [None] * 3
    assert items(path, payload=("ph",))[0][2] == {"ph": 7.5}


def test_what_biom_format_writes_is_read_as_it_reads_it(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    biom = pytest.importorskip("biom")
    matrix = rng.poisson(0.3, (40, 2500)).astype(float)
    matrix[0] += 1  # no sample is empty
    rows, columns = [f"O{n}" for n in range(40)], [f"S{n}" for n in range(2500)]
    metadata = [{"site": f"site {n % 7}", "ph": n / 4} for n in range(2500)]
    table = biom.Table(matrix, rows, columns, None, metadata)
    (tmp_path / "1.biom").write_text(table.to_json("a test"))
    with h5py.File(tmp_path / "2.biom", "w") as file:
        table.to_hdf5(file, "a test")
    for name in ("1.biom", "2.biom"):
        read = biom.load_table(str(tmp_path / name))
        found = items(tmp_path / name)
        assert len(found) == 2500
        for id_, vector, payload in found:
            values = read.data(id_, "sample", dense=True)
            wanted = {row: value for row, value in zip(rows, values, strict=True) if value}
            assert amounts(vector) == wanted
            assert payload == dict(read.metadata(id_, "sample"))


def test_metadata_without_a_value_are_left_out(tmp_path: Path) -> None:
    columns = [
        {"id": s, "metadata": m | {"ph": None}} for s, m in zip(SAMPLES, METADATA, strict=True)
    ]
    table = json_table(tmp_path / "1.biom", columns=columns)
    hdf5_table(tmp_path / "2.biom")
    with h5py.File(tmp_path / "2.biom", "a") as file:
        file["sample/metadata/ph"][:] = np.nan
    for path in (table, tmp_path / "2.biom"):
        wanted = [{name: m[name] for name in ("site", "tags")} for m in METADATA]
        assert [payload for _, _, payload in items(path)] == wanted


TRANSPOSED = {
    "otus.tsv": "# Constructed from biom file\n#OTU ID\tS1\tS2\tS3\ttaxonomy\n"
    'O1\t0.0\t1.0\t2.5\tk__A\n"k__A; p__B"\t3\t0\t0\tk__A; p__B\n\nO3\t0\t0\t7\tk__C\n',
    "otus.txt": "# Constructed from biom file\n#OTU ID\tS1\tS2\tS3\n"
    "O1\t0\t1\t2.5\nk__A; p__B\t3\t0\t0\nO3\t0\t0\t7\n",
    "r.tsv": "S1\tS2\tS3\nO1\t0\t1\t2.5\nk__A; p__B\t3\t0\t0\nO3\t0\t0\t7\n",
    "carriage.csv": 'gene,S1,S2,S3\rO1,0,1,2.5\r"k__A; p__B",3,0,0\rO3,0,0,7\r',
    "genes.csv": 'gene,S1,S2,S3\nO1,0,1,2.5\n"k__A; p__B",3,0,\nO3,0,NA,7\n',
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_columns_are_items_where_rows_are_features(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(TRANSPOSED[name], newline="")
    found = items(path, transpose=True, missing="zero")
    assert [id_ for id_, _, _ in found] == SAMPLES
    assert [amounts(vector) for _, vector, _ in found] == EXPECTED
    shown = source(path, transpose=True, missing="zero").guess
    assert ("left out" in dict(shown)) == (name == "otus.tsv")
    assert "S1 to S3" in dict(shown)["ids"]
    assert [id_ for id_, _, _ in items(path, transpose=True, missing="zero", id="")] == [None] * 3


def test_samples_may_be_named_and_comments_stand_above(tmp_path: Path) -> None:
    path = tmp_path / "taxa.tsv"
    path.write_text("#mpa_v30\nclade_name\ttax_id\tS1\tS2\nk__A\t2\t40\t50\nk__B\t2|7\t60\t0\n")
    with pytest.raises(BadFile, match=r"line 4: column 'tax_id': expected a number, got '2\|7'"):
        items(path, transpose=True)
    found = items(path, transpose=True, vector=("S*",))
    assert [(id_, amounts(vector)) for id_, vector, _ in found] == [
        ("S1", {"k__A": 40, "k__B": 60}), ("S2", {"k__A": 50}),
    ]  # fmt: skip


BAD_TABLES: dict[str, tuple[str, Json, str]] = {
    "word": ("f,a,b\nx,1,2\ny,3,z\n", {}, "line 3: column 'b': expected a number, got 'z'"),
    "blank": ("f,a,b\nx,1,2\ny,,3\n", {}, "line 3: column 'a': .* got ''; --missing zero"),
    "word-beside-blanks": (
        "f,a,b\nx,1,2\ny,,z\n",
        {"missing": "zero"},
        "line 3: column 'b': .* got 'z'",
    ),
    "grouped": ("f,a,b\nx,1,2\ny,1_0,3\n", {}, "line 3: column 'a': .* got '1_0'"),
    "infinite": ("f,a,b\nx,1,2\ny,inf,3\n", {}, "line 3: column 'a': expected a number, got 'inf'"),
    "ragged": ("f,a,b\nx,1,2\ny,1\n", {}, "line 3: expected 3 columns, got 2"),
    "feature-twice": ("f,a,b\nx,1,2\nx,3,4\n", {}, "line 3: .* got 'x' again"),
    "column-twice": ("f,a,a\nx,1,2\n", {}, "columns of different names, got 'a' twice"),
    "empty-sample": ("f,a,b\nx,1,0\n", {}, "row 1: column 'b': .* other than 0"),
    "blank-lines-above": ("\n\nf,a,b\nx,1,2\ny,1,z\n", {}, "line 5: column 'b': .* got 'z'"),
    "lines-of-no-cells": (f"f,a\n{'x' * 140000},1\n", {}, "expected lines of cells, got field"),
    "no-rows": ("f,a,b\n", {}, "expected rows of features below the names"),
    "no-numbers": ("f,a,b\nx,y,z\n", {}, "expected columns of numbers, one a sample"),
    "id": ("f,a,b\nx,1,2\n", {"id": "f"}, "expected no --id for --transpose"),
    "mean": ("f,a,b\nx,1,2\n", {"missing": "mean"}, "--missing error or zero for --transpose"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_a_bad_table_of_features_is_refused(tmp_path: Path, case: str) -> None:
    text, choices, words = BAD_TABLES[case]
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(BadFile, match=rf"a\.csv: .*{words}"):
        items(tmp_path / "a.csv", transpose=True, **choices)


def test_a_sample_of_zeros_is_left_out(tmp_path: Path) -> None:
    path = json_table(tmp_path / "a.biom", data=[[0, 0, 1], [1, 2, 3]])
    with pytest.raises(BadFile, match=r"row 1: sample 'S2': .* other than 0"):
        items(path)
    found = source(path, lenient=True)
    assert [id_ for batch in found.batches() for id_ in batch.texts() or ()] == ["S1", "S3"]
    assert [(each.row, each.text) for each in found.unreadable] == [(1, "S2")]


BAD_JSON: dict[str, tuple[Json, str]] = {
    "place": ({"data": [[3, 0, 1]]}, "places from 0 to 2, got 3"),
    "negative": ({"data": [[-1, 0, 1]]}, "places from 0 to 2, got -1"),
    "fraction": ({"data": [[0.5, 0, 1]]}, "places from 0 to 2, got 0.5"),
    "no-id": ({"columns": [{}, {"id": "b"}, {"id": "c"}]}, "an unreadable file: 'id'"),
    "null-id": ({"columns": [{"id": None}, {"id": "b"}, {"id": "c"}]}, "integer, got None"),
    "float-id": ({"rows": [{"id": 1.5}, {"id": "b"}, {"id": "c"}]}, "integer, got 1.5"),
    "metadata": ({"columns": [{"id": each, "metadata": "x"} for each in "abc"]}, "unreadable"),
    "ragged-entry": ({"data": [[0, 1, 2], [0, 1]]}, "list of 3 numbers in row 1, got 2 of them"),
    "ragged-row": (
        {"matrix_type": "dense", "data": [[1, 2, 3], [3, 1], [1, 1, 1]]},
        "list of 3 numbers in row 1, got 2 of them",
    ),
    "no-data": ({"data": None}, "a table of BIOM, got an unreadable file"),
    "twice": ({"rows": [{"id": "a"}, {"id": "a"}, {"id": "b"}]}, "of different names"),
    "other-shape": ({"shape": [4, 3]}, r"'shape' \[4, 3\], got \[3, 3\]"),
    "none": ({"columns": [], "data": [], "shape": [3, 0]}, "expected samples, got none"),
    "entry-twice": ({"data": [[0, 0, 1], [0, 0, 2], [0, 1, 1], [0, 2, 1]]}, "'O1' twice"),
}


@pytest.mark.parametrize("case", BAD_JSON)
def test_a_bad_table_of_biom_is_refused(tmp_path: Path, case: str) -> None:
    other, words = BAD_JSON[case]
    path = json_table(tmp_path / "a.biom", **other)
    with pytest.raises(BadFile, match=rf"a\.biom: .*{words}"):
        items(path)


def test_long_numbers_as_ids_keep_all_digits(tmp_path: Path) -> None:
    ids = [7, 2**63, 10**30]
    path = json_table(tmp_path / "a.biom", columns=[{"id": each} for each in ids])
    assert [id_ for id_, _, _ in items(path)] == [*map(str, ids)]


def test_what_other_hdf5_has_is_told(tmp_path: Path) -> None:
    for name, words in (
        ("a.h5", r"expected BIOM 2, .* got HDF5 with X, obs; "),
        ("a.h5ad", "expected .* got AnnData; .*read_h5ad"),
    ):
        with h5py.File(tmp_path / name, "w") as file:
            file["X/data"], file["obs/_index"] = [1.0], [b"cell"]
        with pytest.raises(BadFile, match=f"{name}: {words}"):
            items(tmp_path / name)


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    for write in ("json", "hdf5"):
        path = TABLES[write](tmp_path)
        path.write_bytes(path.read_bytes()[:-60])
        with pytest.raises(BadFile, match="a table of BIOM, got an unreadable file"):
            items(path)
