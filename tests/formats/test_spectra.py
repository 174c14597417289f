"""Spectra of MGF and MSP: bins of two grids, ids, fields, what bad spectra get."""

import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyteomics import mgf

import gcws_search
from gcws_search.formats.files import BadFile, input_files
from gcws_search.formats.sources import Choices, source_of
from gcws_search.index import InvalidVector
from gcws_search.spectra import bins
from tests.support.files import items, source
from tests.support.service.client import Json

MGF = """\
# a comment
COM=all of them
CHARGE=2+

BEGIN IONS
TITLE=first, a=b
PEPMASS=445.12 12000
RTINSECONDS=12.5
SCANS=007
100.0025 10
200.5\t4 1+
END IONS
BEGIN IONS
title=second
CHARGE=3-
PEPMASS=300
100 1
100 2
150 0
END IONS
"""
MSP = """\
Name: Caffeine
PrecursorMZ: 195.0877
Precursor_type: [M+H]+
Num Peaks: 3
138.066\t100\t"?; p-H2O/0.1"
110.0713 20; 195.0877 55.5
Name: Theobromine
Charge: 1
Num peaks: 2

138.0662 99
181.072 30 "p"
"""


def shared_out(peaks: list[tuple[float, float]], width: float) -> dict[int, float]:
    """Return what the docs say of a peak, told by the middles of bins of the two grids."""
    found: dict[int, float] = defaultdict(float)
    for mz, height in peaks:
        for coordinate in (math.floor(mz / width) * 2 + 1, math.floor(mz / width + 0.5) * 2):
            closeness = 1 - abs(mz - coordinate * width / 2) / (width / 2)
            found[coordinate] += height * closeness
    return found


def vector_of(vector: Json) -> dict[int, float]:
    return dict(zip(vector["indices"], vector["values"], strict=True))


