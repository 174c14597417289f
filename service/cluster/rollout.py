"""The operations of commands on replicas: start and fill, move, change the number, show."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from gcws_search.service.cluster.contract import DEAD_SECONDS, Replica
from gcws_search.service.cluster.database import Database
from gcws_search.service.settings import Settings

if TYPE_CHECKING:  # Ray reads environment variables at import
    from gcws_search.service.cluster.placing import RayPlacement

HEADS: Final = ("replica", "state", "node", "address", "behind", "items", "memory")
"""Of the columns of ``status``."""
_PARTS: Final = 4
_MEBIBYTE: Final = 1 << 20
_ID_LENGTH: Final = 8
_NONE: Final = "-"


class ReplicaPlace(NamedTuple):
    """The number of a replica, of its shard, and of all shards."""

    cell: str
    shards: int
    shard: int
    replica: int

    @property
    def group(self) -> str:
        """The name of its shard."""
        return f"{self.cell}/{self.shards}/{self.shard}"

    @property
    def name(self) -> str:
        """The name of the replica."""
        return f"{self.group}/{self.replica}"

    @property
    def short(self) -> str:
        """The name as commands take it."""
        return f"{self.shard}/{self.replica}"

    @classmethod
    def parse(cls, name: str) -> ReplicaPlace | None:
        """Return the place of a name; None for another name."""
        cell, *numbers = name.rsplit("/", _PARTS - 1)
        if len(numbers) < _PARTS - 1 or not all(each.isdecimal() for each in numbers):
            return None
        shards, shard, replica = map(int, numbers)
        return cls(cell, shards, shard, replica)


class ReplicaState(NamedTuple):
    """The state of a replica's process."""

    node: str  # its id
    address: str  # its address; empty before it listens
    is_filled: bool  # whether it has all collections and is listed for routers
    failure: str  # why it does not start


