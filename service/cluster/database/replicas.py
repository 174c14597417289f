"""What replicas of shards read, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import orjson

from gcws_search import index as ix
from gcws_search.service.cluster.contract import DEAD_SECONDS, START, Position, Replica, Row
from gcws_search.service.cluster.database.connections import Connection
from gcws_search.service.cluster.database.names import NameTables
from gcws_search.service.cluster.database.rows import SNAPSHOT, chunk, ordered
from gcws_search.service.cluster.errors import ClusterMismatch, HistoryLost

_HEAD: Final = """
SELECT head, trimmed, coalesce(c.key, 0), coalesce(c.stamp, ''), k.stamp,
    ARRAY(
        SELECT id FROM gone AS g
        WHERE g.collection = h.collection AND g.key > %b AND bucket = ANY(%b) ORDER BY g.key
    )
FROM heads AS h LEFT JOIN commits AS c ON c.collection = h.collection AND c.key = h.head
    LEFT JOIN commits AS k ON k.collection = h.collection AND k.key = %b
WHERE h.collection = %b
"""
"""The last commit, the stamp of an earlier one, and the ids deleted after a key."""
_BEYOND: Final = 2**62
"""No change has this key: who has nothing need not be told what was deleted."""
_OLD: Final = """
SELECT h.collection, trimmed, max(key)
FROM heads AS h JOIN commits AS c ON c.collection = h.collection
WHERE time <= now() - make_interval(secs => %b) GROUP BY h.collection
"""
"""Collections with the last key of commits that are old enough to be forgotten."""
_ANNOUNCE: Final = """
WITH listed AS (
    SELECT address FROM replicas WHERE cell = %b AND shards = %b AND shard = %b AND replica = %b
)
INSERT INTO replicas
    (cell, shards, shard, replica, address, positions, nbytes, share, refusal)
VALUES (%b, %b, %b, %b, %b, %b, %b, %b, %b)
ON CONFLICT (cell, shards, shard, replica) DO UPDATE SET address = excluded.address,
    positions = excluded.positions, nbytes = excluded.nbytes, share = excluded.share,
    refusal = excluded.refusal, seen = now()
