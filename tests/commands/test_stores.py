"""Commands with addresses of an object store: sources, results, snapshots; kills within."""

import errno
import gzip
import hashlib
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import gcws_search
from gcws_search.client.snapshot_store import SnapshotStore
from gcws_search.commands.app import app
from gcws_search.formats.files import BadFile
from gcws_search.formats.stores import StoreFailed, place_of, stored_path
from tests.commands.conftest import Bench, lines
from tests.support.documents import curl
from tests.support.documents.markdown import DOCS
from tests.support.paths import REPOSITORY
from tests.support.service.ports import free_port

pytest.importorskip("moto.server", reason="moto, of the extra `test`, is the S3 server")

from tests.support.object_store import ObjectStore, Request, object_store

PLANTS = [{"id": f"p{number}", "vector": [number + 1.0, 1.0, 2.0]} for number in range(6)]
LINES = b"".join(json.dumps(each).encode() + b"\n" for each in PLANTS)


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with object_store() as store:
        store.system.create_dir(store.bucket)
        yield store


@pytest.fixture
def store(running: ObjectStore) -> ObjectStore:
    running.system.delete_dir_contents(running.bucket)
    return running


def parquet(first: int, count: int) -> bytes:
    rng = np.random.default_rng(first)
    rows = rng.random((count, 4)).astype(np.float32)
    rows[1::2] = rows[::2]
    ids = [f"r{first + row}" for row in range(count)]
    table = {"id": pa.array(ids), **{f"x{at}": pa.array(rows[:, at]) for at in range(4)}}
    stream = io.BytesIO()
    pq.write_table(pa.table(table), stream, row_group_size=max(1, count // 2))
    return stream.getvalue()


def array() -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.eye(6))
    return stream.getvalue()


def archive() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, X=np.eye(6), y=np.arange(6))
    return stream.getvalue()


def arrow(stream_kind: bool) -> bytes:
    table = pq.read_table(io.BytesIO(parquet(0, 6)))
    stream = io.BytesIO()
    writer = pa.ipc.new_stream if stream_kind else pa.ipc.new_file
    with writer(stream, table.schema) as written:
        written.write_table(table)
    return stream.getvalue()