def require_same(vector: dict[int, float], wanted: dict[int, float]) -> None:
    """Compare float32 numbers with what they were made of."""
    keys = sorted(vector.keys() | wanted.keys())
    found = [vector.get(key, 0) for key in keys]
    assert found == pytest.approx([wanted.get(key, 0) for key in keys], rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("width", [0.01, 1.0, 0.37])
def test_each_peak_is_in_a_bin_of_each_grid(rng: np.random.Generator, width: float) -> None:
    mz, heights = rng.uniform(0, 500, 200), rng.exponential(size=200)
    found = bins(mz.tolist(), heights.tolist(), width)
    require_same(found, shared_out([*zip(mz.tolist(), heights.tolist(), strict=True)], width))
    assert sum(found.values()) == pytest.approx(heights.sum())
    assert {key % 2 for key in found} == {0, 1}


@pytest.mark.parametrize("distance", [0.0, 0.1, 0.3, 0.49])
def test_peaks_nearer_than_half_a_bin_share_intensity_wherever_they_lie(distance: float) -> None:
    for place in np.linspace(100, 101, 41):  # a bin, from edge to edge
        wide, other = bins([place], [1], 1), bins([place + distance], [1], 1)
        shared = sum(min(wide.get(key, 0), each) for key, each in other.items())
        assert 1 - 2 * distance - 1e-9 <= shared <= 1 - distance + 1e-9


def test_mgf_has_titles_as_ids_and_fields_as_payload(tmp_path: Path) -> None:
    path = tmp_path / "a.mgf"
    path.write_text(MGF)
    (first, vector, payload), (second, other, fields) = items(path)
    assert (first, second) == ("first, a=b", "second")
    require_same(vector_of(vector), shared_out([(100.0025, 10), (200.5, 4)], 0.01))
    require_same(vector_of(other), {20000: 3})
    assert payload == {"precursor_mz": 445.12, "rtinseconds": 12.5, "scans": "007", "charge": 2,
                       "com": "all of them"}  # fmt: skip
    assert fields == {"charge": -3, "precursor_mz": 300, "com": "all of them"}
    shown = dict(source(path).guess)
    assert "bins of 0.01; --bin says otherwise" in shown["vector"]
    assert shown["ids"] == "title"
    assert "bins of 0.5" in dict(source(path, bin=0.5).guess)["vector"]
    assert [id_ for id_, _, _ in items(path, id="", bin=0.5)] == [None, None]
    for width in (0, -1, math.inf, math.nan):
        with pytest.raises(BadFile, match="expected a width above 0 for --bin"):
            items(path, bin=width)
    chosen = items(path, id="TITLE", payload=("c*",))
    assert [(id_, each["charge"], len(each)) for id_, _, each in chosen] == [
        ("first, a=b", 2, 2), ("second", -3, 2),
    ]  # fmt: skip


def test_msp_has_names_as_ids_and_as_many_peaks_as_it_says(tmp_path: Path) -> None:
    path = tmp_path / "a.msp"
    path.write_text(MSP)
    (first, vector, payload), (second, other, fields) = items(path, bin=0.1)
    assert (first, second) == ("Caffeine", "Theobromine")
    peaks = [(138.066, 100), (110.0713, 20), (195.0877, 55.5)]
    require_same(vector_of(vector), shared_out(peaks, 0.1))
    require_same(vector_of(other), shared_out([(138.0662, 99), (181.072, 30)], 0.1))
    assert payload == {"precursor_mz": 195.0877, "precursor_type": "[M+H]+"}
    assert fields == {"charge": 1}


def test_pyteomics_reads_the_same_peaks_and_titles(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = str(tmp_path / "a.mgf")
    spectra = [
        {"m/z array": np.sort(rng.uniform(50, 900, 30)).round(4),
         "intensity array": rng.exponential(size=30).round(3) + 0.001,
         "params": {"title": f"scan {number}", "pepmass": (500.5 + number, None), "charge": "2+"}}
        for number in range(20)
    ]  # fmt: skip
    mgf.write(spectra, output=path)
    found = items(Path(path))
    with mgf.read(path, use_index=False) as reader:
        for (id_, vector, payload), spectrum in zip(found, reader, strict=True):
            assert id_ == spectrum["params"]["title"]
            assert payload["precursor_mz"] == spectrum["params"]["pepmass"][0]
            assert payload["charge"] == spectrum["params"]["charge"][0]
            peaks = [*zip(spectrum["m/z array"].tolist(), spectrum["intensity array"].tolist(),
                          strict=True)]  # fmt: skip
            require_same(vector_of(vector), shared_out(peaks, 0.01))


def test_names_of_several_spectra_are_no_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.msp"
    path.write_text(MSP.replace("Theobromine", "Caffeine").replace("Charge: ", "DB#: X"))
    found = source(path)
    assert dict(found.guess)["ids"].startswith("none")
    assert "--id names another field" in dict(found.guess)["left out"]
    assert [(id_, each["name"]) for id_, _, each in items(path)] == [(None, "Caffeine")] * 2
    with pytest.raises(BadFile, match="expected a unique id, got 'Caffeine' again"):
        items(path, id="name")
    with pytest.raises(BadFile, match="expected a field 'db#' for --id, got name, precursor_mz"):
        items(path, id="DB#")


PEAKS = "BEGIN IONS\nTITLE=x\n{}\nEND IONS\n"
BAD_MGF: dict[str, tuple[str, str]] = {
    "word": (PEAKS.format("100 x"), "a peak as 'm/z intensity', got '100 x'"),
    "decimal-comma": (PEAKS.format("100,5 1"), "a peak as 'm/z intensity', got '100,5 1'"),
    "grouped": (PEAKS.format("1_0 1"), "a peak as 'm/z intensity', got '1_0 1'"),
    "alone": (PEAKS.format("100"), "a peak as 'm/z intensity', got '100'"),
    "negative": (PEAKS.format("100 -1"), "intensities of at least 0, got -1"),
    "nan": (PEAKS.format("nan 1"), "m/z of at least 0, got nan"),
    "far": (PEAKS.format("1e12 1"), "expected m/z below 1.07374e"),
    "none": (PEAKS.format(""), "at least one number other than 0"),
    "zero": (PEAKS.format("100 0"), "at least one number other than 0"),
    "untitled": (PEAKS.format("100 1").replace("TITLE", "NAME"), "expected an id, because"),
    "again": (PEAKS.format("100 1").replace("=x", "=second"), "a unique id, got 'second'"),
    "open": ("BEGIN IONS\nTITLE=x\n100 1\n", "expected END IONS, got BEGIN IONS again"),
    "bytes": (PEAKS.format("COM=\udcff"), "expected text in utf-8"),
}


@pytest.mark.parametrize("case", BAD_MGF)
def test_a_bad_spectrum_is_named_by_its_line_or_left_out(tmp_path: Path, case: str) -> None:
    text, words = BAD_MGF[case]
    path = tmp_path / "a.mgf"
    last = PEAKS.format("100 1").replace("=x", "=last")
    path.write_text(MGF + text + last, "utf-8", "surrogateescape")
    with pytest.raises(BadFile, match=rf"a\.mgf: row 2: line 21: .*{words}"):
        items(path, encoding="utf-8", id="title")
    found = source(path, encoding="utf-8", id="title", lenient=True)
    ids = [id_ for batch in found.batches() for id_ in batch.texts() or ()]
    assert ids == ["first, a=b", "second", "last"]
    assert [each.row for each in found.unreadable] == [2]


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.mgf", "x\n", "line 1: expected BEGIN IONS, got b'x'"),
        ("a.mgf", MGF[:-10], "row 1: line 13: expected END IONS, got the end of the file"),
        ("a.mgf", "CHARGE=1+\n", "expected spectra of MGF, got none"),
        ("a.mgf", "BEGIN IONS\n1 1\n", "line 1: expected END IONS, got the end of the file"),
        ("a.msp", "Name: x\nNum Peaks: 2\n1 1\n", "line 1: expected 2 peaks, .* got 1"),
        ("a.msp", "100 1\n", "line 1: expected 'Name: …', got b'100 1'"),
        ("a.msp", MSP.replace("Peaks: 3", "Peaks: 4"), "row 0: line 1: expected 4 peaks, .* got 3"),
        ("a.msp", MSP + "Name: x\n1 2\n", "row 2: line 13: expected 'Num Peaks: …' before"),
        ("a.msp", MSP + "Name: x\nY: 2\n", "row 2: line 13: expected 'Num Peaks: …' before"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(BadFile, match=rf"{name}: {words}"):
        items(tmp_path / name)


@pytest.mark.parametrize("row", [0, 2099])
def test_a_field_is_kept_wherever_it_stands(tmp_path: Path, row: int) -> None:
    """Spectra are sent in batches, and in some of them none has a field."""
    texts = [f"TITLE=s{each}\n100.5 3\n200.5 4\n" for each in range(2100)]
    texts[row] = f"CHARGE=2+\n{texts[row]}"
    path = tmp_path / "spectra.mgf"
    path.write_text("".join(f"BEGIN IONS\n{each}END IONS\n" for each in texts))
    [file] = input_files(str(path), None)
    body = b"".join(source_of(file, Choices()).whole(lambda _: None).pieces())
    payloads = pa.ipc.open_stream(body).read_all().column("payload").to_pylist()
    assert payloads[row] == '{"charge":2}'
    assert payloads.count(None) == 2099


def test_bins_warns_of_nothing(recwarn: pytest.WarningsRecorder) -> None:
    with pytest.raises(InvalidVector):
        bins([1e308], [1])
    assert not recwarn.list


@pytest.mark.parametrize(
    ("mz", "heights"), [([1, 2], [1]), ([-1], [1]), ([1], [float("inf")]), ([1e9], [1])]
)
def test_bins_refuses_what_is_no_spectrum(mz: list[float], heights: list[float]) -> None:
    with pytest.raises(InvalidVector):
        bins(mz, heights)


def test_a_peak_near_an_edge_is_found() -> None:
    with gcws_search.Collection.open(":memory:", dim=None) as spectra:
        spectra.add([bins([99.9999, 250], [1, 1]), bins([120, 300], [1, 1])], ids=["near", "far"])
        hits = {hit.id: hit.score for hit in spectra.query(bins([100.0001, 250], [1, 1]), recall=1)}
    assert hits["near"] > 0.9
    assert hits["far"] == 0
