"""Answers of one shard; those of all together are compared with a node's in test_equality.py."""

import threading
from collections.abc import Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.cluster.operations import decode_keys
from gcws_search.service.errors import AnswerTooLarge
from gcws_search.service.messages import Malformed, encode_vectors
from tests.support.service.shards import DIM, SECONDS, Start, Written, ask, follow

COUNT = 60


@pytest.fixture
def host(written: Written, start: Start) -> Iterator[ShardHost]:
    ids = [f"i{number}" for number in range(COUNT)]
    written.put_some(ids)
    written.put_some(ids[::7])
    written.delete(["i3", "i4"])
    with start(1) as [host]:
        follow([host], written)
        yield host


def test_a_backend_that_is_attached_while_the_list_of_them_is_read_stays(
    host: ShardHost, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, read = written.number, Database.backends
    ask(host, "follow", number, key=written.head)
    begun, ended = threading.Event(), threading.Event()

    def backends(database: Database, number: int) -> list[ix.BackendRecord]:
        found = read(database, number)
        if threading.current_thread() is first:
            begun.set()
            ended.wait(SECONDS)
        return found

    def attach() -> None:
        while "exact" not in ask(host, "refresh", number).head["ready"]:
            pass

    first = threading.Thread(target=ask, args=(host, "refresh", number))
    second = threading.Thread(target=attach)
    monkeypatch.setattr(Database, "backends", backends)
    first.start()
    begun.wait(SECONDS)
    written.database.add_backend(number, ix.BackendRecord("exact", "exact", "{}", None))
    second.start()
    second.join(0.3)  # or it waits for the first
    ended.set()
    for each in (first, second):
        each.join()
    assert [each["name"] for each in ask(host, "describe", number).head["backends"]][1:] == [
        "exact"
    ]


def test_too_long_an_answer_is_refused(host: ShardHost, written: Written) -> None:
    said, blobs = encode_vectors(written.node.space.from_dense(np.ones((5, DIM), np.float32)))
    head: dict[str, Any] = {"at": written.head, "params": asdict(ix.SearchParams()), "filter": None}
    search = partial(ask, host, "search", written.number, blobs, **head, **said, with_payload=True)
    with pytest.raises(AnswerTooLarge):
        search(max_bytes=100)
    search(max_bytes=100_000)


def test_a_sample_is_what_its_seed_draws(host: ShardHost, written: Written) -> None:
    def drawn(count: int, seed: int) -> list[int]:
        return decode_keys(ask(host, "rows", written.number, sample=count, seed=seed))

    assert drawn(10, 3) == drawn(10, 3) != drawn(10, 4)
    assert len({*drawn(10, 3)}) == 10
    assert drawn(10 * COUNT, 3) == [row.key for row in written.rows()]


def test_a_shard_says_what_it_has_and_what_it_does_not(host: ShardHost, written: Written) -> None:
    said = ask(host, "status", 0).head
    assert said["identity"] == written.database.identity
    assert (said["shard"], said["shards"]) == (0, 1)
    assert said["collections"] == {str(written.number): written.head}
    assert said["bytes"] > 0
    for method in ("count", "count", "follow"):
        with pytest.raises(ix.CollectionNotFound):
            ask(host, method, 999, key=0)
    nothing: Any
    for nothing in ("nothing", "", None):
        with pytest.raises(Malformed):
            ask(host, nothing, written.number)
