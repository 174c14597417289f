"""Vectors that were moved out of the database: who reads them, what ends that work, what stays."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import psycopg
import pytest
from typer.testing import CliRunner

from gcws_search import index as ix
from gcws_search.formats.stores import StoredPath, StoreFailed
from gcws_search.service.cluster.command import cli
from gcws_search.service.cluster.committer import Committer, PreparedChoice
from gcws_search.service.cluster.connections import Connection
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.names import free_names
from gcws_search.service.cluster.offload import offload, remove_useless
from gcws_search.service.cluster.segments import Segments
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.client import Client, Json, Serve
from tests.support.service.postgres import postgres
from tests.support.service.shards import (
    BUCKETS,
    KEY,
    QUICK,
    Start,
    Written,
    check_followed,
    contents,
    offload_all,
    put_of,
    replace_by_partitions,
    shards,
)
from tests.support.waiting import wait_until

SMALL = 24 * 9
"""Bytes of a segment of 9 vectors."""
RENAME = ix.PayloadChange(b'{"renamed":true}')


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "bases"


@pytest.fixture
def database(database_url: str, base: Path) -> Iterator[Database]:
    with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as database:
        yield database


def ids(number: int, first: int = 0) -> list[str]:
    return [f"i{place}" for place in range(first, first + number)]


def whole(database: Database, number: int) -> list[str]:
    """Return the ids of items whose vectors the database has."""
    with database.connections.use() as connection:
        found = connection.column(f"SELECT id FROM items_{number} WHERE vector IS NOT NULL")
    return sorted(each.decode() for each in found)


def files(base: Path) -> list[str]:
    """Return all files but those that say which databases need the others."""
    found = [each for each in base.rglob("*") if each.is_file() and each.parent.name != "uses"]
    return sorted(str(each.relative_to(base)) for each in found)


def listed(database: Database, which: str = "true") -> list[str]:
    with database.connections.use() as connection:
        return sorted(connection.column(f"SELECT file FROM segments WHERE {which}"))


def referred(database: Database, number: int) -> list[str]:
    refers = f"EXISTS (SELECT 1 FROM items_{number} WHERE segment = number AND vector IS NULL)"
    return listed(database, refers)


def grow_old(database: Database, interval: str = "8 days") -> None:
    """Let time pass since items referred to segments, and the process remove what it may."""
    with database.connections.use() as connection:
        connection.run(f"UPDATE segments SET unused = unused - interval '{interval}'")
    remove_useless(database)


def reads(database: Database, number: int, some: list[str]) -> list[Any]:
    with database.changes(number, range(0, BUCKETS, 2), None, 7) as (_, _, chunks, _):
        changes = [*chunks]
    every = contents(database, number)
    buckets: list[Any] = [
        database.bucket_rows(number, each, after="i2", limit=5, now_ms=0) for each in range(BUCKETS)
    ]
    return [
        changes,
        every,
        buckets,
        database.fetch(number, some),
        database.fetch(number, some[:1]),
        database.rows_by_key(number, [row.key for row in every.values()][::3]),
        database.page(number, after=3, limit=20, with_vector=True),
        database.page(number, after=3, limit=20, with_vector=False),
    ]


def check_reads(written: Written, start: Start) -> None:
    """Compare what is read before and after the vectors are moved, then write on."""
    database, number = written.database, written.number
    written.put_some(ids(60))
    before = reads(database, number, ids(9, 20))
    assert offload_all(database, SMALL) == 60
    assert whole(database, number) == []
    assert reads(database, number, ids(9, 20)) == before
    with start(2) as hosts:
        check_followed(hosts, written)
        written.put_some(ids(10, 55))
        written.delete(ids(3))
        written.committer.commit(PreparedChoice(change=RENAME, ids=["i30", "i58"]))
        [former] = [row for rows in before[0] for row in rows if row.id == "i30"] or [
            before[1]["i30"]
        ]
        row = database.fetch(number, ["i30"])["i30"]
        assert (row.vector, row.version) == (former.vector, 2)
        check_followed(hosts, written)
    assert whole(database, number) == sorted([*ids(10, 55), "i30"])


def test_all_is_read_as_before_its_vectors_were_moved(
    written: Written, start: Start, base: Path
) -> None:
    check_reads(written, start)
    assert files(base) == listed(written.database) == referred(written.database, written.number)
    assert len(files(base)) == 7


def test_vectors_are_read_from_an_object_store(database_url: str, tmp_path: Path) -> None:
    pytest.importorskip("moto.server", reason="moto, of the extra `test`, is the S3 server")
    from tests.support.object_store import object_store  # noqa: PLC0415

    with object_store() as store:
        store.system.create_dir(store.bucket)
        store.system.delete_dir_contents(store.bucket)
        with (
            closing(
                Database.open(database_url, buckets=BUCKETS, base=store.address("bases"))
            ) as database,
            closing(Written(database)) as written,
        ):
            check_reads(written, partial(shards, database, tmp_path))
            assert store.names() == [f"bases/{each}" for each in listed(database)]


def test_shards_move_vectors_once_bases_have_them(
    written: Written, start: Start, base: Path, tmp_path: Path
) -> None:
    database = written.database
    quick = replace(QUICK, base=str(base), base_rows=1, base_seconds=0.0, segment_bytes=SMALL)
    written.put_some(ids(40))
    with start(2, options=quick) as hosts:
        check_followed(hosts, written)
        wait_until(lambda: any("-of-2/" in each for each in files(base)))
    assert len(whole(database, written.number)) == 40
    with start(2, options=replace(quick, offload=True)) as hosts:
        wait_until(lambda: whole(database, written.number) == [])
        written.put_some(ids(3))
        check_followed(hosts, written)
        assert whole(database, written.number) == ids(3), "few changes came since"
        written.put_some(ids(60, 20))
        wait_until(lambda: whole(database, written.number) == [])
        assert [host.base_failures for host in hosts] == [0, 0]
        least, number = len(contents(database, written.number)) * 24, written.number
        wait_until(lambda: all(host.segment_bytes.get(number, 0) >= least for host in hosts))
    with shards(database, tmp_path / "new", 3) as hosts:
        check_followed(hosts, written)


def test_routers_answer_as_before(serve: Serve, database_url: str, base: Path) -> None:
    rng, url = np.random.default_rng(3), "/v1/collections/plants"
    client = serve(base=str(base))
    client.put(url, json={"dim": 5})
    rows = rng.integers(-2, 3, (80, 5)) + np.eye(5)[rng.integers(5, size=80)] * 6
    items = [{"id": str(n), "vector": v.tolist(), "payload": {"n": n}} for n, v in enumerate(rows)]
    assert client.put(f"{url}/items", json={"items": items}).status_code == 200

    def answers(client: Client) -> list[str]:
        asked: list[tuple[str, Json]] = [
            ("query", {"id": "7", "recall": 1, "with_vector": True}),
            ("pairs", {"min_score": 0.8, "recall": 1}),
            ("groups", {"min_score": 0.8, "recall": 1}),
            ("explain", {"a": {"id": "3"}, "b": {"id": "4"}}),
        ]
        found = [client.post(f"{url}/{path}", json=body) for path, body in asked]
        found += [
            client.get(f"{url}/items/7"),
            client.get(f"{url}/items", params={"limit": 100, "with_vector": True}),
            client.get(f"{url}/items", params={"limit": 100}),
        ]
        assert {each.status_code for each in found} == {200}
        return [each.text.partition(',"seconds"')[0] for each in found]

    before = answers(client)
    with closing(Database.open(database_url, buckets=8, base=str(base))) as database:
        assert offload_all(database, 20 * 16) == 80
    assert answers(client) == before
    snapshot = client.post(f"{url}/snapshots").json()["name"]
    assert client.post(f"{url}/transform/fit", json={"weights": "max"}).json()["items"] == 80
    for number in (3, 4):
        body = {"payload": {"renamed": number}}
        answer = client.request("PATCH", f"{url}/items/{number}", json=body)
        assert answer.status_code == 200, answer.text
    client = serve(base=str(base), shards=3)
    former, items = (json.loads(each[-2])["items"] for each in (before, answers(client)))
    assert [each["vector"] for each in items] == [
        *(each["vector"] for each in former if each["id"] not in {"3", "4"}),
        *(former[number]["vector"] for number in (3, 4)),
    ]
    assert client.post(f"{url}/snapshots/{snapshot}/restore?replace=true").status_code == 200
    assert answers(client) == before


def test_no_name_is_freed_that_a_moved_vector_has(database: Database) -> None:
    number = database.create("words", {"dim": None})[0].number
    committer = Committer(database, number, "words")
    database.reserve_names(number, [*"abcd"])
    for coordinate in range(4):
        put = put_of(f"i{coordinate}", names=[coordinate])
        committer.commit(replace(put, vectors=[str(coordinate).encode()]))
    assert offload_all(database) == 4
    committer.commit(PreparedChoice(ids=["i1"]))

    def coordinates(vectors: Any) -> ix.Int32s:  # noqa: ANN401
        return np.array([*map(int, vectors)], np.int32)

    assert free_names(database, number, coordinates, Event()) == 1
    assert [each.name for each in database.names(number)] == [*"acd"]


# What ends the work, and what goes on beside it


class Killed(BaseException):
    """Stands for the end of the process."""


class Steps:
    """Statements of a database and work on files, one of which is the last."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = -1
        wait, write, read = Connection.wait, StoredPath.write, StoredPath.open
        remove, steps = StoredPath.remove, self

        def waited(connection: Connection, *more: Any, **named: Any) -> Any:  # noqa: ANN401
            if steps.left == 0:
                connection.close()
                raise psycopg.OperationalError("it is gone")
            steps.left -= 1
            answer = wait(connection, *more, **named)
            if steps.left == 0:
                connection.close()  # it was told to, and nobody hears what became of it
                raise psycopg.OperationalError("it is gone")
            steps.left -= 1
            return answer

        def written(place: StoredPath, pieces: Any) -> int:  # noqa: ANN401
            steps.take()
            count = write(place, pieces)
            steps.take()
            return count

        def opened(place: StoredPath, mode: str = "rb") -> Any:  # noqa: ANN401
            steps.take()
            return read(place, mode)

        def removed(place: StoredPath) -> None:
            steps.take()
            remove(place)
            steps.take()

        monkeypatch.setattr(Connection, "wait", waited)
        monkeypatch.setattr(StoredPath, "write", written)
        monkeypatch.setattr(StoredPath, "open", opened)
        monkeypatch.setattr(StoredPath, "remove", removed)

    def take(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1


def test_nothing_is_lost_whenever_the_work_ends(
    written: Written, database_url: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, database = written.number, written.database
    written.put_some(ids(40))
    assert offload_all(database, SMALL) == 40
    steps, expected, kills = Steps(monkeypatch), contents(database, number), 0
    for last in count(step=3):
        # Of some segments little is used now.
        written.put_some(ids(13, 13 * (last % 3)))
        expected = contents(database, number)
        with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as own:
            own.count(number)
            steps.left = last
            try:
                with suppress(Killed, StoreUnavailable):
                    offload_all(own, SMALL)
                    grow_old(own)
            finally:
                is_whole, steps.left = steps.left > 0, -1
        assert contents(database, number) == expected
        assert {*referred(database, number)} <= {*files(base)}
        with database.connections.use() as connection:
            connection.run("DELETE FROM bases")
        if is_whole:
            break
        kills += 1
    assert kills > 30
    offload_all(database, SMALL)
    grow_old(database)
    assert contents(database, number) == expected
    assert files(base) == listed(database) == referred(database, number)


def test_segments_are_in_use_whatever_key_the_bases_have(written: Written, base: Path) -> None:
    """The work was killed, and goes on for shards of another number, whose bases are older."""
    written.put_some(ids(40))
    database, number = written.database, written.number
    before = contents(database, number)

    def end() -> None:
        if len(referred(database, number)) == 3:
            raise Killed

    with pytest.raises(Killed):
        offload_all(database, SMALL, end)
    assert offload_all(database, SMALL, last=15) > 0
    grow_old(database)
    assert contents(database, number) == before
    assert len(referred(database, number)) > 3
    assert {*referred(database, number)} <= {*files(base)}


def test_no_item_refers_to_a_file_that_is_not_what_was_written(
    written: Written, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(ids(40))
    before, write = contents(written.database, written.number), StoredPath.write

    def written_otherwise(place: StoredPath, pieces: Any) -> int:  # noqa: ANN401
        return write(place, (each[:-1] for each in pieces))

    with monkeypatch.context() as patched:
        patched.setattr(StoredPath, "write", written_otherwise)
        with pytest.raises(ix.DamagedFile, match="SHA-256"):
            offload_all(written.database)
    assert len(whole(written.database, written.number)) == 40
    assert files(base) == []
    assert offload_all(written.database) == 40
    assert contents(written.database, written.number) == before


def test_what_is_written_meanwhile_stays(written: Written) -> None:
    """Items are replaced, changed and deleted at each step."""
    written.put_some(ids(40))
    database, steps = written.database, count()

    def write() -> None:
        step = next(steps)
        if step < 12:
            written.put_some([f"i{step}", f"new{step}"])
            written.delete([f"i{39 - step}"])
            change = PreparedChoice(change=RENAME, ids=[f"i{20 + step % 3}"])
            written.committer.commit(change)

    offload_all(database, SMALL, write)
    assert next(steps) > 12
    found = contents(database, written.number)
    assert {*found} == {*ids(28), *(f"new{step}" for step in range(12))}
    space, node = written.node.space, written.node
    for item_id, row in found.items():
        assert space.to_json(space.from_blobs([row.vector]), 0) == node.get(item_id).vector
    assert {row.id for row in found.values() if b"renamed" in (row.payload or b"")} == {*ids(3, 20)}
    assert {*whole(database, written.number)} >= {*ids(12), *ids(3, 20)}


def test_the_work_ends_once_its_collection_is_dropped(written: Written) -> None:
    database, left, dropped = written.database, 0, count()

    def drop() -> None:
        if next(steps) == left:
            database.drop(number)
            next(dropped)

    for left in count():  # steps until then
        number, steps = database.create(f"c{left}", {"dim": 6})[0].number, count()
        Committer(database, number, "").commit(put_of(*ids(40)))
        try:
            assert offload_all(database, SMALL, drop) == 40
        except ix.CollectionNotFound:
            continue
        break
    assert next(dropped) > 8


def test_other_writes_go_on_while_a_change_of_a_payload_reads_a_segment(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(ids(4))
    offload_all(written.database)
    before, begun, may_read = contents(written.database, written.number), Event(), Event()
    read = StoredPath.read_range

    def read_late(place: StoredPath, start: int, size: int) -> bytes:
        begun.set()
        assert may_read.wait(10)
        return read(place, start, size)

    with monkeypatch.context() as patched, ThreadPoolExecutor(1) as pool:
        patched.setattr(StoredPath, "read_range", read_late)
        change = PreparedChoice(change=RENAME, ids=["i0", "i1"])
        changed = pool.submit(written.committer.commit, change)
        begun.wait(10)
        written.put_some(["new", "i0"])
        assert not changed.done()
        may_read.set()
        assert changed.result() == 2
    found = contents(written.database, written.number)
    assert [found[each].version for each in ("i0", "i1")] == [3, 2]
    assert all(b"renamed" in (found[each].payload or b"") for each in ("i0", "i1"))
    assert found["i1"].vector == before["i1"].vector
    space, node = written.node.space, written.node
    assert space.to_json(space.from_blobs([found["i0"].vector]), 0) == node.get("i0").vector


def test_one_process_moves_the_vectors_of_a_collection_at_a_time(
    written: Written, database_url: str, base: Path
) -> None:
    written.put_some(ids(20))
    others = set[int]()
    with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as other:

        def try_too() -> None:
            others.add(offload(other, written.number, 1, SMALL, lambda: None))

        assert offload_all(written.database, SMALL, try_too) == 20
    assert others == {0}


# What is damaged, and what is removed


@pytest.mark.parametrize("how", ["changed", "cut", "gone"])
def test_a_segment_that_is_not_what_was_written_is_named(
    written: Written, base: Path, how: str
) -> None:
    database, number = written.database, written.number
    written.put_some(ids(40))
    offload_all(database, SMALL)
    before = contents(database, number)
    with database.connections.use() as connection:
        [(segment, file)] = connection.run("SELECT number, file FROM segments LIMIT 1").fetchall()
        found = connection.column(f"SELECT id FROM items_{number} WHERE segment = {segment}")
    lost, path = [each.decode() for each in found], base / file
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(bytes(len(data)) if how == "changed" else data[:3])
    error = StoreUnavailable if how == "gone" else ix.DamagedFile
    with pytest.raises(error, match=path.name):
        database.fetch(number, lost[:1])
    with pytest.raises(error, match=path.name):
        contents(database, number)
    with pytest.raises(error, match=path.name):
        written.committer.commit(PreparedChoice(change=RENAME, ids=lost[1:2]))
    others = {each: row for each, row in before.items() if each not in lost}
    assert database.fetch(number, [*others]) == others
    assert len(database.page(number, after=0, limit=99, with_vector=False)) == 40
    written.committer.commit(PreparedChoice(change=RENAME, ids=[*others][:1]))
    written.put_some(lost[2:3])
    assert database.fetch(number, lost[2:3])
    path.write_bytes(data)
    assert contents(database, number)[lost[1]] == before[lost[1]]


@pytest.mark.parametrize(
    ("address", "words"), [(None, "GCWS_BASE"), ("nope://here", r"GCWS_BASE: .*nope://here")]
)
def test_without_the_place_of_segments_the_setting_is_named(
    written: Written, database_url: str, address: str | None, words: str
) -> None:
    written.put_some(ids(4))
    offload_all(written.database)
    with closing(Database.open(database_url, buckets=BUCKETS, base=address)) as other:
        with pytest.raises(StoreUnavailable, match=words):
            other.fetch(written.number, ["i0"])
        assert len(other.page(written.number, after=0, limit=9, with_vector=False)) == 4


@pytest.mark.usefixtures("root_log")
def test_a_shard_that_cannot_move_vectors_anywhere_does_not_start(tmp_path: Path) -> None:
    variables = {"GCWS_OFFLOAD": "true", "GCWS_DATABASE_URL": "postgresql://nobody@host/none"}
    words = ["shard", "--shard", "0", "--data-dir", str(tmp_path / "data")]
    shown = CliRunner(env=variables | {"GCWS_CLUSTER_KEY": KEY}).invoke(cli, words)
    assert shown.exit_code == 1
    assert "GCWS_OFFLOAD: expected GCWS_BASE" in shown.output


def test_a_segment_of_little_use_is_replaced_and_removed_after_a_week(
    written: Written, base: Path
) -> None:
    database, number = written.database, written.number
    written.put_some(ids(40))
    offload_all(database)
    [first] = files(base)
    written.put_some(ids(15))
    offload_all(database)
    assert len(files(base)) == len(referred(database, number)) == 2
    written.delete(ids(20, 15))
    before = contents(database, number)
    offload_all(database)
    assert listed(database, "unused IS NOT NULL") == [first]
    assert contents(database, number) == before
    grow_old(database, "6 days")
    assert len(files(base)) == 3
    grow_old(database, "2 days")
    assert files(base) == listed(database) == referred(database, number)
    assert len(files(base)) == 2
    assert contents(database, number) == before


@pytest.mark.parametrize("is_dropped", [True, False])
def test_segments_of_a_collection_without_items_are_removed_after_a_week(
    written: Written, base: Path, is_dropped: bool
) -> None:
    written.put_some(ids(10))
    offload_all(written.database)
    [file] = files(base)
    (base / f"{file}.part").write_bytes(b"of a process that was killed")
    if is_dropped:
        written.database.drop(written.number)
    else:
        written.delete(ids(10))
    remove_useless(written.database)
    assert file in files(base)
    [note] = base.rglob("uses/*")
    note.with_suffix(".part").write_bytes(b"of a process that writes it now")
    grow_old(written.database)
    assert files(base) == listed(written.database) == []


def test_one_process_at_a_time_looks_after_the_segments(
    written: Written, database_url: str, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that wrote one note at once took its unfinished file away from each other."""
    written.put_some(ids(10))
    offload_all(written.database)
    noting, note_use = list[Segments](), Segments.note_use
    with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as other:

        def note(segments: Segments, *what: Any) -> None:  # noqa: ANN401
            noting.append(segments)
            remove_useless(other)
            note_use(segments, *what)

        monkeypatch.setattr(Segments, "note_use", note)
        remove_useless(written.database)
    assert noting == [written.database.segments]


def test_an_adopted_database_reads_the_segments_of_the_former_one_and_removes_none(
    written: Written, database_url: str, base: Path
) -> None:
    number = written.number
    written.put_some(ids(40))
    offload_all(written.database)
    [former] = files(base)
    before = contents(written.database, number)
    Database.adopt(database_url)
    with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as database:
        assert contents(database, number) == before
        committer = Committer(database, number, "things")
        committer.commit(PreparedChoice(ids=ids(30)))
        offload_all(database)
        assert offload_all(database) == 0
        grow_old(database)
        assert {*before} - {*ids(30)} == {*contents(database, number)}
        assert former not in listed(database)
        assert former in files(base)
        assert len(files(base)) == 2


@pytest.mark.parametrize("is_adopted", [False, True])
def test_a_database_that_was_replaced_removes_nothing(base: Path, is_adopted: bool) -> None:
    """Its successor, and an adopted copy of it, may need what it does not."""
    server = postgres()
    with server.database(BUCKETS) as url, ExitStack() as stack:
        opened = partial(Database.open, buckets=BUCKETS, base=str(base))
        with closing(opened(url)) as database:
            number = database.create("things", {"dim": 6})[0].number
            Committer(database, number, "things").commit(put_of(*ids(9)))
            offload_all(database)
        [file] = files(base)
        name = url.rpartition("/")[2]
        server.execute(f"CREATE DATABASE copy_{name} TEMPLATE {name}")
        stack.callback(server.execute, f"DROP DATABASE copy_{name} WITH (FORCE)")
        copy_url = server.url(f"copy_{name}")
        if is_adopted:
            Database.adopt(copy_url)
        else:  # as a promotion does
            later = "INSERT INTO gcws.epochs SELECT 2, 'stamp', system, timeline FROM gcws.epochs"
            server.execute(f"{later} RETURNING 1", f"copy_{name}")
        with closing(opened(copy_url)) as successor:
            before = contents(successor, number)
            remove_useless(successor)
            with closing(opened(url)) as former:
                former.drop(number)
                remove_useless(former)
                with pytest.raises(StoreFailed, match=r"a successor or an adopted copy.*/uses/"):
                    grow_old(former)
                assert listed(former) == [file]
            assert contents(successor, number) == before
            successor.drop(number)
            remove_useless(successor)
            grow_old(successor)
            assert files(base) == ([file] if is_adopted else [])


def test_items_of_an_older_program_are_moved_too(
    written: Written, database_url: str, base: Path
) -> None:
    """Their tables are partitioned by bucket, and know no segments."""
    written.put_some(ids(30))
    lacking = "DROP COLUMN segment, DROP COLUMN place, DROP COLUMN length"
    with written.database.connections.transaction() as connection:
        connection.run(
            f"ALTER TABLE items_{written.number} {lacking}, ALTER COLUMN vector SET NOT NULL"
        )
    replace_by_partitions(written.database, written.number)
    with closing(Database.open(database_url, buckets=BUCKETS, base=str(base))) as upgraded:
        upgraded.collections()
        before = contents(upgraded, written.number)
        assert offload_all(upgraded, SMALL) == len(before) == 30
        assert whole(upgraded, written.number) == []
        assert contents(upgraded, written.number) == before
