"""Which replica answers where one is late, gone, behind or of another version."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any

import pytest

from gcws_search import index as ix
from gcws_search.service.cluster.contract import (
    Behind,
    ChangeSet,
    Moment,
    Position,
    Row,
    decode_changes,
    encode_error,
)
from gcws_search.service.cluster.shards import HttpReplica, HttpReplicas, ShardSet
from gcws_search.service.errors import AnswerTooLarge, ShardUnavailable
from gcws_search.service.messages import VERSION, Message, decode, encode

SECONDS = 5.0
pytestmark = pytest.mark.anyio
Answer = Callable[[bytes], bytes] | Exception | None
"""What a replica does: answer, fail, or (None) never answer."""


class Told(HttpReplica):
    """A replica that does as it is told."""

    def __init__(self, address: str, answer: Answer) -> None:
        super().__init__(address, "", Listed())
        self.answer = answer
        self.asked: list[Message] = []

    async def ask(self, message: bytes) -> bytes:
        self.asked.append(decode(message))
        if self.answer is None:
            await asyncio.Event().wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer(message)


class Listed(HttpReplicas):
    """Replicas of all shards, which are others each time that somebody looks again."""

    def __init__(self, *shards: Sequence[Told]) -> None:
        self.shards = shards
        self.renewals: list[Sequence[Sequence[Told]]] = []

    def start(self) -> None: ...

    async def renew(self) -> None:
        if self.renewals:
            self.shards = self.renewals.pop(0)


def said(**head: Any) -> Callable[[bytes], bytes]:  # noqa: ANN401
    return lambda _: encode(Message(head))


def gone(name: str) -> Told:
    return Told(name, ConnectionRefusedError("nobody listens"))


def shards_of(*shards: Sequence[Told], seconds: float = SECONDS) -> ShardSet:
    return ShardSet(Listed(*shards), seconds)


async def asked(*shards: Sequence[Told], seconds: float = SECONDS) -> list[dict[str, Any]]:
    found = await shards_of(*shards, seconds=seconds).ask(Message({"method": "status"}))
    return [answer.head for answer in found]


def of_version(version: int) -> Callable[[bytes], bytes]:
    data = encode(Message({"from": "elsewhere"}))
    return lambda _: version.to_bytes(2, "little") + data[2:]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        ConnectionRefusedError("nobody listens"),
        TimeoutError(),
        lambda _: b"",
        lambda _: b"<html>",
        lambda _: encode(Message({}))[:-1],
        of_version(VERSION + 1),
        lambda _: encode_error(Behind(9, 3)),
        lambda _: encode_error(RuntimeError("what no replica should have")),
    ],
    ids=["silent", "gone", "late", "empty", "page", "cut", "version", "behind", "broken"],
)
async def test_a_sister_answers(answer: Answer) -> None:
    bad, good = Told("bad", answer), Told("good", said(by="good"))
    for order in ([bad, good], [good, bad]):
        assert await asked(order, seconds=0.5) == [{"by": "good"}]
    assert bad.asked


@pytest.mark.parametrize(
    "error",
    [
        ix.InvalidVector(expected="4 values", got="3 values", loc=(1, "x")),
        ix.BackendNotFound("none"),
        ix.ItemNotFound("none"),
        AnswerTooLarge(100),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_what_is_wrong_with_the_question_is_told_by_the_first(error: Exception) -> None:
    one, two = (Told(name, lambda _: encode_error(error)) for name in "ab")
    with pytest.raises(type(error)) as found:
        await asked([one, two])
    assert str(found.value) == str(error)
    assert vars(found.value) == vars(error)
    assert len(one.asked) + len(two.asked) == 1


async def test_an_error_that_was_told_is_held_by_nobody() -> None:
    """Nor its traceback, whose frames have the answers of all shards."""
    one = Told("one", lambda _: encode_error(ix.ItemNotFound("none")))
    found: list[weakref.ref[Exception]] = []
    gc.disable()
    try:
        try:
            await asked([one])
        except ix.ItemNotFound as error:
            found.append(weakref.ref(error))
        assert [each() for each in found] == [None]
    finally:
        gc.enable()


async def test_shards_without_an_answer_are_named() -> None:
    shards = [[gone("a"), gone("b")], [Told("c", said(by="c"))], [Told("d", None)], []]
    with pytest.raises(ShardUnavailable) as found:
        await asked(*shards, seconds=0.3)
    assert found.value.missing == [0, 2, 3]


async def test_replicas_that_were_listed_since_are_asked_where_none_known_answers() -> None:
    first, second, third = map(gone, "abc")
    last = Told("d", said(by="d"))
    listed = Listed([first, second])
    listed.renewals = [[[second, third]], [[last, third]]]
    [found] = await ShardSet(listed, SECONDS).ask(Message({}))
    assert found.head == {"by": "d"}
    assert [len(each.asked) for each in (first, second, third, last)] == [1, 1, 1, 1]


async def test_a_list_that_is_of_another_number_of_shards_by_then_is_not_asked() -> None:
    listed, other = Listed([gone("a")]), Told("b", said(by="b"))
    listed.renewals = [[[other], [other]]]
    with pytest.raises(ShardUnavailable):
        await ShardSet(listed, SECONDS).ask(Message({}))
    assert not other.asked


async def test_what_is_for_another_number_of_shards_is_asked_of_none() -> None:
    one = Told("one", said(by="one"))
    with pytest.raises(ShardUnavailable):
        await shards_of([one]).ask({0: Message({})}, count=2)
    assert not one.asked


async def test_a_list_that_cannot_be_read_is_waited_for_as_long_as_a_shard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Listed, "renew", lambda _: asyncio.sleep(60))
    with pytest.raises(ShardUnavailable):
        await asyncio.wait_for(shards_of([gone("a")], seconds=0.2).ask(Message({})), 10)


async def test_a_replica_that_failed_is_asked_last_until_it_answers() -> None:
    bad, good = Told("bad", ConnectionResetError()), Told("good", said(by="good"))
    shards = shards_of([bad, good])
    for _ in range(2):
        await shards.ask(Message({}))
    before = len(bad.asked)
    assert before
    for _ in range(20):
        await shards.ask(Message({}))
    assert len(bad.asked) == before
    assert sum(shards.failures.values()) == before


async def test_replicas_of_each_shard_take_turns() -> None:
    replicas = [Told(name, said(by=name)) for name in "abcd"]
    shards = shards_of(replicas[:2], replicas[2:])
    for _ in range(10):
        await shards.ask(Message({}))
    assert [len(replica.asked) for replica in replicas] == [5] * 4


def followed(message: bytes) -> bytes:
    return encode(Message({"key": decode(message).head["key"]}))


async def test_writes_that_wait_together_ask_a_replica_once() -> None:
    one = Told("one", followed)
    shards = shards_of([one], [gone("gone")])
    await asyncio.gather(*(shards.follow(7, Moment(0, key)) for key in range(1, 51)))
    assert 1 <= len(one.asked) <= 3
    assert max(message.head["key"] for message in one.asked) == 50


async def test_a_write_that_a_replica_has_waits_for_no_other() -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    class Slow(Told):
        async def ask(self, message: bytes) -> bytes:
            if decode(message).head["key"] > 1:
                begun.set()
                await released.wait()
            return await super().ask(message)

    shards = shards_of([Slow("one", followed)])
    await shards.follow(7, Moment(0, 1))
    second = asyncio.ensure_future(shards.follow(7, Moment(0, 2)))
    await begun.wait()
    await shards.follow(7, Moment(0, 1))
    assert not second.done()
    released.set()
    await second


async def test_what_is_not_wanted_any_more_is_not_waited_for() -> None:
    shards, stop = shards_of([Told("one", None)]), threading.Event()
    before = asyncio.all_tasks()
    shards.start(asyncio.get_running_loop())

    def wait() -> None:
        with pytest.raises(CancelledError):
            shards.wait(shards.ask(Message({"method": "pair_rows"}), seconds=3600), stop)

    waiting = asyncio.create_task(asyncio.to_thread(wait))
    await asyncio.sleep(0)
    stop.set()
    await waiting
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize("answer", [None, ConnectionRefusedError()], ids=["silent", "gone"])
async def test_writes_wait_for_a_replica_that_failed_once_it_has_answered(answer: Answer) -> None:
    """However long ago it failed."""
    one = Told("one", answer)
    shards = shards_of([one])
    shards.rest_seconds, shards.follow_seconds = 0.0, 0.05
    for key in range(1, 6):
        await shards.follow(7, Moment(0, key))
    assert len(one.asked) == 1
    one.answer, shards.follow_seconds = said(key=5), SECONDS
    await shards.ask(Message({}))
    for key in range(1, 6):
        await shards.follow(7, Moment(0, key))
    assert len(one.asked) > 2


async def publish(shards: ShardSet, *changes: ChangeSet) -> None:
    """Send changes, and wait until replicas have the last."""
    shards.start(asyncio.get_running_loop())
    for change in changes:
        shards.publish(7, change, 4)
    await asyncio.sleep(0)
    await shards.follow(7, Moment(0, changes[-1].after.key))


def a_change(key: int, size: int = 8, deleted: int = 0) -> ChangeSet:
    before, after = (Position(each, each, b"stamp %d" % each) for each in (key - 1, key))
    return ChangeSet(before, after, ["i"] * deleted, [Row(key, f"i{key}", bytes(size), None)])


def sent_keys(replica: Told) -> list[list[int]]:
    """Return the keys of the changes of each message, and that the message asks for them all."""
    found = []
    for message in replica.asked:
        changes = decode_changes(message.head["changes"], message.blobs)
        found.append([change.after.key for change in changes])
        assert found[-1][-1:] in ([], [message.head["key"]])
    return found


async def test_changes_go_with_the_next_question_in_their_order() -> None:
    one, other = Told("one", followed), gone("gone")
    shards = shards_of([one, other])
    await publish(shards, *map(a_change, (1, 2, 3)))
    await publish(shards, a_change(4))
    assert sent_keys(one) == [[1, 2, 3], [4]]
    assert len(other.asked) == 1


async def test_changes_of_a_message_that_was_lost_are_not_sent_again() -> None:
    one = gone("one")
    shards = shards_of([one])
    for key in (1, 2):
        await publish(shards, a_change(key))
        one.answer = followed
        await shards.ask(Message({"key": 0, "changes": []}))
    assert sent_keys(one) == [[1], [], [2], []]


async def test_more_changes_than_may_wait_are_left_to_the_database() -> None:
    one = Told("one", followed)
    too_many, too_large = a_change(1, deleted=20_000), a_change(1, size=1 << 24)
    await publish(shards_of([one]), too_many, too_large, a_change(2))
    assert sent_keys(one) == [[2]]
