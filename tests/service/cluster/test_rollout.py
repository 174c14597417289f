"""What `gcws-search cluster` does to replicas, over a placement in memory."""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

from gcws_search.service.cluster.contract import Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.cluster.rollout import ReplicaPlace, ReplicaState, Rollout, status_of
from gcws_search.service.settings import Settings
from tests.support.service.shards import BUCKETS

if TYPE_CHECKING:
    from gcws_search.service.cluster.placing import RayPlacement


class Placed:
    """A placement whose replicas are filled when they have been looked at some times."""

    def __init__(self, database: Database, nodes: str = "abc") -> None:
        self.database = database
        self.there: dict[ReplicaPlace, str] = {}
        self.unplaceable: set[ReplicaPlace] = set()
        self.elsewhere: set[ReplicaPlace] = set()
        self.failures: dict[ReplicaPlace, str] = {}
        self.looks: dict[ReplicaPlace, int] = {}
        self.events: list[tuple[str, Any]] = []
        self._nodes = nodes

    def nodes(self) -> list[str]:
        return [*self._nodes]

    def places(self, cell: str) -> list[ReplicaPlace]:
        return sorted(each for each in self.there if each.cell == cell)

    def states(self, places: Iterable[ReplicaPlace]) -> Mapping[ReplicaPlace, ReplicaState]:
        found = {}
        for each in places:
            if each not in self.there or each in self.unplaceable:
                continue
            self.looks[each] = looks = self.looks.get(each, 0) + 1
            failure = self.failures.get(each, "")
            is_filled = looks > 2 and not failure
            if is_filled and each not in self.elsewhere:
                listed = Replica(
                    each.cell, each.shard, each.replica, each.name, {}, 1, 0.5, 0, each.shards
                )
                self.database.announce(listed)
            found[each] = ReplicaState(self.there[each], each.name, is_filled, failure)
        return found

    def start(
        self, place: ReplicaPlace, *, without: Collection[str], avoided: Collection[str] = ()
    ) -> None:
        self.events.append(("start", place.short))
        used = {node for each, node in self.there.items() if each[:3] == place[:3]}
        free = [name for name in self._nodes if name not in used | {*without, *avoided}]
        self.there[place] = free[0] if free else sorted({*self._nodes} - {*without})[0]

    def end(self, places: Collection[ReplicaPlace], *, discards: bool, waits: bool = True) -> None:
        for each in places:
            self.events.append(("end", each.short))
            del self.there[each]
            self.looks.pop(each)

    def remove_groups(self, cell: str, *, but: int | None) -> None:
        assert not [each for each in self.places(cell) if each.shards != but]


@pytest.fixture
def placed(database: Database) -> Placed:
    """Return a placement of two shards with all their replicas."""
    placed = Placed(database)
    rolled(placed).up()
    placed.events.clear()
    return placed


def rolled(placed: Placed, seconds: float = 20.0, **more: Any) -> Rollout:  # noqa: ANN401
    settings = Settings(buckets=BUCKETS, **({"shards": 2} | more))
    placement = cast("RayPlacement", placed)
    rollout = Rollout(placement, placed.database, settings, list[str]().append, seconds)
    rollout.poll_seconds = 0.001
    return rollout


def shown(placed: Placed) -> list[str]:
    return [each.short for each in placed.places("main")]


def test_up_starts_all_replicas_and_again_none(placed: Placed) -> None:
    assert shown(placed) == ["0/0", "0/1", "1/0", "1/1"]
    for shard in range(2):
        mine = [node for each, node in placed.there.items() if each.shard == shard]
        assert len({*mine}) == 2
    assert placed.database.shards("main") == 2
    rolled(placed).up()
    assert placed.events == []


def test_up_starts_what_is_missing_away_from_its_sister(placed: Placed) -> None:
    lost = ReplicaPlace("main", 2, 1, 0)
    del placed.there[lost]
    sister = placed.there[ReplicaPlace("main", 2, 1, 1)]
    rolled(placed).up()
    assert placed.events == [("start", "1/0")]
    assert placed.there[lost] != sister


def test_routers_ask_another_number_of_shards_once_all_of_it_are_filled(placed: Placed) -> None:
    new = ReplicaPlace("main", 3, 2, 1)
    placed.failures[new] = "the disk is full"
    with pytest.raises(ValueError, match="5 of 6 replicas are filled: 2/1 the disk is full"):
        rolled(placed, 0.5, shards=3).up()
    assert placed.database.shards("main") == 2
    assert len(placed.places("main")) == 4 + 6
    placed.failures.clear()
    placed.events.clear()
    rolled(placed, shards=3).up()
    assert placed.database.shards("main") == 3
    assert {each.shards for each in placed.there} == {3}
    assert {kind for kind, _ in placed.events} == {"end"}


