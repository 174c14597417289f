"""Followers: what is written to the database is on the shards, whatever happens in between."""

from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from functools import partial
from itertools import count
from pathlib import Path
from shutil import copyfile, rmtree
from tempfile import TemporaryDirectory
from typing import Any, NoReturn

import pytest
from hypothesis import given, settings, strategies as st

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedChoice, PreparedPut
from gcws_search.service.cluster.contract import Behind, FormerPrimary
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.messages import Malformed
from tests.support.service.postgres import postgres
from tests.support.service.shards import (
    BUCKETS,
    DIM,
    SECONDS,
    Start,
    Written,
    ask,
    check_followed,
    fills,
    follow,
    held,
    send,
    shards,
    together,
)
from tests.support.waiting import wait_until

ALL = 3
SMALL_CHUNKS = HostOptions(poll_seconds=0.05, chunk_rows=3, check_seconds=0.1)


def ids(number: int) -> list[str]:
    return [f"i{place}" for place in range(number)]


# Interruptions


def test_searches_go_on_without_the_database(written: Written, start: Start) -> None:
    written.put_some(ids(30))
    with start(1) as [host]:
        follow([host], written)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Database, "collections", unavailable)
            patched.setattr(Database, "changes", unavailable)
            assert wait_until(lambda: not host.is_reachable)
            assert len(held(host, written)) == 30
            with pytest.raises(Behind):
                ask(host, "count", written.number, at=written.head + 1, seconds=0.2)
        written.put_some(["more"])
        check_followed([host], written)
        assert wait_until(lambda: host.is_reachable)


@pytest.mark.parametrize("step", ["delete", "prepare", "commit", "save_load"])
@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_kill_at_any_step_is_followed_up(
    database: Database, written: Written, tmp_path: Path, step: str, number: int
) -> None:
    """The files are copied as a kill would leave them, and a host is started over the copy."""
    written.put_some(ids(20))
    first, copy = tmp_path / "first", tmp_path / "copy"
    with shards(database, first, 1, options=SMALL_CHUNKS) as [host]:
        follow([host], written)
        written.put_some(ids(10))
        written.delete(["i12", "i13"])
        written.put_some(["i13", "other"])
        calls = count()
        original = getattr(ix.StoredCollection, step)

        def copied(stored: ix.StoredCollection, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            if stored.name.startswith("c") and next(calls) == number - 1:
                copy_files(first, copy)
            return original(stored, *arguments, **options)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ix.StoredCollection, step, copied)
            follow([host], written)
        assert together([host], written) == written.rows()
        if not copy.exists():  # the step is not taken as often
            copy_files(first, copy)
    written.put_some(["i2", "more"])
    with shards(database, copy, 1, options=SMALL_CHUNKS) as hosts:
        check_followed(hosts, written)
        assert fills(hosts) == [0]


def test_a_fill_that_was_killed_goes_on_where_it_was(written: Written, start: Start) -> None:
    written.put_some(ids(20))
    with start(1, options=SMALL_CHUNKS) as [host], pytest.MonkeyPatch.context() as patched:
        patched.setattr(ix.StoredCollection, "commit", failing_from(3))
        assert wait_until(lambda: any(each.failures for each in host.followers))
        with pytest.raises(Behind):
            ask(host, "count", written.number, seconds=0.1)
    written.delete(["i0", "i19"])
    written.put_some(["i1", "i19"])
    with start(1, options=SMALL_CHUNKS) as hosts:
        check_followed(hosts, written)
        assert fills(hosts) == [0]


def test_an_item_that_is_deleted_and_put_again_before_a_promotion_is_noticed_is_there(
    written: Written, start: Start
) -> None:
    written.put_some(ids(20))
    with start(1) as hosts:
        follow(hosts, written)
    written.delete(["i3", "i4"])
    written.put_some(["i3", "i7"])
    begin_epoch(written.database)
    for _ in range(2):
        with start(1) as hosts:
            check_followed(hosts, written)
            assert fills(hosts) == [0]


# Files of no use