class Rollout:
    """Changes the replicas of a cell; ValueError if that is impossible, or takes too long."""

    def __init__(
        self,
        placement: RayPlacement,
        database: Database,
        settings: Settings,
        say: Callable[[str], None],  # shows a progress message
        fill_seconds: float,  # time limit for filling replicas
    ) -> None:
        self._placement = placement
        self._database = database
        self._settings = settings
        self._cell = settings.cell
        self._say = say
        self._fill_seconds = fill_seconds
        self.poll_seconds = 0.5  # interval of checks

    def up(self) -> None:
        """Start missing replicas, make routers ask them, and stop superfluous ones."""
        settings, placement = self._settings, self._placement
        shards, replicas = settings.shards, settings.replicas
        if shards > (buckets := self._database.buckets):
            raise ValueError(
                f"expected GCWS_SHARDS of at most {buckets}, the buckets of the database,"
                f" got {shards}"
            )
        nodes = placement.nodes()
        if len(nodes) < replicas:
            raise ValueError(
                f"expected {replicas} nodes for {replicas} replicas of a shard, got {len(nodes)};"
                " start nodes by `gcws-search cluster node`, or set GCWS_REPLICAS"
            )
        for shard in range(shards):
            self._complete(shard)
        there = [each for each in placement.places(self._cell) if each.shards == shards]
        self._wait_until_filled(there)
        if self._database.shards(self._cell) != shards:
            self._database.set_shards(self._cell, shards)
            self._say(f"routers ask {shards} shards from now on")
        self._end_others()
        self._spread()

    def _complete(self, shard: int) -> None:
        """Start the replicas that a shard lacks."""
        settings = self._settings
        sisters = self._replicas_of(shard, settings.shards)
        states = self._placement.states(sisters)
        for number in count():
            if len(sisters) >= settings.replicas:
                return
            place = ReplicaPlace(self._cell, settings.shards, shard, number)
            if place in sisters:
                continue
            self._say(f"replica {place.short} of {settings.shards} shards is started")
            self._placement.start(place, without={each.node for each in states.values()})
            sisters.append(place)

    def _replicas_of(self, shard: int, shards: int) -> list[ReplicaPlace]:
        wanted = self._cell, shards, shard
        return [each for each in self._placement.places(self._cell) if each[:3] == wanted]

    def _wait_until_filled(self, places: Sequence[ReplicaPlace]) -> None:
        """Return when all replicas have all collections."""
        end, said = time.monotonic() + self._fill_seconds, ""
        while True:
            states = self._placement.states(places)
            listed = {each.address for each in self._database.replicas(self._cell)}
            waiting = []
            for each in places:
                if (state := states.get(each)) is None:
                    waiting.append(f"{each.short} has no node, or starts")
                elif not state.is_filled:
                    waiting.append(f"{each.short} {state.failure or 'is being filled'}")
                elif state.address not in listed:
                    waiting.append(f"{each.short} is listed by another database")
            reasons = ", ".join(waiting)
            line = f"{len(places) - len(waiting)} of {len(places)} replicas are filled"
            if line + reasons != said:
                said = line + reasons
                self._say(f"{line}{reasons and f'; {reasons}'}")
            if not waiting:
                return
            if time.monotonic() > end:
                waited = self._fill_seconds
                raise ValueError(f"after {waited:g} s {line}: {reasons}")
            time.sleep(self.poll_seconds)

    def _end_others(self) -> None:
        """Stop replicas of other numbers of shards, and those above the number of replicas."""
        shards, replicas = self._settings.shards, self._settings.replicas
        there = self._placement.places(self._cell)
        former = [each for each in there if each.shards != shards]
        surplus = [
            each for shard in range(shards) for each in self._replicas_of(shard, shards)[replicas:]
        ]
        if former:
            self._say(f"{len(former)} replicas of the former number of shards end")
            self._placement.end(former, discards=True)
        self._placement.remove_groups(self._cell, but=shards)
        if surplus:
            self._say(f"{', '.join(each.short for each in surplus)} end")
            self._placement.end(surplus, discards=True)

    def _spread(self) -> None:
        """Move replicas that share a node with another one of their shard, if a node is free."""
        for shard in range(self._settings.shards):
            there = self._replicas_of(shard, self._settings.shards)
            states = self._placement.states(there)
            known = [each for each in there if each in states]
            used = {states[each].node for each in known}
            is_crowded = len(used) < len(known)
            if is_crowded and {*self._placement.nodes()} - used:
                nodes = [states[each].node for each in known]
                crowded = next(each for each in known if nodes.count(states[each].node) > 1)
                self.move(crowded.shard, crowded.replica)

    def move(self, shard: int, replica: int) -> ReplicaPlace:
        """Fill a replica on another node, then stop this one; return the new one."""
        shards = self._database.shards(self._cell) or self._settings.shards
        former = ReplicaPlace(self._cell, shards, shard, replica)
        there = self._replicas_of(shard, shards)
        if former not in there:
            known = ", ".join(each.short for each in self._placement.places(self._cell))
            raise ValueError(f"expected an existing replica, got {former.short}; {known}")
        states = self._placement.states(there)
        sisters = {states[each].node for each in there if each in states and each != former}
        own = {states[former].node} if former in states else set()
        if not {*self._placement.nodes()} - sisters - own:
            raise ValueError(
                "expected a node without a replica of this shard, got none;"
                " start one by `gcws-search cluster node`"
            )
        taken = {each.replica for each in there}
        number = next(number for number in count() if number not in taken)
        place = former._replace(replica=number)
        self._say(f"replica {place.short} is started, for {former.short}")
        self._placement.start(place, without=sisters, avoided=own)
        try:
            self._wait_until_filled([place])
        except BaseException:
            self._placement.end([place], discards=True, waits=False)
            raise
        self._placement.end([former], discards=True)
        return place

    def down(self) -> None:
        """Stop all replicas; the database and their files stay."""
        there = self._placement.places(self._cell)
        self._placement.end(there, discards=False, waits=False)
        self._placement.remove_groups(self._cell, but=None)
        self._database.set_shards(self._cell, None)
        self._say(f"{len(there)} replicas have ended")


def status_of(
    database: Database, settings: Settings, placement: RayPlacement | None
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return a row of `HEADS` per replica, and the shards without a complete replica.

    Without a placement (no Ray) the rows show what the database knows.
    """
    cell = settings.cell
    asked = database.shards(cell) or settings.shards
    listed = {
        ReplicaPlace(cell, each.shards, each.shard, each.replica): each
        for each in database.replicas(cell)
        if each.seen < DEAD_SECONDS
    }
    heads = {row.number: row.head for row in database.collections()}
    places = [] if placement is None else placement.places(cell)
    states = {} if placement is None else placement.states(places)
    rows = [
        _status_line(place, asked, listed.get(place), heads, states.get(place))
        for place in sorted({*listed, *places})
    ]
    answered = {
        place.shard for place, each in listed.items() if each.is_filled and place.shards == asked
    }
    return rows, sorted({*range(asked)} - answered)


def _status_line(
    place: ReplicaPlace,
    asked: int,
    listed: Replica | None,
    heads: Mapping[int, int],
    state: ReplicaState | None,
) -> tuple[str, ...]:
    name = place.short if place.shards == asked else f"{place.short} of {place.shards}"
    node = _NONE if state is None else state.node[:_ID_LENGTH]
    if listed is None:
        told = "not there" if state is None else state.failure or "starts"
        return name, told, node, _NONE, _NONE, _NONE, _NONE
    filling = "filled" if listed.is_filled else "is being filled"
    behind = sum(max(0, head - listed.positions.get(each, 0)) for each, head in heads.items())
    return (
        name,
        f"full: {listed.refusal}" if listed.refusal else filling,
        node,
        listed.address,
        str(behind),
        f"{listed.nbytes / _MEBIBYTE:.0f} MiB",
        f"{listed.share:.0%} of its machine",
    )