FILES = {
    "a.ndjson": LINES,
    "a.ndjson.gz": gzip.compress(LINES),
    "a.csv": b"id,a,b\n1,0.5,2\n2,1,2\n3,4,1\n4,1,1\n5,1,2\n6,2,1\n",
    "a.parquet": parquet(0, 6),
    "a.parquet.gz": gzip.compress(parquet(0, 6)),
    "a.arrow": arrow(stream_kind=False),
    "stream": arrow(stream_kind=True),
    "a.npy": array(),
    "a.npz": archive(),
    "a.svm": b"".join(b"%d 1:1 %d:2\n" % (row, row + 2) for row in range(6)),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_store_is_loaded_as_one_of_a_disk(
    bench: Bench, store: ObjectStore, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    local = CliRunner().invoke(app, ["load", str(tmp_path / name), "--into", "x", "--dry-run"])
    address = store.put(f"in/{name}", FILES[name])
    shown = bench.call("load", address, "--into", "plants", "--dry-run")
    assert shown.stdout == local.stdout
    assert shown.stderr.splitlines()[0] == address
    assert shown.stderr.splitlines()[1:] == local.stderr.splitlines()[1:]
    [done] = lines(bench.call("load", address, "--into", "plants", "--json"))
    assert (done["inserted"], done["files"][0]["file"]) == (6, address)
    assert len(bench.plants) == 6


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_of_a_store_is_one_table(bench: Bench, store: ObjectStore, kind: str) -> None:
    data = parquet(0, 4), parquet(4, 4)
    if kind == "csv":
        data = b"id,a,b\n1,1,2\n2,1,3\n3,2,2\n4,1,1\n", b"id,a,b\n5,1,2\n6,3,1\n7,1,1\n8,2,1\n"
    for year, each in zip((2024, 2025), data, strict=True):
        store.put(f"in/year={year}/part.{kind}", each)
    store.put("in/_SUCCESS", b"x")
    bench.call("load", store.address("in"), "--into", "plants")
    assert len(bench.plants) == 8
    assert bench.plants.count(where={"must": [{"key": "year", "match": {"value": 2025}}]}) == 4


def test_files_of_several_formats_are_loaded_one_by_one(bench: Bench, store: ObjectStore) -> None:
    store.put("in/a.svm", FILES["a.svm"])
    store.put("in/b.ndjson", b'{"id": "b", "vector": {"indices": [1, 9], "values": [1, 2]}}\n')
    words = ["--into", "plants", "--dim", "open", "--json"]
    [done] = lines(bench.call("load", store.address("in/"), *words))
    assert [each["file"] for each in done["files"]] == [
        store.address("in/a.svm"), store.address("in/b.ndjson"),
    ]  # fmt: skip
    assert len(bench.plants) == 7


def test_an_object_that_changed_is_loaded_again(bench: Bench, store: ObjectStore) -> None:
    """Its size is the same, and so may be the second of its last change."""
    address = store.put("a.ndjson", LINES)
    again = ["load", address, "--into", "plants", "--json"]
    assert lines(bench.call(*again))[0]["inserted"] == 6
    assert lines(bench.call(*again))[0]["inserted"] == 0
    store.put("a.ndjson", LINES.replace(b'"p', b'"q'))
    assert lines(bench.call(*again))[0]["inserted"] == 6
    for name in ("a", "b"):
        store.put(f"in/{name}.csv", b"id,a,b,c\nr%s,1,2,3\n" % name.encode())
    folder = ["load", store.address("in"), "--into", "plants", "--json"]
    assert [lines(bench.call(*folder))[0]["inserted"] for _ in range(2)] == [2, 0]
    store.put("in/b.csv", b"id,a,b,c\nrx,1,2,3\n")
    assert lines(bench.call(*folder))[0]["inserted"] == 1


def test_rejected_rows_of_an_object_are_written_here(
    bench: Bench, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = store.put("in/a.ndjson", LINES + b"{]\n")
    bench.call("load", address, "--into", "plants", "--on-error", "skip", code=3)
    assert (tmp_path / "a.ndjson.rejected.ndjson").read_text().count("\n") == 1


def test_rows_of_an_object_are_joined(bench: Bench, store: ObjectStore) -> None:
    address = store.put("a.ndjson", LINES)
    bench.call("load", address, "--into", "plants")
    found = lines(bench.call("join", address, "--with", "plants", "--min-score", "1", "--json"))
    assert len([each for each in found if "to" in each]) == 6


def test_an_address_of_a_file_is_its_path(tmp_path: Path) -> None:
    assert place_of(f"file://{tmp_path}/a%20b") == tmp_path / "a b"


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://corpus/none.csv", "expected a file, got no file of that name"),
        ("s3://none/a.csv", "expected a file, got no file of that name"),
        ("s4://corpus/a.csv", "expected an address of s3://, gs://, abfs:// or file://"),
        ("s3://", "expected s3://BUCKET/KEY, got no bucket"),
        ("s3://corpus/a?speed=2", "Unexpected query parameter in S3 URI: 'speed'"),
        ("s3://me:a-password@corpus/a b", "Cannot parse URI"),
    ],
)
def test_what_is_wrong_with_an_address_is_one_sentence(
    store: ObjectStore, tmp_path: Path, address: str, words: str
) -> None:
    place = ["-o", str(tmp_path / "out"), "--min-score", "0.8"]
    done = CliRunner(env=store.variables).invoke(app, ["dedupe", address, *place])
    assert done.exit_code == 1
    [line] = done.stderr.splitlines()
    shown = address.partition("?")[0].replace("me:a-password@", "").rstrip("/")
    assert line.startswith(f"gcws-search: {shown}: ")
    assert words in line
    assert "a-password" not in line


def test_dedupe_reads_a_store_as_it_reads_a_disk(store: ObjectStore, tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 30)):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{name}.parquet").write_bytes(parquet(first, 30))
        store.put(f"in/{name}.parquet", parquet(first, 30))
    local = gcws_search.dedupe(tmp_path / "in", tmp_path / "local", min_score=0.9)
    found = gcws_search.dedupe(store.address("in"), tmp_path / "out", min_score=0.9)
    assert (found.rows, found.removed, found.groups) == (60, local.removed, local.groups)
    groups = pq.read_table(tmp_path / "out" / "groups.parquet").drop_columns(["file"])
    assert groups.equals(pq.read_table(tmp_path / "local" / "groups.parquet").drop_columns("file"))
    files = pq.read_table(tmp_path / "out" / "kept.parquet")["file"].to_pylist()
    assert {*files} == {store.address(f"in/{name}.parquet") for name in "ab"}
    assert gcws_search.dedupe(store.address("in"), tmp_path / "out", min_score=0.9) == found
    store.put("in/b.parquet", parquet(31, 30))
    with pytest.raises(gcws_search.InvalidParameter, match="has other contents"):
        gcws_search.dedupe(store.address("in"), tmp_path / "out", min_score=0.9)