RETURNING (SELECT address FROM listed)
"""
_WITHDRAW: Final = """
UPDATE replicas SET address = '', seen = to_timestamp(0)
WHERE cell = %b AND shards = %b AND shard = %b AND replica = %b AND address = %b
"""
"""A row that says so: the table is empty after a crash of the database, which says nothing."""
_SHARDS: Final = """
INSERT INTO cells (cell, shards) VALUES (%b, %b)
ON CONFLICT (cell) DO UPDATE SET shards = excluded.shards
"""


class Changes(NamedTuple):
    """What has changed in some buckets since a position, as of one moment.

    Attributes
    ----------
    head : Position
        Of that moment.
    deleted : list of str
        Ids that were deleted since; some may have been put again after that.
    rows : callable
        Yields the items put since by key, in chunks.
    epoch : int
        Of the primary that was read.
    """

    head: Position
    deleted: list[str]
    rows: Callable[[], Iterator[list[Row]]]
    epoch: int


class ReplicaTables(NameTables):
    """Changes for replicas, and the list of replicas."""

    @contextmanager
    def changes(
        self, number: int, buckets: Sequence[int], position: Position | None, chunk_rows: int
    ) -> Iterator[Changes]:
        """Lend what has changed since a position; all of it is of one moment.

        Parameters
        ----------
        number : int
        buckets : sequence of int
        position : Position or None
            None for all.
        chunk_rows : int

        Raises
        ------
        HistoryLost
            The database does not know the position.
        CollectionNotFound
        """
        after = position or START
        with self.connections.transaction(SNAPSHOT, self.label(number)) as connection:
            own = list(buckets)
            head, deleted = _checked_head(connection, number, after, own)
            count = head.key - after.key

            def rows() -> Iterator[list[Row]]:
                where = "bucket = ANY(%b) AND key > %b"
                if count > chunk_rows:
                    yield from ordered(connection, number, chunk_rows, where, own, after.key)
                elif count > 0 and (found := chunk(connection, number, where, own, after.key)):
                    yield found

            ids = [item_id.decode() for item_id in deleted]
            yield Changes(head, ids, rows, connection.epoch_number)

    def announce(self, replica: Replica) -> str:
        """List a replica, or what is new with it; ``seen`` is now.

        Returns
        -------
        address : str
            That was listed before; empty where none was.
        """
        positions = orjson.dumps(replica.positions, option=orjson.OPT_NON_STR_KEYS).decode()
        values = replica.address, positions, replica.nbytes, replica.share, replica.refusal
        with self.connections.use() as connection:
            place = replica.cell, replica.shards, replica.shard, replica.replica
            before = connection.column(_ANNOUNCE, *place, *place, *values)
        return str(before[0] or "")

    def withdraw(self, replica: Replica) -> None:
        """List a replica as one that is not asked any more; not another one in its place."""
        place = replica.cell, replica.shards, replica.shard, replica.replica
        with self.connections.use() as connection:
            connection.run(_WITHDRAW, *place, replica.address)

    def shards(self, cell: str) -> int | None:
        """Return of how many shards the replicas of a cell are asked; None where none is said."""
        with self.connections.use(is_confirmed=False) as connection:
            found = connection.column("SELECT shards FROM cells WHERE cell = %b", cell)
        return int(found[0]) if found else None

    def require_shards(self, cell: str, shards: int) -> None:
        """Raise ClusterMismatch where all replicas of a cell are of another number of shards.

        Where that is said for the cell, routers follow it, and replicas of another number come.
        """
        found = {
            each.shards for each in self.replicas(cell) if each.address and each.seen < DEAD_SECONDS
        }
        if found and shards not in found and self.shards(cell) is None:
            known = " or ".join(map(str, sorted(found)))
            raise ClusterMismatch(f"GCWS_SHARDS of cell {cell!r}", known, str(shards))

    def set_shards(self, cell: str, shards: int | None) -> None:
        """Say of how many shards the replicas of a cell are asked; None: as each router is set."""
        with self.connections.use() as connection:
            if shards is None:
                connection.run("DELETE FROM cells WHERE cell = %b", cell)
            else:
                connection.run(_SHARDS, cell, shards)

    def replicas(self, cell: str) -> list[Replica]:
        """Return the replicas of a cell, by number of shards and by shard."""
        with self.connections.use(is_confirmed=False) as connection:
            rows = connection.run(
                "SELECT shard, replica, address, positions, nbytes, share,"
                " extract(epoch FROM now() - seen)::double precision, shards,"
                " refusal"
                " FROM replicas WHERE cell = %b ORDER BY shards, shard, replica",
                cell,
            ).fetchall()
        found = []
        for shard, replica, address, positions, *others in rows:
            reached = {int(number): key for number, key in orjson.loads(positions).items()}
            found.append(Replica(cell, shard, replica, address, reached, *others))
        return found

    def trim(self, *, live_seconds: float = 60.0, keep_seconds: float = 3600.0) -> None:
        """Forget commits and deleted ids that no replica needs, and what dropped collections left.

        Where no replica lives nothing is forgotten.

        Parameters
        ----------
        live_seconds : float
            Replicas that were silent for longer are filled again when they return, unless the
            changes that they have not followed are younger than ``keep_seconds``.
        keep_seconds : float
            Younger commits are kept.
        """
        self.remove_dropped()
        with self.connections.transaction() as connection:
            connection.run("DELETE FROM replicas WHERE seen < now() - interval '1 day'")
            positions = [
                orjson.loads(each)
                for each in connection.column(
                    "SELECT positions FROM replicas WHERE seen > now() - make_interval(secs => %b)",
                    live_seconds,
                )
            ]
            old = connection.run(_OLD, keep_seconds).fetchall()
        if not positions:
            return
        for number, trimmed, oldest in old:
            bound = min(oldest, *(each.get(str(number), 0) for each in positions))
            if bound > trimmed:
                self._forget(number, bound)

    def _forget(self, number: int, bound: int) -> None:
        with self.connections.transaction() as connection:
            found = connection.column(
                "UPDATE heads SET trimmed = %b WHERE collection = %b AND trimmed < %b"
                " RETURNING true",
                *(bound, number, bound),
            )
            if found:
                # The commit at the bound stays: replicas are there, or come from there.
                old = number, bound
                connection.run("DELETE FROM commits WHERE collection = %b AND key < %b", *old)
                connection.run("DELETE FROM gone WHERE collection = %b AND key <= %b", *old)


def _checked_head(
    connection: Connection, number: int, position: Position, buckets: Sequence[int]
) -> tuple[Position, list[bytes]]:
    """Return where the collection is, and the ids deleted since a position.

    Raises
    ------
    HistoryLost
        It does not come from that position.
    """
    asked = position.key or _BEYOND, buckets, position.commit, number
    row = connection.run(_HEAD, *asked).fetchone()
    if row is None:
        raise ix.CollectionNotFound(str(number))
    head, trimmed, commit, stamp, known, deleted = row
    is_new = not (position.key or position.commit)
    is_forgotten = position.key < trimmed
    if not is_new and (is_forgotten or known != position.stamp):
        raise HistoryLost(position.commit, is_forgotten=is_forgotten)
    return Position(head, commit, stamp), deleted
