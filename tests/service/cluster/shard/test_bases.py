"""Bases: what a new replica begins with, who writes it, and what becomes of it after kills."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.bases import Base, Bases
from gcws_search.service.cluster.contract import Position, Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.errors import StoreUnavailable
from tests.support.faults import ALL_FAULTS
from tests.support.service.client import START_SECONDS
from tests.support.service.programs import Program
from tests.support.service.shards import (
    BUCKETS,
    KEY,
    QUICK,
    Start,
    Written,
    check_followed,
    fills,
    follow,
    shards,
)
from tests.support.waiting import wait_until

pytest.importorskip("moto.server", reason="moto, of the extra `test`, is the S3 server")

from tests.support.object_store import ObjectStore, Request, object_store

KINDS = ["folder", "store"]
EACH = 1 if ALL_FAULTS in os.environ else 5
"""Of so many requests to the store, one is where a replica is killed."""


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with object_store() as store:
        store.system.create_dir(store.bucket)
        yield store


@pytest.fixture
def store(running: ObjectStore) -> ObjectStore:
    running.system.delete_dir_contents(running.bucket)
    return running


class Place:
    """A folder or an object store of bases."""

    def __init__(self, address: str, store: ObjectStore | None = None) -> None:
        self.address = address
        self.store = store
        self.options = replace(QUICK, base=address, base_rows=1, base_seconds=0.0)

    def files(self) -> list[str]:
        if self.store is not None:
            return [each.removeprefix("bases/") for each in self.store.names()]
        folder = Path(self.address)
        return sorted(str(e.relative_to(folder)) for e in folder.rglob("*") if e.is_file())

    def get(self, file: str) -> bytes:
        if self.store is not None:
            return self.store.get(f"bases/{file}")
        return (Path(self.address) / file).read_bytes()

    def put(self, file: str, data: bytes) -> None:
        if self.store is not None:
            self.store.put(f"bases/{file}", data)
        else:
            (Path(self.address) / file).parent.mkdir(parents=True, exist_ok=True)
            (Path(self.address) / file).write_bytes(data)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "bases"))


@pytest.fixture
def stored_place(store: ObjectStore) -> Place:
    return Place(store.address("bases"), store)


@pytest.fixture(params=KINDS)
def any_place(request: pytest.FixtureRequest) -> Place:
    name = {"folder": "place", "store": "stored_place"}[request.param]
    found: Place = request.getfixturevalue(name)
    return found


def ids(number: int, first: int = 0) -> list[str]:
    return [f"i{place}" for place in range(first, first + number)]


def bases_of(database: Database, place: Place, shard: int = 0, number: int = 1) -> list[Base]:
    return [*Bases(place.address, database, shard, number).current().values()]


def write_bases(written: Written, start: Start, place: Place, number: int = 1) -> list[Base]:
    """Have the replicas of all shards write bases; return these once they have ended."""
    with start(number, options=place.options) as hosts:
        follow(hosts, written)

        def found() -> list[Base]:
            every = [bases_of(written.database, place, shard, number) for shard in range(number)]
            return [base for bases in every for base in bases if base.key == written.head]

        wait_until(lambda: len(found()) == number)
        return found()


def reads(hosts: Sequence[ShardHost]) -> list[int]:
    return [each.base_reads for host in hosts for each in host.followers]


def failures(hosts: Sequence[ShardHost]) -> list[int]:
    return [each.base_failures for host in hosts for each in host.followers]


@pytest.fixture
def positions(monkeypatch: pytest.MonkeyPatch) -> list[Position]:
    """Return the positions from which the database is read, as it is read."""
    found: list[Position] = []
    changes = Database.changes

    def noted(database: Database, number: int, buckets: Any, position: Any, rows: int) -> Any:  # noqa: ANN401
        found.append(position)
        return changes(database, number, buckets, position, rows)

    monkeypatch.setattr(Database, "changes", noted)
    return found


# Reading


@pytest.mark.parametrize("number", [1, 2])
def test_a_new_replica_begins_with_the_base_and_follows_what_came_after_it(
    written: Written,
    start: Start,
    any_place: Place,
    tmp_path: Path,
    positions: list[Position],
    number: int,
) -> None:
    written.put_some(ids(40))
    bases = write_bases(written, start, any_place, number)
    assert [base.nbytes for base in bases] == [len(any_place.get(base.file)) for base in bases]
    assert sorted(base.file for base in bases) == any_place.files()
    written.put_some(ids(10, 35))
    written.delete(ids(8))
    written.put_some(["i3"])
    positions.clear()
    options = replace(any_place.options, base_rows=1000)
    with shards(written.database, tmp_path / "new", number, options=options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), fills(hosts)) == ([1] * number, [0] * number)
        assert min(position.key for position in positions) >= bases[0].key
        written.put_some(["more"])
        check_followed(hosts, written)
    with shards(written.database, tmp_path / "new", number, options=options) as hosts:
        check_followed(hosts, written)
        assert reads(hosts) == [0] * number, "it has a file of its own"


def test_a_file_of_no_use_is_replaced_by_the_base(
    written: Written, start: Start, place: Place, tmp_path: Path, positions: list[Position]
) -> None:
    written.put_some(ids(30))
    write_bases(written, start, place)
    [path] = (tmp_path / "0-of-1").glob("c*.sqlite")
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :: 97] = bytes(len(data[len(data) // 2 :: 97]))
    path.write_bytes(data)
    positions.clear()
    with start(1, options=place.options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), fills(hosts)) == ([1], [1])
        assert positions[0].key == written.head


def changed(data: bytes) -> bytes:
    return data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]


@pytest.mark.parametrize(
    "damage", [changed, lambda data: data[:-4096], lambda _: b"", None], ids=[*"abcd"]
)
def test_a_base_of_no_use_leaves_the_rows_to_the_database(
    written: Written,
    start: Start,
    any_place: Place,
    tmp_path: Path,
    damage: Callable[[bytes], bytes] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    written.put_some(ids(30))
    [base] = write_bases(written, start, any_place)
    if damage is not None:
        any_place.put(base.file, damage(any_place.get(base.file)))
    elif any_place.store is not None:
        any_place.store.system.delete_file(f"{any_place.store.bucket}/bases/{base.file}")
    else:
        (Path(any_place.address) / base.file).unlink()
    options = replace(any_place.options, base_rows=1000)
    with shards(written.database, tmp_path / "new", 1, options=options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), failures(hosts), fills(hosts)) == ([0], [1], [0])
        assert [path.name for path in (tmp_path / "new" / "0-of-1").glob("*.sqlite")] == [
            f"c{written.number}.sqlite"
        ]
    assert f"base {base.file} is of no use" in caplog.text


def test_a_base_of_another_shard_is_not_taken(
    written: Written, start: Start, place: Place, tmp_path: Path
) -> None:
    written.put_some(ids(30))
    first, second = write_bases(written, start, place, 2)
    columns = "file = %b, sha256 = %b"
    with written.database.connections.use() as connection:
        connection.run(f"UPDATE bases SET {columns} WHERE shard = 1", first.file, first.sha256)
    assert second.file != first.file
    options = replace(place.options, base_rows=1000)
    with shards(written.database, tmp_path / "new", 2, options=options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), failures(hosts)) == ([1, 0], [0, 1])


def test_the_next_base_is_read_where_one_was_replaced_amid_the_look(
    written: Written, start: Start, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(ids(30))
    [former] = write_bases(written, start, place)
    written.put_some(ids(90))
    read, options = Bases.read, replace(place.options, base_rows=1000)

    def replaced(bases: Bases, base: Base, check: Callable[[], None]) -> Iterator[bytes]:
        if base.file == former.file:
            write_bases(written, start, place)
        return read(bases, base, check)

    monkeypatch.setattr(Bases, "read", replaced)
    with shards(written.database, tmp_path / "new", 1, options=options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), failures(hosts)) == ([1], [1])


def test_a_base_has_learned_weights(
    database: Database, start: Start, place: Place, tmp_path: Path
) -> None:
    standard = ix.CollectionConfig(dim=6, transform=ix.Transform(weights="standard"))
    with closing(Written(database, standard)) as written:
        written.put_some(ids(30))
        written.node.fit()
        learned = written.node.space.weights
        assert learned is not None
        [row] = database.collections()
        row = database.add_generation(row, written.node.config.to_dict(), learned.to_text())
        database.use_generation(row, lambda _: None, written.head)
        with start(1, options=place.options):
            wait_until(lambda: bases_of(database, place))
        with shards(database, tmp_path / "new", 1, options=place.options) as [host]:
            wait_until(lambda: host.is_ready and reads([host]) == [1])
            [follower] = host.followers
            assert follower.collection is not None
            weights = follower.collection.space.weights
            assert weights is not None
            assert weights.to_text() == learned.to_text()


# Writing


def test_a_base_is_replaced_once_much_came_after_it(
    written: Written, start: Start, any_place: Place
) -> None:
    written.put_some(ids(40))
    with start(1, options=any_place.options) as hosts:
        follow(hosts, written)
        [first] = wait_until(lambda: bases_of(written.database, any_place))
        written.put_some(ids(10))
        follow(hosts, written)
        bases = Bases(any_place.address, written.database, 0, 1)
        assert not bases.is_due(first, written.head, 40)
        old = Base(*first[:-1], 7 * 86_400.0)
        assert bases.is_due(old, written.head, 40)
        assert not bases.is_due(old, old.key, 40)
        written.put_some(ids(20))
        follow(hosts, written)
        wait_until(lambda: bases_of(written.database, any_place)[0].key == written.head)
        [second] = bases_of(written.database, any_place)
        wait_until(lambda: any_place.files() == [second.file])


def test_one_replica_of_a_shard_writes_at_a_time(
    written: Written, tmp_path: Path, stored_place: Place
) -> None:
    written.put_some(ids(40))
    database, store = written.database, stored_place.store
    assert store is not None
    with (
        shards(database, tmp_path / "a", 1) as [first],
        shards(database, tmp_path / "b", 1) as [second],
    ):
        follow([first, second], written)
        [row] = database.collections()
        done: dict[ShardHost, bool] = {}

        def write(host: ShardHost) -> None:
            [follower] = host.followers
            assert follower.collection is not None
            bases = Bases(stored_place.address, database, 0, 1)
            scratch, check = tmp_path / "scratch", lambda: None
            done[host] = bases.write(row, written.head, follower.collection, scratch, check)

        writing = threading.Thread(target=write, args=(first,))
        with store.holding(is_upload) as reached:
            writing.start()
            assert reached.wait(60)
            write(second)
        writing.join()
        assert done == {first: True, second: False}
        [base] = bases_of(database, stored_place)
        assert stored_place.files() == [base.file]
        assert [*(tmp_path / "scratch").iterdir()] == []
        write(second)
        [other] = bases_of(database, stored_place)
        assert stored_place.files() == [other.file] != [base.file]


def is_of_base(request: Request) -> bool:
    return bool(request["PATH_INFO"].endswith(".sqlite"))


def is_upload(request: Request) -> bool:
    return is_of_base(request) and request["REQUEST_METHOD"] in ("PUT", "POST")


def test_who_lost_the_lock_makes_no_base(
    written: Written, tmp_path: Path, stored_place: Place
) -> None:
    """Its connection is lost while it sends the file."""
    written.put_some(ids(40))
    database, store = written.database, stored_place.store
    assert store is not None
    with shards(database, tmp_path / "a", 1) as [host]:
        follow([host], written)
        [row], [follower] = database.collections(), host.followers
        collection = follower.collection
        assert collection is not None
        bases = Bases(stored_place.address, database, 0, 1)
        failed: list[Exception] = []

        def write() -> None:
            try:
                bases.write(row, written.head, collection, tmp_path / "scratch", lambda: None)
            except StoreUnavailable as error:
                failed.append(error)

        writing = threading.Thread(target=write)
        with store.holding(is_upload) as reached:
            writing.start()
            assert reached.wait(60)
            with database.connections.use() as connection:
                connection.run(
                    "SELECT pg_terminate_backend(pid) FROM pg_locks"
                    " WHERE locktype = 'advisory' AND pid <> pg_backend_pid()"
                )
        writing.join()
        assert len(failed) == 1
        assert bases_of(database, stored_place) == []
        assert len(stored_place.files()) == 1, "nobody's base"
        assert bases.write(row, written.head, collection, tmp_path / "scratch", lambda: None)
        [base] = bases_of(database, stored_place)
        assert stored_place.files() == [base.file]


def test_a_collection_that_is_dropped_while_its_base_is_sent_has_none(
    written: Written, tmp_path: Path, stored_place: Place
) -> None:
    written.put_some(ids(40))
    store = stored_place.store
    assert store is not None
    with shards(written.database, tmp_path / "a", 1, options=stored_place.options) as [host]:
        with store.holding(is_upload) as reached:
            assert reached.wait(60)
            written.database.drop(written.number)
        wait_until(lambda: host.followers == [] and stored_place.files() == [])
        assert bases_of(written.database, stored_place) == []


def test_a_file_that_was_sent_for_a_collection_that_is_dropped_is_removed(
    written: Written, tmp_path: Path, place: Place
) -> None:
    written.put_some(ids(40))
    database, dropped = written.database, list[bool]()
    with shards(database, tmp_path / "a", 1) as [host]:
        follow([host], written)
        [row], [follower] = database.collections(), host.followers
        assert follower.collection is not None

        def drop() -> None:
            dropped.append(database.drop(written.number))

        bases = Bases(place.address, database, 0, 1)
        write = partial(bases.write, row, written.head, follower.collection)
        assert not write(tmp_path / "scratch", drop)
    assert dropped[0]
    assert place.files() == []


def test_a_collection_that_is_dropped_while_its_file_is_copied_keeps_no_other_from_its_base(
    written: Written, tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(ids(40))
    database, copy_to = written.database, ix.StoredCollection.copy_to
    options, dropped = replace(place.options, base_rows=40), threading.Event()

    def copy(collection: ix.StoredCollection, path: Path) -> None:
        if not dropped.is_set():
            database.drop(written.number)
            wait_until(lambda: not collection.store.path.exists())
            dropped.set()
        copy_to(collection, path)

    monkeypatch.setattr(ix.StoredCollection, "copy_to", copy)
    with shards(database, tmp_path / "a", 1, options=options) as [host]:
        wait_until(dropped.is_set)
        with closing(Written(database)) as other:
            other.put_some(ids(40))
            wait_until(lambda: bases_of(database, place))
        assert host.base_failures == 0


def test_a_store_that_does_not_answer_is_no_obstacle(
    written: Written, tmp_path: Path, stored_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    written.put_some(ids(40))
    store = stored_place.store
    assert store is not None
    with (
        store.refusing(is_upload),
        shards(written.database, tmp_path / "a", 1, options=stored_place.options) as [host],
    ):
        check_followed([host], written)
        wait_until(lambda: host.base_failures > 0)
        assert "could not be written" in caplog.text
        written.put_some(["more"])
        check_followed([host], written)
        assert host.base_failures == 1, "it is not tried again at once"
    with shards(written.database, tmp_path / "a", 1, options=stored_place.options) as [host]:
        wait_until(lambda: bases_of(written.database, stored_place))


# What is kept, and what is removed


def test_what_came_after_a_base_is_kept_for_it(
    database: Database, start: Start, place: Place, tmp_path: Path
) -> None:
    with closing(Written(database)) as written:
        written.put_some(ids(30))
        [base] = write_bases(written, start, place)
        written.delete(ids(5))
        written.put_some(["more"])
        listed = Replica("main", 0, 0, "here:1", {written.number: written.head}, 0, 0.0, 0.0, 1)
        database.announce(listed)
        database.trim(keep_seconds=0)
        options = replace(place.options, base_rows=1000)
        with shards(database, tmp_path / "new", 1, options=options) as hosts:
            check_followed(hosts, written)
            assert (reads(hosts), fills(hosts)) == ([1], [0])
        with database.connections.use() as connection:
            connection.run("UPDATE bases SET made = now() - interval '8 days'")
        database.trim(keep_seconds=0)
        assert bases_of(database, place) == []
        assert place.files() == [base.file]
        with shards(database, tmp_path / "newer", 1, options=options) as hosts:
            check_followed(hosts, written)
            assert reads(hosts) == [0]
            wait_until(lambda: place.files() == [])
        with database.connections.use() as connection:
            assert connection.column("SELECT count(*) FROM bases") == [0]


def test_the_base_of_a_dropped_collection_is_removed(
    written: Written, start: Start, any_place: Place
) -> None:
    written.put_some(ids(30))
    write_bases(written, start, any_place)
    with start(1, options=any_place.options):
        written.database.drop(written.number)
        wait_until(lambda: any_place.files() == [])
    with written.database.connections.use() as connection:
        assert connection.column("SELECT count(*) FROM bases") == [0]


def test_an_adopted_database_has_no_bases(
    database_url: str, written: Written, start: Start, place: Place
) -> None:
    written.put_some(ids(30))
    write_bases(written, start, place)
    Database.adopt(database_url)
    with closing(Database.open(database_url, buckets=BUCKETS)) as database:
        assert bases_of(database, place) == []


# Processes


@pytest.mark.slow
def test_a_shard_of_the_command_line_writes_a_base_and_another_begins_with_it(
    database_url: str, tmp_path: Path, stored_place: Place
) -> None:
    assert stored_place.store is not None
    variables = {
        **stored_place.store.variables,
        "GCWS_DATABASE_URL": database_url,
        "GCWS_CLUSTER_KEY": KEY,
        "GCWS_BUCKETS": str(BUCKETS),
        "GCWS_BASE": stored_place.address,
        "GCWS_OFFLOAD": "true",
        "GCWS_READ_ONLY_API_KEY": "a reader",
    }
    base = stored_place.address
    with (
        closing(Database.open(database_url, buckets=BUCKETS, key=KEY, base=base)) as database,
        closing(Written(database)) as written,
    ):

        def has_no_vectors() -> bool:
            table = f"items_{written.number}"
            with database.connections.use() as connection:
                return connection.column(f"SELECT count(vector) FROM {table}") == [0]

        written.put_some(ids(11_000))
        writer = Program("writer", ["shard", "--shard", "0"], tmp_path, variables)
        try:
            wait_until(lambda: bases_of(database, stored_place), writer.said, seconds=START_SECONDS)
            wait_until(has_no_vectors, writer.said)
        finally:
            writer.end()
        written.delete(ids(5))
        reader = Program("reader", ["shard", "--shard", "0"], tmp_path, variables)
        try:
            reader.wait_until_ready()
            headers = {"Authorization": "Bearer a reader"}
            text = httpx.get(f"{reader.url}/metrics", headers=headers).text
        finally:
            reader.end()
        assert "gcws_shard_base_reads_total 1.0" in text
        (tmp_path / "reader").rename(tmp_path / "0-of-1")
        with shards(database, tmp_path, 1) as hosts:
            check_followed(hosts, written)
            assert (fills(hosts), reads(hosts)) == ([0], [0])


REPLICA = """
import sys, time
from contextlib import closing
from pathlib import Path
from gcws_search.service.cluster.bases import Bases
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost

