"""SMILES as RDKit counts them: fingerprints, names, columns, reactions, bad lines."""

from pathlib import Path

import pytest

pytest.importorskip("rdkit")  # which has no wheels for some machines

from rdkit import Chem, DataStructs
from rdkit.Chem import rdChemReactions, rdFingerprintGenerator

import gcws_search
from gcws_search.formats.files import BadFile
from gcws_search.index import InvalidParameter, InvalidVector
from gcws_search.rdkit import counts
from tests.support.files import items, source
from tests.support.service.client import Json

SMILES = {
    "aspirin": "CC(=O)Oc1ccccc1C(=O)O",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "theobromine": "Cn1cnc2c1c(=O)[nH]c(=O)n2C",
    "a drug": "CC(=O)Nc1ccc(O)cc1",
}
GENERATORS: dict[str, Json] = {
    "morgan:2": rdFingerprintGenerator.GetMorganGenerator(radius=2),
    "morgan:3": rdFingerprintGenerator.GetMorganGenerator(radius=3),
    "atompair": rdFingerprintGenerator.GetAtomPairGenerator(),
    "torsion": rdFingerprintGenerator.GetTopologicalTorsionGenerator(),
}
ESTER = "CC(=O)O.OCC>[H+]>CC(=O)OCC.O"
REVERSE = "CC(=O)OCC.O>[H+]>CC(=O)O.OCC"


def counted(vector: Json) -> dict[int, float]:
    return dict(zip(map(int, vector["names"]), vector["values"], strict=True))


@pytest.mark.parametrize("fingerprint", GENERATORS)
@pytest.mark.parametrize("form", ["plain", "tabs", "header"])
def test_counts_and_scores_are_those_of_rdkit(tmp_path: Path, fingerprint: str, form: str) -> None:
    lines = [f"{smiles} {name}" for name, smiles in SMILES.items()]
    if form == "tabs":
        lines = [f"{smiles}\t{name}\t7" for name, smiles in SMILES.items()]
    if form == "header":
        lines = ["Canonical_SMILES\tdose\tdrug", *(f"{s}\t7\t{n}" for n, s in SMILES.items())]
    path = tmp_path / "a.smi"
    path.write_text("\n".join(lines) + "\n")
    found = items(path, fingerprint=fingerprint, id="drug" if form == "header" else None)
    assert [id_ for id_, _, _ in found] == [*SMILES]
    extra = {"plain": {}, "tabs": {"f2": "7"}, "header": {"dose": "7"}}[form]
    assert [each for _, _, each in found] == [{"smiles": s} | extra for s in SMILES.values()]
    prints = {
        name: GENERATORS[fingerprint].GetSparseCountFingerprint(Chem.MolFromSmiles(smiles))
        for name, smiles in SMILES.items()
    }
    assert [counted(vector) for _, vector, _ in found] == [
        each.GetNonzeroElements() for each in prints.values()
    ]
    with gcws_search.Collection.open(":memory:", dim=None) as molecules:
        molecules.add([counts(smiles, fingerprint) for smiles in SMILES.values()], ids=[*SMILES])
        asked = Chem.MolFromSmiles(SMILES["caffeine"])
        hits = molecules.query(counts(asked, fingerprint), recall=1, limit=4)
        assert {hit.id: hit.score for hit in hits} == {
            name: DataStructs.TanimotoSimilarity(prints["caffeine"], each)
            for name, each in prints.items()
        }


def test_columns_that_the_writer_of_rdkit_parts_by_blanks_are_columns(tmp_path: Path) -> None:
    path = tmp_path / "a.smi"
    writer = Chem.SmilesWriter(str(path))
    writer.SetProps(["dose", "unit"])
    for name, dose, unit in (("x1", "7", "mg"), ("x2", "", "g")):
        molecule = Chem.MolFromSmiles("CCO")
        for key, value in (("_Name", name), ("dose", dose), ("unit", unit)):
            molecule.SetProp(key, value)
        writer.write(molecule)
    writer.close()
    assert [(id_, each) for id_, _, each in items(path)] == [
        ("x1", {"smiles": "CCO", "dose": "7", "unit": "mg"}),
        ("x2", {"smiles": "CCO", "unit": "g"}),
    ]
    with path.open("ab") as file:  # beyond the first MiB, where nothing is decided any more
        file.write(b"CCO %b 7 mg\n" % (b"x" * 1000) * 1100 + b"CCO x 7\n")
    with pytest.raises(BadFile, match="line 1104: expected 4 columns, got 3"):
        items(path, id="")
    path.write_text("smiles name\nCCO a drug\nCCN other\n")  # names of several words
    assert [id_ for id_, _, _ in items(path)] == ["a drug", "other"]


