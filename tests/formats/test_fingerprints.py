"""Fingerprints of chemfp: FPS and FPC as their specifications have them, and bad lines."""

from pathlib import Path

import pytest

from gcws_search.formats.files import BadFile
from tests.support.files import items, source

FPS = """\
#FPS1
#num_bits=30
#type=RDKit-MACCS166/2
#software=RDKit/2018.03.1 chemfp/3.2.1
0C3A7105\trecord1
00000020\tan id with blanks\tmore
"""
# The example of the specification of FPC, and one of 64 bits.
FPC = """\
#FPC1
#type=RDKit-MorganCount/2 radius=3 useFeatures=0
#software=RDKit/2024.09.5 chemfp/5.0
847433064,2245897107,2551683561\tCHEMBL183419
864674487,1215180924,1600340860:2,2215059400,2245384272:2 CHEMBL16264
18446744073709551615:3\tc
"""


@pytest.mark.parametrize("name", ["a.fps", "without-a-suffix"])
def test_bits_are_those_that_chemfp_documents(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FPS)
    bits = [2, 3, 9, 11, 12, 13, 16, 20, 21, 22, 24, 26]
    assert items(path) == [
        ("record1", {"indices": bits, "values": [1] * 12}, None),
        ("an id with blanks", {"indices": [29], "values": [1]}, None),
    ]
    found = source(path)
    assert found.dim == 30
    assert dict(found.guess)["format"] == "FPS, RDKit-MACCS166/2"
    assert [id_ for id_, _, _ in items(path, id="")] == [None, None]


def test_bits_of_a_fingerprint_are_those_of_rdkit(tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    from rdkit import Chem, DataStructs  # noqa: PLC0415
    from rdkit.Chem import rdFingerprintGenerator  # noqa: PLC0415

    maker = rdFingerprintGenerator.GetMorganGenerator(radius=2, fpSize=1024)
    prints = {each: maker.GetFingerprint(Chem.MolFromSmiles(each)) for each in ("CCO", "c1ccccc1O")}
    lines = [f"{DataStructs.BitVectToFPSText(each)}\t{name}" for name, each in prints.items()]
    (tmp_path / "a.fps").write_text("\n".join(lines) + "\n")
    assert dict(source(tmp_path / "a.fps").guess)["vector"] == "sparse, 1024 bits"
    for id_, vector, _ in items(tmp_path / "a.fps"):
        assert vector["indices"] == [*prints[id_].GetOnBits()]


@pytest.mark.parametrize("name", ["a.fpc", "without-a-suffix"])
def test_features_of_64_bits_are_names_and_have_counts(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(FPC)
    found = items(path)
    assert [id_ for id_, _, _ in found] == ["CHEMBL183419", "CHEMBL16264", "c"]
    assert [dict(zip(v["names"], v["values"], strict=True)) for _, v, _ in found] == [
        {"847433064": 1, "2245897107": 1, "2551683561": 1},
        {"864674487": 1, "1215180924": 1, "1600340860": 2, "2215059400": 1, "2245384272": 2},
        {"18446744073709551615": 3},
    ]


BAD: dict[str, tuple[str, str, str]] = {
    "fps-length": ("a.fps", "0C3A71\tx", "expected 8 hexadecimal digits, got 6"),
    "fps-digit": ("a.fps", "0C3A710x\tx", "expected hexadecimal digits"),
    "fps-bit": ("a.fps", "00000040\tx", "expected 30 bits, got bit 30"),
    "fps-empty": ("a.fps", "00000000\tx", "at least one number other than 0"),
    "fps-no-id": ("a.fps", "0C3A7105", "a fingerprint, a tab and an id"),
    "fps-again": ("a.fps", "0C3A7105\tfirst", "a unique id, got 'first' again"),
    "fpc-zero": ("a.fpc", "1,2:0\tx", "a count above 0, got '2:0'"),
    "fpc-word": ("a.fpc", "1,x\tx", "a feature of 64 bits .* got 'x'"),
    "fpc-blank": ("a.fpc", "1,,2\tx", "a feature of 64 bits .* got ''"),
    "fpc-large": ("a.fpc", f"{2**64}\tx", "a feature of 64 bits"),
    "fpc-long": ("a.fpc", f"1:{10**400}\tx", "a feature of 64 bits and a count"),
    "fpc-twice": ("a.fpc", "1,1\tx", "distinct coordinates, got '1' twice"),
    "fpc-empty": ("a.fpc", "*\tx", "at least one number other than 0"),
    "fpc-no-id": ("a.fpc", "1,2", "a fingerprint, a tab and an id"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_line_is_named_or_left_out(tmp_path: Path, case: str) -> None:
    name, line, words = BAD[case]
    path = tmp_path / name
    good = "0C3A7105" if name == "a.fps" else "1,2:3"
    path.write_text(f"#num_bits=30\n{good}\tfirst\n{line}\n{good}\tlast\n")
    with pytest.raises(BadFile, match=rf"row 1: line 3: .*{words}"):
        items(path)
    found = source(path, lenient=True)
    assert [id_ for batch in found.batches() for id_ in batch.texts() or ()] == ["first", "last"]
    assert [each.text for each in found.unreadable] == [line]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#FPS1\n", "expected fingerprints of FPS, got none"),
        ("#FPS1\n#num_bits=x\n00\ta\n", "expected a number of bits as num_bits, got 'x'"),
        ("#FPS1\n#num_bits=0\n00\ta\n", "expected a number of bits as num_bits, got '0'"),
        (f"#FPS1\n#num_bits={'1' * 5000}\n00\ta\n", "expected a number of bits as num_bits"),
        ("#FPS1\nff01\n", "expected a fingerprint, a tab and an id, got 'ff01'"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "a.fps").write_text(text)
    with pytest.raises(BadFile, match=words):
        items(tmp_path / "a.fps")
