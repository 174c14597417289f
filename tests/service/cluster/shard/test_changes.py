"""Changes that routers send to shards: applied as they are, and read where any is missed."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from gcws_search.service.cluster.committer import Committer, PreparedDelete, PreparedPut
from gcws_search.service.cluster.contract import (
    START,
    ChangeSet,
    Position,
    Row,
    decode_changes,
    encode_change,
)
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.follower import HostOptions
from gcws_search.service.cluster.host import ShardHost
from gcws_search.service.errors import StoreUnavailable
from gcws_search.service.messages import Malformed
from tests.support.service.shards import Written, ask, follow, send, shards, some_vectors, together
from tests.support.waiting import wait_until

IDLE = HostOptions(poll_seconds=3600.0)
"""Asks the database for nothing by itself, once it has begun."""


@pytest.fixture
def hosts(database: Database, written: Written, tmp_path: Path) -> Iterator[list[ShardHost]]:
    """Return two shards that know the collection, and do not ask for it by themselves."""
    with shards(database, tmp_path, 2, options=IDLE) as running:
        follow(running, written)
        yield running


def write(written: Written, rng: np.random.Generator) -> list[ChangeSet]:
    """Put, replace and delete items; return what that changed."""
    before = len(written.changes)
    ids = [f"i{number}" for number in range(12)]
    written.put(some_vectors(rng, ids))
    written.put(some_vectors(rng, ids[3:6]))
    written.delete(ids[4:8])
    written.put(some_vectors(rng, [ids[5], "möre"]))
    return written.changes[before:]


@pytest.fixture
def unread(hosts: list[ShardHost], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have shards read no change from the database, once they know the collection."""
    del hosts

    def unavailable(*_: object, **__: object) -> NoReturn:
        raise StoreUnavailable("it is gone")

    monkeypatch.setattr(Database, "changes", unavailable)


@pytest.mark.usefixtures("unread")
def test_changes_are_applied_without_the_database(
    hosts: list[ShardHost], written: Written, rng: np.random.Generator
) -> None:
    for _ in range(2):
        send(hosts, written, write(written, rng))
        assert together(hosts, written) == written.rows()


@pytest.mark.parametrize(
    "sent",
    [
        lambda changes: changes[1:],
        lambda changes: changes[:2] + changes[3:],
        lambda changes: [*reversed(changes)],
        lambda changes: changes[:2] + changes,
        lambda changes: [],
    ],
    ids=["first", "middle", "order", "twice", "all"],
)
def test_what_is_missed_is_read(
    hosts: list[ShardHost],
    written: Written,
    rng: np.random.Generator,
    sent: Callable[[list[ChangeSet]], list[ChangeSet]],
) -> None:
    send(hosts, written, sent(write(written, rng)))
    assert together(hosts, written) == written.rows()
    send(hosts, written, write(written, rng))
    assert together(hosts, written) == written.rows()


def test_a_restart_begins_where_sent_changes_ended(
    database: Database, written: Written, tmp_path: Path, rng: np.random.Generator
) -> None:
    with shards(database, tmp_path, 2, options=IDLE) as hosts:
        follow(hosts, written)
        send(hosts, written, write(written, rng))
    with shards(database, tmp_path, 2, options=IDLE) as hosts:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Database, "changes", None)
            assert wait_until(lambda: all(host.followers for host in hosts))
        follow(hosts, written)
        send(hosts, written, write(written, rng))
        assert together(hosts, written) == written.rows()
        assert not any(each.fills for host in hosts for each in host.followers)


def test_more_than_may_wait_is_read_instead(
    database: Database, written: Written, tmp_path: Path, rng: np.random.Generator
) -> None:
    small = HostOptions(poll_seconds=3600.0, queue_bytes=10)
    with shards(database, tmp_path, 1, options=small) as hosts:
        follow(hosts, written)
        send(hosts, written, write(written, rng))
        assert together(hosts, written) == written.rows()


def test_a_change_of_another_history_is_not_applied(
    hosts: list[ShardHost], written: Written, rng: np.random.Generator
) -> None:
    changes = write(written, rng)
    send(hosts, written, changes)
    last = changes[-1].after
    other = ChangeSet(
        Position(last.key, last.commit, b"another"),
        Position(last.key + 1, last.key + 1, b"of nowhere"),
        ["i0"],
        [Row(last.key + 1, "i1", changes[0].rows[0].vector, None)],
    )
    written.put(some_vectors(rng, ["i2"]))  # else nothing is waited for, and nothing applied
    send(hosts, written, [other])
    assert together(hosts, written) == written.rows()


# What a commit says


def test_changes_lead_from_one_position_to_the_next(
    written: Written, rng: np.random.Generator
) -> None:
    changes = write(written, rng)
    assert changes[0].before == START
    assert [each.before for each in changes[1:]] == [each.after for each in changes[:-1]]
    assert changes[-1].after.key == written.head
    assert [each.deleted for each in changes] == [[], [], ["i4", "i5", "i6", "i7"], []]
    for change in changes:
        assert change.rows == sorted(change.rows)


def commit_together(committer: Committer, writes: Sequence[Any]) -> None:
    """Commit writes as one group."""
    leads: list[Callable[[], None]] = []
    for write in writes:
        committer.submit([write].pop, [].append, lambda lead, _: leads.append(lead))
    leads[0]()


def test_writes_of_one_group_are_one_change(written: Written) -> None:
    vector = written.node.space.to_blobs(written.node.space.from_items([[1.0] * 6]))
    put = PreparedPut(ids=["a"], vectors=vector, payloads=[None])
    written.committer.commit(put)
    commit_together(written.committer, [put, PreparedDelete(ids=["a"]), put])
    commit_together(written.committer, [put, PreparedDelete(ids=["a"])])
    _, first, second = written.changes
    assert (first.deleted, len(first.rows)) == ([], 1)
    assert (second.deleted, second.rows) == (["a"], [])


def test_nothing_is_said_of_a_write_that_stores_nothing(written: Written) -> None:
    written.delete(["unknown"])
    assert written.changes == []


# Messages


def test_changes_come_out_of_a_message_as_they_were(
    written: Written, rng: np.random.Generator
) -> None:
    changes = write(written, rng)
    sent = [encode_change(each) for each in changes]
    blobs = [blob for each in sent for blob in each.blobs]
    assert decode_changes([each.head for each in sent], blobs) == changes


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"before": [0, 0], "after": [1, 1, ""], "deleted": []},
        {"before": [0, 0, "xy"], "after": [1, 1, ""], "deleted": []},
    ],
)
def test_what_is_no_change_is_refused(
    hosts: list[ShardHost], written: Written, said: dict[str, Any]
) -> None:
    with pytest.raises(Malformed, match="a change"):
        ask(hosts[0], "follow", written.number, [b""] * 7, key=1, changes=[said])
    with pytest.raises(Malformed, match="a change"):
        ask(hosts[0], "follow", written.number, [], key=1, changes=[said])
