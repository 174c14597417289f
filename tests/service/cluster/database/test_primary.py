"""Which of several servers is the current primary, by what they say and what is remembered."""

from pathlib import Path
from typing import Any

import pytest

from gcws_search.service.cluster.connections import Standing, check_standing, latest
from gcws_search.service.cluster.contract import ClusterMismatch, Epoch, EpochMemory, FormerPrimary


def second(**more: Any) -> Epoch:  # noqa: ANN401
    """Return the epoch that is known, or another one."""
    said: dict[str, Any] = {"cluster": "c", "number": 2, "timeline": 2, "stamp": "b", "lsn": 500}
    return Epoch(**(said | more))


SECOND = second()
FIRST, SECOND_OF_SERVER = Epoch("c", 1, 1, "a"), Epoch("c", 2, 2, "b")


def standing(address: str = "east:1", **more: Any) -> Standing:  # noqa: ANN401
    """Return what the primary of the second epoch says, or another one."""
    said: dict[str, Any] = {
        "system": 7, "timeline": 2, "lsn": 600, "started": address, "cluster": "c",
        "last": SECOND_OF_SERVER, "last_system": 7, "known": "b", "heard": SECOND,
    }  # fmt: skip
    return Standing(address=address, **(said | more))


def remembering(epoch: Epoch | None) -> EpochMemory:
    memory = EpochMemory()
    if epoch is not None:
        memory.enter(epoch)
    return memory


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"timeline": 3, "lsn": 400},  # its standby, promoted
        {"last": Epoch("c", 3, 3, "d"), "timeline": 3, "lsn": 1},
    ],
)
def test_the_primary_that_is_known_and_its_successors_are_taken(said: dict[str, Any]) -> None:
    check_standing(standing(**said), remembering(SECOND), "c")


def test_a_server_is_held_against_what_was_known_before_it_was_asked() -> None:
    """Others write meanwhile, and the end of the log that they tell is behind what it said."""
    check_standing(standing(lsn=600), remembering(second(lsn=700)), "c")
    check_standing(standing(known="a", heard=FIRST), remembering(SECOND), "c")  # learned meanwhile


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            {"last": FIRST, "timeline": 1, "known": None},
            ["former primary", "expected epoch 2 (timeline 2) or later", "epoch 1 (timeline 1)"],
        ),
        ({"last": FIRST, "timeline": 2, "known": None}, ["former primary"]),
        ({"last": Epoch("c", 2, 2, "x"), "known": "x"}, ["another promotion"]),
        ({"last": None, "known": None}, ["former primary"]),
        ({"lsn": 499}, ["older copy", "0/1F4", "0/1F3"]),
        ({"cluster": "d"}, ["another cluster"]),
        ({"cluster": None, "last": None}, ["another cluster"]),
        ({"system": 8}, ["restored", "system 7", "system 8", "cluster adopt"]),
        ({"timeline": 1}, ["restored"]),
    ],
)
def test_others_are_refused_by_name(said: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(FormerPrimary) as refused:
        check_standing(standing(**said), remembering(SECOND), "c")
    assert refused.value.address == "east:1"
    for word in words:
        assert word in str(refused.value)


def test_the_last_of_several_is_taken_also_where_nothing_is_remembered() -> None:
    old = standing("west:1", last=FIRST, timeline=1)
    promoted = standing(last=FIRST, timeline=2)
    for found in ([(old, 0), (promoted, 1)], [(promoted, 1), (old, 0)]):
        assert latest(found) == (promoted, 1)


@pytest.mark.parametrize(
    "other",
    [
        {},  # a copy
        {"last": FIRST},  # promoted as well
        {"cluster": "d", "last": FIRST, "timeline": 1},
    ],
)
def test_of_two_none_is_taken_where_either_may_be_the_last(other: dict[str, Any]) -> None:
    with pytest.raises(FormerPrimary, match="2 servers take writes") as refused:
        latest([(standing(), 0), (standing("west:1", **other), 1)])
    assert refused.value.address == "east:1 and west:1"


def test_one_server_may_have_two_names() -> None:
    latest([(standing(), 0), (standing("localhost:1", started="east:1"), 1)])


def test_a_file_keeps_the_last_epoch_and_former_clusters(tmp_path: Path) -> None:
    file, rises = tmp_path / "folder" / "epoch.json", list[int]()
    memory = EpochMemory(file)
    memory.watch(lambda: rises.append(memory.number))
    memory.enter(SECOND)
    memory.learn(second(number=1, stamp="x"))
    memory.learn(second(number=4))
    assert EpochMemory(file).last == memory.last == second(number=4)
    assert rises == [2, 4]
    memory.enter(Epoch("d", 1, 1, "x"))
    again = EpochMemory(file)
    assert again.last == Epoch("d", 1, 1, "x")
    with pytest.raises(FormerPrimary, match="another cluster"):
        check_standing(standing(), again, None)
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"epoch\.json"):
        EpochMemory(file)


@pytest.mark.parametrize("other", [{"stamp": "x"}, {"cluster": "d", "number": 9}])
def test_what_another_promotion_or_cluster_says_is_refused(other: dict[str, Any]) -> None:
    memory = remembering(SECOND)
    with pytest.raises(ClusterMismatch):
        memory.learn(second(**other))
    assert memory.last == SECOND
