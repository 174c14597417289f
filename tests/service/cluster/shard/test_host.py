"""Hosts of shards: what they refuse, what they say of themselves, how they end."""

import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.contract import ClusterMismatch, CollectionRow
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from tests.support.service.shards import (
    QUICK,
    SECONDS,
    Start,
    Written,
    check_followed,
    fills,
    follow,
)
from tests.support.waiting import wait_until

ANNOUNCED = replace(QUICK, address="here:1", replica=3, cell="cell")


def test_a_folder_has_one_replica(database: Database, start: Start, tmp_path: Path) -> None:
    with start(1), pytest.raises(ix.DirectoryLocked):
        ShardHost(database, tmp_path / "0-of-1", 0, 1)
    with pytest.raises(ClusterMismatch, match="shard: expected 0 to 0, got -1"):
        ShardHost(database, tmp_path, -1, 1)  # the command refuses others


def test_a_replica_lists_itself_and_what_it_has_reached(
    database: Database, written: Written, start: Start
) -> None:
    written.put_some(["a", "b"])
    with start(1, options=ANNOUNCED) as [host]:
        follow([host], written)

        def is_listed() -> bool:
            return [each.positions for each in database.replicas("cell")] == [
                {written.number: written.head}
            ]

        assert wait_until(is_listed)
        [found] = database.replicas("cell")
        assert (found.shard, found.replica, found.address) == (0, 3, "here:1")
        assert found.nbytes > 0
        assert 0 < found.share < 1
        written.put_some(["c"])
        assert wait_until(is_listed)
        assert database.replicas("main") == []


def test_a_replica_that_is_filled_is_not_listed_before(
    database: Database, written: Written, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(["a", "b"])
    goes_on, polls = threading.Event(), count()
    prepare, collections = ix.StoredCollection.prepare, Database.collections

    def waiting(stored: ix.StoredCollection, *arguments: Any, **options: Any) -> ix.Put:  # noqa: ANN401
        assert goes_on.wait(SECONDS)
        return prepare(stored, *arguments, **options)

    def counted(database: Database) -> list[CollectionRow]:
        next(polls)
        return collections(database)

    monkeypatch.setattr(ix.StoredCollection, "prepare", waiting)
    monkeypatch.setattr(Database, "collections", counted)
    with start(1, options=ANNOUNCED) as [host]:
        assert wait_until(lambda: next(polls) > 50)
        assert database.replicas("cell") == []
        assert not host.is_ready
        goes_on.set()
        assert wait_until(lambda: len(database.replicas("cell")) == 1)
        assert host.is_ready


def test_a_replica_that_cannot_be_filled_is_listed_with_what_it_has(
    database: Database, written: Written, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    written.put_some(["a", "b"])

    def full(*_: object, **__: object) -> NoReturn:
        raise ix.DiskFull("c1")

    monkeypatch.setattr(ix.StoredCollection, "commit", full)
    with start(1, options=ANNOUNCED) as [host]:
        assert wait_until(lambda: len(database.replicas("cell")) == 1)
        assert wait_until(lambda: "no space left" in database.replicas("cell")[0].refusal)
        assert database.replicas("cell")[0].positions == {written.number: -1}
        assert not host.is_ready


def test_what_no_replica_needs_is_forgotten_by_those_that_are_listed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims = count()
    monkeypatch.setattr(Database, "trim", lambda _: next(trims))
    with start(1, options=replace(ANNOUNCED, trim_seconds=0.0)):
        assert wait_until(lambda: next(trims) > 50)


def test_a_host_ends_amid_a_fill(written: Written, start: Start) -> None:
    written.put_some([f"i{number}" for number in range(200)])
    with start(1, options=replace(QUICK, chunk_rows=1)) as [host]:
        assert wait_until(lambda: bool(host.catalog.list()))
    with start(1) as [host]:
        check_followed([host], written)
        assert fills([host]) == [0]
