"""What ``gcws-search cluster status`` shows: a line a replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gcws_search.service.cluster.contract import DEAD_SECONDS, Replica
from gcws_search.service.cluster.database.database import Database
from gcws_search.service.cluster.rollout import Node, Placement, ReplicaPlace, ReplicaState
from gcws_search.service.settings import Settings

HEADS: Final = ("replica", "state", "node", "address", "behind", "items", "memory")
_MEBIBYTE: Final = 1 << 20
_ID_LENGTH: Final = 8
_NONE: Final = "-"


class Status(NamedTuple):
    """How a cluster is.

    Attributes
    ----------
    rows
        One a replica; see `HEADS`.
    unanswered
        Shards without a replica that has all collections.
    nodes
        Those that may have replicas; None where Ray cannot be asked.
    """

    rows: Sequence[tuple[str, ...]]
    unanswered: Sequence[int]
    nodes: Sequence[Node] | None


def status_of(database: Database, settings: Settings, placement: Placement | None) -> Status:
    """Return how a cluster is.

    Parameters
    ----------
    placement
        None where Ray cannot be asked: what the database knows is shown.

    Raises
    ------
    StoreUnavailable
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
    found = [
        _line(place, asked, listed.get(place), heads, states.get(place))
        for place in sorted({*listed, *places})
    ]
    answered = {
        place.shard for place, each in listed.items() if each.is_filled and place.shards == asked
    }
    nodes = None if placement is None else placement.nodes()
    return Status(found, sorted({*range(asked)} - answered), nodes)


def _state(listed: Replica) -> str:
    """Return how a replica is; one that can store nothing is left out while a sister can."""
    if listed.refusal:
        return f"full: {listed.refusal}"
    return "filled" if listed.is_filled else "is being filled"


def _line(
    place: ReplicaPlace,
    asked: int,
    listed: Replica | None,
    heads: Mapping[int, int],
    state: ReplicaState | None,
) -> tuple[str, ...]:
    """Return what there is to say of a replica."""
    name = place.short if place.shards == asked else f"{place.short} of {place.shards}"
    node = _NONE if state is None else state.node[:_ID_LENGTH]
    if listed is None:
        told = "not there" if state is None else state.failure or "starts"
        return name, told, node, _NONE, _NONE, _NONE, _NONE
    behind = sum(max(0, head - listed.positions.get(each, 0)) for each, head in heads.items())
    return (
        name,
        _state(listed),
        node,
        listed.address,
        str(behind),
        f"{listed.nbytes / _MEBIBYTE:.0f} MiB",
        f"{listed.share:.0%} of its machine",
    )
