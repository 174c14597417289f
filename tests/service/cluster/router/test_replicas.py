"""Which replica answers where one is late, gone, behind or of another version."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
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
Answer = Callable[[bytes], bytes] | Exception | None
"""What a replica does: answer, fail, or (None) never answer."""


class Told(HttpReplica):
    """A replica that does as it is told."""

    def __init__(self, address: str, answer: Answer) -> None:
        self.address = address
        self.answer = answer
        self.refusal = ""
        self.asked: list[Message] = []

    async def ask(self, message: bytes, seconds: float) -> bytes:
        self.asked.append(decode(message))
        if self.answer is None:
            await asyncio.sleep(seconds + 60)
        if isinstance(self.answer, Exception):
            raise self.answer
        assert self.answer is not None
        return self.answer(message)


class Listed(HttpReplicas):
    """Replicas of all shards."""

    def __init__(self, *shards: Sequence[Told]) -> None:
        self.shards = shards

    def start(self) -> None: ...

    async def renew(self) -> None: ...

    async def close(self) -> None: ...


def said(**head: Any) -> Callable[[bytes], bytes]:  # noqa: ANN401
    return lambda _: encode(Message(head))


def told(error: Exception) -> Callable[[bytes], bytes]:
    return lambda _: encode_error(error)


def run(work: Coroutine[Any, Any, Any]) -> Any:  # noqa: ANN401
    return asyncio.run(work)


def asked(*shards: Sequence[Told], seconds: float = SECONDS) -> list[dict[str, Any]]:
    """Return what the shards answer."""
    found = ShardSet(Listed(*shards), seconds)
    return [answer.head for answer in run(found.ask_all(Message({"method": "status"})))]


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
def test_a_sister_answers(answer: Answer) -> None:
    bad, good = Told("bad", answer), Told("good", said(by="good"))
    for order in ([bad, good], [good, bad]):
        assert asked(order, seconds=0.5) == [{"by": "good"}]
    assert bad.asked


def test_what_is_wrong_with_the_question_is_told_by_the_first() -> None:
    errors: list[Exception] = [
        ix.InvalidVector(expected="4 values", got="3 values", loc=(1, "x")),
        ix.BackendNotFound("none"),
        ix.ItemNotFound("none"),
        AnswerTooLarge(100),
    ]
    for error in errors:
        one, two = (Told(name, told(error)) for name in "ab")
        with pytest.raises(type(error)) as found:
            asked([one, two])
        assert str(found.value) == str(error)
        assert vars(found.value) == vars(error)
        assert len(one.asked) + len(two.asked) == 1


def test_shards_without_an_answer_are_named() -> None:
    gone = ConnectionRefusedError("nobody listens")
    shards = [[Told("a", gone), Told("b", gone)], [Told("c", said(by="c"))], [Told("d", None)], []]
    with pytest.raises(ShardUnavailable) as found:
        asked(*shards, seconds=0.3)
    assert found.value.missing == [0, 2, 3]


class Renewed(Listed):
    """Replicas that are others as soon as somebody looks again."""

    def __init__(self, *renewals: Sequence[Sequence[Told]]) -> None:
        super().__init__(*renewals[0])
        self.renewals = [*renewals[1:]]

    async def renew(self) -> None:
        if self.renewals:
            self.shards = tuple(self.renewals.pop(0))


def test_replicas_that_were_listed_since_are_asked_where_none_known_answers() -> None:
    first, second, third = (Told(name, ConnectionRefusedError()) for name in "abc")
    last = Told("d", said(by="d"))
    listed = Renewed([[first, second]], [[second, third]], [[last, third]])
    found = run(ShardSet(listed, SECONDS).ask(0, 1, Message({})))
    assert found.head == {"by": "d"}
    assert [len(each.asked) for each in (first, second, third, last)] == [1, 1, 1, 1]


def test_a_list_that_is_of_another_number_of_shards_by_then_is_not_asked() -> None:
    one, other = Told("a", ConnectionRefusedError()), Told("b", said(by="b"))
    shards = ShardSet(Renewed([[one]], [[other], [other]]), SECONDS)
    with pytest.raises(ShardUnavailable):
        run(shards.ask(0, 1, Message({})))
    assert not other.asked


def test_a_list_that_cannot_be_read_is_waited_for_as_long_as_a_shard() -> None:
    class Silent(Listed):
        async def renew(self) -> None:
            await asyncio.sleep(60)

    shards = ShardSet(Silent([Told("a", ConnectionRefusedError())]), 0.2)
    with pytest.raises(ShardUnavailable):
        asyncio.run(asyncio.wait_for(shards.ask(0, 1, Message({})), 10))


def test_a_replica_that_failed_is_asked_last_until_it_answers() -> None:
    bad, good = Told("bad", ConnectionResetError()), Told("good", said(by="good"))
    shards = ShardSet(Listed([bad, good]), SECONDS)

    async def ask(times: int) -> None:
        for _ in range(times):
            await shards.ask(0, 1, Message({}))

    run(ask(2))
    before = len(bad.asked)
    assert before
    run(ask(20))
    assert len(bad.asked) == before
    assert sum(shards.failures.values()) == before


def test_replicas_of_each_shard_take_turns() -> None:
    replicas = [Told(name, said(by=name)) for name in "abcd"]
    shards = ShardSet(Listed(replicas[:2], replicas[2:]), SECONDS)

    async def ask() -> None:
        for _ in range(10):
            await shards.ask_all(Message({}))

    run(ask())
    assert [len(replica.asked) for replica in replicas] == [5] * 4


def followed(message: bytes) -> bytes:
    return encode(Message({"key": decode(message).head["key"]}))


def test_writes_that_wait_together_ask_a_replica_once() -> None:
    one, gone = Told("one", followed), Told("gone", ConnectionRefusedError())
    shards = ShardSet(Listed([one], [gone]), SECONDS)

    async def writes() -> None:
        await asyncio.gather(*(shards.follow(7, Moment(0, key)) for key in range(1, 51)))

    run(writes())
    assert 1 <= len(one.asked) <= 3
    assert max(message.head["key"] for message in one.asked) == 50


def test_a_write_that_a_replica_has_waits_for_no_other() -> None:
    begun, released = asyncio.Event(), asyncio.Event()

    class Slow(Told):
        async def ask(self, message: bytes, seconds: float) -> bytes:
            if decode(message).head["key"] > 1:
                begun.set()
                await released.wait()
            return await super().ask(message, seconds)

    shards = ShardSet(Listed([Slow("one", followed)]), SECONDS)

    async def writes() -> None:
        await shards.follow(7, Moment(0, 1))
        second = asyncio.ensure_future(shards.follow(7, Moment(0, 2)))
        await begun.wait()
        await shards.follow(7, Moment(0, 1))
        assert not second.done()
        released.set()
        await second

    run(writes())


def test_what_is_not_wanted_any_more_is_not_waited_for() -> None:
    shards, stop = ShardSet(Listed([Told("one", None)]), SECONDS), threading.Event()

    def waited() -> bool:
        work = shards.ask_all(Message({"method": "pairs"}), seconds=3600)
        try:
            shards.wait(work, stop)
        except CancelledError:
            return False
        return True

    async def stopped() -> None:
        shards.start(asyncio.get_running_loop())
        waiting = asyncio.create_task(asyncio.to_thread(waited))
        await asyncio.sleep(0)
        stop.set()
        assert not await waiting
        assert len(asyncio.all_tasks()) == 1

    run(stopped())


def test_writes_wait_for_a_replica_that_failed_once_it_has_answered() -> None:
    """However long ago it failed."""
    one = Told("one", ConnectionRefusedError())
    shards = ShardSet(Listed([one]), SECONDS)
    shards.rest_seconds = 0.0

    async def writes() -> int:
        for key in range(1, 6):
            await shards.follow(7, Moment(0, key))
        return len(one.asked)

    assert run(writes()) == 1
    one.answer = said(key=5)
    run(shards.ask(0, 1, Message({})))
    assert run(writes()) > 2


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


def test_changes_go_with_the_next_question_in_their_order() -> None:
    one, gone = Told("one", followed), Told("gone", ConnectionRefusedError())
    shards = ShardSet(Listed([one, gone]), SECONDS)

    async def writes() -> None:
        shards.start(asyncio.get_running_loop())
        for key in (1, 2, 3):
            shards.publish(7, a_change(key), 4)
        await asyncio.sleep(0)
        await shards.follow(7, Moment(0, 3))
        shards.publish(7, a_change(4), 4)
        await asyncio.sleep(0)
        await shards.follow(7, Moment(0, 4))

    run(writes())
    assert sent_keys(one) == [[1, 2, 3], [4]]
    assert len(gone.asked) == 1


def test_changes_of_a_message_that_was_lost_are_not_sent_again() -> None:
    one = Told("one", ConnectionRefusedError())
    shards = ShardSet(Listed([one]), SECONDS)

    async def writes() -> None:
        shards.start(asyncio.get_running_loop())
        for key in (1, 2):
            shards.publish(7, a_change(key), 4)
            await asyncio.sleep(0)
            await shards.follow(7, Moment(0, key))
            one.answer = followed
            await shards.ask(0, 1, Message({"key": 0, "changes": []}))

    run(writes())
    assert sent_keys(one) == [[1], [], [2], []]


def test_more_changes_than_may_wait_are_left_to_the_database() -> None:
    one = Told("one", followed)
    shards = ShardSet(Listed([one]), SECONDS)

    async def writes() -> None:
        shards.start(asyncio.get_running_loop())
        shards.publish(7, a_change(1, deleted=20_000), 4)
        shards.publish(7, a_change(1, size=1 << 24), 4)
        shards.publish(7, a_change(2), 4)
        await asyncio.sleep(0)
        await shards.follow(7, Moment(0, 2))

    run(writes())
    assert sent_keys(one) == [[2]]