def test_more_and_fewer_replicas(placed: Placed) -> None:
    rolled(placed, replicas=3).up()
    assert len(placed.there) == 6
    rolled(placed, replicas=1).up()
    assert shown(placed) == ["0/0", "1/0"]


def test_a_move_ends_the_former_once_the_new_one_is_filled(placed: Placed) -> None:
    former = ReplicaPlace("main", 2, 0, 0)
    node = placed.there[former]
    placed.failures[ReplicaPlace("main", 2, 0, 2)] = "no room"
    with pytest.raises(ValueError, match="0 of 1 replicas are filled: 0/2 no room"):
        rolled(placed, 0.5).move(0, 0)
    assert shown(placed) == ["0/0", "0/1", "1/0", "1/1"]
    placed.failures.clear()
    placed.events.clear()
    new = rolled(placed).move(0, 0)
    assert placed.events == [("start", "0/2"), ("end", "0/0")]
    assert placed.looks[new] > 2
    assert placed.there[new] not in {node, placed.there[ReplicaPlace("main", 2, 0, 1)]}
    rolled(placed).up()
    assert placed.events == [("start", "0/2"), ("end", "0/0")]


def test_replicas_that_have_come_to_one_node_are_parted(placed: Placed) -> None:
    one, two = ReplicaPlace("main", 2, 1, 0), ReplicaPlace("main", 2, 1, 1)
    placed.there[one] = placed.there[two]
    rolled(placed).up()
    mine = [node for each, node in placed.there.items() if each.shard == 1]
    assert len({*mine}) == len(mine) == 2


def test_down_ends_all_and_lets_routers_be_set(placed: Placed) -> None:
    rolled(placed).down()
    assert not placed.there
    assert placed.database.shards("main") is None


@pytest.mark.parametrize(
    ("nodes", "more", "told"),
    [
        ("abc", {"shards": 5}, "GCWS_SHARDS of at most 4, the buckets of the database, got 5"),
        ("a", {}, "expected 2 nodes for 2 replicas of a shard, got 1; start nodes by"),
        ("abc", {"replicas": 4}, "expected 4 nodes for 4 replicas of a shard, got 3"),
    ],
)
def test_what_cannot_be_placed_is_refused(
    database: Database, nodes: str, more: dict[str, int], told: str
) -> None:
    placed = Placed(database, nodes)
    with pytest.raises(ValueError, match=told):
        rolled(placed, **more).up()
    assert not placed.there


def test_a_move_that_cannot_be_is_refused(database: Database) -> None:
    placed = Placed(database, "ab")
    rolled(placed).up()
    with pytest.raises(ValueError, match="expected an existing replica, got 0/5; 0/0, 0/1"):
        rolled(placed).move(0, 5)
    with pytest.raises(ValueError, match="without a replica of this shard, got none"):
        rolled(placed).move(0, 0)


def test_what_a_replica_is_without_is_told_when_the_time_is_over(database: Database) -> None:
    without_node, of_another_database = Placed(database), Placed(database)
    without_node.unplaceable.add(ReplicaPlace("main", 2, 1, 1))
    with pytest.raises(ValueError, match="3 of 4 replicas are filled: 1/1 has no node, or starts"):
        rolled(without_node, 0.5).up()
    of_another_database.elsewhere.add(ReplicaPlace("main", 2, 1, 1))
    with pytest.raises(ValueError, match="1/1 is listed by another database"):
        rolled(of_another_database, 0.5).up()


def test_names_are_of_places_whatever_a_cell_is_called() -> None:
    place = ReplicaPlace("a/1/2 b", 3, 2, 1)
    assert ReplicaPlace.parse(place.name) == place
    assert ReplicaPlace.parse("somebody else") is None
    assert ReplicaPlace.parse("a/b/1/x") is None


def test_the_status_tells_of_each_replica_and_of_shards_without_one(database: Database) -> None:
    placed, settings = Placed(database), Settings(buckets=BUCKETS, shards=2)
    places = [ReplicaPlace("main", 2, shard, replica) for shard in (0, 1) for replica in (0, 1)]
    placed.there = dict.fromkeys(places, "a")
    placed.unplaceable.add(places[2])
    placed.failures[places[3]] = "no room"
    row, _ = database.create("things", {})
    for replica, reached in ((0, 0), (1, -1)):
        address, positions = f"host:{replica}", {row.number: reached}
        database.announce(Replica("main", 0, replica, address, positions, 1 << 20, 0.5, 0, 2))
    rows, unanswered = status_of(database, settings, cast("RayPlacement", placed))
    states = ["filled", "is being filled", "not there", "no room"]
    assert [each[:2] for each in rows] == [*zip(["0/0", "0/1", "1/0", "1/1"], states, strict=True)]
    assert rows[0][3:] == ("host:0", "0", "1 MiB", "50% of its machine")
    assert unanswered == [1]
    without, _ = status_of(database, settings, None)
    assert [each[0] for each in without] == ["0/0", "0/1"]