# Snapshots


ROWS = [[row + 1, 1, 2] for row in range(400)]


@pytest.fixture
def plants(bench: Bench) -> Iterator[gcws_search.Collection]:
    """Yield a collection of 400 items; remove the snapshots of it, which outlive it."""
    items = bench.server.collection("plants", dim=3)
    items.add(ROWS)
    yield items
    for each in bench.server.snapshots("plants").list():
        bench.server.snapshots("plants").delete(each["name"])


@pytest.fixture
def long_plants(plants: gcws_search.Collection) -> None:
    """Make the collection one whose snapshot is sent in several parts."""
    plants.add(ROWS, id_start=0, payloads={"text": [os.urandom(20_000).hex() for _ in ROWS]})


@pytest.mark.usefixtures("plants")
def test_a_snapshot_is_restored_from_a_store(bench: Bench, store: ObjectStore) -> None:
    place = store.address("backups")
    none = bench.call("snapshot", "list", "plants", "--from", place)
    assert "`gcws-search snapshot create plants --to ADDRESS` makes one" in none.stderr
    [made] = lines(bench.call("snapshot", "create", "plants", "--to", place, "--json"))
    name = made["name"]
    assert lines(bench.call("snapshot", "list", "plants", "--from", place, "--json")) == [made]
    stored = store.get(f"backups/plants/{name}.sqlite")
    assert hashlib.sha256(stored).hexdigest() == made["sha256"]
    assert bench.server.snapshots("plants").copy_to(name, place) == made
    bench.server.snapshots("plants").delete(name)
    bench.server.drop("plants")
    words = ["snapshot", "restore", "plants", name, "--from", place]
    assert bench.call(*words).stdout == "plants: 400 items\n"
    assert "--replace replaces it" in bench.call(*words, code=1).stderr
    assert bench.call(*words, "--replace").stdout == "plants: 400 items\n"
    missing = bench.call("snapshot", "restore", "plants", "other", "--from", place, code=1)
    assert "got no file of that name" in missing.stderr
    bench.call("snapshot", "delete", "plants", name, "--from", place)
    assert store.names() == []


@pytest.mark.usefixtures("plants")
def test_the_latest_snapshots_are_kept_in_the_store(bench: Bench, store: ObjectStore) -> None:
    place = store.address("backups")
    create = ["snapshot", "create", "plants", "--to", place, "--json"]
    made = [lines(bench.call(*create, "--keep", "2"))[0] for _ in range(3)]
    for where in ([], ["--from", place]):
        assert lines(bench.call("snapshot", "list", "plants", *where, "--json")) == made[1:]
    assert len(store.names()) == 4


@pytest.mark.usefixtures("plants")
def test_a_folder_takes_snapshots_as_a_store_does(bench: Bench, tmp_path: Path) -> None:
    place = str(tmp_path / "backups")
    [made] = lines(bench.call("snapshot", "create", "plants", "--to", place, "--json"))
    assert lines(bench.call("snapshot", "list", "plants", "--from", place, "--json")) == [made]
    bench.server.snapshots("plants").delete(made["name"])
    words = ["snapshot", "restore", "plants", made["name"], "--from", f"file://{place}"]
    assert bench.call(*words, "--replace").stdout == "plants: 400 items\n"
    assert sorted(each.suffix for each in (tmp_path / "backups" / "plants").iterdir()) == [
        ".json", ".sqlite",
    ]  # fmt: skip


