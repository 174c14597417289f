"""Connections that break in COMMIT: what was answered is what is stored."""

import asyncio
import itertools
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from enum import Enum
from itertools import takewhile

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.committer import Committer, PreparedPut
from gcws_search.service.cluster.database import Database
from gcws_search.service.errors import StoreUnavailable
from tests.support.service.ports import HOST
from tests.support.service.postgres import Postgres, postgres
from tests.support.service.shards import contents, put_of

CUTS = 150
WRITERS = 3


class Cut(Enum):
    """Where a connection is cut."""

    BEFORE = "the database never sees the COMMIT"
    RACING = "the database is sent the COMMIT, and its client is cut off at once"
    AFTER = "the database has answered, and its client does not see that"


class CutProxy:
    """Forwards connections to a port of this machine; cuts some that commit."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.choose: Callable[[], Cut | None] = lambda: None
        """Called at each COMMIT; returns whether and where to cut."""
        self.cuts = 0
        self.refuses = False
        """Whether new connections are cut off at once."""
        self._bound = socket.create_server((HOST, 0))
        self.port: int = self._bound.getsockname()[1]
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        async with await asyncio.start_server(self._forward, sock=self._bound):
            await self._stopping.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def _forward(self, asked: asyncio.StreamReader, answers: asyncio.StreamWriter) -> None:
        if self.refuses:
            answers.close()
            return
        answered, questions = await asyncio.open_connection(HOST, self._target)
        silent = asyncio.Event()

        async def answer() -> None:
            with suppress(OSError), closing(answers), closing(questions):
                while (data := await answered.read(1 << 16)) and not silent.is_set():
                    answers.write(data)

        answering = asyncio.create_task(answer())
        with suppress(OSError), closing(answers), closing(questions):
            while data := await asked.read(1 << 16):
                cut = self.choose() if b"COMMIT\0" in data else None
                self.cuts += cut is not None
                if cut is Cut.BEFORE:
                    break
                if cut is not None:
                    silent.set()
                questions.write(data)
                if cut is Cut.RACING:
                    break
        await answering


@pytest.fixture
def proxy() -> Iterator[CutProxy]:
    with closing(CutProxy(postgres().port)) as proxy:
        yield proxy


@pytest.fixture
def far(database_url: str, proxy: CutProxy) -> Iterator[Database]:
    through = database_url.replace(f":{postgres().port}/", f":{proxy.port}/")
    with closing(Database.open(through, buckets=4, seconds=5)) as database:
        yield database


def plants_of(database: Database) -> tuple[int, Committer]:
    """Make a collection; return its number, and what writes to it."""
    number = database.create("plants", {})[0].number
    return number, Committer(database, number, "plants")


def pair(name: str) -> PreparedPut:
    """Return two items that are stored together or not at all."""
    return put_of(f"{name}a", f"{name}b")


def test_what_was_answered_is_what_is_stored(
    far: Database, database: Database, proxy: CutProxy, rng: np.random.Generator
) -> None:
    number, committer = plants_of(far)
    answered: dict[str, bool] = {}
    refusals: list[str] = []

    def write(writer: int) -> None:
        for count in takewhile(lambda _: proxy.cuts < CUTS, itertools.count()):
            name = f"{writer}-{count}-"
            try:
                committer.commit(pair(name))
            except StoreUnavailable as error:
                answered[name] = False
                refusals.append(str(error))
            else:
                answered[name] = True

    kinds: list[Cut | None] = [*Cut, *[None] * 6]
    proxy.choose = lambda: kinds[rng.integers(len(kinds))]
    with ThreadPoolExecutor(WRITERS) as pool:
        [*pool.map(write, range(WRITERS))]
    assert not [each for each in refusals if "may be stored" in each]
    assert proxy.cuts >= CUTS
    assert sum(not stored for stored in answered.values()) > CUTS / 10
    assert sum(answered.values()) > CUTS / 10
    stored = {*contents(database, number)}
    assert stored == {name + end for name, put in answered.items() if put for end in "ab"}
    assert database.count(number) == len(stored)


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_a_write_is_answered_by_what_the_stamp_says(
    far: Database, proxy: CutProxy, cut: Cut
) -> None:
    number, committer = plants_of(far)
    proxy.choose = iter([cut, *[None] * 9]).__next__
    if cut is Cut.AFTER:
        assert committer.commit(pair("x")) == ix.WriteResult(2, 0)
    else:
        with pytest.raises(StoreUnavailable):
            committer.commit(pair("x"))
    assert far.count(number) == committer.last.key == (2 if cut is Cut.AFTER else 0)


def test_a_write_whose_end_nobody_knows_says_so(
    far: Database, database: Database, proxy: CutProxy
) -> None:
    number, committer = plants_of(far)
    committer.commit(pair("x"))
    far.connections.seconds = 0.2
    proxy.choose, proxy.refuses = iter([Cut.AFTER]).__next__, True
    with pytest.raises(StoreUnavailable, match="may be stored"):
        committer.commit(pair("y"))
    assert database.count(number) == 4


def test_a_drop_whose_end_nobody_knows_says_so_and_may_be_repeated(
    far: Database, database: Database, proxy: CutProxy
) -> None:
    number, _ = plants_of(far)
    far.connections.forget()  # the next COMMIT is of a new connection, which the proxy reads
    proxy.choose = iter([Cut.AFTER, *[None] * 9]).__next__
    with pytest.raises(StoreUnavailable, match="may be stored"):
        far.drop(number)
    assert database.find("plants") is None
    assert not far.drop(number)


def test_a_collection_is_dropped_though_its_rows_cannot_be_removed_yet(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Database) -> None:
        raise StoreUnavailable("it is gone")

    number, _ = plants_of(database)
    monkeypatch.setattr(Database, "remove_dropped", fail)
    assert database.drop(number)
    assert database.find("plants") is None


def wait_for_nobody(server: Postgres) -> None:
    """Let commits wait for a standby that there is not."""
    server.wait_for_standby("nobody")
    server.stop()  # after a restart it certainly holds
    server.start()


def cancel_waits(server: Postgres) -> bool:
    """Cancel the waits for the standby of this moment; return whether there was one."""
    waiting = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return bool(server.execute(waiting))


def test_a_wait_for_the_standby_that_was_cancelled_is_no_success(server: Postgres) -> None:
    with (
        closing(Database.open(server.url("postgres"), buckets=4, seconds=5)) as database,
        ThreadPoolExecutor(1) as thread,
    ):
        number, committer = plants_of(database)
        wait_for_nobody(server)
        # Each wait is cancelled, also that of the question: the answer is that nobody knows.
        write = thread.submit(committer.commit, pair("x"))
        while not write.done():
            cancel_waits(server)
        with pytest.raises(StoreUnavailable, match="may be stored"):
            write.result()

        # The standby is back: the write is on both.
        server.wait_for_standby("")
        committer.commit(pair("y"))
        wait_for_nobody(server)
        write = thread.submit(committer.commit, pair("z"))
        while not cancel_waits(server):
            assert not write.done()
        server.wait_for_standby("")
        assert write.result() == ix.WriteResult(2, 0)
        assert database.count(number) == 6


def test_writes_go_on_after_the_database_was_restarted(server: Postgres) -> None:
    with closing(Database.open(server.url("postgres"), buckets=4, seconds=5)) as database:
        number, committer = plants_of(database)
        committer.commit(pair("x"))
        server.stop(signal.SIGQUIT)
        with pytest.raises(StoreUnavailable):
            committer.commit(pair("y"))
        with pytest.raises(StoreUnavailable):
            database.fetch(number, ["xa"])
        server.start()
        committer.commit(pair("z"))
        assert {*database.fetch(number, ["xa", "ya", "za"])} == {"xa", "za"}
