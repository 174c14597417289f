"""How far a file has followed the database, and its cluster: a record in the file."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import Position

_KEY: Final = "position"
"""Of the record, among those of loads."""


class Place(NamedTuple):
    """The part of a cluster that a file has.

    Attributes
    ----------
    cluster
        The identity of the cluster.
    """

    cluster: str
    shard: int
    shards: int
    buckets: int


class Followed(NamedTuple):
    """How far a file has followed.

    Attributes
    ----------
    whole
        The last key at which it had all that the database had; -1 before the first.
    epoch
        Number of the primary's that was read last.
    """

    position: Position
    whole: int
    epoch: int = 0


def record(place: Place, followed: Followed) -> ix.LoadRecord:
    """Return what a file keeps."""
    key, commit, stamp = followed.position
    said = {**place._asdict(), "key": key, "commit": commit, "stamp": stamp.hex()}
    said |= {"whole": followed.whole, "epoch": followed.epoch}
    text = orjson.dumps(said).decode()
    return ix.LoadRecord(_KEY, int(time.time()), text)


def followed(collection: ix.StoredCollection, place: Place) -> Followed | None:
    """Return how far a file has followed; None where it is of no use for this place.

    Raises
    ------
    DamagedFile
    """
    found = collection.loads(0, _KEY)
    if not found:
        return None
    try:
        said = orjson.loads(found[0].progress)
        if Place(*(said[name] for name in Place._fields)) != place:
            return None
        position = Position(said["key"], said["commit"], bytes.fromhex(said["stamp"]))
        return Followed(position, said["whole"], said.get("epoch", 0))
    except (KeyError, TypeError, ValueError):
        return None