@pytest.mark.usefixtures("plants")
def test_a_damaged_snapshot_of_a_store_is_refused(bench: Bench, store: ObjectStore) -> None:
    place = store.address("backups")
    [made] = lines(bench.call("snapshot", "create", "plants", "--to", place, "--json"))
    bench.server.snapshots("plants").delete(made["name"])
    key = f"backups/plants/{made['name']}"
    data = bytearray(store.get(f"{key}.sqlite"))
    data[len(data) // 2] ^= 1
    store.put(f"{key}.sqlite", bytes(data))
    words = ["snapshot", "restore", "plants", made["name"], "--from", place, "--replace"]
    assert "expected the SHA-256" in bench.call(*words, code=1).stderr
    assert bench.server.snapshots("plants").list() == []
    store.put(f"{key}.json", b"{")
    assert "expected the description of a snapshot" in bench.call(*words, code=1).stderr
    assert len(bench.plants) == 400


def test_a_snapshot_shorter_than_was_told_is_not_listed_and_no_other_takes_its_name(
    tmp_path: Path,
) -> None:
    store = SnapshotStore(str(tmp_path), "plants")
    told = {"name": "one", "bytes": 10, "sha256": "0" * 64, "created": "2026-01-01T00:00:00Z"}
    with pytest.raises(StoreFailed, match="expected 10 bytes, got 4"):
        store.write(told, lambda: [b"four"])
    assert store.list() == []
    store.write(told, lambda: [b"ten", b" bytes.", b""])
    assert [each["name"] for each in store.list()] == ["one"]
    other = told | {"sha256": "1" * 64}
    with pytest.raises(StoreFailed, match=f"SHA-256 {'1' * 64}, got one of {'0' * 64}"):
        store.write(other, lambda: [b"other byte"])
    assert store.list() == [told]


def test_nothing_is_made_for_a_store_that_does_not_answer(
    bench: Bench, plants: gcws_search.Collection
) -> None:
    address = f"s3://corpus/a?region=x&endpoint_override=http://127.0.0.1:{free_port()}"
    done = bench.call("snapshot", "create", "plants", "--to", address, code=1)
    [line] = done.stderr.splitlines()
    assert line.startswith("gcws-search: s3://corpus/a/plants")
    assert "AWS_ENDPOINT_URL or ?endpoint_override= another server" in line
    assert bench.server.snapshots(plants.name).list() == []


def kill_when_held(
    store: ObjectStore, is_held: Callable[[Request], bool], *words: str, url: str = ""
) -> None:
    """Kill a command as soon as it waits for a request of a kind."""
    command = [sys.executable, "-m", "gcws_search", *words]
    variables = os.environ | store.variables | ({"GCWS_URL": url} if url else {})
    with (
        store.holding(is_held) as reached,
        subprocess.Popen(command, cwd=REPOSITORY, env=variables) as running,
    ):
        assert reached.wait(60)
        running.kill()


def is_second_part(request: Request) -> bool:
    return "partNumber=2" in request["QUERY_STRING"]


def is_far_read(suffix: str) -> Callable[[Request], bool]:
    """Return what knows a request for bytes that are not the first ones of such an object."""

    def found(request: Request) -> bool:
        place = request.get("HTTP_RANGE", "bytes=0-")
        return bool(request["PATH_INFO"].endswith(suffix)) and not place.startswith("bytes=0-")

    return found


@pytest.mark.usefixtures("long_plants")
def test_an_upload_that_is_killed_leaves_nothing_to_see(
    bench: Bench, store: ObjectStore, url: str
) -> None:
    place = store.address("backups")
    words = ["snapshot", "create", "plants", "--to", place, "--keep", "1"]
    kill_when_held(store, is_second_part, *words, url=url)
    assert store.names() == []
    assert lines(bench.call("snapshot", "list", "plants", "--from", place, "--json")) == []
    [made] = lines(bench.call(*words, "--json"))
    assert lines(bench.call("snapshot", "list", "plants", "--from", place, "--json")) == [made]
    assert bench.server.snapshots("plants").list() == [made]


@pytest.mark.usefixtures("plants")
def test_an_upload_that_ends_before_its_description_is_not_listed(
    bench: Bench, store: ObjectStore, url: str
) -> None:
    place = store.address("backups")
    words = ["snapshot", "create", "plants", "--to", place]

    def is_description(request: Request) -> bool:
        return bool(request["PATH_INFO"].endswith(".json")) and is_write(request)

    kill_when_held(store, is_description, *words, url=url)
    [left] = store.names()
    assert left.endswith(".sqlite")
    assert lines(bench.call("snapshot", "list", "plants", "--from", place, "--json")) == []
    name = Path(left).stem
    refused = bench.call("snapshot", "restore", "plants", name, "--from", place, code=1)
    assert f"expected {place}/plants/{name}.json, got no file of that name" in refused.stderr


@pytest.mark.usefixtures("long_plants")
def test_a_restore_that_is_killed_goes_on(bench: Bench, store: ObjectStore, url: str) -> None:
    place = store.address("backups")
    [made] = lines(bench.call("snapshot", "create", "plants", "--to", place, "--json"))
    bench.server.snapshots("plants").delete(made["name"])
    bench.server.drop("plants")
    words = ["snapshot", "restore", "plants", made["name"], "--from", place]
    kill_when_held(store, is_far_read(".sqlite"), *words, url=url)
    assert bench.server.snapshots("plants").list() == []
    assert bench.server.collections() == []
    assert bench.call(*words).stdout == "plants: 400 items\n"


def test_a_dedupe_that_is_killed_goes_on(store: ObjectStore, tmp_path: Path) -> None:
    for name, first in (("a", 0), ("b", 30)):
        store.put(f"in/{name}.ndjson", vectors_of(first))
    words = [store.address("in"), "-o", str(tmp_path / "out"), "--min-score", "0.9"]
    kill_when_held(store, is_second_open("b.ndjson"), "dedupe", *words)
    assert not (tmp_path / "out" / "report.json").exists()
    state = json.loads((tmp_path / "out" / ".work" / "table" / "state.json").read_text())
    assert state["files"] == 1
    whole = gcws_search.dedupe(store.address("in"), tmp_path / "whole", min_score=0.9)
    done = CliRunner(env=store.variables).invoke(app, ["dedupe", *words, "--json"])
    assert json.loads(done.stdout)["groups"] == whole.groups == 30
    for name in ("groups", "kept", "removed"):
        assert pq.read_table(tmp_path / "out" / f"{name}.parquet").equals(
            pq.read_table(tmp_path / "whole" / f"{name}.parquet")
        )


@pytest.mark.parametrize("kind", ["ndjson", "parquet", "npy"])
def test_a_dedupe_goes_on_after_its_store_refused(
    store: ObjectStore, tmp_path: Path, kind: str
) -> None:
    store.put("in/a.ndjson", vectors_of(0))
    rows = pa.table({"id": ["x", "y"], "vector": [np.ones(8)] * 2})
    stream = io.BytesIO()
    if kind == "npy":
        np.save(stream, np.ones((2, 8)))
    else:
        pq.write_table(rows, stream)
    store.put(f"in/b.{kind}", vectors_of(30) if kind == "ndjson" else stream.getvalue())
    words = ["dedupe", store.address("in"), "-o", str(tmp_path / "out"), "--min-score", "0.9"]
    with store.refusing(is_second_open(f"b.{kind}")):
        refused = CliRunner(env=store.variables).invoke(app, words)
    assert refused.exit_code == 1
    last = refused.stderr.splitlines()[-1]
    assert last.startswith(f"gcws-search: {store.address(f'in/b.{kind}')}: ")
    assert "ACCESS_DENIED" in last
    assert "AWS_ACCESS_KEY_ID" in last
    state = json.loads((tmp_path / "out" / ".work" / "table" / "state.json").read_text())
    assert state["files"] == 1
    done = CliRunner(env=store.variables).invoke(app, [*words, "--json"])
    assert json.loads(done.stdout)["rows"] == (60 if kind == "ndjson" else 32)


@pytest.mark.parametrize("kind", ["ndjson", "csv"])
def test_an_object_that_changes_while_it_is_read_is_told(
    store: ObjectStore, tmp_path: Path, kind: str
) -> None:
    """Rows of one and of the other are no result; those of the other alone are."""

    def data(first: int) -> bytes:
        return vectors_of(first) if kind == "ndjson" else b"a,b,c\n%d,2,3\n" % (first + 1)

    address = store.put(f"in/a.{kind}", data(0))
    given = store.address("in") if kind == "csv" else address  # a folder is a table
    changed: list[str] = []

    def change(_word: str, _share: float | None) -> None:
        if not changed:
            changed.append(store.put(f"in/a.{kind}", data(30)))

    with pytest.raises(BadFile, match=f"a.{kind}: expected the same file until the end"):
        gcws_search.dedupe(given, tmp_path / "out", min_score=0.9, progress=change)
    assert changed
    assert not (tmp_path / "out").exists()
    gcws_search.dedupe(given, tmp_path / "out", min_score=0.9, progress=change)


def test_a_result_is_copied_to_a_store_with_its_report_last(
    store: ObjectStore, tmp_path: Path
) -> None:
    words = [store.put("in/a.ndjson", vectors_of(0)), "-o", str(tmp_path / "out")]
    words += ["--to", store.address("out"), "--min-score"]

    def is_last(request: Request) -> bool:
        return bool(request["PATH_INFO"].endswith("removed.parquet")) and is_write(request)

    kill_when_held(store, is_last, "dedupe", *words, "0.9")
    assert "out/report.json" not in store.names()
    done = CliRunner(env=store.variables).invoke(app, ["dedupe", *words, "0.9", "--json"])
    assert json.loads(done.stdout)["groups"] == 15
    names = ("groups.parquet", "kept.parquet", "removed.parquet", "report.json")
    assert [store.get(f"out/{name}") for name in names] == [
        (tmp_path / "out" / name).read_bytes() for name in names
    ]
    words[2] = str(tmp_path / "other")
    other = CliRunner(env=store.variables).invoke(app, ["dedupe", *words, "0.8"])
    assert other.exit_code == 1
    assert "which has another result" in other.stderr
    assert not (tmp_path / "other").exists()


def is_write(request: Request) -> bool:
    return request["REQUEST_METHOD"] in ("PUT", "POST")


def vectors_of(first: int) -> bytes:
    """Return rows, every second of which is the one before it."""
    vectors = np.random.default_rng(first).random((15, 8)).repeat(2, axis=0).tolist()
    rows = [{"id": first + row, "vector": vector} for row, vector in enumerate(vectors)]
    return b"".join(json.dumps(each).encode() + b"\n" for each in rows)


def is_second_open(suffix: str) -> Callable[[Request], bool]:
    """Return what knows a request for the bytes of such an object but the first one."""
    seen: list[str] = []

    def found(request: Request) -> bool:
        if request["PATH_INFO"].endswith(suffix) and request["REQUEST_METHOD"] == "GET":
            seen.append(request["PATH_INFO"])
        return len(seen) > 1

    return found


# The page


def test_the_commands_of_the_page_answer_as_it_says(
    bench: Bench, store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    coffees = b"id,acid,body,sweet\na,2,1,1\nb,1,2,1\nc,1,1,2\nd,2,2,1\n"
    store.put("coffees.csv", coffees)
    texts = ["one of the first", "of the first one", "another text", "and the last"]
    rows = [{"id": str(row), "body": text} for row, text in enumerate(texts)]
    store.put("texts/a.jsonl", b"".join(json.dumps(each).encode() + b"\n" for each in rows))
    for step in curl.steps((DOCS / "object-storage.md").read_text()):
        backups = [each for each in store.names() if each.startswith("backups/")]
        stored = Path(backups[0]).stem if backups else "none"
        words = shlex.split(step.command.replace("NAME", stored))
        assert words[0] == "gcws-search"
        said = bench.call(*words[1:]).output
        shown = "\n".join(line.rstrip() for line in said.splitlines())
        shown = shown.replace(stored, "NAME") if "delete" in words else shown
        assert step.matches(shown), f"{step.command}\nanswered\n{shown}"
    assert store.get("unique/report.json") == (tmp_path / "unique" / "report.json").read_bytes()
    assert not [each for each in store.names() if each.startswith("backups/")]


def test_a_file_that_the_disk_has_not_taken_gets_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StoreFailed, match="Input/output error"):
        (stored_path(str(tmp_path)) / "within/file").write([b"some"])
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
