"""The check of histories: each thing that must not happen is told, and what may happen is not."""

from contextlib import nullcontext

import pytest

from tests.service.cluster.partitions.history import Broken, History, Noted, Read, Write


def history(writes: list[Write], reads: list[Read]) -> History:
    found = History()
    found.writes, found.reads = writes, reads
    return found


WRITES = [
    Write(0, ["a", "b"], 1, begun=0, ended=1),
    Write(1, ["a"], 2, begun=2, ended=3),
    Write(0, ["a"], 3, begun=2.5),  # nobody knows
    Write(1, ["b"], 4, begun=2, ended=3, is_refused=True),
]
NOTED = [Noted("a", 1, 1), Noted("b", 2, 1), Noted("a", 3, 2)]


@pytest.mark.parametrize(
    "read",
    [
        Read(0, {"a": 2, "b": 1}, 4, 5, is_strict=True),
        Read(0, {"a": 1, "b": 1}, 4, 5, is_strict=False),  # the other router acknowledged 2
        Read(0, {"a": 1, "b": 1}, 2.5, 2.7, is_strict=True),  # 2 is under way
        Read(1, {}, 0.5, 0.7, is_strict=True),  # so is 1
    ],
)
def test_what_may_happen_is_not_told(read: Read) -> None:
    history(WRITES, [read]).check(NOTED)
    history(WRITES, []).check([*NOTED, Noted("a", 4, 3)])


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        (NOTED[:2], "an acknowledged write is lost"),
        (NOTED[1:], "an acknowledged write is lost"),
        ([*NOTED, Noted("b", 4, 4)], "a refused write is stored"),
        ([Noted("a", 3, 1), Noted("b", 2, 1), Noted("a", 1, 2)], "an earlier write has won"),
    ],
)
def test_writes_that_went_wrong_are_told(noted: list[Noted], said: str) -> None:
    with pytest.raises(Broken, match=said):
        history(WRITES, []).check(noted)


@pytest.mark.parametrize(
    ("noted", "is_refused", "said"),
    [
        ([*NOTED, Noted("a", 4, 0)], False, None),
        (NOTED, True, None),
        (NOTED, False, "an acknowledged delete is lost"),
        ([*NOTED, Noted("a", 4, 0)], True, "a refused delete is made"),
    ],
)
def test_a_delete_is_made_if_it_was_acknowledged_and_not_if_it_was_refused(
    noted: list[Noted], is_refused: bool, said: str | None
) -> None:
    delete = Write(0, ["a", "c"], 0, begun=4, ended=5, is_refused=is_refused)
    found = history([*WRITES, delete], [])
    found.since = 3
    with nullcontext() if said is None else pytest.raises(Broken, match=said):
        found.check(noted)


def test_half_of_a_write_that_nobody_knows_of_is_told() -> None:
    with pytest.raises(Broken, match="half of a write"):
        history([Write(0, ["a", "b"], 1, begun=0)], []).check(NOTED[:1])


@pytest.mark.parametrize(
    ("reads", "said"),
    [
        ([Read(0, {"a": 1, "b": 1}, 4, 5, is_strict=True)], "a stale answer"),
        ([Read(1, {"a": 1, "b": 1}, 4, 5, is_strict=False)], "a stale answer"),
        ([Read(0, {"b": 1}, 4, 5, is_strict=True)], "a stale answer"),
        ([Read(0, {"a": 2, "b": 1}, 1, 1.5, is_strict=True)], "an answer from the future"),
        (
            [
                Read(0, {"a": 2, "b": 1}, 2.1, 2.2, is_strict=True),
                Read(1, {"a": 1, "b": 1}, 2.3, 2.4, is_strict=True),
            ],
            "a stale answer",
        ),
    ],
)
def test_reads_of_what_was_no_more_or_not_yet_are_told(reads: list[Read], said: str) -> None:
    with pytest.raises(Broken, match=said):
        history(WRITES, reads).check(NOTED)


def test_a_deleted_item_may_be_missing_afterwards_alone() -> None:
    noted = [*NOTED, Noted("b", 4, 0)]
    history(WRITES, [Read(0, {"a": 2}, 4, 5, is_strict=True)]).check(noted)
    again = [Read(0, {"a": 2}, 4, 5, is_strict=True), Read(0, {"a": 2, "b": 1}, 6, 7, True)]
    with pytest.raises(Broken, match="a stale answer"):
        history(WRITES, again).check(noted)
