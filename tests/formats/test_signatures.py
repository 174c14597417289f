"""Signatures as sourmash has them: hashes, abundances, kinds of sketches, archives, bad files."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

import gcws_search
from gcws_search.formats.files import BadFile
from gcws_search.formats.signatures import split_objects
from tests.support.files import items, source
from tests.support.service.client import Json

HASHES = [[18446744073709551615, 3, 9007199254740993], [3, 5]]


def signature(name: str | None, *sketches: Json) -> Json:
    made = [
        {"num": 0, "ksize": 21, "seed": 42, "max_hash": 18446744073709551615,
         "md5sum": f"md5 {name}", "molecule": "DNA", **each} for each in sketches
    ]  # fmt: skip
    return {"class": "sourmash_signature", "email": "", "filename": None, "name": name,
            "signatures": made, "version": 0.4}  # fmt: skip


TWO = [
    signature('a "{" \\', {"mins": HASHES[0], "abundances": [4, 1, 2]}),
    signature("b", {"mins": HASHES[1]}),
]


def write(path: Path, content: Json) -> Path:
    """Write signatures as the name of a file says."""
    text = json.dumps(content).encode()
    if path.name.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            for number, each in enumerate(content):
                inner = gzip.compress(json.dumps([each]).encode())
                archive.writestr(f"signatures/{number}.sig.gz", inner)
            archive.writestr("SOURMASH-MANIFEST.csv", "# SOURMASH-MANIFEST-VERSION: 1.0\n")
    else:
        path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


@pytest.mark.parametrize("name", ["a.sig", "a.sig.gz", "a.sig.zip", "a.json"])
def test_hashes_are_names_and_abundances_weights(tmp_path: Path, name: str) -> None:
    found = items(write(tmp_path / name, TWO))
    assert [(id_, dict(zip(v["names"], v["values"], strict=True))) for id_, v, _ in found] == [
        ('a "{" \\', {"18446744073709551615": 4, "3": 1, "9007199254740993": 2}),
        ("b", {"3": 1, "5": 1}),
    ]
    assert found[1][2] == {"md5": "md5 b", "ksize": 21, "moltype": "dna", "scaled": 1}


class Slow(io.BytesIO):
    """A stream that gives a few bytes at a time."""

    def __init__(self, content: bytes, piece_bytes: int) -> None:
        super().__init__(content)
        self.piece_bytes = piece_bytes

    def read(self, size: int | None = -1) -> bytes:
        return super().read(self.piece_bytes)


@pytest.mark.parametrize("piece_bytes", range(1, 9))
def test_objects_are_split_wherever_a_piece_ends(piece_bytes: int) -> None:
    objects = [{"a": 'x\\"{'}, {"}\\\\": [{"b": {}}, '"']}, {}]
    text = json.dumps(objects, indent=1).encode()
    found = split_objects(Slow(text, piece_bytes), "a.sig")
    assert [json.loads(each) for each in found] == objects


def test_what_sourmash_writes_has_its_hashes_and_scores(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    sourmash = pytest.importorskip("sourmash")
    files = pytest.importorskip("sourmash.sourmash_args")
    base = "".join(rng.choice([*"ACGT"], 4000))
    texts = {"a": base, "b": base[:3000] + "".join(rng.choice([*"ACGT"], 1000)), "c": base[500:]}
    made = {}
    for name, text in texts.items():
        made[name] = sourmash.MinHash(n=0, ksize=21, scaled=10)
        made[name].add_sequence(text)
    counted = sourmash.MinHash(n=0, ksize=31, scaled=10, track_abundance=True)
    counted.add_sequence(base + base[:500])
    protein = sourmash.MinHash(n=0, ksize=7, scaled=1, is_protein=True)
    protein.add_protein("MVLSPADKTNVKAAWGKVGAHAGEYGAEALERMF")
    everything = {**made, "counted": counted, "protein": protein}
    for path in (tmp_path / "a.sig", tmp_path / "a.sig.zip"):
        with files.SaveSignaturesToLocation(str(path)) as out:
            for name, each in everything.items():
                out.add(sourmash.SourmashSignature(each, name=name))
        with pytest.raises(BadFile, match=r"of one kind, got k 21 dna scaled 10, .*--ksize"):
            source(path)
        for choices, names in (
            ({"ksize": 21}, ["a", "b", "c"]), ({"ksize": 31}, ["counted"]),
            ({"moltype": "protein", "ksize": 7}, ["protein"]),
        ):  # fmt: skip
            found = {id_: vector for id_, vector, _ in items(path, **choices)}
            assert sorted(found) == names
            for name, vector in found.items():
                hashes = everything[name].hashes
                weights = {str(each): float(hashes[each]) for each in hashes}
                assert dict(zip(vector["names"], vector["values"], strict=True)) == weights
        with gcws_search.Collection.open(":memory:", dim=None) as collection:
            for batch in source(path, ksize=21).batches():
                rows: Json = batch.rows.json()
                vectors = [dict(zip(row["names"], row["values"], strict=True)) for row in rows]
                collection.add(vectors, ids=batch.texts())
            scores = {hit.id: hit.score for hit in collection.query(id="a", recall=1)}
        assert scores == {name: pytest.approx(made["a"].jaccard(made[name])) for name in "bc"}


def test_ids_are_md5_where_a_name_is_missing_or_as_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "a.sig", [*TWO, signature(None, {"mins": [7]})])
    assert [id_ for id_, _, _ in items(path)] == ['md5 a "{" \\', "md5 b", "md5 None"]
    assert [id_ for id_, _, _ in items(path, id="")] == [None] * 3
    with pytest.raises(BadFile, match=r"row 2: signature 2: expected an id, .* got none"):
        items(path, id="name")
    with pytest.raises(BadFile, match="expected name, md5 or filename for --id, got 'x'"):
        items(path, id="x")


@pytest.mark.parametrize(
    ("sketches", "words"),
    [
        ([{}, {"ksize": 31}], "k 21 dna scaled 1, k 31 dna scaled 1; --ksize"),
        ([{}, {"molecule": "dayhoff", "ksize": 63}], "k 21 dayhoff scaled 1; --moltype"),
        ([{}, {"max_hash": 2**54}], "k 21 dna scaled 1024; sourmash sig downsample"),
        ([{}, {"max_hash": 0, "num": 50}], "k 21 dna num 50; sourmash sig downsample"),
    ],
)
def test_sketches_of_several_kinds_are_refused_before_anything_is_stored(
    tmp_path: Path, sketches: list[Json], words: str
) -> None:
    made = [{"mins": [1, 2], **each} for each in sketches]
    for content in ([signature("a", *made)], [signature(f"{n}", x) for n, x in enumerate(made)]):
        with pytest.raises(BadFile, match=f"expected sketches of one kind, got .*{words}"):
            source(write(tmp_path / "a.sig", content), lenient=True)


@pytest.mark.parametrize(
    ("sketch", "words"),
    [
        ({"mins": []}, "at least one number other than 0"),
        ({"mins": [1, 1]}, "distinct coordinates, got '1' twice"),
        ({"mins": [1, 2], "abundances": [1]}, "expected 2 abundances, got 1"),
        ({"mins": [1, 2], "abundances": [1, -1]}, "whole numbers above 0, got -1"),
    ],
)
def test_a_bad_sketch_is_named_or_left_out(tmp_path: Path, sketch: Json, words: str) -> None:
    path = write(tmp_path / "a.sig", [TWO[0], signature("x", sketch), TWO[1]])
    with pytest.raises(BadFile, match=rf"row 1: signature 1: .*{words}"):
        items(path)
    found = source(path, lenient=True)
    assert sum(map(len, found.batches())) == 2
    assert [(each.row, each.text["name"]) for each in found.unreadable] == [(1, "x")]


def archive_of(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, content)
    return out.getvalue()


WHOLE = json.dumps(TWO).encode()
BAD: dict[str, tuple[str, bytes, str]] = {
    "cut": ("a.sig", WHOLE[:-30], "a whole list of signatures, got one that ends early"),
    "cut-in-text": ("a.sig", WHOLE[:80], "a whole list of signatures, got one that ends early"),
    "other-objects": ("a.sig", b'[{"class": "sourmash_signature"}]', "KeyError 'signatures'"),
    "none": ("a.sig", b"x", "expected sketches, got none"),
    "floats": (
        "a.sig", json.dumps([signature("a", {"mins": [1.5]})]).encode(), "not whole numbers",
    ),
    "bad-archive": ("a.zip", archive_of("signatures/a.sig.gz", b"x")[:-9], "a whole archive"),
    "bad-gzip": ("a.zip", archive_of("signatures/a.sig.gz", b"x"), "a whole archive"),
    "cut-in-archive": ("a.zip", archive_of("signatures/a.sig", WHOLE[:-30]), "ends early"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_refused_by_its_name(tmp_path: Path, case: str) -> None:
    name, content, words = BAD[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(BadFile, match=rf"{name}: .*{words}"):
        source(tmp_path / name)