@pytest.mark.parametrize("of_no_use", ["damaged", "of another number of shards"])
def test_a_file_of_no_use_is_filled_again(
    written: Written, start: Start, tmp_path: Path, of_no_use: str
) -> None:
    written.put_some(ids(30))
    with start(1 if of_no_use == "damaged" else 2) as hosts:
        follow(hosts, written)
    if of_no_use == "damaged":
        [path] = tmp_path.glob("*/c*.sqlite")
        data = bytearray(path.read_bytes())
        data[len(data) // 2 :: 97] = bytes(len(data[len(data) // 2 :: 97]))
        path.write_bytes(data)
    else:
        (tmp_path / "0-of-2").rename(tmp_path / "0-of-1")
    with start(1) as hosts:
        check_followed(hosts, written)
        assert fills(hosts) == [1]


def test_a_file_of_another_cluster_is_filled_again(
    written: Written, start: Start, tmp_path: Path
) -> None:
    written.put_some(ids(30))
    with start(1) as hosts:
        follow(hosts, written)
    with (
        postgres().database() as other_url,
        closing(Database.open(other_url, buckets=BUCKETS)) as other,
        closing(Written(other, ix.CollectionConfig(dim=3))) as others,
    ):
        assert others.number == written.number
        others.put({"x": [1.0, 2.0, 3.0]})
        with shards(other, tmp_path, 1) as hosts:
            check_followed(hosts, others)
            assert fills(hosts) == [1]


def test_a_file_of_another_shard_whose_items_were_deleted_is_filled_again(
    written: Written, tmp_path: Path
) -> None:
    """Items of this shard have earlier keys than those that it has seen."""
    written.put_some(ids(20))
    with closing(ShardHost(written.database, tmp_path, 0, 2, threads=1)) as host:
        host.start()
        follow([host], written)
        written.delete([row.id for row in held(host, written)])
        follow([host], written)
    with closing(ShardHost(written.database, tmp_path, 1, 2, threads=1)) as host:
        host.start()
        check_followed([host], written)
        assert fills([host]) == [1]


@pytest.mark.parametrize("writes_again", [False, True])
def test_a_database_restored_to_an_earlier_moment_is_followed_once_it_is_adopted(
    tmp_path: Path, *, writes_again: bool
) -> None:
    """A copy of the database is made, and put in its place after further writes."""
    server = postgres()
    with server.database() as url:
        name = url.rpartition("/")[2]
        with closing(Database.open(url, buckets=BUCKETS)) as database:
            written = Written(database)
            written.put_some(ids(20))
        server.execute(f"CREATE DATABASE {name}_early TEMPLATE {name}")
        with (
            closing(Database.open(url, buckets=BUCKETS)) as database,
            shards(database, tmp_path, 1) as hosts,
        ):
            written.committer = Committer(database, written.number, "things")
            written.put_some(ids(25)[10:])
            follow(hosts, written)
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
        server.execute(f"ALTER DATABASE {name}_early RENAME TO {name}")
        with (
            closing(Database.open(url, buckets=BUCKETS)) as database,
            shards(database, tmp_path, 1) as [host],
        ):
            written.database = database
            written.committer = Committer(database, written.number, "things")
            if writes_again:  # up to the same key
                written.put_some(ids(15))
            assert wait_until(lambda: bool(host.dispute))
            with pytest.raises(Malformed, match="cluster adopt"):
                ask(host, "status", 0)
            with pytest.raises(Behind):
                ask(host, "count", written.number, seconds=0.1)
            assert fills([host]) == [0]
        Database.adopt(url)
        with (
            closing(Database.open(url, buckets=BUCKETS)) as database,
            shards(database, tmp_path, 1) as [host],
        ):
            written.database = database
            assert wait_until(lambda: fills([host]) == [1])
            assert wait_until(lambda: held(host, written) == written.rows())
        written.close()


def test_damage_that_a_search_meets_has_the_file_filled_again(
    database: Database, start: Start
) -> None:
    centered = ix.CollectionConfig(dim=DIM, transform=ix.Transform(center=(0.5,) * DIM))
    with closing(Written(database, centered)) as written, start(1) as [host]:
        written.put_some(ids(9))
        follow([host], written)
        [follower] = host.followers
        before = follower.collection
        assert before is not None

        def damaged(_: object) -> NoReturn:
            raise ix.DamagedFile(before.name, "a row is damaged")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(before.store, "fetch", damaged)
            with pytest.raises(Malformed):
                held(host, written)
        assert wait_until(lambda: follower.fills == 1)
        assert together([host], written) == written.rows()


# Collections


def test_collections_come_and_go_with_those_of_the_database(
    database: Database, written: Written, start: Start, tmp_path: Path
) -> None:
    with start(1) as [host], closing(Written(database, name="more")) as more:
        more.put_some(ids(5))
        follow([host], more)
        assert ask(host, "count", more.number).head == {"count": 5}
        assert wait_until(lambda: len([*tmp_path.glob("*/c*.sqlite")]) == 2)
        database.drop(more.number)
        assert wait_until(lambda: len([*tmp_path.glob("*/c*.sqlite")]) == 1)
        with pytest.raises(ix.CollectionNotFound):
            ask(host, "count", more.number)
        assert ask(host, "count", written.number).head == {"count": 0}
    database.drop(written.number)
    with start(1) as [host]:
        assert wait_until(lambda: host.is_ready)
        assert [*tmp_path.glob("*/c*.sqlite")] == []


def test_a_full_disk_is_waited_for(written: Written, start: Start) -> None:
    with start(1) as [host]:
        written.put_some(ids(5))
        follow([host], written)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(ix.StoredCollection, "commit", failing_from(1))
            written.put_some(ids(8))
            assert wait_until(lambda: host.followers[0].failures > 1)
            assert ask(host, "count", written.number).head == {"count": 5}
            assert "no space left" in host.refusal
        follow([host], written)
        assert wait_until(lambda: not host.refusal)
        assert together([host], written) == written.rows()
        assert fills([host]) == [0]


# Any writes

_ID = st.sampled_from([f"i{number}" for number in range(8)])
_PLACE = st.integers(0, 8).map(str)
_WRITE: st.SearchStrategy[tuple[str, list[str]]] = st.one_of(
    st.lists(_ID, min_size=1, max_size=8, unique=True).map(lambda chosen: ("put", chosen)),
    st.lists(_ID, min_size=1, max_size=4, unique=True).map(lambda chosen: ("delete", chosen)),
    st.just(("restart", [])),
    st.just(("promote", [])),
    st.just(("follow", [])),
    st.lists(_PLACE, max_size=4).map(lambda missed: ("send", missed)),
)


@settings(max_examples=30)
@given(st.lists(_WRITE, max_size=12), st.integers(1, ALL), st.integers(0, 2**32))
def test_shards_together_are_the_database_whatever_is_written(
    steps: list[tuple[str, list[str]]], count_of_shards: int, seed: int
) -> None:
    with (
        postgres().database() as url,
        closing(Database.open(url, buckets=BUCKETS)) as database,
        closing(Written(database, seed=seed)) as written,
        TemporaryDirectory() as folder,
        ExitStack() as running,
    ):
        start = partial(shards, database, Path(folder), count_of_shards, options=SMALL_CHUNKS)
        hosts = running.enter_context(start())
        for step, chosen in [*steps, ("follow", [])]:
            if step == "put":
                written.put_some(chosen)
            elif step == "delete":
                written.delete(chosen)
            elif step == "restart":
                running.close()
                hosts = running.enter_context(start())
            elif step == "promote":
                begin_epoch(database)
            else:
                sent = [each for at, each in enumerate(written.changes) if str(at) not in chosen]
                written.changes.clear()
                send(hosts, written, sent if step == "send" else [])
                assert together(hosts, written) == written.rows()
                assert not any(fills(hosts))


def begin_epoch(database: Database) -> None:
    """Have the database say that it was promoted."""
    statement = """
        INSERT INTO epochs (number, stamp, system, timeline)
        SELECT number + 1, stamp || '+', system, timeline FROM epochs ORDER BY number DESC LIMIT 1
    """
    with suppress(FormerPrimary), database.connections.use() as connection:
        connection.run(statement)  # another thread may know of the epoch at once
    database.connections.forget()


def unavailable(*_: object, **__: object) -> NoReturn:
    raise StoreUnavailable("it is gone")


def failing_from(number: int) -> Callable[..., Any]:
    """Return a commit that finds the disk full from a call on."""
    original, calls = ix.StoredCollection.commit, count(1)

    def commit(stored: ix.StoredCollection, *arguments: Any) -> Any:  # noqa: ANN401
        if stored.name.startswith("c") and next(calls) >= number:
            raise ix.DiskFull(stored.name)
        return original(stored, *arguments)

    return commit


def copy_files(folder: Path, copy: Path) -> None:
    """Copy the files of a host as a kill leaves them."""
    for inner in folder.iterdir():
        target = copy / inner.name
        target.mkdir(parents=True)
        for suffix in ("-wal", ""):  # what a checkpoint moves meanwhile is in both, not in none
            for path in inner.glob(f"c*.sqlite{suffix}"):
                copyfile(path, target / path.name)


# Items that expire


def hidden_at(host: ShardHost, written: Written, instants: range) -> list[int]:
    """Return how many items a shard has at each instant, asked for in an order of no meaning."""
    order = sorted(instants, key=lambda at: (at % 3, -at))
    found = {at: ask(host, "count", written.number, at=written.head, now=at) for at in order}
    return [found[at].head["count"] for at in instants]


@pytest.mark.parametrize("is_sent", [True, False])
def test_each_message_has_its_own_instant_however_a_shard_came_to_its_items(
    written: Written, start: Start, tmp_path: Path, is_sent: bool
) -> None:
    database, now = written.database, written.database.now_ms + 60_000
    with start(1) as [host]:
        names = ids(6)
        vectors = written.node.space.from_items([*written.some_vectors(names).values()])
        blobs = written.node.space.to_blobs(vectors)
        expires = [now, now + 1, now + 1, now + 3, None, None]
        put = PreparedPut(ids=names, vectors=blobs, payloads=[None] * 6, expires=expires)
        written.committer.commit(put)
        if is_sent:
            send([host], written, written.changes)
        follow([host], written)
        instants = range(now - 1, now + 5)
        assert hidden_at(host, written, instants) == [6, 5, 3, 3, 2, 2]
        late = PreparedPut(ids=["i1"], vectors=blobs[:1], payloads=[None], expires=[now + 4])
        written.committer.commit(late)
        follow([host], written)
        assert hidden_at(host, written, instants) == [6, 5, 4, 4, 3, 2]
    if not is_sent:
        rmtree(tmp_path / "0-of-1")  # all are read again
    with start(1) as [host]:
        follow([host], written)
        assert hidden_at(host, written, instants) == [6, 5, 4, 4, 3, 2]
        assert ask(host, "count", written.number, at=written.head).head["count"] == 6
        database.clock = lambda: (now + 3) / 1000
        assert ask(host, "count", written.number, at=written.head).head["count"] == 3
        host.collection(written.number, written.head, SECONDS).finish_background_work()
        assert hidden_at(host, written, instants) == [6, 5, 4, 4, 3, 2], "it deletes nothing itself"
        written.committer.commit(PreparedChoice(ids=["nothing"]))
        follow([host], written)
        assert hidden_at(host, written, instants) == [3, 3, 3, 3, 3, 2], "as the log says"


def test_a_shard_says_how_long_it_has_lacked_changes(start: Start, written: Written) -> None:
    with start(1, options=HostOptions(poll_seconds=SECONDS)) as hosts:
        written.put_some(["a"])
        follow(hosts, written)
        [follower] = hosts[0].followers
        follower.see(written.head)
        assert follower.seconds_behind == 0
        for _ in range(2):  # what a later poll sees as well has been lacking since then
            before = follower.seconds_behind
            follower.see(follower.head + 1)
            assert follower.seconds_behind > before
        follower.see(written.head)
        assert follower.seconds_behind == 0
