"""Changes that routers send to shards: applied as they are, and read where any is missed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from gcws_search.service.cluster.committer import Committer, PreparedChoice, PreparedPut
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
from tests.support.service.shards import (
    Start,
    Written,
    ask,
    fills,
    follow,
    send,
    together,
    unversioned,
)
from tests.support.waiting import wait_until

IDLE = HostOptions(poll_seconds=3600.0)
"""Asks the database for nothing by itself, once it has begun."""


@pytest.fixture
def hosts(written: Written, start: Start) -> Iterator[list[ShardHost]]:
    """Return two shards that know the collection, and do not ask for it by themselves."""
    with start(2, options=IDLE) as running:
        follow(running, written)
        yield running


def write(written: Written) -> list[ChangeSet]:
    """Put, replace and delete items; return what that changed."""
    before = len(written.changes)
    ids = [f"i{number}" for number in range(12)]
    written.put_some(ids)
    written.put_some(ids[3:6])
    written.delete(ids[4:8])
    written.put_some([ids[5], "möre"])
    return written.changes[before:]


def unavailable(*_: object, **__: object) -> NoReturn:
    raise StoreUnavailable("it is gone")


@pytest.fixture
def unread(hosts: list[ShardHost], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have shards read no change from the database, once they know the collection."""
    del hosts
    monkeypatch.setattr(Database, "changes", unavailable)


def send_all(hosts: list[ShardHost], written: Written, changes: list[ChangeSet]) -> None:
    """Send changes; fail unless shards have together what the database has."""
    send(hosts, written, changes)
    assert together(hosts, written) == written.rows()


@pytest.mark.usefixtures("unread")
def test_changes_are_applied_without_the_database(hosts: list[ShardHost], written: Written) -> None:
    for _ in range(2):
        send_all(hosts, written, write(written))


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
    hosts: list[ShardHost], written: Written, sent: Callable[[list[ChangeSet]], list[ChangeSet]]
) -> None:
    send_all(hosts, written, sent(write(written)))
    send_all(hosts, written, write(written))


def test_a_restart_begins_where_sent_changes_ended(written: Written, start: Start) -> None:
    with start(2, options=IDLE) as hosts:
        follow(hosts, written)
        send(hosts, written, write(written))
    with start(2, options=IDLE) as hosts:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Database, "changes", None)
            assert wait_until(lambda: all(host.followers for host in hosts))
        follow(hosts, written)
        send_all(hosts, written, write(written))
        assert not any(fills(hosts))


def test_more_than_may_wait_is_read_instead(
    written: Written, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids and payloads count, too."""
    with start(1, options=replace(IDLE, queue_bytes=500)) as hosts:
        follow(hosts, written)
        with monkeypatch.context() as patched:
            patched.setattr(Database, "changes", unavailable)
            written.put_some(["a", "b", "c"])
            send_all(hosts, written, written.changes[-1:])
            written.put_some([240 * name for name in "abc"])
            part = encode_change(written.changes[-1])
            said: dict[str, Any] = {"key": written.head, "changes": [part.head], "seconds": 0.5}
            reached = ask(hosts[0], "follow", written.number, part.blobs, **said).head["key"]
            assert reached < written.head
        send_all(hosts, written, [])


def test_a_change_of_another_history_is_not_applied(
    hosts: list[ShardHost], written: Written
) -> None:
    changes = write(written)
    send(hosts, written, changes)
    last = changes[-1].after
    other = ChangeSet(
        Position(last.key, last.commit, b"another"),
        Position(last.key + 1, last.key + 1, b"of nowhere"),
        ["i0"],
        [Row(last.key + 1, "i1", changes[0].rows[0].vector, None)],
    )
    written.put_some(["i2"])  # else nothing is waited for, and nothing applied
    send_all(hosts, written, [other])


# What a commit says


def test_changes_lead_from_one_position_to_the_next(written: Written) -> None:
    written.delete(["unknown"])  # stores nothing, and nothing is said of it
    changes = write(written)
    assert changes[0].before == START
    assert [each.before for each in changes[1:]] == [each.after for each in changes[:-1]]
    assert changes[-1].after.key == written.head
    assert [each.deleted for each in changes] == [[], [], ["i4", "i5", "i6", "i7"], []]
    for change in changes:
        assert change.rows == sorted(change.rows)
    sent = [encode_change(each) for each in changes]
    blobs = [blob for each in sent for blob in each.blobs]
    assert decode_changes([each.head for each in sent], blobs) == [
        ChangeSet(*each[:3], rows=[*map(unversioned, each.rows)]) for each in changes
    ]


def commit_together(committer: Committer, writes: Sequence[Any]) -> None:
    leads: list[Callable[[], None]] = []
    for write in writes:
        committer.submit([write].pop, [].append, lambda lead, _: leads.append(lead))
    leads[0]()


def test_writes_of_one_group_are_one_change(written: Written) -> None:
    vector = written.node.space.to_blobs(written.node.space.from_items([[1.0] * 6]))
    put = PreparedPut(ids=["a"], vectors=vector, payloads=[None])
    written.committer.commit(put)
    commit_together(written.committer, [put, PreparedChoice(ids=["a"]), put])
    commit_together(written.committer, [put, PreparedChoice(ids=["a"])])
    _, first, second = written.changes
    assert (first.deleted, len(first.rows)) == ([], 1)
    assert (second.deleted, second.rows) == (["a"], [])


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
    for blobs in ([b""] * 7, []):
        with pytest.raises(Malformed, match="a change"):
            ask(hosts[0], "follow", written.number, blobs, key=1, changes=[said])