url, folder, base, key = sys.argv[1:]
options = HostOptions(poll_seconds=0.05, base=base, base_rows=1, base_seconds=0.0)
with closing(Database.open(url, buckets=4)) as database:
    with closing(ShardHost(database, Path(folder), 0, 1, threads=1, options=options)) as host:
        host.start()
        bases = Bases(base, database, 0, 1)
        while [each.key for each in bases.current().values()] != [int(key)] or not (
            host.followers and host.followers[0].reached == int(key)
        ):
            time.sleep(0.01)
"""
"""Ends once the replica, and the base, have what there is at a key."""


def from_request(number: int) -> Callable[[Request], bool]:
    """Return what knows all requests but some first ones."""
    seen = count()
    return lambda _: next(seen) >= number


@pytest.mark.slow
@pytest.mark.parametrize("part", ["that writes a base", "that begins with one"])
def test_a_replica_may_be_killed_at_any_request_to_the_store(
    database_url: str, written: Written, tmp_path: Path, stored_place: Place, part: str
) -> None:
    store, database, is_writer = stored_place.store, written.database, part == "that writes a base"
    assert store is not None
    written.put_some(ids(40))
    write_bases(written, partial(shards, database, tmp_path / "first"), stored_place)
    for number in count(step=EACH):
        if is_writer:
            written.put_some(ids(40))
            written.delete(ids(3))
        folder = str(tmp_path / part)
        words = [database_url, folder, stored_place.address, str(written.head)]
        with (
            store.holding(from_request(number)) as reached,
            subprocess.Popen([sys.executable, "-c", REPLICA, *words]) as replica,
        ):
            wait_until(lambda: reached.is_set() or replica.poll() is not None)
            replica.kill()
        [base] = bases_of(database, stored_place)
        assert sha256(stored_place.get(base.file)).hexdigest() == base.sha256
        if not reached.is_set():
            assert replica.returncode == 0
            break
        if not is_writer:
            assert not Path(folder, f"c{written.number}.sqlite").exists()
    assert number >= EACH
    assert base.key == written.head
    assert stored_place.files() == [base.file]
    written.put_some(["more"])
    options = replace(stored_place.options, base_rows=1000)
    with shards(database, tmp_path / "new", 1, options=options) as hosts:
        check_followed(hosts, written)
        assert (reads(hosts), failures(hosts)) == ([1], [0])
