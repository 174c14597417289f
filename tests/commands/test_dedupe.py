"""Near-duplicates of files without a server: what is written, restarts, what is refused."""

import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse
from typer.testing import CliRunner

import gcws_search
from gcws_search.commands.app import app
from gcws_search.commands.options import steps
from gcws_search.formats.files import BadFile
from gcws_search.formats.sources import Choices

WORDS = [f"word{number}" for number in range(800)]
LEAST = 0.7


class StoppedAtError(Exception):
    """The work was stopped."""


def texts(rng: np.random.Generator, count: int) -> list[str]:
    """Return texts, every third one a copy of an earlier one with a word or two changed."""
    made: list[str] = []
    for number in range(count):
        if number % 3 == 2:
            words = made[rng.integers(len(made))].split()
            for _ in range(rng.integers(3)):
                words[rng.integers(len(words))] = str(rng.choice(WORDS))
        else:
            words = [str(word) for word in rng.choice(WORDS, 25)]
        made.append(" ".join(words))
    return made


def write_lines(path: Path, rows: list[str], first: int = 0) -> Path:
    lines = (
        json.dumps({"id": f"t{first + row}", "body": body, "n": row})
        for row, body in enumerate(rows)
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def groups_in(folder: Path) -> set[tuple[str, ...]]:
    """Return the groups of a result, the kept item of each first."""
    table = pq.read_table(folder / "groups.parquet").to_pylist()
    found: dict[int, list[str]] = {}
    for row in table:
        found.setdefault(row["group"], []).append(row["id"])
        assert row["representative"] == found[row["group"]][0]
    return {(ids[0], *sorted(ids[1:])) for ids in found.values()}


def all_groups(rows: list[str], ids: list[str], least: float) -> set[tuple[str, ...]]:
    """Return the groups of a collection of the same texts, every pair compared."""
    with gcws_search.Collection.open(":memory:", text={}) as items:
        items.add(texts=rows, ids=ids)
        found = items.groups(min_score=least, recall=1)
    members = ([member for member, _ in group.members] for group in found)
    return {(ids[0], *sorted(ids[1:])) for ids in members}


def column(folder: Path, name: str, of: str) -> list[Any]:
    return list(pq.read_table(folder / f"{name}.parquet").column(of).to_pylist())


def call(*words: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["dedupe", *map(str, words)])
    assert done.exit_code == code, done.output
    return done.output


def test_texts_of_two_files(rng: np.random.Generator, tmp_path: Path) -> None:
    rows = texts(rng, 600)
    first = write_lines(tmp_path / "a.ndjson", rows[:250])
    second = write_lines(tmp_path / "b.ndjson", rows[250:], 250)
    out = tmp_path / "out"
    said = call(first, second, "--text", "body", "--min-score", LEAST, "--recall", 0.999, "-o", out)
    ids = [f"t{row}" for row in range(600)]
    wanted = all_groups(rows, ids, LEAST)
    assert groups_in(out) == wanted
    removed = {member for group in wanted for member in group[1:]}
    assert column(out, "removed", "id") == [each for each in ids if each in removed]
    assert column(out, "kept", "id") == [each for each in ids if each not in removed]
    places = zip(column(out, "kept", "file"), column(out, "kept", "row"), strict=True)
    kept = [int(each[1:]) for each in column(out, "kept", "id")]
    names = str(first), str(second)
    assert [*places] == [(names[row >= 250], row - 250 * (row >= 250)) for row in kept]
    report = json.loads((out / "report.json").read_text())
    assert (report["rows"], report["removed"]) == (600, len(removed))
    assert report["expected_recall"] >= 0.999
    assert report["recall_low"] <= report["recall"] <= report["recall_high"]
    assert str(first) in said
    assert f"{len(removed)} removed" in said
    assert {each.name for each in out.iterdir()} == {
        "groups.parquet", "kept.parquet", "removed.parquet", "report.json",
    }  # fmt: skip


def test_a_score_is_that_of_the_item_that_is_kept(tmp_path: Path) -> None:
    rows = ["a b c d", "a b c d e", "x y z", "a b c d e f", "x y z"]
    path = write_lines(tmp_path / "a.ndjson", rows)
    gcws_search.dedupe(path, tmp_path / "out", min_score=0.8, choices=Choices(text="body"))
    table = pq.read_table(tmp_path / "out" / "groups.parquet").to_pylist()
    assert [(row["id"], row["group"], row["score"]) for row in table] == [
        ("t0", 0, 1), ("t1", 0, 4 / 5), ("t3", 0, 4 / 6), ("t2", 1, 1), ("t4", 1, 1),
    ]  # fmt: skip
    found = gcws_search.dedupe(
        path, tmp_path / "long", min_score=0.8, keep="longest", choices=Choices(text="body")
    )
    assert column(tmp_path / "long", "kept", "id") == ["t2", "t3"]
    assert (found.rows, found.kept, found.removed, found.groups) == (5, 2, 3, 2)


def signed(rng: np.random.Generator) -> np.ndarray:
    rows = rng.standard_normal((300, 12)).astype(np.float32)
    rows[200:] = rows[:100] * (1 + 0.02 * rng.standard_normal((100, 12)))
    return rows


@pytest.mark.parametrize("kind", ["npy", "npz", "csv"])
def test_signed_vectors_of_other_formats(
    rng: np.random.Generator, tmp_path: Path, kind: str
) -> None:
    rows, path = signed(rng), tmp_path / f"rows.{kind}"
    if kind == "npy":
        np.save(path, rows)
    elif kind == "npz":
        sparse.save_npz(path, sparse.csr_matrix(rows))
    else:
        pd.DataFrame(rows, columns=[f"c{number}" for number in range(12)]).to_csv(path, index=False)
    call(path, "--min-score", 0.9, "-o", tmp_path / "out")
    assert groups_in(tmp_path / "out") == {(str(row), str(200 + row)) for row in range(100)}


def test_vectors_by_names_are_joined_by_names(tmp_path: Path) -> None:
    rows: list[dict[str, float]] = [
        {"x": 1, "y": 2},
        {"y": 2, "z": -3},
        {"z": -3, "y": 2},
        {"y": 2, "x": 1.1},
    ]
    for name, some in (("a", rows[:2]), ("b", rows[2:])):
        lines = [
            json.dumps({"vector": {"names": [*row], "values": [*row.values()]}}) for row in some
        ]
        (tmp_path / f"{name}.ndjson").write_text("\n".join(lines))
    gcws_search.dedupe(
        [tmp_path / "a.ndjson", tmp_path / "b.ndjson"], tmp_path / "out", min_score=0.9
    )
    assert groups_in(tmp_path / "out") == {("0", "3"), ("1", "2")}


STEPS = ("reading", "choosing bands", "hashing", "comparing", "scoring", "checking", "writing")


@pytest.mark.parametrize("step", STEPS)
def test_the_same_call_goes_on_after_a_stop(
    rng: np.random.Generator, tmp_path: Path, step: str
) -> None:
    rows = texts(rng, 400)
    paths = [
        write_lines(tmp_path / "a.ndjson", rows[:100]),
        write_lines(tmp_path / "b.ndjson", rows[100:], 100),
    ]

    def run(out: Path, progress: Callable[[str, float | None], None]) -> gcws_search.Deduplicated:
        return gcws_search.dedupe(
            paths, out, min_score=LEAST, choices=Choices(text="body"), progress=progress
        )

    whole = run(tmp_path / "whole", lambda _word, _share: None)
    seen: list[str] = []

    def stop(word: str, share: float | None) -> None:
        seen.append(word)
        # The first of two files has been read, or some tables have been compared.
        if word == step and (share is None or share > 0.3 or word != "reading"):
            raise StoppedAtError

    with pytest.raises(StoppedAtError):
        run(tmp_path / "out", stop)
    assert [*dict.fromkeys(seen)] == [*STEPS[: STEPS.index(step) + 1]]
    again: list[str] = []
    found = run(tmp_path / "out", lambda word, _share: again.append(word))
    assert ("reading" in again) == (step == "reading")
    for name in ("groups", "kept", "removed"):
        one, other = (
            pq.read_table(tmp_path / each / f"{name}.parquet") for each in ("out", "whole")
        )
        assert one.equals(other), name
    assert found.removed == whole.removed > 0
    (tmp_path / "out" / ".work").mkdir()  # as a kill at the very end leaves it
    asked: list[str] = []
    assert run(tmp_path / "out", lambda word, _share: asked.append(word)) == found
    assert asked == []
    assert not (tmp_path / "out" / ".work").exists()


def write_large(folder: Path, rng: np.random.Generator) -> list[Path]:
    """Write three files of vectors by names, each large enough for a process of its own."""
    names = np.array([f"n{number}" for number in range(60)])
    rows = [dict.fromkeys(rng.choice(names, 8, replace=False).tolist(), 1.0) for _ in range(66)]
    rows += [{**row, f"m{number}": -0.5} for number, row in enumerate(rows[:33])]
    folder.mkdir()
    paths = [folder / f"{number}.ndjson" for number in range(3)]
    for number, path in enumerate(paths):
        with path.open("w") as file:
            for row in rows[number::3]:
                vector = {"names": [*row], "values": [*row.values()]}
                file.write(json.dumps({"vector": vector, "payload": {"pad": " " * (1 << 20)}}))
                file.write("\n")
    return paths


def test_files_that_processes_read_at_once(rng: np.random.Generator, tmp_path: Path) -> None:
    paths, killed = write_large(tmp_path / "in", rng), list[psutil.Process]()

    def kill_some(_word: str, _share: float | None) -> None:
        """Kill what reads, once; another process goes on."""
        for each in () if killed else psutil.Process().children():
            if any("spawn_main" in word for word in each.cmdline()):
                each.kill()
                killed.append(each)

    done = gcws_search.dedupe(
        paths, tmp_path / "out", min_score=0.9, recall=0.999, processes=2, progress=kill_some
    )
    assert (done.rows, done.removed) == (99, 33)
    assert killed
    gcws_search.dedupe(paths, tmp_path / "one", min_score=0.9, recall=0.999)
    for name in ("groups", "kept", "removed"):
        one, other = (pq.read_table(tmp_path / each / f"{name}.parquet") for each in ("out", "one"))
        assert one.equals(other), name


@pytest.mark.parametrize("is_table", [False, True])
def test_rows_of_a_folder_are_told_by_file(tmp_path: Path, *, is_table: bool) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.csv").write_text("id,x,y\na0,1,2\na1,3,-1\n")
    (folder / "b.csv").write_text("id,y,x\nb0,-1,3\nb1,9,9\n")
    choices = Choices(missing="mean" if is_table else "error")  # a mean is that of all files
    gcws_search.dedupe(folder, tmp_path / "out", min_score=0.99, choices=choices)
    [row] = pq.read_table(tmp_path / "out" / "removed.parquet").to_pylist()
    wanted = (str(folder), 2) if is_table else (str(folder / "b.csv"), 0)
    assert (row["id"], row["file"], row["row"]) == ("b0", *wanted)


@pytest.mark.parametrize("is_table", [False, True])
def test_files_of_a_folder_that_have_no_rows_are_left_out(
    tmp_path: Path, *, is_table: bool
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "0.csv").write_text("id,x,y\n")
    (folder / "1.csv").write_text("id,x,y\na0,1,2\na1,3,-1\n")
    (folder / "2.csv").touch()
    (folder / "3.csv").write_text("id,x,y\nb0,1,2\n")
    choices = Choices(missing="mean" if is_table else "error")
    found = gcws_search.dedupe(folder, tmp_path / "out", min_score=0.99, choices=choices)
    assert (found.rows, found.removed) == (3, 1)
    [row] = pq.read_table(tmp_path / "out" / "removed.parquet").to_pylist()
    assert (row["id"], row["row"]) == ("b0", 2 if is_table else 0)
    (folder / "4.csv").write_text("id,x,z\n")
    with pytest.raises(BadFile, match=r"4\.csv: expected rows below the names of columns"):
        gcws_search.dedupe(folder, tmp_path / "more", min_score=0.99, choices=choices)


def test_parquet_of_a_folder_that_has_no_rows_is_left_out(tmp_path: Path) -> None:
    folder, ids = tmp_path / "in", ["a0", "a1"]
    folder.mkdir()
    table = pa.table({"id": ids, "x": [1.0, 1.0], "y": [2.0, 2.0]})
    for place, count in enumerate((0, 1, 0, 1, 0)):
        pq.write_table(table.slice(0, count), folder / f"{place}.parquet")
    found = gcws_search.dedupe(folder, tmp_path / "out", min_score=0.99)
    assert (found.rows, found.removed) == (2, 1)
    pq.write_table(table.slice(0, 0).select(["id", "x"]), folder / "5.parquet")
    with pytest.raises(BadFile, match=r"5\.parquet: expected rows, got none"):
        gcws_search.dedupe(folder, tmp_path / "more", min_score=0.99)


def test_rows_left_out_before_a_stop_are_told_once(tmp_path: Path) -> None:
    """Of files that are read in one process, and then in several."""
    for number in range(3):
        write_lines(tmp_path / f"{number}.ndjson", ["a b c", "...", f"d e {number}"])
    paths = [tmp_path / f"{number}.ndjson" for number in range(3)]
    choices = Choices(text="body", lenient=True)

    def stop(word: str, _share: float | None) -> None:
        if word != "reading":
            raise StoppedAtError

    with pytest.raises(StoppedAtError):
        gcws_search.dedupe(paths, tmp_path / "out", min_score=0.9, choices=choices, progress=stop)
    with (tmp_path / "out" / ".work" / "table" / "rejected.ndjson").open("a") as file:
        file.write('{"file": "of a batch that was not committed"}\n{"fi')
    for folder, processes in (("out", 1), ("several", 2)):
        found = gcws_search.dedupe(
            paths, tmp_path / folder, min_score=0.9, choices=choices, processes=processes
        )
        lines = (tmp_path / folder / "rejected.ndjson").read_text().splitlines()
        told = [(each["file"], each["row"]) for each in map(json.loads, lines)]
        assert told == [(str(path), 1) for path in paths]
        assert found.rejected == len(paths)


def test_a_file_that_is_read_in_part_is_read_on(rng: np.random.Generator, tmp_path: Path) -> None:
    rows = rng.standard_normal((80_000, 3)).astype(np.float32)
    rows[75_000:] = rows[:5000]
    np.save(tmp_path / "a.npy", rows)

    def stop(word: str, _share: float | None) -> None:
        told.append(word)
        if len(told) == 9:  # behind the first commit
            raise StoppedAtError

    told: list[str] = []
    with pytest.raises(StoppedAtError):
        gcws_search.dedupe(tmp_path / "a.npy", tmp_path / "out", min_score=0.9999, progress=stop)
    assert {*told} == {"reading"}
    state = json.loads((tmp_path / "out" / ".work" / "table" / "state.json").read_text())
    assert 0 < state["read"] < 80_000
    found = gcws_search.dedupe(tmp_path / "a.npy", tmp_path / "out", min_score=0.9999)
    assert (found.rows, found.removed >= 5000) == (80_000, True)
    assert column(tmp_path / "out", "removed", "row")[-5000:] == [*range(75_000, 80_000)]


@pytest.fixture
def lines(rng: np.random.Generator, tmp_path: Path) -> Path:
    return write_lines(tmp_path / "a.ndjson", texts(rng, 30))


@pytest.mark.skipif(sys.platform != "linux", reason="names of open files are told by /proc")
def test_what_a_restart_goes_on_with_is_on_the_disk(
    lines: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[str](), os.fsync

    def note(file: int) -> None:
        synced.add(Path(os.readlink(f"/proc/self/fd/{file}")).name.partition("-")[0])
        sync(file)

    monkeypatch.setattr(os, "fsync", note)
    gcws_search.dedupe(lines, tmp_path / "out", min_score=0.5, choices=Choices(text="body"))
    rows = {"indptr", "slots", "values", "norms", "ids", "id_borders", "numbers"}
    assert synced >= rows | {"state.part", "keys", "roots"}


def test_a_disk_that_takes_no_more_is_named_and_the_same_call_goes_on(
    rng: np.random.Generator, tmp_path: Path
) -> None:
    """No file may grow beyond a size: first that of the rows, then that of their keys."""
    rows = [{"vector": {"names": [f"n{row}"], "values": [1]}} for row in rng.integers(9, size=400)]
    (tmp_path / "a.ndjson").write_text("\n".join(map(json.dumps, rows)))
    words = tmp_path / "a.ndjson", "--min-score=0.9", "-o"
    out, whole = tmp_path / "out", tmp_path / "whole"
    call(*words, whole)  # first: modules that are compiled are files, too
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for size in (2_000, 6_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
        try:
            said = call(*words, out, code=1)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert f"gcws-search: {out}: File too large" in " ".join(said.split())
        assert not [*out.rglob("keys-*.part")]
    assert json.loads((out / ".work" / "state.json").read_text())["done"]
    call(*words, out)
    for name in ("groups", "kept", "removed"):
        one, other = (pq.read_table(each / f"{name}.parquet") for each in (out, whole))
        assert one.equals(other), name


def test_what_a_library_prints_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    """Ray does so where a node is lost."""
    with steps():
        print("a node is lost")  # noqa: T201
    assert capsys.readouterr() == ("", "a node is lost\n")


def test_what_is_refused_leaves_nothing(lines: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    text = "--text", "body"
    two, three = (tmp_path / f"{count}.npy" for count in (2, 3))
    for count, path in ((2, two), (3, three)):
        np.save(path, np.ones((4, count)))
    for words, said in [
        ((two, three, "--min-score", 0.5), f"{three}: expected vectors of 2 values as in {two}"),
        ((lines, *text, "--min-score", 1.5), "min_score: expected above 0 and at most 1, got 1.5"),
        ((lines, *text, "--min-score", 0.5, "--recall", 1), "recall: expected above 0 and below 1"),
        ((lines, "--text", "nobody", "--min-score", 0.5), "expected a column 'nobody'"),
        (
            (lines, *text, "--ngrams", "17", "--min-score", 0.5),
            "ngrams: expected two whole numbers",
        ),
        ((tmp_path, two, "--min-score", 0.5), f"{two}: expected each file once, got it twice"),
        ((tmp_path / "none", "--min-score", 0.5), "expected a file, got no file of that name"),
        (("-", "--min-score", 0.5), "standard input: expected files"),
    ]:
        assert said in " ".join(call(*words, "-o", out, code=1).split())
        assert not out.exists()
    assert "expected a size such as 512M" in call(
        lines, *text, "--min-score", 0.5, "--memory", "lots", "-o", out, code=2
    )
    out.mkdir()
    (out / "mine.txt").write_text("of somebody else")
    said = call(lines, *text, "--min-score", 0.5, "-o", out, code=1)
    assert "expected a new folder" in said
    assert [each.name for each in out.iterdir()] == ["mine.txt"]


def test_a_cluster_of_ray_that_is_not_there_is_told(lines: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = lines, "--text", "body", "--min-score", 0.5, "--ray", "127.0.0.1:1"
    said = call(*words, "-o", tmp_path / "out", code=1)
    assert "cannot join Ray" in " ".join(said.split())
    assert not (tmp_path / "out").exists()


def test_another_search_is_not_laid_over_one(lines: Path, tmp_path: Path) -> None:
    out, text = tmp_path / "out", ("--text", "body")
    call(lines, *text, "--min-score", 0.5, "-o", out)
    before = (out / "report.json").read_bytes()
    assert "has other contents" in call(lines, *text, "--min-score", 0.6, "-o", out, code=1)
    assert (out / "report.json").read_bytes() == before


@pytest.mark.parametrize("name", ["groups", "kept", "removed", "rejected"])
def test_a_result_that_lacks_a_file_is_made_again(tmp_path: Path, name: str) -> None:
    out = tmp_path / "out"
    write_lines(tmp_path / "a.ndjson", ["a b c", "...", "a b c", "d e"])
    words = tmp_path / "a.ndjson", "--text", "body", "--min-score", 0.5, "--on-error", "skip"
    call(*words, "-o", out, code=3)
    before = {path.name: path.read_bytes() for path in out.iterdir() if path.name != "report.json"}
    [lost] = out.glob(f"{name}.*")
    lost.unlink()
    call(*words, "-o", out, code=3)
    after = {path.name: path.read_bytes() for path in out.iterdir() if path.name != "report.json"}
    assert after == before


@pytest.mark.parametrize("place", ["report.json", ".work/state.json"])
@pytest.mark.parametrize("content", ['{"rows": 3}', "[1]", "", '{"key": ', "\udcff"])
def test_a_folder_of_another_program_is_refused(
    lines: Path, tmp_path: Path, place: str, content: str
) -> None:
    path = tmp_path / "out" / place
    path.parent.mkdir(parents=True)
    path.write_text(content, "utf-8", "surrogateescape")
    words = lines, "--text", "body", "--min-score", 0.5, "-o", tmp_path / "out"
    assert "has other contents" in call(*words, code=1)
    assert path.read_text("utf-8", "surrogateescape") == content


def test_bad_rows_stop_or_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.ndjson"
    rows = ["a b c", "...", "a b c", "d e"]
    write_lines(path, rows)
    said = call(path, "--text", "body", "--min-score", 0.5, "-o", tmp_path / "out", code=1)
    assert "a.ndjson: row 1: expected" in " ".join(said.split())
    assert not (tmp_path / "out").exists()
    words = "--text", "body", "--min-score", 0.5, "--on-error", "skip", "-o", tmp_path / "out"
    assert "1 left out" in call(path, *words, code=3)
    assert groups_in(tmp_path / "out") == {("t0", "t2")}
    assert column(tmp_path / "out", "kept", "row") == [0, 3]
    [line] = (tmp_path / "out" / "rejected.ndjson").read_text().splitlines()
    rejected = json.loads(line)
    assert (rejected["file"], rejected["row"]) == (str(path), 1)
    assert rejected["detail"].startswith("row 1: expected a text")
    other = tmp_path / "b.npy"
    np.save(other, np.ones((2, 3), np.float32))
    said = call(path, other, *words[:-1], tmp_path / "both", code=1)
    assert "b.npy: expected" in said
    assert not (tmp_path / "both").exists()


@pytest.mark.parametrize("on_error", ["stop", "skip"])
def test_rows_that_lack_a_number_are_counted_and_leave_their_number(
    tmp_path: Path, on_error: str
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,a,b\nx,1,2\nnone,,3\ny,1,2\nalso,1,\nz,5,1\n")
    words = "--missing", "drop", "--on-error", on_error, "--min-score", 0.9
    said = call(path, *words, "-o", tmp_path / "out")
    assert "3 rows, 2 left out for missing numbers: 2 kept, 1 removed" in said
    assert "--payload" not in said
    assert column(tmp_path / "out", "kept", "row") == [0, 4]
    assert column(tmp_path / "out", "removed", "row") == [2]
    assert json.loads((tmp_path / "out" / "report.json").read_text())["dropped"] == 2


def test_rows_left_out_for_missing_numbers_leave_theirs_in_each_batch(tmp_path: Path) -> None:
    count = 5000  # more rows than are read at once
    numbers = [None if row % 2 else 1.0 + row for row in range(count)]
    pq.write_table(pa.table({"x": numbers, "y": np.ones(count)}), tmp_path / "a.parquet")
    out, choices = tmp_path / "out", Choices(missing="drop")
    found = gcws_search.dedupe(tmp_path / "a.parquet", out, min_score=0.99999, choices=choices)
    assert (found.rows, found.dropped) == (count // 2, count // 2)
    rows = column(out, "kept", "row") + column(out, "removed", "row")
    assert sorted(rows) == [*range(0, count, 2)]