def test_a_reaction_and_its_reverse_have_nothing_in_common(tmp_path: Path) -> None:
    path = tmp_path / "a.rsmi"
    path.write_text(f"{ESTER}\n{REVERSE}\n")
    assert "counts of reaction" in dict(source(path).guess)["vector"]
    reactions = [rdChemReactions.ReactionFromSmarts(each, useSmiles=True) for each in
                 (ESTER, REVERSE)]  # fmt: skip
    prints = [rdChemReactions.CreateDifferenceFingerprintForReaction(each) for each in reactions]
    assert [counted(vector) for _, vector, _ in items(path)] == [
        each.GetNonzeroElements() for each in prints
    ]
    assert DataStructs.TanimotoSimilarity(*prints) == 1
    with gcws_search.Collection.open(":memory:", dim=None) as collection:
        collection.add([counts(each, "reaction") for each in reactions], ids=["a", "b"])
        hits = collection.query(counts(ESTER, "reaction"), recall=1)
    assert [(hit.id, hit.score) for hit in hits] == [("a", 1), ("b", 0)]


def test_arrows_of_bonds_make_no_reaction(tmp_path: Path) -> None:
    path = tmp_path / "a.smi"
    path.write_text("N->[Zn]Cl.N->[Zn]Cl two\n")  # as many > as a reaction has
    assert "counts of morgan:2" in dict(source(path).guess)["vector"]
    assert [id_ for id_, _, _ in items(path)] == ["two"]


def test_without_names_rows_are_numbered_and_fields_are_chosen(tmp_path: Path) -> None:
    path = tmp_path / "a.smi"
    path.write_text("CCO\n\nCCN\n")
    assert [(id_, each) for id_, _, each in items(path)] == [
        (None, {"smiles": "CCO"}), (None, {"smiles": "CCN"}),
    ]  # fmt: skip
    path.write_text("[Na+].[Cl-] salt\n")
    assert [(id_, each) for id_, _, each in items(path)] == [("salt", {"smiles": "[Na+].[Cl-]"})]
    path.write_text("CCO a\nCCN a\n")
    assert [(id_, each) for id_, _, each in items(path, id="", payload=("n*",))] == [
        (None, {"name": "a"}), (None, {"name": "a"}),
    ]  # fmt: skip
    assert [each for _, _, each in items(path, id="", payload=())] == [None, None]
    path.write_text("CCO\t\t7\nCCN\t\t8\n")  # a column of names, blank
    assert [(id_, each) for id_, _, each in items(path)] == [
        (None, {"smiles": "CCO", "f2": "7"}), (None, {"smiles": "CCN", "f2": "8"}),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("C1CC ring", "expected a SMILES that RDKit reads, got 'C1CC'"),
        ("CCO first", "expected a unique id, got 'first' again"),
        ("CCO", "expected an id, because the first one has one, got none"),
        ("\udcff x", "expected text in utf-8"),
        ("c1ccccc1>>C x", "expected a SMILES that RDKit reads"),
    ],
)
def test_a_bad_line_is_named_or_left_out(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "a.smi"
    path.write_text(f"CCO first\n\n{line}\nCCN last\n", "utf-8", "surrogateescape")
    with pytest.raises(BadFile, match=rf"row 1: line 3: {words}"):
        items(path, encoding="utf-8")
    found = source(path, encoding="utf-8", lenient=True)
    assert [id_ for batch in found.batches() for id_ in batch.texts() or ()] == ["first", "last"]
    assert [each.row for each in found.unreadable] == [1]


@pytest.mark.parametrize(
    ("text", "choices", "words"),
    [
        ("\n", {}, "expected lines of SMILES, got none"),
        ("smiles name\n", {}, "expected lines of SMILES below the names"),
        ("CCO a\n", {"id": "drug"}, "expected a column 'drug', got name"),
        ("CCO a\n", {"fingerprint": "maccs"}, "expected morgan:2 or another radius"),
        ("CCO a\n", {"fingerprint": "morgan"}, "expected morgan:2 or another radius"),
        ("CCO\ta\nCCO\tb\tc\n", {}, "row 1: line 2: expected 2 columns, got 3"),
    ],
)
def test_what_is_no_such_file_is_refused(
    tmp_path: Path, text: str, choices: Json, words: str
) -> None:
    (tmp_path / "a.smi").write_text(text)
    with pytest.raises(BadFile, match=words):
        items(tmp_path / "a.smi", **choices)


def test_counts_refuses_what_is_no_molecule() -> None:
    for bad in ("C1CC", "", "CC>>CO"):
        with pytest.raises(InvalidVector, match="a SMILES that RDKit reads"):
            counts(bad)
    for bad in ("CCO", ">"):
        with pytest.raises(InvalidVector, match="a reaction's SMILES"):
            counts(bad, "reaction")
    with pytest.raises(InvalidVector, match="expected a reaction for reaction, got Mol"):
        counts(Chem.MolFromSmiles("CCO"), "reaction")
    with pytest.raises(InvalidVector, match="expected a molecule for torsion"):
        counts(rdChemReactions.ReactionFromSmarts(ESTER, useSmiles=True), "torsion")
    with pytest.raises(InvalidParameter):
        counts("CCO", "morgan:x")
